//! What models came to before, kept in the tree: the exact numbers of their executions (`tests/loom_pins.txt` beside them),
//! and the shortest counterexample of each that must fail (`counterexamples/` at the root).

use std::collections::BTreeMap;
use std::path::PathBuf;

use timeline::Timeline;

use super::model::workspace;

/// Whether new numbers and counterexamples are written instead of compared.
fn repin() -> bool {
    std::env::var_os("LOOM_REPIN").is_some()
}

/// Compares the number of executions of model `name` in `set` with the one that is pinned.
///
/// # Errors
/// If it is another: what to do.
pub(super) fn check_executions(name: &str, set: &str, executions: u64) -> Result<(), String> {
    let path = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("run by cargo"))
        .join("tests/loom_pins.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let line = |l: &str| {
        let mut words = l.split_whitespace();
        Some(((words.next()?.to_owned(), words.next()?.to_owned()), words.next()?.parse().ok()?))
    };
    let mut pins: BTreeMap<(String, String), u64> = text.lines().filter_map(line).collect();
    let key = (name.to_owned(), set.to_owned());
    let old = pins.get(&key).copied();
    if old == Some(executions) {
        return Ok(());
    }
    if !repin() {
        let old = old.map_or_else(|| "none".into(), |n| n.to_string());
        return Err(format!(
            "{executions} executions, pinned are {old}. What changed? `cargo xtask loom --repin` pins anew"
        ));
    }
    println!("repinned {name} {set}: {old:?} -> {executions}");
    pins.insert(key, executions);
    let text: String = pins.iter().map(|((name, set), n)| format!("{name} {set} {n}\n")).collect();
    std::fs::write(path, text).map_err(|e| format!("the pins cannot be written: {e}"))
}

/// Compares the shortest counterexample of a model that must fail with the one in the tree.
///
/// # Errors
/// If it is another: what to do.
pub(super) fn check_counterexample(name: &str, found: &Timeline) -> Result<(), String> {
    let path = workspace().join("counterexamples").join(file_name(name));
    let (old, new) = (std::fs::read_to_string(&path).unwrap_or_default(), found.json());
    if old == new {
        return Ok(());
    }
    if !repin() {
        return Err(format!(
            "its counterexample is not the one in counterexamples/{}. What changed? `cargo xtask loom --repin` \
             records anew; now it is:\n{}",
            file_name(name),
            found.text(120, false)
        ));
    }
    println!("repinned {name} counterexample: {} operations", found.rows.len());
    std::fs::create_dir_all(workspace().join("counterexamples"))
        .and_then(|()| std::fs::write(path, new))
        .map_err(|e| format!("the counterexample cannot be written: {e}"))
}

/// The file of the model called `name`.
pub(super) fn file_name(name: &str) -> String {
    name.replace("::", "-") + ".json"
}
