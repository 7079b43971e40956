//! `cargo xtask bench`, `cargo xtask torture` and the gate of instruction counts: programs of the workspace, built and run.

use std::process::{Command, ExitStatus};

use anyhow::{Result, bail};
use xshell::{Shell, cmd};

use crate::report::{Counts, Outcome};
use crate::runner::{captured, cargo};

/// Where the instruction counts are pinned.
const PINS: &str = "benches/pins.txt";

/// Builds `package`, optimized, and runs it with these arguments, in the caller's folder and on its terminal.
///
/// # Errors
/// If it cannot be built or run.
pub(crate) fn program(package: &str, args: &[String]) -> Result<ExitStatus> {
    Ok(Command::new(cargo())
        .args(["run", "--quiet", "--release", "--package", package, "--"])
        .args(args)
        .status()?)
}

/// Pins the instruction counts anew.
///
/// # Errors
/// If they cannot be counted or written.
pub(crate) fn pin(sh: &Shell) -> Result<()> {
    let cargo = cargo();
    cmd!(sh, "{cargo} run --quiet --release --package benches -- --pin {PINS}").quiet().run()?;
    Ok(cmd!(sh, "git --no-pager diff --unified=0 -- {PINS}").quiet().run()?)
}

/// Compares the instruction counts with their pins.
///
/// # Errors
/// If they cannot be counted.
pub(crate) fn gate(sh: &Shell) -> Result<Outcome> {
    if cmd!(sh, "valgrind --version").quiet().ignore_stdout().ignore_stderr().run().is_err() {
        return Ok(Outcome::Skipped("valgrind is not installed".into()));
    }
    let cargo = cargo();
    let (ran, output) =
        captured(cmd!(sh, "{cargo} run --quiet --release --package benches -- --gate {PINS}"))?;
    let count = |word: &str| output.lines().filter(|line| line.starts_with(word)).count();
    let counts = Counts { passed: count("ok "), failed: count("FAILED "), skipped: count("skipped ") };
    if !ran || counts.ran() == 0 {
        bail!("the counts cannot be taken: {}", output.trim_end());
    }
    let failed = output.lines().filter(|line| line.starts_with("FAILED ")).map(|line| format!("{line}\n"));
    Ok(Outcome::Tests { counts, output: failed.collect() })
}
