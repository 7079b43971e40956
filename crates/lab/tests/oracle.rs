//! `progstats oracle`: all facts are the same here, none is lost, and who may not ask is told why.
#![cfg(target_os = "linux")]

mod kernel;

use kernel::{progstats, without_rights};
use serde_json::Value;

fn facts(json: &[u8]) -> Vec<Value> {
    let report: Value = serde_json::from_slice(json).expect("a whole report");
    report["facts"].as_array().unwrap().clone()
}

fn all(facts: &[Value], verdict: &str) -> Vec<String> {
    let of = |f: &&Value| f["verdict"] == verdict;
    let name = |f: &Value| format!("{}: {}", f["family"].as_str().unwrap(), f["name"].as_str().unwrap());
    facts.iter().filter(of).map(name).collect()
}

#[test]
fn all_facts_are_the_same() {
    let out = progstats(&["oracle", "--json"]).output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{err}{}", String::from_utf8_lossy(&out.stdout));
    let facts = facts(&out.stdout);
    let cannot = all(&facts, "cannot_ask");
    if let Some(why) = facts.iter().find_map(|f| f["why"].as_str())
        && cannot.len() == facts.len()
    {
        host::expect::skipped(why);
        return;
    }
    assert_eq!(all(&facts, "differs"), [""; 0]);
    assert_eq!(cannot.len() + all(&facts, "same").len(), facts.len());
    println!("{} facts are the same; cannot be asked here: {cannot:#?}", facts.len() - cannot.len());
}

#[test]
fn without_rights_each_fact_says_why_it_cannot_be_asked() {
    let out = without_rights(progstats(&["oracle"]));
    let (text, err) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && err.is_empty(), "{err}");
    assert!(text.lines().all(|l| l.chars().count() < 80), "80 columns are enough:\n{text}");
    assert!(text.contains("not privileged") && text.contains("0 differ"), "{text}");
    for words in ["cannot be asked here:", "CAP_SYS_ADMIN", "run as root"] {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
    let out = without_rights(progstats(&["oracle", "--json", "keeps"]));
    let facts = facts(&out.stdout);
    assert_eq!(all(&facts, "cannot_ask").len(), facts.len());
    assert!(facts.iter().all(|f| !f["simulation"].as_str().unwrap().is_empty() && f["lost"] == false));
}

#[test]
fn a_filter_that_fits_nothing_is_wrong_usage() {
    let out = progstats(&["oracle", "nonsense"]).output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!((out.status.code(), err.lines().count()), (Some(2), 1), "{err}");
    assert!(err.contains("nonsense") && err.contains("BPF_ENABLE_STATS"), "{err}");
    assert!(out.stdout.is_empty());
}
