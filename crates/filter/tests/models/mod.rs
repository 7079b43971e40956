//! What the models of the run path and of the trampoline share: a small machine whose counters carry at once, clocks that
//! a model can foretell, readers that know what they may see, and the bodies of the families of models.

#![allow(dead_code, reason = "each file of models uses some of it")]

use std::sync::{Arc, OnceLock};

use filter::clock::SchedClock;
use filter::{BpfCtx, BpfProg, BpfProgKstats, BpfProgStats, Config, Kconfig, ProgType, bpf_prog_get_stats};
use jump_label::{AtomicKey, StaticKey};
use percpu::{Cpu, Irq, Machine, NoSteps, Topology, in_hardirq, in_nmi};
use stats::u64_stats::read_once;
use stats::{Bits32, Form, U64Stats};
use sync::local::{LocalU32, LocalU64};
use sync::model::{Model, interrupt_at, invariant, nmi_at, note, points_made, reach};

/// Counters start here, so that the first update carries from the low half to the high one.
pub(crate) const START: u64 = 0xFFFF_FFFF;
/// What each run takes: an add that carries too.
pub(crate) const DURATION: u64 = 0x8000_0001;

/// A clock that each read moves on. Interrupts have one of their own: a run takes [`DURATION`] whatever interrupts it.
pub(crate) struct Ticks {
    now: [LocalU64; 2],
    step: u64,
    reads: LocalU32,
    /// For programs: what they saw of the key, or whether one is inside.
    pub(crate) inside: LocalU32,
}

impl Ticks {
    /// A clock at `now`, that each read moves on by `step`.
    pub(crate) fn new(now: u64, step: u64) -> Self {
        Self { now: [now, now].map(LocalU64::new), step, reads: LocalU32::new(0), inside: LocalU32::new(0) }
    }
}

impl Default for Ticks {
    /// A machine that has been up for a while; each run takes [`DURATION`].
    fn default() -> Self {
        Self::new(100, DURATION)
    }
}

impl SchedClock for Ticks {
    fn sched_clock<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) -> u64 {
        let clock = &self.now[usize::from(in_hardirq(cpu) || in_nmi(cpu))];
        let now = clock.get();
        clock.set(now.wrapping_add(self.step));
        self.reads.set(self.reads.get() + 1);
        now
    }
}

/// A clock of the operations that the calling thread made since [`interrupt_at`]: what costs time costs one.
pub(crate) struct Operations;

impl SchedClock for Operations {
    fn sched_clock<K: percpu::Kconfig>(&self, _: &Cpu<K>) -> u64 {
        100 + points_made()
    }
}

/// The configuration of a model.
pub(crate) type K<F, C = Ticks> = Config<F, C>;

/// A machine and its program.
pub(crate) type Simulated<F, C> = (Machine<K<F, C>>, BpfProg<K<F, C>>);

/// One way to run a program, or what an interrupt does.
pub(crate) type Run<K> = fn(&Cpu<K>, &BpfProg<K>);

/// A program that does nothing.
pub(crate) fn nothing<K: Kconfig>(_: &Cpu<K>, _: &mut BpfCtx<'_>) -> u32 {
    7
}

/// A machine with statistics `on` or off, and a program whose counters are at [`START`].
pub(crate) fn machine<F: Form, C: SchedClock>(
    cpus: usize,
    clock: C,
    on: bool,
    text: fn(&Cpu<K<F, C>>, &mut BpfCtx<'_>) -> u32,
) -> Simulated<F, C> {
    let m = filter::machine::<F, _, AtomicKey, _>(Topology::smp(cpus), NoSteps, clock).unwrap();
    if on {
        m.globals().bpf_stats_enabled_key.slow_inc().unwrap();
    }
    let mut prog = BpfProg::alloc(m.pcpu(), ProgType::Tracing, text).unwrap();
    prog.stats = Some(m.alloc_percpu(|_| BpfProgStats::starting_at(START)).unwrap());
    (m, prog)
}

/// What was counted since [`START`], on `cpus` CPUs.
pub(crate) fn since_start(s: BpfProgKstats, cpus: u64) -> BpfProgKstats {
    let since = |v: u64| v.wrapping_sub(cpus * START);
    BpfProgKstats { nsecs: since(s.nsecs), cnt: since(s.cnt), misses: since(s.misses) }
}

/// How a reader knows what it may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knows {
    /// An even sequence says how many updates are complete, so exactly they must be seen; only runs are counted.
    Runs,
    /// The same; misses are read and counted too.
    RunsAndMisses,
    /// The sequence may be wrong: count and time must only be what some moment held.
    Moments,
    /// The same of all three.
    MomentsAndMisses,
}

