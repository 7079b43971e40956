//! `progstats compare`: equal counts in both worlds, and the simulation alone where this kernel cannot be asked.
#![cfg(target_os = "linux")]

mod kernel;

use host::expect::skipped;
use kernel::{progstats, without_rights};
use serde_json::Value;

fn report(json: &[u8]) -> Value {
    serde_json::from_slice(json).expect("a whole report")
}

fn median(side: &Value, of: &str) -> f64 {
    side[of]["median"].as_f64().unwrap_or_else(|| panic!("{of} of {side}"))
}

#[test]
fn both_worlds_count_the_same_runs() {
    let out = progstats(&["compare", "--seconds", "0.3", "--json"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let r = report(&out.stdout);
    if let Some(why) = r["cannot_ask"].as_str() {
        assert!(!host::caller::is_privileged() || std::env::var_os(host::expect::REFUSED).is_some(), "{why}");
        return skipped(why);
    }
    let rounds = r["rounds"].as_u64().unwrap();
    for program in r["programs"].as_array().unwrap() {
        let [ours, theirs] = ["simulation", "kernel"].map(|side| &program[side]);
        assert_eq!(ours["runs_counted"], theirs["runs_counted"], "{program}");
        assert_eq!(ours["runs_counted"].as_u64(), Some(rounds * 20_000));
        for side in [ours, theirs] {
            for of in ["reported_ns", "off_ns", "on_ns", "switch_us"] {
                assert!(median(side, of) > 0.0, "{of} of {program}");
            }
        }
        assert!(median(program, "simulation_clocks_ns") > 0.0);
    }
    let names: Vec<_> = r["programs"].as_array().unwrap().iter().map(|p| &p["name"]).collect();
    assert_eq!(names, ["empty", "count_sys_enter"]);
}

#[test]
fn without_rights_the_simulation_stands_alone_and_a_sentence_says_why() {
    let out = without_rights(progstats(&["compare", "--seconds", "0.1"]));
    let (text, err) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{err}");
    assert!(text.lines().all(|l| l.chars().count() <= 80), "80 columns are enough:\n{text}");
    let words: Vec<_> = text.split_whitespace().collect();
    let text = words.join(" ");
    assert!(text.contains("This kernel cannot be asked, so its column is empty:"), "{text}");
    assert!(text.contains("CAP_BPF") && text.contains("run as root"), "{text}");
    let out = without_rights(progstats(&["compare", "--seconds", "0.1", "--json"]));
    let r = report(&out.stdout);
    assert!(r["cannot_ask"].is_string() && r["programs"][0].get("kernel").is_none(), "{r}");
    assert!(r["programs"][0]["simulation"]["runs_counted"].as_u64().unwrap() > 0);
}

#[test]
fn a_program_that_this_kernel_refuses_is_an_error_of_one_line() {
    // An uninitialised register: the simulation's check at load looks at form only.
    let path = std::env::temp_dir().join(format!("progstats-refused-{}.s", std::process::id()));
    std::fs::write(&path, "r0 = r3\nexit\n").unwrap();
    let out = progstats(&["compare", "--seconds", "0.1", "--asm", path.to_str().unwrap()]).output().unwrap();
    std::fs::remove_file(path).unwrap();
    if !host::caller::is_privileged() {
        return skipped("this process may not load programs");
    }
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!((out.status.code(), err.lines().count()), (Some(1), 1), "{err}");
    assert!(err.contains("in this kernel") && err.contains("R3 !read_ok"), "{err}");
    assert!(out.stdout.is_empty());
}
