//! On 64-bit nothing but the counter's type keeps a reader from seeing an update half done.

use filter::history;

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "A plain field shows an update half done",
    change: Change::Commit("61a0abaee209"),
    watch: "what cpu1 reads between the two adds of cpu0, beside the clock",
    cause: "on 64-bit the section does nothing, and a plain field may be written in any way that ends right: \
            here the clock is added first and the start taken away after",
    breaks: "time",
    wrong: Side {
        form: "Linux 5.15, 64-bit: a plain u64, as a compiler may write it",
        run: || {
            stage(|cpu, prog| history::before_61a0abaee209::bpf_prog_run(cpu, prog, &mut BpfCtx::default()))
        },
    },
    right: Side { form: "today: u64_stats_t, one add of the duration", run: || stage(run) },
    question: "No compiler was ever seen to do this. Why was it a bug all the same?",
    answer: "A data race on a plain field has no meaning in C: the compiler may assume that nobody looks. \
             Whether today's compiler does it says nothing about the next one's, or about the same one with \
             other flags.",
};

fn stage(run: impl Fn(&Cpu<K<Bits64>>, &BpfProg<K<Bits64>>) -> u32 + Sync) -> Take {
    let lab = Lab::<Bits64>::new(2);
    let prog = lab.program("counter", ProgType::RawTracepoint, count);
    // Just before the last write of the time.
    lab.at_nth("cpu0", "nsecs", 2, Act::Turn("cpu1")).at("cpu0", "done", Act::Turn("cpu1"));
    let seen = std::sync::Mutex::new(0);
    lab.play(|p| {
        p.cpu(0, |cpu| {
            run(cpu, &prog);
            lab.script.point(cpu, "done");
        });
        p.cpu(1, |_| *seen.lock().unwrap() = read(&prog, 0, 1).unwrap().nsecs);
    })
    .expect("nothing panics");
    let seen = seen.into_inner().unwrap();
    lab.judge("time", seen <= 140, format!("the program took about 120 ns, and a reader was told {seen}"))
}
