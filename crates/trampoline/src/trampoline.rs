//! Enter and exit. Kernel: kernel/bpf/trampoline.c, v6.6 with `ce09cbdd9888`; `bpf_prog_check_recur`,
//! include/linux/bpf_verifier.h.

use filter::prog::deref_percpu;
use filter::prog_stats::count_run;
use filter::{BpfProg, Kconfig, ProgType, bpf_prog_inc_misses_counter, sched_clock, stats_enabled};
use percpu::{
    Cpu, Task, migrate_disable, migrate_enable, rcu_read_lock, rcu_read_lock_trace, rcu_read_unlock,
    rcu_read_unlock_trace,
};

/// A start that says "run, but not timed". Kernel: `NO_START_TIME`.
pub const NO_START_TIME: u64 = 1;

/// What a program's helpers find of its run. Kernel: `struct bpf_tramp_run_ctx`.
#[derive(Debug, Default)]
pub struct BpfTrampRunCtx {
    /// The cookie of the link through which the program was reached.
    pub bpf_cookie: u64,
    /// The context of the run this one interrupted, put back at exit.
    saved_run_ctx: usize,
}

impl BpfTrampRunCtx {
    /// The context of a run that is reached through a link with this cookie.
    pub fn new(bpf_cookie: u64) -> Self {
        Self { bpf_cookie, saved_run_ctx: 0 }
    }
}

/// Enters a program; returns 0 to skip it, 1 to run it untimed, else the start of the run. Kernel: `bpf_trampoline_enter_t`.
pub type BpfTrampEnter<K> = fn(&Task<K>, &BpfProg<K>, &mut BpfTrampRunCtx) -> u64;

/// Leaves a program that was entered with this start, also if it was 0. Kernel: `bpf_trampoline_exit_t`.
pub type BpfTrampExit<K> = fn(&Task<K>, &BpfProg<K>, u64, &mut BpfTrampRunCtx);

/// The start of a run: [`NO_START_TIME`] with statistics off or a clock at 0. Kernel: `bpf_prog_start_time`.
///
/// Context: pinned.
#[inline(always)]
pub fn bpf_prog_start_time<K: Kconfig>(cpu: &Cpu<K>) -> u64 {
    if !stats_enabled(cpu) {
        return NO_START_TIME;
    }
    match sched_clock(cpu) {
        0 => NO_START_TIME,
        start => start,
    }
}

/// Counts the run that began at `start`, if statistics are on now and were then. Kernel: `update_prog_stats`.
///
/// The duration first, at once, since `ce09cbdd9888`. As in the kernel there is no check for a program without statistics.
///
/// Context: pinned.
///
/// # Panics
/// If it is to count and the program has no statistics.
#[inline(always)]
pub fn update_prog_stats<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>, start: u64) {
    if stats_enabled(cpu) && start > NO_START_TIME {
        let duration = sched_clock(cpu).wrapping_sub(start);
        count_run(cpu, deref_percpu(&prog.stats), duration);
    }
}

/// Makes `run_ctx` the task's run context, keeping the one before in it. Kernel: `bpf_set_run_ctx`.
#[inline(always)]
fn set_run_ctx<K: Kconfig>(task: &Task<K>, run_ctx: &mut BpfTrampRunCtx) {
    run_ctx.saved_run_ctx = task.swap_bpf_ctx(std::ptr::from_ref(run_ctx).addr());
}

/// Puts the task's run context back. Kernel: `bpf_reset_run_ctx`.
#[inline(always)]
fn reset_run_ctx<K: Kconfig>(task: &Task<K>, run_ctx: &mut BpfTrampRunCtx) {
    task.swap_bpf_ctx(run_ctx.saved_run_ctx);
}

/// Takes the recursion guard: the start, or a miss and 0 if this CPU is in the program already.
#[inline(always)]
fn guarded_start<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>) -> u64 {
    if deref_percpu(&prog.active).this_cpu_inc_return(cpu) != 1 {
        bpf_prog_inc_misses_counter(cpu, prog);
        return 0;
    }
    bpf_prog_start_time(cpu)
}

/// Kernel: `__bpf_prog_enter_recur`. Context: task or interrupt; pins.
pub fn __bpf_prog_enter_recur<K: Kconfig>(
    task: &Task<K>,
    prog: &BpfProg<K>,
    run_ctx: &mut BpfTrampRunCtx,
) -> u64 {
    rcu_read_lock(task);
    migrate_disable(task);
    set_run_ctx(task, run_ctx);
    guarded_start(task.cpu(), prog)
}

/// Kernel: `__bpf_prog_exit_recur`. Context: as entered.
pub fn __bpf_prog_exit_recur<K: Kconfig>(
    task: &Task<K>,
    prog: &BpfProg<K>,
    start: u64,
    run_ctx: &mut BpfTrampRunCtx,
) {
    reset_run_ctx(task, run_ctx);
    update_prog_stats(task.cpu(), prog, start);
    deref_percpu(&prog.active).this_cpu_dec(task.cpu());
    migrate_enable(task);
    rcu_read_unlock(task);
}

