//! Models of enter and exit while the key flips, with a clock that starts at 0.
//!
//! | pattern | result |
//! |---|---|
//! | key off -> on -> off -> on around a run | counted only if on at both ends, and then in full; never skipped |
//! | the clock reads 0 at enter | run, not timed |
//! | an interrupt that enters the same program at any point | inside: refused, a miss; the guard is free at the end |
#![cfg(loom)]

use filter::clock::SchedClock;
use filter::{BpfCtx, BpfProg, Config, ProgType, bpf_prog_get_stats};
use jump_label::{AtomicKey, StaticKey};
use percpu::{Cpu, Irq, Machine, NoSteps, Topology};
use stats::Bits32;
use sync::local::LocalU64;
use sync::model::{Model, interrupt_at, invariant, reach};
use trampoline::invoke_bpf_prog;

/// Reads its time, then goes on by 10.
struct Ticks(LocalU64);

impl SchedClock for Ticks {
    fn sched_clock<K: percpu::Kconfig>(&self, _: &Cpu<K>) -> u64 {
        let now = self.0.get();
        self.0.set(now + 10);
        now
    }
}

type K = Config<Bits32, Ticks>;

fn machine(start: u64) -> (Machine<K>, BpfProg<K>) {
    let m =
        filter::machine::<Bits32, _, AtomicKey, _>(Topology::smp(1), NoSteps, Ticks(LocalU64::new(start)))
            .unwrap();
    let body = |_: &Cpu<K>, _: &mut BpfCtx<'_>| 7;
    let prog = BpfProg::alloc(m.pcpu(), ProgType::Tracing, body).unwrap();
    (m, prog)
}

/// One call, while the key is switched `flips` times, from off.
fn key_flips(start: u64, flips: u32) {
    let (m, prog) = machine(start);
    let ret = m.boot(|smp| {
        smp.spawn_outside("sysctl", || {
            let key = &m.globals().bpf_stats_enabled_key;
            for flip in 0..flips {
                if flip % 2 == 0 { key.slow_inc() } else { key.slow_dec() }.unwrap();
            }
        });
        let prog = &prog;
        smp.on(0, move |cpu| invoke_bpf_prog(cpu, prog, 0, &mut BpfCtx::default())).join().unwrap()
    });
    invariant("never-skipped", ret == Some(7), || "the program was skipped with no recursion".into());
    let s = bpf_prog_get_stats(&prog);
    invariant("whole-run", (s.cnt, s.nsecs) == (0, 0) || (s.cnt, s.nsecs) == (1, 10), || format!("{s:?}"));
    reach(if s.cnt == 1 { "counted" } else { "not counted" });
}

#[test]
fn off_to_on() {
    Model::holds("trampoline::key_off_on", &["counted", "not counted"]).check(|| key_flips(100, 1));
}

#[test]
fn off_on_off_on() {
    Model::holds("trampoline::key_off_on_off_on", &["counted", "not counted"]).check(|| key_flips(100, 3));
}

#[test]
fn a_clock_at_0_is_not_timed_and_not_skipped() {
    Model::holds("trampoline::clock_starts_at_0", &["not counted"]).check(|| key_flips(0, 1));
}

/// Off and on again inside the program: what `update_prog_stats` sees at its end decides.
#[test]
fn on_off_on_inside_counts_in_full() {
    Model::holds("trampoline::key_on_off", &["counted", "not counted"]).check(|| {
        let (m, prog) = machine(100);
        let key = &m.globals().bpf_stats_enabled_key;
        key.slow_inc().unwrap();
        m.boot(|smp| {
            smp.spawn_outside("sysctl", || key.slow_dec().unwrap());
            let prog = &prog;
            smp.on(0, move |cpu| _ = invoke_bpf_prog(cpu, prog, 0, &mut BpfCtx::default()));
        });
        let s = bpf_prog_get_stats(&prog);
        invariant("whole-run", (s.cnt, s.nsecs) == (0, 0) || (s.cnt, s.nsecs) == (1, 10), || {
            format!("{s:?}")
        });
        reach(if s.cnt == 1 { "counted" } else { "not counted" });
    });
}

#[test]
fn an_interrupt_at_any_point_runs_or_is_refused() {
    for at in 0..24 {
        let name: &'static str = format!("trampoline::interrupt_at_{at}").leak();
        Model::holds(name, &[]).check(move || {
            let (m, prog) = machine(100);
            m.globals().bpf_stats_enabled_key.slow_inc().unwrap();
            m.boot(|smp| {
                let call = |cpu: &Cpu<K>| _ = invoke_bpf_prog(cpu, &prog, 0, &mut BpfCtx::default());
                smp.request_irq(Irq(0), call).unwrap();
                let m = &m;
                smp.on(0, move |cpu| {
                    m.raise(0, Irq(0));
                    interrupt_at(at);
                    call(cpu);
                });
            });
            let s = bpf_prog_get_stats(&prog);
            let calls = 1 + m.interrupts(0).0;
            invariant("total", s.cnt + s.misses == calls && s.cnt > 0, || format!("{calls} calls, {s:?}"));
            let held = prog.active.as_ref().unwrap().per_cpu_ptr(0).get();
            invariant("guard-free", held == 0, || format!("the guard is left at {held}"));
            reach(if s.misses > 0 { "refused" } else { "ran" });
        });
    }
}
