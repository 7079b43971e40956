//! u64 counters that a 32-bit reader can read whole. Kernel: include/linux/u64_stats_sync.h, v6.6.
//!
//! Since 6.1 there are two forms only. 64-bit: the sync object is empty and the section calls do nothing; the counters
//! are `local64_t`. Every 32-bit build: a sequence counter, and sections that mask interrupts where an interrupt may write
//! too; PREEMPT_RT then also turns preemption off inside them, where others only assert that it is.

use std::fmt::Debug;
use std::marker::PhantomData;

use percpu::{Cpu, IrqFlags, local_irq_restore, local_irq_save, preempt_disable, preempt_enable};
use sync::Ordering::Relaxed;
use sync::atomic::{AtomicU32, AtomicU64, Word};
use sync::barrier::cpu_relax;

use crate::Seqcount;

/// Word size and synchronisation of the statistics.
pub trait Form: Send + Sync + 'static {
    /// Kernel: `struct u64_stats_sync`.
    type Sync: U64StatsSync;
    /// Kernel: `u64_stats_t`.
    type U64: U64Stats;
}

/// 64-bit: whole counters, no synchronisation.
#[derive(Debug)]
pub enum Bits64 {}

/// 32-bit, SMP or not: a sequence counter, interrupts masked; counters in two halves of word `W`.
#[derive(Debug)]
pub struct Bits32<W = AtomicU32>(PhantomData<W>);

/// 32-bit with PREEMPT_RT: as [`Bits32`], and preemption is off in the sections.
#[derive(Debug)]
pub struct Bits32Rt<W = AtomicU32>(PhantomData<W>);

impl Form for Bits64 {
    type Sync = NoSync;
    type U64 = Whole;
}

impl<W: Word + 'static> Form for Bits32<W> {
    type Sync = SeqSync<W, false>;
    type U64 = Halves<W>;
}

impl<W: Word + 'static> Form for Bits32Rt<W> {
    type Sync = SeqSync<W, true>;
    type U64 = Halves<W>;
}

/// A counter. Kernel: `u64_stats_t`.
///
/// Reads may run anywhere; writes only on the CPU that owns the counter, inside an update section.
pub trait U64Stats: Send + Sync {
    /// A counter called `name` that holds `v`.
    fn new(name: &'static str, v: u64) -> Self;
    /// Kernel: `u64_stats_read`.
    fn read(&self) -> u64;
    /// Adds, wrapping. Kernel: `u64_stats_add`, whose argument is an `unsigned long`: on 32-bit the high half of `v` is
    /// lost.
    fn add(&self, v: u64);
    /// Adds 1. Kernel: `u64_stats_inc`.
    fn inc(&self);
    /// Kernel: `u64_stats_set`.
    fn set(&self, v: u64);
}

/// The 64-bit counter: `local64_t`.
#[derive(Debug)]
pub struct Whole(AtomicU64);

impl U64Stats for Whole {
    #[inline]
    fn new(name: &'static str, v: u64) -> Self {
        Self(AtomicU64::new(name, v))
    }

    // ORDERING: Relaxed here and in `set`; the counter is whole by itself, and nothing is published by it.
    #[inline(always)]
    fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }

    #[inline(always)]
    fn add(&self, v: u64) {
        self.0.add_own(v);
    }

    #[inline(always)]
    fn inc(&self) {
        self.0.add_own(1);
    }

    #[inline(always)]
    fn set(&self, v: u64) {
        self.0.store(v, Relaxed);
    }
}

/// The 32-bit counter: two words, written one after the other.
#[derive(Debug)]
pub struct Halves<W = AtomicU32> {
    lo: W,
    hi: W,
}

/// The halves' names, for models and timelines.
const fn half_names(name: &'static str) -> (&'static str, &'static str) {
    match name.as_bytes() {
        b"cnt" => ("cnt.lo", "cnt.hi"),
        b"nsecs" => ("nsecs.lo", "nsecs.hi"),
        b"misses" => ("misses.lo", "misses.hi"),
        _ => ("lo", "hi"),
    }
}

impl<W: Word> U64Stats for Halves<W> {
    fn new(name: &'static str, v: u64) -> Self {
        let (lo, hi) = half_names(name);
        Self { lo: W::new(lo, v as u32), hi: W::new(hi, (v >> 32) as u32) }
    }

