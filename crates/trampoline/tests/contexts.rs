//! One program run from everywhere at once: tasks that a tick preempts and moves, timers, the softirqs they leave work
//! to, and NMIs on top of all of them. Each call runs or is refused, and both are counted.

use std::time::Duration;

use filter::clock::SchedClock;
use filter::{BpfCtx, BpfProg, Config, ProgType, bpf_prog_get_stats};
use jump_label::{AtomicKey, StaticKey};
use percpu::{
    Cpu, HrtimerRestart, Machine, NoSteps, Softirq, Task, Topology, interrupt_context_level, raise_softirq,
};
use stats::{Bits32, Bits32Rt, Bits64, Form};
use sync::host::{AtomicBool, AtomicU64, Ordering::Relaxed};
use trampoline::invoke_bpf_prog;

const CPUS: usize = 2;
/// How many calls there are from each level at least.
const CALLS: u64 = if cfg!(debug_assertions) { 500 } else { 3000 };

struct Still;

impl SchedClock for Still {
    fn sched_clock<K: percpu::Kconfig>(&self, _: &Cpu<K>) -> u64 {
        5
    }
}

type K<F> = Config<F, Still>;

/// Calls from tasks, softirqs, interrupts, NMIs; those that ran, and those that were refused.
struct Count {
    calls: [AtomicU64; 4],
    ran: AtomicU64,
    refused: AtomicU64,
}

impl Count {
    fn call<F: Form>(&self, task: &Task<K<F>>, prog: &BpfProg<K<F>>) {
        self.calls[interrupt_context_level(task) as usize].fetch_add(1, Relaxed);
        match invoke_bpf_prog(task, prog, 0, &mut BpfCtx::default()) {
            Some(ret) => {
                assert_eq!(ret, 7);
                self.ran.fetch_add(1, Relaxed);
            }
            None => _ = self.refused.fetch_add(1, Relaxed),
        }
    }
}

/// Misses counted, and runs refused.
fn everywhere<F: Form>() -> (u64, u64) {
    let m: Machine<K<F>> =
        filter::machine::<F, _, AtomicKey, _>(Topology::smp(CPUS), NoSteps, Still).unwrap();
    m.globals().bpf_stats_enabled_key.slow_inc().unwrap();
    // Long enough to be met by others.
    let body = |_: &Cpu<K<F>>, _: &mut BpfCtx<'_>| {
        (0..100).for_each(|i| _ = std::hint::black_box(i));
        7
    };
    let prog = BpfProg::alloc(m.pcpu(), ProgType::Tracing, body).unwrap();
    let count = Count { calls: Default::default(), ran: AtomicU64::new(0), refused: AtomicU64::new(0) };
    let enough = AtomicBool::new(false);
    m.boot(|smp| {
        smp.open_softirq(Softirq::Timer, |cpu| count.call(cpu, &prog)).unwrap();
        smp.request_nmi(|cpu| count.call(cpu, &prog)).unwrap();
        for cpu in 0..CPUS {
            let tick = smp.hrtimer(cpu, |cpu, _| {
                count.call(cpu, &prog);
                raise_softirq(cpu, Softirq::Timer);
                cpu.machine().resched(cpu.smp_processor_id());
                HrtimerRestart::Restart
            });
            tick.start(Duration::from_micros(50));
        }
        smp.spawn_outside("NMIs", || {
            while !enough.load(Relaxed) {
                (0..CPUS).for_each(|cpu| m.raise_nmi(cpu));
                enough.store(count.calls.iter().all(|calls| calls.load(Relaxed) >= CALLS), Relaxed);
            }
        });
        let body = |task: &Task<K<F>>| {
            while !enough.load(Relaxed) {
                count.call(task, &prog);
            }
            task.switches().0
        };
        let tasks: Vec<_> = (0..CPUS + 2).map(|i| smp.spawn("task", i % CPUS, body)).collect();
        assert!(tasks.into_iter().map(|t| t.join().unwrap()).sum::<u64>() > 0, "no task was switched");
    });
    let calls: u64 = count.calls.iter().map(|calls| calls.load(Relaxed)).sum();
    let stats = bpf_prog_get_stats(&prog);
    assert_eq!(count.ran.load(Relaxed) + count.refused.load(Relaxed), calls);
    assert_eq!(stats.cnt, count.ran.load(Relaxed), "runs");
    let held: u32 = prog.active.as_ref().unwrap().iter_possible().map(|a| a.get()).sum();
    assert_eq!(held, 0, "the guards are free");
    (stats.misses, count.refused.load(Relaxed))
}

#[test]
fn each_call_from_each_context_runs_or_is_refused_and_is_counted() {
    let (misses, refused) = everywhere::<Bits64>();
    assert!(misses == refused && refused > 0, "64-bit: {misses} of {refused}");
    // On 32-bit a refused NMI inside the count of a refused interrupt takes that one's miss along: see `step.rs`.
    for (form, (misses, refused)) in [("32-bit", everywhere::<Bits32>()), ("RT", everywhere::<Bits32Rt>())] {
        assert!(misses <= refused && misses > 0, "{form}: {misses} of {refused}");
    }
}
