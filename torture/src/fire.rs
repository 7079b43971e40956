//! One machine under fire: who runs what, until when, and what must be so at the end.
//!
//! | who | does |
//! |---|---|
//! | two tasks a CPU, in time slices | run and call programs; mask, sleep, give way |
//! | interrupts, timers, softirqs | the same on top of them |
//! | NMIs | programs of their own; on 64-bit those of the others too |
//! | the loader, a task | loads, runs and frees programs; some allocations fail |
//! | a reader, on no CPU | reads all programs, all the time |
//! | the flipper, on no CPU | switches statistics on and off |
//! | the operator, on no CPU | takes CPUs down and up |
//! | the raiser, on no CPU | raises interrupts and NMIs |

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use fastrand::Rng;
use filter::{BpfCtx, BpfProg, BpfProgKstats, Config, Globals, Kconfig, ProgType, bpf_prog_get_stats};
use jump_label::StaticKey;
use percpu::{
    Cpu, HrtimerRestart, Irq, Machine, NoSteps, PerCpu, Smp, Softirq, Task, Topology, local_irq_restore,
    local_irq_save, raise_softirq,
};
use sync::host::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use sync::local::LocalU32;
use sync::thread::{sleep, yield_now};

use crate::form::{Calls, Form};
use crate::tally::{self, BODY, OwnTime, Tally, once_in, spend};

/// How long nobody's reads may come to an end before readers count as stuck. A reader that gets the CPU now and then needs
/// microseconds.
const STUCK: Duration = Duration::from_secs(30);

/// When a run is over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    Time(Duration),
    /// So many runs were counted, and everything that can happen has happened.
    Updates(u64),
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) form: Form,
    pub(crate) seed: u64,
    pub(crate) until: Until,
    /// NMIs may run the programs of the others: 64-bit only, as a section that is open below them is not theirs to enter.
    pub(crate) nmis_share: bool,
}

/// What happened, and what was wrong.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Runs counted, runs with statistics off, misses.
    pub(crate) updates: u64,
    pub(crate) uncounted: u64,
    pub(crate) misses: u64,
    /// Of the raiser and of timers.
    pub(crate) interrupts: u64,
    pub(crate) nmis: u64,
    pub(crate) softirqs: u64,
    /// Tasks taken off a CPU, and those that came back on another.
    pub(crate) switches: u64,
    pub(crate) moves: u64,
    pub(crate) flips: u64,
    /// CPUs taken down.
    pub(crate) downs: u64,
    pub(crate) loads: u64,
    /// Loads whose allocation failed.
    pub(crate) enomem: u64,
    pub(crate) reads: u64,
    /// Reads in which time and count were not of one moment.
    pub(crate) out_of_step: u64,
    /// Each invariant that broke, and how.
    pub(crate) broken: Vec<String>,
}

/// A program and what became of its calls.
struct Subject<K: Kconfig> {
    name: &'static str,
    prog: BpfProg<K>,
    tally: Tally,
}

/// The programs, and what their bodies look at.
struct Subjects<K: Kconfig> {
    calls: Calls<K>,
    /// Run by whoever has preemption off.
    filter: OnceLock<Subject<K>>,
    /// Called through a trampoline, also from itself.
    tramp: OnceLock<Subject<K>>,
    /// The same, and it sleeps.
    sleeps: OnceLock<Subject<K>>,
    /// What NMIs run and call.
    nmi: OnceLock<Subject<K>>,
    /// How many are inside `tramp` on a CPU.
    inside: PerCpu<LocalU32>,
    two_inside: AtomicU64,
}

