//! An interrupt at every instruction of enter, program and exit; see the run path's `step.rs`.
//!
//! The interrupt enters the same program: inside it is refused by the guard and counts a miss, outside it runs. At no
//! boundary may a run or a miss be lost.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[path = "../../percpu/tests/stepper/mod.rs"]
mod stepper;

use filter::clock::SchedClock;
use filter::{BpfCtx, BpfProg, Config, ProgType, bpf_prog_get_stats};
use jump_label::{AtomicKey, StaticKey};
use percpu::{Cpu, Irq, Machine, NoSteps, Topology};
use stats::{Bits32, Bits32Rt, Bits64, Form, U64Stats};
use sync::local::LocalU64;
use trampoline::{history, invoke_bpf_prog, update_prog_stats};

struct Ticks(LocalU64);

impl SchedClock for Ticks {
    fn sched_clock<K: percpu::Kconfig>(&self, _: &Cpu<K>) -> u64 {
        self.0.set(self.0.get() + 5);
        self.0.get()
    }
}

type K<F> = Config<F, Ticks>;

fn machine<F: Form>() -> (Machine<K<F>>, BpfProg<K<F>>) {
    let m =
        filter::machine::<F, _, AtomicKey, _>(Topology::smp(1), NoSteps, Ticks(LocalU64::new(100))).unwrap();
    m.globals().bpf_stats_enabled_key.slow_inc().unwrap();
    let body = |_: &Cpu<K<F>>, _: &mut BpfCtx<'_>| 7;
    let prog = BpfProg::alloc(m.pcpu(), ProgType::Tracing, body).unwrap();
    (m, prog)
}

/// Runs and misses at every boundary: how many boundaries, and at how many the interrupt was refused.
fn every_boundary<F: Form>() -> (u64, u64) {
    let (m, prog) = machine::<F>();
    let call = |cpu: &Cpu<K<F>>| invoke_bpf_prog(cpu, &prog, 0, &mut BpfCtx::default());
    let raise = || m.raise(0, Irq(0));
    m.boot(|smp| {
        smp.request_irq(Irq(0), |cpu| _ = call(cpu)).unwrap();
        smp.run(0, |cpu| {
            let (mut seen, mut refused) = (bpf_prog_get_stats(&prog), 0);
            let check = |at| {
                let now = bpf_prog_get_stats(&prog);
                let (runs, misses) = (now.cnt - seen.cnt, now.misses - seen.misses);
                assert!(runs >= 1 && runs + misses == 2, "step {at}: {runs} runs, {misses} misses");
                assert_eq!(prog.active.as_ref().unwrap().per_cpu_ptr(0).get(), 0, "the guard is free again");
                refused += misses;
                seen = now;
            };
            let outer = || assert_eq!(call(cpu), Some(7), "the outer run is never refused");
            let steps = stepper::at_every_instruction(raise, outer, check);
            (steps, refused)
        })
        .unwrap()
    })
}

#[test]
fn at_every_instruction_the_interrupt_runs_or_counts_a_miss() {
    for (form, (steps, refused)) in [
        ("64-bit", every_boundary::<Bits64>()),
        ("32-bit", every_boundary::<Bits32>()),
        ("RT", every_boundary::<Bits32Rt>()),
    ] {
        println!("{form}: {steps} instructions, refused at {refused}");
        assert!(refused > 10 && refused < steps, "{form}: refused at {refused} of {steps}");
    }
}

/// The update without its guard, as programs that need none take it: at how many boundaries a run is lost.
fn update_loses<F: Form>(update: impl Fn(&Cpu<K<F>>, &BpfProg<K<F>>) + Sync) -> u64 {
    let (m, prog) = machine::<F>();
    let counted = || prog.stats.as_ref().unwrap().per_cpu_ptr(0).cnt.read();
    let raise = || m.raise(0, Irq(0));
    m.boot(|smp| {
        smp.request_irq(Irq(0), |cpu| update(cpu, &prog)).unwrap();
        smp.run(0, |cpu| {
            let (mut seen, mut lost) = (0, 0);
            let check = |_| {
                let now = counted();
                lost += u64::from(now - seen != 2);
                seen = now;
            };
            let steps = stepper::at_every_instruction(raise, || update(cpu, &prog), check);
            assert!(steps > 20, "the trap flag was not taken: {steps} steps");
            lost
        })
        .unwrap()
    })
}

#[test]
fn the_update_loses_nothing_and_before_irqsave_it_did() {
    fn old<F: Form>(cpu: &Cpu<K<F>>, prog: &BpfProg<K<F>>) {
        history::before_d979617aa84d::update_prog_stats(&cpu.preempt_disable(), prog, 5);
    }
    assert_eq!(update_loses::<Bits64>(|cpu, prog| update_prog_stats(cpu, prog, 5)), 0);
    assert_eq!(update_loses::<Bits32>(|cpu, prog| update_prog_stats(cpu, prog, 5)), 0);
    assert_eq!(update_loses::<Bits32Rt>(|cpu, prog| update_prog_stats(cpu, prog, 5)), 0);
    assert_eq!(update_loses::<Bits64>(old), 0, "64-bit counters needed no mask");
    assert!(update_loses::<Bits32>(old) > 0);
}
