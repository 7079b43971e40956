//! `cargo xtask loom`: the models, built once under `--cfg loom` in a target folder of their own; and the audit, which
//! weakens each ordering and drops each fence of the code under test, one at a time, and asks which model notices.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Result, bail};
use xshell::{Shell, cmd};

use crate::report::{Outcome, Report};
use crate::runner::{Runner, captured, cargo};
use crate::source::{Source, words};
use crate::tidy;

/// The code whose orderings models must show to be needed. Of the keys it is the one that is a word: the patched one stands on
/// what processors do with text, which no model sees.
const AUDITED: [&str; 4] =
    ["crates/stats/src/", "crates/jump_label/src/atomic.rs", "crates/filter/src/", "crates/trampoline/src/"];

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
    let (ok, output) = run(sh, options, None)?;
    let counts = Runner::CargoTest.counts(ok, &output);
    let output = if counts.failed == 0 { table(&output) } else { output };
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
    for line in shown.lines().filter(|l| l.starts_with("model ") || l.starts_with("repinned ")) {
        report.note(line)?;
    }
    Ok(())
}

/// Weakens each site in turn; a site that no model misses fails.
///
/// # Errors
/// As [`step`].
pub(crate) fn audit(sh: &Shell, report: &mut Report<impl Write>) -> Result<()> {
    let sites = sites(sh)?;
    if sites.is_empty() {
        bail!("no ordering stronger than relaxed was found: the audit looks in the wrong place");
    }
    for (site, what) in sites {
        let mut killer = String::new();
        report.step(&format!("without {what} {site}"), || {
            let weaken =
                if what.contains("mb") || what == "fence" { site.clone() } else { format!("{site}=Relaxed") };
            let (_, output) = run(sh, Options::default(), Some(&weaken))?;
            // Models run in parallel: take the one that needed the fewest executions.
            let kills = output.lines().filter_map(|l| l.split_once("killed by ").map(|(_, k)| k));
            let least = kills
                .min_by_key(|k| k.split_whitespace().nth(2).and_then(|n| n.parse().ok()).unwrap_or(u64::MAX));
            killer = least.unwrap_or_default().to_owned();
            let survived =
                "no model noticed: it is not needed (weaken the code), or not covered (extend a model)";
            Ok(Outcome::Check { ok: least.is_some(), output: survived.into() })
        })?;
        if !killer.is_empty() {
            report.note(&format!("killed by {killer}"))?;
        }
    }
    Ok(())
}

/// Runs the models; `weaken` names a site. Whether all passed, and all they printed.
fn run(sh: &Shell, options: Options, weaken: Option<&str>) -> Result<(bool, String)> {
    let selection = selection(sh)?;
    let _flags = sh.push_env("RUSTFLAGS", "--cfg loom");
    let _target = sh.push_env("CARGO_TARGET_DIR", sh.current_dir().join("target/loom"));
    let _full = options.full.then(|| sh.push_env("LOOM_FULL", "1"));
    let _repin = options.repin.then(|| sh.push_env("LOOM_REPIN", "1"));
    let _weaken = weaken.map(|w| sh.push_env("LOOM_WEAKEN", w));
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
    let mut args = BTreeMap::new();
    for file in tidy::files(&sh.current_dir())? {
        let parts: Vec<_> = file.path.split('/').collect();
        if let ["crates", package, "tests", name] = parts[..]
            && let Some(test) = name.strip_suffix(".rs").filter(|n| n.starts_with("loom_"))
        {
            args.insert(format!("--package={package}"), ());
            args.insert(format!("--test={test}"), ());
        }
    }
    if args.is_empty() {
        bail!("there are no models (crates/*/tests/loom_*.rs)");
    }
    Ok(args.into_keys().collect())
}

/// The lines that models print of themselves.
fn table(output: &str) -> String {
    let line =
        |l: &str| ["model ", "repinned "].iter().find_map(|s| l.find(s).map(|at| format!("{}\n", &l[at..])));
    output.lines().filter(|l| !l.contains("running ")).filter_map(line).collect()
}

/// Every fence, and every ordering stronger than relaxed, in the audited code: `file:line`, and what stands there.
fn sites(sh: &Shell) -> Result<Vec<(String, &'static str)>> {
    const WHAT: [&str; 7] = ["smp_wmb", "smp_rmb", "fence", "Acquire", "Release", "AcqRel", "SeqCst"];
    let mut found = Vec::new();
    for file in tidy::files(&sh.current_dir())? {
        if !AUDITED.iter().any(|a| file.path.starts_with(a)) {
            continue;
        }
        for (n, line) in Source::new(&file.text).code.lines().enumerate() {
            let is_use = line.trim_start().starts_with("use ") || line.trim_start().starts_with("pub use ");
            let is_there = |what: &&str| !is_use && words(line).any(|(_, word)| word == *what);
            if let Some(what) = WHAT.into_iter().find(is_there) {
                found.push((format!("{}:{}", file.path, n + 1), what));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_what_models_print() {
        let output =
            "running 2 tests\ntest a ... model x::y quick 7 executions\nok\nrepinned x::y quick: None -> 7\n";
        assert_eq!(table(output), "model x::y quick 7 executions\nrepinned x::y quick: None -> 7\n");
    }
}
