//! The results as a table of at most 80 columns.

use std::fmt::Write as _;

use crate::harness::Group;
use crate::host::Host;
use crate::targets::Target;

/// All of it.
pub(crate) fn table(host: &Host, groups: &[Group], targets: &[Target], notes: &[String]) -> String {
    let mut t = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(t, "{}", host.line());
    for group in groups {
        let _ = writeln!(t, "\n{} ({} rounds)", group.title, group.rounds);
        let _ = writeln!(t, "  {:<42}{:>9}{:>9}{:>9}{:>6}", "", "min", "median", "±", "instr");
        for row in &group.rows {
            let (min, median, spread) = (time(row.ns.min), time(row.ns.median), time(row.ns.spread()));
            let instructions = row.instructions.map_or("-".into(), |n| format!("{n:.0}"));
            let _ = writeln!(t, "  {:<42}{min:>9}{median:>9}{spread:>9}{instructions:>6}", row.name);
        }
    }
    let measured: Vec<_> = targets.iter().filter(|t| t.met.is_some()).collect();
    if !measured.is_empty() {
        let _ = writeln!(t, "\n{:<52}{:>8}{:>13}", "Targets", "", "measured");
        for target in measured {
            t += &line(target);
        }
    }
    for note in notes {
        let _ = writeln!(t, "\nnot measured: {note}");
    }
    t += "\nVariants of a group took turns in one run. Half of the turns lie within ± of the\n\
          median. Other work on the host makes turns longer, never shorter: where min and\n\
          median are far apart, or ± is large, it was there. Factors and differences are\n\
          medians over rounds. instr: of one iteration with its loop, by callgrind.\n";
    t
}

fn line(target: &Target) -> String {
    let Target { what, goal, measured, unit, met, why } = target;
    let measured = match (measured, *unit) {
        (None, _) => "-".into(),
        (Some(m), "instr") => format!("{m:+.0} {unit}"),
        (Some(m), "ns") => format!("{m:+.2} {unit}"),
        (Some(m), _) => format!("{m:.2} {unit}"),
    };
    let verdict = if *met == Some(true) { "met" } else { "NOT MET" };
    let mut line = format!("  {what:<50}{goal:>8}{measured:>13} {verdict}\n");
    if *met == Some(false) && !why.is_empty() {
        line += &fold(&format!("because {why}"));
    }
    line
}

/// Folded between words and indented.
fn fold(text: &str) -> String {
    let mut out = String::from("   ");
    let mut column = 3;
    for word in text.split_whitespace() {
        if column + 1 + word.chars().count() > 78 {
            out += "\n   ";
            column = 3;
        }
        out += " ";
        out += word;
        column += 1 + word.chars().count();
    }
    out + "\n"
}

/// ns, us or ms, three or four digits.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.2}ns"),
        ns if ns < 1e6 => format!("{:.1}us", ns / 1e3),
        ns => format!("{:.1}ms", ns / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Row, Summary};

    #[test]
    fn lines_fit_and_a_missed_target_says_why() {
        let host =
            Host { cpu: "a CPU".into(), cores: 2, kernel: "6.6".into(), rustc: "rustc 1.95.0 (x)".into() };
        let row = Row {
            name: "32-bit: mask + seqcount + two words".into(),
            ns: Summary::of(&[999.99, 1e6]),
            instructions: Some(123.0),
            samples: Vec::new(),
        };
        let groups = [Group { name: "g", title: "A group", rounds: 7, rows: vec![row] }];
        let targets = [Target {
            what: "32-bit update, 2 CPUs, faster than AtomicCell<(u64, u64)>".into(),
            goal: ">= 4".into(),
            measured: Some(3.0),
            unit: "x",
            met: Some(false),
            why: "a reason that is long enough to be folded, since it has more words than fit on one line of it",
        }];
        let table = table(&host, &groups, &targets, &["flips: a reason".into()]);
        let long: Vec<_> = table.lines().filter(|l| l.chars().count() > 80).collect();
        assert!(long.iter().all(|l| l.contains("AtomicCell")), "{long:?}");
        assert!(table.contains("NOT MET\n    because a reason"), "{table}");
        assert!(table.contains("not measured: flips: a reason"));
    }

    #[test]
    fn units() {
        assert_eq!([0.5, 1500.0, 2.5e6].map(time), ["0.50ns", "1.5us", "2.5ms"]);
    }
}
