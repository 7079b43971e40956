//! Models of an interrupt before each operation of a program's call through a trampoline, on 32-bit.
//!
//! | pattern | result |
//! |---|---|
//! | it calls the same program | before the guard: runs; then: refused, a miss; nothing lost, the guard is free |
//! | it updates the same unguarded program; masked | nothing lost, nothing torn |
//! | the same before `d979617aa84d`, not masked | torn from the sequence's first store to its last; adds lost |
//! | before `d979617aa84d` it is refused, inside the open section | torn, as by an NMI today |
//! | an NMI that is refused, inside the open section | torn: a latent fact of the kernel, irqsave does not stop NMIs |
//! | the same, counted at the end | exact; the sequence is behind at its first and last store |
//! | before `dc7d7447b56b`: it is refused, with an earlier start left over | counted as a run and a miss |
#![cfg(loom)]

#[path = "../../filter/tests/models/mod.rs"]
mod models;

use filter::{BpfCtx, BpfProg, ProgType, sched_clock};
use models::{Interrupted, K, Knows, Watch};
use percpu::Cpu;
use stats::Bits32;
use trampoline::trampoline::{__bpf_prog_enter_recur, __bpf_prog_exit_recur};
use trampoline::{BpfTrampRunCtx, bpf_prog_start_time, history, invoke_bpf_prog, update_prog_stats};

type K32 = K<Bits32>;

/// The operations of a call: the guard, the key, and again the key; 14 of the section, as in a run; the guard.
const POINTS: u64 = 18;
/// Of an update by itself: the key, and again the key; the section.
const UPDATE_POINTS: u64 = 16;

fn call(cpu: &Cpu<K32>, prog: &BpfProg<K32>) {
    invoke_bpf_prog(cpu, prog, 0, &mut BpfCtx::default());
}

fn update(cpu: &Cpu<K32>, prog: &BpfProg<K32>) {
    update_prog_stats(cpu, prog, bpf_prog_start_time(cpu));
}

fn update_before_irqsave(cpu: &Cpu<K32>, prog: &BpfProg<K32>) {
    let start = bpf_prog_start_time(cpu);
    history::before_d979617aa84d::update_prog_stats(&cpu.preempt_disable(), prog, start);
}

/// A call with the older update, and an exit that counts nothing.
fn call_before_irqsave(cpu: &Cpu<K32>, prog: &BpfProg<K32>) {
    let mut run_ctx = BpfTrampRunCtx::new(0);
    let start = __bpf_prog_enter_recur(cpu, prog, &mut run_ctx);
    if start != 0 {
        prog.bpf_func.call(cpu, &mut BpfCtx::default());
    }
    history::before_d979617aa84d::update_prog_stats(&cpu.preempt_disable(), prog, start);
    __bpf_prog_exit_recur(cpu, prog, 0, &mut run_ctx);
}

/// A call through a trampoline whose earlier program has left its start.
fn call_after_another(cpu: &Cpu<K32>, prog: &BpfProg<K32>) {
    let mut kept = sched_clock(cpu);
    history::before_dc7d7447b56b::invoke_bpf_prog(cpu, prog, 0, &mut BpfCtx::default(), &mut kept);
}

const CALL: Interrupted<K32> = Interrupted {
    run: call,
    handler: call,
    counts: 1,
    watch: Watch::Both(Knows::RunsAndMisses),
    kind: ProgType::Tracing,
    nmi: false,
};
const UPDATE: Interrupted<K32> = Interrupted {
    run: update,
    handler: update,
    watch: Watch::Both(Knows::Runs),
    kind: ProgType::Lsm,
    ..CALL
};
const UNMASKED: Interrupted<K32> =
    Interrupted { run: update_before_irqsave, handler: update_before_irqsave, ..UPDATE };
const NMI: Interrupted<K32> = Interrupted { nmi: true, ..CALL };

