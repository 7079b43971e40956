//! Tests that need a process of their own: they change what a process has once.

use std::env;
use std::process::{Command, Output};

const CHILD: &str = "JUMP_LABEL_CHILD";

/// Runs `body` in a process of its own, by running the test `name` there again; returns how that ended.
pub(crate) fn in_a_process(name: &str, body: impl FnOnce()) -> Output {
    if env::var_os(CHILD).is_some_and(|child| child == *name) {
        body();
        std::process::exit(0);
    }
    let args = ["--exact", name, "--nocapture", "--test-threads=1"];
    Command::new(env::current_exe().unwrap()).args(args).env(CHILD, name).output().unwrap()
}

/// Runs `body` in a process of its own, which must end well.
pub(crate) fn well(name: &str, body: impl FnOnce()) {
    let out = in_a_process(name, body);
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(out.status.success(), "{}: {}{}", out.status, text(&out.stdout), text(&out.stderr));
}
