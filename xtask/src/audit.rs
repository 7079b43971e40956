//! `cargo xtask loom --audit`: each ordering is weakened and each fence is dropped, one at a time, and a model must notice.
//!
//! The sites are found in the source, so one that no model comes to fails too. Orderings on words that models do not see
//! are listed apart, each with the reason that stands beside it.

use std::io::Write;

use anyhow::{Result, bail};
use xshell::Shell;

use crate::models::{self, Options};
use crate::report::{Outcome, Report};
use crate::source::{Source, line_of};
use crate::tidy::{self, ordering};

/// The code whose orderings models must show to be needed. Of the keys it is the one that is a word.
const AUDITED: &[&str] =
    &["crates/stats/src/", "crates/jump_label/src/atomic.rs", "crates/filter/src/", "crates/trampoline/src/"];

/// The code whose strong orderings are all on words of the host, which models do not see; the patched key stands on what
/// processors do with text, too.
const HOST: &[&str] = &["crates/percpu/src/", "crates/jump_label/src/patched/"];

/// Sites that no model can miss although they are needed, as they stand in the source, and why.
const ALLOWED: &[(&str, &str)] = &[];

/// A fence, or an ordering stronger than relaxed.
struct Site {
    /// From the root of the workspace.
    path: String,
    /// From 1.
    line: usize,
    what: String,
    /// The line as it stands there.
    text: String,
    /// The comment that says why.
    reason: String,
}

impl Site {
    fn place(&self) -> String {
        format!("{}:{}", self.path, self.line)
    }

    fn is_fence(&self) -> bool {
        self.what.contains("mb") || self.what == "fence"
    }

    /// As the harness wants to be told of it.
    fn weakened(&self) -> String {
        if self.is_fence() { self.place() } else { format!("{}=Relaxed", self.place()) }
    }
}

/// Weakens each site in turn; one that no model misses fails.
///
/// # Errors
/// If there is no site, or the report cannot be written.
pub(crate) fn run(sh: &Shell, report: &mut Report<impl Write>) -> Result<()> {
    let sites = sites(sh, AUDITED)?;
    if sites.is_empty() {
        bail!("no ordering stronger than relaxed was found: the audit looks in the wrong place");
    }
    for site in sites {
        let done = if site.is_fence() { "dropped" } else { "as Relaxed" };
        let file = site.path.rsplit('/').next().unwrap_or_default();
        let mut note = None;
        report.step(&format!("{file}:{} {} {done}", site.line, site.what), || {
            let (_, output) = models::run(sh, Options::default(), &[("LOOM_WEAKEN", &site.weakened())])?;
            let kill = first_kill(&output);
            let allowed = ALLOWED.iter().find(|(text, _)| *text == site.text);
            note = match (kill, allowed) {
                (Some(kill), _) => Some(format!("killed by {kill}")),
                (None, Some((_, why))) => Some(format!("no model notices: {why}")),
                (None, None) => None,
            };
            let met = output.lines().any(|l| l.contains("met by "));
            let what = if met { "no model noticed" } else { "no model comes here" };
            let output = format!(
                "{}: {what}: it is not needed (weaken the code), or not covered (extend a model)",
                site.place()
            );
            Ok(Outcome::Check { ok: note.is_some(), output })
        })?;
        if let Some(note) = note {
            report.note(&note)?;
        }
    }
    report.note("")?;
    report.note("On words of the host, which models do not see; the reason that stands beside each:")?;
    sites_of_host(sh)?.iter().try_for_each(|line| report.note(line))
}

/// The kill that took the fewest executions: models run side by side, and report in any order.
fn first_kill(output: &str) -> Option<&str> {
    let kills = output.lines().filter_map(|l| l.split_once("killed by ").map(|(_, k)| k));
    kills.min_by_key(|k| k.split_whitespace().nth(2).and_then(|n| n.parse().ok()).unwrap_or(u64::MAX))
}

/// One line for each reason, with the sites it is given for.
fn sites_of_host(sh: &Shell) -> Result<Vec<String>> {
    let mut sites = sites(sh, HOST)?;
    sites.dedup_by(|b, a| a.path == b.path && a.reason == b.reason);
    let line = |s: Site| {
        let place = format!("{}:{}", s.path.rsplit('/').next().unwrap_or_default(), s.line);
        // What it pairs with, or the rule; the rest stands in the source.
        let reason =
            s.reason.split_once(": ").map_or(s.reason.as_str(), |(pairs, _)| pairs).trim_end_matches('.');
        format!("{place:<14} {reason}")
    };
    Ok(sites.into_iter().map(line).collect())
}

/// Every fence, and every ordering stronger than relaxed, in the sources whose paths begin with one of `places`.
fn sites(sh: &Shell, places: &[&str]) -> Result<Vec<Site>> {
    let mut found: Vec<Site> = Vec::new();
    for file in tidy::files(&sh.current_dir())? {
        if !places.iter().any(|p| file.path.starts_with(p)) {
            continue;
        }
        let source = Source::new(&file.text);
        let tests = source.test_lines();
        for (at, what) in ordering::strong(&source.code) {
            let line = line_of(&source.code, at);
            // One operation may name two orderings: it is one site.
            let is_new = found.last().is_none_or(|s| s.path != file.path || s.line != line + 1);
            if !tests[line] && is_new {
                found.push(Site {
                    path: file.path.clone(),
                    line: line + 1,
                    what: what.to_owned(),
                    text: file.text.lines().nth(line).unwrap_or_default().trim().to_owned(),
                    reason: ordering::reason(&source, line).unwrap_or_default(),
                });
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kill_shown_is_the_one_after_the_fewest_executions() {
        let output = "killed by a::b after 249 executions: one-moment\n\
                      test x ... killed by c::d after 13 executions: total\n";
        assert_eq!(first_kill(output), Some("c::d after 13 executions: total"));
        assert_eq!(first_kill("test x ... ok\n"), None);
    }

    #[test]
    fn the_seqcounts_fences_are_found_in_the_source() {
        let sh = Shell::new().unwrap();
        sh.change_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let sites = sites(&sh, &["crates/stats/src/"]).unwrap();
        let fences = sites.iter().filter(|s| s.is_fence() && s.path.ends_with("seqcount.rs")).count();
        assert_eq!(fences, 4, "{:?}", sites.iter().map(Site::place).collect::<Vec<_>>());
        assert!(sites.iter().all(|s| s.reason.contains("pairs with")));
    }
}
