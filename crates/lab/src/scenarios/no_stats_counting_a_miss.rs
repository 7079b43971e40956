//! The placeholder is refused by a recursion guard, and the miss is counted in statistics that it has not.

use filter::{bpf_prog_inc_misses_counter, history};

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "A miss without statistics to count it in",
    change: Change::Commit("7dc211c1159d"),
    watch: "statistics are off, and yet the counter is touched",
    cause: "misses are counted whether statistics are on or off, and the helper took for granted that the \
            program has counters, which the placeholder of a failed detach has not",
    breaks: "null-pointer",
    wrong: Side {
        form: "Linux 6.10, the pointer is not checked",
        run: || stage(history::before_7dc211c1159d::bpf_prog_inc_misses_counter),
    },
    right: Side { form: "today, such a miss is skipped", run: || stage(bpf_prog_inc_misses_counter) },
    question: "The run path crashed only with statistics on. Who met the crash in this one?",
    answer: "Anybody: misses are not behind the key. A program array of a tracing event that held a \
             placeholder was enough, with statistics off.",
};

fn stage(miss: impl Fn(&Cpu<K<Bits64>>, &BpfProg<K<Bits64>>) + Sync) -> Take {
    let lab = Lab::<Bits64>::stats_off(1);
    let array = [lab.program("first", ProgType::Tracing, count), lab.placeholder()];
    // The CPU is inside a tracing program already: each entry of the array is refused and counts a miss.
    let refuse = |cpu: &Cpu<K<Bits64>>| {
        for (name, prog) in ["first", "placeholder"].iter().zip(&array) {
            lab.script.say(cpu, format!("{name} is refused"));
            miss(cpu, prog);
        }
    };
    match lab.play(|p| p.cpu(0, refuse)) {
        Err(panic) => lab.judge("null-pointer", false, panic.message),
        Ok(()) => lab.judge("null-pointer", true, "one miss was counted, the placeholder's was skipped"),
    }
}
