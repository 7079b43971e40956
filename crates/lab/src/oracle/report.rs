//! What was asked, and how it is printed: at most 80 columns, a line a fact where both sides agree.

use std::fmt::Write as _;

use host::Host;
use serde::Serialize;

use super::generated::Generated;
use crate::out;

/// What came of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Same,
    Differs,
    CannotAsk,
}

/// A fact that was asked.
#[derive(Debug, Serialize)]
pub(super) struct Asked {
    pub(super) family: &'static str,
    pub(super) name: String,
    /// The release it holds since.
    pub(super) since: String,
    pub(super) verdict: Verdict,
    pub(super) simulation: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) host: Option<String>,
    /// Why it could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// It could not be asked, and kernels of this release should answer it.
    pub(super) lost: bool,
}

impl Asked {
    pub(super) fn full_name(&self) -> String {
        format!("{}: {}", self.family, self.name)
    }
}

/// All that was asked.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    kernel: String,
    privileged: bool,
    pub(super) facts: Vec<Asked>,
    /// The generated programs, if they were asked for and could be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) generated: Option<Generated>,
    /// The reasons why facts could not be asked, in the order in which they came.
    #[serde(skip)]
    reasons: Vec<String>,
}

/// Columns of a line.
pub(super) const WIDTH: usize = 79;
/// Columns of the words before a name, and of a name.
const NAME: usize = 34;

impl Report {
    pub(super) fn new() -> Self {
        Self {
            kernel: Host::uname(),
            privileged: host::caller::is_privileged(),
            facts: Vec::new(),
            generated: None,
            reasons: Vec::new(),
        }
    }

    pub(super) fn count(&self, verdict: Verdict) -> usize {
        self.facts.iter().filter(|f| f.verdict == verdict).count()
    }

    pub(super) fn head(&self) -> String {
        let title = "oracle: the same questions to the simulation and to this kernel";
        let rights = if self.privileged { "privileged" } else { "not privileged" };
        format!("{}\nLinux {}, {rights}\n", out::bold(title), self.kernel)
    }

    /// The lines of a fact, behind its family's name if it is the first of it.
    pub(super) fn row(&mut self, fact: &Asked) -> String {
        let mut t = String::new();
        if self.facts.last().is_none_or(|last| last.family != fact.family) {
            let _ = writeln!(t, "\n{}\n  {:<9}since", out::bold(fact.family), "");
        }
        let Asked { name, since, simulation, .. } = fact;
        let (word, answer) = match fact.verdict {
            Verdict::Same => ("same".into(), simulation.clone()),
            Verdict::Differs => ("DIFFERS".into(), format!("simulation: {simulation}")),
            Verdict::CannotAsk => (format!("not [{}]", self.reason(fact)), simulation.clone()),
        };
        let start = format!("  {word:<9}{since:<6} {name:<NAME$} ");
        line(&mut t, &start, &answer);
        if let (Verdict::Differs, Some(host)) = (fact.verdict, &fact.host) {
            line(&mut t, "", &format!("this kernel: {host}"));
        }
        t
    }

    /// The number of the reason why it was not asked.
    fn reason(&mut self, fact: &Asked) -> usize {
        let lost = if fact.lost { "kernels of this release answer it, but here: " } else { "" };
        let why = format!("{lost}{}", fact.why.as_deref().unwrap_or_default());
        let known = self.reasons.iter().position(|r| *r == why);
        1 + known.unwrap_or_else(|| {
            self.reasons.push(why);
            self.reasons.len() - 1
        })
    }

    pub(super) fn end(&self) -> String {
        let mut t = String::from("\n");
        for (n, why) in self.reasons.iter().enumerate() {
            t += &out::fold(&format!("[{}] cannot be asked here: {why}", n + 1), WIDTH);
        }
        let [same, differ, not] =
            [Verdict::Same, Verdict::Differs, Verdict::CannotAsk].map(|v| self.count(v));
        let _ = writeln!(
            t,
            "{} facts: {same} same, {differ} differ, {not} cannot be asked here",
            self.facts.len()
        );
        t
    }
}

/// `answer` behind `start`; on a line of its own below, if there is no room.
fn line(t: &mut String, start: &str, answer: &str) {
    if start.chars().count() + answer.chars().count() <= WIDTH && !start.is_empty() {
        let _ = writeln!(t, "{start}{answer}");
        return;
    }
    if !start.is_empty() {
        let _ = writeln!(t, "{}", start.trim_end());
    }
    for folded in out::fold(answer, WIDTH - 19).lines() {
        let _ = writeln!(t, "{:19}{folded}", "");
    }
}
