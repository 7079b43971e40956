//! The run path's facts: what is counted, in which order, and what happens where something is missing.
//!
//! Most run on virtual machines, where each step is recorded and costs what the test says: times are exact.

use std::sync::{Arc, OnceLock};

use filter::clock::{OrderedTsc, OtherClock, SchedClock};
use filter::prog::BPF_SKB_CB_LEN;
use filter::virt::{self, AnnouncedFunc, VirtualConfig};
use filter::{
    BpfCtx, BpfFunc, BpfProg, BpfProgKstats, BpfProgStats, Config, Kconfig, ProgType, bpf_prog_get_stats,
    bpf_prog_inc_misses_counter, bpf_prog_run, bpf_prog_run_clear_cb, bpf_prog_run_pin_on_cpu,
    bpf_prog_run_save_cb, history, stats_enabled,
};
use jump_label::{AtomicKey, StaticKey};
use percpu::{Cpu, CpuPanic, Irq, Machine, NoSteps, Stage, Task, Topology};
use stats::{Bits32, Bits32Rt, Bits64, Form, U64Stats};
use sync::host::{AtomicU32, Ordering::SeqCst};

/// What a virtual clock read and a program's run cost, in ns.
const CLOCK: u64 = 10;
const CALL: u64 = 100;
/// The duration of a run: its call, and of the two clock reads one.
const RUN: u64 = CALL + CLOCK;
const COSTS: [(&str, u64); 2] = [("clock", CLOCK), ("call", CALL)];

/// The 32-bit form with its words' stores recorded.
type Words32 = Bits32<stats::virt::Word>;

type V<F> = VirtualConfig<F>;

/// A virtual machine of one CPU and its stage.
fn one_cpu<F: Form>() -> (Machine<V<F>>, Arc<Stage>) {
    let stage = Arc::new(Stage::new(1, 1000, &COSTS).recorded());
    (virt::machine(Topology::smp(1), stage.clone()).unwrap(), stage)
}

fn key<K: Kconfig>(m: &Machine<K>) -> &K::StatsKey {
    &K::globals(m.globals()).bpf_stats_enabled_key
}

fn switch_on<K: Kconfig>(m: &Machine<K>) {
    key(m).slow_inc().unwrap();
}

fn prog<K: Kconfig>(
    m: &Machine<K>,
    f: impl Fn(&Cpu<K>, &mut BpfCtx<'_>) -> u32 + Send + Sync + 'static,
) -> BpfProg<K> {
    BpfProg::alloc(m.pcpu(), ProgType::RawTracepoint, AnnouncedFunc(f)).unwrap()
}

fn seven<K: Kconfig>(_: &Cpu<K>, _: &mut BpfCtx<'_>) -> u32 {
    7
}

/// A program as the placeholder of program arrays: no statistics.
fn without_stats<K: Kconfig>(m: &Machine<K>) -> BpfProg<K> {
    BpfProg::alloc_no_stats(m.pcpu(), ProgType::RawTracepoint, AnnouncedFunc(seven)).unwrap()
}

/// Does `f` on CPU 0.
fn on_cpu<K: Kconfig, R: Send>(m: &Machine<K>, f: impl FnOnce(&Cpu<K>) -> R + Send) -> R {
    m.boot(|smp| smp.run(0, f).unwrap())
}

/// The steps that `f` makes on CPU 0.
fn steps<F: Form>(
    (m, stage): &(Machine<V<F>>, Arc<Stage>),
    f: impl FnOnce(&Cpu<V<F>>) + Send,
) -> Vec<&'static str> {
    on_cpu(m, |cpu| {
        stage.take_timeline();
        f(cpu);
        stage.take_timeline().into_iter().map(|e| e.step).collect()
    })
}

fn run<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>) -> u32 {
    bpf_prog_run(cpu, prog, &mut BpfCtx::default())
}

fn before_the_seed<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>) -> u32 {
    history::before_ce09cbdd9888::bpf_prog_run(cpu, prog, &mut BpfCtx::default())
}

fn before_the_check<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>) -> u32 {
    let mut ctx = BpfCtx::default();
    history::before_7dc211c1159d::__bpf_prog_run(cpu, prog, &mut ctx, filter::bpf_dispatcher_nop_func)
}

