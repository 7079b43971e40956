//! A task is preempted inside a program, and another task's event is refused on that CPU.

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "A miss, and nobody called itself",
    change: Change::Rule("the guard is the CPU's, and a pinned program can be preempted"),
    watch: "who holds the guard when B comes",
    cause: "the guard says \"this CPU is in the program\", not \"this task is\", and fentry programs run with \
            preemption on",
    breaks: "missed",
    wrong: Side {
        form: "pinned only, as fentry programs are",
        run: || stage(|task, prog| _ = invoke(task, prog)),
    },
    right: Side {
        form: "preemption off, as raw tracepoint programs run",
        run: || stage(|task, prog| _ = invoke(&task.preempt_disable(), prog)),
    },
    question: "bpftool calls the number recursion_misses. What should a tool print beside it?",
    answer: "That events were lost, for whatever reason: recursion, a preempted or a sleeping program. A busy \
             machine with sleepable programs shows misses with no recursion anywhere.",
};

fn stage(call: impl Fn(&Task<K<Bits64>>, &BpfProg<K<Bits64>>) + Sync) -> Take {
    let lab = Lab::<Bits64>::new(1);
    lab.at("A", "call", Act::Turn("B"));
    let prog = lab.program("probe", ProgType::Tracing, count);
    let traced = |task: &Task<K<Bits64>>| {
        call(task, &prog);
        lab.script.point(task, "done");
    };
    lab.play(|p| {
        p.task("A", 0, traced);
        p.task("B", 0, traced);
    })
    .expect("nothing panics");
    let s = lab.stats(&prog);
    lab.judge("missed", s.misses == 0, format!("2 calls by 2 tasks: {}, {} refused", runs(s.cnt), s.misses))
}
