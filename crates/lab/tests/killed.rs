//! `oracle` and `compare`, killed at many moments: statistics are off, nothing is loaded, the sysctl is as before.
#![cfg(target_os = "linux")]

use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use host::expect::asked;
use host::facts::{quiet, stats_are_on};
use host::sysctl;
use host::{CannotAsk, Release};

/// The tests of this file take turns: each kill wants the machine for itself.
static TURN: Mutex<()> = Mutex::new(());

/// What the sysctl reads, if this process may ask at all.
fn before() -> Option<String> {
    let state = sysctl::may_write().map_err(CannotAsk::from).and_then(|()| {
        let _lock = quiet()?;
        Ok(sysctl::read()?)
    });
    asked(Release(6, 6), state)
}

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_progstats"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Kills it; whether it was still at work.
fn kill(mut child: Child) -> bool {
    let at_work = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    at_work
}

/// Waits for the lock of the switches: statistics are off, the sysctl is `before`, and no program of ours is loaded.
///
/// Who has been killed may leave programs for a grace period. Others of ours that are at work wait for the lock.
fn all_is_as(before: &str, what: &str) {
    let _lock = quiet().unwrap_or_else(|why| panic!("{what}: {why}"));
    assert_eq!(sysctl::read().unwrap(), before, "{what}: the sysctl");
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let ours = |p: &host::ProgInfo| p.name.starts_with("progstats_");
        let left: Vec<_> = host::info::programs().unwrap().into_iter().filter(ours).map(|p| p.name).collect();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "{what}: still loaded: {left:?}");
        sleep(Duration::from_millis(5));
    }
}

/// Commands that switch, write and load.
const COMMANDS: [&[&str]; 7] = [
    &["oracle", "kernel.bpf_stats_enabled"],
    &["oracle", "keeps"],
    &["oracle", "BPF_ENABLE_STATS"],
    &["oracle", "key during"],
    &["oracle", "counted"],
    &["oracle", "meets itself"],
    &["compare"],
];

#[test]
fn killed_at_many_moments() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(before) = before() else { return };
    let mut at_work = 0;
    let moments = [1, 3, 7, 15, 30, 60, 120, 250];
    for args in COMMANDS {
        for ms in moments {
            let child = start(args);
            sleep(Duration::from_millis(ms));
            at_work += usize::from(kill(child));
            all_is_as(&before, &format!("{args:?} after {ms} ms"));
        }
    }
    assert!(at_work >= moments.len(), "killed while at work: {at_work} times");
}

/// Starts `args`, waits until `sees` something, and kills.
fn killed_when(args: &[&str], what: &str, mut sees: impl FnMut() -> bool) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(before) = before() else { return };
    for n in 0..5 {
        let mut child = start(args);
        let end = Instant::now() + Duration::from_secs(60);
        while !sees() {
            assert!(Instant::now() < end, "{args:?}: not seen: {what}");
            // On a busy machine it may have been on while we were not.
            if child.try_wait().unwrap().is_some() {
                child = start(args);
            }
        }
        kill(child);
        all_is_as(&before, &format!("{args:?} with {what}, {n}"));
    }
}

#[test]
fn oracle_killed_with_the_sysctl_written() {
    killed_when(&["oracle", "kernel.bpf_stats_enabled: "], "the sysctl written", || {
        sysctl::read().unwrap() == "1"
    });
}

#[test]
fn oracle_killed_with_statistics_on() {
    killed_when(&["oracle", "counted"], "statistics on", || stats_are_on().unwrap());
}

#[test]
fn compare_killed_with_statistics_on() {
    killed_when(&["compare"], "statistics on", || stats_are_on().unwrap());
}
