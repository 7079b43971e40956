//! The soft interrupt mask. Kernel: include/linux/irqflags.h; the way powerpc does it (arch/powerpc/kernel/irq_64.c), v6.6.
//!
//! Masking is one store. An interrupt that meets the mask sets a flag and returns; it stays pending, and the restore that
//! opens the mask runs it. A real mask (`sigprocmask`) would be two syscalls, 200 times as dear.

use sync::barrier::barrier;

use crate::Kconfig;
use crate::cpu::Task;
use crate::irq;
use crate::step::{Step, announce};

/// Interrupts are masked.
pub static IRQ_SAVE: Step = Step::new("irq_save", "interrupts are masked");
/// The mask is put back.
pub static IRQ_RESTORE: Step = Step::new("irq_restore", "the interrupt mask is put back");

/// The mask before [`local_irq_save`]. Kernel: `unsigned long flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrqFlags(u32);

impl IrqFlags {
    /// As the kernel's `unsigned long`, for interfaces that know no machine.
    pub fn into_raw(self) -> usize {
        self.0 as usize
    }

    /// Back from [`IrqFlags::into_raw`].
    pub fn from_raw(raw: usize) -> Self {
        Self(raw as u32)
    }
}

/// Masks interrupts of this CPU and returns the mask that was there. Kernel: `local_irq_save`.
///
/// Context: any; async-signal-safe.
#[inline(always)]
#[track_caller]
pub fn local_irq_save<K: Kconfig>(task: &Task<K>) -> IrqFlags {
    let cpu = task.raw_cpu();
    announce(cpu, &IRQ_SAVE);
    let flags = IrqFlags(cpu.irq_mask.get());
    cpu.irq_mask.set(1);
    barrier();
    flags
}

/// Puts the mask back; if that unmasks, runs what came meanwhile. Kernel: `local_irq_restore`.
#[inline(always)]
#[track_caller]
pub fn local_irq_restore<K: Kconfig>(task: &Task<K>, flags: IrqFlags) {
    let cpu = task.raw_cpu();
    barrier();
    cpu.irq_mask.set(flags.0);
    barrier();
    if flags.0 == 0 && cpu.irq_happened.get() != 0 {
        irq::replay(cpu);
    }
    announce(cpu, &IRQ_RESTORE);
}

/// Whether interrupts of this CPU are masked. Kernel: `irqs_disabled`.
#[inline(always)]
pub fn irqs_disabled<K: Kconfig>(task: &Task<K>) -> bool {
    task.raw_cpu().irq_mask.get() != 0
}

/// Interrupts are masked while this lives.
pub struct IrqGuard<'t, K: Kconfig> {
    task: &'t Task<K>,
    flags: IrqFlags,
}

impl<K: Kconfig> Task<K> {
    /// Masks interrupts, as a guard.
    #[inline(always)]
    pub fn irq_save(&self) -> IrqGuard<'_, K> {
        IrqGuard { task: self, flags: local_irq_save(self) }
    }
}

impl<K: Kconfig> Drop for IrqGuard<'_, K> {
    #[inline(always)]
    fn drop(&mut self) {
        local_irq_restore(self.task, self.flags);
    }
}
