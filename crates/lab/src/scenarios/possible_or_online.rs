//! A CPU goes offline and its counts stay: a sum over online CPUs loses them.

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "A sum over the CPUs that are online",
    change: Change::Rule(
        "per-CPU counters are summed over possible CPUs, which never change, not over online ones",
    ),
    watch: "which CPU's counters the reader looks at after cpu1 is gone",
    cause: "a CPU that goes offline keeps what it counted, in memory that nobody looks at who asks only online \
            CPUs",
    breaks: "lost-count",
    wrong: Side { form: "for each online CPU", run: || stage(|lab, id| lab.machine().cpu_online(id)) },
    right: Side { form: "for each possible CPU", run: || stage(|_, _| true) },
    question: "User space reads per-CPU maps. Which number must it ask for to size its buffer, and what if it \
               asks for the other?",
    answer: "The number of possible CPUs: the kernel writes one value for each. A buffer for the online ones \
             is too short as soon as one CPU is offline, and the kernel writes past its end.",
};

fn stage(asks: impl Fn(&Lab<Bits64>, usize) -> bool + Sync) -> Take {
    let lab = Lab::<Bits64>::new(2);
    let prog = lab.program("counter", ProgType::RawTracepoint, count);
    let sum = std::sync::Mutex::new(0);
    lab.play(|p| {
        p.cpu(1, |cpu| _ = run(cpu, &prog));
        p.host("admin", |smp| {
            lab.script.note("admin", "takes cpu1 down");
            smp.cpu_down(1).expect("cpu0 is left");
        });
        p.cpu(0, |cpu| {
            run(cpu, &prog);
            for id in (0..2).filter(|&id| asks(&lab, id)) {
                lab.script.say(cpu, format!("asks for cpu{id}'s"));
                *sum.lock().unwrap() += read(&prog, id, 1).unwrap().cnt;
            }
        });
    })
    .expect("nothing panics");
    let sum = sum.into_inner().unwrap();
    lab.judge("lost-count", sum == 2, format!("2 runs, {sum} reported"))
}
