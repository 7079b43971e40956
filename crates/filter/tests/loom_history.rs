//! Models of the older forms of the run path, each beside today's (that of `f941eadd8d6d`: `loom_interrupt.rs`).
//!
//! | pattern | before | today |
//! |---|---|---|
//! | `ce09cbdd9888`: a clock of operations, a reader | the time holds 7 of the update | the program's alone |
//! | `7dc211c1159d`: no statistics, the key goes on | a null per-CPU pointer is followed | timed, not counted |
//! | the same, a miss | followed, also with the key off | skipped |
#![cfg(loom)]

mod models;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use filter::{
    BpfCtx, BpfProg, Kconfig, bpf_dispatcher_nop_func, bpf_prog_inc_misses_counter, bpf_prog_run, history,
    sched_clock,
};
use jump_label::StaticKey;
use models::{DURATION, K, Run, Ticks, machine, nothing, times_the_program};
use percpu::Cpu;
use stats::Bits32;
use sync::model::{Model, invariant, reach};
use sync::thread::panic_message;

fn today<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>) {
    bpf_prog_run(cpu, prog, &mut BpfCtx::default());
}

fn before_the_seed<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>) {
    history::before_ce09cbdd9888::bpf_prog_run(cpu, prog, &mut BpfCtx::default());
}

fn before_the_check<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>) {
    let mut ctx = BpfCtx::default();
    history::before_7dc211c1159d::__bpf_prog_run(cpu, prog, &mut ctx, bpf_dispatcher_nop_func);
}

#[test]
fn the_time_is_the_programs_alone() {
    Model::holds("filter::time_today", &["0 runs", "1 runs"]).check(|| times_the_program(today, 0));
}

#[test]
fn before_the_seed_the_time_held_the_updates_first_half() {
    Model::breaks("filter::time_before_ce09cbdd9888", "time").check(|| times_the_program(before_the_seed, 0));
    // The sequence read and stored, its fence, and both halves of the count read and stored.
    Model::holds("filter::time_before_ce09cbdd9888_fact", &["0 runs", "1 runs"])
        .check(|| times_the_program(before_the_seed, 7));
}

/// A program without statistics, while the key goes on.
fn without_stats(f: Run<K<Bits32>>) {
    let (m, mut prog) = machine::<Bits32, _>(1, Ticks::default(), false, nothing);
    prog.stats = None;
    m.boot(|smp| {
        smp.spawn_outside("sysctl", || m.globals().bpf_stats_enabled_key.slow_inc().unwrap());
        let prog = &prog;
        smp.on(0, move |cpu| {
            let before = sched_clock(cpu);
            // A panic would end the model with no name.
            let Err(payload) = catch_unwind(AssertUnwindSafe(|| f(cpu, prog))) else {
                let reads = (sched_clock(cpu) - before) / DURATION - 1;
                return reach(format!("{reads} clock reads"));
            };
            let message = panic_message(&*payload).to_owned();
            invariant("null-pointer", !message.starts_with("BUG"), || message);
            resume_unwind(payload);
        });
    });
}

#[test]
fn a_program_without_statistics_is_timed_and_not_counted() {
    Model::holds("filter::no_stats_today", &["0 clock reads", "2 clock reads"])
        .check(|| without_stats(today));
    Model::holds("filter::no_stats_miss_today", &["0 clock reads"])
        .check(|| without_stats(bpf_prog_inc_misses_counter));
}

#[test]
fn before_the_check_the_null_pointer_was_followed() {
    Model::breaks("filter::no_stats_before_7dc211c1159d", "null-pointer")
        .check(|| without_stats(before_the_check));
    Model::breaks("filter::no_stats_miss_before_7dc211c1159d", "null-pointer")
        .check(|| without_stats(history::before_7dc211c1159d::bpf_prog_inc_misses_counter));
}
