//! What the steps of a task came to: one line each, the output of those that failed, and the sum as the last line.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;

/// How many tests passed, failed and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// How many ran.
    pub(crate) fn ran(self) -> usize {
        self.passed + self.failed
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

/// What a step came to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A check of one thing, and what it says if that is not so.
    Check { ok: bool, output: String },
    /// Many tests, and what they say if some failed.
    Tests { counts: Counts, output: String },
    /// It did not run, for this reason.
    Skipped(String),
}

/// Prints each step as it ends and keeps the sum.
pub(crate) struct Report<W> {
    out: W,
    /// Whether someone watches: then a step's name is there while it runs, elsewhere lines come whole.
    live: bool,
    total: Counts,
}

impl<W: Write> Report<W> {
    pub(crate) fn new(out: W, live: bool) -> Self {
        Report { out, live, total: Counts::default() }
    }

    /// The sum so far.
    pub(crate) fn total(&self) -> Counts {
        self.total
    }

    /// Runs one step. If it fails, by its outcome or by an error, it is counted, and later steps still run.
    ///
    /// # Errors
    /// If the report cannot be written.
    pub(crate) fn step(&mut self, name: &str, step: impl FnOnce() -> Result<Outcome>) -> Result<()> {
        let name = format!("{name:<28} ");
        if self.live {
            write!(self.out, "{name}")?;
            self.out.flush()?;
        }
        let start = Instant::now();
        let outcome = step().unwrap_or_else(|e| Outcome::Check { ok: false, output: format!("{e:#}\n") });
        self.line(if self.live { "" } else { &name }, outcome, start.elapsed())
    }

    /// Counts and prints a step that ran elsewhere and took this long.
    ///
    /// # Errors
    /// If the report cannot be written.
    pub(crate) fn ended(&mut self, name: &str, outcome: Outcome, took: Duration) -> Result<()> {
        self.line(&format!("{name:<28} "), outcome, took)
    }

    fn line(&mut self, name: &str, outcome: Outcome, took: Duration) -> Result<()> {
        let (counts, text, output) = match outcome {
            Outcome::Check { ok: true, .. } => {
                (Counts { passed: 1, ..Counts::default() }, "ok".into(), String::new())
            }
            Outcome::Check { output, .. } => {
                (Counts { failed: 1, ..Counts::default() }, "FAILED".into(), output)
            }
            Outcome::Tests { counts, output } => {
                (counts, counts.to_string(), if counts.failed > 0 { output } else { String::new() })
            }
            Outcome::Skipped(why) => {
                (Counts { skipped: 1, ..Counts::default() }, format!("skipped: {why}"), String::new())
            }
        };
        self.total.add(counts);
        writeln!(self.out, "{name}{text:<36} {:>6.1} s", took.as_secs_f64())?;
        if !output.is_empty() {
            writeln!(self.out, "\n{}\n", output.trim_end())?;
        }
        Ok(())
    }

    /// Says something that belongs to the steps before.
    ///
    /// # Errors
    /// If the report cannot be written.
    pub(crate) fn note(&mut self, text: &str) -> Result<()> {
        Ok(writeln!(self.out, "  {text}")?)
    }

    /// Prints the sum. Whether something ran and nothing failed.
    ///
    /// # Errors
    /// If the report cannot be written.
    pub(crate) fn finish(mut self) -> Result<bool> {
        writeln!(self.out, "\n{}", self.total)?;
        Ok(self.total.failed == 0 && self.total.passed > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a report of `outcomes` prints, and its verdict.
    fn report(outcomes: Vec<Result<Outcome>>) -> (String, bool) {
        let mut out = Vec::new();
        let mut report = Report::new(&mut out, false);
        for outcome in outcomes {
            report.step("step", || outcome).unwrap();
        }
        let ok = report.finish().unwrap();
        (String::from_utf8(out).unwrap(), ok)
    }

    fn tests(passed: usize, failed: usize, skipped: usize) -> Result<Outcome> {
        Ok(Outcome::Tests { counts: Counts { passed, failed, skipped }, output: "the output".into() })
    }

    #[test]
    fn the_last_line_is_the_sum_and_nothing_else() {
        let (text, ok) = report(vec![tests(2, 0, 0), tests(3, 0, 0)]);
        assert!(ok && text.ends_with("\n5 passed, 0 failed\n"), "{text}");
        let (text, ok) = report(vec![tests(2, 0, 1), Ok(Outcome::Skipped("no reason".into()))]);
        assert!(ok && text.ends_with("\n2 passed, 0 failed, 2 skipped\n"), "{text}");
        assert!(text.contains("skipped: no reason"));
    }

    #[test]
    fn a_failure_shows_its_output_and_later_steps_still_run() {
        let (text, ok) = report(vec![tests(2, 1, 0), Err(anyhow::anyhow!("did not build")), tests(4, 0, 0)]);
        assert!(!ok && text.ends_with("\n6 passed, 2 failed\n"), "{text}");
        assert_eq!(text.matches("the output").count(), 1);
        assert!(text.contains("did not build"));
    }

    #[test]
    fn the_running_step_is_named_where_someone_watches() {
        for (live, meanwhile) in [(true, "step"), (false, "")] {
            let path = std::env::temp_dir().join(format!("xtask-report-{}-{live}", std::process::id()));
            let mut report = Report::new(std::fs::File::create(&path).unwrap(), live);
            let mut seen = String::new();
            report
                .step("step", || {
                    seen = std::fs::read_to_string(&path)?;
                    tests(1, 0, 0)
                })
                .unwrap();
            let line = std::fs::read_to_string(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            assert_eq!(seen.trim_end(), meanwhile);
            assert!(line.starts_with("step  ") && line.lines().count() == 1, "{line}");
        }
    }

    #[test]
    fn nothing_run_is_no_success() {
        assert!(!report(vec![]).1);
        assert!(!report(vec![tests(0, 0, 3)]).1);
    }
}
