//! A start of 0 means "skip": a clock that returns 0 would skip programs.

use filter::{sched_clock, stats_enabled};
use trampoline::{NO_START_TIME, bpf_prog_start_time, update_prog_stats};

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "A clock at 0 says \"skip this program\"",
    change: Change::Rule(
        "a start is 0 to skip, 1 to run untimed, and above 1 a time; a clock of 0 becomes 1",
    ),
    watch: "the value of the first clock read, and whether the program runs",
    cause: "one value carries two things, a time and an order to skip, and early in boot the clock may be 0",
    breaks: "skipped",
    wrong: Side {
        form: "the clock is handed on as it is",
        run: || stage(|cpu| if stats_enabled(cpu) { sched_clock(cpu) } else { NO_START_TIME }),
    },
    right: Side { form: "today, 0 becomes 1: run, not timed", run: || stage(bpf_prog_start_time) },
    question: "What does the right form lose, and when does it lose the same with a clock of 1?",
    answer: "The run is not counted. A clock of exactly 1 cannot be told from \"not timed\" and is lost too: \
             two nanoseconds after boot nobody measures programs.",
};

fn stage(start: impl Fn(&Cpu<K<Bits64>>) -> u64 + Sync) -> Take {
    let lab = Lab::<Bits64>::new(1);
    lab.script.clock_starts_at(0);
    lab.script.cost("clock", 0);
    lab.script.cost("key", 0);
    let prog = lab.program("probe", ProgType::Tracing, count);
    let ran = std::sync::Mutex::new(0);
    lab.play(|p| {
        p.cpu(0, |cpu| {
            let start = start(cpu);
            if start != 0 {
                prog.bpf_func.call(cpu, &mut BpfCtx::default());
                *ran.lock().unwrap() += 1;
            }
            update_prog_stats(cpu, &prog, start);
        });
    })
    .expect("nothing panics");
    let count = ran.into_inner().unwrap();
    lab.judge("skipped", count == 1, format!("called once: {}", runs(count)))
}
