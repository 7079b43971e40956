//! The machine, its CPUs, and putting work on them. Kernel: include/linux/smp.h, cpumask.h, kernel/smp.c, in spirit.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, OnceLock, RwLock};

use crossbeam::utils::CachePadded;
use sync::host::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use sync::thread::{self, HostCore, Join, Payload, Pending, Promise, Scope, Turn, Waker, Worker};

use crate::Kconfig;
use crate::cpu::{Cpu, Task};
use crate::handler::HandlerSlot;
use crate::hrtimer::Timers;
use crate::irq::{Irq, IrqBusy, LOCAL_TIMER, NR_IRQS};
use crate::mm::{AllocError, Pcpu, PerCpu};
use crate::preempt::{migrate_disable, preempt_count};
use crate::sched::{self, Bound};
use crate::softirq::NR_SOFTIRQS;

/// Which CPUs a machine has. Kernel: `cpu_possible_mask`, `cpu_online_mask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    possible: usize,
    online: usize,
}

impl Topology {
    /// `n` CPUs, all online.
    pub const fn smp(n: usize) -> Self {
        Self { possible: n, online: n }
    }

    /// `possible` CPUs, each with per-CPU memory, of which the first `online` run.
    pub const fn with_possible(online: usize, possible: usize) -> Self {
        Self { possible, online }
    }

    /// How many CPUs run.
    pub fn online(self) -> usize {
        self.online
    }

    /// How many CPUs there could be.
    pub fn possible(self) -> usize {
        self.possible
    }
}

/// A machine cannot be made.
#[derive(Debug)]
pub enum MachineError {
    /// No CPU, or more online than possible.
    Topology(Topology),
    /// Another part of the program uses a signal that interrupts or NMIs need.
    Signal(sync::irq::SignalInUse),
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topology(t) => {
                write!(
                    f,
                    "{} of {} CPUs online: at least one, and no more than possible",
                    t.online, t.possible
                )
            }
            Self::Signal(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for MachineError {}

/// What belongs to a CPU, whoever is on it.
#[derive(Default)]
pub(crate) struct Slot {
    /// Somebody is on the CPU.
    pub(crate) baton: AtomicBool,
    /// The thread that is on it, ready for interrupts; 0: none.
    pub(crate) tid: AtomicI32,
    /// The thread that takes interrupts when nobody is on it; 0: the CPU is not up.
    pub(crate) idle_tid: AtomicI32,
    /// It is up: work and tasks may be put on it. Written under [`Smp`]'s hotplug lock.
    pub(crate) online: AtomicBool,
    /// How many tasks wait for this CPU that can be on no other.
    pub(crate) bound: AtomicU32,
    pub(crate) any_pending: AtomicBool,
    pub(crate) pending: [AtomicU32; NR_IRQS],
    pub(crate) nmis_pending: AtomicU32,
    /// A bit each; written by who is on the CPU.
    pub(crate) softirqs_pending: AtomicU32,
    /// Interrupts served, NMIs served, softirqs run, times that masked ones were run by a restore, task switches.
    pub(crate) served: AtomicU64,
    pub(crate) nmis_served: AtomicU64,
    pub(crate) softirqs_served: AtomicU64,
    pub(crate) deferred: AtomicU64,
    pub(crate) switches: AtomicU64,
}

impl Slot {
    /// The thread to kick for this CPU: who is on it, or its idle thread; 0: the CPU is not up.
    pub(crate) fn who(&self) -> i32 {
        // ORDERING (host): SeqCst; pairs with `raise` and `raise_nmi`; rule 1 of `irq`: they counted before they ask.
        match self.tid.load(Ordering::SeqCst) {
            0 => self.idle_tid.load(Ordering::SeqCst),
            tid => tid,
        }
    }
}

/// What a machine's interrupts run.
pub(crate) struct Handlers<K: Kconfig> {
    pub(crate) irqs: [HandlerSlot<K>; NR_IRQS],
    pub(crate) nmi: HandlerSlot<K>,
    pub(crate) softirqs: [HandlerSlot<K>; NR_SOFTIRQS],
    pub(crate) timers: Timers<K>,
}

impl<K: Kconfig> Handlers<K> {
    fn new() -> Self {
        Self {
            irqs: Default::default(),
            nmi: HandlerSlot::default(),
            softirqs: Default::default(),
            timers: Timers::default(),
        }
    }

    /// Drops them all. No thread of the machine may be left.
    fn clear(&self) {
        self.irqs.iter().for_each(HandlerSlot::clear);
        self.nmi.clear();
        self.softirqs.iter().for_each(HandlerSlot::clear);
        self.timers.clear();
    }
}

/// Simulated CPUs, their memory, and what the crates above hang on them.
pub struct Machine<K: Kconfig> {
    topology: Topology,
    slots: Box<[CachePadded<Slot>]>,
    /// The host's core of each CPU; empty where the host does not tell.
    cores: Vec<HostCore>,
    pcpu: Pcpu,
    globals: K::Globals,
    pub(crate) steps: K::Steps,
    pub(crate) handlers: Handlers<K>,
    booted: AtomicBool,
    stopping: AtomicBool,
    taints: AtomicU64,
    irq_panic: Mutex<Option<CpuPanic>>,
    _signals: sync::irq::Handlers,
}

/// A panic on a simulated CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuPanic {
    /// The CPU's number.
    pub cpu: usize,
    /// What the panic said.
    pub message: String,
}

impl fmt::Display for CpuPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panic on CPU {}: {}", self.cpu, self.message)
    }
}

