//! What the project set itself, each with what was measured and whether that is enough.

use serde::Serialize;

use crate::harness::{Group, Results};
use crate::run::{BARE, CLOCKS, RUN};
use crate::update::{ALONE, BITS32, CELL, MUTEX, ON_ONE, SEQLOCK, TOGETHER};
use crate::{clocks, growth, keys};

const OFF: &str = "off, 64-bit, patched key";
const ON_64: &str = "on, 64-bit, patched key";
const ON_32: &str = "on, 32-bit, patched key";

/// By how much the dearest of a growing row may be above the cheapest and still count as flat.
const FLAT: f64 = 1.05;

/// A target and what became of it.
#[derive(Debug, Serialize)]
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) goal: String,
    /// `None`: not measured here.
    pub(crate) measured: Option<f64>,
    pub(crate) unit: &'static str,
    pub(crate) met: Option<bool>,
    /// Why it is hard, where that is known: printed if it is not met.
    pub(crate) why: &'static str,
}

impl Target {
    fn at_most(what: impl Into<String>, limit: f64, unit: &'static str, measured: Option<f64>) -> Self {
        let (what, goal, met) = (what.into(), format!("<= {limit}"), measured.map(|m| m <= limit));
        Self { what, goal, measured, unit, met, why: "" }
    }

    fn at_least(what: impl Into<String>, limit: f64, measured: Option<f64>) -> Self {
        let (what, goal, met) = (what.into(), format!(">= {limit}"), measured.map(|m| m >= limit));
        Self { what, goal, measured, unit: "x", met, why: "" }
    }

    fn because(self, why: &'static str) -> Self {
        Self { why, ..self }
    }
}

/// Those in instructions: the same each time, so tests may go by them.
pub(crate) fn of_instructions(groups: &[Group]) -> Vec<Target> {
    let more = |a, b| Results(groups).more_instructions(RUN, a, b);
    vec![
        Target::at_most("key off against the bare call", 1.0, "instr", more(OFF, BARE)),
        Target::at_most("on, 64-bit, against two clock reads + call", 20.0, "instr", more(ON_64, CLOCKS)),
        Target::at_most("on, 32-bit, against two clock reads + call", 40.0, "instr", more(ON_32, CLOCKS)),
    ]
}

/// All of them.
pub(crate) fn all(groups: &[Group]) -> Vec<Target> {
    let results = Results(groups);
    let more_ns = |a| results.paired(RUN, a, CLOCKS, |a, b| a - b);
    let mut targets = of_instructions(groups);
    targets.extend([
        Target::at_most("on, 64-bit, against two clock reads + call", 1.5, "ns", more_ns(ON_64)),
        Target::at_most("on, 32-bit, against two clock reads + call", 1.5, "ns", more_ns(ON_32)),
    ]);
    for (group, cpus, factor) in [(ALONE, "alone", 1.3), (TOGETHER, "2 CPUs", 4.0)] {
        for peer in [MUTEX, SEQLOCK, CELL] {
            let faster = results.paired(group, peer, BITS32, |peer, ours| peer / ours);
            let what = format!("32-bit update, {cpus}, faster than {peer}");
            targets.push(Target::at_least(what, factor, faster).because(match (group, peer) {
                (ALONE, CELL) => {
                    "the cell takes a lock of its own once; the sequence is written twice, and each write waits for the \
                     one before it"
                }
                _ => "",
            }));
        }
    }
    let twice = |one: f64, two: f64| 2.0 * one / two;
    let flip = results.row(keys::FLIPS, keys::BUSY).map(|row| row.ns.median / 1e3);
    targets.extend([
        Target::at_least(
            "32-bit updates of one program, 2 CPUs against 1",
            1.9,
            results.paired(TOGETHER, ON_ONE, BITS32, twice),
        ),
        Target::at_least(
            "soft mask pair, cheaper than sigprocmask pair",
            100.0,
            results.paired(clocks::MASKS, clocks::SIGPROCMASK, clocks::SOFT, |theirs, ours| theirs / ours),
        ),
        Target::at_most("one site on + off, 2 threads running it", 100.0, "us", flip).because(
            "three threads share two cores then; each of two steps and a flip waits for all cores to answer",
        ),
    ]);
    let flat = [
        ("a run with 1 to 16384 programs", growth::PROGRAMS),
        ("a run with 2 to 512 possible CPUs", growth::CPUS),
        ("a run with 1 to 4096 sites", growth::SITES),
    ];
    targets.extend(flat.map(|(what, group)| Target::at_most(what, FLAT, "x", growth_of(groups, group))));
    targets
}

/// How much the median of the dearest row is above the cheapest's.
fn growth_of(groups: &[Group], name: &str) -> Option<f64> {
    let medians =
        || groups.iter().find(|g| g.name == name).into_iter().flat_map(|g| &g.rows).map(|r| r.ns.median);
    let cheapest = medians().min_by(f64::total_cmp)?;
    Some(medians().max_by(f64::total_cmp)? / cheapest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Row, Summary};

    fn group(name: &'static str, rows: &[(&str, f64)]) -> Group {
        let row = |&(name, v): &(&str, f64)| Row {
            name: name.into(),
            ns: Summary::of(&[v]),
            instructions: Some(v),
            samples: vec![v],
        };
        Group { name, title: "", rounds: 1, rows: rows.iter().map(row).collect() }
    }

    fn met(groups: &[Group], what: &str) -> Vec<Option<bool>> {
        all(groups).into_iter().filter(|t| t.what.contains(what)).map(|t| t.met).collect()
    }

    #[test]
    fn one_instruction_is_the_limit_of_the_off_path() {
        for (off, ok) in [(24.0, true), (25.0, false)] {
            let groups = [group(RUN, &[(BARE, 23.0), (OFF, off)])];
            assert_eq!(met(&groups, "key off"), [Some(ok)]);
        }
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        assert!(all(&[]).iter().all(|t| t.met.is_none() && t.measured.is_none()));
    }

    #[test]
    fn flat_is_flat_and_twice_the_work_is_two() {
        let groups = [
            group(growth::SITES, &[("1 site", 50.0), ("4096 sites", 53.0)]),
            group(growth::CPUS, &[("2", 50.0), ("512", 52.0)]),
            group(TOGETHER, &[(BITS32, 4.0), (ON_ONE, 3.9)]),
        ];
        assert_eq!(met(&groups, "sites"), [Some(false)]);
        assert_eq!(met(&groups, "possible"), [Some(true)]);
        assert_eq!(met(&groups, "2 CPUs against 1"), [Some(true)]);
    }
}
