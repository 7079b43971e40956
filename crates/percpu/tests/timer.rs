//! Timers of a CPU. No test looks at a clock: each waits for ticks, of the timer or of another beside it.

use std::time::Duration;

use percpu::HrtimerRestart::{NoRestart, Restart};
use percpu::{
    Machine, Native, Softirq, Topology, in_hardirq, in_task, irqs_disabled, local_irq_restore,
    local_irq_save, raise_softirq,
};
use sync::host::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Short, so that tests are; nothing depends on it.
const SHORT: Duration = Duration::from_micros(20);
/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);

fn machine(cpus: usize) -> Machine<Native> {
    Machine::new(Topology::smp(cpus), Default::default(), |_| ()).unwrap()
}

fn wait_until(done: impl Fn() -> bool) {
    while !done() {
        sync::thread::yield_now();
    }
}

#[test]
fn one_that_restarts_ticks_on_its_cpu_as_an_interrupt_until_it_is_cancelled() {
    let m = machine(2);
    let (ticks, others) = (AtomicU64::new(0), AtomicU64::new(0));
    m.boot(|smp| {
        let timer = smp.hrtimer(1, |cpu, _| {
            assert_eq!(cpu.smp_processor_id(), 1);
            assert!(in_hardirq(cpu) && irqs_disabled(cpu));
            ticks.fetch_add(1, Relaxed);
            Restart
        });
        let other = smp.hrtimer(0, |_, _| {
            others.fetch_add(1, Relaxed);
            Restart
        });
        assert!(!timer.is_active());
        timer.start(SHORT);
        assert!(timer.is_active());
        wait_until(|| ticks.load(Relaxed) >= 100);
        assert!(timer.cancel());
        assert!(!timer.is_active() && !timer.cancel());
        let ticked = ticks.load(Relaxed);
        other.start(SHORT);
        wait_until(|| others.load(Relaxed) >= 100);
        assert_eq!(ticks.load(Relaxed), ticked, "it is off");
        timer.start(SHORT);
        wait_until(|| ticks.load(Relaxed) > ticked);
    });
    // Both were on: they end with the machine, and the next boot has none.
    let ticked = ticks.load(Relaxed);
    m.boot(|smp| smp.on_each_cpu(|_| ()));
    assert_eq!(ticks.load(Relaxed), ticked);
}

#[test]
fn one_that_does_not_restart_runs_once_for_each_start() {
    let m = machine(1);
    let (once, others) = (AtomicU64::new(0), AtomicU64::new(0));
    m.boot(|smp| {
        let timer = smp.hrtimer(0, |_, _| {
            once.fetch_add(1, Relaxed);
            NoRestart
        });
        let other = smp.hrtimer(0, |_, _| {
            others.fetch_add(1, Relaxed);
            Restart
        });
        other.start(SHORT);
        for n in 1..=3 {
            timer.start(SHORT);
            wait_until(|| once.load(Relaxed) == n);
            let from = others.load(Relaxed);
            wait_until(|| others.load(Relaxed) >= from + 20);
            assert_eq!((once.load(Relaxed), timer.is_active()), (n, false));
        }
        // Far away, then near: the last start counts.
        timer.start(NEVER);
        timer.start(SHORT);
        wait_until(|| once.load(Relaxed) == 4);
        timer.start(NEVER);
        assert!(timer.cancel(), "it was due, some day");
        timer.start(NEVER); // and the machine goes down
    });
    assert_eq!(once.load(Relaxed), 4);
}

#[test]
fn one_starts_itself_in_its_callback_whatever_that_returns() {
    let m = machine(1);
    let ticks = AtomicU64::new(0);
    m.boot(|smp| {
        let timer = smp.hrtimer(0, |_, timer| match ticks.fetch_add(1, Relaxed) {
            99 => NoRestart,
            n => {
                timer.start(SHORT);
                if n.is_multiple_of(2) { NoRestart } else { Restart }
            }
        });
        timer.start(SHORT);
        wait_until(|| !timer.is_active());
    });
    assert_eq!(ticks.load(Relaxed), 100);
}