impl std::error::Error for CpuPanic {}

impl CpuPanic {
    fn new(cpu: usize, payload: &Payload) -> Self {
        Self { cpu, message: thread::panic_message(&**payload).into() }
    }
}

impl<K: Kconfig> Machine<K> {
    /// A machine with these CPUs, all down. `globals` may allocate per-CPU memory.
    ///
    /// CPUs are spread over the cores that the calling thread may run on; if there are more CPUs, they share
    /// ([`Machine::shares_cores`]).
    ///
    /// # Errors
    /// [`MachineError`]: an impossible topology, or a signal that interrupts or NMIs need is in use.
    pub fn new(
        topology: Topology,
        steps: K::Steps,
        globals: impl FnOnce(&Pcpu) -> K::Globals,
    ) -> Result<Self, MachineError> {
        if topology.online == 0 || topology.online > topology.possible {
            return Err(MachineError::Topology(topology));
        }
        let signals = sync::irq::Handlers::install().map_err(MachineError::Signal)?;
        let pcpu = Pcpu::new(topology.possible);
        Ok(Self {
            topology,
            slots: (0..topology.possible).map(|_| CachePadded::default()).collect(),
            cores: thread::host_cores(),
            globals: globals(&pcpu),
            pcpu,
            steps,
            handlers: Handlers::new(),
            booted: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            taints: AtomicU64::new(0),
            irq_panic: Mutex::new(None),
            _signals: signals,
        })
    }

    /// The machine's CPUs.
    pub fn topology(&self) -> Topology {
        self.topology
    }

    /// The machine-wide state of the crates above.
    #[inline(always)]
    pub fn globals(&self) -> &K::Globals {
        &self.globals
    }

    /// Who is told of each step.
    pub fn steps(&self) -> &K::Steps {
        &self.steps
    }

    /// The machine's per-CPU memory.
    pub fn pcpu(&self) -> &Pcpu {
        &self.pcpu
    }

    /// Allocates one `T` for each possible CPU. Kernel: `alloc_percpu`.
    ///
    /// # Errors
    /// As [`Pcpu::alloc`].
    pub fn alloc_percpu<T: Send + Sync>(
        &self,
        init: impl FnMut(usize) -> T,
    ) -> Result<PerCpu<T>, AllocError> {
        self.pcpu.alloc(init)
    }

    /// The number of host cores, if there are fewer than online CPUs, so that CPUs share them.
    pub fn shares_cores(&self) -> Option<usize> {
        (self.cores.len() < self.topology.online).then_some(self.cores.len().max(1))
    }

