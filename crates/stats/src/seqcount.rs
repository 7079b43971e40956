//! Sequence counters. Kernel: `seqcount_t`, include/linux/seqlock.h, v6.6 (readers by fences; see [`crate::later`]).
//!
//! 1. The writer makes the sequence odd, then writes, then makes it even again.
//! 2. A reader waits for an even sequence, reads, and reads again if the sequence has changed.
//! 3. If a reader saw anything of a write, it also sees that write's sequence, odd or later: that is what the two pairs
//!    of fences are for.
//!
//! Differs: `smp_wmb` and `smp_rmb` are release and acquire fences here, which order more than the kernel's.

use sync::Ordering::Relaxed;
use sync::atomic::{AtomicU32, Word};
use sync::barrier::{cpu_relax, smp_rmb, smp_wmb};

/// A sequence counter over word `W` (a virtual machine's announces its accesses).
#[derive(Debug)]
pub struct Seqcount<W = AtomicU32> {
    pub(crate) sequence: W,
}

impl<W: Word> Default for Seqcount<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W: Word> Seqcount<W> {
    /// A counter at 0. Kernel: `seqcount_init`.
    pub fn new() -> Self {
        Self { sequence: W::new("seq", 0) }
    }

    /// Begins a write: the sequence turns odd. Kernel: `do_raw_write_seqcount_begin`.
    ///
    /// Context: preemption off; no other writer, also not an interrupt on this CPU.
    #[inline(always)]
    pub fn write_begin(&self) {
        // ORDERING: Relaxed; the fence below puts it before the data.
        self.sequence.store(self.sequence.load_own().wrapping_add(1), Relaxed);
        // ORDERING: pairs with `read_retry`: who read any of the new data sees the odd sequence there.
        smp_wmb();
    }

    /// Ends a write: the sequence turns even. Kernel: `do_raw_write_seqcount_end`.
    #[inline(always)]
    pub fn write_end(&self) {
        // ORDERING: pairs with `try_read_begin`: who sees the even sequence sees all data written under it.
        smp_wmb();
        // ORDERING: Relaxed; the fence above puts it after the data.
        self.sequence.store(self.sequence.load_own().wrapping_add(1), Relaxed);
    }

    /// The sequence, if no write is in progress: one attempt of [`read_begin`](Self::read_begin).
    #[inline(always)]
    pub fn try_read_begin(&self) -> Option<u32> {
        // ORDERING: Relaxed; the fence below puts it before the data.
        let seq = self.sequence.load(Relaxed);
        if seq & 1 != 0 {
            return None;
        }
        // ORDERING: pairs with `write_end`.
        smp_rmb();
        Some(seq)
    }

    /// Waits until no write is in progress; returns the sequence. Kernel: `read_seqcount_begin`.
    ///
    /// Context: any, but never on top of the write section it would wait for (in an interrupt of the writer's CPU).
    #[inline]
    pub fn read_begin(&self) -> u32 {
        loop {
            if let Some(seq) = self.try_read_begin() {
                return seq;
            }
            cpu_relax();
        }
    }

    /// Whether what was read since `start` must be read again. Kernel: `read_seqcount_retry`.
    #[inline(always)]
    pub fn read_retry(&self, start: u32) -> bool {
        // ORDERING: pairs with `write_begin`.
        smp_rmb();
        // ORDERING: Relaxed; the fence above puts it after the data.
        self.sequence.load(Relaxed) != start
    }
}
