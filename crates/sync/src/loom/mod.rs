//! The half of the facade that explores: loom's atomics and threads, each operation logged by source line, and an
//! interrupt as a nested call before an enumerated operation.
//!
//! loom runs all threads of a model as coroutines on one host thread, so the cells and thread-locals here are never shared
//! by two at once.
//!
//! # What a pass here does not say
//! - Load buffering is never explored; only the last 7 stores of a word are remembered; five threads at most.
//! - SeqCst accesses are weaker than they should be (false alarms); SeqCst fences are right.
//! - The kernel's `smp_wmb` and `smp_rmb` order less than the fences they stand as here.

#![expect(clippy::missing_panics_doc, reason = "here a panic ends the model, whatever its place")]

pub mod atomic;
pub mod barrier;
pub mod irq;
pub mod local;
mod log;
pub mod model;
mod pins;
pub mod thread;
mod weaken;
