//! What keeps statistics on: descriptors, their copies and the sysctl, in any order. Mirrors `bpf_enable_stats`,
//! `bpf_stats_release` and `bpf_stats_handler`, kernel/bpf/syscall.c.

use super::{Witness, quiet};
use crate::error::CannotAsk;
use crate::stats::StatsFd;
use crate::sysctl::{self, Guard};

/// A step; descriptors are numbered as they are opened, copies among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Opens a descriptor.
    Open,
    /// Copies descriptor `.0`.
    Dup(usize),
    /// Closes descriptor `.0`.
    Close(usize),
    /// Writes the sysctl: 1 or 0.
    Write(bool),
}

/// What can be seen after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whether a run is counted.
    pub on: bool,
    /// What the sysctl reads.
    pub sysctl: bool,
}

/// Takes `steps`, from statistics off and the sysctl 0, and looks after each. All is as before afterwards.
///
/// # Errors
/// [`CannotAsk`].
///
/// # Panics
/// If a step names a descriptor that is not open.
pub fn toggle(steps: &[Step]) -> Result<Vec<Seen>, CannotAsk> {
    let guard = Guard::new(quiet()?)?;
    let witness = Witness::new()?;
    let mut fds: Vec<Option<StatsFd>> = Vec::new();
    let mut seen = Vec::new();
    for &step in steps {
        match step {
            Step::Open => fds.push(Some(StatsFd::enable()?)),
            Step::Dup(n) => fds.push(Some(fds[n].as_ref().expect("an open descriptor").dup()?)),
            Step::Close(n) => drop(fds[n].take().expect("an open descriptor")),
            Step::Write(on) => guard
                .write(if on { b"1" } else { b"0" })
                .map_err(|e| CannotAsk(format!("write the sysctl: {e}")))?,
        }
        seen.push(Seen { on: witness.sees_on()?, sysctl: sysctl::read()? == "1" });
    }
    Ok(seen)
}
