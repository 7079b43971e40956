//! The command line as a person and a script meet it.

use std::process::{Command, Output, Stdio};

fn progstats(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_progstats")).args(args).stdin(Stdio::null()).output().unwrap()
}

fn stdout(args: &[&str]) -> String {
    let out = progstats(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    // One note where the host does not let keys be patched.
    let err = String::from_utf8(out.stderr).unwrap();
    let noted = err.lines().count() == 1 && err.contains("static keys cannot be patched");
    assert!(err.is_empty() || noted, "{args:?}: no progress in a pipe: {err}");
    String::from_utf8(out.stdout).unwrap()
}

/// Fails with this exit code and one line on stderr that holds these words; prints nothing else.
fn refused(args: &[&str], code: i32, words: &[&str]) {
    let out = progstats(args);
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
    assert_eq!(err.lines().count(), 1, "{args:?}: {err}");
    for word in words {
        assert!(err.contains(word), "{args:?}: {err:?} does not say {word:?}");
    }
    assert!(out.stdout.is_empty(), "{args:?}: half an answer");
}

fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&stdout(args)).unwrap()
}

#[test]
fn virtual_time_gives_the_seeds_message_exactly() {
    let r = json(&["seed", "--clock", "virtual", "--json"]);
    assert_eq!(
        (r["reported_before_ns"].as_f64(), r["reported_after_ns"].as_f64()),
        (Some(310.0), Some(260.0))
    );
    let text = stdout(&["seed", "--clock", "virtual"]);
    assert!(text.contains("310 -> 260 ns, 16.1 % less"), "{text}");
    assert_eq!(text, stdout(&["seed", "--clock", "virtual"]), "repeatable");
}

#[test]
fn both_forms_execute_the_same_steps() {
    let r = json(&["seed", "--clock", "virtual", "--json"]);
    let steps = |form: &str| {
        let list = r[form].as_array().unwrap().iter();
        let mut steps: Vec<_> = list.map(|at| at["step"].as_str().unwrap().to_owned()).collect();
        steps.sort();
        steps
    };
    assert_eq!(steps("timeline_before"), steps("timeline_after"));
}

#[test]
fn a_changed_cost_moves_what_it_should() {
    let at = |cost: &str| {
        let r = json(&["seed", "--clock", "virtual", "--json", "--cost", cost]);
        (r["reported_before_ns"].as_f64().unwrap(), r["reported_after_ns"].as_f64().unwrap())
    };
    assert_eq!(at("cnt=145"), (410.0, 260.0), "the first touch is in the old form's time only");
    assert_eq!(at("call=1240"), (1310.0, 1260.0), "the program is in both");
    assert_eq!(at("clock=30"), (320.0, 270.0), "one clock read is in both");
    assert_eq!(at("nsecs=99"), (310.0, 260.0), "what comes after the second read is in neither");
}

#[test]
fn the_32_bit_form_takes_more_steps_inside() {
    let r = json(&["seed", "--clock", "virtual", "--bits", "32", "--json", "--cost", "irq_save=7"]);
    assert_eq!(
        (r["reported_before_ns"].as_f64(), r["reported_after_ns"].as_f64()),
        (Some(317.0), Some(260.0))
    );
}

#[test]
fn the_measured_experiment_has_all_its_parts() {
    for bits in ["64", "32"] {
        let r =
            json(&["seed", "--seconds", "0.2", "--programs", "64", "--cpus", "2", "--bits", bits, "--json"]);
        let setups = r["setups"].as_array().unwrap();
        assert_eq!(setups.iter().map(|s| s["name"].as_str().unwrap()).collect::<Vec<_>>(), ["cold", "hot"]);
        for s in setups {
            assert_eq!(s["runs_before"], s["runs_after"]);
            assert!(s["runs_after"].as_u64().unwrap() > 0);
            assert!(s["reported_after_ns"]["median"].as_f64().unwrap() > 0.0);
            assert!(s["real_off_ns"]["median"].as_f64().unwrap() > 0.0);
        }
    }
    let text = stdout(&["seed", "--seconds", "0.1", "--programs", "16"]);
    assert!(text.lines().all(|l| l.chars().count() <= 80), "80 columns are enough:\n{text}");
    assert!(!text.contains('\x1b'), "no colour in a pipe");
}

