//! The key flipped during one run, on both paths. Kernel: `__bpf_prog_run` tests it once; `bpf_prog_start_time` and
//! `update_prog_stats` at both ends.

use anyhow::Result;
use filter::{BpfCtx, bpf_prog_get_stats};
use host::facts::flip::{Path, flip_during_run};
use host::{ProgType, Release, Stats};
use jump_label::StaticKey;
use percpu::Cpu;

use super::Fact;
use super::counting::of_sim;
use super::sim::{K, Sim, kind_of};

const ON: bool = true;
const OFF: bool = false;

const CASES: [&[bool]; 7] =
    [&[OFF], &[ON], &[OFF, ON], &[ON, OFF], &[ON, OFF, ON], &[OFF, ON, OFF], &[OFF, ON, OFF, ON]];

pub(super) fn facts() -> Vec<Fact> {
    let paths = [
        (Path::ProgRun, "key during __bpf_prog_run", Release(5, 1)),
        (Path::Trampoline, "key during a trampoline's program", Release(5, 12)),
    ];
    let facts = paths.into_iter().flat_map(|(path, family, since)| {
        CASES.into_iter().map(move |flips| {
            let name: Vec<_> = flips.iter().map(|&on| if on { "on" } else { "off" }).collect();
            Fact::new(
                family,
                name.join(" -> "),
                since,
                move |sim| sim_flip(sim, path, flips),
                move || flip_during_run(path, flips).map(text),
            )
        })
    });
    facts.collect()
}

/// A run is counted whole or not at all; anything else is said in numbers.
fn text(added: Stats) -> String {
    match (added.run_cnt, added.run_time_ns, added.recursion_misses) {
        (0, 0, 0) => "not counted".into(),
        (1, 1.., 0) => "counted with its time".into(),
        _ => format!("{added:?}"),
    }
}

fn sim_flip(sim: &Sim, path: Path, flips: &'static [bool]) -> Result<String> {
    let set = |cpu: &Cpu<K>, on: bool| {
        let key = &cpu.globals().bpf_stats_enabled_key;
        // One user comes and goes: neither can fail.
        let _ = if on { key.slow_inc() } else { key.slow_dec() };
    };
    let prog_type = match path {
        Path::ProgRun => ProgType::SocketFilter,
        Path::Trampoline => ProgType::StructOps,
    };
    let body = move |cpu: &Cpu<K>, _: &mut BpfCtx<'_>| {
        flips.iter().skip(1).for_each(|&on| set(cpu, on));
        0
    };
    let program = sim.program(kind_of(prog_type), body)?;
    if flips.first() == Some(&ON) {
        sim.key().slow_inc()?;
    }
    sim.test_run(prog_type, &program, 1)??;
    Ok(text(of_sim(bpf_prog_get_stats(&program))))
}
