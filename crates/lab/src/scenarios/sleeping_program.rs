//! A program sleeps, and its time goes on.

use trampoline::history;

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "A program that sleeps is not counted",
    change: Change::Commit("f2dd3b394674"),
    watch: "whether there is an update at all, and what lies between the clock reads",
    cause: "sleepable programs were entered and left by functions of their own, and those had no statistics",
    breaks: "uncounted",
    wrong: Side {
        form: "Linux 5.11",
        run: || {
            stage(|task, prog| {
                _ = history::before_f2dd3b394674::invoke_sleepable(task, prog, &mut BpfCtx::default())
            })
        },
    },
    right: Side {
        form: "today: counted, with the time it slept",
        run: || stage(|task, prog| _ = invoke(task, prog)),
    },
    question: "5 of the reported microseconds passed while another task had the CPU. Is run_time_ns CPU time?",
    answer: "No, it is time on the wall between enter and exit. Sleep, preemption and interrupts are all in \
             it, so the sum over programs may pass 100 % of a CPU, and a high number may mean waiting.",
};

fn stage(call: impl Fn(&Task<K<Bits64>>, &BpfProg<K<Bits64>>) + Sync) -> Take {
    let lab = Lab::<Bits64>::new(1);
    lab.at("sleeper", "call", Act::Sleep("other"));
    let mut prog = lab.program("program", ProgType::Lsm, count);
    prog.sleepable = true;
    lab.play(|p| {
        p.task("sleeper", 0, |task| call(task, &prog));
        p.task("other", 0, |task| {
            lab.script.pass(5000);
            lab.script.say(task, "had the CPU for 5 us");
        });
    })
    .expect("nothing panics");
    let s = lab.stats(&prog);
    lab.judge("uncounted", s.cnt == 1, format!("it ran once; counted: {}, {} ns", runs(s.cnt), s.nsecs))
}
