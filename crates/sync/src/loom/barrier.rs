//! Fences, explored and logged.

use std::panic::Location;

use super::atomic::Ordering;
use super::model::point;
use super::{log, weaken};

/// Orders all memory accesses before it with all after it, as `order` says.
#[track_caller]
pub fn fence(order: Ordering) {
    let at = Location::caller();
    point(at);
    let order = weaken::fence(order, at);
    if let Some(order) = order {
        loom::sync::atomic::fence(order);
    }
    log::fence(order, at);
}

/// Kernel: `smp_wmb`.
#[track_caller]
pub fn smp_wmb() {
    fence(Ordering::Release)
}

/// Kernel: `smp_rmb`.
#[track_caller]
pub fn smp_rmb() {
    fence(Ordering::Acquire)
}

/// Nothing: a model's interrupts come between operations, never inside one.
pub fn barrier() {}

/// Lets another thread run: without it a spinning reader would spin for ever.
pub fn cpu_relax() {
    super::model::spun();
    loom::thread::yield_now();
}