/// One attempt to read CPU `cpu`.
pub(crate) fn read_and_check<K: Kconfig>(prog: &BpfProg<K>, cpu: usize, knows: Knows) {
    let s = prog.stats.as_ref().unwrap().per_cpu_ptr(cpu);
    let counters = || {
        let with_misses = matches!(knows, Knows::RunsAndMisses | Knows::MomentsAndMisses);
        let misses = if with_misses { s.misses.read() } else { START };
        BpfProgKstats { cnt: s.cnt.read(), nsecs: s.nsecs.read(), misses }
    };
    let Some((seq, read)) = read_once(&s.syncp, counters) else { return reach("again") };
    let BpfProgKstats { cnt, nsecs, misses } = since_start(read, 1);
    note(format!("accepts {cnt} runs, {nsecs:#x} ns, {misses} misses under {seq}"));
    let whole = cnt <= 2 && misses <= 1 && nsecs == cnt * DURATION;
    let exact =
        matches!(knows, Knows::Moments | Knows::MomentsAndMisses) || cnt + misses == u64::from(seq / 2);
    invariant("one-moment", whole && exact, || {
        format!("{cnt} runs, {nsecs:#x} ns and {misses} misses under sequence {seq}: no moment held that")
    });
    reach(match misses {
        0 => format!("{cnt} runs"),
        _ => format!("{cnt} runs, {misses} misses"),
    });
}

/// Who looks at an interrupted run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// A reader on another CPU, and who counts at the end.
    Both(Knows),
    /// The reader alone.
    Reader(Knows),
    /// Who counts at the end alone.
    End,
}

/// A family of models: a run, and an interrupt before one of its operations.
pub(crate) struct Interrupted<K: Kconfig> {
    /// The run.
    pub(crate) run: Run<K>,
    /// What the interrupt does.
    pub(crate) handler: Run<K>,
    /// How many runs or misses the interrupt counts.
    pub(crate) counts: u64,
    /// Who looks.
    pub(crate) watch: Watch,
    /// What kind of program: guarded or not.
    pub(crate) kind: ProgType,
    /// It is an NMI: no mask stops it.
    pub(crate) nmi: bool,
}

impl<K: Kconfig> Clone for Interrupted<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Kconfig> Copy for Interrupted<K> {}

impl<F: Form> Interrupted<K<F>> {
    /// Checks `model` with the interrupt before the `at`-th operation of the run; how many operations there are, if all
    /// went well.
    pub(crate) fn check(self, model: Model, at: u64) -> u64 {
        let points = Arc::new(OnceLock::new());
        let made = points.clone();
        model.quick(1).check(move || self.explore(at, &made));
        points.get().copied().unwrap_or_default()
    }

    /// Checks that the interrupt does no harm before any operation of the run, nor after it (then `at` is `u64::MAX`), and
    /// that what `reached` says is reached. How many operations there are.
    pub(crate) fn holds_everywhere(self, name: &str, reached: fn(u64) -> &'static [&'static str]) -> u64 {
        let model = |name: String, at| Model::holds(name.leak(), reached(at)).bounded(2);
        let points = self.check(model(format!("{name}_never"), u64::MAX), u64::MAX);
        for at in 0..points {
            self.check(model(format!("{name}_at_{at}"), at), at);
        }
        points
    }

    /// Checks what the interrupt breaks before each of `points` operations of the run; `None`: it does no harm there. The
    /// first counterexample is recorded.
    pub(crate) fn breaks_at(self, name: &str, points: u64, broken: fn(u64) -> Option<&'static str>) {
        let first = (0..points).find(|&at| broken(at).is_some());
        for at in 0..points {
            let name: &'static str = format!("{name}_at_{at}").leak();
            let model = match broken(at) {
                Some(invariant) if Some(at) == first => Model::breaks(name, invariant),
                Some(invariant) => Model::breaks(name, invariant).unrecorded(),
                None => Model::holds(name, &[]),
            };
            self.check(model.bounded(2), at);
        }
    }

    fn explore(self, at: u64, points: &OnceLock<u64>) {
        let Self { run, handler, watch, .. } = self;
        let (m, mut prog) = machine::<F, _>(1, Ticks::default(), true, nothing);
        prog.kind = self.kind;
        m.boot(|smp| {
            smp.request_irq(Irq(0), |cpu| handler(cpu, &prog)).unwrap();
            smp.request_nmi(|cpu| handler(cpu, &prog)).unwrap();
            if let Watch::Both(knows) | Watch::Reader(knows) = watch {
                let prog = &prog;
                smp.spawn_outside("reader", move || read_and_check(prog, 0, knows));
            }
            let (m, prog) = (&m, &prog);
            smp.on(0, move |cpu| {
                // Counted now; the model says when it comes.
                if self.nmi {
                    m.raise_nmi(0);
                    nmi_at(at);
                } else {
                    m.raise(0, Irq(0));
                    interrupt_at(at);
                }
                run(cpu, prog);
                let _ = points.set(points_made());
            });
        });
        if !matches!(watch, Watch::Reader(_)) {
            let (served, deferred) = m.interrupts(0);
            let came = if self.nmi { m.nmis(0) } else { served };
            let missed = counted_exactly(&prog, 1 + came * self.counts);
            reach(match (missed, deferred) {
                (1.., _) => "refused",
                (0, 1..) => "deferred",
                (0, 0) => "at once",
            });
        }
    }
}

