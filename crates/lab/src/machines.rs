//! From the command line's clock and word size to a machine: each pair that has a type of its own is built once.

use anyhow::Result;
use filter::clock::{OrderedTsc, OtherClock};
use filter::{Config, Kconfig};
use jump_label::AtomicKey;
use percpu::{Machine, NoSteps, Topology};
use stats::{Bits32, Bits64, Form};

use crate::cli::{Bits, Clock};

/// What is done with a machine of any configuration.
pub(crate) trait OnMachine {
    type Output;
    /// Does it. `machine` has its statistics off.
    fn on<K: Kconfig>(self, machine: Machine<K>) -> Result<Self::Output>;
}

/// Builds a machine with that clock and word size, and does `work` on it. Not for the virtual clock.
pub(crate) fn with_machine<W: OnMachine>(
    clock: Clock,
    bits: Bits,
    topology: Topology,
    work: W,
) -> Result<W::Output> {
    match bits {
        Bits::B64 => with_form::<Bits64, W>(clock, topology, work),
        Bits::B32 => with_form::<Bits32, W>(clock, topology, work),
    }
}

fn with_form<F: Form, W: OnMachine>(clock: Clock, topology: Topology, work: W) -> Result<W::Output> {
    let other = match clock {
        Clock::Ordered | Clock::Virtual => {
            let machine: Machine<Config<F, OrderedTsc>> =
                filter::machine::<F, _, AtomicKey, _>(topology, NoSteps, OrderedTsc::new()?)?;
            return work.on(machine);
        }
        Clock::Tsc => OtherClock::tsc()?,
        Clock::Os => OtherClock::os(),
        Clock::Coarse => OtherClock::coarse(),
        Clock::Skewed => OtherClock::skewed()?,
        Clock::Zero => OtherClock::Zero,
    };
    work.on(filter::machine::<F, _, AtomicKey, _>(topology, NoSteps, other)?)
}
