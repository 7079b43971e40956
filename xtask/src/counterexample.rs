//! Counterexamples: those that the tree keeps of models that must fail, and the ones that failing models leave behind.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use timeline::Timeline;
use xshell::Shell;

use crate::models::{self, Options};

/// Where the tree keeps them, and where models leave them.
const FOLDERS: [&str; 2] = ["counterexamples", "target/loom/failed"];

/// Prints the counterexample of `model`, or writes it to `html`; without a model, prints which there are.
///
/// # Errors
/// If there is none of that name.
pub(crate) fn show(sh: &Shell, model: Option<&str>, html: Option<&Path>) -> Result<()> {
    match model {
        Some(model) => put(&find(sh, model)?, html),
        None => {
            for model in all(sh)? {
                println!("{model}");
            }
            Ok(())
        }
    }
}

/// Runs the execution that failed once more, and shows it.
///
/// # Errors
/// If the model left none behind.
pub(crate) fn replay(sh: &Shell, model: &str, html: Option<&Path>) -> Result<()> {
    let kept = sh.current_dir().join(FOLDERS[1]).join(file_name(model)).with_extension("path");
    if !kept.exists() {
        bail!("{model} left no failing execution behind: run `cargo xtask loom` first");
    }
    let (_, output) = models::run(sh, Options::default(), &[("LOOM_REPLAY", model)])?;
    if !output.contains(&format!("replayed {model}")) {
        bail!("{model} was not replayed: {}", output.trim());
    }
    put(&read(&kept.with_extension("json"))?, html)
}

/// Writes the page of the shortest failure of the last run, if there was one.
///
/// # Errors
/// If there was none, or it cannot be written.
pub(crate) fn page_of_failure(sh: &Shell, html: &Path) -> Result<()> {
    match failures(sh)?.first() {
        Some(shortest) => put(shortest, Some(html)),
        None => bail!(
            "no model failed, so {} was not written; `--show MODEL --html FILE` shows a recorded one",
            html.display()
        ),
    }
}

/// The shortest failure of the last run, as text.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn shortest_failure(sh: &Shell) -> Result<String> {
    Ok(failures(sh)?.first().map(|t| t.text(width(), false)).unwrap_or_default())
}

/// What failed in the last run, shortest first.
fn failures(sh: &Shell) -> Result<Vec<Timeline>> {
    let mut failed =
        list(&sh.current_dir().join(FOLDERS[1])).iter().map(|f| read(f)).collect::<Result<Vec<_>>>()?;
    failed.sort_by_key(|t| t.rows.len());
    Ok(failed)
}

fn width() -> usize {
    terminal_size::terminal_size().map_or(80, |(w, _)| usize::from(w.0))
}

/// Forgets what failed before.
pub(crate) fn forget(sh: &Shell) {
    _ = fs::remove_dir_all(sh.current_dir().join(FOLDERS[1]));
}

fn put(timeline: &Timeline, html: Option<&Path>) -> Result<()> {
    use std::io::IsTerminal;
    match html {
        Some(file) => {
            fs::write(file, timeline.page()).with_context(|| format!("cannot write {}", file.display()))
        }
        None => {
            let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
            print!("{}", timeline.text(width(), std::io::stdout().is_terminal() && !plain));
            Ok(())
        }
    }
}

fn find(sh: &Shell, model: &str) -> Result<Timeline> {
    let file = FOLDERS.iter().map(|f| sh.current_dir().join(f).join(file_name(model))).find(|f| f.exists());
    read(&file.ok_or_else(|| {
        let names = all(sh).unwrap_or_default().join(", ");
        anyhow!("there is no counterexample of {model:?}; there are: {names}")
    })?)
}

fn read(path: &Path) -> Result<Timeline> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Timeline::from_json(&text).map_err(|e| anyhow!("{}: {e}", path.display()))
}

/// The models of which there are counterexamples.
fn all(sh: &Shell) -> Result<Vec<String>> {
    let files = FOLDERS.iter().flat_map(|f| list(&sh.current_dir().join(f)));
    let name = |f: PathBuf| Some(f.file_stem()?.to_str()?.replacen('-', "::", 1));
    let names: Vec<String> = files.filter_map(name).collect();
    if names.is_empty() { Err(anyhow!("there are no counterexamples")) } else { Ok(names) }
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let mut files: Vec<_> = entries.filter(|p| p.extension().is_some_and(|e| e == "json")).collect();
    files.sort();
    files
}

fn file_name(model: &str) -> String {
    model.replace("::", "-") + ".json"
}