    // ORDERING: Relaxed here and in `add` and `set`; the sequence's fences order the halves with it.
    #[inline(always)]
    fn read(&self) -> u64 {
        let lo = self.lo.load(Relaxed);
        u64::from(self.hi.load(Relaxed)) << 32 | u64::from(lo)
    }

    #[inline(always)]
    fn add(&self, v: u64) {
        let (lo, carry) = self.lo.load_own().overflowing_add(v as u32);
        self.lo.store(lo, Relaxed);
        self.hi.store(self.hi.load_own().wrapping_add(u32::from(carry)), Relaxed);
    }

    #[inline(always)]
    fn inc(&self) {
        self.add(1);
    }

    #[inline(always)]
    fn set(&self, v: u64) {
        self.lo.store(v as u32, Relaxed);
        self.hi.store((v >> 32) as u32, Relaxed);
    }
}

/// What keeps counters that are updated together readable together. Kernel: `struct u64_stats_sync`.
pub trait U64StatsSync: Send + Sync {
    /// What the irqsave section gives back at its end.
    type Flags: Copy + Debug;

    /// Kernel: `u64_stats_init`.
    fn new() -> Self;
    /// Kernel: `u64_stats_update_begin`.
    fn update_begin<K: percpu::Kconfig>(&self, cpu: &Cpu<K>);
    /// Kernel: `u64_stats_update_end`.
    fn update_end<K: percpu::Kconfig>(&self, cpu: &Cpu<K>);
    /// Kernel: `u64_stats_update_begin_irqsave`.
    fn update_begin_irqsave<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) -> Self::Flags;
    /// Kernel: `u64_stats_update_end_irqrestore`.
    fn update_end_irqrestore<K: percpu::Kconfig>(&self, cpu: &Cpu<K>, flags: Self::Flags);
    /// One attempt of `fetch_begin`: `None` while a writer is inside.
    fn try_fetch_begin(&self) -> Option<u32>;
    /// Kernel: `u64_stats_fetch_begin`.
    fn fetch_begin(&self) -> u32;
    /// Kernel: `u64_stats_fetch_retry`.
    fn fetch_retry(&self, start: u32) -> bool;
}

/// 64-bit: nothing.
#[derive(Debug)]
pub struct NoSync;

impl U64StatsSync for NoSync {
    type Flags = ();

    #[inline(always)]
    fn new() -> Self {
        Self
    }
    #[inline(always)]
    fn update_begin<K: percpu::Kconfig>(&self, _: &Cpu<K>) {}
    #[inline(always)]
    fn update_end<K: percpu::Kconfig>(&self, _: &Cpu<K>) {}
    #[inline(always)]
    fn update_begin_irqsave<K: percpu::Kconfig>(&self, _: &Cpu<K>) {}
    #[inline(always)]
    fn update_end_irqrestore<K: percpu::Kconfig>(&self, _: &Cpu<K>, (): ()) {}
    #[inline(always)]
    fn try_fetch_begin(&self) -> Option<u32> {
        Some(0)
    }
    #[inline(always)]
    fn fetch_begin(&self) -> u32 {
        0
    }
    #[inline(always)]
    fn fetch_retry(&self, _: u32) -> bool {
        false
    }
}

/// 32-bit: a sequence counter; `RT` says that sections turn preemption off themselves (`preempt_disable_nested`).
#[derive(Debug)]
pub struct SeqSync<W = AtomicU32, const RT: bool = false>(Seqcount<W>);

impl<W: Word, const RT: bool> U64StatsSync for SeqSync<W, RT> {
    type Flags = IrqFlags;

    fn new() -> Self {
        Self(Seqcount::new())
    }

