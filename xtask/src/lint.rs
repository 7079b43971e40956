//! `cargo xtask lint`: its steps, in order.

use std::env;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use xshell::{Cmd, Shell, cmd};

use crate::models;
use crate::report::{Outcome, Report};
use crate::runner::{cargo, check, has_cargo};
use crate::tidy;

/// One step.
struct Step {
    name: &'static str,
    args: &'static [&'static str],
}

/// The steps that are cargo's.
const CARGO: &[Step] = &[
    Step { name: "format", args: &["fmt", "--all", "--check", "--", "--color=never"] },
    Step {
        name: "clippy",
        args: &["clippy", "--workspace", "--all-targets", "--keep-going", "--quiet", "--", "-D", "warnings"],
    },
    Step {
        name: "docs",
        args: &["doc", "--workspace", "--no-deps", "--document-private-items", "--keep-going", "--quiet"],
    },
];

/// Runs all steps.
///
/// # Errors
/// If the report cannot be written.
pub(crate) fn run(sh: &Shell, report: &mut Report<impl Write>) -> Result<()> {
    let cargo = cargo();
    for Step { name, args } in CARGO {
        report.step(name, || check(deny_doc_warnings(cmd!(sh, "{cargo}").args(*args))))?;
    }
    report.step("format, scenarios", || {
        check(cmd!(sh, "rustfmt --check --edition 2024 --color=never").args(scenarios(sh)?))
    })?;
    report.step("clippy, models", || models::clippy(sh))?;
    report.step("tidy", || tidy::check(&sh.current_dir()))?;
    report.step("dependencies", || {
        if !has_cargo(sh, "deny") {
            return Ok(Outcome::Skipped("cargo-deny is not installed".into()));
        }
        // Not the advisories: their database is on the network.
        check(cmd!(sh, "{cargo} deny --offline check bans licenses sources"))
    })
}

/// The files that a build script makes modules of, so that cargo's formatter does not find them.
fn scenarios(sh: &Shell) -> Result<Vec<PathBuf>> {
    Ok(sh.read_dir("crates/lab/src/scenarios")?)
}

/// Makes warnings of rustdoc errors, besides what the environment asks of it. Other commands do not look.
fn deny_doc_warnings(cmd: Cmd<'_>) -> Cmd<'_> {
    let flags = env::var("RUSTDOCFLAGS").unwrap_or_default();
    cmd.env("RUSTDOCFLAGS", format!("{flags} -D warnings").trim_start())
}
