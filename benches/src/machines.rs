//! The machines that are measured: today's form on the ordered clock, by form and kind of key.

use std::hint::black_box;
use std::sync::Barrier;

use anyhow::Result;
use filter::clock::OrderedTsc;
use filter::{BpfCtx, BpfProg, Config, Globals, Kconfig, ProgType};
use jump_label::StaticKey;
use percpu::{Cpu, Machine, NoSteps, Topology};
use stats::Form;

use crate::harness::timed;

jump_label::define_claimed_key!(
    /// The patched key of the 64-bit machine.
    pub(crate) struct Patched64;
);
jump_label::define_claimed_key!(
    /// The patched key of the 32-bit machine.
    pub(crate) struct Patched32;
);

/// A machine that is not virtual.
pub(crate) type Real<F, S> = Config<F, OrderedTsc, S>;

/// A machine and a program on it that does nothing.
pub(crate) struct Bench<K: Kconfig> {
    pub(crate) machine: Machine<K>,
    pub(crate) prog: BpfProg<K>,
}

impl<F: Form, S: StaticKey + 'static> Bench<Real<F, S>> {
    /// With these CPUs, statistics off.
    ///
    /// # Errors
    /// If the TSC does not serve as a clock, the key is not to be had, or there is no memory.
    pub(crate) fn new(topology: Topology) -> Result<Self> {
        let (clock, key) = (OrderedTsc::new()?, S::claim()?);
        let machine = Machine::new(topology, NoSteps, |pcpu| Globals::new(pcpu, clock, key))?;
        let prog = program(&machine)?;
        Ok(Self { machine, prog })
    }
}

/// A program that does nothing.
///
/// # Errors
/// If there is no per-CPU memory.
pub(crate) fn program<K: Kconfig>(machine: &Machine<K>) -> Result<BpfProg<K>> {
    let text = |_: &Cpu<K>, ctx: &mut BpfCtx<'_>| ctx.mem.len() as u32;
    Ok(BpfProg::alloc(machine.pcpu(), ProgType::RawTracepoint, text)?)
}

/// The machine comes up anew for each turn, which is not measured: so variants need not stand within one another.
impl<K: Kconfig> Bench<K> {
    /// `f` on CPU 0, pinned as a caller of the path is.
    pub(crate) fn on_cpu<R: Send>(&self, f: impl FnOnce(&Cpu<K>) -> R + Send) -> R {
        let result = self.machine.boot(|smp| smp.run(0, |cpu| f(black_box(&cpu.migrate_disable()))));
        result.unwrap_or_else(|panic| panic!("{panic}"))
    }

    /// `body` on CPU 0, so many times: ns of one.
    #[inline(always)]
    pub(crate) fn alone(&self, n: u64, body: impl Fn(&Cpu<K>) + Send + Sync) -> f64 {
        self.on_cpu(|cpu| timed(n, || body(black_box(cpu))))
    }

    /// `body` on all CPUs at once, so many times on each: ns of one, the mean of the CPUs.
    #[inline(always)]
    pub(crate) fn together(&self, n: u64, body: impl Fn(&Cpu<K>) + Send + Sync) -> f64 {
        let barrier = Barrier::new(self.machine.topology().online());
        let ns = self.machine.boot(|smp| {
            smp.on_each_cpu(|cpu| {
                let pinned = cpu.migrate_disable();
                let cpu: &Cpu<K> = &pinned;
                barrier.wait();
                timed(n, || body(black_box(cpu)))
            })
        });
        ns.iter().sum::<f64>() / ns.len() as f64
    }

    /// `f` with statistics on.
    pub(crate) fn with_stats<R>(&self, f: impl FnOnce() -> R) -> R {
        let key = &K::globals(self.machine.globals()).bpf_stats_enabled_key;
        key.slow_inc().expect("the key was claimed, so it can be patched");
        let result = f();
        key.slow_dec().expect("the user is from above");
        result
    }
}