fn before_irqsave<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>) -> u32 {
    history::before_f941eadd8d6d::bpf_prog_run(&cpu.preempt_disable(), prog, &mut BpfCtx::default())
}

fn counted(cnt: u64, nsecs: u64) -> BpfProgKstats {
    BpfProgKstats { cnt, nsecs, misses: 0 }
}

/// It panicked where the kernel would have followed a null per-CPU pointer.
fn is_bug<R: std::fmt::Debug>(r: Result<R, CpuPanic>) -> bool {
    r.unwrap_err().message.starts_with("BUG")
}

// The order of steps.

#[test]
fn with_the_key_off_the_program_is_called_and_nothing_else() {
    let v = one_cpu::<Bits64>();
    let p = prog(&v.0, seven);
    for form in [run, before_the_seed, before_the_check, before_irqsave] {
        assert_eq!(steps(&v, |cpu| assert_eq!(form(cpu, &p), 7)), ["key", "call"]);
    }
    assert_eq!(bpf_prog_get_stats(&p), counted(0, 0));
}

#[test]
fn the_duration_is_taken_at_once_after_the_call_and_before_the_update() {
    let v = one_cpu::<Bits64>();
    switch_on(&v.0);
    let p = prog(&v.0, seven);
    let expected =
        ["key", "clock", "call", "clock", "this_cpu_ptr", "section_begin", "cnt", "nsecs", "section_end"];
    assert_eq!(steps(&v, |cpu| assert_eq!(run(cpu, &p), 7)), expected);
    assert_eq!(bpf_prog_get_stats(&p), counted(1, RUN));
}

#[test]
fn on_32_bit_the_update_stands_in_a_masked_section_under_an_odd_sequence() {
    let v = one_cpu::<Words32>();
    switch_on(&v.0);
    let p = prog(&v.0, seven);
    let expected = [
        "key",
        "clock",
        "call",
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
    ];
    assert_eq!(steps(&v, |cpu| assert_eq!(run(cpu, &p), 7)), expected);
    assert_eq!(bpf_prog_get_stats(&p), counted(1, RUN));
}

#[test]
fn before_the_seed_the_second_clock_stood_after_the_section_began_and_the_count() {
    let v = one_cpu::<Bits64>();
    switch_on(&v.0);
    let p = prog(&v.0, seven);
    let expected =
        ["key", "clock", "call", "this_cpu_ptr", "section_begin", "cnt", "clock", "nsecs", "section_end"];
    assert_eq!(steps(&v, |cpu| assert_eq!(before_the_seed(cpu, &p), 7)), expected);
}

#[test]
fn before_the_seed_the_time_held_the_updates_first_half() {
    let costs = [("clock", CLOCK), ("call", CALL), ("section_begin", 7), ("cnt", 50), ("nsecs", 1000)];
    let stage = Arc::new(Stage::new(1, 1000, &costs));
    let m = virt::machine::<Bits64>(Topology::smp(1), stage).unwrap();
    switch_on(&m);
    let (before, after) = (prog(&m, seven), prog(&m, seven));
    on_cpu(&m, |cpu| (before_the_seed(cpu, &before), run(cpu, &after)));
    assert_eq!(bpf_prog_get_stats(&before), counted(1, RUN + 57));
    assert_eq!(bpf_prog_get_stats(&after), counted(1, RUN));
}

#[test]
fn before_irqsave_the_update_masked_nothing() {
    let v = one_cpu::<Words32>();
    switch_on(&v.0);
    let p = prog(&v.0, seven);
    let steps = steps(&v, |cpu| assert_eq!(before_irqsave(cpu, &p), 7));
    assert!(steps.contains(&"seq") && !steps.contains(&"irq_save"), "{steps:?}");
    assert_eq!(bpf_prog_get_stats(&p), counted(1, RUN));
}

#[test]
fn a_pinned_run_is_pinned_around_all_of_it() {
    let v = one_cpu::<Bits64>();
    let p = prog(&v.0, seven);
    let steps = steps(&v, |cpu| assert_eq!(bpf_prog_run_pin_on_cpu(cpu, &p, &mut BpfCtx::default()), 7));
    assert_eq!(steps, ["migrate_disable", "key", "call", "migrate_enable"]);
}

