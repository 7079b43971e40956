//! Tasks that are preempted at any point, on CPUs that are interrupted, all entering one program: each
//! attempt is a run or a miss, and the guard is free in the end.

use filter::clock::SchedClock;
use filter::{BpfCtx, BpfProg, Config, ProgType, bpf_prog_get_stats};
use jump_label::{AtomicKey, StaticKey};
use percpu::{Cpu, Irq, Machine, NoSteps, Task, Topology};
use stats::{Bits32, Bits32Rt, Bits64, Form};
use sync::host::{AtomicBool, AtomicU64, Ordering::Relaxed};
use trampoline::invoke_bpf_prog;

const CPUS: usize = 2;
/// Attempts of each of the tasks.
const ATTEMPTS: u64 = if cfg!(debug_assertions) { 50_000 } else { 500_000 };

/// A clock that stands still, past the sentinels.
struct Still;

impl SchedClock for Still {
    fn sched_clock<K: percpu::Kconfig>(&self, _: &Cpu<K>) -> u64 {
        5
    }
}

type K<F> = Config<F, Still>;

/// Attempts that ran and that were refused.
#[derive(Default)]
struct Made {
    ran: AtomicU64,
    refused: AtomicU64,
}

impl Made {
    fn attempt<F: Form>(&self, task: &Task<K<F>>, p: &BpfProg<K<F>>) {
        let made = match invoke_bpf_prog(task, p, 0, &mut BpfCtx::default()) {
            Some(_) => &self.ran,
            None => &self.refused,
        };
        made.fetch_add(1, Relaxed);
    }
}

fn each_attempt_is_a_run_or_a_miss<F: Form>() {
    let m: Machine<K<F>> =
        filter::machine::<F, _, AtomicKey, _>(Topology::smp(CPUS), NoSteps, Still).unwrap();
    m.globals().bpf_stats_enabled_key.slow_inc().unwrap();
    let p = BpfProg::alloc(m.pcpu(), ProgType::Tracing, |_: &Cpu<K<F>>, _: &mut BpfCtx<'_>| 7).unwrap();
    let (tasks, irqs) = (Made::default(), Made::default());
    let stop = AtomicBool::new(false);
    m.boot(|smp| {
        smp.request_irq(Irq(0), |cpu| irqs.attempt(cpu, &p)).unwrap();
        let raiser = smp.spawn_outside("raiser", || {
            while !stop.load(Relaxed) {
                for cpu in 0..CPUS {
                    m.raise(cpu, Irq(0));
                    m.resched(cpu);
                }
            }
        });
        let all: Vec<_> = (0..2 * CPUS)
            .map(|i| {
                smp.spawn("task", i % CPUS, |task| {
                    let mut made = 0;
                    // Chance refuses: go on until it has refused tasks and interrupts.
                    let refused = || tasks.refused.load(Relaxed).min(irqs.refused.load(Relaxed));
                    while made < ATTEMPTS || refused() == 0 {
                        tasks.attempt(task, &p);
                        made += 1;
                    }
                })
            })
            .collect();
        let ends: Vec<_> = all.into_iter().map(|t| t.join()).collect();
        stop.store(true, Relaxed);
        raiser.join().unwrap();
        ends.into_iter().for_each(|end| end.unwrap());
    });
    let ran = tasks.ran.load(Relaxed) + irqs.ran.load(Relaxed);
    let refused = tasks.refused.load(Relaxed) + irqs.refused.load(Relaxed);
    println!("{ran} ran, {refused} refused, {} of them of tasks", tasks.refused.load(Relaxed));
    let stats = bpf_prog_get_stats(&p);
    assert_eq!((stats.cnt, stats.misses), (ran, refused));
    assert!(p.active.as_ref().unwrap().iter_possible().all(|a| a.get() == 0), "the guard is free");
}

#[test]
fn on_64_bit_each_attempt_is_a_run_or_a_miss() {
    each_attempt_is_a_run_or_a_miss::<Bits64>();
}

#[test]
fn on_32_bit_each_attempt_is_a_run_or_a_miss() {
    each_attempt_is_a_run_or_a_miss::<Bits32>();
}

#[test]
fn on_32_bit_rt_each_attempt_is_a_run_or_a_miss() {
    each_attempt_is_a_run_or_a_miss::<Bits32Rt>();
}
