//! Time slices, and tasks that sleep.

use std::time::Duration;

use percpu::{
    Machine, Native, NoSteps, Topology, rcu_read_lock, rcu_read_lock_trace, rcu_read_unlock,
    rcu_read_unlock_trace,
};
use sync::host::{AtomicBool, AtomicU64, Ordering::SeqCst};

fn machine() -> Machine<Native> {
    Machine::new(Topology::smp(1), NoSteps, |_| ()).unwrap()
}

/// Two tasks that never give the CPU away wait for each other, which ends only if somebody takes it from them.
#[test]
fn a_tick_takes_the_cpu_from_who_has_had_it() {
    let m = machine();
    let turns = [AtomicU64::new(0), AtomicU64::new(0)];
    m.boot(|smp| {
        smp.start_ticks(Duration::from_micros(200));
        let turns = &turns;
        let tasks: Vec<_> = (0..2)
            .map(|i| {
                smp.spawn("task", 0, move |task| {
                    for turn in 1..=20 {
                        turns[i].store(turn, SeqCst);
                        while turns[1 - i].load(SeqCst) < turn {
                            std::hint::spin_loop();
                        }
                    }
                    task.switches().0
                })
            })
            .collect();
        let switches: u64 = tasks.into_iter().map(|t| t.join().unwrap()).sum();
        assert!(switches >= 20, "{switches} switches");
    });
    assert_eq!(m.taints(), 0);
}

#[test]
fn with_preemption_off_the_tick_waits() {
    let m = machine();
    m.boot(|smp| {
        smp.start_ticks(Duration::from_micros(100));
        let served = smp.spawn("task", 0, |task| {
            let cpu = task.preempt_disable();
            let from = m.interrupts(0).0;
            while m.interrupts(0).0 < from + 20 {
                std::hint::spin_loop();
            }
            let held = task.switches().0;
            drop(cpu);
            (held, task.switches().0)
        });
        assert_eq!(served.join().unwrap(), (0, 1), "none while it was off, one as soon as it was on");
    });
}

#[test]
fn who_sleeps_lets_others_have_the_cpu() {
    let m = machine();
    let (asleep, woken) = (AtomicBool::new(false), AtomicBool::new(false));
    m.boot(|smp| {
        let sleeper = smp.spawn("sleeper", 0, |task| {
            let cpu = task.migrate_disable();
            rcu_read_lock_trace(task); // as a program that may sleep does
            asleep.store(true, SeqCst);
            cpu.wait_event(|| woken.load(SeqCst));
            rcu_read_unlock_trace(task);
            cpu.msleep(Duration::from_micros(1));
            (cpu.smp_processor_id(), task.switches())
        });
        while !asleep.load(SeqCst) {
            std::thread::yield_now();
        }
        // The only CPU is the sleeper's, and free.
        smp.run(0, |_| woken.store(true, SeqCst)).unwrap();
        assert_eq!(sleeper.join().unwrap(), (0, (2, 0)));
    });
    assert_eq!(m.taints(), 0);
}

#[test]
fn who_must_not_sleep_taints_the_machine_and_keeps_the_cpu() {
    let m = machine();
    m.boot(|smp| {
        let task = smp.spawn("task", 0, |task| {
            let off = task.preempt_disable();
            off.msleep(Duration::from_micros(1));
            drop(off);
            let masked = percpu::local_irq_save(task.raw_cpu());
            task.wait_event(|| true);
            percpu::local_irq_restore(task.raw_cpu(), masked);
            rcu_read_lock(task);
            task.msleep(Duration::from_micros(1));
            rcu_read_unlock(task);
            task.switches().0
        });
        assert_eq!(task.join().unwrap(), 0);
    });
    assert_eq!(m.taints(), 3);
}
