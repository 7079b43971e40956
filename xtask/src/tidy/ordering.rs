//! Memory orderings carry their reason, and the partner that a reason names is there and names it back.
//!
//! The form: a comment that begins with `ORDERING`, as in
//! `// ORDERING: Release; pairs with the load in `seqcount::read_retry`; keeps new data from showing early.`
//! - "pairs with" names one or more functions in backticks, before the next `;`, `:` or `.`, parentheses aside:
//!   `function`, `module::function` or `Type::function`. Each must exist and hold an `ORDERING` comment that names the
//!   first one's function back.
//! - "pairs with none: REASON" has no partner; an ordering with just a reason says nothing of pairs.
//! - A comment belongs to the innermost function around it, or else to the next one.
//! - Older and newer forms (`history`, `later`) name their partner in the shipped code, which does not name them back.
//! - "rule N of" and a module points to an argument that the module makes for several places at once: a partner named
//!   beside it exists, but need not name back.

use super::{File, Finding, crate_of, is_rust};
use crate::source::{Source, line_of, words};

/// The crates whose orderings are the kernel's, or hold the simulated machine together.
const CRATES: &[&str] = &["percpu", "stats", "jump_label", "filter", "trampoline"];

/// How far above its ordering a comment may begin.
const REACH: usize = 6;

/// Each ordering stronger than Relaxed and each fence has a comment that says why.
pub(super) fn has_reason(path: &str, text: &str) -> Vec<Finding> {
    if !is_rust(path) || !path.contains("/src/") || !crate_of(path).is_some_and(|c| CRATES.contains(&c)) {
        return Vec::new();
    }
    let source = Source::new(text);
    let comments: Vec<&str> = source.comments.lines().collect();
    let tests = source.test_lines();
    let mut findings = Vec::new();
    for (at, what) in strong(&source.code) {
        let line = line_of(&source.code, at);
        let reasons = &comments[line.saturating_sub(REACH)..=line];
        if !tests[line] && !reasons.iter().any(|c| is_reason(c)) {
            findings.push(Finding::at(
                path,
                line,
                format!("{what} without `// ORDERING:` or `// rule N of`"),
            ));
        }
    }
    findings
}

/// The orderings stronger than Relaxed and the fences that `code` uses, and where.
pub(crate) fn strong(code: &str) -> Vec<(usize, &str)> {
    const ORDERINGS: &[&str] = &["Acquire", "Release", "AcqRel", "SeqCst"];
    const FENCES: &[&str] = &["smp_wmb", "smp_rmb", "smp_mb", "fence"];
    let mut found = Vec::new();
    let mut in_use = false;
    let mut last = 0;
    for (at, word) in words(code) {
        in_use = (in_use && !code[last..at].contains(';')) || (word == "use" && is_statement(&code[..at]));
        last = at;
        let before = code[..at].trim_end();
        let value =
            before.ends_with("Ordering::") || before.ends_with(['(', ',', '=']) || before.ends_with("=>");
        let call = code[at + word.len()..].starts_with('(') && !before.ends_with("fn");
        if !in_use && ((ORDERINGS.contains(&word) && value) || (FENCES.contains(&word) && call)) {
            found.push((at, word));
        }
    }
    found
}

/// The words of the comment that says why an ordering on `line` (from 0) is as it is.
pub(crate) fn reason(source: &Source, line: usize) -> Option<String> {
    let comments: Vec<&str> = source.comments.lines().collect();
    let first = (line.saturating_sub(REACH)..=line).rev().find(|&l| is_reason(comments[l]))?;
    let words = comments[first..=line].iter().map(|c| c.trim().trim_start_matches('/').trim());
    let text = words.filter(|c| !c.is_empty()).collect::<Vec<_>>().join(" ");
    Some(
        text.split_once("ORDERING")
            .map_or(text.as_str(), |(_, why)| why.split_once(':').map_or(why, |w| w.1))
            .trim()
            .to_owned(),
    )
}

/// Whether a word after `before` begins a statement or follows a visibility.
fn is_statement(before: &str) -> bool {
    let before = before.trim_end();
    before.is_empty() || before.ends_with([';', '{', '}', ']', ')']) || before.ends_with("pub")
}

/// Whether a comment gives a reason for an ordering: `ORDERING`, or `rule 2 of`.
fn is_reason(comment: &str) -> bool {
    words(comment).any(|(_, w)| w == "ORDERING") || cites_rule(comment)
}

/// Whether a comment points to `rule 2 of` a module's argument.
fn cites_rule(comment: &str) -> bool {
    let words: Vec<&str> = words(comment).map(|(_, w)| w).collect();
    words.windows(3).any(|w| w[0] == "rule" && w[1].parse::<u32>().is_ok() && w[2] == "of")
}

