//! The half of the facade that runs: std's atomics, threads and POSIX signals.

pub mod atomic;
pub mod barrier;
pub mod irq;
pub mod local;
pub mod thread;
