//! Scenarios as a table, as text, as a page, as JSON.

use std::fmt::Write as _;

use anyhow::Result;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};

use super::{Played, Scenario, Take};
use crate::out;

/// The width of text where nobody says, and the widest that is read well.
const WIDTH: usize = 80;
const WIDEST: usize = 110;

/// The table of all scenarios.
pub(super) fn list(all: &[(&'static str, &'static Scenario)], as_json: bool) -> Result<String> {
    if as_json {
        let all: Vec<Value> = all.iter().map(|(name, s)| about(name, s)).collect();
        return Ok(format!("{}\n", serde_json::to_string_pretty(&all)?));
    }
    let width = all.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
    let mut t = String::new();
    let mut group = |title: &str, of: Vec<&(&str, &Scenario)>| {
        let _ = writeln!(t, "{}", out::bold(title));
        for (name, s) in of {
            let release = s.change.commit().map_or("", |c| c.2);
            let head = format!("  {release:<5}{name:<width$}");
            let options =
                textwrap::Options::new(columns().max(40)).initial_indent(&head).subsequent_indent("    ");
            let _ = writeln!(t, "{}", textwrap::fill(s.title, options));
        }
    };
    let (bugs, rules) = all.iter().partition(|(_, s)| s.change.commit().is_some());
    group("Bugs of the kernel, by the release that put them right", bugs);
    group("\nRules, and what breaks without them", rules);
    let _ = writeln!(t, "\n{} scenarios; `progstats scenario run NAME` plays one.", all.len());
    Ok(t)
}

fn columns() -> usize {
    terminal_size::terminal_size_of(std::io::stdout())
        .map_or(WIDTH, |(w, _)| usize::from(w.0))
        .clamp(20, WIDEST)
}

fn paragraph(t: &mut String, head: &str, text: &str) {
    let indent = " ".repeat(10);
    let head = format!("{head:<10}");
    for (i, line) in textwrap::wrap(text, columns().saturating_sub(indent.len()).max(20)).iter().enumerate() {
        let head = if i == 0 { out::bold(&head) } else { indent.clone() };
        let _ = writeln!(t, "{head}{line}");
    }
}

/// Each scenario with both timelines; the answers too where asked.
pub(super) fn text(played: &[Played], answer: bool) -> String {
    let mut t = String::new();
    for (i, p) in played.iter().enumerate() {
        if i > 0 {
            let _ = writeln!(t, "\n{}\n", "─".repeat(columns()));
        }
        let s = p.scenario;
        let _ = writeln!(t, "{}\n", out::bold(&format!("{}: {}", p.name, s.title)));
        paragraph(&mut t, "change", &s.change.long());
        paragraph(&mut t, "cause", s.cause);
        paragraph(&mut t, "watch", s.watch);
        for (what, take) in [("wrong", &p.wrong), ("right", &p.right)] {
            let mut timeline = take.timeline.clone();
            timeline.title = out::bold(&format!("{what}: {}", timeline.title));
            let _ = write!(t, "\n{}", timeline.text(columns(), out::styled()));
        }
        t.push('\n');
        paragraph(&mut t, "question", s.question);
        if answer {
            paragraph(&mut t, "answer", s.answer);
        } else if played.len() == 1 {
            paragraph(&mut t, "answer", "run it again with --answer");
        }
    }
    if played.len() > 1 {
        let failed = played.iter().filter(|p| !p.failures().is_empty()).count();
        let right = played.len() - failed;
        let _ = writeln!(t, "\n{}", out::bold(&format!("{right} scenarios as they should be, {failed} not")));
    }
    t
}

fn about(name: &str, s: &Scenario) -> Value {
    let commit = s.change.commit();
    json!({
        "name": name,
        "title": s.title,
        "change": s.change.long(),
        "commit": commit.map(|c| c.0),
        "release": commit.map(|c| c.2),
        "cause": s.cause,
        "watch": s.watch,
        "breaks": s.breaks,
        "question": s.question,
        "answer": s.answer,
    })
}

fn side(Take { timeline, broke, says }: &Take) -> Value {
    json!({ "form": timeline.title, "broke": broke, "says": says, "timeline": timeline })
}

/// All that was played.
pub(super) fn json(played: &[Played]) -> Result<String> {
    let one = |p: &Played| {
        let mut v = about(p.name, p.scenario);
        v["wrong"] = side(&p.wrong);
        v["right"] = side(&p.right);
        v["failures"] = json!(p.failures());
        v
    };
    let all: Vec<Value> = played.iter().map(one).collect();
    Ok(format!("{}\n", serde_json::to_string_pretty(&all)?))
}

/// A page of its own.
pub(super) fn page(played: &[Played]) -> String {
    let title = match played {
        [one] => one.scenario.title,
        _ => "BPF run-time statistics: what went wrong, and how it was put right",
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(timeline::STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                main {
                    @if let [one] = played {
                        (scenario(one, 1))
                    } @else {
                        h1 { (title) }
                        nav aria-label="Scenarios" { ul {
                            @for p in played { li { a href={ "#" (p.name) } { (p.name) } " " (p.scenario.title) } }
                        } }
                        @for p in played { article id=(p.name) { (scenario(p, 2)) } }
                    }
                }
                script { (PreEscaped(timeline::SCRIPT)) }
            }
        }
    }
    .into_string()
}

fn scenario(p: &Played, level: u8) -> Markup {
    let s = p.scenario;
    html! {
        (timeline::heading(level, s.title))
        dl.about {
            dt { "Change" } dd { (s.change.long()) }
            dt { "Cause" } dd { (s.cause) }
            dt { "Watch" } dd { (s.watch) }
        }
        @for (what, take) in [("Wrong", &p.wrong), ("Right", &p.right)] {
            (take.timeline.titled(&format!("{what}: {}", take.timeline.title)).section(level + 1))
        }
        details { summary { (s.question) } p { (s.answer) } }
    }
}

const STYLE: &str = "
.about { display: grid; grid-template-columns: auto 1fr; gap: .3rem 1rem; max-width: 60rem; }
.about dt { font-weight: 600; } .about dd { margin: 0; }
details { border: 1px solid var(--rule); border-radius: 6px; padding: .6rem .8rem; margin: 1rem 0; max-width: 60rem; }
summary { cursor: pointer; font-weight: 600; } a { color: var(--store); }
nav ul { columns: 2 26rem; padding-left: 1.2rem; } article { border-top: 2px solid var(--rule); margin-top: 2rem; }
";