impl<K: Kconfig> Subjects<K> {
    fn new(m: &Machine<K>, calls: Calls<K>) -> Result<Arc<Self>> {
        let all = Arc::new(Self {
            calls,
            filter: OnceLock::new(),
            tramp: OnceLock::new(),
            sleeps: OnceLock::new(),
            nmi: OnceLock::new(),
            inside: m.alloc_percpu(|_| LocalU32::new(0))?,
            two_inside: AtomicU64::new(0),
        });
        let plain = |_: &Cpu<K>, _: &mut BpfCtx<'_>| {
            spend();
            0
        };
        let weak = Arc::downgrade(&all);
        let recursive = move |cpu: &Cpu<K>, _: &mut BpfCtx<'_>| {
            Weak::upgrade(&weak).inspect(|all| all.inside_tramp(cpu));
            0
        };
        let sleepy = |cpu: &Cpu<K>, _: &mut BpfCtx<'_>| {
            spend();
            match () {
                () if once_in(64) => cpu.msleep(Duration::from_micros(1)),
                () if once_in(4) => cpu.cond_resched(),
                () => {}
            }
            0
        };
        let pcpu = m.pcpu();
        let subject = |name, prog| Subject { name, prog, tally: Tally::default() };
        let set = |place: &OnceLock<_>, s| assert!(place.set(s).is_ok(), "each is set once");
        set(&all.filter, subject("filter", BpfProg::alloc(pcpu, ProgType::RawTracepoint, plain)?));
        set(&all.tramp, subject("tramp", BpfProg::alloc(pcpu, ProgType::Tracing, recursive)?));
        let mut prog = BpfProg::alloc(pcpu, ProgType::Tracing, sleepy)?;
        prog.sleepable = true;
        set(&all.sleeps, subject("sleeps", prog));
        set(&all.nmi, subject("nmi", BpfProg::alloc(pcpu, ProgType::Tracing, plain)?));
        Ok(all)
    }

    fn all(&self) -> [&Subject<K>; 4] {
        [&self.filter, &self.tramp, &self.sleeps, &self.nmi].map(|s| s.get().expect("set in `new`"))
    }

    /// Runs a program as who has preemption off does.
    fn run(&self, task: &Task<K>, s: &Subject<K>) {
        let cpu = task.preempt_disable();
        s.tally.attempt(|| {
            (self.calls.run)(&cpu, &s.prog);
            true
        });
    }

    /// Calls a program through a trampoline.
    fn invoke(&self, task: &Task<K>, s: &Subject<K>) {
        s.tally.attempt(|| (self.calls.invoke)(task, &s.prog));
    }

    /// The body of `tramp`: one at a time on a CPU; sometimes it calls itself, and sometimes it gives way.
    fn inside_tramp(&self, cpu: &Cpu<K>) {
        let inside = self.inside.this_cpu_ptr(cpu);
        if inside.inc_return() != 1 {
            self.two_inside.fetch_add(1, Relaxed);
        }
        spend();
        if once_in(16) {
            let [_, tramp, ..] = self.all();
            self.invoke(cpu, tramp);
        }
        if once_in(64) {
            cpu.cond_resched();
        }
        inside.dec();
    }
}

/// What the threads share besides the programs.
#[derive(Default)]
struct Signs {
    /// The tasks and who disturbs them come to an end.
    stop: AtomicBool,
    /// They have; the reader reads once more.
    quiet: AtomicBool,
    /// It has.
    read: AtomicBool,
    raised: AtomicU64,
    served: AtomicU64,
    nmis_raised: AtomicU64,
    timers: AtomicU64,
    flips: AtomicU64,
    downs: AtomicU64,
    loads: AtomicU64,
    enomem: AtomicU64,
    reads: AtomicU64,
    out_of_step: AtomicU64,
    switches: AtomicU64,
    moves: AtomicU64,
    wrong: Mutex<BTreeMap<&'static str, String>>,
}

impl Signs {
    fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// An invariant broke; the first case of each says it.
    fn wrong(&self, invariant: &'static str, what: impl FnOnce() -> String) {
        let mut wrong = self.wrong.lock().unwrap_or_else(|e| e.into_inner());
        wrong.entry(invariant).or_insert_with(what);
    }

    fn is_broken(&self) -> bool {
        !self.wrong.lock().unwrap_or_else(|e| e.into_inner()).is_empty()
    }
}

/// Puts a machine with this form of statistics and kind of key under fire.
///
/// # Errors
/// If the machine cannot be made. What breaks under fire is in the outcome.
pub(crate) fn fire<F: stats::Form, S: StaticKey + 'static>(order: Order) -> Result<Outcome> {
    // One more than cores, so that CPUs lose theirs too; and two that never come up.
    let cpus = std::thread::available_parallelism()?.get().min(7) + 1;
    let key = S::claim().map_err(|e| anyhow!("{e}"))?;
    let m: Machine<Config<F, OwnTime, S>> =
        Machine::new(Topology::with_possible(cpus, cpus + 2), NoSteps, |pcpu| {
            Globals::new(pcpu, OwnTime, key)
        })?;
    let used = m.pcpu().used();
    let subjects = Subjects::new(&m, order.form.calls())?;
    let signs = Signs::default();
    m.globals().bpf_stats_enabled_key.slow_inc()?;
    m.boot(|smp| under_fire(smp, &subjects, &signs, order))?;
    // All that was raised is served, and nobody is left.
    let mut outcome = signs.outcome(&m);
    for s in subjects.all() {
        let tallied = s.tally.now();
        outcome.updates += tallied[0];
        outcome.uncounted += tallied[1];
        outcome.misses += tallied[2];
        if let Some(lost) = lost(s) {
            signs.wrong("exact", || lost);
        }
        if s.prog.active.iter().flat_map(PerCpu::iter_possible).any(|guard| guard.get() != 0) {
            signs.wrong("guard-free", || format!("{}'s guard is left up", s.name));
        }
    }
    if m.taints() > 0 {
        signs.wrong("contexts", || format!("the machine is tainted {} times", m.taints()));
    }
    drop(subjects);
    if m.pcpu().used() != used {
        signs.wrong("no-leak", || format!("{} bytes of each CPU's memory", m.pcpu().used() - used));
    }
    let wrong = signs.wrong.into_inner().unwrap_or_else(|e| e.into_inner());
    outcome.broken = wrong.into_iter().map(|(invariant, what)| format!("[{invariant}] {what}")).collect();
    Ok(outcome)
}

