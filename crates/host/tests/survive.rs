//! Nothing stays behind: a process that does all of it is killed at any moment, and all is as before.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::process::exit;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{panicking, sleep};
use std::time::{Duration, Instant};

use host::expect::asked;
use host::facts::quiet;
use host::info::programs;
use host::insn::returns;
use host::sysctl::{self, Exclusive, Guard};
use host::{CannotAsk, Link, Load, Map, ProgType, Release, StatsFd};

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

/// A pipe's two ends: a child tells its steps, and its end is seen as the end of the pipe.
struct Steps {
    told: PipeReader,
    tell: PipeWriter,
}

/// All that changes something, once; `step` is called after each thing done.
fn life(prefix: &str, mut step: impl FnMut()) -> Result<(), CannotAsk> {
    let write_failed = |e| CannotAsk(format!("write the sysctl: {e}"));
    let guard = Guard::new(Exclusive::lock()?)?;
    step();
    let _map = Map::array(&format!("{prefix}map"), 8, 1)?;
    let program = Load::new(ProgType::RawTracepoint, prefix, &returns(0)).load()?;
    step();
    let _link = Link::raw_tracepoint("sys_enter", &program)?;
    step();
    let fd = StatsFd::enable()?;
    step();
    guard.write(other(guard.before())).map_err(write_failed)?;
    step();
    let copy = fd.dup()?;
    program.test_run(1)?;
    step();
    drop(fd);
    step();
    // Before the guard: its lock is for this too.
    drop(copy);
    step();
    guard.write(guard.before().as_bytes()).map_err(write_failed)?;
    step();
    guard.write(other(guard.before())).map_err(write_failed)?;
    step();
    // The guardian puts the value back while we go on.
    drop(guard);
    step();
    Ok(())
}

/// Steps of [`life`], and those after which the sysctl holds another value.
const STEPS: usize = 11;
const WRITTEN: [usize; 5] = [4, 5, 6, 7, 9];

/// The value that the sysctl does not hold.
fn other(before: &str) -> &'static [u8] {
    if before == "0" { b"1" } else { b"0" }
}

/// A child that lives and says when `step` steps are done; then it goes on, or waits to be killed. Returns when it has
/// said so.
fn child_after(step: usize, prefix: &str, goes_on: bool) -> Child {
    let (told, tell) = std::io::pipe().unwrap();
    let mut steps = Steps { told, tell };
    let child = Child::fork(|| {
        let mut done = 0;
        let lived = life(prefix, || {
            done += 1;
            if done == step + 1 {
                steps.tell.write_all(b"s").expect("the parent reads");
                if !goes_on {
                    wait();
                }
            }
        });
        if let Err(why) = lived {
            eprintln!("{why}");
            exit(1);
        }
        wait();
    });
    drop(steps.tell);
    let mut byte = [0];
    steps.told.read_exact(&mut byte).expect("the child comes to its step");
    child
}

/// Waits for the end, which a signal brings.
fn wait() -> ! {
    loop {
        // SAFETY: no arguments.
        unsafe { libc::pause() };
    }
}

/// The value of the sysctl, and the turn of one test after the other: each wants the machine for itself, and a child
/// inherits what other threads have open, the lock among it.
fn before() -> Option<(MutexGuard<'static, ()>, String)> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let state = sysctl::may_write().map_err(CannotAsk::from).and_then(|()| {
        let _lock = quiet()?;
        Ok(sysctl::read()?)
    });
    Some((turn, asked(Release(6, 6), state)?))
}

/// The child is gone: nothing of it is left but what goes soon, and the sysctl is as it was.
fn all_is_as(before: &str, what: &str) {
    // The guardian has the lock until it is done.
    let _lock = quiet().unwrap_or_else(|why| panic!("{what}: {why}"));
    assert_eq!(sysctl::read().unwrap(), before, "{what}");
}

/// Links are taken down after a grace period: the programs go soon, not at once.
fn nothing_is_left_of(prefix: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let left: Vec<_> =
            programs().unwrap().into_iter().filter(|p| p.name.starts_with(prefix)).map(|p| p.name).collect();
        if left.is_empty() {
            break;
        }
        assert!(Instant::now() < end, "still loaded: {left:?}");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn killed_after_each_step() {
    let Some((_turn, before)) = before() else { return };
    let prefix = prefix();
    for step in 0..STEPS {
        let child = child_after(step, &prefix, false);
        // Nobody else writes meanwhile: the child has the lock until it drops its guard.
        if step < STEPS - 1 {
            let now = sysctl::read().unwrap();
            assert_eq!(now != before, WRITTEN.contains(&step), "step {step}: the sysctl is {now}");
        }
        assert!(child.kill(), "the child ended before it was killed");
        all_is_as(&before, &format!("after step {step}"));
    }
    nothing_is_left_of(&prefix);
}

#[test]
fn killed_at_any_moment() {
    const KILLS: usize = 15;
    let Some((_turn, before)) = before() else { return };
    let prefix = prefix();
    for step in 0..STEPS {
        for n in 0..KILLS {
            let child = child_after(step, &prefix, true);
            // Into the next step, which takes from some microseconds to some hundred.
            let after = Instant::now() + Duration::from_micros((1 << n) / 20);
            while Instant::now() < after {
                std::hint::spin_loop();
            }
            assert!(child.kill(), "the child ended before it was killed");
            all_is_as(&before, &format!("soon after step {step}, {n}"));
        }
    }
    nothing_is_left_of(&prefix);
}

#[test]
fn dropped_puts_back() {
    let Some((_turn, before)) = before() else { return };
    let other = other(&before);
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
    let Some((_turn, before)) = before() else { return };
    let other = other(&before);
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
    let Some((_turn, before)) = before() else { return };
    let other = other(&before);
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
