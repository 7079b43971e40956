//! What keeps statistics on: descriptors, their copies, the sysctl, in any order. Kernel: `bpf_enable_runtime_stats`,
//! `bpf_stats_release`, `bpf_stats_handler`.

use anyhow::{Context, Result};
use host::Release;
use host::caller::Rights;
use host::facts::toggle::{Seen, Step, killed_holder, toggle};

use super::Fact;
use super::sim::{self, Sim};

const FAMILY: &str = "what keeps statistics on (/1: the sysctl reads 1)";
const SINCE: Release = Release(5, 8);

use Step::{Close, Dup, Open, Write};

/// Names of step lists, and what is done: seen after each step.
const CASES: [(&str, &[Step]); 10] = [
    ("open, close", &[Open, Close(0)]),
    ("one of two closed", &[Open, Open, Close(0), Close(1)]),
    ("opened again", &[Open, Close(0), Open, Close(1)]),
    ("a copy, the first closed", &[Open, Dup(0), Close(0), Close(1)]),
    ("a copy of a copy", &[Open, Dup(0), Dup(1), Close(0), Close(1), Close(2)]),
    ("sysctl 1, 1, 0", &[Write(true), Write(true), Write(false)]),
    ("sysctl 1, 0, 0", &[Write(true), Write(false), Write(false)]),
    ("sysctl 0, a descriptor open", &[Open, Write(false), Close(0)]),
    ("sysctl 1 and 0, a descriptor open", &[Open, Write(true), Write(false), Close(0)]),
    ("the last descriptor, sysctl 1", &[Write(true), Open, Close(0), Write(false)]),
];

pub(super) fn facts() -> Vec<Fact> {
    let cases = CASES.into_iter().map(|(name, steps)| {
        Fact::new(
            FAMILY,
            name,
            SINCE,
            move |sim| sim_toggle(sim, steps).map(text),
            move || toggle(steps).map(text),
        )
    });
    let holder = |[held, killed]: [bool; 2]| format!("{}, killed: {}", on(held), on(killed));
    let killed = Fact::new(
        FAMILY,
        "a child has it, and is killed",
        SINCE,
        move |sim| sim_killed_holder(sim).map(holder),
        move || killed_holder().map(holder),
    );
    cases.chain([killed]).collect()
}

fn on(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// After each step whether statistics are on, and whether the sysctl reads 1.
fn text(seen: Vec<Seen>) -> String {
    let each = |s: Seen| format!("{}{}", on(s.on), if s.sysctl { "/1" } else { "" });
    seen.into_iter().map(each).collect::<Vec<_>>().join(" ")
}

fn sim_toggle(sim: &Sim, steps: &[Step]) -> Result<Vec<Seen>> {
    let mut process = sim.process(Rights::All);
    let mut fds = Vec::new();
    let mut seen = Vec::new();
    for &step in steps {
        match step {
            Open => fds.push(sim::enable(&mut process, &[0; 4])?),
            Dup(n) => fds.push(process.files.dup(fds[n])?),
            Close(n) => process.files.close(fds[n])?,
            Write(on) => _ = process.write_bpf_stats_enabled(if on { b"1" } else { b"0" })?,
        }
        let reads = process.read_bpf_stats_enabled();
        seen.push(Seen {
            on: sim.sees_on()?,
            sysctl: *reads.first().context("the sysctl reads nothing")? == b'1',
        });
    }
    Ok(seen)
}

fn sim_killed_holder(sim: &Sim) -> Result<[bool; 2]> {
    let mut process = sim.process(Rights::All);
    let fd = sim::enable(&mut process, &[0; 4])?;
    let child = process.fork();
    process.files.close(fd)?;
    let held = sim.sees_on()?;
    drop(child);
    Ok([held, sim.sees_on()?])
}
