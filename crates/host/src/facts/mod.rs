//! Questions to the kernel that return what it answers. What the answers should be is for tests, and for whoever
//! puts a simulation's answer beside them.
//!
//! Each question says [`CannotAsk`] where it cannot be asked, with the reason. Those about the
//! machine-wide switches wait for [`Exclusive`] and need statistics off at the start.

pub mod counting;
pub mod enable;
pub mod flip;
pub mod misses;
pub mod sysctl_text;
pub mod toggle;
pub mod torn;

use crate::error::{CannotAsk, Error};
use crate::info::stats;
use crate::probe::minimal;
use crate::prog::{Prog, ProgType};
use crate::sysctl::Exclusive;

/// A program that tells whether statistics are on: its run is counted or not.
struct Witness(Prog);

impl Witness {
    fn new() -> Result<Witness, Error> {
        minimal(ProgType::SocketFilter).map(Witness)
    }

    fn sees_on(&self) -> Result<bool, Error> {
        let before = stats(&self.0)?;
        self.0.test_run(1)?;
        Ok(stats(&self.0)? != before)
    }
}

/// Whether statistics are on now, whoever keeps them on.
///
/// # Errors
/// If no program can be loaded or run.
pub fn stats_are_on() -> Result<bool, Error> {
    Witness::new()?.sees_on()
}

/// The lock, with statistics off: what questions about the switches start from.
fn quiet() -> Result<Exclusive, CannotAsk> {
    let lock = Exclusive::lock()?;
    if stats_are_on()? {
        return Err(CannotAsk(
            "statistics are on already: end what keeps them on, or write 0 to the sysctl".into(),
        ));
    }
    Ok(lock)
}
