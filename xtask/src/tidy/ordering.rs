//! Memory orderings carry their reason, and the partner a reason names is there.

use std::collections::HashMap;

use super::{File, Finding, crate_of, is_rust};
use crate::source::{Source, words};

/// The crates whose orderings are the kernel's, or hold the simulated machine together.
const CRATES: &[&str] = &["percpu", "stats", "jump_label", "filter", "trampoline"];

/// How far above its ordering a comment may begin.
const REACH: usize = 6;

/// Each ordering stronger than Relaxed and each fence has a comment that says why.
pub(super) fn has_reason(path: &str, text: &str) -> Vec<Finding> {
    if !is_rust(path) || !path.contains("/src/") || !crate_of(path).is_some_and(|c| CRATES.contains(&c)) {
        return Vec::new();
    }
    let source = Source::new(text);
    let comments: Vec<&str> = source.comments.lines().collect();
    let tests = source.test_lines();
    let mut findings = Vec::new();
    for (at, what) in strong(&source.code) {
        let line = crate::source::line_of(&source.code, at);
        let reasons = &comments[line.saturating_sub(REACH)..=line];
        if !tests[line] && !reasons.iter().any(|c| is_reason(c)) {
            findings.push(Finding::at(
                path,
                line,
                format!("{what} without `// ORDERING:` or `// rule N of`"),
            ));
        }
    }
    findings
}

/// The orderings stronger than Relaxed and the fences that `code` uses, and where.
fn strong(code: &str) -> Vec<(usize, &str)> {
    const ORDERINGS: &[&str] = &["Acquire", "Release", "AcqRel", "SeqCst"];
    const FENCES: &[&str] = &["smp_wmb", "smp_rmb", "smp_mb", "fence"];
    let mut found = Vec::new();
    let mut in_use = false;
    let mut last = 0;
    for (at, word) in words(code) {
        in_use = (in_use && !code[last..at].contains(';')) || (word == "use" && is_statement(&code[..at]));
        last = at;
        let before = code[..at].trim_end();
        let value =
            before.ends_with("Ordering::") || before.ends_with(['(', ',', '=']) || before.ends_with("=>");
        let call = code[at + word.len()..].starts_with('(') && !before.ends_with("fn");
        if !in_use && ((ORDERINGS.contains(&word) && value) || (FENCES.contains(&word) && call)) {
            found.push((at, word));
        }
    }
    found
}

/// Whether a word after `before` begins a statement or follows a visibility.
fn is_statement(before: &str) -> bool {
    let before = before.trim_end();
    before.is_empty() || before.ends_with([';', '{', '}', ']', ')']) || before.ends_with("pub")
}

/// Whether a comment gives a reason for an ordering: `ORDERING`, or `rule 2 of`.
fn is_reason(comment: &str) -> bool {
    let words: Vec<&str> = words(comment).map(|(_, w)| w).collect();
    let rule = |w: &[&str]| w[0] == "rule" && w[1].parse::<u32>().is_ok() && w[2] == "of";
    words.contains(&"ORDERING") || words.windows(3).any(rule)
}

/// What an `ORDERING` comment pairs with is a function of the workspace, `name` or `module::name` or `Type::name`.
pub(super) fn partner_exists(files: &[File]) -> Vec<Finding> {
    let rust: Vec<(&File, Source)> =
        files.iter().filter(|f| is_rust(&f.path)).map(|f| (f, Source::new(&f.text))).collect();
    let mut functions: HashMap<&str, Vec<(&str, &str)>> = HashMap::new();
    for (file, source) in &rust {
        let names: Vec<&str> = words(&source.code).map(|(_, w)| w).collect();
        for name in names.windows(2).filter(|w| w[0] == "fn").map(|w| w[1]) {
            functions.entry(name).or_default().push((&file.path, &source.code));
        }
    }
    let mut findings = Vec::new();
    for (file, source) in &rust {
        for (line, partner) in partners(&source.comments) {
            let what = match partner {
                None => "pairs with nobody: name the function in backticks".to_string(),
                Some(partner) if !exists(&functions, &partner) => {
                    format!("pairs with `{partner}`, which is no function here")
                }
                Some(_) => continue,
            };
            findings.push(Finding::at(&file.path, line, what));
        }
    }
    findings
}

/// Whether `functions`, by name with the path and code of where they are defined, know `name`.
fn exists(functions: &HashMap<&str, Vec<(&str, &str)>>, name: &str) -> bool {
    let mut parts = name.trim_end_matches("()").rsplit("::");
    let places = parts.next().and_then(|function| functions.get(function));
    let within = |of: &str| {
        let there = |&(path, code): &(&str, &str)| {
            path.trim_end_matches(".rs").split('/').any(|p| p == of) || words(code).any(|(_, w)| w == of)
        };
        places.is_some_and(|places| places.iter().any(there))
    };
    places.is_some() && parts.next().is_none_or(within)
}

/// Whether a comment begins with `ORDERING`.
fn is_marked(comment: &str) -> bool {
    comment.trim_start().trim_start_matches(['/', '!']).trim_start().starts_with("ORDERING")
}

