//! Entering and leaving programs from a traced function: start times, recursion, misses.
//!
//! Mirrors kernel/bpf/trampoline.c ([`trampoline`]) and the call sequence that arch/x86/net/bpf_jit_comp.c generates
//! ([`call`]), as of Linux 6.6 stable with `ce09cbdd9888` and `7dc211c1159d` applied. Older forms stand in [`history`].
//!
//! # What holds
//! 1. The key is tested at enter **and** at exit; only a run that found it on at both is counted (so on, off, on counts in
//!    full, and off to on or on to off does not).
//! 2. Enter returns 0 (skip), 1 (run, not timed) or the start. A clock at 0 or 1 counts as not timed.
//! 3. Exit is called after every enter, also after 0; it alone takes the guard back.
//! 4. The guard is per program and CPU and is held during the update. Pinning leaves preemption on, so another task on the
//!    CPU may be refused with no recursion at all.
//! 5. A miss counts with statistics off, and adds no run.

pub mod call;
pub mod history;
pub mod trampoline;

pub use call::{BpfTrampLink, BpfTrampoline, invoke_bpf_prog};
pub use trampoline::{
    BpfTrampEnter, BpfTrampExit, BpfTrampRunCtx, NO_START_TIME, bpf_prog_check_recur, bpf_prog_start_time,
    bpf_trampoline_enter, bpf_trampoline_exit, update_prog_stats,
};
