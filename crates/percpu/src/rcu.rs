//! The read side of RCU, as far as the run path takes it. Kernel: include/linux/rcupdate.h, rcupdate_trace.h, v6.6.
//!
//! Read-side sections are counted per task, as preemptible RCU counts them. Grace periods, which wait for these counts,
//! belong to whoever frees programs.

use crate::Kconfig;
use crate::cpu::Task;
use crate::step::{Step, announce};

/// An RCU read-side section begins.
pub static RCU_READ_LOCK: Step = Step::new("rcu_read_lock", "an RCU read-side section begins");
/// An RCU read-side section ends.
pub static RCU_READ_UNLOCK: Step = Step::new("rcu_read_unlock", "an RCU read-side section ends");

/// Begins an RCU read-side section; they nest. Kernel: `rcu_read_lock`.
///
/// Context: any.
#[inline(always)]
#[track_caller]
pub fn rcu_read_lock<K: Kconfig>(task: &Task<K>) {
    announce(task.raw_cpu(), &RCU_READ_LOCK);
    let nesting = &task.raw_cpu().rcu_nesting;
    nesting.set(nesting.get() + 1);
}

/// Ends the innermost RCU read-side section. Kernel: `rcu_read_unlock`.
///
/// Context: any; the caller is in a section.
#[inline(always)]
#[track_caller]
pub fn rcu_read_unlock<K: Kconfig>(task: &Task<K>) {
    let nesting = &task.raw_cpu().rcu_nesting;
    debug_assert!(nesting.get() > 0, "rcu_read_unlock outside a section");
    nesting.set(nesting.get() - 1);
    announce(task.raw_cpu(), &RCU_READ_UNLOCK);
}

/// Begins a tasks-trace read-side section, in which the task may sleep. Kernel: `rcu_read_lock_trace`.
///
/// Context: task.
#[inline(always)]
#[track_caller]
pub fn rcu_read_lock_trace<K: Kconfig>(task: &Task<K>) {
    announce(task.raw_cpu(), &RCU_READ_LOCK);
    let nesting = &task.raw_cpu().rcu_trace_nesting;
    nesting.set(nesting.get() + 1);
}

/// Ends the innermost tasks-trace read-side section. Kernel: `rcu_read_unlock_trace`.
///
/// Context: task; the caller is in a section.
#[inline(always)]
#[track_caller]
pub fn rcu_read_unlock_trace<K: Kconfig>(task: &Task<K>) {
    let nesting = &task.raw_cpu().rcu_trace_nesting;
    debug_assert!(nesting.get() > 0, "rcu_read_unlock_trace outside a section");
    nesting.set(nesting.get() - 1);
    announce(task.raw_cpu(), &RCU_READ_UNLOCK);
}

impl<K: Kconfig> Task<K> {
    /// How deep the task is in RCU and in tasks-trace read-side sections.
    pub fn rcu_nesting(&self) -> (u32, u32) {
        (self.raw_cpu().rcu_nesting.get(), self.raw_cpu().rcu_trace_nesting.get())
    }
}
