//! Models of CPUs that run a program, and a reader elsewhere, over the code that ships.
//!
//! | pattern | 32-bit | 64-bit |
//! |---|---|---|
//! | one CPU, one attempt, 1 and 2 runs | what is accepted is one moment's | |
//! | one CPU, `bpf_prog_get_stats` | one moment's, 1 and 2 runs | each counter whole, 1 to 3 runs; the pair is not |
//! | two CPUs, a reader of each | one moment's, CPU by CPU | |
//! | two CPUs, `bpf_prog_get_stats` | a sum of moments | each sum whole |
#![cfg(loom)]

mod models;

use filter::{BpfCtx, bpf_prog_get_stats, bpf_prog_run};
use models::{DURATION, Knows, START, Ticks, machine, nothing, read_and_check, since_start};
use stats::{Bits32, Bits32Rt, Bits64, Form};
use sync::model::{Model, invariant, reach};

/// Each of `cpus` CPUs makes its runs; a reader tries once to read each.
fn one_attempt<F: Form>(cpus: usize, runs: u64) {
    let (m, prog) = machine::<F, _>(cpus, Ticks::default(), true, nothing);
    m.boot(|smp| {
        let prog = &prog;
        smp.spawn_outside("reader", move || (0..cpus).for_each(|cpu| read_and_check(prog, cpu, Knows::Runs)));
        for cpu in 0..cpus {
            smp.on(cpu, move |cpu| {
                (0..runs).for_each(|_| _ = bpf_prog_run(cpu, prog, &mut BpfCtx::default()))
            });
        }
    });
    let (total, runs) = (bpf_prog_get_stats(&prog), runs * cpus as u64);
    let want = (runs + cpus as u64 * START, runs * DURATION + cpus as u64 * START);
    invariant("total", (total.cnt, total.nsecs) == want, || format!("{total:x?} at the end"));
}

#[test]
fn writer_and_reader_32_bit() {
    Model::holds("filter::writer_reader_32", &["again", "0 runs", "1 runs"])
        .check(|| one_attempt::<Bits32>(1, 1));
}

#[test]
fn writer_and_reader_32_bit_rt() {
    Model::holds("filter::writer_reader_32_rt", &["again", "0 runs", "1 runs"])
        .check(|| one_attempt::<Bits32Rt>(1, 1));
}

#[test]
fn writer_and_reader_32_bit_two_runs() {
    Model::holds("filter::writer_reader_32_two_runs", &["again", "0 runs", "1 runs", "2 runs"])
        .bounded(3)
        .check(|| one_attempt::<Bits32>(1, 2));
}

#[test]
fn two_cpus_and_a_reader_of_both() {
    Model::holds("filter::two_cpus_32", &["again", "0 runs", "1 runs"])
        .quick(1)
        .bounded(2)
        .check(|| one_attempt::<Bits32>(2, 1));
}

/// The same, and the reader asks as the kernel does, which waits and sums. Each sum is a whole number of runs; `together`
/// says whether count and time must be of the same ones.
fn sums<F: Form>(cpus: usize, runs: u64, together: bool) {
    let (m, prog) = machine::<F, _>(cpus, Ticks::default(), true, nothing);
    m.boot(|smp| {
        let prog = &prog;
        smp.spawn_outside("reader", move || {
            let s = since_start(bpf_prog_get_stats(prog), cpus as u64);
            let (durations, most) = (s.nsecs / DURATION, runs * cpus as u64);
            let whole = s.cnt <= most && s.nsecs == durations * DURATION && durations <= most;
            invariant("whole", whole && s.misses == 0, || format!("{s:x?}"));
            if together {
                invariant("one-moment", s.cnt == durations, || format!("{s:x?}"));
            }
            reach(format!("{} runs, {durations} durations", s.cnt));
        });
        for cpu in 0..cpus {
            smp.on(cpu, move |cpu| {
                (0..runs).for_each(|_| _ = bpf_prog_run(cpu, prog, &mut BpfCtx::default()))
            });
        }
    });
}

/// What a reader of counters of up to `n` runs each may see, if each is of any moment.
fn any_moments(n: u64) -> &'static [&'static str] {
    let of = |cnt| (0..=n).map(move |time| &*format!("{cnt} runs, {time} durations").leak());
    (0..=n).flat_map(of).collect::<Vec<_>>().leak()
}

#[test]
fn reading_until_it_is_consistent_32_bit() {
    let reached = &["0 runs, 0 durations", "1 runs, 1 durations"];
    Model::holds("filter::retry_loop_32", reached).bounded(3).check(|| sums::<Bits32>(1, 1, true));
}

#[test]
fn reading_until_it_is_consistent_32_bit_two_runs() {
    let reached = &["0 runs, 0 durations", "1 runs, 1 durations", "2 runs, 2 durations"];
    Model::holds("filter::retry_loop_32_two_runs", reached)
        .quick(1)
        .bounded(2)
        .check(|| sums::<Bits32>(1, 2, true));
}

#[test]
fn two_cpus_and_a_reader_that_sums_32_bit() {
    let reached = &["0 runs, 0 durations", "1 runs, 1 durations", "2 runs, 2 durations"];
    Model::holds("filter::two_cpus_summed_32", reached)
        .quick(1)
        .bounded(1)
        .check(|| sums::<Bits32>(2, 1, true));
}

#[test]
fn each_64_bit_counter_is_whole() {
    Model::holds("filter::whole_64", any_moments(1)).check(|| sums::<Bits64>(1, 1, false));
    Model::holds("filter::whole_64_two_runs", any_moments(2)).check(|| sums::<Bits64>(1, 2, false));
    Model::holds("filter::whole_64_three_runs", any_moments(3)).check(|| sums::<Bits64>(1, 3, false));
}

#[test]
fn the_64_bit_pair_is_not_one_moments() {
    for (name, runs) in [("filter::pair_64_fact", 1), ("filter::pair_64_fact_two_runs", 2)] {
        Model::breaks(name, "one-moment").check(move || sums::<Bits64>(1, runs, true));
    }
}

#[test]
fn two_cpus_and_a_reader_that_sums_64_bit() {
    Model::holds("filter::two_cpus_summed_64", any_moments(2)).check(|| sums::<Bits64>(2, 1, false));
}
