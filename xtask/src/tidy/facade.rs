//! Only crates/sync knows what is under the atomics, so that what the models explore is what ships.

use super::{Finding, crate_of, is_rust};
use crate::source::{Source, line_of, words};

/// Whether `path` is the facade itself.
fn is_facade(path: &str) -> bool {
    crate_of(path) == Some("sync")
}

/// Outside of crates/sync no code names std's or core's atomics, or loom.
pub(super) fn atomics(path: &str, text: &str) -> Vec<Finding> {
    if !is_rust(path) || is_facade(path) {
        return Vec::new();
    }
    let code = Source::new(text).code;
    let mut findings = Vec::new();
    for (at, path_named) in paths(&code) {
        let parts: Vec<&str> = path_named.split("::").collect();
        let what = match parts[..] {
            [root @ ("std" | "core"), "sync", "atomic", ..] => format!("{root}::sync::atomic"),
            ["loom", _, ..] => "loom".into(),
            _ => continue,
        };
        findings.push(Finding::at(
            path,
            line_of(&code, at),
            format!("names {what}: use `sync` (or `sync::host`)"),
        ));
    }
    findings
}

/// The paths that `code` names, those in braces written out, and where each ends.
fn paths(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    // What comes before the names at each depth of braces that belong to a path.
    let mut prefixes: Vec<String> = Vec::new();
    let mut path = String::new();
    let mut chars = code.char_indices().peekable();
    let mut tokens = words(code).peekable();
    while let Some((at, c)) = chars.next() {
        if let Some(&(start, word)) = tokens.peek()
            && start == at
        {
            tokens.next();
            if !path.is_empty() && !path.ends_with("::") {
                found.push((at, std::mem::take(&mut path)));
            }
            if path.is_empty() {
                path = prefixes.last().cloned().unwrap_or_default();
            }
            path.push_str(word);
            for _ in 1..word.chars().count() {
                chars.next();
            }
            continue;
        }
        match c {
            ':' if chars.peek().is_some_and(|&(_, c)| c == ':') => {
                chars.next();
                if !path.is_empty() {
                    path.push_str("::");
                }
            }
            '{' if path.ends_with("::") => prefixes.push(std::mem::take(&mut path)),
            '*' if path.ends_with("::") => path.push('*'),
            _ if c.is_whitespace() => {}
            _ => {
                if !path.is_empty() {
                    found.push((at, std::mem::take(&mut path)));
                }
                match c {
                    '}' => drop(prefixes.pop()),
                    ';' => prefixes.clear(),
                    _ => {}
                }
            }
        }
    }
    found
}

/// `cfg(loom)` stands in crates/sync and in the models, tests/loom_*.rs.
pub(super) fn cfg_loom(path: &str, text: &str) -> Vec<Finding> {
    let is_model = path
        .rsplit_once('/')
        .is_some_and(|(folder, name)| folder.ends_with("/tests") && name.starts_with("loom_"));
    if !is_rust(path) || is_facade(path) || is_model {
        return Vec::new();
    }
    let code = Source::new(text).code;
    let mut findings = Vec::new();
    for (at, _) in words(&code).filter(|&(_, w)| w == "cfg" || w == "cfg_attr") {
        let condition = code[at..].split([']', ';', '{']).next().unwrap_or_default();
        if words(condition).any(|(_, w)| w == "loom") {
            findings.push(Finding::at(
                path,
                line_of(&code, at),
                "cfg(loom) outside crates/sync and the models",
            ));
        }
    }
    findings
}

/// Above crates/sync no `macro_rules!` holds an operation of the facade: all uses of the macro would share one location,
/// and `#[track_caller]` could not tell the sites apart.
pub(super) fn macro_bodies(path: &str, text: &str) -> Vec<Finding> {
    if !is_rust(path) || is_facade(path) || crate_of(path).is_none() {
        return Vec::new();
    }
    let code = Source::new(text).code;
    let mut findings = Vec::new();
    for (start, _) in code.match_indices("macro_rules!") {
        let body = &code[start..start + block_len(&code[start..])];
        for (at, word) in words(body) {
            let method = body[..at].trim_end().ends_with('.');
            let call = body[at + word.len()..].trim_start().starts_with('(');
            if method && call && is_operation(word) {
                let what = format!("`.{word}(` inside macro_rules!: make it a function");
                findings.push(Finding::at(path, line_of(&code, start + at), what));
            }
        }
    }
    findings
}

