//! Other programs: run with their output caught, and what test runners say they did.

use std::env;

use anyhow::Result;
use xshell::{Cmd, Shell, cmd};

use crate::report::{Counts, Outcome};

/// The cargo that runs us.
pub(crate) fn cargo() -> String {
    env::var("CARGO").unwrap_or_else(|_| "cargo".into())
}

/// Whether `cargo NAME` is installed.
pub(crate) fn has_cargo(sh: &Shell, name: &str) -> bool {
    let cargo = cargo();
    cmd!(sh, "{cargo} {name} --version").quiet().ignore_stdout().ignore_stderr().run().is_ok()
}

/// Runs `cmd` without input. Whether it succeeded, and all it printed.
///
/// # Errors
/// If it cannot be run at all.
pub(crate) fn captured(cmd: Cmd<'_>) -> Result<(bool, String)> {
    let output = cmd.quiet().ignore_status().output()?;
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok((output.status.success(), text.concat()))
}

/// Runs `cmd` as one check.
///
/// # Errors
/// If it cannot be run at all.
pub(crate) fn check(cmd: Cmd<'_>) -> Result<Outcome> {
    let (ok, output) = captured(cmd)?;
    Ok(Outcome::Check { ok, output })
}

/// What runs tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    Nextest,
    CargoTest,
}

impl Runner {
    /// The better of the two that is installed.
    pub(crate) fn installed(sh: &Shell) -> Runner {
        if has_cargo(sh, "nextest") { Runner::Nextest } else { Runner::CargoTest }
    }

    /// Its name for the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Runner::Nextest => "nextest",
            Runner::CargoTest => "cargo test",
        }
    }

    /// Runs the tests that `selection` selects; examples in the docs belong to a step of their own.
    ///
    /// # Errors
    /// If the runner cannot be run at all.
    pub(crate) fn run(self, sh: &Shell, selection: &[&str]) -> Result<Outcome> {
        let cargo = cargo();
        self.tests(match self {
            Runner::Nextest => cmd!(
                sh,
                "{cargo} nextest run --color=never --no-fail-fast --no-tests=pass --status-level=fail"
            )
            .args(selection),
            Runner::CargoTest => {
                cmd!(sh, "{cargo} test --color=never --no-fail-fast --lib --bins --tests").args(selection)
            }
        })
    }

    /// Runs `cmd`, whose output is this runner's.
    ///
    /// # Errors
    /// If it cannot be run at all.
    pub(crate) fn tests(self, cmd: Cmd<'_>) -> Result<Outcome> {
        let (ok, output) = captured(cmd)?;
        Ok(Outcome::Tests { counts: self.counts(ok, &output), output: telling(&output) })
    }

    /// What a run that printed `output` did.
    pub(crate) fn counts(self, ok: bool, output: &str) -> Counts {
        let mut counts = match self {
            Runner::Nextest => nextest(output),
            Runner::CargoTest => cargo_test(output),
        };
        if !ok {
            // Did not build, or a test program died before it could say so.
            counts.failed = counts.failed.max(1);
        }
        counts
    }
}

/// The lines of a failed run that say something: not what passed, what was built, or that nothing was to do.
fn telling(output: &str) -> String {
    let passed =
        |l: &str| (l.starts_with("test ") && l.ends_with("... ok")) || l.starts_with("test result: ok.");
    let building =
        |l: &str| ["Compiling ", "Running ", "Doc-tests "].iter().any(|s| l.trim_start().starts_with(s));
    let mut text = String::new();
    for line in output.lines().filter(|l| !passed(l) && !building(l) && *l != "running 0 tests") {
        if !line.is_empty() || !(text.is_empty() || text.ends_with("\n\n")) {
            text.extend([line, "\n"]);
        }
    }
    text
}

/// Reads nextest's `Summary [ 1.2s] 5 tests run: 4 passed (1 slow), 1 failed, 2 skipped`.
fn nextest(output: &str) -> Counts {
    let mut counts = Counts::default();
    let summary = output.lines().rev().find(|l| l.trim_start().starts_with("Summary ["));
    let Some((_, list)) = summary.and_then(|l| l.split_once("run: ")) else { return counts };
    // What stands in parentheses is a part of the number before it.
    let mut depth = 0;
    let mut plain = list.to_string();
    plain.retain(|c| {
        depth += i32::from(c == '(');
        let keep = depth == 0;
        depth -= i32::from(c == ')');
        keep
    });
    for (n, what) in numbered(&plain, ", ") {
        match what {
            "passed" => counts.passed += n,
            "skipped" => counts.skipped += n,
            // "failed", "timed out", "exec failed", ...
            _ => counts.failed += n,
        }
    }
    counts
}

/// Adds up libtest's `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s`.
fn cargo_test(output: &str) -> Counts {
    let mut counts = Counts::default();
    let results = output.lines().filter_map(|l| l.strip_prefix("test result: "));
    for (n, what) in results.filter_map(|l| l.split_once(". ")).flat_map(|(_, list)| numbered(list, "; ")) {
        match what {
            "passed" => counts.passed += n,
            "failed" => counts.failed += n,
            "ignored" => counts.skipped += n,
            _ => {}
        }
    }
    counts
}

/// The entries `N what` of a list.
fn numbered<'a>(list: &'a str, separator: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    list.split(separator).filter_map(|entry| {
        let (n, what) = entry.trim().split_once(' ')?;
        Some((n.parse().ok()?, what.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: usize, failed: usize, skipped: usize) -> Counts {
        Counts { passed, failed, skipped }
    }

    #[test]
    fn nextest_summaries() {
        let all = "────────────\n     Summary [   0.012s] 14 tests run: 14 passed, 0 skipped\n";
        assert_eq!(nextest(all), counts(14, 0, 0));
        assert_eq!(nextest("     Summary [   0.002s] 1 test run: 1 passed, 2 skipped\n"), counts(1, 0, 2));
        let mixed = "Summary [  61.0s] 9 tests run: 5 passed (1 slow, 2 flaky), 2 failed, 1 timed out, 1 exec failed, \
                     3 skipped\n        FAIL [   0.004s] (3/9) a b\nerror: test run failed\n";
        assert_eq!(nextest(mixed), counts(5, 4, 3));
        assert_eq!(
            nextest("     Summary [   0.1s] 2/5 tests run: 1 passed, 1 failed, 0 skipped"),
            counts(1, 1, 0)
        );
        assert_eq!(nextest("     Summary [   0.000s] 0 tests run: 0 passed, 0 skipped"), counts(0, 0, 0));
        assert_eq!(nextest("error: could not compile `a`"), counts(0, 0, 0));
    }

    #[test]
    fn what_passed_is_not_shown() {
        let output = "\nrunning 0 tests\n\ntest result: ok. 0 passed; 0 failed\n\n\nrunning 2 tests\ntest a ... ok\n\
                      test b ... FAILED\n\n\nwhy\n   Compiling c v1.0.0\n     Running unittests (d)\n";
        assert_eq!(telling(output), "running 2 tests\ntest b ... FAILED\n\nwhy\n");
    }

    #[test]
    fn libtest_summaries() {
        let two = "running 3 tests\ntest a ... ok\n\
                   test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
                   test result: FAILED. 2 passed; 4 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.10s\n";
        assert_eq!(cargo_test(two), counts(5, 4, 1));
        let merged = "all doctests ran in 0.38s; merged doctests compilation took 0.20s\n";
        assert_eq!(cargo_test(merged), counts(0, 0, 0));
        assert_eq!(cargo_test("error: could not compile `a`"), counts(0, 0, 0));
    }
}
