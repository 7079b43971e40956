//! Programs before and after a traced function. Kernel: `__bpf_prog_enter_recur`, `__bpf_prog_exit_recur`.

use anyhow::Result;
use filter::{ProgType, bpf_prog_get_stats};
use host::Release;
use host::facts::traced::{Place, traced};
use jump_label::StaticKey;
use trampoline::{BpfTrampLink, BpfTrampoline};

use super::Fact;
use super::counting::of_sim;
use super::sim::{Sim, nothing};

/// `ca06f55b9002`, `9ed9e9ba2337`
const SINCE: Release = Release(5, 12);

pub(super) fn facts() -> Vec<Fact> {
    let cases = [(Place::Fentry, "fentry"), (Place::Fexit, "fexit")];
    let facts = cases.into_iter().flat_map(|(place, name)| {
        [false, true].into_iter().map(move |on| {
            Fact::new(
                "a program at a traced function",
                format!("{name}, statistics {}", if on { "on" } else { "off" }),
                SINCE,
                move |sim| sim_traced(sim, place, on).map(text),
                move || traced(place, on).map(text),
            )
        })
    });
    facts.collect()
}

fn text(added: host::Stats) -> String {
    format!("counts {}, {} misses", added.run_cnt, added.recursion_misses)
}

fn sim_traced(sim: &Sim, place: Place, on: bool) -> Result<host::Stats> {
    let prog = sim.program(ProgType::Tracing, nothing)?;
    let link = BpfTrampLink { prog: prog.clone(), cookie: 0 };
    let mut trampoline = BpfTrampoline::default();
    match place {
        Place::Fentry => trampoline.fentry.push(link),
        Place::Fexit => trampoline.fexit.push(link),
    }
    if on {
        sim.key().slow_inc()?;
    }
    sim.on_cpu(|cpu| trampoline.call(cpu, &[1], |args| args[0] + 1))?;
    Ok(of_sim(bpf_prog_get_stats(&prog)))
}
