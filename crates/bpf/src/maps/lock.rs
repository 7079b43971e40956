//! The lock of a bucket or ring. Stands for `htab_lock_bucket` (kernel/bpf/hashtab.c) and the ring buffer's
//! spinlock, v6.6.
//!
//! The word holds who has it: a CPU's number plus one. Interrupts are kept away while it is held, as in the
//! kernel; one that cannot be kept away (an NMI) and finds it held by its own CPU gets `EBUSY` instead of a
//! deadlock. Waiting for another CPU is bounded.
//!
//! Differs: the kernel waits for ever for another CPU, and detects its own by a per-CPU counter for each of
//! eight groups of buckets, so there an NMI may be refused although its bucket is free.

use sync::host::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::env::Env;
use crate::errno::Errno;

/// Tries before a CPU gives up waiting for another: tens of milliseconds, far beyond a host's time slice.
const SPINS: u32 = 1 << 22;

#[derive(Debug, Default)]
pub(crate) struct CpuLock(AtomicU32);

/// The lock held; released when dropped.
pub(crate) struct CpuGuard<'a> {
    lock: &'a CpuLock,
    env: &'a dyn Env,
    flags: usize,
}

impl CpuLock {
    pub(crate) fn lock<'a>(&'a self, env: &'a dyn Env) -> Result<CpuGuard<'a>, Errno> {
        let flags = env.local_irq_save();
        let me = env.smp_processor_id().wrapping_add(1).max(1);
        for _ in 0..SPINS {
            // ORDERING: Acquire; pairs with the Release in `drop`: the last holder's changes are seen.
            match self.0.compare_exchange(0, me, Acquire, Relaxed) {
                Ok(_) => return Ok(CpuGuard { lock: self, env, flags }),
                Err(holder) if holder == me => break,
                Err(_) => std::hint::spin_loop(),
            }
        }
        env.local_irq_restore(flags);
        Err(Errno::EBUSY)
    }
}

impl Drop for CpuGuard<'_> {
    fn drop(&mut self) {
        // ORDERING: Release; pairs with the Acquire in `lock`.
        self.lock.0.store(0, Release);
        self.env.local_irq_restore(self.flags);
    }
}
