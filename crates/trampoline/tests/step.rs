//! An interrupt, and an NMI, at every instruction of enter, program and exit; see the run path's `step.rs`.
//!
//! It enters the same program: inside it is refused by the guard and counts a miss, outside it runs. At no boundary may
//! a run
//! or a miss be lost. An NMI is refused inside the masked update too, and counts its miss in the middle of that: no count
//! is lost, but a reader can be fooled then, as in the kernel.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[path = "../../percpu/tests/stepper/mod.rs"]
mod stepper;

use filter::clock::SchedClock;
use filter::{BpfCtx, BpfProg, Config, ProgType, bpf_prog_get_stats};
use jump_label::{AtomicKey, StaticKey};
use percpu::{Cpu, Irq, Machine, NoSteps, Topology};
use stats::{Bits32, Bits32Rt, Bits64, Form, U64Stats, U64StatsSync};
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

/// Raises one on CPU 0.
type Raise<F> = fn(&Machine<K<F>>);

fn interrupt<F: Form>(m: &Machine<K<F>>) {
    m.raise(0, Irq(0));
}

fn nmi<F: Form>(m: &Machine<K<F>>) {
    m.raise_nmi(0);
}

/// Runs and misses at every boundary: how many boundaries, and at how many the interrupt or NMI was refused.
fn every_boundary<F: Form>(raise: Raise<F>) -> (u64, u64) {
    let (m, prog) = machine::<F>();
    let call = |cpu: &Cpu<K<F>>| invoke_bpf_prog(cpu, &prog, 0, &mut BpfCtx::default());
    let raise = || raise(&m);
    m.boot(|smp| {
        smp.request_irq(Irq(0), |cpu| _ = call(cpu)).unwrap();
        smp.request_nmi(|cpu| _ = call(cpu)).unwrap();
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
fn at_every_instruction_the_interrupt_or_nmi_runs_or_counts_a_miss() {
    for (form, (steps, refused)) in [
        ("64-bit", every_boundary::<Bits64>(interrupt)),
        ("32-bit", every_boundary::<Bits32>(interrupt)),
        ("RT", every_boundary::<Bits32Rt>(interrupt)),
        ("64-bit, NMI", every_boundary::<Bits64>(nmi)),
        ("32-bit, NMI", every_boundary::<Bits32>(nmi)),
        ("RT, NMI", every_boundary::<Bits32Rt>(nmi)),
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

/// A refused enter and exit, interrupted at every instruction by one that is refused too: at how many a miss is lost, and at
/// how many the sequence is left open.
fn refused_in_refused<F: Form>(raise: Raise<F>) -> (u64, u64) {
    let (m, prog) = machine::<F>();
    let call = |cpu: &Cpu<K<F>>| {
        assert_eq!(invoke_bpf_prog(cpu, &prog, 0, &mut BpfCtx::default()), None, "it is held");
    };
    let stats = || prog.stats.as_ref().unwrap().per_cpu_ptr(0);
    let raise = || raise(&m);
    m.boot(|smp| {
        smp.request_irq(Irq(0), call).unwrap();
        smp.request_nmi(call).unwrap();
        smp.run(0, |cpu| {
            let held = prog.active.as_ref().unwrap().this_cpu_inc_return(cpu);
            assert_eq!(held, 1);
            let (mut seen, mut lost, mut open) = (0, 0, 0);
            let check = |_| {
                let now = stats().misses.read();
                lost += u64::from(now - seen != 2);
                open += u64::from(stats().syncp.try_fetch_begin().is_none());
                seen = now;
            };
            let steps = stepper::at_every_instruction(raise, || call(cpu), check);
            assert!(steps > 20, "the trap flag was not taken: {steps} steps");
            assert_eq!(prog.active.as_ref().unwrap().this_cpu_ptr(cpu).get(), 1, "still held");
            (lost, open)
        })
        .unwrap()
    })
}

/// What masks interrupts masks no NMIs: on 32-bit one miss inside the count of another is lost at some instructions.
#[test]
fn refused_nmis_lose_misses_only_where_a_miss_of_a_32_bit_form_is_being_counted() {
    assert_eq!(refused_in_refused::<Bits64>(nmi), (0, 0), "one instruction counts");
    for (form, irq, nmi) in [
        ("32-bit", refused_in_refused::<Bits32>(interrupt), refused_in_refused::<Bits32>(nmi)),
        ("RT", refused_in_refused::<Bits32Rt>(interrupt), refused_in_refused::<Bits32Rt>(nmi)),
    ] {
        println!("{form}: lost at, open at: interrupts {irq:?}, NMIs {nmi:?}");
        assert_eq!(irq, (0, 0), "{form}: the mask makes it whole");
        assert!(nmi.0 > 0 && nmi.0 < 10 && nmi.1 == 0, "{form}: {nmi:?}");
    }
}
