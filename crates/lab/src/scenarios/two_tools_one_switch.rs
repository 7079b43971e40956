//! Two tools want statistics; the one that is done first must not switch them off for the other.

use bpf::syscall::{BPF_ENABLE_STATS, Cred, Process};
use filter::bpf_prog_run_pin_on_cpu;

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "Two tools, one switch",
    change: Change::Commit("d46edd671a14"),
    watch: "the key in B's second run, after A is done",
    cause: "the sysctl holds one value for all: two tools that write 1 leave one 1, and the first that writes \
            0 ends it",
    breaks: "uncounted",
    wrong: Side { form: "both use the sysctl", run: || stage(false) },
    right: Side { form: "each holds a descriptor (BPF_ENABLE_STATS)", run: || stage(true) },
    question: "A tool is killed with SIGKILL while it measures. What is left on, with the sysctl and with a \
               descriptor?",
    answer: "The sysctl stays at 1 until somebody writes 0: each run of every program pays for two clock \
             reads. A descriptor is closed with its process, and its count with it.",
};

fn stage(descriptor: bool) -> Take {
    let lab = Lab::<Bits64>::stats_off(2);
    let prog = lab.program("counter", ProgType::RawTracepoint, count);
    lab.at("tool A", "on", Act::Turn("tool B")).at("tool B", "between", Act::Turn("tool A"));
    let tool = |task: &Task<K<Bits64>>, measure: &dyn Fn()| {
        let mut process = Process::new(lab.machine(), Cred::ROOT);
        if descriptor {
            lab.script.say(task, "opens a descriptor");
            let attr = process.mem.map(&[0; 4]);
            process.bpf(BPF_ENABLE_STATS, attr, 4).expect("root may");
        } else {
            lab.script.say(task, "writes 1 to the sysctl");
            process.write_bpf_stats_enabled(b"1").expect("root may");
        }
        measure();
        lab.script.say(task, if descriptor { "closes it" } else { "writes 0 to the sysctl" });
        if !descriptor {
            process.write_bpf_stats_enabled(b"0").expect("root may");
        }
    };
    lab.play(|p| {
        p.task("tool A", 0, |task| tool(task, &|| lab.script.point(task, "on")));
        p.task("tool B", 1, |task| {
            let run = || _ = bpf_prog_run_pin_on_cpu(task, &prog, &mut BpfCtx::default());
            tool(task, &|| {
                run();
                lab.script.point(task, "between");
                run();
            });
        });
    })
    .expect("nothing panics");
    let counted = lab.stats(&prog).cnt;
    lab.judge("uncounted", counted == 2, format!("B measured 2 runs, counted: {counted}"))
}
