//! A trampoline that counts, around a helper that runs programs and counts them.

use std::sync::Arc;

use trampoline::trampoline::{
    __bpf_prog_enter, __bpf_prog_enter_lsm_cgroup, __bpf_prog_exit, __bpf_prog_exit_lsm_cgroup,
};
use trampoline::{BpfTrampEnter, BpfTrampExit, BpfTrampRunCtx};

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "Counted by the trampoline and inside it",
    change: Change::Rule(
        "who calls what counts by itself does not count: the lsm_cgroup pair gives 1 for a start",
    ),
    watch: "the outer exit: which start it is given, and whether it updates anything",
    cause: "the shim of a cgroup's LSM programs is a program to the trampoline, and all that it does is to run \
            the cgroup's programs by bpf_prog_run, which counts each of them",
    breaks: "counted-twice",
    wrong: Side { form: "entered as any LSM program", run: || stage(__bpf_prog_enter, __bpf_prog_exit) },
    right: Side {
        form: "entered by the lsm_cgroup pair",
        run: || stage(__bpf_prog_enter_lsm_cgroup, __bpf_prog_exit_lsm_cgroup),
    },
    question: "In 6.6 the shim is loaded as LSM_MAC, so it does take the plain pair. Why has nobody \
               complained?",
    answer: "The shim has no id: no tool can ask for its counters. The double count costs two clock reads and \
             an update for each call, and shows nowhere.",
};

fn stage(enter: BpfTrampEnter<K<Bits64>>, exit: BpfTrampExit<K<Bits64>>) -> Take {
    let lab = Lab::<Bits64>::new(1);
    let prog = Arc::new(lab.program("cgroup's program", ProgType::LsmCgroup, count));
    let inner = prog.clone();
    let shim = lab.program("shim", ProgType::LsmCgroup, move |cpu| _ = run(cpu, &inner));
    lab.play(|p| {
        p.cpu(0, |cpu| {
            let mut run_ctx = BpfTrampRunCtx::new(0);
            let start = enter(cpu, &shim, &mut run_ctx);
            shim.bpf_func.call(cpu, &mut BpfCtx::default());
            exit(cpu, &shim, start, &mut run_ctx);
        });
    })
    .expect("nothing panics");
    let (outer, inner) = (lab.stats(&shim), lab.stats(&prog));
    let says = format!("1 call; counted: shim {}, program {}", runs(outer.cnt), runs(inner.cnt));
    lab.judge("counted-twice", outer.cnt + inner.cnt == 1, says)
}
