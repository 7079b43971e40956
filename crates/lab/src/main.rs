//! `progstats`: the BPF run-time statistics path, run and measured.
//!
//! Exit codes: 0 done, 1 it failed, 2 wrong usage. Errors are one line on stderr that says what is wrong and what to do.

mod cli;
mod compare;
mod exec;
mod machines;
mod oracle;
mod out;
mod programs;
mod run;
mod sample;
mod scenario;
mod seed;
mod seed_virtual;
mod source;
mod twin;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return cli::usage(e),
    };
    let done = match cli.command {
        cli::Command::Seed(args) => seed::main(&args),
        cli::Command::Run(args) => run::main(&args),
        cli::Command::Compare(args) => compare::main(&args),
        cli::Command::Oracle(args) => oracle::main(&args),
        cli::Command::Scenario(args) => scenario::main(&args),
        cli::Command::Exec(args) => exec::exec(&args),
        cli::Command::Dump(args) => exec::dump(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("progstats: {e:#}");
            ExitCode::from(if e.is::<cli::Usage>() { 2 } else { 1 })
        }
    }
}