/// A file with its functions.
struct Rust<'a> {
    path: &'a str,
    source: Source,
    functions: Vec<Function>,
}

/// A function and its first and last line, by index.
struct Function {
    name: String,
    lines: (usize, usize),
}

/// One "pairs with" of an `ORDERING` comment, and where it is.
struct Pairing<'a> {
    rust: &'a Rust<'a>,
    function: Option<&'a str>,
    said: Said,
}

/// What one "pairs with" says.
struct Said {
    line: usize,
    partners: Vec<String>,
    by_rule: bool,
}

/// What an `ORDERING` comment pairs with is a function of the workspace whose own comment names it back.
pub(super) fn pairs(files: &[File]) -> Vec<Finding> {
    let rust: Vec<Rust<'_>> = files.iter().filter(|f| is_rust(&f.path)).map(Rust::new).collect();
    let pairings: Vec<Pairing<'_>> = rust.iter().flat_map(Rust::pairings).collect();
    let at = |p: &Pairing<'_>, what| Finding::at(p.rust.path, p.said.line, what);
    pairings.iter().flat_map(|p| p.faults(&rust, &pairings).into_iter().map(|what| at(p, what))).collect()
}

impl<'a> Rust<'a> {
    fn new(file: &'a File) -> Rust<'a> {
        let source = Source::new(&file.text);
        let functions = functions(&source.code);
        Rust { path: &file.path, source, functions }
    }

    fn pairings(&self) -> Vec<Pairing<'_>> {
        let said = said(&self.source.comments).into_iter();
        said.map(|said| Pairing { rust: self, function: self.function_at(said.line), said }).collect()
    }

    /// The innermost function around `line`, or else the one that follows, which the comment stands before.
    fn function_at(&self, line: usize) -> Option<&str> {
        let around = self.functions.iter().filter(|f| (f.lines.0..=f.lines.1).contains(&line));
        let innermost = around.min_by_key(|f| f.lines.1 - f.lines.0);
        let next = || self.functions.iter().find(|f| f.lines.0 > line);
        innermost.or_else(next).map(|f| f.name.as_str())
    }

    /// Whether `name` (`function`, `module::function` or `Type::function`) can mean `function` of this file.
    fn is_named(&self, name: &str, function: &str) -> bool {
        let mut parts = name.trim_end_matches("()").rsplit("::");
        let within = |of: &str| {
            self.path.trim_end_matches(".rs").split('/').any(|part| part == of)
                || words(&self.source.code).any(|(_, w)| w == of)
        };
        parts.next() == Some(function) && parts.next().is_none_or(within)
    }

    /// Whether it holds older or newer forms than the shipped one, which does not know them.
    fn is_beside(&self) -> bool {
        self.path.trim_end_matches(".rs").split('/').any(|part| part == "history" || part == "later")
    }
}

impl Pairing<'_> {
    /// What is wrong with it.
    fn faults(&self, rust: &[Rust<'_>], pairings: &[Pairing<'_>]) -> Vec<String> {
        if self.said.partners.is_empty() {
            return vec!["pairs with nobody: name the function in backticks, or `none: REASON`".into()];
        }
        let one_sided = self.said.by_rule || self.rust.is_beside();
        let fault = |partner: &String| {
            let exists = rust.iter().any(|r| r.functions.iter().any(|f| r.is_named(partner, &f.name)));
            if !exists {
                return Some(format!("pairs with `{partner}`, which is no function here"));
            }
            let here = self.function.filter(|_| !one_sided)?;
            let mut shipped = pairings.iter().filter(|other| !other.rust.is_beside());
            let back = shipped.any(|other| other.is_in(partner) && other.names(self.rust, here));
            (!back).then(|| format!("pairs with `{partner}`, where no ORDERING comment names `{here}` back"))
        };
        self.said.partners.iter().filter_map(fault).collect()
    }

    /// Whether it stands in what `name` can mean.
    fn is_in(&self, name: &str) -> bool {
        self.function.is_some_and(|function| self.rust.is_named(name, function))
    }

    /// Whether it can mean `function` of `rust`.
    fn names(&self, rust: &Rust<'_>, function: &str) -> bool {
        self.said.partners.iter().any(|partner| rust.is_named(partner, function))
    }
}

/// The functions of `code` that have a body.
fn functions(code: &str) -> Vec<Function> {
    let names = words(code).zip(words(code).skip(1)).filter(|((_, keyword), _)| *keyword == "fn");
    let with_body = names.filter_map(|(_, (at, name))| {
        let end = at + body_len(&code[at..])?;
        Some(Function { name: name.into(), lines: (line_of(code, at), line_of(code, end)) })
    });
    with_body.collect()
}

