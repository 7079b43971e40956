//! `cargo xtask loom`: the models, built once under `--cfg loom` in a target folder of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use anyhow::{Result, bail};
use xshell::{Shell, cmd};

use crate::counterexample;
use crate::report::{Outcome, Report};
use crate::runner::{Runner, captured, cargo, check};
use crate::tidy;

/// How the models are run.
#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    pub(crate) full: bool,
    pub(crate) repin: bool,
}

/// Runs all models as one step.
///
/// # Errors
/// If there are none, or cargo cannot be run.
pub(crate) fn step(sh: &Shell, options: Options) -> Result<Outcome> {
    counterexample::forget(sh);
    let (ok, output) = run(sh, options, &[])?;
    let counts = Runner::CargoTest.counts(ok, &output);
    let failures = lines(&output, &["failed "]);
    let output = if counts.failed == 0 {
        lines(&output, &["model ", "repinned "])
    } else if failures.is_empty() {
        output
    } else {
        // Of many timelines of one fault, the shortest is the one to read.
        format!("{failures}\n{}", counterexample::shortest_failure(sh)?)
    };
    Ok(Outcome::Tests { counts, output })
}

/// Runs the models and prints their table.
///
/// # Errors
/// As [`step`].
pub(crate) fn all(sh: &Shell, report: &mut Report<impl Write>, options: Options) -> Result<()> {
    let mut shown = String::new();
    report.step(if options.full { "models, full set" } else { "models, quick set" }, || {
        let outcome = step(sh, options)?;
        if let Outcome::Tests { output, .. } = &outcome {
            shown = output.clone();
        }
        Ok(outcome)
    })?;
    table(&shown).iter().chain(&repinned(&shown)).try_for_each(|l| report.note(l))
}

/// Clippy over the models and the half of the facade that explores, which no other build compiles.
///
/// # Errors
/// If cargo cannot be run.
pub(crate) fn clippy(sh: &Shell) -> Result<Outcome> {
    let selection = selection(sh)?;
    let _flags = sh.push_env("RUSTFLAGS", "--cfg loom");
    let _target = sh.push_env("CARGO_TARGET_DIR", sh.current_dir().join("target/loom"));
    let cargo = cargo();
    check(
        cmd!(sh, "{cargo} clippy --package=sync --quiet --keep-going")
            .args(selection)
            .args(["--", "-D", "warnings"]),
    )
}

/// Runs the models with `env` besides. Whether all passed, and all they printed.
pub(crate) fn run(sh: &Shell, options: Options, env: &[(&str, &str)]) -> Result<(bool, String)> {
    let selection = selection(sh)?;
    let _flags = sh.push_env("RUSTFLAGS", "--cfg loom");
    let _target = sh.push_env("CARGO_TARGET_DIR", sh.current_dir().join("target/loom"));
    let _full = options.full.then(|| sh.push_env("LOOM_FULL", "1"));
    let _repin = options.repin.then(|| sh.push_env("LOOM_REPIN", "1"));
    let _quiet = sh.push_env("RUST_BACKTRACE", "0");
    let _env: Vec<_> = env.iter().map(|(name, value)| sh.push_env(name, value)).collect();
    // Pins are written by one model at a time.
    let threads = if options.repin { "1" } else { "2" };
    let cargo = cargo();
    captured(cmd!(sh, "{cargo} test --release --color=never --no-fail-fast").args(selection).args([
        "--",
        "--nocapture",
        "--test-threads",
        threads,
    ]))
}

/// The tests called `loom_*` and their packages, as cargo's arguments.
fn selection(sh: &Shell) -> Result<Vec<String>> {
    let mut args = BTreeSet::new();
    for file in tidy::files(&sh.current_dir())? {
        let parts: Vec<_> = file.path.split('/').collect();
        if let ["crates", package, "tests", name] = parts[..]
            && let Some(test) = name.strip_suffix(".rs").filter(|n| n.starts_with("loom_"))
        {
            args.insert(format!("--package={package}"));
            args.insert(format!("--test={test}"));
        }
    }
    if args.is_empty() {
        bail!("there are no models (crates/*/tests/loom_*.rs)");
    }
    Ok(args.into_iter().collect())
}

/// The lines that models print of themselves, from one of `words` on; a test's name may stand before.
fn lines(output: &str, words: &[&str]) -> String {
    let line = |l: &str| words.iter().find_map(|s| l.find(s).map(|at| format!("{}\n", &l[at..])));
    output.lines().filter(|l| !l.contains("running ") && l.contains("::")).filter_map(line).collect()
}

/// One line a model, or a family of models that differ in where an interrupt comes: executions, seconds, what came of it.
fn table(output: &str) -> Vec<String> {
    #[derive(Default)]
    struct Family<'a> {
        models: usize,
        executions: u64,
        seconds: f64,
        outcomes: BTreeSet<&'a str>,
    }
    let mut families: BTreeMap<&str, Family<'_>> = BTreeMap::new();
    for line in output.lines().filter_map(|l| l.strip_prefix("model ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, _, executions, _, seconds, ..] = words[..] else { continue };
        let family = families.entry(family(name)).or_default();
        family.models += 1;
        family.executions += executions.parse::<u64>().unwrap_or_default();
        family.seconds += seconds.parse::<f64>().unwrap_or_default();
        let outcomes = line.split_once(" s ").map_or("", |(_, o)| o).split("; ").map(str::trim);
        family.outcomes.extend(outcomes.filter(|o| !o.is_empty()));
    }
    let mut lines = vec![format!("{:<48} {:>6} {:>10} {:>7}", "model", "points", "executions", "s")];
    for (name, f) in families {
        let points = if f.models > 1 { f.models.to_string() } else { String::new() };
        lines.push(format!("{name:<48} {points:>6} {:>10} {:>7.2}", f.executions, f.seconds));
        let outcomes = f.outcomes.into_iter().collect::<Vec<_>>().join("; ");
        lines.extend(textwrap::wrap(&outcomes, 72).iter().map(|l| format!("    {l}")));
    }
    lines
}

/// The name without the point at which an interrupt comes.
fn family(name: &str) -> &str {
    match name.rsplit_once("_at_") {
        Some((family, at)) if at.bytes().all(|b| b.is_ascii_digit()) => family,
        _ => name,
    }
}

fn repinned(output: &str) -> Vec<String> {
    output.lines().filter(|l| l.starts_with("repinned ")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_one_line_of_the_table() {
        let output = "model a::x_at_0 quick 7 executions 0.10 s  one; two\nmodel a::x_at_12 quick 5 executions 0.20 s  two\n\
                      model a::y_at_once full 1 executions 0.00 s  breaks pair\n";
        let table = table(output);
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&table[1]), ["a::x", "2", "12", "0.30"]);
        assert_eq!(words(&table[2]), ["one;", "two"]);
        assert_eq!(words(&table[3]), ["a::y_at_once", "1", "0.00"]);
        assert_eq!(words(&table[4]), ["breaks", "pair"]);
    }

    #[test]
    fn the_lines_are_what_models_print() {
        let output =
            "running 2 tests\ntest a ... model x::y quick 7 executions\nok\nrepinned x::y quick: None -> 7\n";
        assert_eq!(
            lines(output, &["model ", "repinned "]),
            "model x::y quick 7 executions\nrepinned x::y quick: None -> 7\n"
        );
    }
}
