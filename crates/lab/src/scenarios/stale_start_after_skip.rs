//! A skipped program reached exit with the start time of the one before it.

use trampoline::{history, invoke_bpf_prog};

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "A skipped program is counted anyway",
    change: Change::Commit("dc7d7447b56b"),
    watch: "in the interrupt: \"second\" does not run, and what is written after it was refused",
    cause: "the generated code kept the start after the branch that skips the program, so exit was given \
            whatever the place held: the start of the program before it on the same trampoline",
    breaks: "counted-unrun",
    wrong: Side {
        form: "Linux 6.8 on arm64: the start is kept after the skip",
        run: || {
            stage(|cpu, prog, kept| {
                let mut ctx = BpfCtx::default();
                _ = history::before_dc7d7447b56b::invoke_bpf_prog(cpu, prog, 0, &mut ctx, kept);
            })
        },
    },
    right: Side {
        form: "today: the start is kept before the skip",
        run: || stage(|cpu, prog, _| _ = invoke_bpf_prog(cpu, prog, 0, &mut BpfCtx::default())),
    },
    question: "Why was x86 right all along, with the same C code around it?",
    answer: "Enter and exit are C, but the call sequence around them is written by each architecture's JIT. \
             x86's kept the start first and then branched. Nothing in C says in which order it must be.",
};

fn stage(invoke: impl Fn(&Cpu<K<Bits64>>, &BpfProg<K<Bits64>>, &mut u64) + Sync) -> Take {
    let lab = Lab::<Bits64>::new(1);
    let first = lab.program("first", ProgType::Tracing, count);
    let second = lab.program("second", ProgType::Tracing, |cpu| cpu.machine().raise(0, percpu::Irq(0)));
    // The traced function is called in the interrupt, too; the interrupt comes while "second" runs.
    lab.play(|p| {
        p.irq(|cpu| {
            let mut kept = 0;
            invoke(cpu, &first, &mut kept);
            invoke(cpu, &second, &mut kept);
        });
        p.cpu(0, |cpu| invoke(cpu, &second, &mut 0));
    })
    .expect("nothing panics");
    let counted = lab.stats(&second).cnt;
    lab.judge(
        "counted-unrun",
        counted == 1,
        format!("\"second\" ran once and was refused once, counted: {counted}"),
    )
}
