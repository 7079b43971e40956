//! Older forms of the run path, as whole functions named after the commit that replaced them.

/// `ce09cbdd9888` (6.10 and stable), the seed: until then the second clock read stood inside the update, as the argument
/// of the add, so the reported time held the update's first half, with the miss of a cold statistics line.
pub mod before_ce09cbdd9888 {
    use percpu::{Cpu, cant_migrate};
    use stats::{U64Stats, u64_stats_update_begin_irqsave, u64_stats_update_end_irqrestore};

    use crate::prog::{BpfCtx, BpfFunc, BpfProg, deref_percpu};
    use crate::{Kconfig, bpf_dispatcher_nop_func, sched_clock, stats_enabled};

    /// Kernel: `__bpf_prog_run`, include/linux/filter.h, v6.6.0.
    ///
    /// Differs: the timed arm is out of line, as it is in today's form.
    ///
    /// # Panics
    /// If statistics are on and the program has none: also the check of `7dc211c1159d` is not there yet.
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

    #[inline(never)]
    fn __bpf_prog_run_timed<K: Kconfig>(
        cpu: &Cpu<K>,
        prog: &BpfProg<K>,
        ctx: &mut BpfCtx<'_>,
        dfunc: impl FnOnce(&Cpu<K>, &mut BpfCtx<'_>, &dyn BpfFunc<K>) -> u32,
    ) -> u32 {
        let start = sched_clock(cpu);
        let ret = dfunc(cpu, ctx, &*prog.bpf_func);
        let stats = deref_percpu(&prog.stats).this_cpu_ptr(cpu);
        let flags = u64_stats_update_begin_irqsave(&stats.syncp, cpu);
        stats.cnt.inc();
        stats.nsecs.add(sched_clock(cpu).wrapping_sub(start));
        u64_stats_update_end_irqrestore(&stats.syncp, cpu, flags);
        ret
    }

    /// Kernel: `bpf_prog_run`, v6.6.0.
    #[inline(always)]
    pub fn bpf_prog_run<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>, ctx: &mut BpfCtx<'_>) -> u32 {
        __bpf_prog_run(cpu, prog, ctx, bpf_dispatcher_nop_func)
    }
}

/// `7dc211c1159d` (6.19 and stable): until then neither the run nor the misses checked that the program has statistics,
/// and the placeholder that a failed detach leaves in a program array has none.
pub mod before_7dc211c1159d {
    use percpu::{Cpu, cant_migrate};
    use stats::{U64Stats, u64_stats_update_begin_irqsave, u64_stats_update_end_irqrestore};

    use crate::prog::{BpfCtx, BpfFunc, BpfProg, deref_percpu};
    use crate::prog_stats::count_run;
    use crate::{Kconfig, sched_clock, stats_enabled};

    /// Kernel: `__bpf_prog_run`, include/linux/filter.h, v6.10.
    ///
    /// # Panics
    /// If statistics are on and the program has none: the kernel wrote to some address.
    pub fn __bpf_prog_run<K: Kconfig>(
        cpu: &Cpu<K>,
        prog: &BpfProg<K>,
        ctx: &mut BpfCtx<'_>,
        dfunc: impl FnOnce(&Cpu<K>, &mut BpfCtx<'_>, &dyn BpfFunc<K>) -> u32,
    ) -> u32 {
        cant_migrate(cpu);
        if !stats_enabled(cpu) {
            return dfunc(cpu, ctx, &*prog.bpf_func);
        }
        let start = sched_clock(cpu);
        let ret = dfunc(cpu, ctx, &*prog.bpf_func);
        let duration = sched_clock(cpu).wrapping_sub(start);
        count_run(cpu, deref_percpu(&prog.stats), duration);
        ret
    }

    /// Kernel: `bpf_prog_inc_misses_counter`, kernel/bpf/syscall.c, v6.10.
    ///
    /// # Panics
    /// If the program has no statistics.
    pub fn bpf_prog_inc_misses_counter<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>) {
        let stats = deref_percpu(&prog.stats).this_cpu_ptr(cpu);
        let flags = u64_stats_update_begin_irqsave(&stats.syncp, cpu);
        stats.misses.inc();
        u64_stats_update_end_irqrestore(&stats.syncp, cpu, flags);
    }
}

