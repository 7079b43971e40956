//! `cargo xtask test`: its steps, in order.

use std::io::Write;

use anyhow::{Result, anyhow};
use xshell::{Shell, cmd};

use crate::bench;
use crate::models;
use crate::readme;
use crate::report::Report;
use crate::runner::{Runner, cargo};
use crate::source::{Source, words};
use crate::tidy::{self, File};

/// One step.
struct Step {
    name: &'static str,
    tests: Tests,
}

/// What a step runs.
enum Tests {
    /// The tests that these arguments select, by nextest or `cargo test`.
    Select(&'static [&'static str]),
    /// The models, quick set.
    Models,
    /// The instruction counts of the path, against their pins.
    Instructions,
    /// The examples in the docs.
    Docs,
    /// The blocks of README.md marked `check`.
    Readme,
}

const STEPS: &[Step] = &[
    Step { name: "tests, debug", tests: Tests::Select(&["--workspace"]) },
    Step {
        name: "tests, release",
        // What the optimizer could break: the crates between the facade and the programs.
        tests: Tests::Select(&[
            "--release",
            "--package=percpu",
            "--package=stats",
            "--package=jump_label",
            "--package=filter",
            "--package=trampoline",
            "--package=bpf",
        ]),
    },
    Step { name: "models, quick set", tests: Tests::Models },
    Step { name: "instructions (callgrind)", tests: Tests::Instructions },
    Step { name: "examples in docs", tests: Tests::Docs },
    Step { name: "readme", tests: Tests::Readme },
];

/// Runs all steps.
///
/// # Errors
/// If the report cannot be written.
pub(crate) fn run(sh: &Shell, report: &mut Report<impl Write>) -> Result<()> {
    let before = report.total();
    let runner = Runner::installed(sh);
    let cargo = cargo();
    for Step { name, tests } in STEPS {
        match tests {
            Tests::Select(selection) => {
                let name = format!("{name} ({})", runner.name());
                report.step(&name, || runner.run(sh, selection))?;
            }
            Tests::Docs => report.step(name, || {
                let docs = cmd!(sh, "{cargo} test --color=never --no-fail-fast --workspace --doc");
                Runner::CargoTest.tests(docs)
            })?,
            Tests::Models => report.step(name, || models::step(sh, models::Options::default()))?,
            Tests::Instructions => report.step(name, || bench::gate(sh))?,
            Tests::Readme => report.step(name, || readme::check(sh))?,
        }
    }
    if report.total().skipped > before.skipped {
        for file in tidy::files(&sh.current_dir())? {
            for (test, reason) in ignored(&file) {
                report.note(&format!("skipped: {test} ({}): {reason}", file.path))?;
            }
        }
    }
    if report.total().ran() == before.ran() {
        report.step("any test at all", || Err(anyhow!("no test ran")))?;
    }
    Ok(())
}

/// The tests of `file` that are ignored, and why.
fn ignored(file: &File) -> Vec<(String, String)> {
    let mut found = Vec::new();
    if !file.path.ends_with(".rs") {
        return found;
    }
    let code = Source::new(&file.text).code;
    let mut lines = code.lines().zip(file.text.lines());
    while let Some((code, text)) = lines.next() {
        if !code.trim_start().starts_with("#[ignore") {
            continue;
        }
        let reason = text.split('"').nth(1).unwrap_or("no reason given").to_string();
        let name = lines.by_ref().find_map(|(code, _)| {
            words(code).skip_while(|(_, w)| *w != "fn").nth(1).map(|(_, name)| name.to_string())
        });
        found.extend(name.map(|name| (name, reason)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_tests_and_why() {
        let text =
            "#[test]\n#[ignore = \"needs root\"]\nfn a() {}\n// #[ignore]\n#[ignore]\n#[test]\nfn b() {}\n";
        let file = File { path: "a.rs".into(), text: text.into() };
        let expected = [("a", "needs root"), ("b", "no reason given")];
        assert_eq!(ignored(&file), expected.map(|(test, why)| (test.to_string(), why.to_string())));
    }
}
