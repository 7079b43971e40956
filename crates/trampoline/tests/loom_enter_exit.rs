//! Models of enter and exit while the key is switched: it is tested at both, so both must have found it on.
//!
//! | pattern | result |
//! |---|---|
//! | off -> on inside the program | not counted |
//! | on -> off inside the program | not counted (in `__bpf_prog_run` it would be) |
//! | on -> off -> on around it | counted in full if on at both ends, also if off in between |
//! | off -> on -> off -> on around it | the same |
//! | the clock reads 0 at enter | run, not timed, not counted |
#![cfg(loom)]

#[path = "../../filter/tests/models/mod.rs"]
mod models;

use filter::{BpfCtx, BpfProg, Kconfig};
use models::{DURATION, Flipped, Ticks, key_flips};
use percpu::Cpu;
use sync::model::Model;
use trampoline::invoke_bpf_prog;

fn call<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>) {
    invoke_bpf_prog(cpu, prog, 0, &mut BpfCtx::default());
}

#[test]
fn off_to_on() {
    let reached = &["off, inside off: not counted", "off, inside on: not counted", "on, inside on: counted"];
    let law = |saw: Flipped| saw.counted == saw.timed;
    Model::holds("trampoline::key_off_on", reached)
        .check(move || key_flips(Ticks::default(), call, false, 1, law));
}

#[test]
fn on_to_off() {
    let reached = &[
        "on, inside on: counted",
        "on, inside on: not counted",
        "on, inside off: not counted",
        "off, inside off: not counted",
    ];
    let law = |saw: Flipped| !saw.counted || saw.timed && saw.inside;
    Model::holds("trampoline::key_on_off", reached)
        .check(move || key_flips(Ticks::default(), call, true, 1, law));
}

#[test]
fn on_to_off_to_on() {
    let reached = &[
        "on, inside on: counted",
        "on, inside on: not counted",
        "on, inside off: counted",
        "on, inside off: not counted",
        "off, inside off: not counted",
        "off, inside on: not counted",
    ];
    let law = |saw: Flipped| !saw.counted || saw.timed;
    Model::holds("trampoline::key_on_off_on", reached)
        .check(move || key_flips(Ticks::default(), call, true, 2, law));
}

#[test]
fn off_on_off_on() {
    let reached = &["on, inside off: counted", "on, inside off: not counted", "off, inside on: not counted"];
    let law = |saw: Flipped| !saw.counted || saw.timed;
    Model::holds("trampoline::key_off_on_off_on", reached)
        .check(move || key_flips(Ticks::default(), call, false, 3, law));
}

#[test]
fn a_clock_at_0_is_not_timed_and_not_skipped() {
    let reached = &["off, inside on: not counted", "on, inside on: not counted"];
    let law = |saw: Flipped| !saw.counted;
    Model::holds("trampoline::clock_starts_at_0", reached)
        .check(move || key_flips(Ticks::new(0, DURATION), call, false, 1, law));
}