    /// How often a check found a bug that the kernel would have printed (`cant_migrate`). Debug builds only.
    pub fn taints(&self) -> u64 {
        self.taints.load(Ordering::Relaxed)
    }

    /// Interrupts served on CPU `cpu`, and how often a restore ran what the mask had held back.
    ///
    /// # Panics
    /// If there is no such CPU.
    pub fn interrupts(&self, cpu: usize) -> (u64, u64) {
        let slot = self.slot(cpu);
        (slot.served.load(Ordering::Relaxed), slot.deferred.load(Ordering::Relaxed))
    }

    /// Brings the online CPUs up, runs `f`, and takes them down when the work that `f` put on them is done.
    ///
    /// Tasks are told to stop ([`Task::should_stop`]) when `f` returns or panics.
    ///
    /// # Panics
    /// If the machine is booted already, if the host has no more threads, if an interrupt handler panicked and nobody
    /// joined work on its CPU since, or if `f` panics.
    pub fn boot<'env, R>(&'env self, f: impl for<'scope> FnOnce(&Smp<'scope, 'env, K>) -> R) -> R {
        // ORDERING (host): Acquire; pairs with `drop` of `Down`: one boot's end is before the next one's start.
        assert!(!self.booted.swap(true, Ordering::Acquire), "the machine is booted already");
        self.stopping.store(false, Ordering::Relaxed);
        // Dropped after the scope below, when no thread of the machine is left.
        let _down = Down(self);
        let r = thread::scope(|scope| f(&Smp::bring_up(self, scope)));
        if let Some(panic) = self.take_irq_panic(None) {
            panic!("{panic} (in an interrupt handler)");
        }
        r
    }

    pub(crate) fn slot(&self, cpu: usize) -> &Slot {
        &self.slots[cpu]
    }

    pub(crate) fn taint(&self) {
        self.taints.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn pin_to_core_of(&self, cpu: usize) {
        if !self.cores.is_empty() {
            thread::pin(self.cores[cpu % self.cores.len()]);
        }
    }

    pub(crate) fn irq_panicked(&self, cpu: usize, message: &str) {
        let mut first = self.irq_panic.lock().unwrap_or_else(|e| e.into_inner());
        first.get_or_insert_with(|| CpuPanic { cpu, message: message.into() });
    }

    /// Takes the panic of an interrupt handler: that of CPU `cpu`, or of any.
    fn take_irq_panic(&self, cpu: Option<usize>) -> Option<CpuPanic> {
        let mut panic = self.irq_panic.lock().unwrap_or_else(|e| e.into_inner());
        panic.take_if(|p| cpu.is_none_or(|cpu| p.cpu == cpu))
    }
}

/// Takes down what a boot set up.
struct Down<'m, K: Kconfig>(&'m Machine<K>);

impl<K: Kconfig> Drop for Down<'_, K> {
    fn drop(&mut self) {
        self.0.handlers.clear();
        // ORDERING (host): SeqCst; pairs with `cpu_online`.
        self.0.slots.iter().for_each(|slot| slot.online.store(false, Ordering::SeqCst));
        // ORDERING (host): Release; pairs with `boot`.
        self.0.booted.store(false, Ordering::Release);
    }
}

pub(crate) type Job<'scope, K> = Box<dyn FnOnce(&Cpu<K>) + Send + 'scope>;

/// A booted machine: where work is put on CPUs.
pub struct Smp<'scope, 'env: 'scope, K: Kconfig> {
    machine: &'env Machine<K>,
    scope: Scope<'scope, 'env>,
    workers: Vec<Worker<'scope, Job<'scope, K>>>,
    timer_thread: OnceLock<Waker>,
    /// The CPUs that were taken down, and what wakes them. Kernel: `cpu_hotplug_lock`.
    pub(crate) hotplug: RwLock<BTreeMap<usize, Promise<()>>>,
}

