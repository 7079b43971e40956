//! While bpf(2) changes a map, tracing programs on that CPU are skipped, and in 6.6 nobody was told.

use bpf::runtime::OnTask;
use bpf::{Map, MapAttr};
use filter::bpf_prog_inc_misses_counter;

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "A map update makes an event vanish",
    change: Change::Commit("dd8657894c11"),
    watch: "what the interrupt leaves behind: a run, a miss, or nothing",
    cause: "a map operation raises bpf_prog_active so that no tracing program runs in the middle of it, and \
            the program array of a kprobe or tracepoint that found it raised returned without a trace",
    breaks: "vanished",
    wrong: Side { form: "Linux 6.6: skipped, and nothing is counted", run: || stage(|_, _| ()) },
    right: Side {
        form: "since 6.7: each program of the array counts a miss",
        run: || stage(bpf_prog_inc_misses_counter),
    },
    question: "Which programs can lose events in this way, and which cannot?",
    answer: "Those that look at bpf_prog_active: kprobes, tracepoints, perf events. Raw tracepoints and fentry \
             programs have a guard of their own; cgroup and network programs have none and just run.",
};

/// `trace_call_bpf`, with what it does on a skip.
fn stage(skipped: impl Fn(&Cpu<K<Bits64>>, &BpfProg<K<Bits64>>) + Sync) -> Take {
    let lab = Lab::<Bits64>::new(1);
    lab.at("cpu0", "this_cpu_dec", Act::Irq);
    let map = Map::create(1, MapAttr::array("config", 8, 1), lab.machine().pcpu()).expect("there is memory");
    let prog = lab.program("kprobe", ProgType::Tracing, count);
    let active = &lab.machine().globals().bpf_prog_active;
    lab.play(|p| {
        p.irq(|cpu| {
            if active.this_cpu_inc_return(cpu) == 1 {
                run(cpu, &prog);
            } else {
                skipped(cpu, &prog);
            }
            active.this_cpu_dec(cpu);
        });
        p.cpu(0, |cpu| {
            lab.script.say(cpu, "bpf(2) changes a map");
            map.update_elem(&OnTask(cpu), &[0; 4], &[1; 8], 0).expect("key 0 is there");
        });
    })
    .expect("nothing panics");
    let s = lab.stats(&prog);
    lab.judge("vanished", s.cnt + s.misses == 1, format!("1 event: {}, {} misses", runs(s.cnt), s.misses))
}
