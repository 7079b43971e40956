//! Models of a CPU that runs a program, and readers elsewhere, over the code that ships.
//!
//! | pattern | 32-bit | 64-bit |
//! |---|---|---|
//! | one writer, one reader, one attempt | what is accepted is one moment's | each counter whole; the pair is not |
//! | the same, reading until it is consistent | one moment's | |
//! | two CPUs, a reader that sums | one moment's, CPU by CPU | |
//! | an interrupt at every point of the update | masked: nothing lost; before `f941eadd8d6d`: lost | |
//! | the key goes on and off while runs happen | counted whole or not at all | |
#![cfg(loom)]

use std::sync::OnceLock;

use filter::clock::SchedClock;
use filter::{BpfCtx, BpfProg, BpfProgStats, Config, ProgType, bpf_prog_get_stats, bpf_prog_run, history};
use jump_label::{AtomicKey, StaticKey};
use percpu::{Cpu, Irq, Machine, NoSteps, Topology};
use stats::u64_stats::read_once;
use stats::{Bits32, Bits32Rt, Bits64, Form, U64Stats};
use sync::local::LocalU64;
use sync::model::{Model, interrupt_at, invariant, note, points_made, reach};

/// Counters start here, so that the first update carries from the low half to the high one.
const START: u64 = 0xFFFF_FFFF;
/// What each run takes: an add that carries too.
const DURATION: u64 = 0x8000_0001;

struct Ticks(LocalU64);

impl SchedClock for Ticks {
    fn sched_clock<K: percpu::Kconfig>(&self, _: &Cpu<K>) -> u64 {
        self.0.set(self.0.get() + DURATION);
        self.0.get()
    }
}

type K<F> = Config<F, Ticks>;

fn body<F: Form>(_: &Cpu<K<F>>, _: &mut BpfCtx<'_>) -> u32 {
    7
}

fn machine<F: Form>(cpus: usize, on: bool) -> (Machine<K<F>>, BpfProg<K<F>>) {
    let m =
        filter::machine::<F, _, AtomicKey, _>(Topology::smp(cpus), NoSteps, Ticks(LocalU64::new(0))).unwrap();
    if on {
        m.globals().bpf_stats_enabled_key.slow_inc().unwrap();
    }
    let mut prog = BpfProg::alloc(m.pcpu(), ProgType::RawTracepoint, body::<F>).unwrap();
    prog.stats = Some(m.alloc_percpu(|_| BpfProgStats::starting_at(START)).unwrap());
    (m, prog)
}

/// One attempt to read CPU `cpu`: an even sequence says how many updates are complete, and so what must be read.
fn read_and_check<F: Form>(prog: &BpfProg<K<F>>, cpu: usize) {
    let s = prog.stats.as_ref().unwrap().per_cpu_ptr(cpu);
    match read_once(&s.syncp, || (s.cnt.read(), s.nsecs.read())) {
        None => reach("again"),
        Some((seq, read)) => {
            let k = u64::from(seq / 2);
            note(format!("accepts {:#x} {:#x} under {seq}", read.0, read.1));
            let one_moment = (START + k, START + k * DURATION);
            invariant("one-moment", read == one_moment, || {
                format!("sequence {seq} says {one_moment:#x?}, read {read:#x?}")
            });
            reach(format!("{k} runs"));
        }
    }
}

fn writer_reader<F: Form>(runs: u32) {
    let (m, prog) = machine::<F>(1, true);
    m.boot(|smp| {
        smp.spawn_outside("reader", || read_and_check(&prog, 0));
        smp.on(0, |cpu| (0..runs).for_each(|_| _ = bpf_prog_run(cpu, &prog, &mut BpfCtx::default())));
    });
    let total = bpf_prog_get_stats(&prog);
    let want = (START + u64::from(runs), START + u64::from(runs) * DURATION);
    invariant("total", (total.cnt, total.nsecs) == want, || format!("{total:x?} at the end"));
}

#[test]
fn writer_and_reader_32_bit() {
    Model::holds("filter::writer_reader_32", &["again", "0 runs", "1 runs"])
        .check(|| writer_reader::<Bits32>(1));
}

#[test]
fn writer_and_reader_32_bit_rt() {
    Model::holds("filter::writer_reader_32_rt", &["again", "0 runs", "1 runs"])
        .check(|| writer_reader::<Bits32Rt>(1));
}

#[test]
fn writer_and_reader_32_bit_two_runs() {
    Model::holds("filter::writer_reader_32_two_runs", &["again", "0 runs", "1 runs", "2 runs"])
        .bounded(3)
        .check(|| writer_reader::<Bits32>(2));
}

#[test]
fn reading_until_it_is_consistent_32_bit() {
    Model::holds("filter::retry_loop_32", &["0 runs", "1 runs"]).bounded(3).check(|| {
        let (m, prog) = machine::<Bits32>(1, true);
        m.boot(|smp| {
            smp.spawn_outside("reader", || {
                let s = bpf_prog_get_stats(&prog);
                let k = s.cnt - START;
                invariant("one-moment", k <= 1 && s.nsecs == START + k * DURATION, || format!("{s:x?}"));
                reach(format!("{k} runs"));
            });
            smp.on(0, |cpu| _ = bpf_prog_run(cpu, &prog, &mut BpfCtx::default()));
        });
    });
}

