//! The trampoline's facts: start times, the order of enter and exit, recursion and misses, the choice of
//! variant.
//!
//! Most run on virtual machines, where each step is recorded and costs what the test says: times are exact.

use std::sync::{Arc, OnceLock};

use filter::clock::OtherClock;
use filter::virt::{self, AnnouncedFunc, VirtualConfig};
use filter::{
    BpfCtx, BpfProg, BpfProgKstats, Config, Kconfig, ProgType, bpf_prog_get_stats, bpf_prog_run,
    history as run_history,
};
use jump_label::{AtomicKey, StaticKey};
use percpu::{Cpu, CpuPanic, Machine, NoSteps, Stage, Task, Topology};
use stats::{Bits32, Bits64, Form};
use sync::host::{AtomicU32, Ordering::SeqCst};
use trampoline::trampoline::{
    __bpf_prog_enter, __bpf_prog_enter_lsm_cgroup, __bpf_prog_enter_recur, __bpf_prog_enter_sleepable,
    __bpf_prog_enter_sleepable_recur, __bpf_prog_exit, __bpf_prog_exit_lsm_cgroup, __bpf_prog_exit_recur,
    __bpf_prog_exit_sleepable, __bpf_prog_exit_sleepable_recur,
};
use trampoline::{
    BpfTrampEnter, BpfTrampExit, BpfTrampRunCtx, NO_START_TIME, bpf_prog_check_recur, bpf_trampoline_enter,
    bpf_trampoline_exit, history, invoke_bpf_prog, update_prog_stats,
};

const CLOCK: u64 = 10;
const CALL: u64 = 100;
/// The time of a run: the call, the context put back, and of the two clock reads one.
const RUN_CTX: u64 = 1000;
const RUN: u64 = CALL + RUN_CTX + CLOCK;
const COSTS: [(&str, u64); 3] = [("clock", CLOCK), ("call", CALL), ("run_ctx", RUN_CTX)];

type V<F = Bits64> = VirtualConfig<F>;

/// A virtual machine of `cpus` CPUs and its stage.
fn machine<F: Form>(cpus: usize) -> (Machine<V<F>>, Arc<Stage>) {
    let stage = Arc::new(Stage::new(cpus, 5000, &COSTS).recorded());
    (virt::machine(Topology::smp(cpus), stage.clone()).unwrap(), stage)
}

fn key<K: Kconfig>(m: &Machine<K>) -> &K::StatsKey {
    &K::globals(m.globals()).bpf_stats_enabled_key
}

fn switch_on<K: Kconfig>(m: &Machine<K>) {
    key(m).slow_inc().unwrap();
}

