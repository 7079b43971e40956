//! The second clock read stood inside the update, after the first touch of the program's statistics.

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "The time holds its own bookkeeping",
    change: Change::Commit("ce09cbdd9888"),
    watch: "where the second clock read stands, and what lies between the two reads besides the program",
    cause: "the clock was read as the argument of the add, so after the section had begun and the count had \
            been written, and that first touch of the statistics is a cache miss when the program's line is \
            cold",
    breaks: "time",
    wrong: Side {
        form: "Linux 6.6.0, the clock is read inside the update",
        run: || {
            stage(|cpu, prog| {
                filter::history::before_ce09cbdd9888::bpf_prog_run(cpu, prog, &mut BpfCtx::default())
            })
        },
    },
    right: Side {
        form: "today, the duration is taken first",
        run: || stage(|cpu, prog| bpf_prog_run(cpu, prog, &mut BpfCtx::default())),
    },
    question: "The clock costs 20 ns a read. Why do 20 of them, neither 0 nor 40, stay in the reported time?",
    answer: "A read takes its value at some point inside itself: here at its end. The first read's 20 ns lie \
             before the start, the second's lie before the end. Whatever the point, of two reads about one is \
             inside.",
};

fn stage(run: impl Fn(&Cpu<K<Bits64>>, &BpfProg<K<Bits64>>) -> u32 + Sync) -> Take {
    let lab = Lab::<Bits64>::new(1);
    lab.script.cost("call", 240);
    lab.script.cost("cnt", 45); // the cold line
    let prog = lab.program("counter", ProgType::RawTracepoint, count);
    lab.play(|p| p.cpu(0, |cpu| _ = run(cpu, &prog))).expect("nothing panics");
    let ns = lab.stats(&prog).nsecs;
    lab.judge(
        "time",
        ns == 260,
        format!("{ns} ns are reported of a program that takes 240, with one clock read of 20"),
    )
}
