//! Instruction counts by callgrind: this program runs itself under valgrind, once for all variants.
//!
//! Callgrind collects only inside the harness' loop, and writes its totals down each time that is left. Each variant is left
//! twice, after n and after 2n iterations; the difference, divided by n, is an iteration without its set-up.
//! `--smc-check=all`, since a key that is flipped changes text that valgrind has translated.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::harness::{COUNTED, Group};

/// Where a variant's instructions are: its group and name, and the count.
pub(crate) type Counts = Vec<(String, f64)>;

/// Whether valgrind is installed.
pub(crate) fn available() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|o| o.status.success())
}

/// Counts the instructions of an iteration of each counted variant in groups whose name contains `filter`.
///
/// # Errors
/// If valgrind fails or does not say what is expected of it.
pub(crate) fn count(filter: &str) -> Result<Counts> {
    let dir = std::env::temp_dir().join(format!("progstats-counts-{}", std::process::id()));
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let counts = count_in(&dir, filter);
    // What is left there is small, and the folder for such things.
    let _ = fs::remove_dir_all(&dir);
    counts
}

fn count_in(dir: &Path, filter: &str) -> Result<Counts> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--smc-check=all", "--quiet"])
        .args(["--toggle-collect=progstats_counted", "--dump-after=progstats_counted"])
        .arg(format!("--callgrind-out-file={}", dir.join("out").display()))
        .arg(std::env::current_exe()?)
        .args(["--watched", filter])
        .output()?;
    if !output.status.success() {
        bail!("valgrind: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let names = String::from_utf8(output.stdout)?;
    let mut counts = Vec::new();
    for (i, name) in names.lines().enumerate() {
        let total = |k| totals(&dir.join(format!("out.{}", 2 * i + k)));
        counts.push((name.to_string(), (total(2)? - total(1)?) / COUNTED as f64));
    }
    Ok(counts)
}

/// The instructions of one dump.
fn totals(file: &Path) -> Result<f64> {
    let text = fs::read_to_string(file).with_context(|| format!("callgrind wrote no {}", file.display()))?;
    let line = text.lines().find_map(|l| l.strip_prefix("totals: ")).context("a dump without totals")?;
    let total = line.trim().parse()?;
    ensure!(total > 0.0, "callgrind collected nothing");
    Ok(total)
}

/// Writes the counts to the rows that they are of.
pub(crate) fn enter(counts: &Counts, groups: &mut [Group]) {
    for group in groups {
        for row in &mut group.rows {
            let name = key(group.name, &row.name);
            row.instructions = counts.iter().find(|(n, _)| *n == name).map(|(_, count)| *count);
        }
    }
}

/// How a variant is called among the counts.
pub(crate) fn key(group: &str, name: &str) -> String {
    format!("{group}: {name}")
}
