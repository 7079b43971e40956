//! A timeline as a page of its own: no network, light and dark, keys to step through it, and it prints.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::{Row, Timeline, What, number};

/// The style of [`Timeline::section`].
pub const STYLE: &str = include_str!("page.css");
/// What lets keys step through each [`Timeline::section`] of a page.
pub const SCRIPT: &str = include_str!("page.js");

impl Timeline {
    /// As an HTML page.
    ///
    /// Without scripts, and on paper, it is a table with each row's line of source; with them the arrow keys step through
    /// the rows, with the source and what memory holds beside.
    pub fn page(&self) -> String {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    main { (self.section(1)) }
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        }
        .into_string()
    }

    /// The part of a page that shows this timeline, under a heading of `level` 1 to 6.
    pub fn section(&self, level: u8) -> Markup {
        html! {
            section.timeline {
                (heading(level, &self.title))
                p.keys { kbd { "↓" } " " kbd { "↑" } " step, " kbd { "Home" } " " kbd { "End" } " first and last" }
                div.panes {
                    div.scroll tabindex="0" role="region" aria-label="Operations" { (self.table()) }
                    aside aria-label="At the chosen row" {
                        (heading(level + 1, "Source"))
                        p.place {}
                        @for (file, lines) in &self.sources {
                            pre data-file=(file) hidden {
                                @for (n, text) in lines {
                                    span.line data-line=(n) { span.n { (format!("{n:>4}")) } " " (text) "\n" }
                                }
                            }
                        }
                        (heading(level + 1, "Memory"))
                        p.note { "the newest value of each word, after this row" }
                        dl.memory {}
                    }
                }
                p.verdict.holds[self.holds] role="status" { (self.verdict) }
            }
        }
    }

    fn table(&self) -> Markup {
        let timed = self.rows.iter().any(|r| r.ns.is_some());
        html! {
            table {
                caption { (self.rows.len()) " operations, first to last; a column for each CPU, thread or interrupt" }
                thead { tr {
                    th scope="col" { @if timed { "ns" } @else { "#" } }
                    @for lane in &self.lanes { th scope="col" { (lane) } }
                    th scope="col" { "source" }
                } }
                tbody { @for (i, row) in self.rows.iter().enumerate() { (self.row(i, row, timed)) } }
            }
        }
    }

    fn row(&self, i: usize, row: &Row, timed: bool) -> Markup {
        let file = row.source.as_ref().map(|s| s.file.as_str());
        let line = row.source.as_ref().map(|s| s.line);
        let stored = match &row.what {
            What::Store { object, value, .. } => Some((object, number(*value))),
            _ => None,
        };
        html! {
            tr data-file=[file] data-line=[line] data-object=[stored.as_ref().map(|s| s.0)]
                data-value=[stored.as_ref().map(|s| &s.1)] {
                th scope="row" {
                    @if !timed { (i + 1) } @else if let Some(ns) = row.ns { (ns) }
                }
                @for lane in 0..self.lanes.len() {
                    @if lane == row.lane {
                        td class=(kind(&row.what)) { (row.what) }
                    } @else {
                        td {}
                    }
                }
                td.source {
                    @if let Some(source) = &row.source {
                        span { (source.file.rsplit('/').next().unwrap_or_default()) ":" (source.line) }
                        @if let Some(line) = self.line(source) { code { (line) } }
                    }
                }
            }
        }
    }
}

/// A heading of `level` 1 to 6.
pub fn heading(level: u8, text: &str) -> Markup {
    let level = level.clamp(1, 6);
    html! { (PreEscaped(format!("<h{level}>"))) (text) (PreEscaped(format!("</h{level}>"))) }
}

fn kind(what: &What) -> &'static str {
    match what {
        What::Load { newest: Some(_), .. } => "op old",
        What::Load { .. } => "op load",
        What::Store { .. } => "op store",
        What::Fence { .. } => "op fence",
        What::Note { .. } => "op remark",
    }
}
