//! Statistics are switched on under one traced function and off under another.

use filter::{sched_clock, stats_enabled};
use jump_label::StaticKey;
use trampoline::{bpf_prog_start_time, update_prog_stats};

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "The switch turns while a program runs",
    change: Change::Rule("a run counts if statistics were on at its enter and are on at its exit"),
    watch: "which value each exit finds in the key, and which start it was given",
    cause: "enter and exit each test the key, so it may turn in between: at the exit of a run that began with \
            it off there is no start, only the mark 1, and an exit that looks at the key alone takes that for \
            a time",
    breaks: "time",
    wrong: Side {
        form: "exit looks at the key only",
        run: || {
            stage(|cpu, prog, start| {
                if stats_enabled(cpu) {
                    let duration = sched_clock(cpu).wrapping_sub(start);
                    filter::prog_stats::count_run(cpu, filter::prog::deref_percpu(&prog.stats), duration);
                }
            })
        },
    },
    right: Side { form: "today: the key, and a start above 1", run: || stage(update_prog_stats) },
    question: "On, then off, then on again inside one run: is it counted? And in bpf_prog_run, which tests the \
               key once?",
    answer: "In the trampoline it is counted in full: both tests found the key on. bpf_prog_run tests once, at \
             the start, so there on to off is counted in full, too, and off to on never.",
};

fn stage(exit: impl Fn(&Cpu<K<Bits64>>, &BpfProg<K<Bits64>>, u64) + Sync) -> Take {
    let lab = Lab::<Bits64>::stats_off(2);
    let progs = [lab.program("first", ProgType::Lsm, count), lab.program("second", ProgType::Lsm, count)];
    lab.at_nth("cpu0", "call", 1, Act::Turn("cpu1")).at_nth("cpu0", "call", 2, Act::Turn("cpu1"));
    lab.play(|p| {
        p.cpu(0, |cpu| {
            for prog in &progs {
                let start = bpf_prog_start_time(cpu);
                prog.bpf_func.call(cpu, &mut BpfCtx::default());
                exit(cpu, prog, start);
            }
        });
        p.cpu(1, |cpu| {
            lab.script.say(cpu, "switches statistics on");
            lab.key().slow_inc().unwrap();
            lab.script.stand_back(cpu);
            lab.script.say(cpu, "switches statistics off");
            lab.key().slow_dec().unwrap();
        });
    })
    .expect("nothing panics");
    let [first, second] = progs.each_ref().map(|p| lab.stats(p));
    let says = format!(
        "off to on: {} in {} ns; on to off: {} in {} ns",
        runs(first.cnt),
        first.nsecs,
        runs(second.cnt),
        second.nsecs
    );
    lab.judge("time", first.nsecs + second.nsecs == 0, says)
}
