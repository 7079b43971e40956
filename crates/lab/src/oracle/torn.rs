//! Reading the counters of a program that runs elsewhere. Kernel: `bpf_prog_get_stats`; on 64-bit each counter is whole,
//! the pair need not be of one moment.

use anyhow::{Result, anyhow};
use filter::{BpfCtx, ProgType, bpf_prog_get_stats};
use host::Release;
use host::facts::torn::{Samples, samples, tell};
use jump_label::StaticKey;
use sync::host::{AtomicBool, Ordering::Relaxed};

use super::Fact;
use super::counting::of_sim;
use super::sim::{Sim, nothing};

/// `d979617aa84d`
const SINCE: Release = Release(5, 16);
const SAMPLES: u64 = 200_000;
/// And as many in which both moved: the one who runs it may not get a CPU for long.
const MOVED: u64 = 1000;
/// Until enough was seen, at most so many.
const MOST: u64 = 200_000_000;

pub(super) fn facts() -> Vec<Fact> {
    let family = "read while it runs on another CPU";
    vec![
        Fact::new(
            family,
            "200000 samples",
            SINCE,
            |sim| sim_samples(sim, MOST, is_enough).map(whole),
            || samples(MOST, is_enough).map(whole),
        ),
        Fact::new(
            family,
            "count or time moves alone",
            SINCE,
            |sim| sim_samples(sim, MOST, is_torn).map(torn),
            || samples(MOST, is_torn).map(torn),
        ),
    ]
}

fn is_enough(seen: &Samples) -> bool {
    seen.taken >= SAMPLES && seen.both >= MOVED
}

fn is_torn(seen: &Samples) -> bool {
    seen.count_alone + seen.time_alone > 0
}

fn whole(seen: Samples) -> String {
    match (seen.backwards, seen.both) {
        (0, 1..) => "never back".into(),
        _ => format!("{seen:?}"),
    }
}

fn torn(seen: Samples) -> String {
    if is_torn(&seen) { "seen" } else { "not seen" }.into()
}

fn sim_samples(sim: &Sim, most: u64, enough: impl Fn(&Samples) -> bool + Sync) -> Result<Samples> {
    let program = sim.program(ProgType::SocketFilter, nothing)?;
    sim.key().slow_inc()?;
    let stop = AtomicBool::new(false);
    sim.machine.boot(|smp| {
        let runner = smp.on(1, |cpu| {
            while !stop.load(Relaxed) {
                sim.run(cpu, &program, &mut BpfCtx::default());
            }
        });
        while bpf_prog_get_stats(&program).cnt == 0 {
            std::thread::yield_now();
        }
        let seen = tell(most, enough, || Ok(of_sim(bpf_prog_get_stats(&program))));
        stop.store(true, Relaxed);
        runner.join().map_err(|e| anyhow!("{e}"))?;
        seen
    })
}
