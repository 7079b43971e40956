//! Finds the scenarios, the kernel commits and the sources of the path, so that a new scenario is one file and no more.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Whose sources timelines name.
const SOURCES: [&str; 7] = [
    "crates/jump_label/src",
    "crates/stats/src",
    "crates/percpu/src",
    "crates/filter/src",
    "crates/trampoline/src",
    "crates/bpf/src",
    "crates/lab/src/scenarios",
];

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = here.join("../..");
    let scenarios: Vec<String> = files(&here.join("src/scenarios"))
        .iter()
        .map(|f| f.file_stem().expect("a file has a name").to_string_lossy().into_owned())
        .collect();
    let mut out = String::new();
    for name in &scenarios {
        let file = here.join("src/scenarios").join(name).with_extension("rs");
        out += &format!("#[path = {file:?}]\nmod {name};\n");
    }
    out += "/// The scenarios, by name.\npub(crate) static SCENARIOS: &[(&str, &crate::scenario::Scenario)] = &[\n";
    for name in &scenarios {
        out += &format!("({:?}, &{name}::SCENARIO),\n", name.replace('_', "-"));
    }
    out += "];\n/// Id, title and release of each commit that is cited.\n";
    out += "pub(crate) static COMMITS: &[(&str, &str, &str)] = &[\n";
    let kernel = fs::read_to_string(watched(&root.join("KERNEL.toml"))).expect("KERNEL.toml can be read");
    let kernel: toml::Table = kernel.parse().expect("KERNEL.toml is TOML");
    for commit in kernel["commit"].as_array().expect("a list of commits") {
        let text = |key: &str| commit[key].as_str().expect("a string").to_owned();
        out += &format!("({:?}, {:?}, {:?}),\n", text("id"), text("title"), text("release"));
    }
    out += "];\n/// The sources that timelines name: path from the root, text.\n";
    out += "pub(crate) static SOURCES: &[(&str, &str)] = &[\n";
    for folder in SOURCES {
        for file in files(&root.join(folder)) {
            let path = file.strip_prefix(&root).expect("below the root");
            out += &format!("({path:?}, include_str!({file:?})),\n");
        }
    }
    out += "];\n";
    let to = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("scenarios.rs");
    fs::write(to, out).expect("OUT_DIR can be written");
}

/// The .rs files below `folder`, sorted; cargo asks again when one changes, comes or goes.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(watched(folder)).expect("the folder can be read");
    let mut found = Vec::new();
    for path in entries.map(|e| e.expect("the folder can be read").path()) {
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn watched(path: &Path) -> &Path {
    println!("cargo::rerun-if-changed={}", path.display());
    path
}
