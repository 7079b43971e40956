//! Who is on a CPU. Kernel: kernel/sched/core.c (`schedule`, `preempt_schedule_irq`), v6.6, in spirit.
//!
//! A CPU is a baton. A host thread that runs simulated work holds the baton of one CPU, or waits for one; to preempt a
//! task is to make its thread, inside its own signal handler, give the baton away and wait for one again. So a task is
//! preempted at any instruction at which preemption is on, with no help from the code it runs.
//!
//! Differs: there is no run queue and no priority. Waiting threads look again and again until a baton is free; a task that
//! may move takes any CPU's (a die decides where it starts to look, so that tests meet every move).
//!
//! A task that is preempted inside the host's allocator still holds its lock: code that has preemption off should not
//! allocate while other tasks do.

use std::time::Duration;

use sync::host::Ordering::{Relaxed, SeqCst};
use sync::thread;

use crate::cpu::{Cpu, Task};
use crate::hrtimer::{Hrtimer, HrtimerRestart};
use crate::preempt::preempt_count;
use crate::smp::{Slot, Smp};
use crate::softirq::local_softirq_pending;
use crate::{Kconfig, irq, irqs_disabled, nmi};

/// Puts the calling thread on CPU `id` if that is free. Serves nothing yet.
pub(crate) fn try_take<K: Kconfig>(cpu: &Cpu<K>, id: usize) -> bool {
    let slot = cpu.machine().slot(id);
    // ORDERING (host): SeqCst; pairs with `leave`: what the last one did on the CPU is seen by the next, and one who finds
    // the baton taken is before the last look of its holder (rules 3 and 4 of `irq`). The thread's number; pairs with
    // `raise` and `raise_nmi`.
    if slot.baton.swap(true, SeqCst) {
        return false;
    }
    cpu.set_on(Some((id, slot)));
    slot.tid.store(sync::irq::self_id(), SeqCst); // rule 2 of `irq`
    true
}

/// A task that can be on one CPU only, and is not on it now: the CPU stays up for it.
pub(crate) struct Bound<'m>(&'m Slot);

impl<'m> Bound<'m> {
    pub(crate) fn to(slot: &'m Slot) -> Self {
        // ORDERING (host): SeqCst; pairs with `play_dead`: said before its CPU can be had.
        slot.bound.fetch_add(1, SeqCst);
        Self(slot)
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        // ORDERING (host): SeqCst; pairs with `play_dead`: it is on the CPU again, which is so asked for once more.
        self.0.bound.fetch_sub(1, SeqCst);
    }
}

/// The CPU is no longer up: what is raised from here on waits. What was raised before is served.
pub(crate) fn close<K: Kconfig>(cpu: &Cpu<K>, slot: &Slot) {
    // ORDERING (host): SeqCst; rules 2 and 4 of `irq`, pairs with `raise` and `raise_nmi`.
    slot.idle_tid.store(0, SeqCst);
    slot.tid.store(0, SeqCst);
    look(cpu);
    cpu.set_on(None);
}

/// The CPU, whose baton the calling thread has kept, is up again.
pub(crate) fn open<K: Kconfig>(cpu: &Cpu<K>, id: usize, slot: &Slot) {
    cpu.set_on(Some((id, slot)));
    // ORDERING (host): SeqCst; rules 2 and 4 of `irq`, pairs with `raise` and `raise_nmi`.
    slot.tid.store(sync::irq::self_id(), SeqCst);
    slot.idle_tid.store(sync::irq::self_id(), SeqCst);
    look(cpu);
}

/// How one waits for a CPU: soon ready at first, then without taking the host's time from who has it.
#[derive(Default)]
struct Patience(u32);

impl Patience {
    fn wait(&mut self) {
        self.0 += 1;
        match self.0 {
            ..64 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(20)),
        }
    }
}

/// Waits for CPU `id`, goes onto it, and serves what is pending there.
pub(crate) fn take<K: Kconfig>(cpu: &Cpu<K>, id: usize) {
    let mut patience = Patience::default();
    while !try_take(cpu, id) {
        patience.wait();
    }
    look(cpu);
}

/// Leaves the CPU.
pub(crate) fn leave<K: Kconfig>(cpu: &Cpu<K>) {
    let Some(slot) = cpu.slot() else { return };
    // ORDERING (host): SeqCst; rule 3 of `irq`, pairs with `raise` and `raise_nmi`.
    slot.tid.store(0, SeqCst);
    cpu.set_on(None);
    // ORDERING (host): SeqCst; pairs with `try_take`; before the looks below, so not just a release.
    slot.baton.store(false, SeqCst);
    let idle = slot.idle_tid.load(SeqCst); // rule 3 of `irq`
    if idle != 0 && (slot.any_pending.load(SeqCst) || slot.softirqs_pending.load(Relaxed) != 0) {
        sync::irq::kick(idle);
    }
    if idle != 0 && slot.nmis_pending.load(SeqCst) != 0 {
        sync::irq::kick_nmi(idle);
    }
}

