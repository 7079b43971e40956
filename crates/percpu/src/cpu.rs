//! `Cpu`, the token of being on a CPU, and `Task`, what may be preempted and moved.
//!
//! Kernel: `struct task_struct` (preempt count, migration count, RCU nesting, `bpf_ctx`), `get_current`, and the few
//! words that x86 keeps in per-CPU variables (`cpu_number`, `this_cpu_off`, `__preempt_count`), v6.6.
//!
//! A host thread that runs simulated work has one such struct on its stack. What belongs to the thread of execution (its
//! interrupt mask, its counts) stays in it when the task moves; which CPU it is on is rewritten by the switch, on the
//! same thread. So every field is touched by one thread and its signal handlers only, and the hot path reaches all of it
//! from one pointer. What belongs to the CPU itself (what is pending there, who is on it) is the machine's.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use sync::irq::Line;
use sync::local::{LocalU32, LocalU64, LocalUsize};

use crate::mm::Areas;
use crate::smp::{Machine, Slot};
use crate::step::{Moment, Step, Steps, announce};
use crate::{Kconfig, preempt};

/// The run context of the task is exchanged.
pub static RUN_CTX: Step = Step::new("run_ctx", "the task's run context is exchanged");

/// How long a task's name is, with its closing zero. Kernel: `TASK_COMM_LEN`.
pub const TASK_COMM_LEN: usize = 16;

/// What a signal, or a part that is handed no `Cpu`, finds by the thread-local word. First field of every [`Cpu`].
#[repr(C)]
struct CpuLine {
    line: Line,
    announce: unsafe fn(*const CpuLine, &Moment<'_>),
}

/// Being on a CPU. Neither `Send` nor `Sync`: it is the calling thread that is there.
///
/// A `&Cpu` says that its holder does not move while it uses it: it is handed to interrupts and to work bound to a CPU,
/// and lent to a [`Task`] while migration or preemption is off. It derefs to the task that is on the CPU.
#[repr(C)]
pub struct Cpu<K: Kconfig> {
    line: CpuLine,
    /// Interrupts are masked (not 0).
    pub(crate) irq_mask: LocalU32,
    /// An interrupt met the mask. powerpc: `irq_happened`.
    pub(crate) irq_happened: LocalU32,
    /// Preemption, softirq, hardirq and NMI counts, in the kernel's layout.
    pub(crate) preempt_count: LocalU32,
    pub(crate) migration_disabled: LocalU32,
    id: LocalU32,
    pub(crate) need_resched: LocalU32,
    pub(crate) per_cpu_offset: LocalUsize,
    pub(crate) areas: Arc<Areas>,
    machine: NonNull<Machine<K>>,
    /// The CPU's own words, while on it; null while off it.
    slot: LocalUsize,
    /// The CPU that this thread is the idle task of.
    pub(crate) idle_of: Option<usize>,
    pub(crate) rcu_nesting: LocalU32,
    pub(crate) rcu_trace_nesting: LocalU32,
    pid: i32,
    comm: [u8; TASK_COMM_LEN],
    /// `current->bpf_ctx`: opaque here, as in the kernel's task_struct.
    bpf_ctx: LocalUsize,
    /// Where the task goes next, if it may move: a die, so that tests meet every move.
    pub(crate) die: LocalU64,
    pub(crate) switches: LocalU64,
    pub(crate) moves: LocalU64,
    _this_thread: PhantomData<*mut ()>,
}

/// A thread of execution that may be preempted and moved to another CPU, unless it says otherwise.
#[repr(transparent)]
pub struct Task<K: Kconfig>(Cpu<K>);

impl<K: Kconfig> Cpu<K> {
    /// What a thread of `machine` is, before it is on a CPU.
    pub(crate) fn new(machine: &Machine<K>, idle_of: Option<usize>, name: &str) -> Self {
        let pid = sync::irq::self_id();
        let mut comm = [0; TASK_COMM_LEN];
        for (to, from) in comm[..TASK_COMM_LEN - 1].iter_mut().zip(name.bytes()) {
            *to = from;
        }
        Self {
            line: CpuLine {
                line: Line { on_interrupt: crate::irq::on_interrupt::<K>, on_nmi: crate::nmi::on_nmi::<K> },
                announce: announce_on::<K>,
            },
            irq_mask: LocalU32::new(0),
            irq_happened: LocalU32::new(0),
            preempt_count: LocalU32::new(0),
            migration_disabled: LocalU32::new(0),
            id: LocalU32::new(0),
            need_resched: LocalU32::new(0),
            per_cpu_offset: LocalUsize::new(0),
            areas: machine.pcpu().areas(),
            machine: NonNull::from(machine),
            slot: LocalUsize::new(0),
            idle_of,
            rcu_nesting: LocalU32::new(0),
            rcu_trace_nesting: LocalU32::new(0),
            pid,
            comm,
            bpf_ctx: LocalUsize::new(0),
            die: LocalU64::new(0x9E37_79B9_7F4A_7C15 ^ u64::from(pid.unsigned_abs())),
            switches: LocalU64::new(0),
            moves: LocalU64::new(0),
            _this_thread: PhantomData,
        }
    }

    /// The number of this CPU. Kernel: `smp_processor_id`.
    #[inline(always)]
    pub fn smp_processor_id(&self) -> usize {
        self.id.get() as usize
    }

    /// The machine that this CPU is of.
    #[inline(always)]
    pub fn machine(&self) -> &Machine<K> {
        // SAFETY: a `Cpu` lives within `Machine::boot`, which borrows the machine.
        unsafe { self.machine.as_ref() }
    }

