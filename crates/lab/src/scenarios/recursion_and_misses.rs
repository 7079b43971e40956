//! An interrupt calls the traced function whose program is running: the guard refuses it, and counts, also with statistics
//! off.

use std::sync::Arc;

use filter::BpfFunc;
use sync::host::{AtomicU32, Ordering::SeqCst};
use trampoline::BpfTrampRunCtx;
use trampoline::trampoline::{__bpf_prog_enter, __bpf_prog_exit};

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "A program is called inside itself",
    change: Change::Commit("ca06f55b9002"),
    watch: "the guard when the interrupt comes, and which counter moves though statistics are off",
    cause: "a traced function may be called by what the program itself does, or by an interrupt on top of it, \
            and without a guard the program runs inside itself, in the worst case until the stack is full",
    breaks: "nested",
    wrong: Side {
        form: "entered without a guard (as in Linux 5.11)",
        run: || {
            stage(|task, prog| {
                let mut run_ctx = BpfTrampRunCtx::new(0);
                let start = __bpf_prog_enter(task, prog, &mut run_ctx);
                prog.bpf_func.call(task.cpu(), &mut BpfCtx::default());
                __bpf_prog_exit(task, prog, start, &mut run_ctx);
            })
        },
    },
    right: Side {
        form: "today: refused, and counted as a miss",
        run: || stage(|task, prog| _ = invoke(task, prog)),
    },
    question: "Statistics are off. What do run_cnt, run_time_ns and recursion_misses say after the right side?",
    answer: "0, 0 and 1. Misses are not behind the key: they tell of events that a tool never saw, and that \
             matters whether or not somebody times programs. So a program may show misses and no runs.",
};

fn stage(call: impl Fn(&Task<K<Bits64>>, &BpfProg<K<Bits64>>) + Sync) -> Take {
    let lab = Lab::<Bits64>::stats_off(1);
    lab.at("cpu0", "call", Act::Irq);
    let (inside, deepest) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut prog = lab.program("probe", ProgType::Tracing, count);
    prog.bpf_func = counted(prog.bpf_func, inside, deepest.clone());
    lab.play(|p| {
        p.irq(|cpu| call(cpu, &prog));
        p.cpu(0, |cpu| call(cpu, &prog));
    })
    .expect("nothing panics");
    let (deepest, misses) = (deepest.load(SeqCst), lab.stats(&prog).misses);
    lab.judge("nested", deepest == 1, format!("{deepest} deep inside itself; refused and counted: {misses}"))
}

/// `text`, and how often the CPU is inside it.
fn counted(
    text: Arc<dyn BpfFunc<K<Bits64>>>,
    inside: Arc<AtomicU32>,
    deepest: Arc<AtomicU32>,
) -> Arc<dyn BpfFunc<K<Bits64>>> {
    Arc::new(move |cpu: &Cpu<K<Bits64>>, ctx: &mut BpfCtx<'_>| {
        deepest.store(deepest.load(SeqCst).max(inside.load(SeqCst) + 1), SeqCst);
        inside.store(inside.load(SeqCst) + 1, SeqCst);
        let ret = text.call(cpu, ctx);
        inside.store(inside.load(SeqCst) - 1, SeqCst);
        ret
    })
}
