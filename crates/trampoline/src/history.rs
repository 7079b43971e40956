//! Older forms of the trampoline path, as whole functions named after the commit that replaced them.

/// `ce09cbdd9888` (6.10 and stable), the seed: the second clock read stood inside the update.
pub mod before_ce09cbdd9888 {
    use filter::prog::deref_percpu;
    use filter::{BpfProg, Kconfig, sched_clock, stats_enabled};
    use percpu::Cpu;
    use stats::{U64Stats, u64_stats_update_begin_irqsave, u64_stats_update_end_irqrestore};

    use crate::NO_START_TIME;

    /// Kernel: `update_prog_stats`, kernel/bpf/trampoline.c, v6.6.0.
    ///
    /// # Panics
    /// If it is to count and the program has no statistics.
    pub fn update_prog_stats<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>, start: u64) {
        if stats_enabled(cpu) && start > NO_START_TIME {
            let stats = deref_percpu(&prog.stats).this_cpu_ptr(cpu);
            let flags = u64_stats_update_begin_irqsave(&stats.syncp, cpu);
            stats.cnt.inc();
            stats.nsecs.add(sched_clock(cpu).wrapping_sub(start));
            u64_stats_update_end_irqrestore(&stats.syncp, cpu, flags);
        }
    }
}

/// `d979617aa84d` (5.16): the update did not mask interrupts, so that on 32-bit an interrupt inside it lost counts.
pub mod before_d979617aa84d {
    use filter::prog::deref_percpu;
    use filter::{BpfProg, Kconfig, sched_clock, stats_enabled};
    use percpu::PreemptGuard;
    use stats::{U64Stats, u64_stats_update_begin, u64_stats_update_end};

    use crate::NO_START_TIME;

    /// Kernel: `update_prog_stats`, kernel/bpf/trampoline.c, v5.15, with today's order of duration and update.
    ///
    /// Context: preemption off, as the guard shows.
    ///
    /// # Panics
    /// If it is to count and the program has no statistics.
    pub fn update_prog_stats<K: Kconfig>(cpu: &PreemptGuard<'_, K>, prog: &BpfProg<K>, start: u64) {
        if stats_enabled(cpu) && start > NO_START_TIME {
            let duration = sched_clock(cpu).wrapping_sub(start);
            let stats = deref_percpu(&prog.stats).this_cpu_ptr(cpu);
            u64_stats_update_begin(&stats.syncp, cpu);
            stats.cnt.inc();
            stats.nsecs.add(duration);
            u64_stats_update_end(&stats.syncp, cpu);
        }
    }
}

/// `c89e843a11f1` (6.1): the guard was incremented by a load, an add and a store, which a task that preempts between them
/// on the same CPU undoes: both get in, or the guard stays up for ever.
pub mod before_c89e843a11f1 {
    use filter::prog::deref_percpu;
    use filter::{BpfProg, Kconfig};
    use percpu::Cpu;

    /// Takes the guard; true if this CPU was not in the program. Kernel: `__this_cpu_inc_return(*(prog->active)) == 1`,
    /// v6.0, which generic per-CPU code makes of three steps; `between` stands where a preemption may come.
    ///
    /// # Panics
    /// If the program has no guard.
    pub fn take_guard<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>, between: impl FnOnce()) -> bool {
        let active = deref_percpu(&prog.active).this_cpu_ptr(cpu);
        let v = active.get().wrapping_add(1);
        between();
        active.set(v);
        v == 1
    }
}

/// `dc7d7447b56b` (arm64) and `10541b374aa0` (riscv), both 6.9: the generated code kept the start after the branch that
/// skips the program, so a skipped run reached exit with whatever the place held: the start of an earlier program.
pub mod before_dc7d7447b56b {
    use filter::{BpfCtx, BpfProg, Kconfig};
    use percpu::Task;

    use crate::trampoline::{BpfTrampRunCtx, bpf_trampoline_enter, bpf_trampoline_exit};

    /// Kernel: `invoke_bpf_prog`, arch/arm64/net/bpf_jit_comp.c, v6.8. `kept` is the place on the trampoline's stack
    /// (there a callee-saved register), shared by the programs of one trampoline.
    pub fn invoke_bpf_prog<K: Kconfig>(
        task: &Task<K>,
        prog: &BpfProg<K>,
        cookie: u64,
        ctx: &mut BpfCtx<'_>,
        kept: &mut u64,
    ) -> Option<u32> {
        let mut run_ctx = BpfTrampRunCtx::new(cookie);
        let start = bpf_trampoline_enter(prog)(task, prog, &mut run_ctx);
        let ret = (start != 0).then(|| {
            *kept = start;
            prog.bpf_func.call(task.cpu(), ctx)
        });
        bpf_trampoline_exit(prog)(task, prog, *kept, &mut run_ctx);
        ret
    }
}

/// `f2dd3b394674` (5.12): programs that may sleep were entered and left by functions of their own, which counted nothing.
pub mod before_f2dd3b394674 {
    use filter::{BpfCtx, BpfProg, Kconfig};
    use percpu::{Task, rcu_read_lock_trace, rcu_read_unlock_trace};

    /// Kernel: `__bpf_prog_enter_sleepable` and `__bpf_prog_exit_sleepable`, kernel/bpf/trampoline.c, v5.11, around the
    /// call that `invoke_bpf_prog` generated between them.
    ///
    /// Context: task.
    pub fn invoke_sleepable<K: Kconfig>(task: &Task<K>, prog: &BpfProg<K>, ctx: &mut BpfCtx<'_>) -> u32 {
        rcu_read_lock_trace(task);
        let ret = prog.bpf_func.call(task.raw_cpu(), ctx);
        rcu_read_unlock_trace(task);
        ret
    }
}