impl<'scope, 'env, K: Kconfig> Smp<'scope, 'env, K> {
    fn bring_up(machine: &'env Machine<K>, scope: Scope<'scope, 'env>) -> Self {
        let worker = |id: usize| {
            // ORDERING (host): SeqCst; pairs with `cpu_online`.
            machine.slot(id).online.store(true, Ordering::SeqCst);
            let body = move |jobs: thread::Jobs<Job<'scope, K>>| run_cpu(machine, id, jobs);
            scope.worker(&format!("cpu{id}"), body).unwrap_or_else(|e| panic!("no thread for CPU {id}: {e}"))
        };
        Self {
            machine,
            scope,
            workers: (0..machine.topology.online).map(worker).collect(),
            timer_thread: OnceLock::new(),
            hotplug: RwLock::default(),
        }
    }

    /// The machine.
    pub fn machine(&self) -> &'env Machine<K> {
        self.machine
    }

    /// Runs `f` on CPU `id`; bound to it, after the work put there before. Kernel: `work_on_cpu`, without the waiting.
    ///
    /// # Panics
    /// If CPU `id` is not online.
    pub fn on<T: Send + 'scope>(
        &self,
        id: usize,
        f: impl FnOnce(&Cpu<K>) -> T + Send + 'scope,
    ) -> CpuJoin<'env, T, K> {
        let (promise, result) = thread::promise();
        let work = Work { f, promise };
        let _up = self.online(id);
        self.worker(id).submit(Box::new(move |cpu| work.run(cpu)));
        CpuJoin { cpu: id, result, machine: self.machine }
    }

    /// Runs `f` on CPU `id` and waits for it, so that it may borrow from the caller. Kernel: `work_on_cpu`.
    ///
    /// # Errors
    /// [`CpuPanic`] if it panicked.
    ///
    /// # Panics
    /// If CPU `id` is not online.
    pub fn run<T: Send>(&self, id: usize, f: impl FnOnce(&Cpu<K>) -> T + Send) -> Result<T, CpuPanic> {
        let up = self.online(id);
        let work = self.submit_borrowed(id, f);
        drop(up);
        work.join()
    }

    /// Runs `f` on each online CPU at once and waits for all. Kernel: `on_each_cpu`.
    ///
    /// # Panics
    /// With the CPU's number, if it panicked on one: after all are done.
    pub fn on_each_cpu<T: Send>(&self, f: impl Fn(&Cpu<K>) -> T + Sync) -> Vec<T> {
        let f = &f;
        let joins: Vec<_> = {
            let _no_changes = self.hotplug.read().unwrap_or_else(|e| e.into_inner());
            let online = (0..self.workers.len()).filter(|&id| self.machine.cpu_online(id));
            online.map(|id| self.submit_borrowed(id, move |cpu| f(cpu))).collect()
        };
        let results: Vec<_> = joins.into_iter().map(CpuJoin::join).collect();
        results.into_iter().map(|r| r.unwrap_or_else(|panic| panic!("{panic}"))).collect()
    }

    /// Hands CPU `id` work that may borrow from the caller, who **must** wait for it before it returns or unwinds.
    fn submit_borrowed<'f, T: Send + 'f>(
        &self,
        id: usize,
        f: impl FnOnce(&Cpu<K>) -> T + Send + 'f,
    ) -> CpuJoin<'env, T, K> {
        let (promise, result) = thread::promise();
        let work = Work { f, promise };
        let job: Job<'f, K> = Box::new(move |cpu| work.run(cpu));
        // SAFETY: only the lifetime changes. Both callers wait for the result with nothing in between that panics, and
        // the result comes (or its sender is dropped) only after `f` and all it borrowed are gone: see `Work`.
        let job: Job<'scope, K> = unsafe { std::mem::transmute(job) };
        self.worker(id).submit(job);
        CpuJoin { cpu: id, result, machine: self.machine }
    }

    /// Starts a task on CPU `cpu`: it may be preempted, and moved while it does not say otherwise. Kernel: `kthread_run`.
    ///
    /// # Panics
    /// If CPU `cpu` is not online, or the host has no more threads.
    pub fn spawn<T: Send + 'scope>(
        &self,
        name: &str,
        cpu: usize,
        f: impl FnOnce(&Task<K>) -> T + Send + 'scope,
    ) -> TaskJoin<'scope, T> {
        let machine = self.machine;
        let bound = {
            let _up = self.online(cpu);
            Bound::to(machine.slot(cpu))
        };
        let comm = name.to_owned();
        let body = move || run_task(machine, cpu, bound, &comm, f);
        let join = self.scope.spawn(name, body).unwrap_or_else(|e| panic!("no thread for task {name}: {e}"));
        TaskJoin { join }
    }

    /// Starts a host thread that is on no CPU: user space, a reader, whoever turns a switch.
    ///
    /// # Panics
    /// If the host has no more threads.
    pub fn spawn_outside<T: Send + 'scope>(
        &self,
        name: &str,
        f: impl FnOnce() -> T + Send + 'scope,
    ) -> Join<'scope, T> {
        self.scope.spawn(name, f).unwrap_or_else(|e| panic!("no thread for {name}: {e}"))
    }

    /// Makes `f` what `irq` runs, on every CPU, until the machine goes down. Kernel: `request_percpu_irq`.
    ///
    /// `f` runs in a signal handler, on top of whatever the CPU was doing: it must be async-signal-safe (no allocation, no
    /// lock, no syscall that blocks). A panic in it is caught and given to whoever joins work on that CPU.
    ///
    /// # Errors
    /// [`IrqBusy`] if the line has a handler, is the machine's own, or does not exist.
    pub fn request_irq(&self, irq: Irq, f: impl Fn(&Cpu<K>) + Send + Sync + 'env) -> Result<(), IrqBusy> {
        if irq.0 >= LOCAL_TIMER.0 {
            return Err(IrqBusy(irq));
        }
        // SAFETY: the machine clears its handlers before `boot` returns, within 'env.
        let set = unsafe { self.machine.handlers.irqs[irq.0].set(Box::new(f)) };
        if set { Ok(()) } else { Err(IrqBusy(irq)) }
    }

    /// The thread that raises the timers' interrupts.
    pub(crate) fn timer_thread(&self) -> Waker {
        let machine = self.machine;
        let turn = move || match machine.stopping.load(Ordering::Relaxed) {
            true => Turn::End,
            false => machine.clock_event(),
        };
        let start =
            || self.scope.alarm("timers", turn).unwrap_or_else(|e| panic!("no thread for timers: {e}"));
        self.timer_thread.get_or_init(start).clone()
    }

    pub(crate) fn worker(&self, id: usize) -> &Worker<'scope, Job<'scope, K>> {
        &self.workers[id]
    }

    /// CPU `id` is up, and stays while this is held. Kernel: `cpus_read_lock`.
    fn online(&self, id: usize) -> impl Sized {
        let up = self.hotplug.read().unwrap_or_else(|e| e.into_inner());
        assert!(self.machine.cpu_online(id), "CPU {id} is not online");
        up
    }
}

