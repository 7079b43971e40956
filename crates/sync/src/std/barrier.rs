//! Fences under their kernel names. Kernel: `asm/barrier.h`, `barrier()` in `linux/compiler.h`, `cpu_relax()`.
//!
//! The kernel's `smp_wmb` orders stores with stores and its `smp_rmb` loads with loads, nothing else. Rust has no such
//! fences: the nearest are release and acquire fences, which order **more**. A proof made with these says nothing about
//! a protocol that needs less than they give.

use super::atomic::Ordering;
use std::sync::atomic;

/// Orders all memory accesses before it with all after it, as `order` says.
#[inline(always)]
pub fn fence(order: Ordering) {
    atomic::fence(order)
}

/// Orders stores before it with stores after it. Kernel: `smp_wmb`. Differs: a release fence, which is stronger.
#[inline(always)]
pub fn smp_wmb() {
    fence(Ordering::Release)
}

/// Orders loads before it with loads after it. Kernel: `smp_rmb`. Differs: an acquire fence, which is stronger.
#[inline(always)]
pub fn smp_rmb() {
    fence(Ordering::Acquire)
}

/// Stops the compiler, not the CPU: orders a CPU against its own interrupts. Kernel: `barrier()`.
#[inline(always)]
pub fn barrier() {
    atomic::compiler_fence(Ordering::SeqCst)
}

/// Says that the caller spins for another CPU. Kernel: `cpu_relax()`.
#[inline(always)]
pub fn cpu_relax() {
    std::hint::spin_loop()
}
