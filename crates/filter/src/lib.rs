//! Programs, their statistics, the clock, and the timed run: the seed's path.
//!
//! Mirrors `include/linux/filter.h` ([`run`], [`prog`]), the statistics' part of kernel/bpf/syscall.c ([`prog_stats`]) and
//! x86's `sched_clock` ([`clock`]), as of Linux 6.6 stable with `ce09cbdd9888` (the seed) and `7dc211c1159d` applied. Older
//! forms stand in [`history`].
//!
//! # What holds
//! 1. The key is tested once a run, so a run is counted whole or not at all.
//! 2. The duration is taken at once after the program, before anything else; it holds all that happened in between,
//!    interrupts and nested programs included, and of the two clock reads about one.
//! 3. A program without statistics is run and timed, and its update is skipped; that check is here and in
//!    [`bpf_prog_inc_misses_counter`] only.
//! 4. Between begin and end of the update nothing can fail, allocate, sleep or panic.

pub mod clock;
pub mod history;
pub mod prog;
pub mod prog_stats;
pub mod run;
pub mod virt;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Mutex;

use clock::SchedClock;
use jump_label::{AtomicKey, KeyError, StaticKey};
use percpu::{Cpu, Machine, MachineError, NoSteps, Pcpu, PerCpu, Steps, Topology};
use stats::Form;
use sync::local::LocalU32;

pub use clock::sched_clock;
pub use prog::{Abort, BpfCtx, BpfFunc, BpfProg, BpfProgStats, ProgType};
pub use prog_stats::{BpfProgKstats, bpf_prog_get_stats, bpf_prog_inc_misses_counter};
pub use run::{
    __bpf_prog_run, bpf_dispatcher_nop_func, bpf_prog_run, bpf_prog_run_clear_cb, bpf_prog_run_pin_on_cpu,
    bpf_prog_run_save_cb,
};

/// What this crate adds to the configuration, and where it finds its part of the machine's state.
pub trait Kconfig: stats::Kconfig {
    /// The clock.
    type Clock: SchedClock;
    /// The kind of the key that switches the statistics.
    type StatsKey: StaticKey;
    /// This crate's part of the machine-wide state.
    fn globals(globals: &Self::Globals) -> &Globals<Self>;
}

/// This crate's machine-wide state.
pub struct Globals<K: Kconfig> {
    /// The machine's clock.
    pub clock: K::Clock,
    /// Statistics are on. Kernel: `bpf_stats_enabled_key`, kernel/bpf/core.c.
    pub bpf_stats_enabled_key: K::StatsKey,
    /// Held by whoever switches statistics, by a descriptor or by the sysctl; holds the sysctl's own value, 0 or 1.
    /// Kernel: `bpf_stats_enabled_mutex` and `saved_val` of `bpf_stats_handler`, kernel/bpf/syscall.c.
    pub bpf_stats_enabled_mutex: Mutex<i32>,
    /// Above 0 where tracing programs must not run: a map operation of a system call is in progress, or one of them is.
    /// Kernel: `bpf_prog_active`, kernel/bpf/syscall.c.
    pub bpf_prog_active: PerCpu<LocalU32>,
}

impl<K: Kconfig> Globals<K> {
    /// The state of a machine that has booted: statistics off.
    ///
    /// # Panics
    /// If the host has no memory for one word a CPU.
    pub fn new(pcpu: &Pcpu, clock: K::Clock, bpf_stats_enabled_key: K::StatsKey) -> Self {
        let bpf_prog_active = pcpu.alloc(|_| LocalU32::new(0)).expect("a new machine has per-CPU memory");
        Self { clock, bpf_stats_enabled_key, bpf_stats_enabled_mutex: Mutex::new(0), bpf_prog_active }
    }
}

/// Whether statistics are on, laid out for off. Kernel: `static_branch_unlikely(&bpf_stats_enabled_key)`.
#[inline(always)]
#[track_caller]
pub fn stats_enabled<K: Kconfig>(cpu: &Cpu<K>) -> bool {
    K::globals(cpu.globals()).bpf_stats_enabled_key.unlikely()
}

/// A configuration by its parts, with nothing above this crate: form, clock, key, steps.
pub struct Config<F, C, S = AtomicKey, P = NoSteps>(PhantomData<Parts<F, C, S, P>>);

/// Parts that are named, never held.
type Parts<F, C, S, P> = fn() -> (F, C, S, P);

impl<F: Form, C: SchedClock, S: StaticKey + 'static, P: Steps> percpu::Kconfig for Config<F, C, S, P> {
    type Globals = Globals<Self>;
    type Steps = P;
}

impl<F: Form, C: SchedClock, S: StaticKey + 'static, P: Steps> stats::Kconfig for Config<F, C, S, P> {
    type Form = F;
}

impl<F: Form, C: SchedClock, S: StaticKey + 'static, P: Steps> Kconfig for Config<F, C, S, P> {
    type Clock = C;
    type StatsKey = S;
    fn globals(globals: &Globals<Self>) -> &Globals<Self> {
        globals
    }
}

jump_label::define_claimed_key!(
    /// `bpf_stats_enabled_key` as the kernel has it: a no-op in the text of each run, patched to a jump.
    ///
    /// There is one in a program, for one machine at a time; where text cannot be patched ([`jump_label::support`]) the kind
    /// to take is [`AtomicKey`].
    pub struct PatchedKey;
);

/// A machine cannot be made, or its key cannot be had.
#[derive(Debug)]
pub enum NewError {
    /// As [`Machine::new`].
    Machine(MachineError),
    /// As [`StaticKey::claim`].
    Key(KeyError),
}

impl fmt::Display for NewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(e) => e.fmt(f),
            Self::Key(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for NewError {}

/// A machine of such a configuration, statistics off. Its key is the machine's for as long as it lives.
///
/// # Errors
/// [`NewError`]: as [`Machine::new`] and [`StaticKey::claim`].
pub fn machine<F, C, S, P>(
    topology: Topology,
    steps: P,
    clock: C,
) -> Result<Machine<Config<F, C, S, P>>, NewError>
where
    F: Form,
    C: SchedClock,
    S: StaticKey + 'static,
    P: Steps,
{
    let key = S::claim().map_err(NewError::Key)?;
    Machine::new(topology, steps, |pcpu| Globals::new(pcpu, clock, key)).map_err(NewError::Machine)
}
