//! What the path costs, beside its peers. `cargo xtask bench` runs it; nothing is decided by time.
//!
//! # Why a harness of our own
//! What is compared here lies within a few ns, on hosts that are busy with other things, so variants must take turns in
//! one run
//! and be compared turn by turn; and the same variants must run on simulated CPUs, on several at once, and under callgrind.
//! - criterion and divan run each benchmark to its end and then the next: a host that gets busy in between is a difference.
//! - tango-bench does interleave, two builds of one function at a time; not ten variants, and not threads.
//! - gungraun (iai-callgrind) counts instructions well, of functions it calls itself in a process each; it needs a
//!   runner of its
//!   exact version installed, and could not share our variants. Callgrind by itself does what is needed ([`counts`]).

mod clocks;
mod counts;
mod gate;
mod growth;
mod harness;
mod host;
mod keys;
mod machines;
mod run;
mod sites;
mod svg;
mod table;
mod targets;
mod update;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use serde::Serialize;

use crate::harness::{Group, Harness, Mode};
use crate::host::Host;
use crate::targets::Target;

/// What the path costs, beside its peers.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Cli {
    /// Only groups whose name contains this: run, trampoline, update, readers, clocks, masks, key-test, flips, growth,
    /// in-turn, sum.
    #[arg(default_value = "", hide_default_value = true)]
    filter: String,
    /// A fifth of the time, and rougher.
    #[arg(long)]
    quick: bool,
    /// Writes the results to FILE, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes the main results to FILE, as a picture.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Pins the instruction counts anew, in FILE.
    #[arg(long, value_name = "FILE", hide = true)]
    pin: Option<PathBuf>,
    /// Compares the instruction counts with their pins in FILE.
    #[arg(long, value_name = "FILE", hide = true)]
    gate: Option<PathBuf>,
    /// Runs what callgrind is to count.
    #[arg(long, hide = true)]
    watched: bool,
}

/// All that was measured.
#[derive(Serialize)]
struct Results {
    host: Host,
    groups: Vec<Group>,
    targets: Vec<Target>,
    notes: Vec<String>,
}

fn main() -> ExitCode {
    match bench(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn bench(cli: &Cli) -> Result<()> {
    static_keys::global_init();
    if cli.watched {
        return measure(&mut Harness::new(Mode::Count, &cli.filter));
    }
    if let Some(file) = &cli.pin {
        return gate::pin(&counts::count("")?, file);
    }
    if let Some(file) = &cli.gate {
        return print(&gate::check(&counts::count("")?, file)?);
    }
    let each = if cli.quick { Duration::from_millis(200) } else { Duration::from_secs(1) };
    let mut harness = Harness::new(Mode::Time(each), &cli.filter);
    measure(&mut harness)?;
    if counts::available() {
        counts::enter(&counts::count(&cli.filter)?, &mut harness.groups);
    } else {
        harness.note("instructions: valgrind is not installed");
    }
    let Harness { groups, notes, .. } = harness;
    anyhow::ensure!(!groups.is_empty(), "no group has {:?} in its name; see --help", cli.filter);
    let results = Results { host: Host::this(), targets: targets::all(&groups), groups, notes };
    if let Some(file) = &cli.json {
        write(file, &format!("{}\n", serde_json::to_string_pretty(&results)?))?;
    }
    if let Some(file) = &cli.svg {
        write(file, &svg::picture(&results.host, &results.groups))?;
    }
    print(&table::table(&results.host, &results.groups, &results.targets, &results.notes))
}

/// All groups.
fn measure(harness: &mut Harness) -> Result<()> {
    run::measure(harness)?;
    update::measure(harness)?;
    clocks::measure(harness)?;
    keys::measure(harness)?;
    growth::measure(harness)
}

fn write(file: &PathBuf, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("the output cannot be written")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
