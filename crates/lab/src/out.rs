//! Printing: to a terminal, a file or a pipe that may be closed.

use std::io::{self, IsTerminal, Write};

use anyhow::{Context, Result};

/// Prints `text` whole, or fails.
///
/// A reader that has gone away is an error like any other: exit code 1 and one line, no panic.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("the output cannot be written")
}

/// Whether bold and colour may be used on stdout.
pub(crate) fn styled() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// `text` in bold where that may be.
pub(crate) fn bold(text: &str) -> String {
    if styled() { format!("\x1b[1m{text}\x1b[0m") } else { text.into() }
}

/// A bar of `width` cells for `value` of `max`, in eighths of a cell.
pub(crate) fn bar(value: f64, max: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let cells = if max > 0.0 { (value / max).clamp(0.0, 1.0) * width as f64 } else { 0.0 };
    let eighths = (cells * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// Folds `text` into lines of at most `width` characters.
pub(crate) fn fold(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        if column > 0 && column + 1 + word.chars().count() > width {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.chars().count();
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_value() {
        assert_eq!(bar(10.0, 10.0, 4), "████");
        assert_eq!(bar(5.0, 10.0, 4), "██");
        assert_eq!(bar(1.0, 64.0, 8), "▏");
        assert_eq!(bar(1.0, 0.0, 8), "");
        assert_eq!(bar(99.0, 10.0, 2), "██");
    }

    #[test]
    fn text_is_folded_between_words() {
        assert_eq!(fold("one two  three\nfour", 9), "one two\nthree\nfour\n");
    }
}
