//! From the command line's clock and word size to a machine: each pair that has a type of its own is built once.

use anyhow::Result;
use filter::clock::{OrderedTsc, OtherClock};
use filter::{Kconfig, PatchedKey};
use jump_label::{AtomicKey, StaticKey};
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
///
/// Its key is patched, as the kernel's is; where that cannot be, a line says so and each run loads a word.
pub(crate) fn with_machine<W: OnMachine>(
    clock: Clock,
    bits: Bits,
    topology: Topology,
    work: W,
) -> Result<W::Output> {
    if let Err(e) = jump_label::support() {
        eprintln!("progstats: {e}; each run tests a word instead");
        return with_key::<AtomicKey, W>(clock, bits, topology, work);
    }
    with_key::<PatchedKey, W>(clock, bits, topology, work)
}

fn with_key<S: StaticKey + 'static, W: OnMachine>(
    clock: Clock,
    bits: Bits,
    topology: Topology,
    work: W,
) -> Result<W::Output> {
    match bits {
        Bits::B64 => with_form::<Bits64, S, W>(clock, topology, work),
        Bits::B32 => with_form::<Bits32, S, W>(clock, topology, work),
    }
}

fn with_form<F: Form, S: StaticKey + 'static, W: OnMachine>(
    clock: Clock,
    topology: Topology,
    work: W,
) -> Result<W::Output> {
    let other = match clock {
        Clock::Ordered | Clock::Virtual => {
            let machine = filter::machine::<F, _, S, _>(topology, NoSteps, OrderedTsc::new()?)?;
            return work.on(machine);
        }
        Clock::Tsc => OtherClock::tsc()?,
        Clock::Os => OtherClock::os(),
        Clock::Coarse => OtherClock::coarse(),
        Clock::Skewed => OtherClock::skewed()?,
        Clock::Zero => OtherClock::Zero,
    };
    work.on(filter::machine::<F, _, S, _>(topology, NoSteps, other)?)
}
