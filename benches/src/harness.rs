//! The one harness: variants that are compared run in turn, in one run, so that what disturbs one disturbs all.
//!
//! A round runs each variant once, for some 200 us, in an order that turns from round to round. Of all rounds the minimum,
//! the median and the quartiles are kept. Two variants are compared round by round, and the median of those comparisons
//! counts: a host that is busy for a while makes both slower and leaves their difference alone.
//!
//! The same variants are what [`crate::counts`] counts the instructions of.

use std::io::Write;
use std::time::{Duration, Instant};

use serde::Serialize;

/// How long a variant's turn lasts, about.
const TURN: Duration = Duration::from_micros(200);
/// Rounds of a group that takes longer than its time.
const MIN_ROUNDS: usize = 7;
/// Iterations whose instructions are counted, once and twice.
pub(crate) const COUNTED: u64 = 500;

/// One of the things that a group compares.
pub(crate) struct Variant<'a> {
    name: String,
    /// Does so many iterations and returns the ns of one; or several such samples.
    run: Box<dyn FnMut(u64) -> Vec<f64> + 'a>,
    counted: bool,
    fixed: Option<u64>,
}

impl<'a> Variant<'a> {
    /// A variant whose `run` does so many iterations and returns what one took, in ns: see [`timed`].
    pub(crate) fn new(name: impl Into<String>, mut run: impl FnMut(u64) -> f64 + 'a) -> Self {
        Self::samples(name, move |n| vec![run(n)])
    }

    /// A variant that measures each iteration by itself.
    pub(crate) fn samples(name: impl Into<String>, run: impl FnMut(u64) -> Vec<f64> + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run), counted: false, fixed: None }
    }

    /// Its instructions are counted too: it runs on one CPU and waits for nobody.
    pub(crate) fn counted(self) -> Self {
        Self { counted: true, ..self }
    }

    /// A turn is this many iterations, however long they take.
    pub(crate) fn iterations(self, n: u64) -> Self {
        Self { fixed: Some(n), ..self }
    }
}

/// Runs `body` so many times and returns what one took, in ns. What it sets up before is not measured.
#[inline(always)]
pub(crate) fn timed(n: u64, mut body: impl FnMut()) -> f64 {
    let run: &mut dyn FnMut(u64) = &mut |n| (0..n).for_each(|_| body());
    run(n / 8 + 1); // the loop and its data are warm, and patched text has been fetched
    let start = Instant::now();
    progstats_counted(n, run);
    start.elapsed().as_nanos() as f64 / n as f64
}

/// Where callgrind looks. By its name, so it has a plain one.
// SAFETY: nothing else in the program has this name.
#[unsafe(no_mangle)]
#[inline(never)]
fn progstats_counted(n: u64, run: &mut dyn FnMut(u64)) {
    run(n);
}

/// The minimum, the middle and the quarters of a sample, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) min: f64,
    pub(crate) p25: f64,
    pub(crate) median: f64,
    pub(crate) p75: f64,
}

impl Summary {
    /// Of at least one value.
    pub(crate) fn of(sample: &[f64]) -> Self {
        let mut sorted = sample.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let at = |q: f64| sorted.get((last as f64 * q).round() as usize).copied().unwrap_or(0.0);
        Self { min: at(0.0), p25: at(0.25), median: at(0.5), p75: at(0.75) }
    }

    /// Half the distance between the quartiles: "median ± this" holds half of the sample.
    pub(crate) fn spread(&self) -> f64 {
        (self.p75 - self.p25) / 2.0
    }
}

/// What was measured of a variant.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) ns: Summary,
    /// Instructions of an iteration, its loop included; where callgrind counted them.
    pub(crate) instructions: Option<f64>,
    #[serde(skip)]
    pub(crate) samples: Vec<f64>,
}

/// Variants that were compared.
#[derive(Debug, Serialize)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) rounds: usize,
    pub(crate) rows: Vec<Row>,
}

/// What the harness does with the variants that it is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    /// Measures each group for this long.
    Time(Duration),
    /// Runs those that are counted, and prints the name of each: callgrind watches.
    Count,
}

/// Takes groups of variants one after the other.
pub(crate) struct Harness {
    mode: Mode,
    filter: String,
    /// What was measured so far.
    pub(crate) groups: Vec<Group>,
    /// What could not be measured here, and why.
    pub(crate) notes: Vec<String>,
}

impl Harness {
    /// A harness for the groups whose names contain `filter`.
    pub(crate) fn new(mode: Mode, filter: &str) -> Self {
        Self { mode, filter: filter.into(), groups: Vec::new(), notes: Vec::new() }
    }

