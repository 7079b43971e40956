//! On 32-bit PREEMPT_RT of 6.0 the irqsave section masked nothing.

use stats::history::before_44b0c2957adc;
use stats::virt::Word;
use stats::{Bits32Rt, Form};

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "RT: preemption off, interrupts on",
    change: Change::Commit("44b0c2957adc"),
    watch: "whether the interrupt is held back while the halves are written",
    cause: "on RT most interrupts are threads, so the section turned only preemption off; an interrupt that is \
            none, such as a timer that must be exact, ran a program in the middle of it",
    breaks: "lost-count",
    wrong: Side {
        form: "Linux 6.0, 32-bit RT: preemption off",
        run: stage::<before_44b0c2957adc::Bits32Rt<Word>>,
    },
    right: Side { form: "since 6.1: interrupts are masked, too", run: stage::<Bits32Rt<Word>> },
    question: "Masking interrupts is what RT people avoid. Why was it right to do it here?",
    answer: "It lasts for a few stores. A latency that is bounded by a handful of instructions is no problem \
             on RT; a section of unknown length would be.",
};

fn stage<F: Form>() -> Take {
    let lab = Lab::<F>::new(1);
    lab.at("cpu0", "cnt.lo", Act::Irq);
    let prog = lab.program("counter", ProgType::RawTracepoint, count);
    lab.play(|p| {
        p.irq(|cpu| _ = run(cpu, &prog));
        p.cpu(0, |cpu| _ = run(cpu, &prog));
    })
    .expect("nothing panics");
    let counted = lab.stats(&prog).cnt;
    lab.judge("lost-count", counted == 2, format!("2 runs, {counted} counted"))
}
