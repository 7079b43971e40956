//! Models of two tasks on one CPU that call the same program, whose guard is the CPU's, on 32-bit.
//!
//! The CPU changes hands as it does outside of models. Its words are the host's: that its last holder comes before the next
//! is taken for granted here.
//!
//! | pattern | result |
//! |---|---|
//! | one is preempted before any operation of its call | the other is refused with no recursion, or both run |
//! | the same at the first operation under the guard, and inside the update, with a reader | the same, nothing torn |
//! | the program sleeps, a reader | whoever comes second is refused |
//! | before `c89e843a11f1`: preempted inside the guard's increment | both are in |
//! | the same, by one who is to be refused | the guard stays up for ever |
#![cfg(loom)]

#[path = "../../filter/tests/models/mod.rs"]
mod models;

use std::sync::{Arc, OnceLock};

use filter::{BpfCtx, BpfProg};
use models::{K, Knows, Ticks, counted_exactly, machine, nothing, read_and_check};
use percpu::{Cpu, Task, migrate_disable, migrate_enable};
use stats::Bits32;
use sync::model::{Model, interrupt_at, invariant, note, points_made, reach};
use sync::thread::yield_now;
use trampoline::{history, invoke_bpf_prog};

type K32 = K<Bits32>;
type Call = fn(&Task<K32>, &BpfProg<K32>);
type Text = fn(&Cpu<K32>, &mut BpfCtx<'_>) -> u32;

/// The operations of a call: the guard, the key, and again the key; 14 of the section; the guard.
const POINTS: u64 = 18;

fn call(task: &Task<K32>, prog: &BpfProg<K32>) {
    invoke_bpf_prog(task, prog, 0, &mut BpfCtx::default());
}

/// A program that sleeps, and finds nobody else inside.
fn sleeps(cpu: &Cpu<K32>, _: &mut BpfCtx<'_>) -> u32 {
    let inside = &cpu.globals().clock.inside;
    invariant("exclusive", inside.get() == 0, || "two tasks are inside the guard".into());
    inside.set(1);
    cpu.cond_resched();
    inside.set(0);
    7
}

/// Two tasks make one call each; the first is preempted before its `at`-th operation. How many operations it made.
fn two_tasks(calls: [Call; 2], text: Text, at: u64, watched: bool, points: &OnceLock<u64>) {
    let (m, mut prog) = machine::<Bits32, _>(1, Ticks::default(), true, text);
    prog.sleepable = true;
    m.boot(|smp| {
        let (m, prog) = (&m, &prog);
        if watched {
            smp.spawn_outside("reader", move || read_and_check(prog, 0, Knows::RunsAndMisses));
        }
        // The yields come before and after all that a task does: see `yield_now`.
        smp.spawn("task0", 0, move |task| {
            yield_now();
            m.resched(0);
            interrupt_at(at);
            calls[0](task, prog);
            let _ = points.set(points_made());
            yield_now();
        });
        smp.spawn("task1", 0, move |task| {
            yield_now();
            calls[1](task, prog);
            yield_now();
        });
    });
    let missed = counted_exactly(&prog, 2);
    reach(if missed > 0 { "refused" } else { "both ran" });
}

/// Checks `model` of two tasks, and a reader if it is `watched`; how many operations the first made.
fn check(model: Model, calls: [Call; 2], text: Text, at: u64, watched: bool) -> u64 {
    let points = Arc::new(OnceLock::new());
    let made = points.clone();
    model.quick(1).bounded(2).check(move || two_tasks(calls, text, at, watched, &made));
    points.get().copied().unwrap_or_default()
}

/// What is reached if the first task is preempted before its `at`-th operation.
fn reached(at: u64) -> &'static [&'static str] {
    match at {
        0 | u64::MAX => &["both ran"],
        1.. => &["refused"],
    }
}

#[test]
fn a_task_preempted_in_a_call_makes_another_miss_with_no_recursion() {
    let preempted =
        |name: String, at| check(Model::holds(name.leak(), reached(at)), [call, call], nothing, at, false);
    let points = preempted("trampoline::preempted_never".into(), u64::MAX);
    assert_eq!(points, POINTS);
    for at in 0..points {
        preempted(format!("trampoline::preempted_at_{at}"), at);
    }
}

#[test]
fn a_reader_of_preempted_tasks_accepts_one_moments_only() {
    for (name, at) in [
        ("trampoline::preempted_under_the_guard_read", 1),
        ("trampoline::preempted_in_the_update_read", POINTS / 2),
    ] {
        check(Model::holds(name, reached(at)), [call, call], nothing, at, true);
    }
}

#[test]
fn a_task_asleep_in_a_program_makes_another_miss_with_no_recursion() {
    check(Model::holds("trampoline::asleep", &["refused"]), [call, call], sleeps, u64::MAX, true);
}

/// The guard as it was, with `between` inside it, around the program.
fn call_before(task: &Task<K32>, prog: &BpfProg<K32>, between: impl FnOnce(&Cpu<K32>)) {
    migrate_disable(task);
    let cpu = task.cpu();
    let (comm, active) = (task.comm(), prog.active.as_ref().unwrap());
    let who = String::from_utf8_lossy(&comm).trim_end_matches('\0').to_owned();
    let read = active.this_cpu_ptr(cpu).get();
    // The guard is the CPU's own word, which the log does not show.
    note(format!("{who} reads the guard: {read}"));
    let taken = history::before_c89e843a11f1::take_guard(cpu, prog, || between(cpu));
    note(format!("{who} writes the guard: {}: {}", read + 1, if taken { "in" } else { "refused" }));
    if taken {
        prog.bpf_func.call(cpu, &mut BpfCtx::default());
    }
    active.this_cpu_dec(cpu);
    note(format!("{who} is out, the guard: {}", active.this_cpu_ptr(cpu).get()));
    migrate_enable(task);
}

fn preempted_inside(task: &Task<K32>, prog: &BpfProg<K32>) {
    call_before(task, prog, |cpu| cpu.cond_resched());
}

fn not_preempted(task: &Task<K32>, prog: &BpfProg<K32>) {
    call_before(task, prog, |_| ());
}

#[test]
fn before_the_guard_was_one_step_a_preemption_inside_it_let_both_in() {
    let calls: [Call; 2] = [preempted_inside, preempted_inside];
    check(
        Model::breaks("trampoline::guard_before_c89e843a11f1", "exclusive"),
        calls,
        sleeps,
        u64::MAX,
        false,
    );
}

#[test]
fn before_the_guard_was_one_step_it_could_stay_up_for_ever() {
    let calls: [Call; 2] = [not_preempted, preempted_inside];
    check(
        Model::breaks("trampoline::guard_stays_before_c89e843a11f1", "guard-free"),
        calls,
        sleeps,
        u64::MAX,
        false,
    );
}