/// The length of a function from its name to the end of its body, if it has one.
fn body_len(code: &str) -> Option<usize> {
    let (mut braces, mut others) = (0, 0);
    for (i, c) in code.char_indices() {
        match c {
            '(' | '[' => others += 1,
            ')' | ']' => others -= 1,
            '{' => braces += 1,
            '}' if braces == 1 => return Some(i),
            '}' => braces -= 1,
            ';' if braces == 0 && others == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Whether a comment begins with `ORDERING`.
fn is_marked(comment: &str) -> bool {
    comment.trim_start().trim_start_matches(['/', '!']).trim_start().starts_with("ORDERING")
}

/// Each "pairs with" of the `ORDERING` comments, but for those with none and a reason.
fn said(comments: &str) -> Vec<Said> {
    let lines: Vec<&str> = comments.lines().collect();
    let is_comment = |l: &&str| l.trim_start().starts_with("//");
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        if !is_marked(line) {
            continue;
        }
        // The comment, up to the next that is marked.
        let more = lines[start + 1..].iter().take_while(|l| is_comment(l) && !is_marked(l));
        let mut text = line.trim().to_string();
        let mut ends = vec![text.len()];
        for line in more {
            text.push(' ');
            text.push_str(line.trim().trim_start_matches(['/', '!']).trim_start());
            ends.push(text.len());
        }
        for (at, said) in text.match_indices("pairs with") {
            let line = start + ends.iter().take_while(|&&end| end <= at).count();
            let rest = text[at + said.len()..].split("pairs with").next().unwrap_or_default();
            let reason = rest.trim_start().strip_prefix("none:");
            if reason.is_none_or(|reason| reason.trim().is_empty()) {
                found.push(Said { line, partners: names(rest), by_rule: cites_rule(&text) });
            }
        }
    }
    found
}

/// The functions in backticks at the beginning of `text`: up to the end of the clause, without what stands in parentheses.
fn names(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut depth = 0;
    for (i, part) in text.split('`').enumerate() {
        let is_name = i % 2 == 1;
        if is_name && depth == 0 {
            // A capital: a type that a function is said to be of.
            let last = part.rsplit("::").next().unwrap_or(part);
            names.extend((!last.starts_with(char::is_uppercase)).then(|| part.to_string()));
        }
        for c in part.chars().filter(|_| !is_name) {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                ';' | ':' | '.' if depth == 0 => return names,
                _ => {}
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    const PATH: &str = "crates/stats/src/a.rs";

    fn reason(text: &str) -> Vec<usize> {
        has_reason(PATH, text).iter().map(|f| f.line).collect()
    }

    #[test]
    fn strong_orderings_need_a_reason() {
        assert_eq!(reason("a.load(Acquire);\n"), [1]);
        assert_eq!(reason("a\n    .swap(\n        1,\n        Ordering::AcqRel,\n    );\n"), [4]);
        assert_eq!(reason("let order = SeqCst;\nb(match x { 1 => Release, _ => Relaxed });\n"), [1, 2]);
        assert_eq!(reason("smp_wmb();\nbarrier::smp_rmb();\nfence(Ordering::Relaxed);\n"), [1, 2, 3]);
        assert_eq!(reason("// Why not.\na.store(0, Release);\n"), [2]);
    }

    #[test]
    fn a_reason_near_is_enough() {
        assert!(reason("// ORDERING: Acquire; pairs with `b`.\na.load(Acquire);\n").is_empty());
        assert!(reason("// ORDERING (host): pairs with `b`.\na.load(Acquire);\n").is_empty());
        assert!(reason("a.load(SeqCst); // rule 2 of `irq`\n").is_empty());
        assert!(reason("// ORDERING: why.\n\n\n\n\n\nsmp_rmb();\n").is_empty());
        assert_eq!(reason("// ORDERING: why.\n\n\n\n\n\n\nsmp_rmb();\n"), [8]);
        assert_eq!(reason("let s = \"ORDERING\";\nsmp_rmb();\n"), [2]);
    }

    #[test]
    fn no_ordering_no_reason() {
        assert!(reason("a.load(Relaxed); // Acquire would do\n").is_empty());
        assert_eq!(
            reason("use x::Ordering::{\n    Acquire, Release,\n};\npub(crate) use y::{A, SeqCst};\n"),
            [0_usize; 0]
        );
        assert!(reason("pub fn smp_wmb() {}\nstruct Acquire;\nimpl Read for Acquire {}\n").is_empty());
        assert!(reason("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { fence(SeqCst) }\n}\n").is_empty());
        assert!(has_reason("crates/sync/src/a.rs", "fence(SeqCst);\n").is_empty());
        assert!(has_reason("crates/stats/tests/a.rs", "fence(SeqCst);\n").is_empty());
    }

    /// The lines with findings if function `a` holds `comment` and `Line::handle` in another file holds `back`.
    fn paired(comment: &str, back: &str) -> Vec<usize> {
        let files = tree(&[
            (PATH, &format!("//! A.\nfn a() {{\n{comment}\n}}\nfn b();\n")),
            (
                "crates/percpu/src/irq.rs",
                &format!("impl Line {{\nfn handle() {{\n{back}\n}}\n}}\n// fn gone() {{}}\n"),
            ),
        ]);
        pairs(&files).iter().filter(|f| f.path == PATH).map(|f| f.line).collect()
    }

    const BACK: &str = "// ORDERING: Acquire; pairs with the store in `a`.";

    #[test]
    fn partners_name_each_other() {
        for name in ["handle", "irq::handle", "Line::handle", "percpu::irq::handle", "handle()"] {
            assert_eq!(
                paired(&format!("// ORDERING: Release; pairs with the load in `{name}`; so."), BACK),
                [0_usize; 0],
                "{name}"
            );
        }
        assert!(paired("// ORDERING (host): this and\n// that; pairs with\n// `handle`.", BACK).is_empty());
        assert!(paired("fence(Release); // ORDERING: pairs with `handle`.", BACK).is_empty());
        assert!(paired("// ORDERING: pairs with `a` itself.", "").is_empty());
    }

    #[test]
    fn no_partner_needed() {
        assert!(paired("// This pairs with `gone`.\n// And an ORDERING pairs with `gone`.", "").is_empty());
        assert!(paired("// ORDERING: Relaxed; nobody else looks.", "").is_empty());
        assert!(paired("// ORDERING: Relaxed; pairs with none: only\n// a hint.", "").is_empty());
    }

    #[test]
    fn partners_that_do_not_exist() {
        for name in ["gone", "b", "irq::a", "Other::handle"] {
            assert_eq!(paired(&format!("// ORDERING: pairs with `{name}`."), BACK), [3], "{name}");
        }
        for nobody in ["the load.", "none.", "none:"] {
            assert_eq!(paired(&format!("// ORDERING: Release; pairs with {nobody}"), ""), [3], "{nobody}");
        }
        assert_eq!(paired("// ORDERING: pairs with `handle`,\n// also pairs with `gone`.", BACK), [4]);
        assert_eq!(paired("// ORDERING: pairs with `handle`;\n// also pairs with `gone`.", BACK), [4]);
        assert_eq!(paired("// ORDERING: pairs with `handle` and `gone`.", BACK), [3]);
    }

    #[test]
    fn lists_of_partners() {
        let listed = |text| names(text).join(" ");
        assert_eq!(listed(" the load in `a`, `b::c` (not `d`) and `e()`: as `f`"), "a b::c e()");
        assert_eq!(listed(" `drop` of `Down`; so"), "drop");
        assert_eq!(listed(" the load; `a`"), "");
    }

    #[test]
    fn a_rule_stands_for_the_way_back() {
        assert!(paired("// ORDERING: rule 2 of `irq`, pairs with `handle`.", "").is_empty());
        assert_eq!(paired("// ORDERING: rule 2 of `irq`, pairs with `gone`.", ""), [3]);
    }

    #[test]
    fn partners_that_do_not_name_back() {
        let comment = "// ORDERING: Release; pairs with `handle`.";
        for back in ["", "// Pairs with `a`.", "// ORDERING: why.", "// ORDERING: pairs with `handle`."] {
            assert_eq!(paired(comment, back), [3], "{back}");
        }
        let later = ("crates/a/src/later.rs", "fn handle() {\n// ORDERING: pairs with `a`.\n}\n");
        let one = (PATH, "fn a() {\n// ORDERING: pairs with `handle`.\n}\n");
        let other = ("crates/a/src/lib.rs", "fn handle() {}\n");
        assert_eq!(pairs(&tree(&[one, other, later])).len(), 1, "later forms do not count");
        let alone =
            |path| pairs(&tree(&[(path, "fn a() {\n// ORDERING: pairs with `b`.\n}\nfn b() {}\n")])).len();
        assert_eq!(alone("crates/a/src/lib.rs"), 1);
        assert_eq!(alone("crates/a/src/later.rs"), 0);
        assert_eq!(alone("crates/a/src/history/before.rs"), 0);
    }

    #[test]
    fn a_comment_belongs_to_the_function_around_it() {
        let code = "// x\nfn a(b: [u8; 2]) {\n    fn c() {\n    }\n\n}\nfn d();\nfn e() {}\n";
        let file = File { path: PATH.into(), text: code.into() };
        let rust = Rust::new(&file);
        let at = [0, 3, 4, 6, 7].map(|line| rust.function_at(line));
        assert_eq!(at, [Some("a"), Some("c"), Some("a"), Some("e"), Some("e")]);
    }
}
