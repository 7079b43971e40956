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

/// The first generated program's seed, where it is not to be chance.
const SEED: &str = "PROGSTATS_SEED";

#[test]
fn all_facts_are_the_same() {
    const PROGRAMS: u64 = 2000;
    let seed = std::env::var(SEED).ok().map(|s| s.parse::<u64>().expect("a number"));
    let seed = seed.unwrap_or_else(|| fastrand::u64(..)).to_string();
    println!("{SEED}={seed}");
    let out = progstats(&["oracle", "--json", "--programs", &PROGRAMS.to_string(), "--seed", &seed]);
    let out = { out }.output().unwrap();
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
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let generated = &report["generated"];
    assert_eq!(generated["accepted"].as_u64(), Some(PROGRAMS), "{generated}");
    // A verifier that refuses what is generated would leave little to compare.
    let refused: u64 = generated["refused"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert!(refused <= PROGRAMS / 20, "{}", generated["refused"]);
    for opcode in generated["opcodes"].as_array().unwrap() {
        assert!(opcode[1].as_u64().unwrap() >= 100, "too rare among the accepted programs: {opcode}");
    }
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
fn a_seed_is_the_same_program_again() {
    let run =
        || progstats(&["oracle", "generated", "--programs", "3", "--seed", "7", "--json"]).output().unwrap();
    let (first, second) = (run(), run());
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    assert_eq!(String::from_utf8_lossy(&first.stdout), String::from_utf8_lossy(&second.stdout));
}

#[test]
fn a_filter_that_fits_nothing_is_wrong_usage() {
    let out = progstats(&["oracle", "nonsense"]).output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!((out.status.code(), err.lines().count()), (Some(2), 1), "{err}");
    assert!(err.contains("nonsense") && err.contains("BPF_ENABLE_STATS"), "{err}");
    assert!(out.stdout.is_empty());
}
