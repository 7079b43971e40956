//! Everything at once, in the manner of rcutorture: tasks, interrupts, timers, softirqs and NMIs that run programs on every
//! CPU, readers, a key that flips, programs that come and go, CPUs too. Invariants are checked all the time, and at the end
//! every count must be exact. `cargo xtask torture` runs it.

mod fire;
mod form;
mod tally;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use filter::PatchedKey;
use jump_label::AtomicKey;
use stats::{Bits32, Bits32Rt, Bits64};

use crate::fire::{Order, Outcome, Until, fire};
use crate::form::Form;

/// Puts the path under fire: everything at once, and every count exact at the end.
#[derive(Parser)]
#[command(name = "cargo xtask torture", bin_name = "cargo xtask torture")]
struct Cli {
    /// How long, in seconds: the 64-bit form, the 32-bit form and the 32-bit RT form have a third each.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seconds: u64,
    /// Instead: until each form has counted N runs, and everything that can happen has happened.
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    updates: Option<u64>,
    /// What all dice start from, to repeat a run's choices; where threads meet is the host's.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// The form of the path: an older one must fail.
    #[arg(long, value_enum, default_value_t = Form::Today)]
    form: Form,
}

fn main() -> ExitCode {
    match torture(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether nothing broke.
fn torture(cli: &Cli) -> Result<bool> {
    let seed = cli.seed.unwrap_or_else(|| fastrand::u64(..));
    let patched = jump_label::support();
    let until = match cli.updates {
        Some(n) => Until::Updates(n),
        // Older forms run on 32-bit only, until they break.
        None if cli.form != Form::Today => Until::Time(Duration::from_secs(cli.seconds)),
        None => Until::Time(Duration::from_secs(cli.seconds) / 3),
    };
    let form = clap::ValueEnum::to_possible_value(&cli.form).context("all forms have names")?;
    say(&format!("seed {seed}, form {}\n", form.get_name()))?;
    if let Err(e) = &patched {
        say(&format!("the key is a word, not a patched branch: {e}\n"))?;
    }
    let order = |nmis_share| Order { form: cli.form, seed, until, nmis_share };
    let (mut well, mut updates) = (true, 0);
    let mut one = |name: &str, outcome: Result<Outcome>| -> Result<()> {
        let outcome = outcome?;
        well &= outcome.broken.is_empty();
        updates += outcome.updates;
        say(&report(name, &outcome))
    };
    if cli.form == Form::Today {
        one("64-bit", either::<Bits64>(patched.is_ok(), order(true)))?;
    }
    one("32-bit", either::<Bits32>(patched.is_ok(), order(false)))?;
    if cli.form == Form::Today {
        one("32-bit RT", either::<Bits32Rt>(patched.is_ok(), order(false)))?;
    }
    say(&match well {
        true => format!("{updates} runs counted: 0 lost, 0 stuck readers, every count exact\n"),
        false => format!(
            "FAILED; the same dice again: cargo xtask torture --seed {seed} --form {}\n",
            form.get_name()
        ),
    })?;
    Ok(well)
}

/// With the patched key, or with a word where text cannot be patched.
fn either<F: stats::Form>(patched: bool, order: Order) -> Result<Outcome> {
    if patched { fire::<F, PatchedKey>(order) } else { fire::<F, AtomicKey>(order) }
}

fn report(name: &str, o: &Outcome) -> String {
    let lines = [
        ("runs", format!("{} counted, {} while off, {} misses", o.updates, o.uncounted, o.misses)),
        ("on top", format!("{} interrupts, {} NMIs, {} softirqs", o.interrupts, o.nmis, o.softirqs)),
        ("tasks", format!("{} switches, {} moves; {} CPUs taken down", o.switches, o.moves, o.downs)),
        ("key", format!("{} flips", o.flips)),
        ("programs", format!("{} loaded and freed, {} refused for memory", o.loads, o.enomem)),
        ("reads", format!("{}, {} out of step", o.reads, o.out_of_step)),
    ];
    let mut text = format!("\n{name}\n");
    for (what, line) in lines {
        text += &format!("  {what:<11} {line}\n");
    }
    for broken in &o.broken {
        text += &format!("  {:<11} {broken}\n", "BROKEN");
    }
    text
}

fn say(text: &str) -> Result<()> {
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