impl<K: Kconfig> Drop for Smp<'_, '_, K> {
    fn drop(&mut self) {
        self.machine.stopping.store(true, Ordering::Relaxed);
        if let Some(timers) = self.timer_thread.get() {
            timers.wake();
        }
    }
}

/// A piece of work and where its result goes. Consumed whole, so that what it borrows is gone before the result is out;
/// and if it is dropped unrun, the fields go in this order, to the same end.
struct Work<F, T> {
    f: F,
    promise: Promise<Result<T, CpuPanic>>,
}

impl<F, T> Work<F, T> {
    fn run<K: Kconfig>(self, cpu: &Cpu<K>)
    where
        F: FnOnce(&Cpu<K>) -> T,
    {
        let Work { f, promise } = self;
        let id = cpu.smp_processor_id();
        let checked = || {
            let v = f(cpu);
            debug_assert!(preempt_count(cpu) == 0, "the work left preemption off");
            v
        };
        let result = thread::catch(checked).map_err(|payload| {
            // The work may have died with counts up: the next finds the CPU as new.
            cpu.irq_mask.set(0);
            cpu.preempt_count.set(0);
            cpu.migration_disabled.set(1);
            CpuPanic::new(id, &payload)
        });
        promise.keep(result);
    }
}

/// The life of a CPU's own thread: idle, and work bound to the CPU.
fn run_cpu<'scope, K: Kconfig>(machine: &Machine<K>, id: usize, jobs: impl Iterator<Item = Job<'scope, K>>) {
    machine.pin_to_core_of(id);
    let cpu = Cpu::new(machine, Some(id), &format!("cpu{id}"));
    let _attached = cpu.attach();
    migrate_disable(&cpu);
    let slot = machine.slot(id);
    // ORDERING (host): SeqCst; rule 4 of `irq`, pairs with `raise` and `raise_nmi`, as below.
    slot.idle_tid.store(sync::irq::self_id(), Ordering::SeqCst);
    // What was raised before the CPU was up.
    sched::take(&cpu, id);
    sched::leave(&cpu);
    for job in jobs {
        sched::take(&cpu, id);
        job(&cpu);
        sched::leave(&cpu);
    }
    // From here on what is raised waits for the next boot; what was raised before is served.
    // ORDERING (host): SeqCst; pairs with `raise` and `raise_nmi`.
    slot.idle_tid.store(0, Ordering::SeqCst);
    sched::take(&cpu, id);
    sched::leave(&cpu);
}