fn prog<K: Kconfig>(
    m: &Machine<K>,
    kind: ProgType,
    f: impl Fn(&Cpu<K>, &mut BpfCtx<'_>) -> u32 + Send + Sync + 'static,
) -> BpfProg<K> {
    BpfProg::alloc(m.pcpu(), kind, AnnouncedFunc(f)).unwrap()
}

fn seven<K: Kconfig>(_: &Cpu<K>, _: &mut BpfCtx<'_>) -> u32 {
    7
}

fn tracing<K: Kconfig>(m: &Machine<K>) -> BpfProg<K> {
    prog(m, ProgType::Tracing, seven)
}

/// Does `f` on CPU 0.
fn on_cpu<K: Kconfig, R: Send>(m: &Machine<K>, f: impl FnOnce(&Cpu<K>) -> R + Send) -> R {
    m.boot(|smp| smp.run(0, f).unwrap())
}

/// Runs `prog` as a trampoline does.
fn invoke<K: Kconfig>(task: &Task<K>, prog: &BpfProg<K>) -> Option<u32> {
    invoke_bpf_prog(task, prog, 0, &mut BpfCtx::default())
}

fn counted(cnt: u64, nsecs: u64, misses: u64) -> BpfProgKstats {
    BpfProgKstats { cnt, nsecs, misses }
}

/// Counts a run with this start, if it is to be counted.
type Update = fn(&Cpu<V>, &BpfProg<V>, u64);

/// The present form and the two before it.
const UPDATES: [Update; 3] =
    [update_prog_stats, history::before_ce09cbdd9888::update_prog_stats, |cpu, prog, start| {
        history::before_d979617aa84d::update_prog_stats(&cpu.preempt_disable(), prog, start);
    }];

/// How often this program is entered on each CPU now.
fn held<K: Kconfig>(prog: &BpfProg<K>) -> Vec<u32> {
    prog.active.as_ref().unwrap().iter_possible().map(|a| a.get()).collect()
}

fn is_bug<R: std::fmt::Debug>(r: Result<R, CpuPanic>) -> bool {
    r.unwrap_err().message.starts_with("BUG")
}

// Start times.

/// What enter and exit make of a clock at `at` that moves on by `then` in between: the start, and what is
/// counted.
fn clocked(at: u64, then: u64) -> (u64, BpfProgKstats) {
    let stage = Arc::new(Stage::new(1, at, &[]));
    let m = virt::machine::<Bits64>(Topology::smp(1), stage.clone()).unwrap();
    switch_on(&m);
    let p = tracing(&m);
    let start = on_cpu(&m, |cpu| {
        let mut ctx = BpfTrampRunCtx::default();
        let start = __bpf_prog_enter_recur(cpu, &p, &mut ctx);
        stage.advance(0, then);
        __bpf_prog_exit_recur(cpu, &p, start, &mut ctx);
        start
    });
    (start, bpf_prog_get_stats(&p))
}

#[test]
fn a_clock_of_0_becomes_no_start_time_and_the_run_is_not_counted() {
    assert_eq!(NO_START_TIME, 1);
    assert_eq!(clocked(0, 500), (1, counted(0, 0, 0)));
}

#[test]
fn a_clock_of_exactly_1_is_not_told_from_not_timed() {
    assert_eq!(clocked(1, 500), (1, counted(0, 0, 0)));
}

#[test]
fn a_clock_of_2_is_the_first_that_counts() {
    assert_eq!(clocked(2, 500), (2, counted(1, 500, 0)));
    assert_eq!(clocked(2, 0), (2, counted(1, 0, 0)), "a duration of 0 is legal");
}

#[test]
fn a_clock_that_stays_at_0_counts_runs_but_no_trampoline_run() {
    let m: Machine<Config<Bits64, OtherClock>> =
        filter::machine::<_, _, AtomicKey, _>(Topology::smp(1), NoSteps, OtherClock::Zero).unwrap();
    switch_on(&m);
    let (run, traced) = (tracing(&m), tracing(&m));
    on_cpu(&m, |cpu| {
        bpf_prog_run(cpu, &run, &mut BpfCtx::default());
        assert_eq!(invoke(cpu, &traced), Some(7), "it runs");
    });
    assert_eq!(bpf_prog_get_stats(&run), counted(1, 0, 0));
    assert_eq!(bpf_prog_get_stats(&traced), counted(0, 0, 0));
}

#[test]
fn a_start_of_0_or_1_is_never_counted_and_2_is() {
    let (m, _) = machine::<Bits64>(1);
    switch_on(&m);
    let p = tracing(&m);
    for form in UPDATES {
        let before = bpf_prog_get_stats(&p).cnt;
        let count = |start| {
            on_cpu(&m, |cpu| form(cpu, &p, start));
            bpf_prog_get_stats(&p).cnt - before
        };
        assert_eq!([0, 1, 2].map(count), [0, 0, 1]);
    }
}

// The key.

/// One run of a program that turns the key off and on: what was counted of it.
fn toggled(from: bool, flips: &'static [bool]) -> BpfProgKstats {
    let (m, _) = machine::<Bits64>(1);
    let p = prog(&m, ProgType::Tracing, move |cpu, _| {
        for &on in flips {
            let key = &cpu.globals().bpf_stats_enabled_key;
            if on { key.slow_inc() } else { key.slow_dec() }.unwrap();
        }
        7
    });
    if from {
        switch_on(&m);
    }
    assert_eq!(on_cpu(&m, |cpu| invoke(cpu, &p)), Some(7));
    bpf_prog_get_stats(&p)
}

#[test]
fn a_run_is_counted_if_the_key_is_on_at_enter_and_at_exit_and_only_then() {
    assert_eq!(toggled(false, &[]), counted(0, 0, 0));
    assert_eq!(toggled(false, &[true]), counted(0, 0, 0), "off to on");
    assert_eq!(toggled(false, &[true, false]), counted(0, 0, 0));
    assert_eq!(toggled(true, &[]), counted(1, RUN, 0));
    assert_eq!(toggled(true, &[false]), counted(0, 0, 0), "on to off");
    assert_eq!(toggled(true, &[false, true]), counted(1, RUN, 0), "on, off, on: in full");
}

// The order of steps.

/// A variant: its enter, its exit, and whether it has the guard, is sleepable, is timed.
struct Variant<F: Form> {
    enter: BpfTrampEnter<V<F>>,
    exit: BpfTrampExit<V<F>>,
    guard: bool,
    sleepable: bool,
    timed: bool,
}

fn variants<F: Form>() -> [Variant<F>; 5] {
    let variant =
        |enter: BpfTrampEnter<V<F>>, exit: BpfTrampExit<V<F>>, [guard, sleepable, timed]: [bool; 3]| {
            Variant { enter, exit, guard, sleepable, timed }
        };
    [
        variant(__bpf_prog_enter_recur, __bpf_prog_exit_recur, [true, false, true]),
        variant(__bpf_prog_enter_sleepable_recur, __bpf_prog_exit_sleepable_recur, [true, true, true]),
        variant(__bpf_prog_enter, __bpf_prog_exit, [false, false, true]),
        variant(__bpf_prog_enter_sleepable, __bpf_prog_exit_sleepable, [false, true, true]),
        variant(__bpf_prog_enter_lsm_cgroup, __bpf_prog_exit_lsm_cgroup, [false, false, false]),
    ]
}

/// The steps of enter and of exit, and how deep in RCU and tasks-trace RCU the task is between them.
fn steps<F: Form>(
    (m, stage): &(Machine<V<F>>, Arc<Stage>),
    p: &BpfProg<V<F>>,
    enter: BpfTrampEnter<V<F>>,
    exit: BpfTrampExit<V<F>>,
) -> (Vec<&'static str>, Vec<&'static str>, (u32, u32)) {
    on_cpu(m, |cpu| {
        let taken = || stage.take_timeline().into_iter().map(|e| e.step).collect();
        let mut ctx = BpfTrampRunCtx::default();
        stage.take_timeline();
        let start = enter(cpu, p, &mut ctx);
        let (entered, nesting) = (taken(), cpu.rcu_nesting());
        exit(cpu, p, start, &mut ctx);
        assert_eq!(cpu.rcu_nesting(), (0, 0));
        (entered, taken(), nesting)
    })
}

/// `steps`, those kept that are marked.
fn marked<const N: usize>(steps: [(&'static str, bool); N]) -> Vec<&'static str> {
    steps.into_iter().filter(|s| s.1).map(|s| s.0).collect()
}

#[test]
fn enter_is_rcu_pin_context_guard_key_clock_and_exit_is_context_stats_guard_unpin_rcu() {
    for Variant { enter, exit, guard, sleepable, timed } in variants::<Bits64>() {
        for on in [false, true] {
            let v = machine(1);
            if on {
                switch_on(&v.0);
            }
            let p = tracing(&v.0);
            let (entered, left, nesting) = steps(&v, &p, enter, exit);
            let expected = marked([
                ("rcu_read_lock", true),
                ("migrate_disable", true),
                ("run_ctx", true),
                ("this_cpu_inc_return", guard),
                ("key", timed),
                ("clock", timed && on), // last
            ]);
            assert_eq!(entered, expected);
            assert_eq!(nesting, if sleepable { (0, 1) } else { (1, 0) });
            let counts = timed && on;
            let expected = marked([
                ("run_ctx", true),
                ("key", timed),
                ("clock", counts),
                ("this_cpu_ptr", counts),
                ("section_begin", counts),
                ("cnt", counts),
                ("nsecs", counts),
                ("section_end", counts),
                ("this_cpu_dec", guard), // the guard is held during the update
                ("migrate_enable", true),
                ("rcu_read_unlock", true),
            ]);
            assert_eq!(left, expected);
            assert_eq!(bpf_prog_get_stats(&p).cnt, u64::from(counts));
        }
    }
}

#[test]
fn on_32_bit_the_update_stands_in_a_masked_section_under_an_odd_sequence() {
    let v = machine::<Bits32<stats::virt::Word>>(1);
    switch_on(&v.0);
    let p = tracing(&v.0);
    let left = steps(&v, &p, __bpf_prog_enter_recur, __bpf_prog_exit_recur).1;
    let expected = [
        "run_ctx",
        "key",
        "clock",
        "this_cpu_ptr",
        "section_begin",
        "irq_save",
        "seq",
        "cnt",
        "cnt.lo",
        "cnt.hi",
        "nsecs",
        "nsecs.lo",
        "nsecs.hi",
        "seq",
        "irq_restore",
        "section_end",
        "this_cpu_dec",
        "migrate_enable",
        "rcu_read_unlock",
    ];
    assert_eq!(left, expected);
}

#[test]
fn a_refused_enter_counts_a_miss_before_anything_else_and_reads_no_clock() {
    let v = machine::<Bits64>(1);
    switch_on(&v.0);
    let p = tracing(&v.0);
    p.active.as_ref().unwrap().per_cpu_ptr(0).set(1);
    let (entered, left, _) = steps(&v, &p, __bpf_prog_enter_recur, __bpf_prog_exit_recur);
    let expected = [
        "rcu_read_lock",
        "migrate_disable",
        "run_ctx",
        "this_cpu_inc_return",
        "this_cpu_ptr",
        "section_begin",
        "misses",
        "section_end",
    ];
    assert_eq!(entered, expected);
    assert_eq!(left, ["run_ctx", "key", "this_cpu_dec", "migrate_enable", "rcu_read_unlock"]);
}

#[test]
fn before_the_seed_the_second_clock_stood_after_the_section_began_and_the_count() {
    let (m, stage) = machine::<Bits64>(1);
    switch_on(&m);
    let p = tracing(&m);
    let steps: Vec<_> = on_cpu(&m, |cpu| {
        stage.take_timeline();
        history::before_ce09cbdd9888::update_prog_stats(cpu, &p, 5000);
        stage.take_timeline().into_iter().map(|e| e.step).collect()
    });
    assert_eq!(steps, ["key", "this_cpu_ptr", "section_begin", "cnt", "clock", "nsecs", "section_end"]);
}

#[test]
fn before_irqsave_the_update_masked_nothing() {
    let (m, stage) = machine::<Bits32<stats::virt::Word>>(1);
    switch_on(&m);
    let p = tracing(&m);
    let steps: Vec<_> = on_cpu(&m, |cpu| {
        stage.take_timeline();
        history::before_d979617aa84d::update_prog_stats(&cpu.preempt_disable(), &p, 5000);
        stage.take_timeline().into_iter().map(|e| e.step).collect()
    });
    assert!(steps.contains(&"seq") && !steps.contains(&"irq_save"), "{steps:?}");
    assert_eq!(bpf_prog_get_stats(&p).cnt, 1);
}

#[test]
fn the_context_put_back_is_inside_the_timed_interval() {
    let (m, _) = machine::<Bits64>(1);
    switch_on(&m);
    let p = tracing(&m);
    assert_eq!(on_cpu(&m, |cpu| invoke(cpu, &p)), Some(7));
    assert_eq!(bpf_prog_get_stats(&p), counted(1, CALL + RUN_CTX + CLOCK, 0), "one of the two run_ctx steps");
}

// Guard and misses.

/// Runs a program that calls itself once: what the inner call gave, and what was counted.
fn recursing(kind: ProgType, on: bool) -> (Option<u32>, BpfProgKstats, Vec<u32>) {
    let (m, _) = machine::<Bits64>(1);
    let this: Arc<OnceLock<BpfProg<V>>> = Arc::default();
    let inner: Arc<OnceLock<Option<u32>>> = Arc::default();
    let p = prog(&m, kind, {
        let (this, inner) = (Arc::downgrade(&this), inner.clone());
        move |cpu, ctx| {
            if ctx.mem.is_empty() {
                let this = this.upgrade().unwrap();
                inner.set(invoke_bpf_prog(cpu, this.get().unwrap(), 0, &mut BpfCtx::new(&mut [1]))).unwrap();
            }
            7
        }
    });
    if on {
        switch_on(&m);
    }
    let p = this.get_or_init(|| p);
    assert_eq!(on_cpu(&m, |cpu| invoke(cpu, p)), Some(7));
    (*inner.get().unwrap(), bpf_prog_get_stats(p), held(p))
}

#[test]
fn recursion_is_skipped_and_is_a_miss_also_with_the_key_off() {
    // The skipped call exchanged the context twice, within the outer one's time.
    let outer = RUN + 2 * RUN_CTX;
    assert_eq!(recursing(ProgType::Tracing, true), (None, counted(1, outer, 1), vec![0]));
    assert_eq!(recursing(ProgType::Tracing, false), (None, counted(0, 0, 1), vec![0]));
}

#[test]
fn without_a_guard_recursion_runs_and_is_no_miss() {
    let outer = RUN + CLOCK + RUN + RUN_CTX;
    assert_eq!(recursing(ProgType::Lsm, true), (Some(7), counted(2, RUN + outer, 0), vec![0]));
}

#[test]
fn exit_after_a_refused_enter_releases_its_increment_and_counts_nothing() {
    for on in [false, true] {
        let (m, _) = machine::<Bits64>(1);
        if on {
            switch_on(&m);
        }
        let p = tracing(&m);
        on_cpu(&m, |cpu| {
            let (mut outer, mut inner) = (BpfTrampRunCtx::default(), BpfTrampRunCtx::default());
            let start = __bpf_prog_enter_recur(cpu, &p, &mut outer);
            assert!(if on { start > NO_START_TIME } else { start == NO_START_TIME });
            assert_eq!(__bpf_prog_enter_sleepable_recur(cpu, &p, &mut inner), 0, "refused");
            assert_eq!(held(&p), [2], "a refused enter has incremented the guard");
            __bpf_prog_exit_sleepable_recur(cpu, &p, 0, &mut inner);
            assert_eq!(held(&p), [1], "only exit takes it back");
            assert_eq!(bpf_prog_get_stats(&p), counted(0, 0, 1));
            __bpf_prog_exit_recur(cpu, &p, start, &mut outer);
        });
        assert_eq!(held(&p), [0]);
        let stats = bpf_prog_get_stats(&p);
        assert_eq!((stats.cnt, stats.misses), (u64::from(on), 1), "a miss adds no run");
        assert!(on_cpu(&m, |cpu| invoke(cpu, &p)).is_some(), "and the program can be entered again");
    }
}

#[test]
fn the_guard_is_per_program_and_per_cpu() {
    let (m, _) = machine::<Bits64>(2);
    let (p, other) = (tracing(&m), tracing(&m));
    m.boot(|smp| {
        let mut ctx = BpfTrampRunCtx::default();
        smp.run(0, |cpu| assert_ne!(__bpf_prog_enter_recur(cpu, &p, &mut ctx), 0)).unwrap();
        assert_eq!(smp.on_each_cpu(|cpu| invoke(cpu, &p)), [None, Some(7)]);
        assert_eq!(smp.on_each_cpu(|cpu| invoke(cpu, &other)), [Some(7), Some(7)]);
        smp.run(0, |cpu| __bpf_prog_exit_recur(cpu, &p, 0, &mut ctx)).unwrap();
        assert_eq!(smp.on_each_cpu(|cpu| invoke(cpu, &p)), [Some(7), Some(7)]);
    });
    assert_eq!((bpf_prog_get_stats(&p).misses, bpf_prog_get_stats(&other).misses), (1, 0));
}

#[test]
fn a_preempted_holder_makes_another_task_miss_without_any_recursion() {
    const ENTERED: u32 = 1;
    const REFUSED: u32 = 2;
    for sleepable in [false, true] {
        let (m, _) = machine::<Bits64>(1);
        let at = Arc::new(AtomicU32::new(0));
        let mut p = prog(&m, ProgType::Tracing, {
            let at = at.clone();
            move |cpu, _| {
                at.store(ENTERED, SeqCst);
                while at.load(SeqCst) != REFUSED {
                    cpu.cond_resched(); // preempted, or asleep; and stays pinned
                }
                7
            }
        });
        p.sleepable = sleepable;
        m.boot(|smp| {
            let holder = smp.spawn("holder", 0, |task| (invoke(task, &p), task.switches().0));
            let other = smp.spawn("other", 0, |task| {
                while at.load(SeqCst) != ENTERED {
                    task.cond_resched();
                }
                let r = invoke(task, &p);
                at.store(REFUSED, SeqCst);
                r
            });
            assert_eq!(other.join().unwrap(), None);
            let (ran, switches) = holder.join().unwrap();
            assert_eq!(ran, Some(7));
            assert!(switches > 0);
        });
        assert_eq!(bpf_prog_get_stats(&p), counted(0, 0, 1));
        assert_eq!(held(&p), [0]);
    }
}

/// The guard as it was, taken with `between` in the middle of it.
fn take_before(cpu: &Cpu<V>, p: &BpfProg<V>, between: impl FnOnce()) -> bool {
    history::before_c89e843a11f1::take_guard(cpu, p, between)
}

#[test]
fn before_the_guard_was_one_step_a_preemption_inside_it_let_both_in() {
    let (m, _) = machine::<Bits64>(1);
    let p = tracing(&m);
    on_cpu(&m, |cpu| {
        let mut second = false;
        let first = take_before(cpu, &p, || second = take_before(cpu, &p, || ()));
        assert!(first && second, "both are in");
    });
    assert_eq!(held(&p), [1], "and one increment is lost");
}

#[test]
fn before_the_guard_was_one_step_it_could_stay_up_for_ever() {
    let (m, _) = machine::<Bits64>(1);
    let p = tracing(&m);
    on_cpu(&m, |cpu| {
        let exit = || p.active.as_ref().unwrap().this_cpu_dec(cpu);
        assert!(take_before(cpu, &p, || ()));
        // The holder leaves while another is in the middle of being refused.
        assert!(!take_before(cpu, &p, exit));
        exit();
        assert_eq!(held(&p), [1], "nobody is in");
        assert_eq!(invoke(cpu, &p), None);
    });
}

// Programs without statistics, or without a guard.

#[test]
fn a_timed_run_of_a_program_with_no_stats_follows_the_null_pointer_and_any_other_does_not() {
    let (m, _) = machine::<Bits64>(1);
    let p = BpfProg { stats: None, ..tracing(&m) };
    for form in UPDATES {
        on_cpu(&m, |cpu| form(cpu, &p, 2));
        switch_on(&m);
        on_cpu(&m, |cpu| (form(cpu, &p, 0), form(cpu, &p, NO_START_TIME)));
        assert!(is_bug(m.boot(|smp| smp.run(0, |cpu| form(cpu, &p, 2)))));
        key(&m).slow_dec().unwrap();
    }
    assert_eq!(on_cpu(&m, |cpu| invoke(cpu, &p)), Some(7), "with the key off");
}

#[test]
fn a_miss_of_a_program_with_no_stats_is_skipped() {
    let (m, _) = machine::<Bits64>(1);
    switch_on(&m);
    let p = BpfProg { stats: None, ..tracing(&m) };
    p.active.as_ref().unwrap().per_cpu_ptr(0).set(1);
    assert_eq!(on_cpu(&m, |cpu| invoke(cpu, &p)), None);
    assert_eq!(held(&p), [1]);
    let miss = run_history::before_7dc211c1159d::bpf_prog_inc_misses_counter;
    assert!(is_bug(m.boot(|smp| smp.run(0, |cpu| miss(cpu, &p)))), "before the check it was not");
}

// The choice of variant.

const KINDS: [ProgType; 8] = [
    ProgType::SocketFilter,
    ProgType::RawTracepoint,
    ProgType::Tracing,
    ProgType::TraceIter,
    ProgType::Lsm,
    ProgType::LsmCgroup,
    ProgType::StructOps,
    ProgType::Ext,
];

#[test]
fn the_variant_is_chosen_by_recursion_check_then_lsm_cgroup_then_sleepable() {
    for kind in KINDS {
        let guard = match kind {
            ProgType::TraceIter | ProgType::Lsm | ProgType::LsmCgroup | ProgType::StructOps => false,
            ProgType::SocketFilter | ProgType::RawTracepoint | ProgType::Tracing | ProgType::Ext => true,
        };
        assert_eq!(bpf_prog_check_recur(kind), guard, "{kind:?}");
        let lsm_cgroup = kind == ProgType::LsmCgroup;
        for sleepable in [false, true] {
            let v = machine::<Bits64>(1);
            switch_on(&v.0);
            let p = BpfProg { sleepable, ..prog(&v.0, kind, seven) };
            let (entered, left, nesting) = steps(&v, &p, bpf_trampoline_enter(&p), bpf_trampoline_exit(&p));
            let case = format!("{kind:?}, sleepable: {sleepable}");
            assert_eq!(entered.contains(&"this_cpu_inc_return"), guard, "{case}: guard");
            assert_eq!(left.contains(&"this_cpu_dec"), guard, "{case}: guard at exit");
            assert_eq!(entered.contains(&"clock"), !lsm_cgroup, "{case}: timed");
            assert_eq!(left.contains(&"section_begin"), !lsm_cgroup, "{case}: counted");
            assert_eq!(nesting, if sleepable && !lsm_cgroup { (0, 1) } else { (1, 0) }, "{case}: RCU");
        }
    }
}

#[test]
fn the_lsm_cgroup_pair_is_never_timed_and_never_counts_whatever_the_start() {
    let (m, _) = machine::<Bits64>(1);
    switch_on(&m);
    let p = prog(&m, ProgType::LsmCgroup, seven);
    on_cpu(&m, |cpu| {
        let mut ctx = BpfTrampRunCtx::default();
        assert_eq!(__bpf_prog_enter_lsm_cgroup(cpu, &p, &mut ctx), NO_START_TIME);
        __bpf_prog_exit_lsm_cgroup(cpu, &p, 5000, &mut ctx);
        assert_eq!(invoke(cpu, &p), Some(7));
    });
    assert_eq!(bpf_prog_get_stats(&p), counted(0, 0, 0));
}

#[test]
fn the_shim_that_is_given_type_lsm_takes_the_plain_pair_and_counts() {
    let (m, _) = machine::<Bits64>(1);
    switch_on(&m);
    let shim = prog(&m, ProgType::Lsm, seven);
    assert_eq!(on_cpu(&m, |cpu| invoke(cpu, &shim)), Some(7));
    assert_eq!(bpf_prog_get_stats(&shim), counted(1, RUN, 0));
}

// Migration.

#[test]
fn between_enter_and_exit_the_task_stays_and_is_preemptible_and_after_exit_it_moves() {
    for Variant { enter, exit, .. } in variants::<Bits64>() {
        let stage = Arc::new(Stage::new(2, 5000, &COSTS));
        let m = virt::machine::<Bits64>(Topology::smp(2), stage).unwrap();
        let p = tracing(&m);
        m.boot(|smp| {
            let task = smp.spawn("t", 0, |task| {
                let mut ctx = BpfTrampRunCtx::default();
                let start = enter(task, &p, &mut ctx);
                let (cpu, before) = (task.cpu().smp_processor_id(), task.switches());
                (0..100).for_each(|_| task.cond_resched());
                assert_eq!(task.switches(), (before.0 + 100, before.1), "preempted, not moved");
                assert_eq!(task.cpu().smp_processor_id(), cpu);
                assert_eq!(percpu::preempt_count(task), 0);
                exit(task, &p, start, &mut ctx);
                assert_eq!((task.rcu_nesting(), percpu::preempt_count(task)), ((0, 0), 0));
                // A die decides, each time anew.
                (0..10_000).any(|_| {
                    task.cond_resched();
                    task.switches().1 > before.1
                })
            });
            assert!(task.join().unwrap(), "free to move again");
        });
    }
}
