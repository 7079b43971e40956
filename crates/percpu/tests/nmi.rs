//! NMIs: at once, whatever is masked; not in themselves; each one once; and they leave what they interrupt as it was.

use percpu::preempt::{HARDIRQ_OFFSET, NMI_OFFSET};
use percpu::{
    Cpu, Irq, Machine, Native, NmiBusy, PerCpu, Topology, in_hardirq, in_nmi, in_task, irqs_disabled,
    local_irq_restore, local_irq_save, preempt_count, preempt_disable, preempt_enable,
};
use sync::host::{AtomicBool, AtomicU64, Ordering::Relaxed};
use sync::local::{LocalU32, LocalU64};

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod stepper;

/// Runs in debug are an order slower.
const SCALE: u64 = if cfg!(debug_assertions) { 1 } else { 10 };

fn machine(cpus: usize) -> Machine<Native> {
    Machine::new(Topology::smp(cpus), Default::default(), |_| ()).unwrap()
}

/// Waits for `done` without a clock; how long is a matter of the host, so the bound is generous.
fn wait_until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..10_000_000u64 {
        if done() {
            return;
        }
        sync::thread::yield_now();
    }
    panic!("never: {what}");
}

#[test]
fn one_comes_at_once_in_a_task_under_the_mask_and_in_an_interrupt() {
    let m = machine(1);
    let (hits, over) = (LocalU32::new(0), LocalU32::new(0));
    // What an NMI on top of `cpu` must find.
    let strike = |cpu: &Cpu<Native>| {
        let (before, masked) = (preempt_count(cpu), irqs_disabled(cpu));
        over.set(before);
        let n = hits.get();
        m.raise_nmi(0);
        assert_eq!(hits.get(), n + 1, "not at once");
        assert_eq!((preempt_count(cpu), irqs_disabled(cpu)), (before, masked), "left as it was");
    };
    m.boot(|smp| {
        smp.request_nmi(|cpu| {
            assert!(in_nmi(cpu) && in_hardirq(cpu) && !in_task(cpu) && irqs_disabled(cpu));
            assert_eq!(preempt_count(cpu), over.get() + NMI_OFFSET + HARDIRQ_OFFSET);
            hits.set(hits.get() + 1)
        })
        .unwrap();
        smp.request_irq(Irq(0), |cpu| {
            assert!(in_hardirq(cpu) && !in_nmi(cpu));
            strike(cpu)
        })
        .unwrap();
        smp.run(0, |cpu| {
            strike(cpu);
            preempt_disable(cpu);
            strike(cpu);
            preempt_enable(cpu);
            let flags = local_irq_save(cpu);
            strike(cpu);
            m.raise(0, Irq(0));
            assert_eq!((hits.get(), m.interrupts(0).0), (3, 0), "the interrupt waits");
            local_irq_restore(cpu, flags);
            assert_eq!((hits.get(), m.interrupts(0)), (4, (1, 1)), "on top of the interrupt");
            assert!(in_task(cpu));
        })
        .unwrap();
    });
    assert_eq!(m.nmis(0), 4);
}

#[test]
fn one_raised_in_another_waits_for_its_end_and_none_merge() {
    let m = machine(1);
    let (deep, deepest, left) = (LocalU32::new(0), LocalU32::new(0), LocalU32::new(3));
    m.boot(|smp| {
        smp.request_nmi(|_| {
            deep.set(deep.get() + 1);
            deepest.set(deepest.get().max(deep.get()));
            if left.get() > 0 {
                left.set(left.get() - 1);
                (0..2).for_each(|_| m.raise_nmi(0));
            }
            deep.set(deep.get() - 1);
        })
        .unwrap();
        smp.run(0, |_| {
            m.raise_nmi(0);
            assert_eq!((m.nmis(0), deepest.get()), (7, 1), "1 and 2 for each of the first 3");
        })
        .unwrap();
    });
}

#[test]
fn an_interrupt_raised_in_one_comes_after_it() {
    let m = machine(1);
    let order = LocalU32::new(0);
    m.boot(|smp| {
        smp.request_nmi(|_| {
            m.raise(0, Irq(0));
            assert_eq!(order.get(), 0);
            order.set(1);
        })
        .unwrap();
        smp.request_irq(Irq(0), |cpu| {
            assert!(!in_nmi(cpu));
            assert_eq!(order.get(), 1);
            order.set(2);
        })
        .unwrap();
        smp.run(0, |_| {
            m.raise_nmi(0);
            assert_eq!(order.get(), 2);
        })
        .unwrap();
    });
}

#[test]
fn one_asks_for_a_task_switch_and_does_none_itself() {
    let m = machine(1);
    m.boot(|smp| {
        smp.request_nmi(|cpu| {
            let before = cpu.switches();
            m.resched(0);
            cpu.cond_resched();
            preempt_disable(cpu);
            preempt_enable(cpu);
            assert_eq!(cpu.switches(), before);
        })
        .unwrap();
        let switches = smp.spawn("t", 0, |task| {
            m.raise_nmi(0);
            task.switches().0
        });
        assert_eq!(switches.join().unwrap(), 1, "after it");
    });
}

#[test]
fn there_is_one_handler_a_boot() {
    let m = machine(1);
    m.boot(|smp| {
        assert_eq!(smp.request_nmi(|_| ()), Ok(()));
        assert_eq!(smp.request_nmi(|_| ()), Err(NmiBusy));
    });
    m.boot(|smp| assert_eq!(smp.request_nmi(|_| ()), Ok(()), "freed with the boot"));
}

