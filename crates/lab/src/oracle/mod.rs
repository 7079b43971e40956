//! `progstats oracle`: facts, each asked of the simulation and of the running kernel.
//!
//! A fact has a name, the release it holds since, and a question to either side that answers in a few words. Which facts
//! can be asked of a kernel of which release is written down in `askable.txt`, so that none is lost unseen.

mod counting;
mod enable;
mod expected;
mod flip;
mod generated;
mod misses;
mod report;
mod sim;
mod sysctl;
mod toggle;
mod torn;
mod traced;

use anyhow::{Result, bail};
use host::{CannotAsk, Host, Release};

use crate::cli::{OracleArgs, Usage};
use crate::out;
use report::{Asked, Report, Verdict};
use sim::Sim;

/// What the simulation answers, as a machine of a release.
type AskSim = Box<dyn Fn(&Sim) -> Result<String>>;
/// What the running kernel answers, or why it cannot be asked.
type AskHost = Box<dyn Fn() -> Result<String, CannotAsk>>;

/// Something that both sides must agree on.
struct Fact {
    family: &'static str,
    name: String,
    /// The release it holds since.
    since: Release,
    sim: AskSim,
    host: AskHost,
}

impl Fact {
    fn new(
        family: &'static str,
        name: impl Into<String>,
        since: Release,
        sim: impl Fn(&Sim) -> Result<String> + 'static,
        host: impl Fn() -> Result<String, CannotAsk> + 'static,
    ) -> Self {
        Self { family, name: name.into(), since, sim: Box::new(sim), host: Box::new(host) }
    }

    /// Its name in `askable.txt` and for filters.
    fn full_name(&self) -> String {
        format!("{}: {}", self.family, self.name)
    }
}

/// All of them.
fn facts() -> Vec<Fact> {
    [
        enable::facts(),
        sysctl::facts(),
        toggle::facts(),
        flip::facts(),
        counting::facts(),
        misses::facts(),
        traced::facts(),
        torn::facts(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Entry point.
pub(crate) fn main(args: &OracleArgs) -> Result<()> {
    let mut facts = facts();
    let mut generate = true;
    if let Some(filter) = &args.filter {
        let mut families: Vec<&str> = facts.iter().map(|f| f.family).chain([generated::FAMILY]).collect();
        let fits = |name: &str| name.to_lowercase().contains(&filter.to_lowercase());
        facts.retain(|f| fits(&f.full_name()));
        generate = fits(&generated::full_name());
        if facts.is_empty() && !generate {
            families.dedup();
            bail!(Usage(format!("no fact has {filter:?} in its name; families: {}", families.join(", "))));
        }
    }
    let mut report = Report::new();
    if !args.json {
        out::print(&report.head())?;
    }
    for fact in &facts {
        let asked = ask(fact)?;
        if !args.json {
            out::print(&report.row(&asked))?;
        }
        report.facts.push(asked);
    }
    if generate {
        let (asked, programs) =
            generated::ask(args.seed.unwrap_or_else(|| fastrand::u64(..)), args.programs)?;
        if !args.json {
            out::print(&report.row(&asked))?;
            out::print(&programs.as_ref().map(generated::Generated::text).unwrap_or_default())?;
        }
        report.facts.push(asked);
        report.generated = programs;
    }
    match args.json {
        true => out::print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?,
        false => out::print(&report.end())?,
    }
    let differ = report.count(Verdict::Differs);
    let lost: Vec<_> = report.facts.iter().filter(|f| f.lost).map(|f| f.full_name()).collect();
    match (differ, &lost[..]) {
        (0, []) => Ok(()),
        (0, [first, ..]) => bail!(
            "{} that this kernel should answer could not be asked, first: {first} (if this machine refuses it, \
             set {} to why)",
            lost.len(),
            host::expect::REFUSED
        ),
        (n, _) => bail!("{n} of {} facts differ", report.facts.len()),
    }
}

/// Asks both sides.
fn ask(fact: &Fact) -> Result<Asked> {
    let sim = Sim::new(Host::release())?;
    let simulation = (fact.sim)(&sim)?;
    let (verdict, host, why) = match (fact.host)() {
        Ok(host) if host == simulation => (Verdict::Same, Some(host), None),
        Ok(host) => (Verdict::Differs, Some(host), None),
        Err(CannotAsk(why)) => (Verdict::CannotAsk, None, Some(why)),
    };
    let lost = why.is_some() && expected::must_be_asked(&fact.full_name());
    Ok(Asked {
        family: fact.family,
        name: fact.name.clone(),
        since: fact.since.to_string(),
        verdict,
        simulation,
        host,
        why,
        lost,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_fact_is_in_the_list_and_the_list_has_no_others() {
        let names: Vec<String> =
            facts().iter().map(Fact::full_name).chain([generated::full_name()]).collect();
        let set: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(set.len(), names.len(), "names are different");
        let listed: BTreeSet<&str> = expected::all().collect();
        let missing: Vec<_> = set.difference(&listed).collect();
        let gone: Vec<_> = listed.difference(&set).collect();
        assert!(
            missing.is_empty() && gone.is_empty(),
            "not in askable.txt: {missing:#?}\nno facts: {gone:#?}"
        );
    }
}