// The key.

/// One run of a program that turns the key off and on: what was counted of it.
fn toggled(from: bool, flips: &'static [bool]) -> BpfProgKstats {
    let (m, _) = one_cpu::<Bits64>();
    let p = prog(&m, move |cpu, _| {
        for &on in flips {
            let key = &cpu.globals().bpf_stats_enabled_key;
            if on { key.slow_inc() } else { key.slow_dec() }.unwrap();
        }
        7
    });
    if from {
        switch_on(&m);
    }
    on_cpu(&m, |cpu| assert_eq!(run(cpu, &p), 7));
    bpf_prog_get_stats(&p)
}

#[test]
fn a_run_that_began_with_the_key_off_is_not_counted() {
    assert_eq!(toggled(false, &[]), counted(0, 0));
    assert_eq!(toggled(false, &[true]), counted(0, 0), "off to on");
    assert_eq!(toggled(false, &[true, false]), counted(0, 0));
}

#[test]
fn a_run_that_began_with_the_key_on_is_counted_in_full() {
    assert_eq!(toggled(true, &[]), counted(1, RUN));
    assert_eq!(toggled(true, &[false]), counted(1, RUN), "on to off");
    assert_eq!(toggled(true, &[false, true]), counted(1, RUN), "on, off, on");
}

#[test]
fn each_program_of_an_array_tests_the_key_by_itself() {
    let (m, _) = one_cpu::<Bits64>();
    let flips = |cpu: &Cpu<V<Bits64>>, _: &mut BpfCtx<'_>| {
        cpu.globals().bpf_stats_enabled_key.slow_inc().unwrap();
        0
    };
    let array = [prog(&m, seven), prog(&m, flips), prog(&m, seven)];
    on_cpu(&m, |cpu| array.iter().for_each(|p| _ = run(cpu, p)));
    assert_eq!(array.map(|p| bpf_prog_get_stats(&p).cnt), [0, 0, 1]);
}

#[test]
fn the_key_is_on_while_anybody_has_it_on() {
    let (m, _) = one_cpu::<Bits64>();
    let p = prog(&m, seven);
    let run_once = || on_cpu(&m, |cpu| (run(cpu, &p), stats_enabled(cpu)).1);
    switch_on(&m);
    switch_on(&m);
    key(&m).slow_dec().unwrap();
    assert!(run_once());
    key(&m).slow_dec().unwrap();
    assert!(!run_once());
    assert_eq!(bpf_prog_get_stats(&p).cnt, 1);
}

// Programs without statistics.

#[test]
fn with_no_stats_the_clocks_and_the_call_happen_and_the_update_is_skipped() {
    let v = one_cpu::<Bits64>();
    switch_on(&v.0);
    let p = without_stats(&v.0);
    assert_eq!(steps(&v, |cpu| assert_eq!(run(cpu, &p), 7)), ["key", "clock", "call", "clock"]);
}

#[test]
fn a_miss_of_a_program_with_no_stats_is_skipped() {
    let v = one_cpu::<Bits64>();
    let p = without_stats(&v.0);
    assert!(steps(&v, |cpu| bpf_prog_inc_misses_counter(cpu, &p)).is_empty());
}

#[test]
fn the_forms_without_the_check_follow_the_null_pointer_but_only_with_the_key_on() {
    let (m, _) = one_cpu::<Bits64>();
    let p = without_stats(&m);
    for form in [before_the_seed, before_the_check, before_irqsave] {
        on_cpu(&m, |cpu| assert_eq!(form(cpu, &p), 7));
        switch_on(&m);
        assert!(is_bug(m.boot(|smp| smp.run(0, |cpu| form(cpu, &p)))));
        key(&m).slow_dec().unwrap();
    }
}

#[test]
fn before_the_check_a_miss_followed_the_null_pointer_also_with_the_key_off() {
    let (m, _) = one_cpu::<Bits64>();
    let p = without_stats(&m);
    let miss = history::before_7dc211c1159d::bpf_prog_inc_misses_counter;
    assert!(is_bug(m.boot(|smp| smp.run(0, |cpu| miss(cpu, &p)))));
}

