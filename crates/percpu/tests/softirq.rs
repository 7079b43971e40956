//! Softirqs: after the interrupt, with interrupts on, never where bottom halves are off; and nesting up to NMIs.

use std::sync::Mutex;

use percpu::preempt::{HARDIRQ_OFFSET, NMI_OFFSET, PREEMPT_OFFSET, SOFTIRQ_DISABLE_OFFSET, SOFTIRQ_OFFSET};
use percpu::softirq::{MAX_SOFTIRQ_RESTART, local_softirq_pending};
use percpu::{
    Cpu, Irq, Machine, Native, PerCpu, Softirq, SoftirqBusy, Task, Topology, in_serving_softirq, in_softirq,
    in_task, interrupt_context_level, irqs_disabled, local_bh_disable, local_bh_enable, local_irq_restore,
    local_irq_save, preempt_count, raise_softirq,
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

fn add(word: &LocalU64, n: u64) {
    word.set(word.get() + n);
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
fn one_runs_on_the_way_out_of_the_interrupt_that_raised_it_once_with_interrupts_on() {
    let m = machine(1);
    let ran = LocalU64::new(0);
    m.boot(|smp| {
        smp.open_softirq(Softirq::NetRx, |cpu| {
            assert!(in_serving_softirq(cpu) && in_softirq(cpu) && !in_task(cpu) && !irqs_disabled(cpu));
            assert_eq!(preempt_count(cpu), SOFTIRQ_OFFSET);
            add(&ran, 1);
        })
        .unwrap();
        smp.request_irq(Irq(0), |cpu| {
            (0..2).for_each(|_| raise_softirq(cpu, Softirq::NetRx));
            assert_eq!(local_softirq_pending(cpu), 1 << Softirq::NetRx as u32, "not in the interrupt");
        })
        .unwrap();
        smp.run(0, |cpu| {
            m.raise(0, Irq(0));
            assert_eq!(ran.get(), 1, "merged, and at once");
            let flags = local_irq_save(cpu);
            m.raise(0, Irq(0));
            assert_eq!(ran.get(), 1);
            local_irq_restore(cpu, flags);
            assert_eq!(ran.get(), 2, "after a replay");
            raise_softirq(cpu, Softirq::NetRx);
            assert_eq!((ran.get(), m.softirqs(0)), (3, 3), "raised in a task");
            assert_eq!((preempt_count(cpu), irqs_disabled(cpu)), (0, false));
        })
        .unwrap();
    });
}

#[test]
fn they_run_in_the_order_of_their_numbers_and_what_is_raised_meanwhile_comes_after() {
    let m = machine(1);
    let order = Mutex::new(Vec::new());
    m.boot(|smp| {
        for nr in [Softirq::Rcu, Softirq::Tasklet, Softirq::Hi] {
            let order = &order;
            smp.open_softirq(nr, move |cpu| {
                order.lock().unwrap().push(nr);
                if nr == Softirq::Tasklet {
                    raise_softirq(cpu, Softirq::Hi);
                }
            })
            .unwrap();
        }
        assert_eq!(smp.open_softirq(Softirq::Hi, |_| ()), Err(SoftirqBusy(Softirq::Hi)));
        smp.request_irq(Irq(0), |cpu| {
            [Softirq::Rcu, Softirq::Tasklet].into_iter().for_each(|nr| raise_softirq(cpu, nr));
        })
        .unwrap();
        smp.run(0, |_| m.raise(0, Irq(0))).unwrap();
    });
    assert_eq!(*order.lock().unwrap(), [Softirq::Tasklet, Softirq::Rcu, Softirq::Hi]);
    m.boot(|smp| assert_eq!(smp.open_softirq(Softirq::Hi, |_| ()), Ok(()), "freed with the boot"));
}

#[test]
fn with_bottom_halves_off_they_wait_and_interrupts_do_not() {
    let m = machine(1);
    let ran = LocalU64::new(0);
    m.boot(|smp| {
        smp.open_softirq(Softirq::NetTx, |_| add(&ran, 1)).unwrap();
        smp.request_irq(Irq(0), |cpu| raise_softirq(cpu, Softirq::NetTx)).unwrap();
        smp.run(0, |cpu| {
            {
                let off = cpu.bh_disable();
                assert!(in_softirq(&off) && !in_serving_softirq(&off) && in_task(&off));
                assert_eq!(preempt_count(&off), SOFTIRQ_DISABLE_OFFSET);
                m.raise(0, Irq(0));
                assert_eq!((m.interrupts(0).0, ran.get()), (1, 0));
                local_bh_disable(cpu);
                raise_softirq(cpu, Softirq::NetTx);
                local_bh_enable(cpu);
                assert_eq!(ran.get(), 0, "still off");
            }
            assert_eq!((ran.get(), preempt_count(cpu)), (1, 0), "at the last enable");
        })
        .unwrap();
    });
}

/// A task's switch that was asked for while bottom halves were off happens when they are on again.
#[test]
fn with_bottom_halves_off_a_task_is_not_switched() {
    let m = machine(1);
    m.boot(|smp| {
        let task = smp.spawn("t", 0, |task| {
            let off = task.bh_disable();
            m.resched(0);
            let before = off.switches().0;
            drop(off);
            (before, task.switches().0)
        });
        assert_eq!(task.join().unwrap(), (0, 1));
    });
}

/// What runs on top of what: a task, a softirq in it, an interrupt in that, an NMI in that, and out again.
#[test]
fn contexts_nest_and_the_count_is_right_at_every_level() {
    let m = machine(1);
    let seen = Mutex::new(Vec::new());
    let see = |cpu: &Cpu<Native>| {
        seen.lock().unwrap().push((interrupt_context_level(cpu), preempt_count(cpu), irqs_disabled(cpu)))
    };
    m.boot(|smp| {
        smp.open_softirq(Softirq::Tasklet, |cpu| {
            see(cpu);
            m.raise(0, Irq(1));
            see(cpu);
        })
        .unwrap();
        smp.request_irq(Irq(0), |cpu| {
            see(cpu);
            raise_softirq(cpu, Softirq::Tasklet);
        })
        .unwrap();
        smp.request_irq(Irq(1), |cpu| {
            see(cpu);
            m.raise_nmi(0);
            m.raise(0, Irq(1 + 1)); // waits, and then is on top of the softirq too
            see(cpu);
        })
        .unwrap();
        smp.request_irq(Irq(2), see).unwrap();
        smp.request_nmi(see).unwrap();
        smp.run(0, |cpu| {
            let off = cpu.preempt_disable();
            see(&off);
            m.raise(0, Irq(0));
            see(&off);
        })
        .unwrap();
    });
    let (hard, soft, nmi) = (HARDIRQ_OFFSET, SOFTIRQ_OFFSET, NMI_OFFSET + HARDIRQ_OFFSET);
    let task = PREEMPT_OFFSET;
    let expected = [
        (0, task, false),
        (2, task + hard, true),
        (1, task + soft, false),
        (2, task + soft + hard, true),
        (3, task + soft + hard + nmi, true),
        (2, task + soft + hard, true),
        (2, task + soft + hard, true),
        (1, task + soft, false),
        (0, task, false),
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[test]
fn one_that_raises_itself_for_ever_is_left_for_later_after_ten_rounds() {
    const ROUNDS: u64 = 35;
    const MAX: u64 = MAX_SOFTIRQ_RESTART as u64;
    let m = machine(1);
    let ran = LocalU64::new(0);
    m.boot(|smp| {
        smp.open_softirq(Softirq::Block, |cpu| {
            add(&ran, 1);
            if ran.get() < ROUNDS {
                raise_softirq(cpu, Softirq::Block);
            }
        })
        .unwrap();
        smp.request_irq(Irq(0), |cpu| raise_softirq(cpu, Softirq::Block)).unwrap();
        smp.run(0, |_| {
            m.raise(0, Irq(0));
            assert_eq!(ran.get(), MAX);
            m.raise(0, Irq(0));
            assert_eq!(ran.get(), 2 * MAX, "the next interrupt goes on");
        })
        .unwrap();
        wait_until("the idle thread runs the rest", || m.softirqs(0) == ROUNDS);
        // A task that waits for it, and never gives way by itself.
        let task = smp.spawn("waits", 0, |_| {
            ran.set(0);
            m.raise(0, Irq(0));
            let at_once = ran.get();
            wait_until("the task is made to give way", || ran.get() == ROUNDS);
            at_once
        });
        assert!(task.join().unwrap() >= MAX);
    });
}

/// Interrupts hand work to a softirq, on busy CPUs, with bottom halves off, under masks, on idle ones, while tasks are
/// preempted and moved: all of it is done.
#[test]
fn no_work_that_an_interrupt_left_is_forgotten() {
    let m = machine(2);
    let left: PerCpu<LocalU64> = m.alloc_percpu(|_| LocalU64::new(0)).unwrap();
    let (raised, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let raise = |cpu| {
        m.raise(cpu, Irq(0));
        raised.fetch_add(1, Relaxed);
    };
    m.boot(|smp| {
        smp.request_irq(Irq(0), |cpu| {
            add(left.this_cpu_ptr(cpu), 1);
            raise_softirq(cpu, Softirq::NetRx);
        })
        .unwrap();
        smp.open_softirq(Softirq::NetRx, |cpu| {
            // Interrupts are on: they may leave more between the two.
            let flags = local_irq_save(cpu);
            done.fetch_add(left.this_cpu_ptr(cpu).get(), Relaxed);
            left.this_cpu_ptr(cpu).set(0);
            local_irq_restore(cpu, flags);
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
            let body = |task: &Task<Native>| {
                while !stop.load(Relaxed) {
                    let off = task.bh_disable();
                    (0..200).for_each(|i| _ = std::hint::black_box(i));
                    drop(off);
                    let flags = local_irq_save(task);
                    (0..200).for_each(|i| _ = std::hint::black_box(i));
                    local_irq_restore(task, flags);
                }
            };
            let tasks: Vec<_> = (0..3).map(|i| smp.spawn("busy", i % 2, body)).collect();
            tasks.into_iter().for_each(|t| t.join().unwrap());
        });
        for i in 0..500 {
            raise(i % 2);
            wait_until("an idle CPU runs them", || done.load(Relaxed) == raised.load(Relaxed));
        }
    });
}

/// An interrupt that raises a softirq, or an NMI, at every instruction of a section with bottom halves off in which one is
/// raised too: nothing is left over, and every count is back.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[test]
fn at_every_instruction_nothing_is_left_over() {
    let m = machine(1);
    let (irqs, ran) = (LocalU64::new(0), LocalU64::new(0));
    let nested = LocalU32::new(0);
    m.boot(|smp| {
        smp.request_irq(Irq(0), |cpu| {
            add(&irqs, 1);
            raise_softirq(cpu, Softirq::NetRx);
        })
        .unwrap();
        smp.request_nmi(|cpu| assert_eq!(interrupt_context_level(cpu), 3)).unwrap();
        smp.open_softirq(Softirq::NetRx, |_| {
            assert_eq!(nested.inc_return(), 1, "not in itself");
            add(&ran, 1);
            nested.dec();
        })
        .unwrap();
        smp.run(0, |cpu| {
            let code = || {
                local_bh_disable(cpu);
                raise_softirq(cpu, Softirq::NetRx);
                local_bh_enable(cpu);
            };
            let whole = |at| {
                assert_eq!(local_softirq_pending(cpu), 0, "step {at}");
                assert_eq!((preempt_count(cpu), irqs_disabled(cpu)), (0, false), "step {at}");
            };
            let seen = LocalU64::new(0);
            let interrupted = stepper::at_every_instruction(
                || m.raise(0, Irq(0)),
                code,
                |at| {
                    whole(at);
                    assert_eq!(irqs.get(), at + 1);
                    let new = ran.get() - seen.get();
                    assert!(new == 1 || new == 2, "step {at}: ran {new} times");
                    seen.set(ran.get());
                },
            );
            ran.set(0);
            let struck = stepper::at_every_instruction(
                || m.raise_nmi(0),
                code,
                |at| {
                    whole(at);
                    assert_eq!((ran.get(), m.nmis(0)), (at + 1, at + 1));
                },
            );
            println!("{interrupted} instructions interrupted, {struck} struck");
            assert!(interrupted > 50 && struck > 50);
        })
        .unwrap();
    });
}
