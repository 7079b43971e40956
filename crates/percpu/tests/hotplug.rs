//! CPUs that come and go: who is there goes on elsewhere, who is bound goes on first, and what was counted still counts.

use std::panic::{AssertUnwindSafe, catch_unwind};

use percpu::{HotplugError, Irq, Machine, Native, NoSteps, Topology};
use sync::host::{AtomicBool, AtomicU64, Ordering::SeqCst};
use sync::local::LocalU64;

/// Adds to a counter of one's own CPU, where nobody else does.
fn add(count: &LocalU64, v: u64) {
    count.set(count.get() + v);
}

fn machine(online: usize, possible: usize) -> Machine<Native> {
    Machine::new(Topology::with_possible(online, possible), NoSteps, |_| ()).unwrap()
}

#[test]
fn what_was_counted_on_a_cpu_that_is_down_still_counts() {
    let m = machine(2, 3);
    let count = m.alloc_percpu(|_| LocalU64::new(0)).unwrap();
    let sum = || count.iter_possible().map(LocalU64::get).sum::<u64>();
    m.boot(|smp| {
        smp.on_each_cpu(|cpu| add(count.this_cpu_ptr(cpu), 10));
        smp.cpu_down(1).unwrap();
        assert_eq!((m.cpu_online(0), m.cpu_online(1), m.num_online_cpus()), (true, false, 1));
        assert_eq!(smp.on_each_cpu(|cpu| cpu.smp_processor_id()), [0]);
        assert_eq!(sum(), 20);
        smp.cpu_up(1).unwrap();
        assert_eq!(smp.on_each_cpu(|cpu| count.this_cpu_ptr(cpu).get()), [10, 10]);
    });
}

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    let m = machine(2, 3);
    m.boot(|smp| {
        assert_eq!(smp.cpu_up(0), Err(HotplugError::Already(0)));
        assert_eq!(smp.cpu_down(2), Err(HotplugError::NotPresent(2)), "possible, and never up");
        assert_eq!(smp.cpu_up(9), Err(HotplugError::NotPresent(9)));
        smp.cpu_down(0).unwrap();
        assert_eq!(smp.cpu_down(0), Err(HotplugError::Already(0)));
        let last = smp.cpu_down(1).unwrap_err();
        assert_eq!(
            (last, last.to_string()),
            (HotplugError::Last(1), "CPU 1 is the last one online: it stays".into())
        );
        let work = catch_unwind(AssertUnwindSafe(|| smp.run(0, |_| ()))).unwrap_err();
        assert_eq!(sync::thread::panic_message(&*work), "CPU 0 is not online");
        let task = catch_unwind(AssertUnwindSafe(|| smp.spawn("task", 0, |_| ()))).err().unwrap();
        assert_eq!(sync::thread::panic_message(&*task), "CPU 0 is not online");
        let on_a_cpu = smp.run(1, |_| smp.cpu_up(0)).unwrap();
        assert_eq!(on_a_cpu, Ok(()), "to bring one up waits for nobody");
        let itself = smp.run(1, |_| smp.cpu_down(0)).unwrap_err();
        assert!(itself.message.contains("could wait for itself"), "{itself}");
    });
}

#[test]
fn what_is_raised_on_a_cpu_that_is_down_waits_for_it() {
    let m = machine(2, 2);
    let served = AtomicU64::new(0);
    m.boot(|smp| {
        smp.request_irq(Irq(0), |cpu| _ = served.fetch_add(1 + cpu.smp_processor_id() as u64, SeqCst))
            .unwrap();
        smp.request_nmi(|_| _ = served.fetch_add(100, SeqCst)).unwrap();
        smp.cpu_down(1).unwrap();
        m.raise(1, Irq(0));
        m.raise(1, Irq(0));
        m.raise_nmi(1);
        assert_eq!(served.load(SeqCst), 0);
        smp.cpu_up(1).unwrap();
        smp.run(1, |_| ()).unwrap();
        assert_eq!(served.load(SeqCst), 104);
        // What is down at the end comes up for it: nothing raised is forgotten.
        smp.cpu_down(1).unwrap();
        m.raise(1, Irq(0));
    });
    assert_eq!(served.load(SeqCst), 106);
}