    /// Whether this group is asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        name.contains(&self.filter)
    }

    /// Whether instructions are counted, not time.
    pub(crate) fn counts(&self) -> bool {
        self.mode == Mode::Count
    }

    /// Says why something is not measured.
    pub(crate) fn note(&mut self, why: impl Into<String>) {
        self.notes.push(why.into());
    }

    /// Measures a group, if it is asked for.
    pub(crate) fn group(&mut self, name: &'static str, title: &'static str, mut variants: Vec<Variant<'_>>) {
        if !self.wants(name) {
            return;
        }
        match self.mode {
            Mode::Count => variants.iter_mut().filter(|v| v.counted).for_each(|v| count(name, v)),
            Mode::Time(time) => {
                // Some wait long for this, and stdout is the table's. Whether anybody reads it does not matter.
                let _ = writeln!(std::io::stderr(), "{title} ...");
                self.groups.push(measure(name, title, &mut variants, time));
            }
        }
    }
}

/// Runs a variant once and once again for twice as long, and prints its name for who reads the counts.
fn count(group: &str, variant: &mut Variant<'_>) {
    println!("{group}: {}", variant.name);
    for n in [COUNTED, 2 * COUNTED] {
        (variant.run)(n);
    }
}

fn measure(name: &'static str, title: &'static str, variants: &mut [Variant<'_>], time: Duration) -> Group {
    let iterations: Vec<u64> = variants.iter_mut().map(iterations).collect();
    let mut samples = vec![Vec::new(); variants.len()];
    let (start, mut rounds) = (Instant::now(), 0);
    while rounds < MIN_ROUNDS || start.elapsed() < time {
        for turn in 0..variants.len() {
            let i = (turn + rounds) % variants.len();
            samples[i].extend((variants[i].run)(iterations[i]));
        }
        rounds += 1;
    }
    let row = |(v, samples): (&Variant<'_>, Vec<f64>)| Row {
        name: v.name.clone(),
        ns: Summary::of(&samples),
        instructions: None,
        samples,
    };
    Group { name, title, rounds, rows: variants.iter().zip(samples).map(row).collect() }
}

/// How many iterations make a turn.
fn iterations(variant: &mut Variant<'_>) -> u64 {
    if let Some(n) = variant.fixed {
        (variant.run)(n);
        return n;
    }
    // The least of three: one may be disturbed.
    let one = (0..3).flat_map(|_| (variant.run)(1000)).fold(f64::INFINITY, f64::min);
    (TURN.as_nanos() as f64 / one.max(0.1)) as u64 + 1
}

/// What was measured, by group and name.
pub(crate) struct Results<'a>(pub(crate) &'a [Group]);

impl<'a> Results<'a> {
    pub(crate) fn row(&self, group: &str, name: &str) -> Option<&'a Row> {
        self.0.iter().find(|g| g.name == group)?.rows.iter().find(|r| r.name == name)
    }

    /// The median, over the rounds, of what `f` makes of the two variants.
    pub(crate) fn paired(&self, group: &str, a: &str, b: &str, f: fn(f64, f64) -> f64) -> Option<f64> {
        let (a, b) = (self.row(group, a)?, self.row(group, b)?);
        let each: Vec<f64> = a.samples.iter().zip(&b.samples).map(|(&a, &b)| f(a, b)).collect();
        Some(Summary::of(&each).median)
    }

    /// Instructions of one more than of the other.
    pub(crate) fn more_instructions(&self, group: &str, a: &str, b: &str) -> Option<f64> {
        Some(self.row(group, a)?.instructions? - self.row(group, b)?.instructions?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_quarters() {
        let s = Summary::of(&[5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!((s.min, s.p25, s.median, s.p75, s.spread()), (1.0, 2.0, 3.0, 4.0, 1.0));
    }

    #[test]
    fn each_variant_runs_in_each_round_and_comparisons_are_made_round_by_round() {
        let mut harness = Harness::new(Mode::Time(Duration::ZERO), "");
        // Both double from round to round; their ratio stays.
        let growing = |from: f64| {
            let mut ns = from;
            move |_| {
                ns *= 2.0;
                ns
            }
        };
        let variants = vec![
            Variant::new("a", growing(1.0)).iterations(1),
            Variant::new("b", growing(3.0)).iterations(1),
        ];
        harness.group("g", "", variants);
        let results = Results(&harness.groups);
        assert_eq!(results.row("g", "a").map(|r| r.samples.len()), Some(MIN_ROUNDS));
        assert_eq!(results.paired("g", "b", "a", |b, a| b / a), Some(3.0));
    }

    #[test]
    fn what_is_not_asked_for_does_not_run() {
        let mut harness = Harness::new(Mode::Time(Duration::ZERO), "other");
        harness.group("g", "", vec![Variant::new("a", |_| unreachable!())]);
        assert!(harness.groups.is_empty());
    }
}