#[test]
fn two_cpus_and_a_reader_of_both() {
    Model::holds("filter::two_cpus_32", &["again", "0 runs", "1 runs"]).quick(1).bounded(2).check(|| {
        let (m, prog) = machine::<Bits32>(2, true);
        m.boot(|smp| {
            smp.spawn_outside("reader", || (0..2).for_each(|cpu| read_and_check(&prog, cpu)));
            for cpu in 0..2 {
                let prog = &prog;
                smp.on(cpu, move |cpu| _ = bpf_prog_run(cpu, prog, &mut BpfCtx::default()));
            }
        });
    });
}

/// 64-bit: what is read of each counter is a value that it had; of the pair, `together` says whether that must hold too.
fn pair_64(together: bool) {
    let (m, prog) = machine::<Bits64>(1, true);
    m.boot(|smp| {
        smp.spawn_outside("reader", || {
            let s = prog.stats.as_ref().unwrap().per_cpu_ptr(0);
            let (nsecs, cnt) = (s.nsecs.read(), s.cnt.read());
            let whole = |v: u64, step: u64| (v - START).is_multiple_of(step) && (v - START) / step <= 1;
            invariant("whole", whole(cnt, 1) && whole(nsecs, DURATION), || format!("{cnt:#x} {nsecs:#x}"));
            let k = cnt - START;
            reach(format!("{k} runs, {} durations", (nsecs - START) / DURATION));
            if together {
                invariant("pair", nsecs == START + k * DURATION, || format!("{k} runs, {nsecs:#x} ns"));
            }
        });
        smp.on(0, |cpu| _ = bpf_prog_run(cpu, &prog, &mut BpfCtx::default()));
    });
}

#[test]
fn each_64_bit_counter_is_whole() {
    let reach = &["0 runs, 0 durations", "1 runs, 0 durations", "0 runs, 1 durations", "1 runs, 1 durations"];
    Model::holds("filter::whole_64", reach).check(|| pair_64(false));
}

#[test]
fn the_64_bit_pair_is_not_one_moments() {
    Model::breaks("filter::pair_64_fact", "pair").check(|| pair_64(true));
}

/// An interrupt that runs the same program before the `at`-th operation of the run; how many operations there are.
fn interrupted(at: u64, masked: bool, points: &'static OnceLock<u64>) {
    let (m, prog) = machine::<Bits32>(1, true);
    m.boot(|smp| {
        let run = |cpu: &Cpu<K<Bits32>>| match masked {
            true => _ = bpf_prog_run(cpu, &prog, &mut BpfCtx::default()),
            false => {
                _ = history::before_f941eadd8d6d::bpf_prog_run(
                    &cpu.preempt_disable(),
                    &prog,
                    &mut BpfCtx::default(),
                )
            }
        };
        smp.request_irq(Irq(0), run).unwrap();
        smp.spawn_outside("reader", || read_and_check(&prog, 0));
        let m = &m;
        smp.on(0, move |cpu| {
            // Counted now; the model says when it comes.
            m.raise(0, Irq(0));
            interrupt_at(at);
            run(cpu);
            let _ = points.set(points_made());
        });
    });
    let s = prog.stats.as_ref().unwrap().per_cpu_ptr(0);
    let runs = 1 + m.interrupts(0).0;
    let read = read_once(&s.syncp, || (s.cnt.read(), s.nsecs.read()));
    invariant("even", read.is_some(), || "the sequence was left odd: readers wait for ever".into());
    let counted = read.map_or(0, |(_, (cnt, _))| cnt - START);
    invariant("total", counted == runs, || format!("{counted} of {runs} runs counted"));
    reach(if m.interrupts(0).1 > 0 { "deferred" } else { "at once" });
}

#[test]
fn an_interrupt_at_every_point_of_a_masked_update_loses_nothing() {
    static POINTS: OnceLock<u64> = OnceLock::new();
    Model::holds("filter::interrupt_never", &["at once"])
        .quick(1)
        .bounded(2)
        .check(|| interrupted(u64::MAX, true, &POINTS));
    let points = *POINTS.get().unwrap();
    assert!(points > 8, "{points} operations are too few to be the update");
    for at in 0..points {
        let name: &'static str = format!("filter::interrupt_masked_at_{at}").leak();
        Model::holds(name, &[]).quick(1).bounded(2).check(move || interrupted(at, true, &POINTS));
    }
}

#[test]
fn before_irqsave_an_interrupt_inside_the_update_breaks_it() {
    // At the second store of the sequence's begin; which invariant breaks there is part of the fact.
    static POINTS: OnceLock<u64> = OnceLock::new();
    Model::breaks("filter::interrupt_unmasked", "one-moment").check(|| interrupted(4, false, &POINTS));
}

#[test]
fn a_key_that_flips_counts_a_run_whole_or_not_at_all() {
    Model::holds("filter::key_flips", &["counted", "not counted", "0 runs"]).bounded(2).check(|| {
        let (m, prog) = machine::<Bits32>(1, false);
        m.boot(|smp| {
            smp.spawn_outside("sysctl", || {
                let key = &m.globals().bpf_stats_enabled_key;
                key.slow_inc().unwrap();
                key.slow_dec().unwrap();
            });
            smp.spawn_outside("reader", || read_and_check(&prog, 0));
            smp.on(0, |cpu| _ = bpf_prog_run(cpu, &prog, &mut BpfCtx::default()));
        });
        let s = bpf_prog_get_stats(&prog);
        let k = s.cnt - START;
        invariant("whole-run", k <= 1 && s.nsecs == START + k * DURATION, || format!("{s:x?}"));
        reach(if k == 1 { "counted" } else { "not counted" });
    });
}
