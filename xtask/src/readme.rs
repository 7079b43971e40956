//! README.md shows what commands really print.
//!
//! A line `<!-- run: CMD -->` or `<!-- check: CMD -->` directly before a fenced block marked `text` says where the
//! block comes from; CMD begins with `progstats` or `cargo xtask` and is split at blanks. [`rewrite`] runs them all and
//! writes down the output. What `check` marks is the same each time and everywhere: [`check`] compares it.

use std::env;
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use xshell::{Shell, cmd};

use crate::report::{Counts, Outcome};
use crate::runner::{captured, cargo};

const README: &str = "README.md";

/// A block of the README that is a command's output.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    command: String,
    check: bool,
    /// The lines within the fences, by index: from, and to but not with.
    lines: (usize, usize),
}

/// Writes the output of all commands into the README.
///
/// # Errors
/// If a mark is not followed by a block, a command fails, or the README cannot be read or written.
pub(crate) fn rewrite(sh: &Shell, only: Option<&str>) -> Result<()> {
    let path = sh.current_dir().join(README);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {README}"))?;
    let mut blocks = blocks(&text)?;
    blocks.retain(|b| only.is_none_or(|only| b.command.contains(only)));
    ensure!(!blocks.is_empty(), "{README} names no such command");
    let mut outputs = Vec::new();
    for block in &blocks {
        println!("{}", block.command);
        outputs.push(output(sh, &block.command)?);
    }
    fs::write(&path, replaced(&text, &blocks, &outputs)).with_context(|| format!("cannot write {README}"))
}

/// Compares the blocks marked `check` with what their commands print now.
///
/// # Errors
/// If a mark is not followed by a block, or the README cannot be read.
pub(crate) fn check(sh: &Shell) -> Result<Outcome> {
    let path = sh.current_dir().join(README);
    if !path.exists() {
        return Ok(Outcome::Skipped(format!("there is no {README}")));
    }
    let text = fs::read_to_string(path)?;
    let lines: Vec<&str> = text.lines().collect();
    let mut counts = Counts::default();
    let mut failures = String::new();
    for Block { command, lines: (from, to), .. } in blocks(&text)?.into_iter().filter(|b| b.check) {
        ensure!(!is_test(&command), "{README}:{from}: this very check is part of `{command}`: mark it `run`");
        let difference = match output(sh, &command) {
            Ok(now) => diff(&lines[from..to], &now.lines().collect::<Vec<_>>()),
            Err(e) => Some(format!("{e:#}\n")),
        };
        match difference {
            None => counts.passed += 1,
            Some(difference) => {
                counts.failed += 1;
                failures += &format!("{README}:{from}: {command}\n{difference}");
            }
        }
    }
    if counts.ran() == 0 {
        return Ok(Outcome::Skipped(format!("{README} has no block marked `check`")));
    }
    if counts.failed > 0 {
        failures += "If the new output is right: cargo xtask readme\n";
    }
    Ok(Outcome::Tests { counts, output: failures })
}

/// The marked blocks of `text`.
fn blocks(text: &str) -> Result<Vec<Block>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut blocks = Vec::new();
    let mut i = 0;
    while i < lines.len() {
        let mark = mark(lines[i]);
        i += 1;
        if let Some((command, check)) = mark {
            ensure!(lines.get(i) == Some(&"```text"), "{README}:{i}: no block marked `text` follows");
            let Some(len) = lines[i + 1..].iter().position(|l| *l == "```") else {
                bail!("{README}:{}: the block has no end", i + 1);
            };
            blocks.push(Block { command: command.into(), check, lines: (i + 1, i + 1 + len) });
            i += len + 2;
        } else if lines[i - 1].starts_with("```") {
            // Marks in other blocks are text.
            i += lines[i..].iter().position(|l| *l == "```").map_or(0, |end| end + 1);
        }
    }
    Ok(blocks)
}

/// Whether `command` is a task that runs the checks of this file.
fn is_test(command: &str) -> bool {
    let task = command.split_whitespace().nth(2);
    command.starts_with("cargo") && matches!(task, Some("test" | "ci"))
}

/// The command that `line` marks a block with, and whether it is to be compared.
fn mark(line: &str) -> Option<(&str, bool)> {
    let comment = line.trim().strip_prefix("<!--")?.strip_suffix("-->")?.trim();
    let run = comment.strip_prefix("run:").map(|command| (command.trim(), false));
    run.or_else(|| comment.strip_prefix("check:").map(|command| (command.trim(), true)))
}