/// What of a program's counters is not what its calls came to. Nobody may be calling it.
fn lost<K: Kconfig>(s: &Subject<K>) -> Option<String> {
    let (now, [counted, _, refused]) = (bpf_prog_get_stats(&s.prog), s.tally.now());
    let must = BpfProgKstats { cnt: counted, nsecs: counted * BODY, misses: refused };
    (now != must).then(|| format!("{} has {}, and must have {}", s.name, show(&now), show(&must)))
}

fn show(s: &BpfProgKstats) -> String {
    format!("{} runs of {BODY} ns, {} ns, {} misses", s.cnt, s.nsecs, s.misses)
}

/// Starts everybody, and waits for the end: until no reader is stuck. The caller is the operator.
fn under_fire<'env, K: Kconfig>(
    smp: &Smp<'_, 'env, K>,
    subjects: &'env Subjects<K>,
    signs: &'env Signs,
    order: Order,
) -> Result<()> {
    let m = smp.machine();
    let cpus = m.topology().online();
    let [filter, tramp, sleeps, nmi] = subjects.all();
    smp.start_ticks(Duration::from_millis(1));
    smp.request_irq(Irq(0), |cpu| {
        signs.served.fetch_add(1, Relaxed);
        subjects.run(cpu, filter);
        subjects.invoke(cpu, tramp);
        raise_softirq(cpu, Softirq::NetRx);
    })?;
    smp.open_softirq(Softirq::NetRx, |cpu| {
        subjects.invoke(cpu, tramp);
        subjects.run(cpu, filter);
    })?;
    smp.request_nmi(move |cpu| {
        subjects.run(cpu, nmi);
        subjects.invoke(cpu, nmi);
        if order.nmis_share {
            subjects.run(cpu, filter);
            subjects.invoke(cpu, tramp);
        }
    })?;
    let timers = (0..cpus).map(|cpu| {
        let timer = smp.hrtimer(cpu, |cpu, _| {
            signs.timers.fetch_add(1, Relaxed);
            subjects.run(cpu, filter);
            subjects.invoke(cpu, tramp);
            HrtimerRestart::Restart
        });
        timer.start(Duration::from_micros(150));
        timer
    });
    let timers: Vec<_> = timers.collect();

    let reader = smp.spawn_outside("reader", move || read_all(subjects, signs, order));
    let outside = [
        smp.spawn_outside("flipper", move || flip(m, signs, order)),
        smp.spawn_outside("raiser", move || raise(m, signs, order)),
    ];
    let loader = smp.spawn("loader", 0, move |task| load_and_free(task, subjects, signs, order));
    let tasks: Vec<_> = (0..2 * cpus)
        .map(|n| {
            let body = move |task: &Task<K>| work(task, [filter, tramp, sleeps], subjects, signs, order, n);
            smp.spawn("task", n % cpus, body)
        })
        .collect();

    let operated = operate(smp, subjects, signs, order);
    signs.stop.store(true, SeqCst);
    for task in tasks.into_iter().chain([loader]) {
        if let Err(panic) = task.join() {
            signs.wrong("no-panic", || panic.to_string());
        }
    }
    for thread in outside {
        thread.join().map_err(|_| anyhow!("a thread of the harness panicked"))?;
    }
    timers.iter().for_each(|timer| _ = timer.cancel());
    signs.quiet.store(true, SeqCst);
    watch(signs, || signs.read.load(SeqCst));
    reader.join().map_err(|_| anyhow!("the reader panicked"))?;
    operated
}

