//! The rules that no other tool checks. A rule is a function: most look at one file's path and text, some at all files.

mod facade;
mod kernel;
mod layout;
pub(crate) mod ordering;
mod text;

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::mutants;
use crate::report::Outcome;

pub(crate) use layout::above;

/// A file of the repository: its path from the root, with `/`, and its text.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Something against the rules. Line 0 means the file as a whole.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl Finding {
    /// On the line with index `line`.
    fn at(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.into(), line: line + 1, what: what.into() }
    }

    /// About the whole file.
    fn of(path: &str, what: impl Into<String>) -> Finding {
        Finding { path: path.into(), line: 0, what: what.into() }
    }

    /// As it is printed: `file:line: rule: sentence`.
    fn of_rule(self, name: &str) -> Finding {
        Finding { what: format!("{name}: {}", self.what), ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// A rule: its name in the output, and the check.
struct Rule<F> {
    name: &'static str,
    check: F,
}

/// Looks at a file's path and text.
type FileRule = Rule<fn(&str, &str) -> Vec<Finding>>;

/// Looks at all files.
type TreeRule = Rule<fn(&[File]) -> Vec<Finding>>;

const FILE_RULES: &[FileRule] = &[
    Rule { name: "opens-with-docs", check: text::opens_with_docs },
    Rule { name: "trailing-blank", check: text::trailing_blanks },
    Rule { name: "tab", check: text::tabs },
    Rule { name: "final-newline", check: text::final_newline },
    Rule { name: "line-width", check: text::line_width },
    Rule { name: "machine-path", check: text::machine_paths },
    Rule { name: "unfinished", check: text::unfinished },
    Rule { name: "ordering-reason", check: ordering::has_reason },
    Rule { name: "atomics", check: facade::atomics },
    Rule { name: "cfg-loom", check: facade::cfg_loom },
    Rule { name: "macro-body", check: facade::macro_bodies },
    Rule { name: "lints", check: layout::inherits_lints },
    Rule { name: "direction", check: layout::direction },
];

const TREE_RULES: &[TreeRule] = &[
    Rule { name: "ordering-pair", check: ordering::pairs },
    Rule { name: "citation", check: kernel::citations },
    Rule { name: "folder-map", check: layout::folder_map },
    Rule { name: "mutant", check: mutants_fit },
];

/// Checks the repository at `root`.
///
/// # Errors
/// If a file cannot be read.
pub(crate) fn check(root: &Path) -> Result<Outcome> {
    let files = files(root)?;
    let mut findings: Vec<Finding> = Vec::new();
    for Rule { name, check } in FILE_RULES {
        let found = files.iter().flat_map(|file| check(&file.path, &file.text));
        findings.extend(found.map(|finding| finding.of_rule(name)));
    }
    for Rule { name, check } in TREE_RULES {
        findings.extend(check(&files).into_iter().map(|finding| finding.of_rule(name)));
    }
    findings.sort();
    let output = findings.iter().map(|f| format!("{f}\n")).collect();
    Ok(Outcome::Check { ok: findings.is_empty(), output })
}

/// What the list of mutants replaces stands in the sources.
fn mutants_fit(files: &[File]) -> Vec<Finding> {
    mutants::unfit(files).into_iter().map(|line| Finding::of(mutants::LIST, line)).collect()
}

/// The text files that are ours, sorted by path.
pub(crate) fn files(root: &Path) -> Result<Vec<File>> {
    /// Made by tools, or written by others.
    const NOT_OURS: &[&str] = &[".git", "target", "Cargo.lock", "LICENSE-APACHE", "LICENSE-MIT"];
    let mut files = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).with_context(|| format!("cannot read {folder:?}"))? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if NOT_OURS.contains(&name.as_str()) {
                continue;
            }
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let bytes = fs::read(entry.path()).with_context(|| format!("cannot read {path}"))?;
                if let Ok(text) = String::from_utf8(bytes) {
                    files.push(File { path, text });
                }
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// The name of the crate under crates/ that `path` belongs to.
fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.split_once('/').map(|(name, _)| name)
}

/// Whether `path` is Rust source.
fn is_rust(path: &str) -> bool {
    path.ends_with(".rs")
}

/// Files for tests.
#[cfg(test)]
pub(crate) fn tree(files: &[(&str, &str)]) -> Vec<File> {
    files.iter().map(|&(path, text)| File { path: path.into(), text: text.into() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_name_their_rule() {
        let at = Finding::at("a.rs", 2, "Wrong.").of_rule("tab");
        assert_eq!(at.to_string(), "a.rs:3: tab: Wrong.");
        assert_eq!(Finding::of("a.rs", "Wrong.").of_rule("tab").to_string(), "a.rs: tab: Wrong.");
    }

    #[test]
    fn names_of_rules_are_their_own() {
        let names = || FILE_RULES.iter().map(|r| r.name).chain(TREE_RULES.iter().map(|r| r.name));
        assert_eq!(names().collect::<std::collections::HashSet<_>>().len(), names().count());
    }
}