fn run_task<K: Kconfig, T>(
    machine: &Machine<K>,
    id: usize,
    bound: Bound<'_>,
    name: &str,
    f: impl FnOnce(&Task<K>) -> T,
) -> Result<T, CpuPanic> {
    machine.pin_to_core_of(id);
    let cpu = Cpu::new(machine, None, name);
    let _attached = cpu.attach();
    sched::take(&cpu, id);
    drop(bound);
    let result = thread::catch(|| f(&cpu)).map_err(|payload| CpuPanic::new(cpu.smp_processor_id(), &payload));
    // No switch on the way out.
    cpu.preempt_count.set(1);
    sched::leave(&cpu);
    result
}

impl<K: Kconfig> Task<K> {
    /// The machine is going down: return soon. Kernel: `kthread_should_stop`.
    pub fn should_stop(&self) -> bool {
        self.raw_cpu().machine().stopping.load(Ordering::Relaxed)
    }

    /// Gives the CPU to others if preemption is on. Kernel: `cond_resched`.
    pub fn cond_resched(&self) {
        if preempt_count(self) == 0 && !crate::irqs_disabled(self) {
            sched::schedule(self.raw_cpu());
        }
    }
}

/// Work on a CPU, to be waited for.
pub struct CpuJoin<'env, T, K: Kconfig> {
    cpu: usize,
    result: Pending<Result<T, CpuPanic>>,
    machine: &'env Machine<K>,
}

impl<T, K: Kconfig> CpuJoin<'_, T, K> {
    /// Waits for the work.
    ///
    /// # Errors
    /// [`CpuPanic`] if the work, or an interrupt handler on its CPU, panicked.
    pub fn join(self) -> Result<T, CpuPanic> {
        let gone =
            || Err(CpuPanic { cpu: self.cpu, message: "the CPU went down before the work was done".into() });
        let result = self.result.wait().unwrap_or_else(gone);
        match self.machine.take_irq_panic(Some(self.cpu)) {
            Some(panic) => Err(panic),
            None => result,
        }
    }
}

/// A task, to be waited for.
pub struct TaskJoin<'scope, T> {
    join: Join<'scope, Result<T, CpuPanic>>,
}

impl<T> TaskJoin<'_, T> {
    /// Waits for the task.
    ///
    /// # Errors
    /// [`CpuPanic`] if it panicked, with the CPU it was on.
    ///
    /// # Panics
    /// If its host thread died outside the task.
    pub fn join(self) -> Result<T, CpuPanic> {
        self.join.join().expect("the task catches its own panics")
    }
}
