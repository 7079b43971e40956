//! What test runs count, by type, and how long it stays. Kernel: net/bpf/test_run.c, `bpf_prog_get_stats`.

use anyhow::Result;
use filter::{BpfProgKstats, bpf_prog_get_stats};
use host::facts::counting::{repeated, survival};
use host::{ProgType, Release, Stats};
use jump_label::StaticKey;

use super::Fact;
use super::sim::{self, Sim, kind_of, nothing};

/// Types, and the release that test runs of them came with.
const TYPES: [(ProgType, Release); 9] = [
    (ProgType::SocketFilter, Release(5, 1)),
    (ProgType::SchedCls, Release(5, 1)),
    (ProgType::Xdp, Release(5, 1)),
    (ProgType::CgroupSkb, Release(5, 1)),
    (ProgType::LwtIn, Release(5, 1)),
    (ProgType::FlowDissector, Release(5, 1)),
    (ProgType::RawTracepoint, Release(5, 10)),
    (ProgType::Syscall, Release(5, 14)),
    (ProgType::StructOps, Release(5, 16)),
];

const REPEAT: u32 = 1000;

pub(super) fn facts() -> Vec<Fact> {
    let stays = TYPES.into_iter().map(|(prog_type, since)| {
        Fact::new(
            "runs counted: off, on, off, on again",
            prog_type.name(),
            since,
            move |sim| Ok(story(&sim_survival(sim, prog_type)?)),
            move || Ok(story(&survival(prog_type, REPEAT, &PHASES)?)),
        )
    });
    let repeats = TYPES.into_iter().map(|(prog_type, since)| {
        Fact::new(
            "a test run, repeated 1000 times",
            prog_type.name(),
            since,
            move |sim| sim_repeated(sim, prog_type),
            move || Ok(repeated(prog_type, REPEAT)?.map_or_else(|e| e.name().to_string(), counts)),
        )
    });
    stays.chain(repeats).collect()
}

fn counts(runs: u64) -> String {
    format!("counts {runs}")
}

const PHASES: [bool; 4] = [false, true, false, true];

/// The run count after each phase, and a word if something else does not go with it.
fn story(after: &[Stats]) -> String {
    let counts: Vec<_> = after.iter().map(|s| s.run_cnt.to_string()).collect();
    let pairs = after.windows(2).chain(after.first().map(std::slice::from_ref));
    let time_moves_with_it = pairs.into_iter().all(|pair| match pair {
        [from, to] if to.run_cnt == from.run_cnt => to.run_time_ns == from.run_time_ns,
        [from, to] => to.run_time_ns > from.run_time_ns,
        [first] => (first.run_cnt == 0) == (first.run_time_ns == 0),
        _ => true,
    });
    let mut text = counts.join(" ");
    if !time_moves_with_it {
        text += ", time not with it";
    }
    match after.last() {
        Some(last) if last.recursion_misses > 0 => format!("{text}, {} misses", last.recursion_misses),
        _ => text,
    }
}

/// The simulation's numbers in the host's words.
pub(super) fn of_sim(s: BpfProgKstats) -> Stats {
    Stats { run_time_ns: s.nsecs, run_cnt: s.cnt, recursion_misses: s.misses }
}

fn sim_survival(sim: &Sim, prog_type: ProgType) -> Result<Vec<Stats>> {
    let program = sim.program(kind_of(prog_type), nothing)?;
    let mut after = Vec::new();
    for on in PHASES {
        if on {
            sim.key().slow_inc()?;
        }
        match prog_type.is_of_packets() {
            true => sim.test_run(prog_type, &program, REPEAT)??,
            false => (0..REPEAT).try_for_each(|_| anyhow::Ok(sim.test_run(prog_type, &program, 0)??))?,
        }
        if on {
            sim.key().slow_dec()?;
        }
        after.push(of_sim(bpf_prog_get_stats(&program)));
    }
    Ok(after)
}

fn sim_repeated(sim: &Sim, prog_type: ProgType) -> Result<String> {
    let program = sim.program(kind_of(prog_type), nothing)?;
    sim.key().slow_inc()?;
    let ran = sim.test_run(prog_type, &program, REPEAT)?;
    sim.key().slow_dec()?;
    Ok(ran.map_or_else(sim::name, |()| counts(bpf_prog_get_stats(&program).cnt)))
}
