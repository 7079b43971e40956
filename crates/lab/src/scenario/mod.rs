//! `progstats scenario`: each historic bug and each wrong use of the path, staged to happen, beside the form that is right.
//!
//! A scenario is one file in `scenarios/`, found by the build script. It runs two sides, the wrong and the right form, and
//! each side judges what came of it ([`Take`]). The wrong one must break in the way that the scenario names, the right
//! one must not: anything else is a failure of the scenario.

mod lab;
mod script;
mod show;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use timeline::Timeline;

use crate::cli::Usage;
use crate::out;

/// What the build script found.
mod found {
    include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));
}

/// What the files of scenarios need.
pub(crate) mod prelude {
    pub(crate) use super::lab::{Bits32, K, Lab, count, invoke, read, run, runs};
    pub(crate) use super::script::Act;
    pub(crate) use super::{Change, Scenario, Side, Take, recorded};
    pub(crate) use filter::{BpfCtx, BpfProg, ProgType, bpf_prog_run};
    pub(crate) use percpu::{Cpu, Task};
    pub(crate) use stats::Bits64;
}

/// One situation, its wrong and its right form.
pub(crate) struct Scenario {
    /// What it is about, in at most 60 characters.
    pub(crate) title: &'static str,
    /// Which change of the kernel, or which rule.
    pub(crate) change: Change,
    /// What to look at in the timelines.
    pub(crate) watch: &'static str,
    /// Why it goes wrong, in one sentence.
    pub(crate) cause: &'static str,
    /// The name of what the wrong form breaks.
    pub(crate) breaks: &'static str,
    /// The form before, or the wrong use.
    pub(crate) wrong: Side,
    /// The form after, or the right use.
    pub(crate) right: Side,
    /// For the class.
    pub(crate) question: &'static str,
    /// And its answer.
    pub(crate) answer: &'static str,
}

/// Where a scenario comes from.
pub(crate) enum Change {
    /// A kernel commit, of KERNEL.toml.
    Commit(&'static str),
    /// A rule of the path, in a few words.
    Rule(&'static str),
}

impl Change {
    fn commit(&self) -> Option<&'static (&'static str, &'static str, &'static str)> {
        let Self::Commit(id) = self else { return None };
        found::COMMITS.iter().find(|(known, ..)| known == id)
    }

    /// The release that has it, for sorting.
    fn release(&self) -> Vec<u32> {
        self.commit().map_or(Vec::new(), |c| c.2.split('.').filter_map(|n| n.parse().ok()).collect())
    }

    /// In a description.
    fn long(&self) -> String {
        match (self, self.commit()) {
            (Self::Rule(rule), _) => format!("Rule: {rule}"),
            (Self::Commit(_), Some((id, title, release))) => format!("Linux {release}, {id}: {title}"),
            (Self::Commit(id), None) => format!("{id}, which KERNEL.toml does not list"),
        }
    }
}

/// All of them: bugs of the kernel first, by release, then rules.
fn all() -> Vec<(&'static str, &'static Scenario)> {
    let mut all = found::SCENARIOS.to_vec();
    all.sort_by_key(|(name, s)| (s.change.commit().is_none(), s.change.release(), *name));
    all
}

/// One form, and how to stage it.
pub(crate) struct Side {
    /// Which form.
    pub(crate) form: &'static str,
    /// Stages it.
    pub(crate) run: fn() -> Take,
}

/// What came of one side: what happened, and whether it broke.
pub(crate) struct Take {
    pub(crate) timeline: Timeline,
    /// The name of what broke.
    pub(crate) broke: Option<&'static str>,
    /// In words and numbers.
    pub(crate) says: String,
}

/// An execution that a model explored and that the tree keeps: a file of `counterexamples/`.
pub(crate) fn recorded(json: &str, breaks: &'static str, says: impl Into<String>) -> Take {
    let timeline = Timeline::from_json(json).expect("the tree keeps what models wrote");
    let broke = timeline.verdict.starts_with(&format!("[{breaks}]")).then_some(breaks);
    Take { timeline, broke, says: says.into() }
}

/// A scenario that was run.
struct Played {
    name: &'static str,
    scenario: &'static Scenario,
    wrong: Take,
    right: Take,
}

impl Played {
    fn play(name: &'static str, scenario: &'static Scenario) -> Self {
        let take = |side: &Side| {
            let mut take = sync::thread::catch(side.run).unwrap_or_else(|payload| Take {
                timeline: Timeline::default(),
                broke: Some("panic"),
                says: sync::thread::panic_message(&*payload).into(),
            });
            take.timeline.holds = take.broke.is_none();
            take.timeline.title = side.form.into();
            take.timeline.verdict = match take.broke {
                Some(name) => format!("breaks [{name}]: {}", take.says),
                None => format!("holds: {}", take.says),
            };
            let text = |file: &str| found::SOURCES.iter().find(|(path, _)| *path == file).map(|s| s.1.into());
            if take.timeline.sources.is_empty() {
                take.timeline.keep_sources(text);
            }
            take
        };
        Self { name, scenario, wrong: take(&scenario.wrong), right: take(&scenario.right) }
    }

