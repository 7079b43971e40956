//! Bottom halves: what an interrupt leaves for later, with interrupts on. Kernel: kernel/softirq.c, v6.6, not PREEMPT_RT.
//!
//! A softirq is raised on its own CPU, and merges with one that is pending there. It runs on the way out of the interrupt
//! that is on top of neither another nor a section with bottom halves off; or where they are turned on again. Interrupts
//! are on while it runs, so it can be raised again; after [`MAX_SOFTIRQ_RESTART`] rounds the rest is left.
//!
//! Differs: there is no thread ksoftirqd. What is left, the CPU's idle thread runs, which asks whoever is on the CPU to
//! switch; so does whoever comes onto the CPU next. Work bound to the CPU ([`Smp::on`]) runs on that same thread: there the
//! rest waits for its end, or for the next interrupt. A softirq raised in a task runs at once, by an interrupt of its own.

use std::fmt;
use std::ops::Deref;

use sync::barrier::barrier;
use sync::host::Ordering::Relaxed;

use crate::cpu::{Cpu, Task};
use crate::irqflags::{irqs_disabled, local_irq_restore, local_irq_save};
use crate::preempt::{
    PREEMPT_OFFSET, SOFTIRQ_DISABLE_OFFSET, SOFTIRQ_OFFSET, in_hardirq, in_interrupt, preempt_count,
    preempt_count_add, preempt_count_sub,
};
use crate::smp::{Machine, Smp};
use crate::{Kconfig, irq, sched};

/// A softirq, the first runs first. Kernel: `HI_SOFTIRQ` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the kernel's names")]
pub enum Softirq {
    Hi,
    Timer,
    NetTx,
    NetRx,
    Block,
    IrqPoll,
    Tasklet,
    Sched,
    Hrtimer,
    Rcu,
}

/// How many softirqs there are.
pub const NR_SOFTIRQS: usize = 10;

/// How often the pending ones are run before the rest is left for later. Kernel: `MAX_SOFTIRQ_RESTART` (which also
/// stops after 2 ms; no clock is read here).
pub const MAX_SOFTIRQ_RESTART: u32 = 10;

/// The softirq has an action already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftirqBusy(pub Softirq);

impl fmt::Display for SoftirqBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "softirq {:?} has an action already: it has one a boot", self.0)
    }
}

impl std::error::Error for SoftirqBusy {}

impl<'env, K: Kconfig> Smp<'_, 'env, K> {
    /// Makes `f` what `nr` runs, on every CPU, until the machine goes down. Kernel: `open_softirq`.
    ///
    /// `f` mostly runs in a signal handler: it must be async-signal-safe. Panics as in [`Smp::request_irq`].
    ///
    /// # Errors
    /// [`SoftirqBusy`] if it has an action.
    pub fn open_softirq(
        &self,
        nr: Softirq,
        f: impl Fn(&Cpu<K>) + Send + Sync + 'env,
    ) -> Result<(), SoftirqBusy> {
        // SAFETY: the machine clears its handlers before `boot` returns, within 'env.
        let set = unsafe { self.machine().handlers.softirqs[nr as usize].set(Box::new(f)) };
        if set { Ok(()) } else { Err(SoftirqBusy(nr)) }
    }
}

impl<K: Kconfig> Machine<K> {
    /// Softirqs run on CPU `cpu`.
    ///
    /// # Panics
    /// If there is no such CPU.
    pub fn softirqs(&self, cpu: usize) -> u64 {
        self.slot(cpu).softirqs_served.load(Relaxed)
    }
}

/// The softirqs that are pending on this CPU, a bit each. Kernel: `local_softirq_pending`.
///
/// Context: pinned.
pub fn local_softirq_pending<K: Kconfig>(cpu: &Cpu<K>) -> u32 {
    cpu.slot().map_or(0, |slot| slot.softirqs_pending.load(Relaxed))
}

/// Raises `nr` on the CPU that the task is on. Kernel: `raise_softirq`.
///
/// Context: any but NMI; async-signal-safe.
pub fn raise_softirq<K: Kconfig>(task: &Task<K>, nr: Softirq) {
    let flags = local_irq_save(task);
    let cpu = task.raw_cpu();
    if let Some(slot) = cpu.slot() {
        slot.softirqs_pending.fetch_or(1 << nr as u32, Relaxed);
        if !in_interrupt(cpu) {
            // No way out of an interrupt and no `local_bh_enable` is to come.
            cpu.machine().resched(cpu.smp_processor_id());
        }
    }
    local_irq_restore(task, flags);
}

