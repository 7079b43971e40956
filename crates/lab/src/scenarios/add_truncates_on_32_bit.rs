//! On 32-bit a run of more than 4.29 s loses the high half of its time.

use stats::Form;

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "A long run loses its high half on 32-bit",
    change: Change::Rule(
        "u64_stats_add takes an unsigned long, which has 32 bits on a 32-bit machine (latent)",
    ),
    watch: "the duration between the clock reads, and what is added",
    cause: "the counter has 64 bits and the duration has 64 bits, but the function between them takes a long",
    breaks: "time",
    wrong: Side { form: "32-bit", run: stage::<Bits32> },
    right: Side { form: "64-bit", run: stage::<Bits64> },
    question: "Which programs run for more than four seconds?",
    answer: "Sleepable ones that wait for a page or a lock, any program that is preempted on a busy machine, \
             and all of them in a virtual machine that was stopped in between: the clock goes on.",
};

fn stage<F: Form>() -> Take {
    let lab = Lab::<F>::new(1);
    lab.script.cost("call", 5_000_000_000);
    let prog = lab.program("sleeper", ProgType::RawTracepoint, count);
    lab.play(|p| p.cpu(0, |cpu| _ = run(cpu, &prog))).expect("nothing panics");
    let ns = lab.stats(&prog).nsecs;
    lab.judge("time", ns >= 5_000_000_000, format!("a run of 5 s, reported: {ns} ns"))
}
