//! A tail call is a jump: the caller keeps the count and gets the callee's time.

use std::sync::Arc;

use bpf::insn::{emit_call, exit_insn, ld_map_fd, mov64_imm};
use bpf::{Map, MapAttr, MapType, Program};
use filter::BpfFunc;

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "A tail call is not a run",
    change: Change::Rule(
        "only what __bpf_prog_run or a trampoline enters is counted, and a tail call enters nothing",
    ),
    watch: "the callee's three looks at the clock lie inside the caller's run; whose counters move at its end",
    cause: "a tail call goes on in the callee's text without passing the place that counts, and what returns \
            is the caller's run",
    breaks: "uncounted",
    wrong: Side { form: "asking the callee what it costs", run: || stage(1) },
    right: Side { form: "asking the caller", run: || stage(0) },
    question: "A packet filter is split into ten programs that tail-call each other. What does bpftool show of \
               them?",
    answer: "All runs and all time at the first. The other nine show nothing, so which part is dear has to be \
             measured by other means.",
};

const KTIME_GET_NS: i32 = 5;
const TAIL_CALL: i32 = 12;

fn stage(asked: usize) -> Take {
    let lab = Lab::<Bits64>::new(1);
    let attr = MapAttr::array("progs", 4, 1).of_type(MapType::ProgArray);
    let slots = Map::create(1, attr, lab.machine().pcpu()).expect("a new machine has memory");
    let time = [emit_call(KTIME_GET_NS); 3];
    let callee = [&time[..], &[mov64_imm(0, 0), exit_insn()]].concat();
    let caller =
        [&ld_map_fd(2, 0)[..], &[mov64_imm(3, 0), emit_call(TAIL_CALL), mov64_imm(0, 0), exit_insn()]]
            .concat();
    let load =
        |name, insns: &[_], maps| Arc::new(Program::load(name, insns, maps).expect("it is well formed"));
    let (caller, callee) = (load("caller", &caller, vec![slots.clone()]), load("callee", &callee, vec![]));
    slots.prog_array().expect("it is one").update(0, callee.clone()).expect("slot 0 is there");
    let body = |text: Arc<Program>| move |cpu: &Cpu<K<Bits64>>| _ = text.call(cpu, &mut BpfCtx::default());
    let progs = [
        lab.program("caller", ProgType::RawTracepoint, body(caller)),
        lab.program("callee", ProgType::RawTracepoint, body(callee)),
    ];
    lab.play(|p| {
        p.cpu(0, |cpu| {
            run(cpu, &progs[0]);
            lab.script.say(cpu, format!("reads the {}'s", ["caller", "callee"][asked]));
            read(&progs[asked], 0, 1);
        });
    })
    .expect("nothing panics");
    let s = lab.stats(&progs[asked]);
    lab.judge(
        "uncounted",
        s.cnt == 1,
        format!("both texts ran once; counted there: {}, {} ns", runs(s.cnt), s.nsecs),
    )
}
