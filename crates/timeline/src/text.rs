//! A timeline in a terminal.

use std::fmt::Write as _;

use crate::{Row, Timeline};

/// What a lane needs to be readable.
const NARROWEST: usize = 14;
/// More than this a lane does not need.
const WIDEST: usize = 40;
/// More than this of a source's name is not shown.
const LONGEST_PLACE: usize = 17;

impl Timeline {
    /// As text of `width` columns: a column a lane, a row an operation, what came of it last.
    ///
    /// Where the lanes do not fit beside each other, each row names its lane instead. `colour` marks
    /// old reads and the verdict.
    pub fn text(&self, width: usize, colour: bool) -> String {
        let mut out = format!("{}\n\n", self.title);
        let source_width = self.rows.iter().map(|r| place(r).chars().count()).max().unwrap_or(0);
        let number_width = self.number(0, None).len();
        let lanes = self.lanes.len().max(1);
        let left = width.saturating_sub(number_width + source_width);
        let lane_width = (left / lanes).saturating_sub(3).min(WIDEST);
        if lane_width < NARROWEST {
            return out + &self.one_column(width, colour);
        }
        let mut header = " ".repeat(number_width);
        for lane in &self.lanes {
            let _ = write!(header, "| {lane:<lane_width$.lane_width$} ");
        }
        let rule: String = header.chars().map(|c| if c == '|' { '+' } else { '-' }).collect();
        let _ = writeln!(out, "{}\n{rule}", header.trim_end());
        for (i, row) in self.rows.iter().enumerate() {
            let text = row.what.to_string();
            for (n, part) in textwrap::wrap(&text, lane_width).iter().enumerate() {
                let mut line = if n == 0 { self.number(i, Some(row)) } else { " ".repeat(number_width) };
                for lane in 0..self.lanes.len() {
                    let cell = if lane == row.lane { part } else { "" };
                    let padding = lane_width.saturating_sub(cell.chars().count());
                    let _ = write!(line, "| {}{} ", mark(cell, row, colour), " ".repeat(padding));
                }
                if n == 0 {
                    let _ = write!(line, "{}", place(row));
                }
                let _ = writeln!(out, "{}", line.trim_end());
            }
        }
        out + &self.ending(width, colour)
    }

    fn one_column(&self, width: usize, colour: bool) -> String {
        let mut out = String::new();
        for (i, row) in self.rows.iter().enumerate() {
            let head = format!("{}{}: ", self.number(i, Some(row)), self.lanes[row.lane]);
            let options =
                textwrap::Options::new(width.max(20)).initial_indent(&head).subsequent_indent("      ");
            let text = format!("{}  {}", row.what, place(row));
            for line in textwrap::wrap(text.trim_end(), options) {
                let _ = writeln!(out, "{}", mark(&line, row, colour));
            }
        }
        out + &self.ending(width, colour)
    }

    /// A row's time, or its number where nothing has a time; blanks of the same width for no row.
    fn number(&self, i: usize, row: Option<&Row>) -> String {
        let width = self.rows.iter().filter_map(|r| r.ns).max().map(|ns| ns.to_string().len().max(6));
        match (width, row.and_then(|r| r.ns)) {
            (Some(width), Some(ns)) => format!("{ns:>width$} ns "),
            (Some(width), None) => " ".repeat(width + 4),
            (None, _) => row.map_or(" ".repeat(4), |_| format!("{:>3} ", i + 1)),
        }
    }

    fn ending(&self, width: usize, colour: bool) -> String {
        let (on, off) = match (colour, self.holds) {
            (false, _) => ("", ""),
            (true, false) => ("\x1b[1;31m", "\x1b[0m"),
            (true, true) => ("\x1b[1;32m", "\x1b[0m"),
        };
        let mut out = String::from("\n");
        for line in textwrap::wrap(&self.verdict, width.max(20)) {
            let _ = writeln!(out, "{on}{line}{off}");
        }
        out
    }
}

/// The file's own name and the line; of a long one its end.
fn place(row: &Row) -> String {
    let Some(source) = &row.source else { return String::new() };
    let place = format!("{}:{}", source.file.rsplit('/').next().unwrap_or_default(), source.line);
    match place.char_indices().nth_back(LONGEST_PLACE - 1) {
        Some((at, _)) if at > 0 => format!("…{}", &place[at..]),
        _ => place,
    }
}

fn mark(cell: &str, row: &Row, colour: bool) -> String {
    if colour && row.what.is_stale() && !cell.is_empty() {
        format!("\x1b[33m{cell}\x1b[0m")
    } else {
        cell.to_owned()
    }
}