#[test]
fn under_the_mask_one_waits_and_the_times_it_missed_are_counted() {
    let m = machine(2);
    let (ticks, others) = (AtomicU64::new(0), AtomicU64::new(0));
    m.boot(|smp| {
        let timer = smp.hrtimer(0, |_, _| {
            ticks.fetch_add(1, Relaxed);
            Restart
        });
        let other = smp.hrtimer(1, |_, _| {
            others.fetch_add(1, Relaxed);
            Restart
        });
        other.start(SHORT);
        smp.run(0, |cpu| {
            let flags = local_irq_save(cpu);
            timer.start(SHORT);
            let from = others.load(Relaxed);
            wait_until(|| others.load(Relaxed) >= from + 20);
            assert_eq!(ticks.load(Relaxed), 0);
            local_irq_restore(cpu, flags);
            assert!(ticks.load(Relaxed) >= 1, "at once, since it was due");
            assert!(timer.overruns() > 0, "of about twenty that were missed");
        })
        .unwrap();
    });
}

/// Tasks that never give way share a CPU by its tick: each waits for the others.
#[test]
fn a_tick_makes_tasks_share_a_cpu() {
    let m = machine(1);
    let turns = AtomicU64::new(0);
    m.boot(|smp| {
        let tick = smp.hrtimer(0, |cpu, _| {
            cpu.machine().resched(0);
            Restart
        });
        tick.start(SHORT);
        let body = |me: u64| {
            let turns = &turns;
            move |task: &percpu::Task<Native>| {
                for round in 0..10 {
                    wait_until(|| turns.load(Relaxed) == 3 * round + me);
                    turns.fetch_add(1, Relaxed);
                }
                task.switches().0
            }
        };
        let tasks: Vec<_> = (0..3).map(|me| smp.spawn("task", 0, body(me))).collect();
        let switches: u64 = tasks.into_iter().map(|t| t.join().unwrap()).sum();
        assert!(switches > 20, "{switches}");
    });
    assert_eq!(turns.load(Relaxed), 30);
}

/// The interrupt leaves the work to a softirq, which merges, as the kernel's soft hrtimers do.
#[test]
fn a_callback_may_leave_work_to_a_softirq() {
    let m = machine(1);
    let (ticks, seen) = (AtomicU64::new(0), AtomicU64::new(0));
    m.boot(|smp| {
        smp.open_softirq(Softirq::Hrtimer, |_| seen.store(ticks.load(Relaxed), Relaxed)).unwrap();
        let timer = smp.hrtimer(0, |cpu, _| {
            ticks.fetch_add(1, Relaxed);
            raise_softirq(cpu, Softirq::Hrtimer);
            Restart
        });
        timer.start(SHORT);
        wait_until(|| seen.load(Relaxed) >= 50);
        timer.cancel();
        smp.run(0, |cpu| assert!(in_task(cpu))).unwrap();
        assert_eq!(seen.load(Relaxed), ticks.load(Relaxed));
    });
}

#[test]
fn a_panic_in_a_callback_reaches_the_caller_and_the_timer_is_off() {
    let m = machine(1);
    let e = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        m.boot(|smp| {
            let timer = smp.hrtimer(0, |_, _| panic!("in the callback"));
            timer.start(SHORT);
            wait_until(|| !timer.is_active());
        });
    }));
    let message = *e.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("panic on CPU 0: in the callback"), "{message}");
}

/// When cancelling returns, the callback does not run and will not, at whatever moment it is done.
#[test]
fn after_cancel_the_callback_is_over() {
    let m = machine(2);
    let (allowed, inside) = (AtomicBool::new(false), AtomicBool::new(false));
    m.boot(|smp| {
        let timer = smp.hrtimer(1, |_, _| {
            assert!(allowed.load(SeqCst), "after cancel");
            inside.store(true, SeqCst);
            (0..2000).for_each(|i| _ = std::hint::black_box(i));
            assert!(allowed.load(SeqCst), "cancel did not wait");
            Restart
        });
        for i in 0..5000u64 {
            allowed.store(true, SeqCst);
            inside.store(false, SeqCst);
            timer.start(Duration::from_nanos(i * 7 % 2000));
            if i % 4 == 0 {
                wait_until(|| inside.load(SeqCst));
            } else {
                (0..i * 13 % 3000).for_each(|i| _ = std::hint::black_box(i));
            }
            timer.cancel();
            allowed.store(false, SeqCst);
        }
    });
}