#[test]
fn reading_the_stats_of_a_program_with_none_is_not_checked() {
    let (m, _) = one_cpu::<Bits64>();
    let p = without_stats(&m);
    assert!(is_bug(m.boot(|smp| smp.run(0, |_| bpf_prog_get_stats(&p)))));
}

// What the time holds.

#[test]
fn a_nested_program_is_counted_twice_in_time() {
    let (m, _) = one_cpu::<Bits64>();
    switch_on(&m);
    let inner = Arc::new(prog(&m, seven));
    let outer = prog(&m, {
        let inner = inner.clone();
        move |cpu, _| run(cpu, &inner)
    });
    on_cpu(&m, |cpu| run(cpu, &outer));
    assert_eq!(bpf_prog_get_stats(&inner), counted(1, RUN));
    assert_eq!(bpf_prog_get_stats(&outer), counted(1, RUN + CLOCK + RUN));
}

#[test]
fn the_run_path_has_no_recursion_guard() {
    let (m, _) = one_cpu::<Bits64>();
    switch_on(&m);
    static THIS: OnceLock<BpfProg<V<Bits64>>> = OnceLock::new();
    let p = prog(&m, |cpu, ctx| {
        ctx.mem[0] -= 1;
        if ctx.mem[0] > 0 { bpf_prog_run(cpu, THIS.get().unwrap(), ctx) } else { 7 }
    });
    let p = THIS.get_or_init(|| p);
    on_cpu(&m, |cpu| assert_eq!(bpf_prog_run(cpu, p, &mut BpfCtx::new(&mut [3])), 7));
    let lasts = [RUN, RUN + (RUN + CLOCK), RUN + 2 * (RUN + CLOCK)];
    assert_eq!(bpf_prog_get_stats(p), counted(3, lasts.iter().sum()));
}

#[test]
fn the_time_holds_the_interrupts_that_came_in_between() {
    let (m, stage) = one_cpu::<Bits64>();
    switch_on(&m);
    let p = prog(&m, |cpu, _| {
        cpu.machine().raise(0, Irq(0));
        7
    });
    m.boot(|smp| {
        smp.request_irq(Irq(0), |cpu| stage.advance(cpu.smp_processor_id(), 5000)).unwrap();
        smp.run(0, |cpu| run(cpu, &p)).unwrap();
    });
    assert_eq!(bpf_prog_get_stats(&p), counted(1, RUN + 5000));
}

#[test]
fn the_time_holds_what_other_tasks_did_while_it_was_preempted() {
    const RUNNING: u32 = 1;
    const DONE: u32 = 2;
    let (m, stage) = one_cpu::<Bits64>();
    switch_on(&m);
    let at = Arc::new(AtomicU32::new(0));
    let p = prog(&m, {
        let at = at.clone();
        move |cpu, _| {
            at.store(RUNNING, SeqCst);
            while at.load(SeqCst) != DONE {
                cpu.cond_resched(); // pinned, and preemptible
            }
            7
        }
    });
    m.boot(|smp| {
        let run = smp.spawn("runs", 0, |task| bpf_prog_run_pin_on_cpu(task, &p, &mut BpfCtx::default()));
        let other = smp.spawn("other", 0, |task| {
            while at.load(SeqCst) != RUNNING {
                task.cond_resched();
            }
            stage.advance(0, 5000);
            at.store(DONE, SeqCst);
        });
        other.join().unwrap();
        assert_eq!(run.join().unwrap(), 7);
    });
    assert_eq!(bpf_prog_get_stats(&p), counted(1, RUN + 5000));
}

/// What is counted of a program that takes `ns` more.
fn lasting<F: Form>(ns: u64) -> BpfProgKstats {
    let (m, stage) = one_cpu::<F>();
    switch_on(&m);
    let p = prog(&m, move |cpu, _| {
        stage.advance(cpu.smp_processor_id(), ns);
        7
    });
    on_cpu(&m, |cpu| run(cpu, &p));
    bpf_prog_get_stats(&p)
}

