//! Programs of one's own: objects, assembly and hex; `exec` and `dump`.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn progstats(args: &[&str], stdin: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_progstats"))
        .args(args)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that does not read its input closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child.wait_with_output().unwrap()
}

fn stdout(args: &[&str], stdin: &str) -> String {
    let out = progstats(args, stdin);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Exit code 1, nothing on stdout, one line on stderr that says these words.
fn refused(args: &[&str], stdin: &str, words: &[&str]) {
    let out = progstats(args, stdin);
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!((out.status.code(), err.lines().count()), (Some(1), 1), "{args:?}: {err}");
    assert!(out.stdout.is_empty());
    for word in words {
        assert!(err.contains(word), "{args:?}: {err:?} does not say {word:?}");
    }
}

#[test]
fn exec_prints_r0() {
    assert_eq!(stdout(&["exec"], "b700000005000000 9500000000000000"), "0x5\n");
    assert_eq!(stdout(&["exec"], "b4000000 ffffffff\n95000000 00000000\n"), "0xffffffff\n");
    let load = "7910000000000000 9500000000000000"; // r0 = *(u64 *)(r1 +0)
    assert_eq!(stdout(&["exec", "0102030405060708"], load), "0x807060504030201\n");
    assert_eq!(
        stdout(&["exec", "01 02 03"], "bf20000000000000 9500000000000000"),
        "0x3\n",
        "r2 is the length"
    );
}

#[test]
fn exec_refuses_and_faults_in_one_line() {
    refused(&["exec"], "", &["empty"]);
    refused(&["exec"], "b7\n0g", &["2:2", "'g'"]);
    refused(&["exec"], "b700", &["8 bytes"]);
    refused(&["exec"], "0700000005000000", &["insn 0", "last instruction"]);
    refused(&["exec"], "ff00000000000000 9500000000000000", &["insn 0"]);
    refused(&["exec", "01"], "7910000000000000 9500000000000000", &["insn 0", "8 bytes"]);
    refused(&["exec", "xy"], "b700000005000000 9500000000000000", &["MEMORY", "1:1"]);
    // A loop to itself; the last instruction may be a jump.
    refused(&["exec"], "0500ffff00000000", &["too many"]);
}

#[test]
fn an_object_runs_with_its_counters() {
    let object = "crates/bpf/tests/objects/btf_maps.o";
    let args =
        ["run", "--object", object, "--section", "raw_tracepoint/sys_enter", "--seconds", "0.1", "--json"];
    let r: serde_json::Value = serde_json::from_str(&stdout(&args, "")).unwrap();
    assert_eq!(r[0]["type"], "raw_tracepoint");
    assert!(r[0]["run_cnt"].as_u64().unwrap() > 0);
    refused(&["run", "--object", object], "", &["--section", "raw_tracepoint/sys_enter"]);
    refused(&["run", "--object", object, "--section", "nope"], "", &["nope", "raw_tracepoint/sys_enter"]);
    refused(&["run", "--object", "crates/bpf/tests/objects/i386.o"], "", &["32-bit"]);
    refused(&["run", "--object", "crates/bpf/tests/objects/core.o"], "", &["CO-RE"]);
    refused(&["run", "--object", "README.md"], "", &["README.md"]);
    refused(&["run", "--object", "nowhere.o"], "", &["nowhere.o"]);
}

#[test]
fn assembly_and_hex_run_and_are_dumped() {
    for (option, file) in [("--asm", "examples/count.s"), ("--hex", "examples/add.hex")] {
        let r = stdout(&["run", option, file, "--seconds", "0.1", "--json"], "");
        let r: serde_json::Value = serde_json::from_str(&r).unwrap();
        assert!(r[0]["run_cnt"].as_u64().unwrap() > 0, "{file}");
        stdout(&["seed", option, file, "--seconds", "0.1", "--programs", "8"], "");
    }
    let dump = stdout(&["dump", "--hex", "examples/add.hex"], "");
    assert_eq!(dump, "   0: (b4) w0 = 40\n   1: (04) w0 += 2\n   2: (95) exit\n");
    assert_eq!(stdout(&["exec"], &std::fs::read_to_string("../../examples/add.hex").unwrap()), "0x2a\n");
}

#[test]
fn a_program_that_is_stopped_is_an_error() {
    let path = std::env::temp_dir().join(format!("progstats-fault-{}.s", std::process::id()));
    std::fs::write(&path, "r0 = *(u64 *)(r1 +64)\nexit\n").unwrap();
    let path = path.to_str().unwrap();
    refused(&["run", "--asm", path], "", &["stopped", "insn 0", "memory that it does not have"]);
    refused(&["seed", "--asm", path, "--seconds", "0.1"], "", &["stopped", "insn 0"]);
    std::fs::write(path, "r0 = \nexit\n").unwrap();
    refused(&["run", "--asm", path], "", &["1:"]);
    std::fs::remove_file(path).unwrap();
}