/// The operator: takes CPUs down and up until the run is over or something broke, and looks whether readers get on.
fn operate<K: Kconfig>(
    smp: &Smp<'_, '_, K>,
    subjects: &Subjects<K>,
    signs: &Signs,
    order: Order,
) -> Result<()> {
    let m = smp.machine();
    let cpus = m.topology().online();
    let mut die = Rng::with_seed(order.seed ^ 1);
    let start = Instant::now();
    let over = || {
        signs.is_broken()
            || match order.until {
                Until::Time(time) => start.elapsed() >= time,
                Until::Updates(n) => {
                    let counted: u64 = subjects.all().iter().map(|s| s.tally.now()[0]).sum();
                    let happened = [
                        &signs.served,
                        &signs.timers,
                        &signs.flips,
                        &signs.downs,
                        &signs.loads,
                        &signs.enomem,
                        &signs.reads,
                    ];
                    let missed = subjects.all()[1].tally.now()[2];
                    counted >= n && missed > 0 && happened.iter().all(|n| n.load(Relaxed) > 0)
                }
            }
    };
    let mut heard = Heard::new(signs);
    while !over() {
        sleep(Duration::from_millis(die.u64(5..30)));
        let cpu = die.usize(0..cpus);
        smp.cpu_down(cpu).context("all CPUs are up between two turns")?;
        signs.downs.fetch_add(1, Relaxed);
        sleep(Duration::from_micros(die.u64(1..2000)));
        smp.cpu_up(cpu)?;
        heard.check(signs);
        let two = subjects.two_inside.load(Relaxed);
        if two > 0 {
            signs.wrong("exclusive", || format!("{two} times two tasks were inside the guard"));
        }
    }
    Ok(())
}

/// When a reader was heard of last.
struct Heard {
    reads: u64,
    at: Instant,
}

impl Heard {
    fn new(signs: &Signs) -> Self {
        Self { reads: signs.reads.load(Relaxed), at: Instant::now() }
    }

    /// Ends the process if it was too long ago: who is stuck cannot be waited for.
    fn check(&mut self, signs: &Signs) {
        let reads = signs.reads.load(Relaxed);
        if reads != self.reads {
            *self = Self::new(signs);
        } else if self.at.elapsed() > STUCK {
            eprintln!(
                "error: stuck: no read has come to an end for {} s; the sequence is left odd",
                STUCK.as_secs()
            );
            std::process::exit(1);
        }
    }
}

/// Waits until `done`, as long as readers get on.
fn watch(signs: &Signs, done: impl Fn() -> bool) {
    let mut heard = Heard::new(signs);
    while !done() {
        heard.check(signs);
        sleep(Duration::from_millis(1));
    }
}

/// A task.
fn work<K: Kconfig>(
    task: &Task<K>,
    [filter, tramp, sleeps]: [&Subject<K>; 3],
    all: &Subjects<K>,
    signs: &Signs,
    order: Order,
    n: usize,
) {
    let seed = order.seed.wrapping_add(100 + n as u64);
    tally::seed(seed);
    let mut die = Rng::with_seed(seed);
    while !signs.stopped() {
        for _ in 0..16 {
            all.run(task, filter);
        }
        match die.u32(0..16) {
            0..8 => all.invoke(task, tramp),
            8..10 => all.invoke(task, sleeps),
            10 => task.cond_resched(),
            11 => {
                let flags = local_irq_save(task);
                all.run(task, filter);
                local_irq_restore(task, flags);
            }
            12 => {
                let cpu = task.bh_disable();
                all.run(&cpu, filter);
            }
            _ => {}
        }
    }
    let (switches, moves) = task.switches();
    signs.switches.fetch_add(switches, Relaxed);
    signs.moves.fetch_add(moves, Relaxed);
}

/// The loader: a program of its own each time, whose counters it knows exactly.
fn load_and_free<K: Kconfig>(task: &Task<K>, all: &Subjects<K>, signs: &Signs, order: Order) {
    tally::seed(order.seed ^ 2);
    let mut die = Rng::with_seed(order.seed ^ 2);
    let pcpu = task.raw_cpu().machine().pcpu();
    while !signs.stopped() {
        // A program takes two allocations.
        let fails = if die.u32(0..4) == 0 { die.u64(1..=2) } else { 0 };
        pcpu.fail_nth(fails);
        let body = |_: &Cpu<K>, _: &mut BpfCtx<'_>| {
            spend();
            0
        };
        match BpfProg::alloc(pcpu, ProgType::Tracing, body) {
            Err(_) if fails > 0 => _ = signs.enomem.fetch_add(1, Relaxed),
            Err(e) => signs.wrong("load", || format!("{e}, with nothing made to fail")),
            Ok(_) if fails > 0 => signs.wrong("load", || "it succeeded without its memory".into()),
            Ok(prog) => {
                let s = Subject { name: "loaded", prog, tally: Tally::default() };
                for _ in 0..die.u32(0..200) {
                    all.run(task, &s);
                    all.invoke(task, &s);
                }
                if let Some(lost) = lost(&s) {
                    signs.wrong("exact", || lost);
                }
                signs.loads.fetch_add(1, Relaxed);
            }
        }
        task.cond_resched();
    }
}

