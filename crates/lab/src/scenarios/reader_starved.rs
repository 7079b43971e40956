//! A sequence counter never lets its readers hold up a writer, so a writer that never rests holds up its readers.

use stats::Form;
use sync::host::{AtomicBool, Ordering::SeqCst};

use crate::scenario::prelude::*;

/// Attempts before the reader gives up; a kernel's would not.
const ATTEMPTS: usize = 100;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "A hot writer starves its reader",
    change: Change::Rule("a reader of a sequence counter has no guarantee to get through"),
    watch: "the sequence at the end of each attempt",
    cause: "each update that falls into a read makes it void, and nothing makes the writer wait",
    breaks: "starved",
    wrong: Side { form: "32-bit: an update falls into every attempt", run: stage::<Bits32> },
    right: Side {
        form: "64-bit: the same writer, and a reader that does not look for it",
        run: stage::<Bits64>,
    },
    question: "Could it really happen here, with a read of six words against an update that is part of a whole \
               program run?",
    answer: "Not for long: a run takes far longer than a read, so most attempts fall between two updates. The \
             rule matters where the writer is a loop of nothing but updates, or the reader is slowed down \
             between its two looks.",
};

fn stage<F: Form>() -> Take {
    let lab = Lab::<F>::new(2);
    for nth in 1..=ATTEMPTS as u64 {
        lab.at_nth(
            "cpu0",
            if size_of::<F::U64>() == 8 { "nsecs" } else { "nsecs.lo" },
            nth,
            Act::Turn("cpu1"),
        );
    }
    let prog = lab.program("counter", ProgType::RawTracepoint, count);
    let (seen, read_done) = (std::sync::Mutex::new(None), AtomicBool::new(false));
    lab.play(|p| {
        p.cpu(0, |cpu| {
            let first = read(&prog, 1, 2);
            lab.script.record(false);
            let later = first.or_else(|| read(&prog, 1, ATTEMPTS - 2));
            lab.script.record(true);
            if later.is_none() {
                lab.script.say(cpu, format!("... {ATTEMPTS} attempts"));
            }
            *seen.lock().unwrap() = later;
            read_done.store(true, SeqCst);
        });
        p.cpu(1, |cpu| {
            while !read_done.load(SeqCst) {
                run(cpu, &prog);
                lab.script.stand_back(cpu);
            }
        });
    })
    .expect("nothing panics");
    match seen.into_inner().unwrap() {
        None => lab.judge("starved", false, format!("{ATTEMPTS} attempts, and an update in each")),
        Some(seen) => lab.judge(
            "starved",
            true,
            format!("read at the first attempt: {} ns, {}", seen.nsecs, runs(seen.cnt)),
        ),
    }
}