#[test]
fn a_panic_in_one_reaches_the_caller() {
    let m = machine(1);
    let e = m.boot(|smp| {
        smp.request_nmi(|_| panic!("in the NMI")).unwrap();
        smp.run(0, |cpu| {
            m.raise_nmi(0);
            assert!(in_task(cpu));
        })
        .unwrap_err()
    });
    assert_eq!((e.cpu, &*e.message), (0, "in the NMI"));
}

/// Every NMI raised runs exactly once, and every interrupt: on busy CPUs, under masks, on idle CPUs, before the CPU is up,
/// while tasks are preempted and moved.
#[test]
fn each_one_is_served_once_and_so_is_each_interrupt_beside_them() {
    let m = machine(2);
    let hits: PerCpu<LocalU64> = m.alloc_percpu(|_| LocalU64::new(0)).unwrap();
    let inside: PerCpu<LocalU32> = m.alloc_percpu(|_| LocalU32::new(0)).unwrap();
    let raised = AtomicU64::new(0);
    let raise = |cpu| {
        m.raise_nmi(cpu);
        m.raise(cpu, Irq(0));
        raised.fetch_add(1, Relaxed);
    };
    let stop = AtomicBool::new(false);
    raise(0); // not up yet
    m.boot(|smp| {
        smp.request_nmi(|cpu| {
            assert_eq!(inside.this_cpu_ptr(cpu).inc_return(), 1, "in another");
            let h = hits.this_cpu_ptr(cpu);
            h.set(h.get() + 1);
            inside.this_cpu_ptr(cpu).dec();
        })
        .unwrap();
        std::thread::scope(|s| {
            s.spawn(|| {
                for i in 0..20_000 * SCALE {
                    raise(i as usize % 2);
                    if i % 16 == 0 {
                        m.resched(i as usize % 2);
                    }
                }
                stop.store(true, Relaxed);
            });
            let body = |task: &percpu::Task<Native>| {
                while !stop.load(Relaxed) {
                    let flags = local_irq_save(task);
                    (0..200).for_each(|i| _ = std::hint::black_box(i));
                    local_irq_restore(task, flags);
                }
            };
            let tasks: Vec<_> = (0..3).map(|i| smp.spawn("busy", i % 2, body)).collect();
            tasks.into_iter().for_each(|t| t.join().unwrap());
        });
        // Both CPUs are idle from time to time from here on.
        for i in 0..500 {
            raise(i % 2);
            wait_until("an idle CPU serves", || m.nmis(0) + m.nmis(1) == raised.load(Relaxed));
        }
    });
    let served = m.nmis(0) + m.nmis(1);
    assert_eq!(served, raised.load(Relaxed));
    // The one before the boot had no handler yet: it is served and runs nothing, or the handler was there in time.
    let ran = hits.iter_possible().map(|h| h.get()).sum::<u64>();
    assert!(served - ran <= 1, "served {served}, ran {ran}");
}

/// An NMI at every instruction of `code`, which raises a second one: both are served, one after the other, and the
/// interrupts that the code raises are served as without; returns how many instructions there were.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn strike_everywhere(irqs_each: u64, code: impl Fn(&Machine<Native>, &Cpu<Native>) + Sync) -> u64 {
    let m = machine(1);
    let (hits, inside) = (LocalU64::new(0), LocalU32::new(0));
    m.boot(|smp| {
        smp.request_nmi(|cpu| {
            assert!(in_nmi(cpu) && irqs_disabled(cpu));
            assert_eq!(inside.inc_return(), 1, "in another");
            hits.set(hits.get() + 1);
            if hits.get() % 2 == 1 {
                m.raise_nmi(0);
            }
            inside.dec();
        })
        .unwrap();
        smp.request_irq(Irq(0), |cpu| assert!(in_hardirq(cpu) && !in_nmi(cpu))).unwrap();
        smp.run(0, |cpu| {
            let irqs = LocalU64::new(0);
            let stepped = || {
                irqs.set(m.interrupts(0).0);
                code(&m, cpu)
            };
            let check = |at| {
                assert_eq!(hits.get(), 2 * (at + 1), "NMIs at step {at}");
                assert_eq!(m.interrupts(0).0 - irqs.get(), irqs_each, "interrupts at step {at}");
                assert_eq!((preempt_count(cpu), irqs_disabled(cpu)), (0, false), "step {at}");
            };
            let steps = stepper::at_every_instruction(|| m.raise_nmi(0), stepped, check);
            assert_eq!(m.nmis(0), 2 * steps);
            steps
        })
        .unwrap()
    })
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[test]
fn at_every_instruction_one_is_served_and_leaves_no_trace() {
    let masked = strike_everywhere(0, |_, cpu| {
        let flags = local_irq_save(cpu);
        preempt_disable(cpu);
        preempt_enable(cpu);
        local_irq_restore(cpu, flags);
    });
    let replayed = strike_everywhere(1, |m, cpu| {
        let flags = local_irq_save(cpu);
        m.raise(0, Irq(0));
        local_irq_restore(cpu, flags);
    });
    // A task switch: off the CPU, the NMI finds the idle thread, which this is.
    let switched = strike_everywhere(0, |_, cpu| cpu.cond_resched());
    println!("{masked} instructions masked, {replayed} with a replay, {switched} of a task switch");
    assert!(masked > 10 && replayed > 100 && switched > 50);
}

/// A task that switches: off its CPU, the NMI is the idle thread's, or the task's when it comes back.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[test]
fn at_every_instruction_of_a_switching_task_one_is_served() {
    let m = machine(1);
    m.boot(|smp| {
        let task = smp.spawn("t", 0, |task| {
            let check = |at| wait_until("served", || m.nmis(0) == at + 1);
            stepper::at_every_instruction(|| m.raise_nmi(0), || task.cond_resched(), check)
        });
        assert!(task.join().unwrap() > 50);
    });
}
