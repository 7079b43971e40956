//! Reading the statistics of a program while it runs elsewhere. Mirrors `bpf_prog_get_stats`,
//! kernel/bpf/syscall.c: on 64-bit each counter is whole, the pair need not be.

use std::sync::mpsc::{TryRecvError, channel};
use std::thread;

use super::quiet;
use crate::error::{CannotAsk, Error};
use crate::info::{Stats, stats};
use crate::probe::minimal;
use crate::prog::ProgType;
use crate::stats::StatsFd;

/// What a reader saw from one sample to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// Samples taken.
    pub taken: u64,
    /// Both counters moved.
    pub both: u64,
    /// The run count moved alone.
    pub count_alone: u64,
    /// The time moved alone.
    pub time_alone: u64,
    /// One of them was smaller than before.
    pub backwards: u64,
}

/// Takes samples of a program's statistics while another thread runs it all the time: until `enough`, `most` at most.
///
/// # Errors
/// [`CannotAsk`].
pub fn samples(most: u64, enough: impl Fn(&Samples) -> bool) -> Result<Samples, CannotAsk> {
    let _lock = quiet()?;
    let program = minimal(ProgType::SocketFilter)?;
    let _on = StatsFd::enable()?;
    let (stop, stopped) = channel::<()>();
    let seen = thread::scope(|s| -> Result<_, Error> {
        let program = &program;
        let runner = s.spawn(move || -> Result<(), Error> {
            while stopped.try_recv() == Err(TryRecvError::Empty) {
                program.test_run(10_000)?;
            }
            Ok(())
        });
        let seen = tell(most, enough, || stats(program));
        drop(stop);
        runner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(seen)
    });
    Ok(seen?)
}

/// What `read` shows from one call to the next.
///
/// # Errors
/// Those of `read`.
pub fn tell<E>(
    most: u64,
    enough: impl Fn(&Samples) -> bool,
    mut read: impl FnMut() -> Result<Stats, E>,
) -> Result<Samples, E> {
    let mut seen = Samples::default();
    let mut last = read()?;
    while seen.taken < most && !enough(&seen) {
        let now = read()?;
        seen.taken += 1;
        if now.run_cnt < last.run_cnt || now.run_time_ns < last.run_time_ns {
            seen.backwards += 1;
        } else {
            match (now.run_cnt > last.run_cnt, now.run_time_ns > last.run_time_ns) {
                (true, true) => seen.both += 1,
                (true, false) => seen.count_alone += 1,
                (false, true) => seen.time_alone += 1,
                (false, false) => {}
            }
        }
        last = now;
    }
    Ok(seen)
}