#[test]
fn on_32_bit_a_duration_loses_its_high_half_and_on_64_bit_it_does_not() {
    const LONG: u64 = 3 << 32;
    assert_eq!(lasting::<Bits64>(LONG), counted(1, LONG + RUN));
    assert_eq!(lasting::<Bits32>(LONG), counted(1, RUN));
    assert_eq!(lasting::<Bits32Rt>(LONG), counted(1, RUN));
    let longest = (1 << 32) - 1 - RUN;
    assert_eq!(lasting::<Bits32>(longest), counted(1, u64::from(u32::MAX)), "the longest that is whole");
}

#[test]
fn a_duration_is_a_wrapping_difference_of_two_clock_reads() {
    let back = 0u64.wrapping_sub(RUN + 5);
    assert_eq!(lasting::<Bits64>(back), counted(1, u64::MAX - 4), "the clock went back by 5");
}

/// A machine of two CPUs with a clock of the host's, statistics on.
fn with_clock<C: SchedClock>(clock: C) -> Machine<Config<Bits64, C>> {
    let m = filter::machine::<Bits64, _, AtomicKey, _>(Topology::smp(2), NoSteps, clock).unwrap();
    switch_on(&m);
    m
}

#[test]
fn a_duration_of_0_is_legal() {
    let m = with_clock(OtherClock::Zero);
    let p = prog(&m, seven);
    on_cpu(&m, |cpu| (run(cpu, &p), run(cpu, &p)));
    assert_eq!(bpf_prog_get_stats(&p), counted(2, 0));
}

#[test]
fn clocks_of_different_cpus_are_not_compared() {
    let Ok(tsc) = OrderedTsc::new() else { return };
    // A century apart, and a run takes its duration on one CPU.
    const CENTURY: u64 = 3_155_760_000_000_000_000;
    let m = with_clock(OtherClock::Skewed(tsc, CENTURY));
    let p = prog(&m, seven);
    m.boot(|smp| smp.on_each_cpu(|cpu| run(cpu, &p)));
    let stats = bpf_prog_get_stats(&p);
    assert!(stats.cnt == 2 && stats.nsecs < CENTURY / 2, "{stats:?}");
}

// The counters.

/// A program by hand, whose counters start at `from(cpu)`.
fn starting<K: Kconfig>(m: &Machine<K>, from: impl Fn(usize) -> u64) -> BpfProg<K> {
    let stats = m.alloc_percpu(|cpu| BpfProgStats::starting_at(from(cpu))).unwrap();
    BpfProg { stats: Some(stats), ..prog(m, seven) }
}

#[test]
fn a_run_is_counted_on_its_own_cpu_and_there_alone() {
    let stage = Arc::new(Stage::new(3, 1000, &COSTS));
    let m = virt::machine::<Bits64>(Topology::smp(3), stage).unwrap();
    switch_on(&m);
    let p = prog(&m, seven);
    m.boot(|smp| smp.run(1, |cpu| (run(cpu, &p), bpf_prog_inc_misses_counter(cpu, &p))).unwrap());
    let each = |of: fn(&BpfProgStats<V<Bits64>>) -> u64| -> Vec<u64> {
        p.stats.as_ref().unwrap().iter_possible().map(of).collect()
    };
    assert_eq!(each(|s| s.cnt.read()), [0, 1, 0]);
    assert_eq!(each(|s| s.nsecs.read()), [0, RUN, 0]);
    assert_eq!(each(|s| s.misses.read()), [0, 1, 0]);
}

fn wraps<F: Form>() {
    let stage = Arc::new(Stage::new(2, 1000, &COSTS));
    let m = virt::machine::<F>(Topology::smp(2), stage).unwrap();
    switch_on(&m);
    let near = starting(&m, |_| u64::MAX - 2);
    m.boot(|smp| smp.on_each_cpu(|cpu| (0..4).for_each(|_| _ = run(cpu, &near))));
    // Each CPU's own counter has passed the end.
    let sum = bpf_prog_get_stats(&near);
    assert_eq!((sum.cnt, sum.nsecs), (2, 2 * (4 * RUN - 3)));
    assert_eq!(sum.misses, (u64::MAX - 2).wrapping_mul(2), "the sum over CPUs wraps too");
}

#[test]
fn counters_and_their_sums_wrap_around() {
    wraps::<Bits64>();
    wraps::<Bits32>();
    wraps::<Bits32Rt>();
}

