//! The parts of a virtual configuration: clock, key and program text that announce their steps ([`percpu::step`]).

use std::sync::Arc;

use jump_label::{AtomicKey, KeyError, StaticKey};
use percpu::{Access, Cpu, Machine, MachineError, Stage, Step, Topology, announce, announce_current};
use stats::Form;
use stats::virt::Announced;

use crate::clock::SchedClock;
use crate::prog::{BpfCtx, BpfFunc};
use crate::{Config, Globals, Kconfig};

/// The key is tested.
pub static KEY: Step = Step::new("key", "the key is tested");
/// The clock is read.
pub static CLOCK: Step = Step::new("clock", "the clock is read");
/// The program runs.
pub static CALL: Step = Step::new("call", "the program runs");

/// A virtual configuration of form `F`.
pub type VirtualConfig<F> = Config<Announced<F>, VirtualClock, AnnouncedKey, Arc<Stage>>;

/// A virtual machine on `stage`, statistics off.
///
/// # Errors
/// As [`Machine::new`].
pub fn machine<F: Form>(
    topology: Topology,
    stage: Arc<Stage>,
) -> Result<Machine<VirtualConfig<F>>, MachineError> {
    let clock = VirtualClock(stage.clone());
    Machine::new(topology, stage, |pcpu| Globals::new(pcpu, clock, AnnouncedKey::default()))
}

/// The clock of a stage: the read itself takes the time it is charged.
#[derive(Debug)]
pub struct VirtualClock(pub Arc<Stage>);

impl SchedClock for VirtualClock {
    #[track_caller]
    fn sched_clock<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) -> u64 {
        announce(cpu, &CLOCK);
        self.0.now(cpu.smp_processor_id())
    }
}

/// A key whose tests are announced.
#[derive(Debug, Default)]
pub struct AnnouncedKey(AtomicKey);

impl StaticKey for AnnouncedKey {
    fn claim() -> Result<Self, KeyError> {
        Ok(Self::default())
    }

    #[track_caller]
    fn unlikely(&self) -> bool {
        announce_current(&KEY, Access::None);
        let on = self.0.unlikely();
        announce_current(&KEY, Access::Load(on.into()));
        on
    }

    fn slow_inc(&self) -> Result<(), KeyError> {
        self.0.slow_inc()
    }

    fn slow_dec(&self) -> Result<(), KeyError> {
        self.0.slow_dec()
    }

    fn count(&self) -> i32 {
        self.0.count()
    }
}

/// A program whose run is announced.
pub struct AnnouncedFunc<F>(pub F);

impl<K: Kconfig, F: BpfFunc<K>> BpfFunc<K> for AnnouncedFunc<F> {
    fn call(&self, cpu: &Cpu<K>, ctx: &mut BpfCtx<'_>) -> u32 {
        announce(cpu, &CALL);
        self.0.call(cpu, ctx)
    }
}
