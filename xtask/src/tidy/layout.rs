//! Which crate may depend on which, and that manifests and the README's map agree with the tree.

use toml::{Table, Value};

use super::{File, Finding, crate_of};
use crate::source::is_word;

/// The crates, bottom first, and those of ours that each may depend on.
const CRATES: &[(&str, &[&str])] = &[
    ("timeline", &[]),
    ("sync", &["timeline"]),
    ("percpu", &["sync"]),
    ("stats", &["sync", "percpu"]),
    ("jump_label", &["sync"]),
    ("filter", &["sync", "percpu", "stats", "jump_label"]),
    ("trampoline", &["sync", "percpu", "stats", "jump_label", "filter"]),
    ("bpf", &["sync", "percpu", "stats", "jump_label", "filter", "trampoline"]),
    ("host", &[]),
    ("lab", &["sync", "percpu", "stats", "jump_label", "filter", "trampoline", "bpf", "host", "timeline"]),
    ("xtask", &["timeline"]),
];

/// The crate called `name` and those that may depend on it, bottom first.
pub(crate) fn above(name: &str) -> Vec<&'static str> {
    let is_above = |(other, below): &&(&str, &[&str])| *other == name || below.contains(&name);
    CRATES.iter().filter(is_above).map(|(name, _)| *name).collect()
}

/// Speaks to the real kernel, and knows nothing else.
const ONLY_LIBC: &str = "host";

/// Whether `path` is a member's manifest.
fn is_member(path: &str) -> bool {
    path == "xtask/Cargo.toml"
        || crate_of(path).is_some_and(|name| path == format!("crates/{name}/Cargo.toml"))
}

/// Each member takes the workspace's lints.
pub(super) fn inherits_lints(path: &str, text: &str) -> Vec<Finding> {
    if !is_member(path) {
        return Vec::new();
    }
    match text.parse::<Table>() {
        Err(e) => vec![Finding::of(path, e.to_string().trim_end())],
        Ok(t) if t.get("lints").and_then(|l| l.get("workspace")) == Some(&Value::Boolean(true)) => Vec::new(),
        Ok(_) => vec![Finding::of(path, "has no `[lints] workspace = true`")],
    }
}

/// Each crate depends only on crates below it.
pub(super) fn direction(path: &str, text: &str) -> Vec<Finding> {
    if !is_member(path) {
        return Vec::new();
    }
    // What does not parse is the finding of another rule.
    let Ok(manifest) = text.parse::<Table>() else { return Vec::new() };
    let name = crate_of(path).unwrap_or("xtask");
    let Some((_, below)) = CRATES.iter().find(|(known, _)| *known == name) else {
        return vec![Finding::of(
            path,
            format!("{name} has no place among the crates: give it one in {}", file!()),
        )];
    };
    let mut findings = Vec::new();
    for (dependency, spec) in dependencies(&manifest) {
        let package = spec.get("package").and_then(Value::as_str).unwrap_or(dependency);
        let ours = CRATES.iter().any(|(known, _)| *known == package);
        if ours && !below.contains(&package) {
            findings.push(Finding::of(path, format!("{name} depends on {package}, which is not below it")));
        } else if !ours && name == ONLY_LIBC && package != "libc" {
            findings.push(Finding::of(path, format!("{name} depends on {package}: it may use libc alone")));
        }
    }
    findings
}

/// The dependencies that `manifest` names for its library and programs, on any target.
fn dependencies(manifest: &Table) -> Vec<(&str, &Value)> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let of_targets = targets.into_iter().flat_map(Table::values).filter_map(|t| t.get("dependencies"));
    let sections = manifest.get("dependencies").into_iter().chain(of_targets);
    sections.filter_map(Value::as_table).flatten().map(|(name, spec)| (name.as_str(), spec)).collect()
}

