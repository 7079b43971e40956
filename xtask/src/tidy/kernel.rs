//! Citations of kernel commits and KERNEL.toml hold each other.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;

use super::{File, Finding, is_rust};
use crate::source::words;

/// Where the cited commits are listed.
const LIST: &str = "KERNEL.toml";

/// Digits of a commit id as we cite it.
const DIGITS: usize = 12;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    baseline: Baseline,
    #[serde(default)]
    commit: Vec<Commit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Baseline {
    tag: String,
    notes: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Commit {
    id: String,
    title: String,
    release: String,
    /// Whether the title was looked up.
    #[serde(default = "yes")]
    #[expect(dead_code, reason = "for readers of the list; here only its type is checked")]
    confirmed: bool,
    /// Why it is listed though nothing cites it.
    kept: Option<String>,
}

fn yes() -> bool {
    true
}

/// Each commit cited in .rs and .md is listed, each one listed is cited or says why it is kept, and the list is sound.
pub(super) fn citations(files: &[File]) -> Vec<Finding> {
    let cited = cited(files);
    let Some(file) = files.iter().find(|f| f.path == LIST) else {
        return vec![Finding::of(LIST, "is missing")];
    };
    let list: List = match toml::from_str(&file.text) {
        Ok(list) => list,
        Err(e) => return vec![Finding::of(LIST, e.to_string().trim_end())],
    };
    let mut findings = Vec::new();
    if list.baseline.tag.is_empty() || list.baseline.notes.is_empty() {
        findings.push(Finding::of(LIST, "the baseline has no tag or no notes"));
    }
    let mut listed = HashSet::new();
    for commit in &list.commit {
        let id = commit.id.as_str();
        let what = if !is_id(id) {
            "is not 12 hexadecimal digits"
        } else if !listed.insert(id) {
            "is listed twice"
        } else if commit.title.is_empty() || commit.release.is_empty() {
            "has no title or no release"
        } else if commit.kept.as_ref().is_some_and(String::is_empty) {
            "is kept without a reason"
        } else if commit.kept.is_none() && !cited.contains_key(id) {
            "is cited nowhere: cite it, take it out, or say why in `kept`"
        } else {
            continue;
        };
        let line = file.text.lines().position(|l| l.contains(id)).unwrap_or(0);
        findings.push(Finding::at(LIST, line, format!("{id} {what}")));
    }
    for (id, (path, line)) in cited {
        if !listed.contains(id) {
            findings.push(Finding::at(path, line, format!("cites {id}, which {LIST} does not list")));
        }
    }
    findings
}

/// The commits that Rust and Markdown cite, and where each is first.
fn cited(files: &[File]) -> BTreeMap<&str, (&str, usize)> {
    let mut cited = BTreeMap::new();
    for file in files.iter().filter(|f| is_rust(&f.path) || f.path.ends_with(".md")) {
        for (line, text) in file.text.lines().enumerate() {
            // Also as a part of a name, as in `history::before_ID`.
            for id in words(text).flat_map(|(_, word)| word.split('_')).filter(|part| is_id(part)) {
                cited.entry(id).or_insert((file.path.as_str(), line));
            }
        }
    }
    cited
}

/// Whether `word` looks like a commit id: a number in decimal, or a word, is none.
fn is_id(word: &str) -> bool {
    let hex = word.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let both =
        word.contains(|c: char| c.is_ascii_digit()) && word.contains(|c: char| c.is_ascii_alphabetic());
    word.len() == DIGITS && hex && both
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    /// What is found if `cited` is cited in Rust and the list holds `commits`. Ids are made here, not written: written
    /// ones would be citations.
    fn found(cited: &[&str], commits: &[(&str, &str)]) -> Vec<String> {
        let text: String = cited.iter().map(|id| format!("//! {id}\n")).collect();
        let mut list = "[baseline]\ntag = \"v1\"\nnotes = \"n\"\n".to_string();
        for (id, more) in commits {
            list += &format!("[[commit]]\nid = \"{id}\"\ntitle = \"t\"\nrelease = \"6.6\"\n{more}\n");
        }
        let files = tree(&[("a.rs", &text), (LIST, &list), ("b.toml", &text)]);
        citations(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn cited_and_listed() {
        let (a, b) = ("a1b2".repeat(3), "c3d4".repeat(3));
        assert_eq!(found(&[&a, "a1b2", "123456789012", "abcdefabcdef"], &[(&a, "")]), [""; 0]);
        assert_eq!(
            found(&[], &[(&a, "kept = \"for later\""), (&b, "confirmed = false\nkept = \"x\"")]),
            [""; 0]
        );
    }

    #[test]
    fn cited_in_a_name() {
        let a = "a1b2".repeat(3);
        assert_eq!(found(&[&format!("before_{a}")], &[(&a, "")]), [""; 0]);
        assert_eq!(found(&[&format!("since_{a}")], &[]).len(), 1);
    }

    #[test]
    fn not_listed_or_not_cited() {
        let (a, b) = ("a1b2".repeat(3), "c3d4".repeat(3));
        assert_eq!(
            found(&[&a, &b], &[(&a, "")]),
            [format!("a.rs:2: cites {b}, which KERNEL.toml does not list")]
        );
        let unused = found(&[&a], &[(&a, ""), (&b, "")]);
        assert!(unused.len() == 1 && unused[0].contains(&format!("{b} is cited nowhere")), "{unused:?}");
    }

    #[test]
    fn unsound_lists() {
        let a = "a1b2".repeat(3);
        for (commits, what) in [
            (vec![(a.as_str(), ""), (a.as_str(), "")], "listed twice"),
            (vec![(a.as_str(), ""), ("a1b2", "")], "not 12"),
            (vec![(a.as_str(), "kept = \"\"")], "without a reason"),
            (vec![(a.as_str(), "keep = \"x\"")], "unknown field"),
        ] {
            let findings = found(&[&a], &commits);
            assert!(findings.len() == 1 && findings[0].contains(what), "{findings:?}");
        }
        assert_eq!(citations(&tree(&[("a.rs", "")])).len(), 1);
    }
}