#[test]
fn every_clock_runs() {
    for clock in ["ordered", "tsc", "os", "coarse", "skewed", "zero"] {
        json(&["seed", "--seconds", "0.05", "--programs", "4", "--clock", clock, "--json"]);
    }
}

#[test]
fn run_prints_as_bpftool_does() {
    let r = json(&["run", "--seconds", "0.1", "--json"]);
    let prog = &r[0];
    assert_eq!(prog["type"], "raw_tracepoint");
    assert_eq!(prog["name"], "count_sys_enter");
    assert_eq!(prog["map_ids"][0], 1);
    assert!(prog["run_cnt"].as_u64().unwrap() > 0 && prog["run_time_ns"].as_u64().unwrap() > 0);
    assert!(prog.get("recursion_misses").is_none(), "left out at 0, as bpftool does");
    let off = json(&["run", "--seconds", "0.1", "--stats-off", "--json"]);
    assert!(off[0].get("run_cnt").is_none());
    assert!(stdout(&["run", "--seconds", "0.1", "--stats-off"]).contains("statistics were off"));
}

#[test]
fn wrong_usage_is_one_line_and_exit_code_2() {
    refused(&["seed", "--bogus"], 2, &["--bogus"]);
    refused(&["nonsense"], 2, &["nonsense"]);
    refused(&["seed", "--clock", "sundial"], 2, &["sundial", "ordered", "virtual"]);
    refused(&["seed", "--bits", "16"], 2, &["16", "64", "32"]);
    refused(&["seed", "--cpus", "65"], 2, &["65", "64"]);
    refused(&["seed", "--cpus", "0"], 2, &["0"]);
    refused(&["seed", "--programs", "16385"], 2, &["16385", "16384"]);
    for seconds in ["0", "-1", "nan", "inf", "3601", "soon"] {
        refused(&["seed", "--seconds", seconds], 2, &["seconds"]);
    }
    refused(
        &["seed", "--clock", "virtual", "--cost", "lunch=5"],
        2,
        &["lunch", "this_cpu_ptr", "section_end"],
    );
    refused(&["seed", "--clock", "virtual", "--cost", "call"], 2, &["STEP=NS"]);
    refused(&["seed", "--clock", "virtual", "--cost", "call=-1"], 2, &["ns"]);
    refused(&["seed", "--cost", "call=5"], 2, &["--clock virtual"]);
    refused(&["run", "--clock", "virtual"], 2, &["virtual"]);
}

#[test]
fn a_closed_pipe_is_one_line_and_exit_code_1() {
    // A reader that is gone before anything is written.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let out = Command::new(env!("CARGO_BIN_EXE_progstats"))
        .args(["seed", "--clock", "virtual"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!((out.status.code(), err.lines().count()), (Some(1), 1), "{err}");
}

#[test]
#[cfg(target_os = "linux")]
fn ctrl_c_prints_what_is_there() {
    let child = Command::new(env!("CARGO_BIN_EXE_progstats"))
        .args(["seed", "--seconds", "600", "--programs", "16", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Until it catches SIGINT (2, so bit 1 of the caught ones) it would just die of it.
    let catches = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:")).unwrap().trim();
        u64::from_str_radix(caught, 16).unwrap() & 2 != 0
    };
    while !catches() {
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let out = child.wait_with_output().unwrap();
    let r: serde_json::Value = serde_json::from_slice(&out.stdout).expect("a whole report");
    assert_eq!(r["interrupted"], true);
    assert_eq!(r["setups"][0]["name"], "cold");
}
