//! Running a program, timed if statistics are on. Kernel: include/linux/filter.h, v6.6 with `ce09cbdd9888` and
//! `7dc211c1159d`.

use percpu::{Cpu, Task, cant_migrate};

use crate::Kconfig;
use crate::clock::sched_clock;
use crate::prog::{BPF_SKB_CB_LEN, BpfCtx, BpfFunc, BpfProg};
use crate::prog_stats::count_run;
use crate::stats_enabled;

/// Runs `prog` through the dispatcher `dfunc`; returns the low half of its r0. Kernel: `__bpf_prog_run`.
///
/// Differs: the timed arm is out of line, so that the off path keeps no registers for it.
///
/// Context: pinned ([`cant_migrate`]); any otherwise.
#[inline(always)]
pub fn __bpf_prog_run<K: Kconfig>(
    cpu: &Cpu<K>,
    prog: &BpfProg<K>,
    ctx: &mut BpfCtx<'_>,
    dfunc: impl FnOnce(&Cpu<K>, &mut BpfCtx<'_>, &dyn BpfFunc<K>) -> u32,
) -> u32 {
    cant_migrate(cpu);
    if stats_enabled(cpu) {
        __bpf_prog_run_timed(cpu, prog, ctx, dfunc)
    } else {
        dfunc(cpu, ctx, &*prog.bpf_func)
    }
}

/// The other arm: the duration first, at once, and then, if the program has statistics, the update.
#[inline(never)]
fn __bpf_prog_run_timed<K: Kconfig>(
    cpu: &Cpu<K>,
    prog: &BpfProg<K>,
    ctx: &mut BpfCtx<'_>,
    dfunc: impl FnOnce(&Cpu<K>, &mut BpfCtx<'_>, &dyn BpfFunc<K>) -> u32,
) -> u32 {
    let start = sched_clock(cpu);
    let ret = dfunc(cpu, ctx, &*prog.bpf_func);
    let duration = sched_clock(cpu).wrapping_sub(start);
    if let Some(stats) = &prog.stats {
        count_run(cpu, stats, duration);
    }
    ret
}

/// The dispatcher that just calls. Kernel: `bpf_dispatcher_nop_func`, include/linux/bpf.h.
#[inline(always)]
pub fn bpf_dispatcher_nop_func<K: Kconfig>(cpu: &Cpu<K>, ctx: &mut BpfCtx<'_>, f: &dyn BpfFunc<K>) -> u32 {
    f.call(cpu, ctx)
}

/// Runs `prog`. Kernel: `bpf_prog_run`.
///
/// Context: pinned.
#[inline(always)]
pub fn bpf_prog_run<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>, ctx: &mut BpfCtx<'_>) -> u32 {
    __bpf_prog_run(cpu, prog, ctx, bpf_dispatcher_nop_func)
}

/// Runs `prog` with migration off around it. Kernel: `bpf_prog_run_pin_on_cpu`.
///
/// Context: task.
pub fn bpf_prog_run_pin_on_cpu<K: Kconfig>(task: &Task<K>, prog: &BpfProg<K>, ctx: &mut BpfCtx<'_>) -> u32 {
    bpf_prog_run(&task.migrate_disable(), prog, ctx)
}

/// Runs a socket program: its control block, if it uses one, is zeroed for it and put back. Kernel:
/// `bpf_prog_run_save_cb`.
///
/// Context: task or softirq; pins itself.
pub fn bpf_prog_run_save_cb<K: Kconfig>(task: &Task<K>, prog: &BpfProg<K>, ctx: &mut BpfCtx<'_>) -> u32 {
    let cpu = task.migrate_disable();
    let saved = ctx.cb.as_deref().copied().filter(|_| prog.cb_access);
    clear_cb(prog, ctx);
    let ret = bpf_prog_run(&cpu, prog, ctx);
    if let (Some(cb), Some(saved)) = (ctx.cb.as_deref_mut(), saved) {
        *cb = saved;
    }
    ret
}

/// The same, and the control block is not put back: the packet is ours. Kernel: `bpf_prog_run_clear_cb`.
///
/// Context: task; pins itself.
pub fn bpf_prog_run_clear_cb<K: Kconfig>(task: &Task<K>, prog: &BpfProg<K>, ctx: &mut BpfCtx<'_>) -> u32 {
    clear_cb(prog, ctx);
    bpf_prog_run_pin_on_cpu(task, prog, ctx)
}

fn clear_cb<K: Kconfig>(prog: &BpfProg<K>, ctx: &mut BpfCtx<'_>) {
    if let Some(cb) = ctx.cb.as_deref_mut()
        && prog.cb_access
    {
        *cb = [0; BPF_SKB_CB_LEN];
    }
}
