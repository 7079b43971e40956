//! The project's own tasks, as `cargo xtask TASK`. The doc comments of [`Task`] are the help text.

mod audit;
mod bench;
mod counterexample;
mod lint;
mod models;
mod mutants;
mod readme;
mod report;
mod runner;
mod source;
mod test;
mod tidy;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use xshell::Shell;

use crate::report::Report;

/// progstats' own tasks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Clone, Subcommand)]
enum Task {
    /// Runs all tests: debug, release, the examples in the docs, and the README's checked blocks.
    ///
    /// Prints one line a step with its counts and time, and the output of those that failed. Uses cargo-nextest where
    /// it is installed, `cargo test` where not. The last line is `N passed, N failed`, with `, N skipped` if any were;
    /// the exit code is 1 if something failed or no test ran.
    Test,
    /// Checks format, clippy, the docs, the project's own rules (tidy), and dependencies where cargo-deny is installed.
    Lint,
    /// Lint, then test.
    Ci,
    /// Checks only the project's own rules: citations, memory orderings, layering, text.
    Tidy,
    /// Explores the models: every interleaving and every allowed read of the code that ships, within each model's bound.
    Loom {
        /// All preemptions, as far as a model is not too large for it; without, the quick set, as in `test`.
        #[arg(long)]
        full: bool,
        /// Weakens each ordering and drops each fence in turn, and shows which model notices.
        #[arg(long, conflicts_with_all = ["full", "repin"])]
        audit: bool,
        /// Makes each error of logic that xtask/mutants.toml lists, in a copy, and shows which model or test notices.
        #[arg(long, conflicts_with_all = ["full", "audit", "repin"])]
        mutants: bool,
        /// Pins the numbers of executions and the counterexamples anew, and shows old and new.
        #[arg(long)]
        repin: bool,
        /// Shows the counterexample of a model that must fail, or that failed; without a name, which there are.
        #[arg(long, value_name = "MODEL", num_args = 0..=1, conflicts_with_all = ["full", "repin", "audit", "mutants"])]
        show: Option<Option<String>>,
        /// Runs the execution in which a model failed once more, alone, and shows it.
        #[arg(long, value_name = "MODEL", conflicts_with_all = ["full", "repin", "audit", "mutants", "show"])]
        replay: Option<String>,
        /// Writes what is shown, or the first failure, as a page to FILE.
        #[arg(long, value_name = "FILE", conflicts_with_all = ["repin", "audit", "mutants"])]
        html: Option<PathBuf>,
    },
    /// Measures what the path costs, beside its peers: `cargo xtask bench -- --help` says how.
    Bench {
        /// Pins the instruction counts that `test` compares, anew, and shows what changed.
        #[arg(long, conflicts_with = "args")]
        pin: bool,
        /// What the benches get.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Puts the path under fire, everything at once, and checks that no count is lost: `torture --help` says how.
    #[command(disable_help_flag = true)]
    Torture {
        /// What the harness gets.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Runs the commands that README.md names in `<!-- run: -->` and `<!-- check: -->`, and writes down their output.
    Readme {
        /// Only the commands in which this stands.
        command: Option<String>,
    },
}

fn main() -> ExitCode {
    let task = match Cli::try_parse() {
        Ok(cli) => cli.task,
        Err(e) => return usage(&e),
    };
    match run(task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the help that was asked for, or one line that says what is wrong with the arguments.
fn usage(e: &clap::Error) -> ExitCode {
    let is_help = !e.use_stderr() || e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !is_help {
        eprintln!("{}", one_line(e));
    } else if e.print().is_err() {
        return ExitCode::FAILURE;
    }
    u8::try_from(e.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The first line of an error, which names the wrong argument, and where to read on.
fn one_line(e: &clap::Error) -> String {
    let text = e.to_string();
    format!("{}; see `cargo xtask help`", text.lines().next().unwrap_or("error: wrong usage"))
}

/// Whether all is well.
fn run(task: Task) -> Result<bool> {
    let sh = Shell::new()?;
    sh.change_dir(root()?);
    let stdout = std::io::stdout();
    let live = stdout.is_terminal();
    let mut report = Report::new(stdout, live);
    match task {
        Task::Test => test::run(&sh, &mut report)?,
        Task::Lint => lint::run(&sh, &mut report)?,
        Task::Ci => {
            lint::run(&sh, &mut report)?;
            test::run(&sh, &mut report)?;
        }
        Task::Tidy => report.step("tidy", || tidy::check(&sh.current_dir()))?,
        Task::Loom { audit: true, .. } => audit::run(&sh, &mut report)?,
        Task::Loom { mutants: true, .. } => mutants::run(&sh, &mut report)?,
        Task::Loom { show: Some(model), html, .. } => {
            return counterexample::show(&sh, model.as_deref(), html.as_deref()).map(|()| true);
        }
        Task::Loom { replay: Some(model), html, .. } => {
            return counterexample::replay(&sh, &model, html.as_deref()).map(|()| true);
        }
        Task::Loom { full, repin, html, .. } => {
            models::all(&sh, &mut report, models::Options { full, repin })?;
            if let Some(html) = html {
                counterexample::page_of_failure(&sh, &html)?;
            }
        }
        Task::Bench { pin: true, .. } => return bench::pin(&sh).map(|()| true),
        Task::Bench { args, .. } => {
            return bench::program("benches", &args).map(|status| status.success());
        }
        Task::Torture { args } => {
            return bench::program("torture", &args).map(|status| status.success());
        }
        Task::Readme { command } => return readme::rewrite(&sh, command.as_deref()).map(|()| true),
    }
    report.finish()
}

/// The root of the workspace. Cargo says where this package is when it runs it; the path of the machine that compiled
/// it says nothing.
fn root() -> Result<PathBuf> {
    let package = std::env::var("CARGO_MANIFEST_DIR").context("run this as `cargo xtask`")?;
    Ok(PathBuf::from(package).parent().context("xtask is a folder of the workspace")?.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn bad_usage_exits_2() {
        for bad in [&["cargo xtask"][..], &["cargo xtask", "tset"], &["cargo xtask", "test", "--fast"]] {
            assert_eq!(Cli::try_parse_from(bad).err().map(|e| e.exit_code()), Some(2), "{bad:?}");
        }
    }

    #[test]
    fn bad_usage_is_one_line() {
        let line = Cli::try_parse_from(["cargo xtask", "tset"]).err().map(|e| one_line(&e));
        assert_eq!(line.unwrap(), "error: unrecognized subcommand 'tset'; see `cargo xtask help`");
    }
}