/// CPU 0 counted `runs` runs and misses exactly, and is left as it should be; how many misses.
pub(crate) fn counted_exactly<K: Kconfig>(prog: &BpfProg<K>, runs: u64) -> u64 {
    let held = prog.active.as_ref().unwrap().per_cpu_ptr(0).get();
    invariant("guard-free", held == 0, || format!("the guard is left at {held}"));
    let s = prog.stats.as_ref().unwrap().per_cpu_ptr(0);
    let read = read_once(&s.syncp, || BpfProgKstats {
        cnt: s.cnt.read(),
        nsecs: s.nsecs.read(),
        misses: s.misses.read(),
    });
    invariant("even", read.is_some(), || "the sequence was left odd: readers wait for ever".into());
    let Some((seq, s)) = read else { return 0 };
    let BpfProgKstats { cnt, nsecs, misses } = since_start(s, 1);
    invariant("total", cnt + misses == runs && nsecs == cnt * DURATION, || {
        format!("{runs} runs, and counted were {cnt}, {nsecs:#x} ns, {misses} misses")
    });
    let sequence = u64::from(seq);
    // 64-bit has none.
    invariant("sequence", sequence == 0 || sequence == 2 * runs, || {
        format!("{runs} updates leave the sequence at {sequence}")
    });
    misses
}

/// What one run saw of a key that flips.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flipped {
    /// On when the run began: it was timed.
    pub(crate) timed: bool,
    /// On inside the program.
    pub(crate) inside: bool,
    /// It was counted.
    pub(crate) counted: bool,
}

/// One run, while the key, `on` or off at first, is switched `flips` times: what it saw must be as `law` says.
pub(crate) fn key_flips(clock: Ticks, run: Run<K<Bits32>>, on: bool, flips: u32, law: fn(Flipped) -> bool) {
    let (m, prog) = machine::<Bits32, _>(1, clock, on, |cpu, _| {
        let globals = cpu.globals();
        globals.clock.inside.set(1 + globals.bpf_stats_enabled_key.count().unsigned_abs());
        7
    });
    m.boot(|smp| {
        let (key, prog) = (&m.globals().bpf_stats_enabled_key, &prog);
        smp.spawn_outside("sysctl", move || {
            for flip in 0..flips {
                if on == (flip % 2 == 1) { key.slow_inc() } else { key.slow_dec() }.unwrap();
            }
        });
        smp.on(0, move |cpu| run(cpu, prog));
    });
    let (clock, s) = (&m.globals().clock, since_start(bpf_prog_get_stats(&prog), 1));
    invariant("never-skipped", clock.inside.get() > 0, || "the program was skipped".into());
    let whole = s.misses == 0 && s.cnt <= 1 && s.nsecs == s.cnt * DURATION;
    invariant("whole-run", whole, || format!("{s:x?}"));
    let saw = Flipped { timed: clock.reads.get() > 0, inside: clock.inside.get() > 1, counted: s.cnt == 1 };
    invariant("key", law(saw), || format!("{saw:?}"));
    let began = if saw.timed { "on" } else { "off" };
    let inside = if saw.inside { "on" } else { "off" };
    reach(format!("{began}, inside {inside}: {}", if saw.counted { "counted" } else { "not counted" }));
}

/// How many operations [`three_operations`] makes.
const PROGRAM: u64 = 3;

/// A program that costs [`PROGRAM`] operations.
fn three_operations<F: Form>(cpu: &Cpu<K<F, Operations>>, _: &mut BpfCtx<'_>) -> u32 {
    (0..PROGRAM).for_each(|_| _ = cpu.globals().bpf_stats_enabled_key.count());
    7
}

/// One run by a clock that counts operations, and a reader: the time must be the program's, and `more`.
pub(crate) fn times_the_program(run: Run<K<Bits32, Operations>>, more: u64) {
    let (m, prog) = machine::<Bits32, _>(1, Operations, true, three_operations);
    m.boot(|smp| {
        let prog = &prog;
        smp.spawn_outside("reader", move || {
            let s = since_start(bpf_prog_get_stats(prog), 1);
            invariant("time", s.cnt <= 1 && s.nsecs == s.cnt * (PROGRAM + more), || format!("{s:?}"));
            reach(format!("{} runs", s.cnt));
        });
        smp.on(0, move |cpu| {
            interrupt_at(u64::MAX);
            run(cpu, prog);
        });
    });
}