#[test]
fn the_counters_of_offline_cpus_count() {
    let stage = Arc::new(Stage::new(4, 1000, &COSTS));
    let m = virt::machine::<Bits32>(Topology::with_possible(1, 4), stage).unwrap();
    let p = starting(&m, |cpu| 10u64.pow(cpu as u32));
    assert_eq!(bpf_prog_get_stats(&p), BpfProgKstats { cnt: 1111, nsecs: 1111, misses: 1111 });
}

#[test]
fn reading_the_stats_resets_nothing() {
    let (m, _) = one_cpu::<Bits32>();
    let p = starting(&m, |_| 5);
    assert_eq!(bpf_prog_get_stats(&p), bpf_prog_get_stats(&p));
}

#[test]
fn a_miss_counts_with_the_key_off_and_adds_no_run() {
    let v = one_cpu::<Words32>();
    let p = prog(&v.0, seven);
    let expected = [
        "this_cpu_ptr",
        "section_begin",
        "irq_save",
        "seq",
        "misses",
        "misses.lo",
        "misses.hi",
        "seq",
        "irq_restore",
        "section_end",
    ];
    for (misses, on) in [(1, false), (2, true)] {
        if on {
            switch_on(&v.0);
        }
        assert_eq!(steps(&v, |cpu| bpf_prog_inc_misses_counter(cpu, &p)), expected);
        assert_eq!(bpf_prog_get_stats(&p), BpfProgKstats { misses, ..counted(0, 0) });
    }
}

#[test]
fn the_stats_of_a_cpu_are_32_bytes_aligned_to_16() {
    fn layout<F: Form>() -> (usize, usize) {
        type Plain<F> = Config<F, OtherClock>;
        (size_of::<BpfProgStats<Plain<F>>>(), align_of::<BpfProgStats<Plain<F>>>())
    }
    assert_eq!(
        [layout::<Bits64>(), layout::<Bits32>(), layout::<Bits32Rt>()],
        [(32, 16), (32, 16), (32, 16)]
    );
}

#[test]
fn two_cpus_never_share_a_line_of_one_programs_stats() {
    let stage = Arc::new(Stage::new(2, 1000, &COSTS));
    let m = virt::machine::<Bits64>(Topology::smp(2), stage).unwrap();
    let line = |s: &BpfProgStats<V<Bits64>>| std::ptr::from_ref(s).addr() / 64;
    let programs: Vec<_> = (0..8).map(|_| prog(&m, seven)).collect();
    let lines = |cpu| -> Vec<usize> {
        programs.iter().map(|p| line(p.stats.as_ref().unwrap().per_cpu_ptr(cpu))).collect()
    };
    assert!(lines(0).iter().all(|l| !lines(1).contains(l)));
    let mut of_one = lines(0);
    of_one.dedup();
    assert!(of_one.len() < 8, "programs of one CPU pack: {of_one:?}");
}

// Allocation.

#[test]
fn an_allocation_that_fails_anywhere_leaks_nothing() {
    let (m, _) = one_cpu::<Bits64>();
    let alloc = || BpfProg::<V<Bits64>>::alloc(m.pcpu(), ProgType::RawTracepoint, seven);
    let before = m.pcpu().used();
    // The guard and the statistics.
    for n in 1..=2 {
        m.pcpu().fail_nth(n);
        assert!(alloc().is_err(), "allocation {n} fails");
        assert_eq!(m.pcpu().used(), before, "allocation {n} failed");
    }
    m.pcpu().fail_nth(3);
    let p = alloc().unwrap();
    m.pcpu().fail_nth(0);
    assert!(m.pcpu().used() > before);
    drop(p);
    assert_eq!(m.pcpu().used(), before);
}

#[test]
fn a_subprogram_has_a_guard_and_no_stats() {
    let (m, _) = one_cpu::<Bits64>();
    let p = without_stats(&m);
    assert!(p.active.is_some() && p.stats.is_none());
    let p = prog(&m, seven);
    assert!(p.active.is_some() && p.stats.is_some());
    let before = m.pcpu().used();
    m.pcpu().fail_nth(1);
    assert!(BpfProg::<V<Bits64>>::alloc_no_stats(m.pcpu(), ProgType::RawTracepoint, seven).is_err());
    assert_eq!(m.pcpu().used(), before);
}

