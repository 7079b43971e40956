//! The pinned instruction counts, which tests go by: times are the host's, counts are the compiler's and ours.
//!
//! An edit elsewhere moves a count by up to 5, since it moves what is inlined and which registers are free. What moves it by
//! more than [`SLACK`], up or down, is worth a look, and a new pin. The targets in instructions have no slack.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::counts::{Counts, enter, key};
use crate::harness::{Group, Row, Summary};
use crate::targets;

/// How far a count may be from its pin.
const SLACK: f64 = 8.0;

/// What is pinned: our own, no peers.
const OURS: &[&str] =
    &["run: ", "trampoline: ", "update: 64-bit", "update: 32-bit", "masks: ", "key-test: patched", "growth-"];

/// Writes the counts down.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn pin(counts: &Counts, file: &Path) -> Result<()> {
    let mut text = String::from("# Instructions of one iteration. Written by `cargo xtask bench --pin`.\n");
    for (name, count) in counts.iter().filter(|(name, _)| OURS.iter().any(|o| name.starts_with(o))) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{count:>4.0} {name}");
    }
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Compares counts with their pins and targets: a line each that begins with `ok`, `FAILED` or `skipped`.
///
/// # Errors
/// If the file cannot be read, or says something else.
pub(crate) fn check(counts: &Counts, file: &Path) -> Result<String> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    compare(counts, &text)
}

fn compare(counts: &Counts, pins: &str) -> Result<String> {
    let mut out = String::new();
    for line in pins.lines().filter(|l| !l.starts_with('#')) {
        let (pin, name) = line.trim().split_once(' ').with_context(|| format!("not a pin: {line}"))?;
        let pin: f64 = pin.parse().with_context(|| format!("not a pin: {line}"))?;
        let _ = match counts.iter().find(|(n, _)| n == name) {
            None => writeln!(out, "skipped {name}: it cannot run here"),
            Some((_, n)) if (n - pin).abs() <= SLACK => writeln!(out, "ok {name}: {n:.0}, pinned {pin}"),
            Some((_, n)) => writeln!(
                out,
                "FAILED {name}: {n:.0} instructions, pinned {pin}; if that is right: cargo xtask bench --pin"
            ),
        };
    }
    for target in targets::of_instructions(&[run_group(counts)]) {
        let (what, goal) = (target.what, target.goal);
        let _ = match (target.met, target.measured) {
            (Some(true), Some(n)) => writeln!(out, "ok {what}: {n:+.0}, {goal}"),
            (Some(false), Some(n)) => writeln!(out, "FAILED {what}: {n:+.0} instructions, not {goal}"),
            _ => writeln!(out, "skipped {what}: it cannot run here"),
        };
    }
    Ok(out)
}

/// The counts of the run's group, in the form of results.
fn run_group(counts: &Counts) -> Group {
    let prefix = key(crate::run::RUN, "");
    let row = |name: &str| Row {
        name: name.into(),
        ns: Summary::default(),
        instructions: None,
        samples: Vec::new(),
    };
    let rows = counts.iter().filter_map(|(name, _)| name.strip_prefix(&prefix)).map(row).collect();
    let mut groups = [Group { name: crate::run::RUN, title: "", rounds: 0, rows }];
    enter(counts, &mut groups);
    let [group] = groups;
    group
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(off: f64) -> Counts {
        vec![("run: bare call".into(), 23.0), ("run: off, 64-bit, patched key".into(), off)]
    }

    fn lines(off: f64, start: &str) -> usize {
        let pins = "# head\n  23 run: bare call\n  24 run: off, 64-bit, patched key\n  9 run: gone\n";
        compare(&counts(off), pins).unwrap().lines().filter(|l| l.starts_with(start)).count()
    }

    #[test]
    fn pins_have_slack_and_targets_have_none() {
        // Two pins and the off path's target; one pin and two targets have nothing to be compared with.
        assert_eq!((lines(24.0, "ok"), lines(24.0, "FAILED"), lines(24.0, "skipped")), (3, 0, 3));
        assert_eq!((lines(25.0, "ok"), lines(25.0, "FAILED")), (2, 1));
        assert_eq!((lines(15.0, "ok"), lines(15.0, "FAILED")), (2, 1));
        assert_eq!((lines(33.0, "ok"), lines(33.0, "FAILED")), (1, 2));
    }

    #[test]
    fn what_is_no_pin_is_an_error() {
        for bad in ["run\n", "x run: bare call\n"] {
            assert!(compare(&counts(24.0), bad).is_err(), "{bad}");
        }
    }
}
