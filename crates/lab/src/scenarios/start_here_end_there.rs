//! A task that is not pinned starts its run on one CPU and ends it on another.

use filter::bpf_prog_inc_misses_counter;
use filter::prog::deref_percpu;
use trampoline::{bpf_prog_start_time, update_prog_stats};

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "A run starts here and ends there",
    change: Change::Rule("from enter to exit the task is pinned: clock, guard and counters are this CPU's"),
    watch: "on which CPU the guard goes up and on which it comes down, and what the two clocks say",
    cause: "the clocks of two CPUs cannot be compared, and a guard that is taken on one CPU and given back on \
            another is wrong on both",
    breaks: "guard-free",
    wrong: Side {
        form: "the task may move",
        run: || {
            stage(|task, prog| {
                let active = deref_percpu(&prog.active);
                if active.this_cpu_inc_return(task.raw_cpu()) != 1 {
                    return bpf_prog_inc_misses_counter(task.raw_cpu(), prog);
                }
                let start = bpf_prog_start_time(task.raw_cpu());
                prog.bpf_func.call(task.raw_cpu(), &mut BpfCtx::default());
                update_prog_stats(task.raw_cpu(), prog, start);
                active.this_cpu_dec(task.raw_cpu());
            })
        },
    },
    right: Side { form: "today: enter pins it", run: || stage(|task, prog| _ = invoke(task, prog)) },
    question: "cpu0's guard stays at 1. What happens to this program on cpu0 from now on, and on cpu1?",
    answer: "On cpu0 every call is refused, for ever, as a miss. On cpu1 the guard is at -1, so the next call \
             finds 0 instead of 1 and is refused, too, and leaves it at -1 again.",
};

fn stage(call: impl Fn(&Task<K<Bits64>>, &BpfProg<K<Bits64>>) + Sync) -> Take {
    let lab = Lab::<Bits64>::new(2);
    lab.script.clock_skewed(0, 5000);
    lab.at("task", "call", Act::Move(1));
    let prog = lab.program("probe", ProgType::Tracing, count);
    lab.play(|p| p.task("task", 0, |task| call(task, &prog))).expect("nothing panics");
    let guards: Vec<_> = deref_percpu(&prog.active).iter_possible().map(|g| g.get() as i32).collect();
    let ns = lab.stats(&prog).nsecs as i64;
    lab.judge(
        "guard-free",
        guards == [0, 0],
        format!("guards {guards:?} when nobody is inside; {ns} ns reported"),
    )
}