// The callers.

#[test]
fn a_run_that_may_move_taints_in_debug_builds_and_never_stops() {
    let (m, _) = one_cpu::<Bits64>();
    let p = prog(&m, seven);
    m.boot(|smp| {
        let task = smp.spawn("t", 0, |task| {
            drop(task.migrate_disable());
            run(&task.migrate_disable(), &p);
            run(&task.preempt_disable(), &p);
            let masked = task.irq_save();
            run(task.raw_cpu(), &p);
            drop(masked);
            assert_eq!(m.taints(), 0, "each of the three pins");
            assert_eq!(run(task.raw_cpu(), &p), 7);
        });
        task.join().unwrap();
    });
    assert_eq!(m.taints(), u64::from(cfg!(debug_assertions)));
}

#[test]
fn a_run_returns_the_low_half_of_r0() {
    // By its type: nothing above 32 bits comes out of a program's text, nor of its run.
    let (m, _) = one_cpu::<Bits64>();
    let p = prog(&m, |_, _| 0x5_FFFF_FFFF_u64 as u32);
    on_cpu(&m, |cpu| {
        let r0: u32 = bpf_prog_run(cpu, &p, &mut BpfCtx::default());
        assert_eq!(r0, u32::MAX);
        let text: &dyn BpfFunc<V<Bits64>> = &*p.bpf_func;
        assert_eq!(text.call(cpu, &mut BpfCtx::default()), r0);
        switch_on(cpu.machine());
        assert_eq!(run(cpu, &p), u32::MAX);
    });
}

/// The control block as the program saw it, and as it was after the run.
fn control_block(
    cb_access: bool,
    run: impl Fn(&Task<V<Bits64>>, &BpfProg<V<Bits64>>, &mut BpfCtx<'_>) -> u32 + Sync,
) -> ([u8; BPF_SKB_CB_LEN], [u8; BPF_SKB_CB_LEN]) {
    let (m, _) = one_cpu::<Bits64>();
    let seen = Arc::new(std::sync::Mutex::new([0xFF; BPF_SKB_CB_LEN]));
    let mut p = prog(&m, {
        let seen = seen.clone();
        move |_, ctx| {
            let cb = ctx.cb.as_deref_mut().unwrap();
            *seen.lock().unwrap() = *cb;
            *cb = [2; BPF_SKB_CB_LEN];
            7
        }
    });
    p.cb_access = cb_access;
    let mut cb = [1; BPF_SKB_CB_LEN];
    m.boot(|smp| {
        let task = smp.spawn("t", 0, |task| {
            let mut ctx = BpfCtx { cb: Some(&mut cb), ..Default::default() };
            let r0: u32 = run(task, &p, &mut ctx);
            assert_eq!(r0, 7);
            percpu::cant_migrate(task.raw_cpu());
        });
        task.join().unwrap();
    });
    assert_eq!(m.taints(), u64::from(cfg!(debug_assertions)), "pinned inside, not after");
    let seen = *seen.lock().unwrap();
    (seen, cb)
}

#[test]
fn save_cb_zeroes_the_control_block_for_a_program_that_uses_it_and_puts_it_back() {
    assert_eq!(control_block(true, bpf_prog_run_save_cb), ([0; 20], [1; 20]));
    assert_eq!(control_block(false, bpf_prog_run_save_cb), ([1; 20], [2; 20]), "others have it as it is");
}

#[test]
fn clear_cb_zeroes_the_control_block_and_does_not_put_it_back() {
    assert_eq!(control_block(true, bpf_prog_run_clear_cb), ([0; 20], [2; 20]));
    assert_eq!(control_block(false, bpf_prog_run_clear_cb), ([1; 20], [2; 20]));
}

#[test]
fn a_context_without_a_control_block_is_run_as_it_is() {
    let (m, _) = one_cpu::<Bits64>();
    let p = BpfProg { cb_access: true, ..prog(&m, seven) };
    on_cpu(&m, |cpu| {
        assert_eq!(bpf_prog_run_save_cb(cpu, &p, &mut BpfCtx::default()), 7);
        assert_eq!(bpf_prog_run_clear_cb(cpu, &p, &mut BpfCtx::default()), 7);
    });
}