    /// The machine-wide state of the crates above.
    #[inline(always)]
    pub fn globals(&self) -> &K::Globals {
        self.machine().globals()
    }

    /// The CPU's own words; `None` while this thread is off every CPU (it waits for one).
    #[inline(always)]
    pub(crate) fn slot(&self) -> Option<&Slot> {
        // SAFETY: null, or set by `sched::take` to a slot of the machine, which outlives us.
        unsafe { (self.slot.get() as *const Slot).as_ref() }
    }

    /// Says that this thread is on CPU `id`, or on none. Only the thread itself, between two instructions of which an
    /// interrupt may still see either.
    pub(crate) fn set_on(&self, on: Option<(usize, &Slot)>) {
        match on {
            None => self.slot.set(0),
            Some((id, slot)) => {
                self.id.set(id as u32);
                self.per_cpu_offset.set(id * crate::mm::UNIT_SIZE);
                // The slot is what says that we are there, so it comes last.
                sync::barrier::barrier();
                self.slot.set(std::ptr::from_ref(slot).expose_provenance());
            }
        }
    }

    /// Makes interrupts of the calling thread find this struct until the guard is dropped.
    pub(crate) fn attach(&self) -> Attached<'_, K> {
        // SAFETY: the line is our first field and `on_interrupt::<K>` expects a `Cpu<K>`; the guard borrows us and
        // detaches. That handlers are async-signal-safe is the contract of those who request them.
        unsafe { sync::irq::attach(&raw const self.line.line) };
        Attached(self)
    }

    /// # Safety
    /// `line` is the first field of a live `Cpu<K>` of this thread.
    pub(crate) unsafe fn from_line<'a>(line: *const Line) -> &'a Self {
        // SAFETY: the caller's; the struct is `repr(C)`.
        unsafe { &*line.cast::<Self>() }
    }
}

pub(crate) struct Attached<'c, K: Kconfig>(&'c Cpu<K>);

impl<K: Kconfig> Drop for Attached<'_, K> {
    fn drop(&mut self) {
        debug_assert!(self.0.slot().is_none(), "left its thread while on a CPU");
        sync::irq::detach();
    }
}

impl<K: Kconfig> Deref for Cpu<K> {
    type Target = Task<K>;

    #[inline(always)]
    fn deref(&self) -> &Task<K> {
        // SAFETY: `Task` is a transparent wrapper of `Cpu`, and a task may do less than a CPU.
        unsafe { &*std::ptr::from_ref(self).cast::<Task<K>>() }
    }
}

impl<K: Kconfig> fmt::Debug for Cpu<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cpu {{ id: {}, preempt_count: {:#x} }}", self.smp_processor_id(), self.preempt_count.get())
    }
}

impl<K: Kconfig> Task<K> {
    /// The CPU that the task is on, **which it may have left** before the caller looks: for code that makes sure itself
    /// that it stays, with the kernel-named halves, and for showing what goes wrong without.
    ///
    /// Kernel: `raw_smp_processor_id`. A stale `Cpu` is no memory error: per-CPU memory is shared memory. It is a lost
    /// count.
    #[inline(always)]
    pub fn raw_cpu(&self) -> &Cpu<K> {
        &self.0
    }

    /// The CPU that the task is on; the caller has seen to it that it stays there.
    ///
    /// Kernel: `smp_processor_id`, which debug builds check in the same way.
    ///
    /// # Panics
    /// In debug builds, if the task may move.
    #[inline(always)]
    pub fn cpu(&self) -> &Cpu<K> {
        debug_assert!(preempt::is_pinned(self), "smp_processor_id() in preemptible code");
        &self.0
    }

    /// Exchanges the task's run context, an address that means nothing here. Kernel: `current->bpf_ctx`.
    #[inline(always)]
    #[track_caller]
    pub fn swap_bpf_ctx(&self, new: usize) -> usize {
        announce(&self.0, &RUN_CTX);
        self.0.bpf_ctx.replace(new)
    }

    /// The task's run context. Kernel: `current->bpf_ctx`.
    pub fn bpf_ctx(&self) -> usize {
        self.0.bpf_ctx.get()
    }

    /// The task's number. Kernel: `current->pid`.
    pub fn pid(&self) -> i32 {
        self.0.pid
    }

    /// The task's name, cut and padded with zeroes. Kernel: `current->comm`.
    pub fn comm(&self) -> [u8; TASK_COMM_LEN] {
        self.0.comm
    }

    /// How often the task was taken off a CPU, and how often it came back on another.
    pub fn switches(&self) -> (u64, u64) {
        (self.0.switches.get(), self.0.moves.get())
    }
}

/// Tells the machine whose CPU the calling thread is on of a step.
pub(crate) fn announce_on_current(moment: &Moment<'_>) {
    let line = sync::irq::current().cast::<CpuLine>();
    if !line.is_null() {
        // SAFETY: only `Cpu::attach` sets the word, so the line is a live `CpuLine`, and its function expects it.
        unsafe { ((*line).announce)(line, moment) };
    }
}

/// # Safety
/// `line` is the first field of a live `Cpu<K>` of this thread.
unsafe fn announce_on<K: Kconfig>(line: *const CpuLine, moment: &Moment<'_>) {
    // SAFETY: the caller's.
    let cpu = unsafe { Cpu::<K>::from_line(line.cast()) };
    cpu.machine().steps.moment(cpu, moment);
}
