//! What masks interrupts masks no NMI: on 32-bit a refused NMI counts its miss inside an open section.

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "An NMI is refused inside the section",
    change: Change::Rule("a section that masks interrupts is not whole to an NMI (latent in 32-bit kernels)"),
    watch: "the sequence while the NMI counts its miss, and what cpu1 reads under it",
    cause: "misses are counted under the same sequence as runs, and an NMI that comes in the middle of an \
            update makes the odd sequence even",
    breaks: "one-moment",
    wrong: Side { form: "32-bit, an NMI", run: || stage(Act::Nmi) },
    right: Side { form: "32-bit, an interrupt: it is masked", run: || stage(Act::Irq) },
    question: "An NMI that runs the program, rather than being refused, does no harm. Why not?",
    answer: "The guard is held from enter to the end of exit, and the update stands between them. So an NMI \
             that finds the section open finds the guard taken: it is always refused, and the only thing that \
             it writes is the miss.",
};

fn stage(act: Act) -> Take {
    let lab = Lab::<Bits32>::new(2);
    lab.at("cpu0", "nsecs.lo", act);
    lab.at("cpu0 nmi", "misses.lo", Act::Turn("cpu1")).at("cpu0 irq", "nsecs.lo", Act::Turn("cpu1"));
    let prog = lab.program("probe", ProgType::Tracing, count);
    let seen = std::sync::Mutex::new(None);
    lab.play(|p| {
        p.irq(|cpu| _ = invoke(cpu, &prog));
        p.nmi(|cpu| _ = invoke(cpu, &prog));
        p.cpu(0, |cpu| _ = invoke(cpu, &prog));
        p.cpu(1, |_| *seen.lock().unwrap() = read(&prog, 0, 1));
    })
    .expect("nothing panics");
    let seen = seen.into_inner().unwrap().unwrap_or_default();
    let holds = (seen.cnt == 0) == (seen.nsecs == 0);
    lab.judge("one-moment", holds, format!("a reader accepted {}, {} ns", runs(seen.cnt), seen.nsecs))
}
