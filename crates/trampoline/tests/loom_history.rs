//! Models of an older form of enter and exit beside today's (the others: `loom_interrupt.rs`, `loom_tasks.rs`).
//!
//! | pattern | before `ce09cbdd9888` | today |
//! |---|---|---|
//! | a clock of operations, a reader | the time holds 7 of the update | the program's, and the key's test |
#![cfg(loom)]

#[path = "../../filter/tests/models/mod.rs"]
mod models;

use filter::{BpfCtx, BpfProg, Kconfig};
use models::times_the_program;
use percpu::Cpu;
use sync::model::Model;
use trampoline::trampoline::{__bpf_prog_enter_recur, __bpf_prog_exit_recur};
use trampoline::{BpfTrampRunCtx, history, invoke_bpf_prog};

fn today<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>) {
    invoke_bpf_prog(cpu, prog, 0, &mut BpfCtx::default());
}

/// The older update between enter and an exit that counts nothing.
fn before_the_seed<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>) {
    let mut run_ctx = BpfTrampRunCtx::new(0);
    let start = __bpf_prog_enter_recur(cpu, prog, &mut run_ctx);
    prog.bpf_func.call(cpu, &mut BpfCtx::default());
    history::before_ce09cbdd9888::update_prog_stats(cpu, prog, start);
    __bpf_prog_exit_recur(cpu, prog, 0, &mut run_ctx);
}

/// Exit tests the key before it reads the clock.
const KEY: u64 = 1;

#[test]
fn the_time_is_the_programs_and_the_tests_of_the_key() {
    Model::holds("trampoline::time_today", &["0 runs", "1 runs"]).check(|| times_the_program(today, KEY));
}

#[test]
fn before_the_seed_the_time_held_the_updates_first_half() {
    Model::breaks("trampoline::time_before_ce09cbdd9888", "time")
        .check(|| times_the_program(before_the_seed, KEY));
    // The sequence read and stored, its fence, and both halves of the count read and stored.
    Model::holds("trampoline::time_before_ce09cbdd9888_fact", &["0 runs", "1 runs"])
        .check(|| times_the_program(before_the_seed, KEY + 7));
}