/// The flipper. Statistics are on for most of the time, sometimes by two users, and on at the end.
fn flip<K: Kconfig>(m: &Machine<K>, signs: &Signs, order: Order) {
    let mut die = Rng::with_seed(order.seed ^ 3);
    let key = &K::globals(m.globals()).bpf_stats_enabled_key;
    let mut change = |change: &dyn Fn() -> Result<(), jump_label::KeyError>| {
        if let Err(e) = change() {
            signs.wrong("key", || e.to_string());
        }
        signs.flips.fetch_add(1, Relaxed);
        sleep(Duration::from_micros(die.u64(1..300)));
    };
    while !signs.stopped() {
        change(&|| key.slow_inc());
        change(&|| key.slow_dec());
        change(&|| key.slow_dec());
        change(&|| key.slow_inc());
    }
    if key.count() != 1 {
        signs.wrong("key", || format!("{} users are left, and must be 1", key.count()));
    }
}

/// The raiser.
fn raise<K: Kconfig>(m: &Machine<K>, signs: &Signs, order: Order) {
    let mut die = Rng::with_seed(order.seed ^ 4);
    while !signs.stopped() {
        let cpu = die.usize(0..m.topology().online());
        m.raise(cpu, Irq(0));
        signs.raised.fetch_add(1, Relaxed);
        if die.bool() {
            m.raise_nmi(cpu);
            signs.nmis_raised.fetch_add(1, Relaxed);
        }
        sleep(Duration::from_micros(die.u64(1..100)));
    }
}

/// The reader: counters never go down, and on 32-bit time and count are of one moment.
fn read_all<K: Kconfig>(all: &Subjects<K>, signs: &Signs, order: Order) {
    let mut before = [BpfProgKstats::default(); 4];
    loop {
        let quiet = signs.quiet.load(SeqCst);
        for (s, before) in all.all().iter().zip(&mut before) {
            let now = bpf_prog_get_stats(&s.prog);
            if now.cnt < before.cnt || now.nsecs < before.nsecs || now.misses < before.misses {
                signs.wrong("monotonic", || {
                    format!("{} had {}, and then {}", s.name, show(before), show(&now))
                });
            }
            if now.nsecs != now.cnt * BODY {
                signs.out_of_step.fetch_add(1, Relaxed);
                // 64-bit counters are whole, each by itself; nothing holds two together.
                if !order.nmis_share {
                    signs.wrong("one-moment", || format!("{} was read as {}", s.name, show(&now)));
                }
            }
            signs.reads.fetch_add(1, Relaxed);
            *before = now;
        }
        if quiet {
            signs.read.store(true, SeqCst);
            return;
        }
        yield_now();
    }
}

impl Signs {
    fn outcome<K: Kconfig>(&self, m: &Machine<K>) -> Outcome {
        let get = |n: &AtomicU64| n.load(Relaxed);
        let sum = |of: &dyn Fn(usize) -> u64| (0..m.topology().possible()).map(of).sum::<u64>();
        let nmis = sum(&|cpu| m.nmis(cpu));
        for (what, raised, served) in
            [("interrupts", get(&self.raised), get(&self.served)), ("NMIs", get(&self.nmis_raised), nmis)]
        {
            if raised != served {
                self.wrong("each-once", || format!("{raised} {what} were raised, {served} served"));
            }
        }
        Outcome {
            interrupts: get(&self.served) + get(&self.timers),
            nmis,
            softirqs: sum(&|cpu| m.softirqs(cpu)),
            switches: get(&self.switches),
            moves: get(&self.moves),
            flips: get(&self.flips),
            downs: get(&self.downs),
            loads: get(&self.loads),
            enomem: get(&self.enomem),
            reads: get(&self.reads),
            out_of_step: get(&self.out_of_step),
            ..Outcome::default()
        }
    }
}
