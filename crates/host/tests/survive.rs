//! Nothing stays behind: a process that does all of it is killed at any moment, and all is as before.

use std::process::exit;
use std::thread::{panicking, sleep};
use std::time::{Duration, Instant};

use host::expect::asked;
use host::facts::stats_are_on;
use host::info::programs;
use host::insn::returns;
use host::sysctl::{self, Exclusive, Guard};
use host::{CannotAsk, Link, Load, Map, ProgType, Release, StatsFd};

const KILLS: u64 = 150;

/// What programs of this test are called; with the process's id, so that two runs do not meet.
fn prefix() -> String {
    format!("sv{}_", std::process::id())
}

/// A forked child that is killed when this is dropped, if it is still there.
struct Child(libc::pid_t);

impl Child {
    /// Runs `life` in a child. `life` may use the library: nothing of ours holds a lock while we fork, and libc's
    /// allocator is usable in a child.
    fn fork(life: impl FnOnce()) -> Child {
        // SAFETY: the child runs `life` and ends without coming back.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", host::Errno::last()),
            0 => {
                life();
                exit(0)
            }
            pid => Child(pid),
        }
    }

    /// Kills it and returns when it is gone; whether it was the kill that ended it.
    fn kill(self) -> bool {
        let mut status = 0;
        // SAFETY: a child of ours that nobody has waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            assert_eq!(libc::waitpid(self.0, &raw mut status, 0), self.0);
        }
        std::mem::forget(self);
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        assert!(panicking(), "a child is killed by its test");
        // SAFETY: as in `kill`.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// All that changes something, again and again.
fn busy(prefix: &str) -> Result<(), CannotAsk> {
    for round in 0u32.. {
        let guard = Guard::new(Exclusive::lock()?)?;
        let _map = Map::array(&format!("{prefix}map"), 8, 1)?;
        let name = format!("{prefix}{}", round % 10);
        let program = Load::new(ProgType::RawTracepoint, &name, &returns(0)).load()?;
        let _link = Link::raw_tracepoint("sys_enter", &program)?;
        let fd = StatsFd::enable()?;
        let on = guard.write(b"1");
        let _copy = fd.dup()?;
        program.test_run(1)?;
        // Every other time the guard's end has something to put back.
        let off = if round % 2 == 0 { guard.write(b"0") } else { Ok(()) };
        if let Err(e) = on.and(off) {
            return Err(CannotAsk(format!("write the sysctl: {e}")));
        }
    }
    Ok(())
}

/// One lock for the tests of this file: each wants the state of the machine for itself.
fn before() -> Option<String> {
    let _lock = Exclusive::lock().ok();
    let state = sysctl::may_write().map_err(CannotAsk::from).and_then(|()| {
        if stats_are_on()? {
            return Err(CannotAsk("statistics are on already".into()));
        }
        Ok(sysctl::read()?)
    });
    asked(Release(6, 6), state)
}

#[test]
fn killed_at_any_moment() {
    let Some(before) = before() else { return };
    let prefix = prefix();
    let mut seen_written = 0;
    for n in 0..KILLS {
        let child = Child::fork(|| {
            if let Err(why) = busy(&prefix) {
                eprintln!("{why}");
            }
        });
        // Up to 15 ms, in steps that are not a round's length: rounds take about a millisecond.
        sleep(Duration::from_micros(n * 97 % 15_000));
        let written = sysctl::read().unwrap() != before;
        seen_written += u32::from(written);
        assert!(child.kill(), "the child ended before it was killed");

        // The guardian has the lock until it is done; who asks before it has the lock sees nothing written.
        let lock = Exclusive::lock().unwrap();
        assert_eq!(sysctl::read().unwrap(), before, "kill {n}");
        assert!(!stats_are_on().unwrap(), "kill {n}: statistics are on");
        drop(lock);
    }
    println!("{KILLS} kills, {seen_written} soon after the sysctl was seen written");
    assert!(
        seen_written > KILLS as u32 / 20,
        "kills came where there was something to put back: {seen_written}"
    );
    // Links are taken down after a grace period: the programs go soon, not at once.
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let left: Vec<_> =
            programs().unwrap().into_iter().filter(|p| p.name.starts_with(&prefix)).map(|p| p.name).collect();
        if left.is_empty() {
            break;
        }
        assert!(Instant::now() < end, "still loaded: {left:?}");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn dropped_puts_back() {
    let Some(before) = before() else { return };
    let other: &[u8] = if before == "0" { b"1" } else { b"0" };
    let guard = Guard::new(Exclusive::lock().unwrap()).unwrap();
    assert_eq!(guard.before(), before);
    guard.write(other).unwrap();
    assert_eq!(sysctl::read().unwrap().as_bytes(), other);
    drop(guard);
    let _lock = Exclusive::lock().unwrap();
    assert_eq!(sysctl::read().unwrap(), before);
}

#[test]
fn a_killed_guardian_is_replaced_by_the_drop() {
    let Some(before) = before() else { return };
    let other: &[u8] = if before == "0" { b"1" } else { b"0" };
    let guard = Guard::new(Exclusive::lock().unwrap()).unwrap();
    guard.write(other).unwrap();
    // SAFETY: the guard's child, which nobody has waited for.
    assert_eq!(unsafe { libc::kill(guard.guardian(), libc::SIGKILL) }, 0);
    drop(guard);
    let _lock = Exclusive::lock().unwrap();
    assert_eq!(sysctl::read().unwrap(), before);
}

#[test]
fn signals_to_the_group_spare_the_guardian() {
    let Some(before) = before() else { return };
    let other: &[u8] = if before == "0" { b"1" } else { b"0" };
    let child = Child::fork(|| {
        // SAFETY: a group of its own, as a shell gives to each command.
        unsafe { libc::setpgid(0, 0) };
        let guard = Guard::new(Exclusive::lock().unwrap()).unwrap();
        guard.write(other).unwrap();
        // SAFETY: to that group.
        unsafe { libc::kill(0, libc::SIGKILL) };
    });
    let mut status = 0;
    // SAFETY: a child of ours that nobody has waited for.
    assert_eq!(unsafe { libc::waitpid(child.0, &raw mut status, 0) }, child.0);
    std::mem::forget(child);
    assert!(libc::WIFSIGNALED(status), "{status:#x}");
    let _lock = Exclusive::lock().unwrap();
    assert_eq!(sysctl::read().unwrap(), before);
}