/// `text` with the content of `blocks` replaced by `outputs`.
fn replaced(text: &str, blocks: &[Block], outputs: &[String]) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut new = String::new();
    let mut rest = 0;
    let mut copy = |range: &[&str], output: &str| {
        new.extend(range.iter().flat_map(|line| [*line, "\n"]));
        new.push_str(output);
    };
    for (Block { lines: (from, to), .. }, output) in blocks.iter().zip(outputs) {
        copy(&lines[rest..*from], output);
        rest = *to;
    }
    copy(&lines[rest..], "");
    new
}

/// What `command` prints, without blanks at the end of lines and empty lines at its end.
fn output(sh: &Shell, command: &str) -> Result<String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let xtask = env::current_exe()?;
    let (program, args) = match words[..] {
        ["progstats", ref args @ ..] => {
            let cargo = cargo();
            let (built, output) = captured(cmd!(sh, "{cargo} build --quiet --release --bin progstats"))?;
            ensure!(built, "progstats does not build:\n{output}");
            // Beside the folder of the profile that we were built with.
            let target = xtask.parent().and_then(|profile| profile.parent()).context("where are we?")?;
            (target.join("release/progstats"), args)
        }
        ["cargo", "xtask", ref args @ ..] => (xtask, args),
        _ => bail!("`{command}` is neither `progstats` nor `cargo xtask`"),
    };
    // Help is wrapped to this width, whatever the terminal's.
    let ran = cmd!(sh, "{program} {args...}").env("COLUMNS", "100").quiet().ignore_status().output()?;
    if !ran.status.success() {
        bail!("`{command}` failed, {}:\n{}", ran.status, String::from_utf8_lossy(&ran.stderr));
    }
    let text: String =
        String::from_utf8(ran.stdout)?.lines().flat_map(|line| [line.trim_end(), "\n"]).collect();
    Ok(if text.trim().is_empty() { String::new() } else { format!("{}\n", text.trim_end()) })
}

/// How `new` differs from `old`, line by line, if it does.
fn diff(old: &[&str], new: &[&str]) -> Option<String> {
    if old == new {
        return None;
    }
    // The length of the longest common subsequence of what follows each pair of places.
    let mut common = vec![vec![0; new.len() + 1]; old.len() + 1];
    for o in (0..old.len()).rev() {
        for n in (0..new.len()).rev() {
            common[o][n] = if old[o] == new[n] {
                common[o + 1][n + 1] + 1
            } else {
                common[o + 1][n].max(common[o][n + 1])
            };
        }
    }
    let mut text = String::new();
    let (mut o, mut n) = (0, 0);
    while o < old.len() || n < new.len() {
        let line = if o < old.len() && n < new.len() && old[o] == new[n] {
            (o, n) = (o + 1, n + 1);
            format!("  {}", old[o - 1])
        } else if n == new.len() || (o < old.len() && common[o + 1][n] >= common[o][n + 1]) {
            o += 1;
            format!("- {}", old[o - 1])
        } else {
            n += 1;
            format!("+ {}", new[n - 1])
        };
        text += line.trim_end();
        text.push('\n');
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# T\n<!-- check: cargo xtask help -->\n```text\na\nb\n```\n<!-- other -->\n```text\n\
                        <!-- run: no -->\n```\n<!-- run: progstats seed -->\n```text\n```\nend\n";

    #[test]
    fn marked_blocks() {
        let expected = [("cargo xtask help", true, (3, 5)), ("progstats seed", false, (12, 12))];
        let expected =
            expected.map(|(command, check, lines)| Block { command: command.into(), check, lines });
        assert_eq!(blocks(TEXT).unwrap(), expected);
    }

    #[test]
    fn marks_without_a_block() {
        for bad in
            ["<!-- run: a -->\n", "<!-- run: a -->\n\n```text\n```\n", "<!-- check: a -->\n```text\nb\n"]
        {
            assert!(blocks(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn output_replaces_content() {
        let new = replaced(TEXT, &blocks(TEXT).unwrap(), &["c\n".into(), "d\ne\n".into()]);
        assert_eq!(
            new,
            TEXT.replace("a\nb\n", "c\n").replace("seed -->\n```text\n", "seed -->\n```text\nd\ne\n")
        );
    }

    #[test]
    fn other_commands_are_refused() {
        assert!(output(&Shell::new().unwrap(), "rm -r x").is_err());
    }

    #[test]
    fn a_check_does_not_run_itself() {
        assert!(is_test("cargo xtask test") && is_test("cargo  xtask ci"));
        assert!(!is_test("cargo xtask help test") && !is_test("progstats run test"));
    }

    #[test]
    fn differences() {
        assert_eq!(diff(&["a", "b"], &["a", "b"]), None);
        assert_eq!(diff(&["a", "b", "d"], &["a", "c", "d"]).unwrap(), "  a\n- b\n+ c\n  d\n");
        assert_eq!(diff(&[], &["a"]).unwrap(), "+ a\n");
    }
}
