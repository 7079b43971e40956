//! Rules about text: how files begin and end, how wide they are, what must not stay in them.

use super::{Finding, is_rust};
use crate::source::{Source, is_word, words};

/// Columns of a line of Rust, comments included.
const WIDTH: usize = 125;

/// Each Rust file opens by saying what it is.
pub(super) fn opens_with_docs(path: &str, text: &str) -> Vec<Finding> {
    if !is_rust(path) || text.starts_with("//!") {
        return Vec::new();
    }
    vec![Finding::at(path, 0, "does not open with `//!`, what this file is")]
}

/// No line ends in blanks.
pub(super) fn trailing_blanks(path: &str, text: &str) -> Vec<Finding> {
    let lines = text.split('\n').enumerate();
    lines
        .filter(|(_, l)| l.ends_with([' ', '\t', '\r']))
        .map(|(i, _)| Finding::at(path, i, "trailing blank"))
        .collect()
}

/// Rust is indented by blanks.
pub(super) fn tabs(path: &str, text: &str) -> Vec<Finding> {
    let lines = text.lines().enumerate().filter(|(_, l)| is_rust(path) && l.contains('\t'));
    lines.map(|(i, _)| Finding::at(path, i, "tab")).collect()
}

/// A file ends with one newline.
pub(super) fn final_newline(path: &str, text: &str) -> Vec<Finding> {
    let what = match text {
        "" => return Vec::new(),
        _ if !text.ends_with('\n') => "no newline at the end",
        _ if text.ends_with("\n\n") => "empty line at the end",
        _ => return Vec::new(),
    };
    vec![Finding::of(path, what)]
}

/// Rust lines fit the width, comments too, which rustfmt leaves alone.
pub(super) fn line_width(path: &str, text: &str) -> Vec<Finding> {
    if !is_rust(path) {
        return Vec::new();
    }
    let widths = text.lines().map(|l| l.chars().count()).enumerate();
    let wide = widths.filter(|&(_, width)| width > WIDTH);
    wide.map(|(i, width)| Finding::at(path, i, format!("{width} columns, more than {WIDTH}"))).collect()
}

/// Nothing names a folder of the machine it was written on.
pub(super) fn machine_paths(path: &str, text: &str) -> Vec<Finding> {
    const FOLDERS: &[&str] = &["work", "root", "home", "tmp"];
    let mut findings = Vec::new();
    for (i, line) in text.lines().enumerate() {
        for (at, word) in words(line) {
            let before = &line[..at];
            // Absolute, and `tmp` only as a folder.
            let absolute = before.ends_with('/')
                && !before[..at - 1]
                    .ends_with(|c: char| is_word(c) || matches!(c, '.' | '/' | '-' | '}' | '*' | ')'));
            let after = &line[at + word.len()..];
            let whole = !after.starts_with('-') && (word != "tmp" || after.starts_with('/'));
            if absolute && whole && FOLDERS.contains(&word) {
                findings.push(Finding::at(path, i, format!("names a folder of one machine: /{word}")));
            }
        }
    }
    findings
}

/// Nothing is left unfinished or under inspection.
pub(super) fn unfinished(path: &str, text: &str) -> Vec<Finding> {
    const MACROS: &[&str] = &["todo", "unimplemented", "dbg"];
    if !is_rust(path) {
        return Vec::new();
    }
    let code = Source::new(text).code;
    let mut findings = Vec::new();
    for (i, line) in code.lines().enumerate() {
        let left =
            words(line).filter(|&(at, w)| MACROS.contains(&w) && line[at + w.len()..].starts_with('!'));
        findings.extend(left.map(|(_, w)| Finding::at(path, i, format!("{w}! is left in"))));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|f| f.line).collect()
    }

    #[test]
    fn header() {
        assert!(opens_with_docs("a.rs", "//! What.\n").is_empty());
        assert!(opens_with_docs("a.md", "# Title\n").is_empty());
        assert_eq!(lines(&opens_with_docs("a.rs", "use b;\n//! Late.\n")), [1]);
    }

    #[test]
    fn blanks() {
        assert!(trailing_blanks("a", "a\n\tb\n").is_empty());
        assert_eq!(lines(&trailing_blanks("a", "a \nb\nc\t\nd\r\n")), [1, 3, 4]);
    }

    #[test]
    fn no_tabs() {
        assert!(tabs("a.rs", "fn a() {\n    b();\n}\n").is_empty() && tabs("a.md", "\ta\n").is_empty());
        assert_eq!(lines(&tabs("a.rs", "a\n\tb\nc // \td\n")), [2, 3]);
    }

    #[test]
    fn newline() {
        assert!(final_newline("a", "a\n").is_empty() && final_newline("a", "").is_empty());
        assert_eq!(final_newline("a", "a").len(), 1);
        assert_eq!(final_newline("a", "a\n\n").len(), 1);
    }

    #[test]
    fn width() {
        assert!(line_width("a.rs", &format!("{}\n", "é".repeat(WIDTH))).is_empty());
        assert_eq!(lines(&line_width("a.rs", &format!("a\n{}\n", "a".repeat(WIDTH + 1)))), [2]);
        assert!(line_width("a.md", &"a".repeat(WIDTH + 1)).is_empty());
    }

    #[test]
    fn paths() {
        let fine =
            "kernel/work, ../work, {/rooted}, /workspace, /proc/root, https://home.org, a/tmp/1, the /tmp\n";
        assert!(machine_paths("a.md", fine).is_empty());
        for folder in ["work/x", "root", "home/me", "tmp/x"] {
            for before in ["see /", "(/", "\"/", "`/", "/"] {
                let text = format!("a\n{before}{folder}\n");
                assert_eq!(lines(&machine_paths("a.md", &text)), [2], "{text}");
            }
        }
    }

    #[test]
    fn left_in() {
        assert!(unfinished("a.rs", "// todo!() one day\nlet dbg = \"dbg!(x)\"; my_todo!();\n").is_empty());
        for name in ["todo", "unimplemented", "dbg"] {
            assert_eq!(lines(&unfinished("a.rs", &format!("a();\n{name}!(x);\n"))), [2]);
        }
    }
}