/// Serves what is pending on a CPU just taken.
fn look<K: Kconfig>(cpu: &Cpu<K>) {
    nmi::serve_nmis(cpu);
    // After NMIs, which are no signal's here: interrupts that met their mask are still pending.
    // ORDERING (host): SeqCst; rule 2 of `irq`, pairs with `raise` and, before, `raise_nmi`.
    let pending = cpu.slot().is_some_and(|slot| slot.any_pending.load(SeqCst));
    // And softirqs that were left over, which the serving runs on its way out.
    if (pending || local_softirq_pending(cpu) != 0) && cpu.irq_mask.get() == 0 {
        irq::serve(cpu);
    }
}

/// On the way out of an interrupt: switches if that was asked for and preemption is on.
#[inline]
pub(crate) fn preempt_schedule_irq<K: Kconfig>(cpu: &Cpu<K>) {
    if cpu.need_resched.get() != 0 && cpu.preempt_count.get() == 0 {
        schedule(cpu);
    }
}

/// Where preemption has come on again: the same. Kernel: `preempt_check_resched`.
#[inline]
pub(crate) fn preempt_check_resched<K: Kconfig>(cpu: &Cpu<K>) {
    if !irqs_disabled(cpu) {
        preempt_schedule_irq(cpu);
    }
}

/// Gives the CPU away and waits for one: the same if migration is off, any if not. Kernel: `schedule`.
///
/// Context: task, preemption on, interrupts on; also at the end of the signal handler that interrupted such code.
#[cold]
#[inline(never)]
pub(crate) fn schedule<K: Kconfig>(cpu: &Cpu<K>) {
    cpu.need_resched.set(0);
    switch(cpu, thread::yield_now);
}

/// The same, and `away` is what the thread does while it is on no CPU.
fn switch<K: Kconfig>(cpu: &Cpu<K>, away: impl FnOnce()) {
    let Some(slot) = cpu.slot() else { return };
    let from = cpu.smp_processor_id();
    // Masked, so that an interrupt does not start a second switch inside this one.
    cpu.irq_mask.set(1);
    let bound = (cpu.migration_disabled.get() != 0).then(|| Bound::to(slot));
    leave(cpu);
    away();
    let present = cpu.machine().topology().online();
    let mut to = if bound.is_none() { roll(cpu) as usize % present } else { from };
    let mut patience = Patience::default();
    while !try_take(cpu, to) {
        patience.wait();
        if bound.is_none() {
            to = (to + 1) % present;
        }
    }
    drop(bound);
    cpu.switches.set(cpu.switches.get() + 1);
    if to != from {
        cpu.moves.set(cpu.moves.get() + 1);
        cpu.machine().pin_to_core_of(to);
    }
    cpu.irq_mask.set(0);
    look(cpu);
    // A request that came meanwhile is met: we have just been switched.
    cpu.need_resched.set(0);
    cpu.slot().inspect(|slot| _ = slot.switches.fetch_add(1, Relaxed));
}

impl<K: Kconfig> Task<K> {
    /// Sleeps until `condition` holds; others may have the CPU meanwhile. Kernel: `wait_event`.
    ///
    /// The condition is asked on no CPU, again and again; an event that is signalled wakes no earlier.
    ///
    /// Context: task, preemption and interrupts on, in no RCU section but tasks-trace; else the machine is tainted
    /// ("sleeping function called from invalid context"), and the task waits without giving its CPU away.
    pub fn wait_event(&self, mut condition: impl FnMut() -> bool) {
        self.sleep(|| {
            while !condition() {
                thread::yield_now();
            }
        });
    }

    /// Sleeps for `time` of the host's, or longer. Kernel: `msleep`.
    ///
    /// Context: as [`Task::wait_event`].
    pub fn msleep(&self, time: Duration) {
        self.sleep(|| thread::sleep(time));
    }

    fn sleep(&self, away: impl FnOnce()) {
        let cpu = self.raw_cpu();
        // Kernel: `might_sleep`.
        if preempt_count(self) != 0 || irqs_disabled(self) || cpu.rcu_nesting.get() != 0 {
            cpu.machine().taint();
            return away();
        }
        switch(cpu, away);
    }
}

impl<'env, K: Kconfig> Smp<'_, 'env, K> {
    /// From now on, tasks of the CPUs that are online have the CPU for `slice` each: then another one has its turn, if
    /// preemption is on, or as soon as it is. Kernel: `scheduler_tick`, with every task round robin.
    ///
    /// # Panics
    /// If the host has no thread for the machine's first timer.
    pub fn start_ticks(&self, slice: Duration) {
        let machine = self.machine();
        for id in (0..machine.topology().online()).filter(|&id| machine.cpu_online(id)) {
            let tick = |cpu: &Cpu<K>, _: &Hrtimer<'_, K>| {
                cpu.need_resched.set(1);
                HrtimerRestart::Restart
            };
            self.hrtimer(id, tick).start(slice);
        }
    }
}

/// xorshift64: where a task that may move looks first.
fn roll<K: Kconfig>(cpu: &Cpu<K>) -> u64 {
    let mut x = cpu.die.get();
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    cpu.die.set(x);
    x
}
