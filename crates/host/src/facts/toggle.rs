//! What keeps statistics on: descriptors, their copies and the sysctl, in any order. Mirrors `bpf_enable_stats`,
//! `bpf_stats_release` and `bpf_stats_handler`, kernel/bpf/syscall.c.

use super::{Witness, quiet};
use crate::error::{CannotAsk, Error};
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
                .map(drop)
                .map_err(|e| CannotAsk(format!("write the sysctl: {e}")))?,
        }
        seen.push(Seen { on: witness.sees_on()?, sysctl: sysctl::read()? == "1" });
    }
    Ok(seen)
}

/// Whether statistics are on while a child alone has the descriptor that we opened, and once it has been killed.
///
/// # Errors
/// [`CannotAsk`].
pub fn killed_holder() -> Result<[bool; 2], CannotAsk> {
    let _lock = quiet()?;
    let witness = Witness::new()?;
    let fd = StatsFd::enable()?;
    let holder = Holder::fork()?;
    drop(fd);
    let held = witness.sees_on()?;
    drop(holder);
    Ok([held, witness.sees_on()?])
}

/// A child with all that we had open, until it is dropped or we are gone.
struct Holder(libc::pid_t);

impl Holder {
    fn fork() -> Result<Holder, Error> {
        // SAFETY: the child makes async-signal-safe calls only, and does not come back.
        unsafe {
            let us = libc::getpid();
            match libc::fork() {
                -1 => Err(Error::last("fork")),
                0 => {
                    // Ends with us; the second line if we were gone before the first.
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    if libc::getppid() != us {
                        libc::_exit(0);
                    }
                    loop {
                        libc::pause();
                    }
                }
                pid => Ok(Holder(pid)),
            }
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // SAFETY: a child of ours that nobody else waits for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}
