//! The rules that no other tool checks. A rule is a function: most look at one file's path and text, some at all files.

mod facade;
mod kernel;
mod layout;
mod ordering;
mod text;

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::report::Outcome;

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
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// Looks at a file's path and text.
type FileRule = fn(&str, &str) -> Vec<Finding>;

/// Looks at all files.
type TreeRule = fn(&[File]) -> Vec<Finding>;

const FILE_RULES: &[FileRule] = &[
    text::opens_with_docs,
    text::trailing_blanks,
    text::final_newline,
    text::line_width,
    text::machine_paths,
    text::unfinished,
    ordering::has_reason,
    facade::atomics,
    facade::cfg_loom,
    layout::inherits_lints,
    layout::direction,
];

const TREE_RULES: &[TreeRule] = &[ordering::partner_exists, kernel::citations, layout::folder_map];

/// Checks the repository at `root`.
///
/// # Errors
/// If a file cannot be read.
pub(crate) fn check(root: &Path) -> Result<Outcome> {
    let files = files(root)?;
    let mut findings: Vec<Finding> = Vec::new();
    for file in &files {
        findings.extend(FILE_RULES.iter().flat_map(|rule| rule(&file.path, &file.text)));
    }
    findings.extend(TREE_RULES.iter().flat_map(|rule| rule(&files)));
    findings.sort();
    let output = findings.iter().map(|f| format!("{f}\n")).collect();
    Ok(Outcome::Check { ok: findings.is_empty(), output })
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

#[cfg(test)]
pub(crate) fn tree(files: &[(&str, &str)]) -> Vec<File> {
    files.iter().map(|&(path, text)| File { path: path.into(), text: text.into() }).collect()
}