/// `f941eadd8d6d` (5.16): until then the update did not mask interrupts, and on 32-bit an interrupt that ran the same
/// program inside the section lost counts and left the sequence wrong.
pub mod before_f941eadd8d6d {
    use percpu::{Cpu, PreemptGuard};
    use stats::{U64Stats, u64_stats_update_begin, u64_stats_update_end};

    use crate::prog::{BpfCtx, BpfFunc, BpfProg, deref_percpu};
    use crate::{Kconfig, bpf_dispatcher_nop_func, sched_clock, stats_enabled};

    /// Kernel: `__BPF_PROG_RUN`, include/linux/filter.h, v5.15; with today's order of duration and update, so that it
    /// differs from the present form in one thing.
    ///
    /// Context: preemption off, as the caller's guard shows.
    ///
    /// # Panics
    /// If statistics are on and the program has none.
    #[inline(always)]
    pub fn __bpf_prog_run<K: Kconfig>(
        cpu: &PreemptGuard<'_, K>,
        prog: &BpfProg<K>,
        ctx: &mut BpfCtx<'_>,
        dfunc: impl FnOnce(&Cpu<K>, &mut BpfCtx<'_>, &dyn BpfFunc<K>) -> u32,
    ) -> u32 {
        if !stats_enabled(cpu) {
            return dfunc(cpu, ctx, &*prog.bpf_func);
        }
        let start = sched_clock(cpu);
        let ret = dfunc(cpu, ctx, &*prog.bpf_func);
        let duration = sched_clock(cpu).wrapping_sub(start);
        let stats = deref_percpu(&prog.stats).this_cpu_ptr(cpu);
        u64_stats_update_begin(&stats.syncp, cpu);
        stats.cnt.inc();
        stats.nsecs.add(duration);
        u64_stats_update_end(&stats.syncp, cpu);
        ret
    }

    /// Kernel: `BPF_PROG_RUN`, v5.15.
    #[inline(always)]
    pub fn bpf_prog_run<K: Kconfig>(
        cpu: &PreemptGuard<'_, K>,
        prog: &BpfProg<K>,
        ctx: &mut BpfCtx<'_>,
    ) -> u32 {
        __bpf_prog_run(cpu, prog, ctx, bpf_dispatcher_nop_func)
    }
}

/// `61a0abaee209` (5.16): the counters were plain 64-bit fields, so that a compiler could update them by any writes that
/// end in the right value.
pub mod before_61a0abaee209 {
    use percpu::Cpu;
    use stats::{U64Stats, u64_stats_update_begin_irqsave, u64_stats_update_end_irqrestore};

    use crate::prog::{BpfCtx, BpfProg, deref_percpu};
    use crate::{Kconfig, sched_clock, stats_enabled};

    /// Kernel: `__BPF_PROG_RUN`, include/linux/filter.h, v5.15, as the commit says that a compiler may translate it: the
    /// time of the end is added, and the time of the start taken away, one after the other.
    ///
    /// Context: pinned.
    ///
    /// # Panics
    /// If statistics are on and the program has none.
    pub fn bpf_prog_run<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>, ctx: &mut BpfCtx<'_>) -> u32 {
        if !stats_enabled(cpu) {
            return prog.bpf_func.call(cpu, ctx);
        }
        let start = sched_clock(cpu);
        let ret = prog.bpf_func.call(cpu, ctx);
        let stats = deref_percpu(&prog.stats).this_cpu_ptr(cpu);
        let flags = u64_stats_update_begin_irqsave(&stats.syncp, cpu);
        stats.cnt.inc();
        stats.nsecs.add(sched_clock(cpu));
        stats.nsecs.add(start.wrapping_neg());
        u64_stats_update_end_irqrestore(&stats.syncp, cpu, flags);
        ret
    }
}
