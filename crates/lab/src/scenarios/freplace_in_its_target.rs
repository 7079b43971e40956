//! A program that replaces a function of another one runs as a part of that one.

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "An extension is not a run",
    change: Change::Rule(
        "a program of type EXT is never entered by itself: its target is counted, with its time in it",
    ),
    watch: "the clock reads: there are two, both the target's",
    cause: "attaching an extension makes the target's function jump to it, so it runs as a call inside the \
            target, and no clock is read around it",
    breaks: "uncounted",
    wrong: Side { form: "asking the extension", run: || stage(false) },
    right: Side { form: "asking the target", run: || stage(true) },
    question: "A dispatcher program calls five extensions, one a tool. Whose fault is a slow packet?",
    answer: "The numbers cannot say: all five are in the dispatcher's time. That is known of the XDP \
             dispatcher, where each attached program is an extension.",
};

fn stage(ask_target: bool) -> Take {
    let lab = Lab::<Bits64>::new(1);
    let extension = std::sync::Arc::new(lab.program("extension", ProgType::Ext, count));
    let replacing = extension.clone();
    let target = lab.program("target", ProgType::SocketFilter, move |cpu| {
        replacing.bpf_func.call(cpu, &mut BpfCtx::default());
    });
    let asked = if ask_target { &target } else { &*extension };
    lab.play(|p| {
        p.cpu(0, |cpu| {
            run(cpu, &target);
            lab.script.say(cpu, if ask_target { "reads the target's" } else { "reads the extension's" });
            read(asked, 0, 1);
        });
    })
    .expect("nothing panics");
    let s = lab.stats(asked);
    lab.judge(
        "uncounted",
        s.cnt == 1,
        format!("both ran once; counted there: {}, {} ns", runs(s.cnt), s.nsecs),
    )
}
