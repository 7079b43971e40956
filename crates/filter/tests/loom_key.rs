//! Models of the key that is switched while a program runs: it is tested once a run, so what counts is how the run began.
//!
//! | pattern | result |
//! |---|---|
//! | off -> on inside the program | not counted |
//! | on -> off inside the program | counted in full (through a trampoline it would not be) |
//! | on -> off -> on around it | counted if it began with the key on |
//! | off -> on -> off, and a reader | the same, and what is read is one moment's |
#![cfg(loom)]

mod models;

use filter::{BpfCtx, BpfProg, Kconfig, bpf_prog_get_stats, bpf_prog_run};
use jump_label::StaticKey;
use models::{DURATION, Flipped, Knows, Ticks, key_flips, machine, nothing, read_and_check, since_start};
use percpu::Cpu;
use stats::Bits32;
use sync::model::{Model, invariant, reach};

fn run<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>) {
    bpf_prog_run(cpu, prog, &mut BpfCtx::default());
}

fn as_it_began(saw: Flipped) -> bool {
    saw.counted == saw.timed
}

#[test]
fn off_to_on() {
    let reached = &["off, inside off: not counted", "off, inside on: not counted", "on, inside on: counted"];
    Model::holds("filter::key_off_on", reached)
        .check(|| key_flips(Ticks::default(), run, false, 1, as_it_began));
}

#[test]
fn on_to_off() {
    let reached = &["on, inside on: counted", "on, inside off: counted", "off, inside off: not counted"];
    Model::holds("filter::key_on_off", reached)
        .check(|| key_flips(Ticks::default(), run, true, 1, as_it_began));
}

#[test]
fn on_to_off_to_on() {
    let reached = &[
        "on, inside on: counted",
        "on, inside off: counted",
        "off, inside off: not counted",
        "off, inside on: not counted",
    ];
    Model::holds("filter::key_on_off_on", reached)
        .check(|| key_flips(Ticks::default(), run, true, 2, as_it_began));
}

#[test]
fn a_key_that_flips_counts_a_run_whole_or_not_at_all() {
    Model::holds("filter::key_flips_read", &["counted", "not counted", "0 runs"]).bounded(2).check(|| {
        let (m, prog) = machine::<Bits32, _>(1, Ticks::default(), false, nothing);
        m.boot(|smp| {
            smp.spawn_outside("sysctl", || {
                let key = &m.globals().bpf_stats_enabled_key;
                key.slow_inc().unwrap();
                key.slow_dec().unwrap();
            });
            smp.spawn_outside("reader", || read_and_check(&prog, 0, Knows::Runs));
            smp.on(0, |cpu| run(cpu, &prog));
        });
        let s = since_start(bpf_prog_get_stats(&prog), 1);
        invariant("whole-run", s.cnt <= 1 && s.nsecs == s.cnt * DURATION, || format!("{s:x?}"));
        reach(if s.cnt == 1 { "counted" } else { "not counted" });
    });
}