/// README.md, if there is one, has a line for each crate in its map of the folders.
pub(super) fn folder_map(files: &[File]) -> Vec<Finding> {
    let Some(readme) = files.iter().find(|f| f.path == "README.md") else { return Vec::new() };
    let members = files.iter().filter(|f| is_member(&f.path));
    let names = members.map(|f| crate_of(&f.path).unwrap_or("xtask"));
    let missing = names.filter(|name| !readme.text.lines().any(|line| is_entry(line, name)));
    missing.map(|name| Finding::of("README.md", format!("the folder map does not name {name}"))).collect()
}

/// Whether `line` is the entry of the folder `name` in a table, a list or a tree: the name comes first.
fn is_entry(line: &str, name: &str) -> bool {
    let line = line.trim_start_matches(|c: char| !is_word(c));
    let line = line.strip_prefix("crates/").unwrap_or(line);
    line.strip_prefix(name).is_some_and(|rest| !rest.starts_with(is_word))
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    #[test]
    fn lints() {
        assert!(inherits_lints("crates/a/Cargo.toml", "[lints]\nworkspace = true\n").is_empty());
        assert!(inherits_lints("Cargo.toml", "[workspace]\n").is_empty());
        for bad in
            ["[package]\n", "[lints]\nworkspace = false\n", "[lints.rust]\nmissing_docs = \"warn\"\n", "[[\n"]
        {
            assert_eq!(inherits_lints("xtask/Cargo.toml", bad).len(), 1, "{bad}");
        }
    }

    fn direction_of(name: &str, text: &str) -> usize {
        direction(&format!("crates/{name}/Cargo.toml"), text).len()
    }

    #[test]
    fn down_the_chain() {
        assert_eq!(
            direction_of("filter", "[dependencies]\nsync.workspace = true\nstats = {}\nanyhow = \"1\"\n"),
            0
        );
        assert_eq!(direction_of("sync", "[dev-dependencies]\nstats.workspace = true\n"), 0);
        assert_eq!(direction_of("jump_label", "[dependencies]\nsync.workspace = true\n"), 0);
        assert_eq!(direction_of("host", "[dependencies]\nlibc.workspace = true\n"), 0);
        assert!(direction("xtask/Cargo.toml", "[dependencies]\ntoml = \"1\"\n").is_empty());
    }

    #[test]
    fn up_the_chain() {
        assert_eq!(
            direction_of("stats", "[dependencies]\nfilter.workspace = true\nlab.workspace = true\n"),
            2
        );
        assert_eq!(direction_of("stats", "[target.'cfg(unix)'.dependencies]\nbpf.workspace = true\n"), 1);
        assert_eq!(
            direction_of("stats", "[dependencies]\nb = { package = \"bpf\", path = \"../bpf\" }\n"),
            1
        );
        assert_eq!(direction_of("lab", "[dependencies]\nxtask = {}\n"), 1);
        assert_eq!(direction_of("jump_label", "[dependencies]\nsync = {}\npercpu = {}\nstats = {}\n"), 2);
        assert_eq!(direction_of("host", "[dependencies]\nlibc = \"0.2\"\nsync = {}\nanyhow = \"1\"\n"), 2);
        assert_eq!(direction_of("new", ""), 1);
        assert_eq!(direction("xtask/Cargo.toml", "[dependencies]\nlab.workspace = true\n").len(), 1);
    }

    #[test]
    fn a_crate_and_those_above_it() {
        assert_eq!(above("jump_label"), ["jump_label", "filter", "trampoline", "bpf", "lab"]);
        assert_eq!(above("none"), [""; 0]);
    }

    fn map(readme: &str) -> usize {
        folder_map(&tree(&[("README.md", readme), ("crates/bpf/Cargo.toml", ""), ("xtask/Cargo.toml", "")]))
            .len()
    }

    #[test]
    fn map_names_all() {
        assert_eq!(map("| `crates/bpf` | maps |\n| [`xtask`](xtask) | tasks |\n"), 0);
        assert_eq!(map("├── bpf/  maps\n- xtask: tasks\n"), 0);
        assert_eq!(map("Runs bpf by cargo xtask.\n"), 2);
        assert_eq!(map("| bpf_x | |\nxtask\n"), 1);
        assert!(folder_map(&tree(&[("xtask/Cargo.toml", "")])).is_empty());
    }
}
