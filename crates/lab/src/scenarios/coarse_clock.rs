//! A clock of 4 ms ticks cannot time what takes a microsecond.

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "The clock ticks every 4 ms",
    change: Change::Rule(
        "before the TSC is up, or without one, sched_clock is the timer tick: 4 ms at HZ = 250",
    ),
    watch: "the clock's values around each run",
    cause: "a duration is the difference of two clock reads, and a run that is shorter than a tick is 0 ns or \
            4 ms",
    breaks: "time",
    wrong: Side { form: "jiffies", run: || stage(4_000_000) },
    right: Side { form: "a clock of single ns", run: || stage(1) },
    question: "Over a very long time, is run_time_ns of the coarse clock right or wrong?",
    answer: "On average right, if runs do not keep step with the tick: a run of 1 ms meets a tick in one of \
             four. The mean of many is fair, one run's time is not, and a program that the tick itself starts \
             is never seen.",
};

fn stage(tick: u64) -> Take {
    let lab = Lab::<Bits64>::new(1);
    lab.script.clock_starts_at(8_000_000);
    lab.script.clock_ticks(tick);
    lab.script.cost("call", 1_000_000);
    let prog = lab.program("probe", ProgType::RawTracepoint, count);
    lab.play(|p| p.cpu(0, |cpu| (0..3).for_each(|_| _ = run(cpu, &prog)))).expect("nothing panics");
    let ns = lab.stats(&prog).nsecs;
    lab.judge("time", ns >= 3_000_000, format!("3 runs of 1 ms each, reported: {ns} ns"))
}
