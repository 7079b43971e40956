//! A detach whose allocation fails leaves a placeholder in the array, and the placeholder has no statistics.

use filter::{bpf_dispatcher_nop_func, history};

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "A program without statistics is counted",
    change: Change::Commit("7dc211c1159d"),
    watch: "what follows the second clock read of the placeholder",
    cause: "when a detach cannot allocate the shorter array it puts a placeholder into the slot and reports \
            success, and the run path took for granted that what it runs has statistics",
    breaks: "null-pointer",
    wrong: Side {
        form: "Linux 6.10, the pointer is not checked",
        run: || {
            stage(|cpu, prog| {
                let mut ctx = BpfCtx::default();
                history::before_7dc211c1159d::__bpf_prog_run(cpu, prog, &mut ctx, bpf_dispatcher_nop_func)
            })
        },
    },
    right: Side {
        form: "today, the update is skipped",
        run: || stage(|cpu, prog| bpf_prog_run(cpu, prog, &mut BpfCtx::default())),
    },
    question: "A null per-CPU pointer was followed: why did some machines not crash at address 0?",
    answer: "A per-CPU pointer is an offset; the CPU's own base is added before it is followed. Null plus a \
             base is an address like any other, so the update wrote to whatever lies there.",
};

fn stage(run: impl Fn(&Cpu<K<Bits64>>, &BpfProg<K<Bits64>>) -> u32 + Sync) -> Take {
    let lab = Lab::<Bits64>::new(1);
    let array = [lab.program("first", ProgType::RawTracepoint, count), lab.placeholder()];
    let ran = lab.play(|p| p.cpu(0, |cpu| array.iter().for_each(|prog| _ = run(cpu, prog))));
    match ran {
        Err(panic) => lab.judge("null-pointer", false, panic.message),
        Ok(()) => lab.judge("null-pointer", true, "both ran; the placeholder was timed and not counted"),
    }
}
