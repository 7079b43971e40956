//! Runs that are refused because the program runs on that CPU already. Mirrors `__bpf_trace_run`
//! (kernel/trace/bpf_trace.c) and `bpf_prog_inc_misses_counter` (kernel/bpf/syscall.c).

use super::quiet;
use crate::error::CannotAsk;
use crate::info::{Stats, stats};
use crate::insn::{add, atomic_add, call, exit, load, map_value, mov, mov_reg};
use crate::link::Link;
use crate::map::Map;
use crate::prog::{Load, ProgType};
use crate::stats::StatsFd;

/// `bpf_get_current_pid_tgid`
const GET_CURRENT_PID_TGID: i32 = 14;
/// `bpf_probe_read_user`
const PROBE_READ_USER: i32 = 112;

/// What came of runs that recurse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recursion {
    /// How often our thread entered the program's body.
    pub entered: u64,
    /// What was added to its statistics. Runs of other threads that fault meanwhile count too; misses are ours only.
    pub added: Stats,
}

/// Test-runs a program `runs` times that is attached to the tracepoint of page faults in the kernel, and makes one.
/// Each fault runs it again, on top; the fault of that run meets the guard.
///
/// # Errors
/// [`CannotAsk`]: among them on machines without that tracepoint (it is x86's).
pub fn recursion(statistics_on: bool, runs: u32) -> Result<Recursion, CannotAsk> {
    let _lock = quiet()?;
    // Word 0: whose faults count; the test run is ours by definition. Word 1: bodies entered.
    let words = Map::array("progstats_rec", 16, 1)?;
    let mut insns = map_value(6, &words).to_vec();
    insns.extend([
        // Only our thread makes faults: the misses are then ours alone.
        call(GET_CURRENT_PID_TGID),
        load(1, 6, 0),
        // if r0 != r1 goto the end
        crate::Insn::new(0x5d, 0, 1, 7, 0),
        mov(1, 1),
        atomic_add(6, 1, 8),
        mov_reg(1, 10),
        add(1, -8),
        mov(2, 8),
        mov(3, 0x1000), // an address that is not mapped
        call(PROBE_READ_USER),
        // the end
        mov(0, 0),
        exit(),
    ]);
    let program = Load::new(ProgType::RawTracepoint, "progstats_rec", &insns).load()?;
    let _link = Link::raw_tracepoint("page_fault_kernel", &program)?;
    let held = if statistics_on { Some(StatsFd::enable()?) } else { None };
    words.set_words([me(), 0])?;
    let before = stats(&program)?;
    for _ in 0..runs {
        program.test_run(0)?;
    }
    let added = stats(&program)? - before;
    drop(held);
    let [_, entered] = words.words()?;
    Ok(Recursion { entered, added })
}

/// This thread as `bpf_get_current_pid_tgid` names it, in the first pid namespace.
fn me() -> u64 {
    // SAFETY: no arguments, cannot fail.
    let tid = unsafe { libc::gettid() };
    u64::from(std::process::id()) << 32 | tid as u64
}
