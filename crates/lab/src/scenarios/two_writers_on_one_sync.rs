//! A sequence counter has one writer at a time; two at once leave it odd, and readers wait for ever.

use stats::u64_stats::read_once;
use stats::{Form, U64Stats, U64StatsSync};
use sync::host::{AtomicBool, Ordering::SeqCst};

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "Two writers share one sequence",
    change: Change::Rule(
        "writers of one u64_stats_sync exclude each other; the section does not do it for them",
    ),
    watch: "the sequence: who stores which value, and what it is when both are done",
    cause: "each writer loads the sequence, adds 1 and stores it, and one that stores what it loaded before \
            the other's store takes that one's step back",
    breaks: "stuck",
    wrong: Side { form: "each writer just begins", run: || stage(false) },
    right: Side { form: "the writers hold a lock", run: || stage(true) },
    question: "run_cnt and run_time_ns have one sequence for each CPU and no lock. What keeps two writers \
               apart there?",
    answer: "They are per CPU: another CPU writes its own copy. On one CPU the section masks interrupts, so \
             nothing that counts can come in between. Two mechanisms, each covering what the other does not.",
};

/// What is shared by the two.
type Sync = <stats::virt::Announced<Bits32> as Form>::Sync;
type U64 = <stats::virt::Announced<Bits32> as Form>::U64;

fn stage(locked: bool) -> Take {
    let lab = Lab::<Bits32>::stats_off(3);
    lab.at("cpu0", "cnt.lo", Act::Turn("cpu1")).at("cpu1", "seq", Act::Turn("cpu0"));
    let (syncp, cnt, lock) = (Sync::new(), U64::new("cnt", 0), AtomicBool::new(false));
    let write = |cpu: &Cpu<K<Bits32>>| {
        while locked && lock.swap(true, SeqCst) {
            lab.script.say(cpu, "the lock is held");
            assert!(lab.script.stand_back(cpu), "nobody is left to give the lock back");
        }
        let flags = syncp.update_begin_irqsave(cpu);
        cnt.inc();
        syncp.update_end_irqrestore(cpu, flags);
        lock.store(false, SeqCst);
    };
    let seen = std::sync::Mutex::new(None);
    lab.play(|p| {
        p.cpu(0, write);
        p.cpu(1, write);
        p.cpu(2, |_| *seen.lock().unwrap() = (0..3).find_map(|_| read_once(&syncp, || cnt.read())));
    })
    .expect("nothing panics");
    match seen.into_inner().unwrap() {
        None => {
            lab.judge("stuck", false, "the sequence stays odd with no writer inside: a reader waits for ever")
        }
        Some((_, cnt)) => {
            lab.judge("stuck", cnt == 2, format!("2 writers, {cnt} counted, and the reader got in"))
        }
    }
}
