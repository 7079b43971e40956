//! Preemption, migration and contexts. Kernel: include/linux/preempt.h, kernel/sched/core.c, v6.6.
//!
//! Guards are methods of [`Task`]; the free functions are the kernel's two halves, for code whose begin and end are two
//! calls (the trampoline's enter and exit).

use std::ops::Deref;

use sync::barrier::barrier;

use crate::Kconfig;
use crate::cpu::{Cpu, Task};
use crate::irqflags::irqs_disabled;
use crate::sched;
use crate::step::{Step, announce};

/// One level of preemption off.
pub const PREEMPT_OFFSET: u32 = 1;
/// One level of softirq context.
pub const SOFTIRQ_OFFSET: u32 = 1 << 8;
/// One level of hardirq context.
pub const HARDIRQ_OFFSET: u32 = 1 << 16;
/// One level of NMI context.
pub const NMI_OFFSET: u32 = 1 << 20;
/// One level of bottom halves off: apart from [`SOFTIRQ_OFFSET`], so that it shows which it is.
pub const SOFTIRQ_DISABLE_OFFSET: u32 = 2 * SOFTIRQ_OFFSET;
const SOFTIRQ_MASK: u32 = 0xFF << 8;
const HARDIRQ_MASK: u32 = 0xF << 16;
const NMI_MASK: u32 = 0xF << 20;

/// The task is pinned to its CPU.
pub static MIGRATE_DISABLE: Step = Step::new("migrate_disable", "the task is pinned to its CPU");
/// The task may move again.
pub static MIGRATE_ENABLE: Step = Step::new("migrate_enable", "the task may move again");

/// The counts of the calling context, in the kernel's layout. Kernel: `preempt_count`.
#[inline(always)]
pub fn preempt_count<K: Kconfig>(task: &Task<K>) -> u32 {
    task.raw_cpu().preempt_count.get()
}

/// In task context: no interrupt, softirq or NMI is being served. Kernel: `in_task`.
pub fn in_task<K: Kconfig>(task: &Task<K>) -> bool {
    preempt_count(task) & (SOFTIRQ_OFFSET | HARDIRQ_MASK | NMI_MASK) == 0
}

/// Serving anything, or bottom halves are off. Kernel: `in_interrupt`.
pub fn in_interrupt<K: Kconfig>(task: &Task<K>) -> bool {
    preempt_count(task) & (SOFTIRQ_MASK | HARDIRQ_MASK | NMI_MASK) != 0
}

/// What is being served: 0 a task, 1 a softirq, 2 an interrupt, 3 an NMI. Kernel: `interrupt_context_level`.
pub fn interrupt_context_level<K: Kconfig>(task: &Task<K>) -> u32 {
    let count = preempt_count(task);
    let served = [NMI_MASK, NMI_MASK | HARDIRQ_MASK, NMI_MASK | HARDIRQ_MASK | SOFTIRQ_OFFSET];
    served.into_iter().map(|mask| u32::from(count & mask != 0)).sum()
}

/// Serving a softirq. Kernel: `in_serving_softirq`.
pub fn in_serving_softirq<K: Kconfig>(task: &Task<K>) -> bool {
    preempt_count(task) & SOFTIRQ_OFFSET != 0
}

/// Serving a softirq, or bottom halves are off. Kernel: `in_softirq`.
pub fn in_softirq<K: Kconfig>(task: &Task<K>) -> bool {
    preempt_count(task) & SOFTIRQ_MASK != 0
}

/// Serving a hardware interrupt. Kernel: `in_hardirq`.
pub fn in_hardirq<K: Kconfig>(task: &Task<K>) -> bool {
    preempt_count(task) & HARDIRQ_MASK != 0
}

/// Serving an NMI. Kernel: `in_nmi`.
pub fn in_nmi<K: Kconfig>(task: &Task<K>) -> bool {
    preempt_count(task) & NMI_MASK != 0
}

/// Adds to the counts. Kernel: `__preempt_count_add`.
#[inline(always)]
pub(crate) fn preempt_count_add<K: Kconfig>(cpu: &Cpu<K>, v: u32) {
    cpu.preempt_count.set(cpu.preempt_count.get().wrapping_add(v));
    barrier();
}

/// Takes from the counts. Kernel: `__preempt_count_sub`.
#[inline(always)]
pub(crate) fn preempt_count_sub<K: Kconfig>(cpu: &Cpu<K>, v: u32) {
    barrier();
    cpu.preempt_count.set(cpu.preempt_count.get().wrapping_sub(v));
}

