//! The one facade over std (and, for models, loom): the only crate that names either.
//!
//! Everything above is written once against this crate. In an ordinary build each item is a thin inlined wrapper over
//! std; under `cfg(loom)` the same names explore interleavings instead. So the code above holds no `cfg(loom)` and no
//! second version of itself, and what is explored is what ships.
//!
//! | module | mirrors | what it is |
//! |---|---|---|
//! | [`atomic`] | `linux/atomic.h`, `asm/rwonce.h` | words shared between CPUs, with named objects and owner-only accesses |
//! | [`barrier`] | `asm/barrier.h`, `linux/compiler.h` | fences under their kernel names, `cpu_relax` |
//! | [`local`] | `asm/local.h` | words shared only between a CPU and its own interrupts: never a scheduling point |
//! | [`thread`] | `linux/kthread.h` | scoped threads, workers, pinning |
//! | [`irq`] | `asm/irq.h` | an interrupt as a POSIX signal, and the one thread-local word that finds the CPU |
//! | [`host`] | | atomics of the host program, which no model should see |
//! | [`mem`] | `asm/rwonce.h` | raw accesses to memory that simulated programs share |
//!
//! Three rules for the code above, which keep models honest: facade operations do not stand inside `macro_rules!` (all
//! expansions would share one source location), are not called through function pointers (the location would be lost),
//! and a word that only its owner writes is read by that owner with `load_own`.

#![expect(clippy::disallowed_types, reason = "this is the crate that the lint sends others to")]

#[cfg(not(loom))]
#[path = "std/mod.rs"]
mod imp;

#[cfg(loom)]
#[path = "loom/mod.rs"]
mod imp;

pub mod host;
pub mod mem;
mod panic;

#[cfg(loom)]
pub use imp::model;
pub use imp::{atomic, barrier, irq, local, thread};

pub use atomic::Ordering;
