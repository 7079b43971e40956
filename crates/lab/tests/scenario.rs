//! The scenarios as a class meets them: each wrong form breaks as it says, each right form holds, twice the same.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Those that must be there.
const NAMED: &[&str] = &[
    "accounting-around-a-helper",
    "add-truncates-on-32-bit",
    "clock-returning-0",
    "coarse-clock",
    "duration-inside-the-section",
    "freplace-in-its-target",
    "guard-not-preemption-safe",
    "key-flipped-both-ways",
    "map-update-hides-an-event",
    "miss-without-recursion",
    "nmi-inside-the-section",
    "no-stats-counting-a-miss",
    "no-stats-on-detach-failure",
    "pair-of-two-moments",
    "plain-fields-torn",
    "possible-or-online",
    "reader-starved",
    "recursion-and-misses",
    "rt-preemption-6-0",
    "sleeping-program",
    "stale-start-after-skip",
    "start-here-end-there",
    "tail-call-uncounted",
    "two-tools-one-switch",
    "two-writers-on-one-sync",
    "update-not-irq-safe",
    "writer-preempted-by-its-reader",
];

fn scenario(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_progstats"))
        .arg("scenario")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn stdout(args: &[&str]) -> String {
    let out = scenario(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    assert!(out.stderr.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn refused(args: &[&str], words: &[&str]) {
    let out = scenario(args);
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!((out.status.code(), err.lines().count()), (Some(2), 1), "{args:?}: {err}");
    for word in words {
        assert!(err.contains(word), "{args:?}: {err:?} does not say {word:?}");
    }
    assert!(out.stdout.is_empty(), "{args:?}: half an answer");
}

fn played() -> Vec<Value> {
    serde_json::from_str(&stdout(&["run", "--all", "--json"])).unwrap()
}

#[test]
fn each_wrong_form_breaks_in_the_named_way_and_each_right_form_holds() {
    for s in played() {
        let name = s["name"].as_str().unwrap();
        assert_eq!(s["wrong"]["broke"], s["breaks"], "{name}");
        assert_eq!(s["right"]["broke"], Value::Null, "{name}");
        assert_eq!(s["failures"].as_array().unwrap().len(), 0, "{name}");
    }
}

#[test]
fn twice_the_same_bytes() {
    let first = stdout(&["run", "--all"]);
    for _ in 0..5 {
        assert!(first == stdout(&["run", "--all"]), "a second run differs");
    }
    assert!(stdout(&["run", "--all", "--json"]) == stdout(&["run", "--all", "--json"]));
}

#[test]
fn none_of_the_named_is_missing() {
    let list: Vec<Value> = serde_json::from_str(&stdout(&["list", "--json"])).unwrap();
    let there: Vec<_> = list.iter().map(|s| s["name"].as_str().unwrap()).collect();
    for name in NAMED {
        assert!(there.contains(name), "{name} is gone");
    }
    for name in there {
        assert!(NAMED.contains(&name), "{name} is new: name it here, so that it cannot vanish");
    }
}

#[test]
fn each_says_all_that_it_should() {
    for s in played() {
        let name = s["name"].as_str().unwrap();
        for key in ["title", "change", "cause", "watch", "question", "answer"] {
            assert!(s[key].as_str().unwrap().len() > 10, "{name}: no {key}");
        }
        assert!(s["question"].as_str().unwrap().ends_with('?'), "{name}");
        assert!(!s["change"].as_str().unwrap().contains("does not list"), "{name}");
        for side in ["wrong", "right"] {
            let rows = s[side]["timeline"]["rows"].as_array().unwrap();
            assert!(!rows.is_empty() && rows.len() <= 60, "{name}, {side}: {} rows", rows.len());
            assert!(!s[side]["says"].as_str().unwrap().is_empty(), "{name}, {side}");
        }
        assert_ne!(s["wrong"]["timeline"]["rows"], s["right"]["timeline"]["rows"], "{name}: nothing differs");
    }
}

#[test]
fn a_scenario_is_at_most_a_page() {
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scenarios")).unwrap() {
        let file = file.unwrap().path();
        let lines = std::fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= 72, "{}: {lines} lines", file.display());
    }
}

#[test]
fn eighty_columns_are_enough_and_a_pipe_has_no_colour() {
    for args in [&["list"][..], &["run", "--all"]] {
        let text = stdout(args);
        let wide: Vec<_> = text.lines().filter(|l| l.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{args:?}: {wide:#?}");
        assert!(!text.contains('\x1b'), "{args:?}");
    }
    let list = stdout(&["list"]);
    for s in played() {
        let (name, title) = (s["name"].as_str().unwrap(), s["title"].as_str().unwrap());
        assert!(list.lines().any(|l| l.contains(name) && l.ends_with(title)), "{name}: folded\n{list}");
    }
}

#[test]
fn the_answer_waits_until_it_is_asked_for() {
    let name = "duration-inside-the-section";
    let answer = "of two reads about one is inside";
    let flat = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!flat(stdout(&["run", name])).contains(answer));
    assert!(flat(stdout(&["run", name, "--answer"])).contains(answer));
}

#[test]
fn a_page_stands_alone() {
    let file = std::env::temp_dir().join(format!("scenarios-{}.html", std::process::id()));
    let written = stdout(&["run", "--all", "--html", file.to_str().unwrap()]);
    let page = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(written.is_empty() && page.len() < 1 << 20, "{} bytes", page.len());
    for outside in ["http://", "https://", "src=\"", "@import", "url("] {
        assert!(!page.contains(outside), "the page needs {outside}");
    }
    assert_eq!(page.matches("<article").count(), NAMED.len());
    assert_eq!(page.matches("<details").count(), NAMED.len());
    assert_eq!(page.matches("<h1").count(), 1);
    let unwritable = scenario(&["run", "duration-inside-the-section", "--html", "/nowhere/x.html"]);
    assert_eq!(unwritable.status.code(), Some(1));
}

#[test]
fn wrong_usage_is_one_line() {
    refused(&["run", "update-not-irq-save"], &["update-not-irq-save", "update-not-irq-safe?"]);
    refused(&["run", "xyzzy"], &["xyzzy", "scenario list"]);
    refused(&["run"], &["NAME"]);
    refused(&["run", "--all", "clock-returning-0"], &["--all"]);
    refused(&["run", "--all", "--json", "--html", "x"], &["--html"]);
    refused(&["play"], &["play"]);
}