#[test]
fn an_interrupt_at_any_point_runs_or_is_refused() {
    let points = CALL.holds_everywhere("trampoline::interrupt", |at| match at {
        0 | u64::MAX => &["at once", "again", "0 runs", "1 runs", "2 runs"],
        1.. => &["refused", "again", "0 runs"],
    });
    assert_eq!(points, POINTS);
}

#[test]
fn an_interrupt_at_every_point_of_a_masked_update_loses_nothing() {
    let points = UPDATE.holds_everywhere("trampoline::interrupt_masked", |at| match at {
        0..=1 | u64::MAX => &["at once", "again", "0 runs", "1 runs", "2 runs"],
        2.. => &["deferred", "again", "0 runs", "1 runs", "2 runs"],
    });
    assert_eq!(points, UPDATE_POINTS);
}

#[test]
fn before_irqsave_a_reader_elsewhere_accepts_what_no_moment_held() {
    let watch = Watch::Reader(Knows::Moments);
    let torn = |at| (at >= 3).then_some("one-moment");
    Interrupted { watch, ..UNMASKED }.breaks_at("trampoline::interrupt_unmasked_read", UPDATE_POINTS, torn);
}

#[test]
fn before_irqsave_an_interrupt_inside_an_add_loses_it() {
    // One thread: what is left at the end.
    let at_the_end = Interrupted { watch: Watch::End, ..UNMASKED };
    at_the_end.breaks_at("trampoline::interrupt_unmasked_total", UPDATE_POINTS, |at| match at {
        3 | 15 => Some("sequence"),
        6 | 10 | 12 => Some("total"),
        _ => None,
    });
}

/// A miss that is counted inside the open section lets a reader accept a torn pair if it comes before the sequence's first
/// store, which then takes it back; or from the count's first store on, as no fence parts the miss's odd sequence from
/// what follows, to the last fence, as none parts its even one from what went before.
fn torn_by_a_miss(at: u64) -> Option<&'static str> {
    matches!(at, 4 | 6..=14).then_some("one-moment")
}

#[test]
fn before_irqsave_a_refused_interrupt_inside_the_open_section_lets_a_reader_accept_a_torn_pair() {
    let watch = Watch::Reader(Knows::Moments);
    let calls = Interrupted { run: call_before_irqsave, handler: call_before_irqsave, watch, ..CALL };
    // Exit tests the key once more.
    calls.breaks_at("trampoline::interrupt_unmasked_miss_read", POINTS + 1, torn_by_a_miss);
}

#[test]
fn an_nmi_that_is_refused_inside_the_open_section_lets_a_reader_accept_a_torn_pair() {
    let watch = Watch::Reader(Knows::Moments);
    Interrupted { watch, ..NMI }.breaks_at("trampoline::nmi_miss_read", POINTS, torn_by_a_miss);
}

#[test]
fn an_nmi_that_is_refused_inside_the_open_section_lets_a_reader_accept_torn_misses() {
    let watch = Watch::Reader(Knows::MomentsAndMisses);
    let torn = |at| matches!(at, 4..=16).then_some("one-moment");
    Interrupted { watch, ..NMI }.breaks_at("trampoline::nmi_miss_read_misses", POINTS, torn);
}

#[test]
fn an_nmi_that_is_refused_loses_nothing_and_may_leave_the_sequence_behind() {
    // One thread: what is left at the end.
    let at_the_end = Interrupted { watch: Watch::End, ..NMI };
    at_the_end
        .breaks_at("trampoline::nmi_miss_total", POINTS, |at| matches!(at, 4 | 16).then_some("sequence"));
}

#[test]
fn before_the_start_was_kept_in_time_a_refused_call_was_counted_as_a_run_too() {
    // One thread: the refused call is wrong by itself.
    let at_the_end =
        Interrupted { run: call_after_another, handler: call_after_another, watch: Watch::End, ..CALL };
    let twice = |at| (at >= 1).then_some("total");
    at_the_end.breaks_at("trampoline::stale_start_before_dc7d7447b56b", POINTS, twice);
}
