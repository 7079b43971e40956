//! Interrupts: raised from anywhere, served on their CPU. Kernel: kernel/irq/, kernel/softirq.c (`irq_enter`/`irq_exit`).
//!
//! To raise one is to count it as pending on the CPU and to kick whoever is on it. The signal carries nothing: the
//! handler looks at the CPU its thread is on **now** and serves what is pending there. So a kick that merges with another,
//! comes late, or finds a thread that has moved on loses nothing and runs nothing twice:
//!
//! 1. Raiser: count (SeqCst), then read who is on the CPU; kick that thread, or the CPU's idle thread if nobody is.
//! 2. A thread that comes onto a CPU says so (SeqCst), then looks whether anything is pending.
//! 3. A thread that leaves says so, gives the CPU away, then looks, and kicks the idle thread if something is.
//! 4. The idle thread, kicked, takes the CPU if it is free, serves, and leaves by rule 3.

use std::fmt;

use sync::barrier::barrier;
use sync::host::Ordering::{Relaxed, SeqCst};
use sync::irq::Line;

use crate::Kconfig;
use crate::cpu::Cpu;
use crate::hrtimer::hrtimer_interrupt;
use crate::preempt::{HARDIRQ_OFFSET, preempt_count_add, preempt_count_sub};
use crate::sched;
use crate::smp::Machine;
use crate::softirq::do_softirq;

/// An interrupt line of each CPU, below [`NR_IRQS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Irq(pub usize);

/// How many interrupt lines a CPU has.
pub const NR_IRQS: usize = 9;

/// The line that asks a CPU to switch tasks. Kernel: the reschedule IPI.
pub const RESCHEDULE: Irq = Irq(NR_IRQS - 1);

/// The line of the CPU's timers. Kernel: the local APIC's timer.
pub const LOCAL_TIMER: Irq = Irq(NR_IRQS - 2);

/// The interrupt line has a handler already, or is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrqBusy(pub Irq);

impl fmt::Display for IrqBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = LOCAL_TIMER.0 - 1;
        write!(f, "interrupt line {} is taken: use a free one of 0 to {last}", self.0.0)
    }
}

impl std::error::Error for IrqBusy {}

impl<K: Kconfig> Machine<K> {
    /// Raises `irq` on CPU `cpu`. Each call is served once, also when the CPU has them masked, is idle, or is not up yet.
    ///
    /// Context: any, also interrupt handlers; async-signal-safe.
    ///
    /// # Panics
    /// If there is no such CPU or line.
    pub fn raise(&self, cpu: usize, irq: Irq) {
        let slot = self.slot(cpu);
        // ORDERING (host): SeqCst; pairs with `try_take`, `look`, `leave`, `close`, `open`, `serve`, `who` and
        // `run_cpu`; rules 1 to 4
        // of `irq`: of "counted" and "looked", and of "came or went" and "asked who is there", one side sees the other.
        slot.pending[irq.0].fetch_add(1, SeqCst);
        slot.any_pending.store(true, SeqCst);
        let tid = slot.who();
        if tid != 0 {
            sync::irq::kick(tid);
        }
    }

    /// Asks CPU `cpu` to switch tasks as soon as preemption is on there.
    ///
    /// # Panics
    /// If there is no such CPU.
    pub fn resched(&self, cpu: usize) {
        self.raise(cpu, RESCHEDULE);
    }
}

/// What the signal calls.
///
/// # Safety
/// `line` is the first field of a live `Cpu<K>` of this thread.
pub(crate) unsafe fn on_interrupt<K: Kconfig>(line: *const Line) {
    // SAFETY: the caller's.
    let cpu = unsafe { Cpu::<K>::from_line(line) };
    if cpu.slot().is_none() {
        // Off every CPU. If idle, rule 4; a task that waits for a CPU will look when it comes onto one.
        if let Some(id) = cpu.idle_of
            && sched::try_take(cpu, id)
        {
            serve(cpu);
            sched::leave(cpu);
        } else if let Some(id) = cpu.idle_of
            && cpu.machine().slot(id).softirqs_pending.load(Relaxed) != 0
        {
            // Who is on the CPU may have left them to us: so the CPU is asked for, and they run at the latest when it comes.
            cpu.machine().resched(id);
        }
    } else if cpu.irq_mask.get() != 0 {
        cpu.irq_happened.set(1);
    } else {
        serve(cpu);
        sched::preempt_schedule_irq(cpu);
    }
}

/// Serves what came while interrupts were masked.
#[cold]
#[inline(never)]
pub(crate) fn replay<K: Kconfig>(cpu: &Cpu<K>) {
    if let Some(slot) = cpu.slot() {
        slot.deferred.fetch_add(1, Relaxed);
    }
    serve(cpu);
    sched::preempt_schedule_irq(cpu);
}

/// Serves what is pending on this CPU, interrupts masked as the hardware does, until nothing is; then softirqs.
pub(crate) fn serve<K: Kconfig>(cpu: &Cpu<K>) {
    let Some(slot) = cpu.slot() else { return };
    loop {
        cpu.irq_mask.set(1);
        cpu.irq_happened.set(0);
        barrier();
        preempt_count_add(cpu, HARDIRQ_OFFSET);
        // ORDERING (host): SeqCst; pairs with `raise`: the flag is taken before the counts, so a count that is missed here
        // has set the flag again.
        while slot.any_pending.swap(false, SeqCst) {
            for irq in 0..NR_IRQS {
                for _ in 0..slot.pending[irq].swap(0, SeqCst) {
                    handle(cpu, Irq(irq));
                    slot.served.fetch_add(1, Relaxed);
                }
            }
        }
        preempt_count_sub(cpu, HARDIRQ_OFFSET);
        do_softirq(cpu);
        barrier();
        cpu.irq_mask.set(0);
        barrier();
        if cpu.irq_happened.get() == 0 {
            return;
        }
    }
}

fn handle<K: Kconfig>(cpu: &Cpu<K>, irq: Irq) {
    match irq {
        RESCHEDULE => cpu.need_resched.set(1),
        LOCAL_TIMER => hrtimer_interrupt(cpu),
        Irq(line) => cpu.machine().handlers.irqs[line].call(cpu),
    }
}
