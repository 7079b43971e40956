//! On 32-bit an interrupt that ran the same program inside its update undid half of it.

use filter::history;

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "An interrupt runs the program it updates",
    change: Change::Commit("f941eadd8d6d"),
    watch: "the low half of the count: who reads it, who writes it in between, and what the first one writes \
            then",
    cause: "the update was made with interrupts on, and on 32-bit it is several steps: what an interrupt \
            counts between the read and the write of a half is overwritten",
    breaks: "lost-count",
    wrong: Side {
        form: "Linux 5.15, 32-bit: interrupts stay on",
        run: || {
            stage(|cpu, prog| {
                let cpu = cpu.preempt_disable();
                _ = history::before_f941eadd8d6d::bpf_prog_run(&cpu, prog, &mut BpfCtx::default());
            })
        },
    },
    right: Side {
        form: "today, 32-bit: interrupts are masked",
        run: || stage(|cpu, prog| _ = bpf_prog_run(cpu, prog, &mut BpfCtx::default())),
    },
    question: "In the wrong side, which value has the sequence while both updates are under way, and who is \
               misled?",
    answer: "2, an even one: the interrupt found it at 1 and added 1. A reader on another CPU takes even for \
             \"nobody is writing\" and accepts what it finds half written.",
};

fn stage(run: impl Fn(&Cpu<K<Bits32>>, &BpfProg<K<Bits32>>) + Sync) -> Take {
    let lab = Lab::<Bits32>::new(1);
    lab.at("cpu0", "cnt.lo", Act::Irq);
    let prog = lab.program("counter", ProgType::RawTracepoint, count);
    lab.play(|p| {
        p.irq(|cpu| run(cpu, &prog));
        p.cpu(0, |cpu| run(cpu, &prog));
    })
    .expect("nothing panics");
    let counted = lab.stats(&prog).cnt;
    lab.judge("lost-count", counted == 2, format!("2 runs, {counted} counted"))
}
