//! Interrupts that no mask stops. Kernel: arch/x86/kernel/nmi.c, `nmi_enter`/`nmi_exit` of include/linux/hardirq.h, v6.6.
//!
//! They are raised, found and served by rules 1 to 4 of [`crate::irq`], on a line and with a signal of their own. The
//! difference: one is served at once, whatever the CPU masks and whatever interrupt it serves; only not inside another.
//! The hardware then keeps one NMI for later and forgets more; here each one raised is served, as with all interrupts.
//!
//! What runs in one finds interrupts masked, and whatever it interrupted as it was, in the middle of any instruction
//! sequence that masks interrupts to be whole: such a sequence is not whole to it.

use std::fmt;

use sync::barrier::barrier;
use sync::host::Ordering::{Relaxed, SeqCst};
use sync::irq::Line;

use crate::Kconfig;
use crate::cpu::Cpu;
use crate::preempt::{HARDIRQ_OFFSET, NMI_OFFSET, in_nmi, preempt_count_add, preempt_count_sub};
use crate::sched;
use crate::smp::{Machine, Smp};

/// The NMI has a handler already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NmiBusy;

impl fmt::Display for NmiBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the NMI has a handler already: it has one a boot")
    }
}

impl std::error::Error for NmiBusy {}

impl<'env, K: Kconfig> Smp<'_, 'env, K> {
    /// Makes `f` what NMIs run, on every CPU, until the machine goes down. Kernel: `register_nmi_handler`.
    ///
    /// `f` runs in a signal handler, on top of anything at all, interrupt handlers and masked sections included: it must be
    /// async-signal-safe. Panics as in [`Smp::request_irq`].
    ///
    /// # Errors
    /// [`NmiBusy`] if there is a handler.
    pub fn request_nmi(&self, f: impl Fn(&Cpu<K>) + Send + Sync + 'env) -> Result<(), NmiBusy> {
        // SAFETY: the machine clears its handlers before `boot` returns, within 'env.
        let set = unsafe { self.machine().handlers.nmi.set(Box::new(f)) };
        if set { Ok(()) } else { Err(NmiBusy) }
    }
}

impl<K: Kconfig> Machine<K> {
    /// Raises an NMI on CPU `cpu`. Each call is served once, also when the CPU is idle or is not up yet.
    ///
    /// Context: any, also NMIs; async-signal-safe.
    ///
    /// # Panics
    /// If there is no such CPU.
    pub fn raise_nmi(&self, cpu: usize) {
        let slot = self.slot(cpu);
        // ORDERING (host): SeqCst; pairs with `try_take`, `look`, `leave`, `close`, `open`, `serve_nmis` and `run_cpu`;
        // rules 1 to 4 of `irq`.
        slot.nmis_pending.fetch_add(1, SeqCst);
        let tid = slot.who();
        if tid != 0 {
            sync::irq::kick_nmi(tid);
        }
    }

    /// NMIs served on CPU `cpu`.
    ///
    /// # Panics
    /// If there is no such CPU.
    pub fn nmis(&self, cpu: usize) -> u64 {
        self.slot(cpu).nmis_served.load(Relaxed)
    }
}

/// What the NMIs' signal calls.
///
/// # Safety
/// `line` is the first field of a live `Cpu<K>` of this thread.
pub(crate) unsafe fn on_nmi<K: Kconfig>(line: *const Line) {
    // SAFETY: the caller's.
    let cpu = unsafe { Cpu::<K>::from_line(line) };
    if cpu.slot().is_some() {
        serve_nmis(cpu);
    } else if let Some(id) = cpu.idle_of
        && sched::try_take(cpu, id)
    {
        // Off every CPU and idle: rule 4 of `irq`.
        serve_nmis(cpu);
        sched::leave(cpu);
    }
}

/// Serves the NMIs that are pending on this CPU until none is. In an NMI it does nothing: that one's loop will look.
pub(crate) fn serve_nmis<K: Kconfig>(cpu: &Cpu<K>) {
    let Some(slot) = cpu.slot() else { return };
    // ORDERING (host): SeqCst; pairs with `raise_nmi`: one that is missed here counted later, and kicks us.
    while slot.nmis_pending.load(SeqCst) != 0 && !in_nmi(cpu) {
        let masked = nmi_enter(cpu);
        for _ in 0..slot.nmis_pending.swap(0, SeqCst) {
            cpu.machine().handlers.nmi.call(cpu);
            slot.nmis_served.fetch_add(1, Relaxed);
        }
        nmi_exit(cpu, masked);
    }
}

/// Enters NMI context, which is hardirq context too; returns the interrupt mask to be put back. Kernel: `nmi_enter`.
fn nmi_enter<K: Kconfig>(cpu: &Cpu<K>) -> u32 {
    let masked = cpu.irq_mask.get();
    cpu.irq_mask.set(1);
    barrier();
    preempt_count_add(cpu, NMI_OFFSET + HARDIRQ_OFFSET);
    masked
}

/// Leaves NMI context. Kernel: `nmi_exit`.
///
/// No task switch, as on x86, and no replay of interrupts: those that came meanwhile come again, or are looked for by
/// whoever serves NMIs outside their signal.
fn nmi_exit<K: Kconfig>(cpu: &Cpu<K>, masked: u32) {
    preempt_count_sub(cpu, NMI_OFFSET + HARDIRQ_OFFSET);
    barrier();
    cpu.irq_mask.set(masked);
    barrier();
}