    #[inline(always)]
    fn update_begin<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) {
        if RT {
            preempt_disable(cpu);
        } else {
            debug_assert!(
                percpu::preempt_count(cpu) > 0 || percpu::irqs_disabled(cpu),
                "a seqcount writer that can be preempted: readers would spin until it is back"
            );
        }
        self.0.write_begin();
    }

    #[inline(always)]
    fn update_end<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) {
        self.0.write_end();
        if RT {
            preempt_enable(cpu);
        }
    }

    #[inline(always)]
    fn update_begin_irqsave<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) -> IrqFlags {
        let flags = local_irq_save(cpu);
        self.update_begin(cpu);
        flags
    }

    #[inline(always)]
    fn update_end_irqrestore<K: percpu::Kconfig>(&self, cpu: &Cpu<K>, flags: IrqFlags) {
        self.update_end(cpu);
        local_irq_restore(cpu, flags);
    }

    #[inline(always)]
    fn try_fetch_begin(&self) -> Option<u32> {
        self.0.try_read_begin()
    }

    #[inline(always)]
    fn fetch_begin(&self) -> u32 {
        self.0.read_begin()
    }

    #[inline(always)]
    fn fetch_retry(&self, start: u32) -> bool {
        self.0.read_retry(start)
    }
}

/// Begins an update that interrupts of this CPU neither make nor read. The caller is not preemptible.
#[inline(always)]
pub fn u64_stats_update_begin<S: U64StatsSync, K: percpu::Kconfig>(syncp: &S, cpu: &Cpu<K>) {
    syncp.update_begin(cpu);
}

/// Ends [`u64_stats_update_begin`].
#[inline(always)]
pub fn u64_stats_update_end<S: U64StatsSync, K: percpu::Kconfig>(syncp: &S, cpu: &Cpu<K>) {
    syncp.update_end(cpu);
}

/// Begins an update that interrupts of this CPU also make.
#[inline(always)]
pub fn u64_stats_update_begin_irqsave<S: U64StatsSync, K: percpu::Kconfig>(
    syncp: &S,
    cpu: &Cpu<K>,
) -> S::Flags {
    syncp.update_begin_irqsave(cpu)
}

/// Ends [`u64_stats_update_begin_irqsave`].
#[inline(always)]
pub fn u64_stats_update_end_irqrestore<S: U64StatsSync, K: percpu::Kconfig>(
    syncp: &S,
    cpu: &Cpu<K>,
    flags: S::Flags,
) {
    syncp.update_end_irqrestore(cpu, flags);
}

/// Begins a read: waits for a writer inside.
#[inline(always)]
pub fn u64_stats_fetch_begin<S: U64StatsSync>(syncp: &S) -> u32 {
    syncp.fetch_begin()
}

/// Whether the read must be done again.
#[inline(always)]
pub fn u64_stats_fetch_retry<S: U64StatsSync>(syncp: &S, start: u32) -> bool {
    syncp.fetch_retry(start)
}

/// One attempt to read: `None` if a writer was inside or came by. With the sequence under which it was read.
#[inline]
pub fn read_once<S: U64StatsSync, R>(syncp: &S, read: impl FnOnce() -> R) -> Option<(u32, R)> {
    let start = syncp.try_fetch_begin()?;
    let value = read();
    (!syncp.fetch_retry(start)).then_some((start, value))
}

/// Reads until no writer was in the way. Kernel: the `do { … } while (u64_stats_fetch_retry(…))` of every reader.
///
/// Context: any but on top of a write section of the same sync object.
#[inline]
pub fn read<S: U64StatsSync, R>(syncp: &S, mut read: impl FnMut() -> R) -> R {
    loop {
        let start = syncp.fetch_begin();
        let value = read();
        if !syncp.fetch_retry(start) {
            return value;
        }
        cpu_relax();
    }
}

/// An irqsave update section, ended when this is dropped.
pub struct UpdateGuard<'s, 'c, S: U64StatsSync, K: percpu::Kconfig> {
    syncp: &'s S,
    cpu: &'c Cpu<K>,
    flags: S::Flags,
}

impl<'s, 'c, S: U64StatsSync, K: percpu::Kconfig> UpdateGuard<'s, 'c, S, K> {
    /// Begins the section.
    ///
    /// Context: any on `cpu`; not nested in a section of the same sync object.
    #[inline(always)]
    pub fn irqsave(syncp: &'s S, cpu: &'c Cpu<K>) -> Self {
        Self { syncp, cpu, flags: u64_stats_update_begin_irqsave(syncp, cpu) }
    }
}

impl<S: U64StatsSync, K: percpu::Kconfig> Drop for UpdateGuard<'_, '_, S, K> {
    #[inline(always)]
    fn drop(&mut self) {
        u64_stats_update_end_irqrestore(self.syncp, self.cpu, self.flags);
    }
}
