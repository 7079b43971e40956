//! Two tasks on one CPU take the recursion guard at once, because it went up in three steps.

use filter::prog::deref_percpu;
use sync::host::{AtomicU32, Ordering::SeqCst};
use trampoline::history;

use crate::scenario::prelude::*;

pub(crate) const SCENARIO: Scenario = Scenario {
    title: "Two tasks are inside one guard",
    change: Change::Commit("c89e843a11f1"),
    watch: "A is preempted while it takes the guard, and B is still inside when A goes on",
    cause: "the guard went up by a load, an add and a store, and pinning a task does not keep it from being \
            preempted: what another task on the CPU stored in between was overwritten",
    breaks: "exclusive",
    wrong: Side {
        form: "Linux 6.0: load, add, store",
        run: || {
            stage(|lab, cpu, prog| {
                lab.script.say(cpu, "loads the guard");
                let taken =
                    history::before_c89e843a11f1::take_guard(cpu, prog, || lab.script.point(cpu, "store"));
                lab.script.say(cpu, "stores it + 1");
                taken
            })
        },
    },
    right: Side {
        form: "today: one instruction adds and returns",
        run: || stage(|_, cpu, prog| deref_percpu(&prog.active).this_cpu_inc_return(cpu) == 1),
    },
    question: "On x86 __this_cpu_inc_return is one instruction, too. Who met the bug?",
    answer: "Machines whose per-CPU operations are the generic ones: a load, an add and a store with nothing \
             that keeps preemption out. The name with two underscores says that the caller sees to that, and \
             this caller did not.",
};

fn stage(take: impl Fn(&Lab<Bits64>, &Cpu<K<Bits64>>, &BpfProg<K<Bits64>>) -> bool + Sync) -> Take {
    let lab = Lab::<Bits64>::stats_off(1);
    lab.at("A", "store", Act::Turn("B")).at("A", "this_cpu_inc_return", Act::Turn("B"));
    lab.at("B", "call", Act::Turn("A"));
    let prog = lab.program("probe", ProgType::Tracing, count);
    let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
    let traced = |task: &Task<K<Bits64>>| {
        let cpu = task.migrate_disable();
        if take(&lab, &cpu, &prog) {
            most.store(most.load(SeqCst).max(inside.fetch_add(1, SeqCst) + 1), SeqCst);
            prog.bpf_func.call(&cpu, &mut BpfCtx::default());
            inside.fetch_sub(1, SeqCst);
        } else {
            lab.script.say(&cpu, "refused");
        }
        deref_percpu(&prog.active).this_cpu_dec(&cpu);
    };
    lab.play(|p| {
        p.task("A", 0, traced);
        p.task("B", 0, traced);
    })
    .expect("nothing panics");
    let most = most.load(SeqCst);
    lab.judge("exclusive", most == 1, format!("{most} of 2 tasks were in the program at once, on one CPU"))
}