/// Whether `name` is an operation of the facade's atomics.
fn is_operation(name: &str) -> bool {
    const NAMES: &[&str] = &["load", "load_own", "add_own", "store", "swap", "compare_exchange"];
    NAMES.contains(&name) || name.starts_with("fetch_")
}

/// The length of the first bracketed text in `code`, with what is before it.
fn block_len(code: &str) -> usize {
    let mut depth = 0;
    for (i, c) in code.char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' if depth <= 1 => return i + 1,
            '}' | ')' | ']' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<usize> {
        atomics("crates/stats/src/a.rs", text).iter().map(|f| f.line).collect()
    }

    #[test]
    fn atomics_belong_to_sync() {
        assert_eq!(named("use std::sync::atomic::AtomicU64;\n"), [1]);
        assert_eq!(named("fn a() {}\nuse std::{fmt, sync::{Arc, atomic::{AtomicU64, Ordering}}};\n"), [2, 2]);
        assert_eq!(named("use std::sync::{\n    Arc,\n    atomic,\n};\n"), [3]);
        assert_eq!(named("fn f() {\n    core::sync::atomic::fence(o);\n}\n"), [2]);
        assert_eq!(named("use std::sync::atomic::*;\n"), [1]);
        assert_eq!(named("loom::model(f);\n"), [1]);
        assert_eq!(named("use loom::{sync::Arc, thread};\n"), [1, 1]);
    }

    #[test]
    fn others_are_fine() {
        assert!(named("use std::sync::Arc;\nuse sync::{atomic::AtomicU64, host};\n").is_empty());
        assert!(named("// std::sync::atomic\nlet a = \"loom::model\";\nlet loom = 1;\n").is_empty());
        assert!(named("use std::{fmt};\nstruct A { sync: B }\nfn f() { sync::atomic::g() }\n").is_empty());
        assert!(atomics("crates/sync/src/a.rs", "use std::sync::atomic::AtomicU64;\n").is_empty());
    }

    #[test]
    fn macros_hold_no_operation() {
        let body =
            |inner: &str| format!("macro_rules! m {{\n    ($a:expr) => {{\n        {inner}\n    }};\n}}\n");
        let found = |inner: &str| -> Vec<usize> {
            macro_bodies("crates/stats/src/a.rs", &body(inner)).iter().map(|f| f.line).collect()
        };
        for bad in ["$a.load(Relaxed)", "$a.store(1, Release)", "x.fetch_add(1, o)", "b(1); a.add_own(1)"] {
            assert_eq!(found(bad), [3], "{bad}");
            assert!(macro_bodies("crates/sync/src/a.rs", &body(bad)).is_empty());
        }
        for fine in ["// $a.load(Relaxed)", "load($a)", "$a.loads(1)", "$a.load", "1 }; } fn f() { a.load(o)"]
        {
            assert!(found(fine).is_empty(), "{fine}");
        }
    }

    #[test]
    fn cfg_loom_stays_below() {
        let bad = ["#[cfg(loom)]\nmod a;\n", "#[cfg(all(test, not(loom)))]\nmod a;\n", "if cfg!(loom) {}\n"];
        for text in bad {
            assert_eq!(cfg_loom("crates/stats/src/a.rs", text).len(), 1, "{text}");
            assert!(cfg_loom("crates/stats/tests/loom_read.rs", text).is_empty());
            assert!(cfg_loom("crates/sync/src/lib.rs", text).is_empty());
        }
        for text in ["// #[cfg(loom)]\n", "#[cfg(test)]\nmod a;\n", "#[cfg(test)]\nmod loom {}\n"] {
            assert!(cfg_loom("crates/stats/src/a.rs", text).is_empty());
        }
    }
}