/// For each `ORDERING` comment that says "pairs with": the line that says so, and the next name in backticks.
fn partners(comments: &str) -> Vec<(usize, Option<String>)> {
    let lines: Vec<&str> = comments.lines().collect();
    let is_comment = |l: &&str| l.trim_start().starts_with("//");
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        if !is_marked(line) {
            continue;
        }
        // The comment, up to the next that is marked.
        let more = lines[start + 1..].iter().take_while(|l| is_comment(l) && !is_marked(l));
        let mut text = line.trim().to_string();
        let mut ends = vec![text.len()];
        for line in more {
            text.push(' ');
            text.push_str(line.trim().trim_start_matches(['/', '!']).trim_start());
            ends.push(text.len());
        }
        for (at, said) in text.match_indices("pairs with") {
            let line = start + ends.iter().take_while(|&&end| end <= at).count();
            let rest = &text[at + said.len()..];
            // One partner of several: up to the next "pairs with".
            let rest = rest.split("pairs with").next().unwrap_or(rest);
            found.push((line, rest.split('`').nth(1).map(str::to_string)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    const PATH: &str = "crates/stats/src/a.rs";

    fn reason(text: &str) -> Vec<usize> {
        has_reason(PATH, text).iter().map(|f| f.line).collect()
    }

    #[test]
    fn strong_orderings_need_a_reason() {
        assert_eq!(reason("a.load(Acquire);\n"), [1]);
        assert_eq!(reason("a\n    .swap(\n        1,\n        Ordering::AcqRel,\n    );\n"), [4]);
        assert_eq!(reason("let order = SeqCst;\nb(match x { 1 => Release, _ => Relaxed });\n"), [1, 2]);
        assert_eq!(reason("smp_wmb();\nbarrier::smp_rmb();\nfence(Ordering::Relaxed);\n"), [1, 2, 3]);
        assert_eq!(reason("// Why not.\na.store(0, Release);\n"), [2]);
    }

    #[test]
    fn a_reason_near_is_enough() {
        assert_eq!(reason("// ORDERING: Acquire; pairs with `b`.\na.load(Acquire);\n"), []);
        assert_eq!(reason("// ORDERING (host): pairs with `b`.\na.load(Acquire);\n"), []);
        assert_eq!(reason("a.load(SeqCst); // rule 2 of `irq`\n"), []);
        assert_eq!(reason("// ORDERING: why.\n\n\n\n\n\nsmp_rmb();\n"), []);
        assert_eq!(reason("// ORDERING: why.\n\n\n\n\n\n\nsmp_rmb();\n"), [8]);
        assert_eq!(reason("let s = \"ORDERING\";\nsmp_rmb();\n"), [2]);
    }

    #[test]
    fn no_ordering_no_reason() {
        assert_eq!(reason("a.load(Relaxed); // Acquire would do\n"), []);
        assert_eq!(
            reason("use x::Ordering::{\n    Acquire, Release,\n};\npub(crate) use y::{A, SeqCst};\n"),
            []
        );
        assert_eq!(reason("pub fn smp_wmb() {}\nstruct Acquire;\nimpl Read for Acquire {}\n"), []);
        assert_eq!(reason("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { fence(SeqCst) }\n}\n"), []);
        assert_eq!(has_reason("crates/sync/src/a.rs", "fence(SeqCst);\n"), []);
        assert_eq!(has_reason("crates/stats/tests/a.rs", "fence(SeqCst);\n"), []);
    }

    fn partner(comment: &str) -> Vec<usize> {
        let files = tree(&[
            ("crates/stats/src/a.rs", &format!("//! A.\n{comment}\nfn a() {{}}\n")),
            (
                "crates/percpu/src/irq.rs",
                "struct Line;\nimpl Line {\n    fn handle() {}\n}\n// fn gone() {}\n",
            ),
        ]);
        partner_exists(&files).iter().map(|f| f.line).collect()
    }

    #[test]
    fn partners_exist() {
        for name in ["a", "handle", "irq::handle", "Line::handle", "percpu::irq::handle", "a()"] {
            assert_eq!(
                partner(&format!("// ORDERING: Release; pairs with the load in `{name}`; so.")),
                [],
                "{name}"
            );
        }
        assert_eq!(partner("// ORDERING (host): this and\n// that; pairs with\n// `handle`."), []);
        assert_eq!(partner("// This pairs with `gone`.\n// And an ORDERING pairs with `gone`."), []);
        assert_eq!(partner("// ORDERING: Relaxed; nobody else looks."), []);
    }

    #[test]
    fn partners_that_do_not_exist() {
        for name in ["gone", "a::handle", "Other::handle", "irq::a"] {
            assert_eq!(partner(&format!("// ORDERING: pairs with `{name}`.")), [2], "{name}");
        }
        assert_eq!(partner("// ORDERING: Release; pairs with the load."), [2]);
        assert_eq!(partner("fence(Release); // ORDERING: pairs with the load."), [2]);
        assert_eq!(partner("// ORDERING: pairs with `handle`,\n// also pairs with `gone`."), [3]);
    }
}
