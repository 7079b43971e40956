//! Simulated CPUs. Mirrors `percpu.h` and `mm/percpu.c`, `smp.h`, `preempt.h`, `irqflags.h`, `cpumask.h`, `rcupdate.h`
//! (the read side) and as much of `sched.h` as the path stands on, as of Linux 6.6.
//!
//! A [`Machine`] is a value: it owns its CPUs, its per-CPU memory and whatever the crates above hang on it. Booted, each
//! online CPU is a host thread, pinned where the host allows it; work is put on CPUs ([`Smp::on`], [`Smp::on_each_cpu`])
//! or runs as tasks that are preempted and moved ([`Smp::spawn`]); interrupts are raised from anywhere
//! ([`Machine::raise`]) and arrive as POSIX signals.
//!
//! Being on a CPU is a token: code that may not move takes a [`Cpu`]; a [`Task`] is what may be preempted and moved, and
//! [`Task::migrate_disable`] or [`Task::preempt_disable`] lends it the `Cpu`. Interrupt handlers are handed one.
//!
//! # Invariants
//! 1. At most one thread is on a CPU at a time; whoever is on it holds its baton ([`sched`]).
//! 2. An interrupt counts as pending on its CPU before anybody is signalled, so no signal that is lost, merged or late
//!    loses an interrupt: each one raised runs exactly once ([`irq`]).
//! 3. Per-CPU memory is shared memory: its CPU, that CPU's interrupts and readers elsewhere hold `&T` at once, so it asks
//!    for `T: Send + Sync`, and access checks, in release too, that the CPU is of the machine that the memory is of.
//! 4. The signal handler finds its CPU by one thread-local word.
//!
//! ```
//! use percpu::{Machine, Native, Topology};
//!
//! let m = Machine::<Native>::new(Topology::smp(2), Default::default(), |_| ())?;
//! let hits = m.alloc_percpu(|_| sync::local::LocalU32::new(0))?;
//! m.boot(|smp| smp.on_each_cpu(|cpu| hits.this_cpu_ptr(cpu).inc_return()));
//! assert_eq!(hits.iter_possible().map(|h| h.get()).sum::<u32>(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod cpu;
mod handler;
pub mod hotplug;
pub mod hrtimer;
pub mod irq;
pub mod irqflags;
pub mod mm;
pub mod nmi;
pub mod preempt;
pub mod rcu;
pub mod sched;
pub mod smp;
pub mod softirq;
pub mod step;

pub use cpu::{Cpu, Task};
pub use hotplug::HotplugError;
pub use hrtimer::{Hrtimer, HrtimerRestart};
pub use irq::{Irq, IrqBusy, NR_IRQS};
pub use irqflags::{IrqFlags, IrqGuard, irqs_disabled, local_irq_restore, local_irq_save};
pub use mm::{AllocError, Pcpu, PerCpu, PerCpuBytes};
pub use nmi::NmiBusy;
pub use preempt::{
    MigrateGuard, PreemptGuard, cant_migrate, in_hardirq, in_interrupt, in_nmi, in_serving_softirq,
    in_softirq, in_task, interrupt_context_level, is_migration_disabled, migrate_disable, migrate_enable,
    preempt_count, preempt_disable, preempt_enable,
};
pub use rcu::{rcu_read_lock, rcu_read_lock_trace, rcu_read_unlock, rcu_read_unlock_trace};
pub use smp::{CpuJoin, CpuPanic, Machine, MachineError, Smp, TaskJoin, Topology};
pub use softirq::{BhGuard, Softirq, SoftirqBusy, local_bh_disable, local_bh_enable, raise_softirq};
pub use step::{Access, Moment, NoSteps, Stage, Step, Steps, announce, announce_current};

/// What a machine is made of, as far as this crate knows. Each crate above extends it by what it adds.
pub trait Kconfig: Sized + Send + Sync + 'static {
    /// The machine-wide state of the crates above.
    type Globals: Send + Sync;
    /// Who is told of each step of the path: nobody on a real machine, a [`Stage`] on a virtual one.
    type Steps: Steps;
}

/// The configuration of a machine with nothing above this crate.
#[derive(Debug)]
pub enum Native {}

impl Kconfig for Native {
    type Globals = ();
    type Steps = NoSteps;
}