/// Turns preemption off; nests. Kernel: `preempt_disable`.
///
/// Context: any. The task stays on its CPU and on it alone until [`preempt_enable`].
#[inline(always)]
pub fn preempt_disable<K: Kconfig>(task: &Task<K>) {
    preempt_count_add(task.raw_cpu(), PREEMPT_OFFSET);
}

/// Takes back one [`preempt_disable`]; at the last one, lets a task switch happen that was asked for meanwhile.
/// Kernel: `preempt_enable`.
#[inline(always)]
pub fn preempt_enable<K: Kconfig>(task: &Task<K>) {
    let cpu = task.raw_cpu();
    debug_assert!(preempt_count(task) & 0xFF > 0, "preempt_enable without preempt_disable");
    preempt_count_sub(cpu, PREEMPT_OFFSET);
    if cpu.need_resched.get() != 0 && cpu.preempt_count.get() == 0 && !irqs_disabled(task) {
        sched::schedule(cpu);
    }
}

/// Pins the task to its CPU; nests. Preemption stays on. Kernel: `migrate_disable`.
#[inline(always)]
#[track_caller]
pub fn migrate_disable<K: Kconfig>(task: &Task<K>) {
    let cpu = task.raw_cpu();
    announce(cpu, &MIGRATE_DISABLE);
    cpu.migration_disabled.set(cpu.migration_disabled.get() + 1);
    barrier();
}

/// Takes back one [`migrate_disable`]. Kernel: `migrate_enable`.
#[inline(always)]
#[track_caller]
pub fn migrate_enable<K: Kconfig>(task: &Task<K>) {
    let cpu = task.raw_cpu();
    debug_assert!(cpu.migration_disabled.get() > 0, "migrate_enable without migrate_disable");
    barrier();
    cpu.migration_disabled.set(cpu.migration_disabled.get() - 1);
    announce(cpu, &MIGRATE_ENABLE);
}

/// Whether the task has pinned itself. Kernel: `is_migration_disabled`.
pub fn is_migration_disabled<K: Kconfig>(task: &Task<K>) -> bool {
    task.raw_cpu().migration_disabled.get() > 0
}

/// Whether the task cannot move to another CPU now, for any of the reasons that `cant_migrate` accepts.
#[inline(always)]
pub(crate) fn is_pinned<K: Kconfig>(task: &Task<K>) -> bool {
    irqs_disabled(task) || task.raw_cpu().migration_disabled.get() > 0 || preempt_count(task) > 0
}

/// Checks, in debug builds, that the task cannot move. Kernel: `cant_migrate`.
///
/// As in the kernel it never stops the caller: it taints the machine ([`Machine::taints`](crate::Machine::taints)).
#[inline(always)]
pub fn cant_migrate<K: Kconfig>(cpu: &Cpu<K>) {
    if cfg!(debug_assertions) && !is_pinned(cpu) {
        cpu.machine().taint();
    }
}

/// Preemption is off while this lives.
pub struct PreemptGuard<'t, K: Kconfig>(&'t Task<K>);

/// Migration is off while this lives.
pub struct MigrateGuard<'t, K: Kconfig>(&'t Task<K>);

impl<K: Kconfig> Task<K> {
    /// Turns preemption off and lends the CPU.
    #[inline(always)]
    pub fn preempt_disable(&self) -> PreemptGuard<'_, K> {
        preempt_disable(self);
        PreemptGuard(self)
    }

    /// Turns migration off and lends the CPU. Other tasks may still run on it in between.
    #[inline(always)]
    pub fn migrate_disable(&self) -> MigrateGuard<'_, K> {
        migrate_disable(self);
        MigrateGuard(self)
    }
}

impl<K: Kconfig> Deref for PreemptGuard<'_, K> {
    type Target = Cpu<K>;
    #[inline(always)]
    fn deref(&self) -> &Cpu<K> {
        self.0.raw_cpu()
    }
}

impl<K: Kconfig> Drop for PreemptGuard<'_, K> {
    #[inline(always)]
    fn drop(&mut self) {
        preempt_enable(self.0);
    }
}

impl<K: Kconfig> Deref for MigrateGuard<'_, K> {
    type Target = Cpu<K>;
    #[inline(always)]
    fn deref(&self) -> &Cpu<K> {
        self.0.raw_cpu()
    }
}

impl<K: Kconfig> Drop for MigrateGuard<'_, K> {
    #[inline(always)]
    fn drop(&mut self) {
        migrate_enable(self.0);
    }
}