/// Turns bottom halves off, and so preemption; nests. Kernel: `local_bh_disable`.
///
/// Context: task or softirq.
#[inline]
pub fn local_bh_disable<K: Kconfig>(task: &Task<K>) {
    debug_assert!(!in_hardirq(task), "local_bh_disable in an interrupt");
    preempt_count_add(task.raw_cpu(), SOFTIRQ_DISABLE_OFFSET);
}

/// Takes back one [`local_bh_disable`]; at the last one, runs what was raised meanwhile, and then lets a task switch happen.
/// Kernel: `local_bh_enable`.
///
/// Context: task or softirq, interrupts on.
pub fn local_bh_enable<K: Kconfig>(task: &Task<K>) {
    let cpu = task.raw_cpu();
    debug_assert!(!in_hardirq(task) && !irqs_disabled(task), "local_bh_enable with interrupts off");
    debug_assert!(preempt_count(task) & 0xFF00 >= SOFTIRQ_DISABLE_OFFSET, "bottom halves are on");
    // Preemption stays off until they have run.
    preempt_count_sub(cpu, SOFTIRQ_DISABLE_OFFSET - PREEMPT_OFFSET);
    if local_softirq_pending(cpu) != 0 {
        let flags = local_irq_save(task);
        do_softirq(cpu);
        local_irq_restore(task, flags);
    }
    preempt_count_sub(cpu, PREEMPT_OFFSET);
    sched::preempt_check_resched(cpu);
}

/// Runs what is pending, if nothing forbids it. Kernel: `invoke_softirq`, `__do_softirq`.
///
/// Context: interrupts masked, as they are again when it returns.
pub(crate) fn do_softirq<K: Kconfig>(cpu: &Cpu<K>) {
    if in_interrupt(cpu) || local_softirq_pending(cpu) == 0 {
        return;
    }
    let Some(slot) = cpu.slot() else { return };
    preempt_count_add(cpu, SOFTIRQ_OFFSET);
    let enabled = sync::irq::enable();
    for round in 1.. {
        let pending = slot.softirqs_pending.swap(0, Relaxed);
        local_irq_enable(cpu);
        for nr in (0..NR_SOFTIRQS).filter(|nr| pending & 1 << nr != 0) {
            let before = preempt_count(cpu);
            cpu.machine().handlers.softirqs[nr].call(cpu);
            if preempt_count(cpu) != before {
                // As the kernel: it is told, and mended.
                cpu.machine().taint();
                cpu.preempt_count.set(before);
            }
            slot.softirqs_served.fetch_add(1, Relaxed);
        }
        cpu.irq_mask.set(1);
        barrier();
        if local_softirq_pending(cpu) == 0 {
            break;
        }
        if round == MAX_SOFTIRQ_RESTART || cpu.need_resched.get() != 0 {
            wakeup_softirqd(cpu);
            break;
        }
    }
    drop(enabled);
    preempt_count_sub(cpu, SOFTIRQ_OFFSET);
}

/// Unmasks interrupts and serves what came meanwhile. Kernel: `local_irq_enable`.
fn local_irq_enable<K: Kconfig>(cpu: &Cpu<K>) {
    barrier();
    cpu.irq_mask.set(0);
    barrier();
    if cpu.irq_happened.get() != 0 {
        irq::serve(cpu);
    }
}

/// Wakes who runs what is left: the idle thread, unless that is who we are. Kernel: `wakeup_softirqd`.
fn wakeup_softirqd<K: Kconfig>(cpu: &Cpu<K>) {
    // ORDERING (host): SeqCst; rule 4 of `irq`.
    let idle = cpu.slot().map_or(0, |slot| slot.idle_tid.load(sync::host::Ordering::SeqCst));
    if idle != 0 && cpu.idle_of.is_none() {
        sync::irq::kick(idle);
    }
}

/// Bottom halves are off while this lives.
pub struct BhGuard<'t, K: Kconfig>(&'t Task<K>);

impl<K: Kconfig> Task<K> {
    /// Turns bottom halves off, and so preemption, and lends the CPU.
    pub fn bh_disable(&self) -> BhGuard<'_, K> {
        local_bh_disable(self);
        BhGuard(self)
    }
}

impl<K: Kconfig> Deref for BhGuard<'_, K> {
    type Target = Cpu<K>;
    fn deref(&self) -> &Cpu<K> {
        self.0.raw_cpu()
    }
}

impl<K: Kconfig> Drop for BhGuard<'_, K> {
    fn drop(&mut self) {
        local_bh_enable(self.0);
    }
}
