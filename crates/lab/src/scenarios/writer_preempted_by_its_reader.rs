//! A writer that can be preempted, and a reader of higher priority on the same CPU.

use stats::virt::Word;
use stats::{Seqcount, U64Stats};
use sync::host::{AtomicBool, Ordering::SeqCst};

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "A reader spins on top of its writer",
    change: Change::Rule("who writes under a sequence counter cannot be preempted until it is done"),
    watch: "which value the reader finds each time, and who could change it",
    cause: "a reader waits while the sequence is odd, and a reader that has preempted the writer on its own \
            CPU waits for somebody who cannot run before it is done",
    breaks: "stuck",
    wrong: Side { form: "the writer can be preempted", run: || stage(false) },
    right: Side { form: "preemption is off while it writes", run: || stage(true) },
    question: "On PREEMPT_RT a spinlock does not turn preemption off. What does u64_stats do there?",
    answer: "Its sections turn preemption off themselves (preempt_disable_nested), on RT only: elsewhere the \
             caller is not preemptible anyway, and the same call just checks that.",
};

fn stage(disable: bool) -> Take {
    let lab = Lab::<Bits32>::stats_off(1);
    lab.at("writer", "cnt.lo", Act::Turn("reader"));
    let seq = Seqcount::<Word>::new();
    let cnt = stats::u64_stats::Halves::<Word>::new("cnt", 0);
    let stuck = AtomicBool::new(false);
    lab.play(|p| {
        p.task("writer", 0, |task| {
            let off = disable.then(|| task.preempt_disable());
            seq.write_begin();
            cnt.inc();
            seq.write_end();
            drop(off);
            lab.script.point(task, "done");
        });
        p.task("reader", 0, |task| {
            let read = (0..4).find_map(|_| seq.try_read_begin());
            if read.is_some() {
                cnt.read();
            } else {
                lab.script.say(task, "... and so on: higher priority, it does not yield");
                lab.script.record(false);
                stuck.store(true, SeqCst);
            }
        });
    })
    .expect("nothing panics");
    let stuck = stuck.load(SeqCst);
    let says = if stuck {
        "the reader waits for the writer it preempted"
    } else {
        "the reader came after the writer"
    };
    lab.judge("stuck", !stuck, says)
}