/// Kernel: `__bpf_prog_enter_sleepable_recur`. Context: task; pins; the program may sleep.
pub fn __bpf_prog_enter_sleepable_recur<K: Kconfig>(
    task: &Task<K>,
    prog: &BpfProg<K>,
    run_ctx: &mut BpfTrampRunCtx,
) -> u64 {
    rcu_read_lock_trace(task);
    migrate_disable(task);
    set_run_ctx(task, run_ctx);
    guarded_start(task.cpu(), prog)
}

/// Kernel: `__bpf_prog_exit_sleepable_recur`. Context: as entered.
pub fn __bpf_prog_exit_sleepable_recur<K: Kconfig>(
    task: &Task<K>,
    prog: &BpfProg<K>,
    start: u64,
    run_ctx: &mut BpfTrampRunCtx,
) {
    reset_run_ctx(task, run_ctx);
    update_prog_stats(task.cpu(), prog, start);
    deref_percpu(&prog.active).this_cpu_dec(task.cpu());
    migrate_enable(task);
    rcu_read_unlock_trace(task);
}

/// Kernel: `__bpf_prog_enter`: no guard, never 0. Context: task or interrupt; pins.
pub fn __bpf_prog_enter<K: Kconfig>(task: &Task<K>, _: &BpfProg<K>, run_ctx: &mut BpfTrampRunCtx) -> u64 {
    rcu_read_lock(task);
    migrate_disable(task);
    set_run_ctx(task, run_ctx);
    bpf_prog_start_time(task.cpu())
}

/// Kernel: `__bpf_prog_exit`. Context: as entered.
pub fn __bpf_prog_exit<K: Kconfig>(
    task: &Task<K>,
    prog: &BpfProg<K>,
    start: u64,
    run_ctx: &mut BpfTrampRunCtx,
) {
    reset_run_ctx(task, run_ctx);
    update_prog_stats(task.cpu(), prog, start);
    migrate_enable(task);
    rcu_read_unlock(task);
}

/// Kernel: `__bpf_prog_enter_sleepable`: no guard, never 0. Context: task; pins; the program may sleep.
pub fn __bpf_prog_enter_sleepable<K: Kconfig>(
    task: &Task<K>,
    _: &BpfProg<K>,
    run_ctx: &mut BpfTrampRunCtx,
) -> u64 {
    rcu_read_lock_trace(task);
    migrate_disable(task);
    set_run_ctx(task, run_ctx);
    bpf_prog_start_time(task.cpu())
}

/// Kernel: `__bpf_prog_exit_sleepable`. Context: as entered.
pub fn __bpf_prog_exit_sleepable<K: Kconfig>(
    task: &Task<K>,
    prog: &BpfProg<K>,
    start: u64,
    run_ctx: &mut BpfTrampRunCtx,
) {
    reset_run_ctx(task, run_ctx);
    update_prog_stats(task.cpu(), prog, start);
    migrate_enable(task);
    rcu_read_unlock_trace(task);
}

/// Kernel: `__bpf_prog_enter_lsm_cgroup`: never timed. In fact nothing selects it: the cgroup shim is given type LSM_MAC.
pub fn __bpf_prog_enter_lsm_cgroup<K: Kconfig>(
    task: &Task<K>,
    _: &BpfProg<K>,
    run_ctx: &mut BpfTrampRunCtx,
) -> u64 {
    rcu_read_lock(task);
    migrate_disable(task);
    set_run_ctx(task, run_ctx);
    NO_START_TIME
}

/// Kernel: `__bpf_prog_exit_lsm_cgroup`: never counts.
pub fn __bpf_prog_exit_lsm_cgroup<K: Kconfig>(
    task: &Task<K>,
    _: &BpfProg<K>,
    _: u64,
    run_ctx: &mut BpfTrampRunCtx,
) {
    reset_run_ctx(task, run_ctx);
    migrate_enable(task);
    rcu_read_unlock(task);
}

/// Whether a program of this kind takes the recursion guard. Kernel: `bpf_prog_check_recur`.
pub fn bpf_prog_check_recur(kind: ProgType) -> bool {
    !matches!(kind, ProgType::TraceIter | ProgType::StructOps | ProgType::Lsm | ProgType::LsmCgroup)
}

/// How a program is entered. Kernel: `bpf_trampoline_enter`.
pub fn bpf_trampoline_enter<K: Kconfig>(prog: &BpfProg<K>) -> BpfTrampEnter<K> {
    match (bpf_prog_check_recur(prog.kind), prog.kind, prog.sleepable) {
        (true, _, true) => __bpf_prog_enter_sleepable_recur,
        (true, _, false) => __bpf_prog_enter_recur,
        (false, ProgType::LsmCgroup, _) => __bpf_prog_enter_lsm_cgroup,
        (false, _, true) => __bpf_prog_enter_sleepable,
        (false, _, false) => __bpf_prog_enter,
    }
}

/// How a program is left. Kernel: `bpf_trampoline_exit`.
pub fn bpf_trampoline_exit<K: Kconfig>(prog: &BpfProg<K>) -> BpfTrampExit<K> {
    match (bpf_prog_check_recur(prog.kind), prog.kind, prog.sleepable) {
        (true, _, true) => __bpf_prog_exit_sleepable_recur,
        (true, _, false) => __bpf_prog_exit_recur,
        (false, ProgType::LsmCgroup, _) => __bpf_prog_exit_lsm_cgroup,
        (false, _, true) => __bpf_prog_exit_sleepable,
        (false, _, false) => __bpf_prog_exit,
    }
}
