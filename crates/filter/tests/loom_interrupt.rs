//! Models of an interrupt before each operation of a run, on 32-bit.
//!
//! | pattern | result |
//! |---|---|
//! | it runs the same program; the update is masked | nothing lost, nothing torn |
//! | the same before `f941eadd8d6d`, not masked, a reader elsewhere | torn from the sequence's first store to its last |
//! | the same, counted at the end | lost inside each add; sequence behind at its first and last store |
//! | the same before `44b0c2957adc`, PREEMPT_RT with preemption off only | the same |
//! | it reads the program's statistics; masked | comes after the update |
//! | the same before `f941eadd8d6d` | stuck while the sequence is odd |
#![cfg(loom)]

mod models;

use filter::{BpfCtx, BpfProg, Kconfig, ProgType, bpf_prog_get_stats, bpf_prog_run, history};
use models::{Interrupted, K, Knows, Watch};
use percpu::Cpu;
use stats::Bits32;
use stats::history::before_44b0c2957adc;
use sync::model::STUCK;

type K32 = K<Bits32>;

/// The operations of a run: the key; then of the section: the sequence read and stored and its fence, each half of each
/// counter read and stored, a fence and the sequence again. The clock is none.
const POINTS: u64 = 15;

fn today<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>) {
    bpf_prog_run(cpu, prog, &mut BpfCtx::default());
}

fn before_irqsave(cpu: &Cpu<K32>, prog: &BpfProg<K32>) {
    history::before_f941eadd8d6d::bpf_prog_run(&cpu.preempt_disable(), prog, &mut BpfCtx::default());
}

fn reader(_: &Cpu<K32>, prog: &BpfProg<K32>) {
    bpf_prog_get_stats(prog);
}

const MASKED: Interrupted<K32> = Interrupted {
    run: today,
    handler: today,
    counts: 1,
    watch: Watch::Both(Knows::Runs),
    kind: ProgType::Tracing,
    nmi: false,
};
const UNMASKED: Interrupted<K32> = Interrupted { run: before_irqsave, handler: before_irqsave, ..MASKED };

#[test]
fn an_interrupt_at_every_point_of_a_masked_update_loses_nothing() {
    let points = MASKED.holds_everywhere("filter::interrupt_masked", |at| match at {
        0 | u64::MAX => &["at once", "again", "0 runs", "1 runs", "2 runs"],
        1.. => &["deferred", "again", "0 runs", "1 runs", "2 runs"],
    });
    assert_eq!(points, POINTS);
}

/// At the end, sequence and counters are wrong only if an interrupt parts a load from its store.
fn left_wrong(at: u64) -> Option<&'static str> {
    match at {
        // The sequence's, at the begin and at the end.
        2 | 14 => Some("sequence"),
        // The count's low half, the time's low half, its high one.
        5 | 9 | 11 => Some("total"),
        _ => None,
    }
}

#[test]
fn before_irqsave_a_reader_elsewhere_accepts_what_no_moment_held() {
    let watch = Watch::Reader(Knows::Moments);
    let torn = |at| (at >= 2).then_some("one-moment");
    Interrupted { watch, ..UNMASKED }.breaks_at("filter::interrupt_unmasked_read", POINTS, torn);
}

#[test]
fn before_irqsave_an_interrupt_inside_an_add_loses_it() {
    // One thread: what is left at the end.
    let at_the_end = Interrupted { watch: Watch::End, ..UNMASKED };
    at_the_end.breaks_at("filter::interrupt_unmasked_total", POINTS, left_wrong);
}

#[test]
fn before_rt_masked_a_true_interrupt_inside_the_update_breaks_it_too() {
    type Rt = K<before_44b0c2957adc::Bits32Rt>;
    let at_the_end: Interrupted<Rt> = Interrupted {
        run: today,
        handler: today,
        counts: 1,
        watch: Watch::End,
        kind: ProgType::Tracing,
        nmi: false,
    };
    at_the_end.breaks_at("filter::interrupt_rt_before_44b0c2957adc_total", POINTS, left_wrong);
    let read = Interrupted { watch: Watch::Reader(Knows::Moments), ..at_the_end };
    let torn = |at| (at >= 2).then_some("one-moment");
    read.breaks_at("filter::interrupt_rt_before_44b0c2957adc_read", POINTS, torn);
}

#[test]
fn a_reader_in_an_interrupt_waits_for_the_masked_update() {
    let reads = Interrupted { handler: reader, counts: 0, ..MASKED };
    let points = reads.holds_everywhere("filter::interrupt_reads_masked", |at| match at {
        0 | u64::MAX => &["at once", "again", "0 runs", "1 runs"],
        1.. => &["deferred", "again", "0 runs", "1 runs"],
    });
    assert_eq!(points, POINTS);
}

#[test]
fn before_irqsave_a_reader_in_an_interrupt_is_stuck_on_the_open_section() {
    let watch = Watch::Reader(Knows::Runs);
    let reads = Interrupted { handler: reader, counts: 0, watch, ..UNMASKED };
    reads.breaks_at("filter::interrupt_reads_unmasked", POINTS, |at| (at >= 3).then_some(STUCK));
}
