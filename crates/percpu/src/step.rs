//! Steps: where a virtual machine looks in. In ordinary builds of ordinary machines nothing of this is left.
//!
//! A virtual machine stages an interleaving of the shipped code deterministically: at each step of the path (the key is
//! tested, the clock is read, a half of a counter is written, …) it charges declared time and records what happened. The
//! path's source has no hooks for this: the *parts* of a virtual configuration (its clock, key, form, word) wrap the real
//! ones and announce. Only the CPU's own operations, in this crate, call [`announce`] themselves; which does nothing, by
//! type, where [`Kconfig::Steps`] is [`NoSteps`].

use std::panic::Location;
use std::sync::{Arc, Mutex};

use sync::host::{AtomicU64, Ordering::Relaxed};

use crate::Kconfig;
use crate::cpu::{self, Cpu};

/// A named step. Each crate declares those that its parts announce.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// The name that users charge it by.
    pub name: &'static str,
    /// What happens at it, in a few words.
    pub what: &'static str,
}

impl Step {
    /// A step called `name`, at which `what` happens.
    pub const fn new(name: &'static str, what: &'static str) -> Self {
        Self { name, what }
    }
}

/// A step as it happens: what it does to the word it is about, and the line that makes it.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'s> {
    /// Which step.
    pub step: &'s Step,
    /// What becomes of a word, if it is about one.
    pub access: Access,
    /// Where it stands.
    pub source: &'static Location<'static>,
}

/// What a step does to its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing, or nothing that could be told.
    None,
    /// This is going to be stored.
    Store(u64),
    /// This is going to be added.
    Add(u64),
    /// This was read. Told when it is done; all others before.
    Load(u64),
}

/// Who is told of steps.
pub trait Steps: Send + Sync + 'static {
    /// `step` is about to happen on `cpu`.
    #[inline(always)]
    fn step<K: Kconfig>(&self, _cpu: &Cpu<K>, _step: &Step) {}

    /// The same with all that is known of it, and reads too; by default a [`step`](Steps::step) if it is none.
    #[inline(always)]
    fn moment<K: Kconfig>(&self, cpu: &Cpu<K>, moment: &Moment<'_>) {
        if !matches!(moment.access, Access::Load(_)) {
            self.step(cpu, moment.step);
        }
    }
}

/// Nobody is told: a real machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSteps;

impl Steps for NoSteps {}

/// Tells the machine of a step on `cpu`.
#[inline(always)]
#[track_caller]
pub fn announce<K: Kconfig>(cpu: &Cpu<K>, step: &Step) {
    let moment = Moment { step, access: Access::None, source: Location::caller() };
    cpu.machine().steps.moment(cpu, &moment);
}

/// Tells the machine, if any, whose CPU the calling thread is on: for parts that are not handed the `Cpu`.
#[track_caller]
pub fn announce_current(step: &Step, access: Access) {
    cpu::announce_on_current(&Moment { step, access, source: Location::caller() });
}

/// A step that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The CPU's virtual time after the step was charged, in ns.
    pub at: u64,
    /// The CPU.
    pub cpu: usize,
    /// The step's name.
    pub step: &'static str,
}

/// The virtual time of each CPU, what each step costs, and what happened.
///
/// Under an [`Arc`], it is the `Steps` of a virtual machine and the source of its clock.
#[derive(Debug)]
pub struct Stage {
    now: Box<[AtomicU64]>,
    costs: Vec<(&'static str, u64)>,
    timeline: Option<Mutex<Vec<Event>>>,
}

impl Stage {
    /// A stage of `nr_cpus` CPUs whose clocks start at `start` ns; `costs` are ns by step name, others are free.
    pub fn new(nr_cpus: usize, start: u64, costs: &[(&'static str, u64)]) -> Self {
        Self {
            now: (0..nr_cpus).map(|_| AtomicU64::new(start)).collect(),
            costs: costs.to_vec(),
            timeline: None,
        }
    }

    /// The same, and what happens is recorded.
    pub fn recorded(mut self) -> Self {
        self.timeline = Some(Mutex::default());
        self
    }

    /// The time on CPU `cpu`, in ns.
    ///
    /// # Panics
    /// If `cpu` is not on the stage.
    pub fn now(&self, cpu: usize) -> u64 {
        self.now[cpu].load(Relaxed)
    }

    /// Lets `ns` pass on CPU `cpu`.
    ///
    /// # Panics
    /// If `cpu` is not on the stage.
    pub fn advance(&self, cpu: usize, ns: u64) {
        self.now[cpu].fetch_add(ns, Relaxed);
    }

    /// Takes what was recorded so far.
    pub fn take_timeline(&self) -> Vec<Event> {
        let events =
            |t: &Mutex<Vec<Event>>| std::mem::take(&mut *t.lock().unwrap_or_else(|e| e.into_inner()));
        self.timeline.as_ref().map(events).unwrap_or_default()
    }
}

impl Steps for Arc<Stage> {
    fn step<K: Kconfig>(&self, cpu: &Cpu<K>, step: &Step) {
        let cpu = cpu.smp_processor_id();
        if let Some(&(_, ns)) = self.costs.iter().find(|(name, _)| *name == step.name) {
            self.advance(cpu, ns);
        }
        if let Some(timeline) = &self.timeline {
            let event = Event { at: self.now(cpu), cpu, step: step.name };
            timeline.lock().unwrap_or_else(|e| e.into_inner()).push(event);
        }
    }
}