    /// What did not come out as the scenario says.
    fn failures(&self) -> Vec<String> {
        let expected = self.scenario.breaks;
        let mut failures = Vec::new();
        match self.wrong.broke {
            Some(name) if name == expected => {}
            Some(name) => failures.push(format!(
                "{}: the wrong form should break [{expected}] and breaks [{name}]: {}",
                self.name, self.wrong.says
            )),
            None => failures.push(format!(
                "{}: the wrong form should break [{expected}] and holds: {}",
                self.name, self.wrong.says
            )),
        }
        if let Some(name) = self.right.broke {
            failures.push(format!(
                "{}: the right form should hold and breaks [{name}]: {}",
                self.name, self.right.says
            ));
        }
        failures
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ScenarioArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// List the scenarios
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a scenario, or several: the wrong form and the right one
    Run(PlayArgs),
}

#[derive(Args, Clone, Debug)]
struct PlayArgs {
    /// Which (`list` names them)
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    names: Vec<String>,
    /// All of them
    #[arg(long)]
    all: bool,
    /// Print the answer to the question, too
    #[arg(long)]
    answer: bool,
    /// Print as JSON
    #[arg(long, conflicts_with_all = ["html", "answer"])]
    json: bool,
    /// Write a page to step through instead
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Entry point.
pub(crate) fn main(args: &ScenarioArgs) -> Result<()> {
    match &args.command {
        Command::List { json } => out::print(&show::list(&all(), *json)?),
        Command::Run(args) => play(args),
    }
}

fn play(args: &PlayArgs) -> Result<()> {
    let chosen = match args.all {
        true => all(),
        false => args.names.iter().map(|name| find(name)).collect::<Result<_>>()?,
    };
    // A form that follows a null pointer panics, and that is what it should do; who panics unasked is told of below.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let played: Vec<_> = chosen.into_iter().map(|(name, scenario)| Played::play(name, scenario)).collect();
    std::panic::set_hook(usual);
    match &args.html {
        Some(file) => std::fs::write(file, show::page(&played))
            .with_context(|| format!("{} cannot be written", file.display()))?,
        None if args.json => out::print(&show::json(&played)?)?,
        None => out::print(&show::text(&played, args.answer))?,
    }
    let failures: Vec<_> = played.iter().flat_map(Played::failures).collect();
    match &failures[..] {
        [] => Ok(()),
        [first, rest @ ..] if !rest.is_empty() => bail!("{first} (and {} more)", rest.len()),
        [first, ..] => bail!("{first}"),
    }
}

fn find(name: &str) -> Result<(&'static str, &'static Scenario)> {
    if let Some(found) = found::SCENARIOS.iter().find(|(known, _)| *known == name) {
        return Ok(*found);
    }
    let nearest = found::SCENARIOS
        .iter()
        .map(|(known, _)| *known)
        .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
    let nearest = nearest.unwrap_or("(there is none)");
    bail!(Usage(format!("there is no scenario {name:?}: do you mean {nearest}? (`scenario list` names all)")))
}
