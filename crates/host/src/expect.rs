//! For tests: a question that cannot be asked is skipped with a line that says why; but where it is expected to be
//! askable, that is a failure, so that no test is lost unseen.

use std::env;
use std::fs::File;
use std::io::Write;
use std::thread;

use crate::caller;
use crate::error::CannotAsk;
use crate::probe::{Host, Release};

/// Says, if set, why questions are refused on this machine although the process is privileged: then they are skipped.
pub const REFUSED: &str = "PROGSTATS_HOST_REFUSES";

/// The answer; or `None`, after a line that begins with `skipped: `, if this process cannot ask.
///
/// # Panics
/// If it should be able to: privileged, on a kernel of `since` or newer, with [`REFUSED`] not set.
pub fn asked<T>(since: Release, answer: Result<T, CannotAsk>) -> Option<T> {
    let why = match answer {
        Ok(answer) => return Some(answer),
        Err(why) => why,
    };
    let told = env::var(REFUSED).ok();
    let release = Host::release();
    assert!(
        told.is_some() || !caller::is_privileged() || release < since,
        "cannot ask, and kernels since {since} answer this: {why} (if this machine refuses it, set {REFUSED} to why)"
    );
    let told = told.map_or_else(String::new, |t| format!(" ({t})"));
    skipped(&format!("{why}{told}"));
    None
}

/// Names, if set, a file that gets the line of each test that is skipped: runners hide what passing tests print.
pub const SKIPPED: &str = "PROGSTATS_SKIPPED";

/// Says that the running test is skipped, and why, in one line.
///
/// # Panics
/// If [`SKIPPED`] names a file that cannot be written.
pub fn skipped(why: &str) {
    let line = format!("skipped: {}: {why}\n", thread::current().name().unwrap_or("a test"));
    eprint!("{line}");
    if let Some(path) = env::var_os(SKIPPED) {
        let file = File::options().append(true).create(true).open(&path);
        let written = file.and_then(|mut f| f.write_all(line.as_bytes()));
        written.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}
