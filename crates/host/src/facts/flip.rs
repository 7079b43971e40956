//! The key flipped during one run, on both paths. Mirrors `__bpf_prog_run` (include/linux/filter.h), which tests it
//! once, and `bpf_prog_start_time` with `update_prog_stats` (kernel/bpf/trampoline.c), which test it at both ends.

use std::thread;

use super::quiet;
use crate::error::{CannotAsk, Error};
use crate::info::{Stats, stats};
use crate::insn::{exit, jump, jump_ne, load, map_value, may_goto, mov, store};
use crate::map::Map;
use crate::probe::{Host, Release, dummy_ops};
use crate::prog::{Load, ProgType};
use crate::stats::StatsFd;

/// Which path a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// `__bpf_prog_run`: a socket filter.
    ProgRun,
    /// `__bpf_prog_enter` and `__bpf_prog_exit`: a function of struct_ops.
    Trampoline,
}

/// Runs that ended too soon, before one is given up: the program goes on for a quarter of a second at most, and the
/// flips may have to wait for a CPU.
const TRIES: u32 = 50;

/// What one run added, with statistics `flips[0]` when it began and switched to each of the rest while it ran.
///
/// # Errors
/// [`CannotAsk`]: since 6.9, which has `may_goto`.
///
/// # Panics
/// If `flips` is empty.
pub fn flip_during_run(path: Path, flips: &[bool]) -> Result<Stats, CannotAsk> {
    let (&first, rest) = flips.split_first().expect("the state at the beginning");
    if Host::release() < Release(6, 9) {
        return Err(CannotAsk("needs may_goto: a kernel of 6.9 or newer".into()));
    }
    let _lock = quiet()?;
    let words = Map::array("progstats_flip", 24, 1)?;
    // Word 0: it runs. Word 1: it may end. Word 2: it was told to, and did not end by itself.
    let mut insns = map_value(6, &words).to_vec();
    insns.extend([
        store(6, 0, 1),
        may_goto(4),
        load(1, 6, 8),
        jump_ne(1, 0, 1),
        jump(-4),
        store(6, 16, 1),
        mov(0, 0),
        exit(),
    ]);
    let prog_type = match path {
        Path::ProgRun => ProgType::SocketFilter,
        Path::Trampoline => ProgType::StructOps,
    };
    let mut program = Load::new(prog_type, "progstats_flip", &insns);
    if path == Path::Trampoline {
        program.member = Some((dummy_ops()?, 0));
    }
    let program = program.load()?;
    for _ in 0..TRIES {
        words.set_words([0, 0, 0])?;
        let held = if first { Some(StatsFd::enable()?) } else { None };
        let before = stats(&program)?;
        let run = thread::scope(|s| -> Result<_, Error> {
            let flipper = s.spawn(|| -> Result<_, Error> {
                let mut held = held;
                while words.words::<1>()? == [0] {
                    thread::yield_now();
                }
                for &on in rest {
                    held = if on { Some(StatsFd::enable()?) } else { None };
                }
                // All three: a value is written as a whole. The last is the program's to write after this.
                words.set_words([1, 1, 0])?;
                Ok(held)
            });
            let run = program.test_run(1);
            if run.is_err() {
                // Whoever waits for it to begin must not wait for ever.
                words.set_words([1, 0, 0])?;
            }
            let held = flipper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            run.and(held)
        });
        let held = run?;
        let added = stats(&program)? - before;
        drop(held);
        if words.words::<3>()?[2] == 1 {
            return Ok(added);
        }
    }
    Err(CannotAsk(format!("the flips came too late in {TRIES} runs: the machine is too busy")))
}