#[test]
fn a_task_that_may_move_goes_on_elsewhere_and_one_that_may_not_goes_on_first() {
    let m = machine(2, 2);
    let (there, leave, moved) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    m.boot(|smp| {
        let bound = smp.spawn("bound", 1, |task| {
            task.migrate_disable().cond_resched(); // it may be switched, to no other CPU
            let pinned = task.migrate_disable();
            there.store(true, SeqCst);
            let mut seen = vec![];
            while !leave.load(SeqCst) {
                pinned.cond_resched();
                seen.push(pinned.smp_processor_id());
            }
            seen.dedup();
            drop(pinned);
            // Now it may: with the CPU gone it does, at the first switch.
            while task.raw_cpu().smp_processor_id() == 1 {
                task.cond_resched();
            }
            moved.store(true, SeqCst);
            seen
        });
        while !there.load(SeqCst) {
            std::thread::yield_now();
        }
        std::thread::scope(|s| {
            let down = s.spawn(|| smp.cpu_down(1));
            while m.cpu_online(1) {
                std::thread::yield_now();
            }
            for _ in 0..1000 {
                std::thread::yield_now();
            }
            assert!(!down.is_finished() && !moved.load(SeqCst), "somebody is bound to it");
            leave.store(true, SeqCst);
            down.join().unwrap().unwrap();
        });
        assert_eq!(bound.join().unwrap(), [1], "it stayed, and the CPU with it");
    });
}

/// Everything at once: tasks that count, interrupts, and a CPU that comes and goes.
#[test]
fn nothing_is_lost_while_a_cpu_comes_and_goes() {
    let m = machine(3, 3);
    let count = m.alloc_percpu(|_| LocalU64::new(0)).unwrap();
    let (stop, raised) = (AtomicBool::new(false), AtomicU64::new(0));
    let by_irq = m.alloc_percpu(|_| LocalU64::new(0)).unwrap();
    let (made, offs) = m.boot(|smp| {
        smp.request_irq(Irq(0), |cpu| add(by_irq.this_cpu_ptr(cpu), 1)).unwrap();
        let tasks: Vec<_> = (0..4)
            .map(|i| {
                smp.spawn("task", i % 3, |task| {
                    let mut made = 0;
                    while !stop.load(SeqCst) {
                        add(count.this_cpu_ptr(&task.preempt_disable()), 1);
                        made += 1;
                        task.cond_resched();
                    }
                    made
                })
            })
            .collect();
        let raiser = smp.spawn_outside("raiser", || {
            while !stop.load(SeqCst) {
                (0..3).for_each(|cpu| m.raise(cpu, Irq(0)));
                raised.fetch_add(3, SeqCst);
                sync::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        let mut offs = 0;
        for id in (0..20).map(|i| 1 + i % 2) {
            smp.cpu_down(id).unwrap();
            let at = || count.per_cpu_ptr(id).get() + by_irq.per_cpu_ptr(id).get();
            let before = at();
            for _ in 0..20 {
                std::thread::yield_now();
            }
            assert_eq!(at(), before, "somebody was on a CPU that is down");
            smp.cpu_up(id).unwrap();
            offs += 1;
        }
        stop.store(true, SeqCst);
        let made: u64 = tasks.into_iter().map(|t| t.join().unwrap()).sum();
        raiser.join().unwrap();
        (made, offs)
    });
    assert_eq!(count.iter_possible().map(LocalU64::get).sum::<u64>(), made);
    assert_eq!(by_irq.iter_possible().map(LocalU64::get).sum::<u64>(), raised.load(SeqCst));
    println!("{made} counts, {} interrupts, {offs} times down", raised.load(SeqCst));
}
