//! Reading a program's statistics, and counting its misses. Kernel: kernel/bpf/syscall.c, v6.6 with `7dc211c1159d`.

use percpu::{Cpu, PerCpu};
use stats::u64_stats::read;
use stats::{U64Stats, u64_stats_update_begin_irqsave, u64_stats_update_end_irqrestore};

use crate::Kconfig;
use crate::prog::{BpfProg, BpfProgStats, deref_percpu};

/// A program's statistics, summed over CPUs. Kernel: `struct bpf_prog_kstats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BpfProgKstats {
    /// Time of all counted runs, in ns.
    pub nsecs: u64,
    /// Counted runs.
    pub cnt: u64,
    /// Refused runs.
    pub misses: u64,
}

/// Sums a program's statistics over the possible CPUs, wrapping. Kernel: `bpf_prog_get_stats`.
///
/// Each CPU's three counters are read together, consistently where the form allows it (32-bit); the CPUs one after the
/// other. As in the kernel there is no check for a program without statistics.
///
/// Context: any but on top of an update of this program.
///
/// # Panics
/// If the program has no statistics.
pub fn bpf_prog_get_stats<K: Kconfig>(prog: &BpfProg<K>) -> BpfProgKstats {
    deref_percpu(&prog.stats).iter_possible().fold(BpfProgKstats::default(), |sum, cpu| {
        let (nsecs, cnt, misses) = read(&cpu.syncp, || (cpu.nsecs.read(), cpu.cnt.read(), cpu.misses.read()));
        BpfProgKstats {
            nsecs: sum.nsecs.wrapping_add(nsecs),
            cnt: sum.cnt.wrapping_add(cnt),
            misses: sum.misses.wrapping_add(misses),
        }
    })
}

/// Counts a run that was refused. Kernel: `bpf_prog_inc_misses_counter`.
///
/// Not behind the key: misses count with statistics off. A program without statistics is skipped (since `7dc211c1159d`).
///
/// Context: pinned; any.
pub fn bpf_prog_inc_misses_counter<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>) {
    let Some(stats) = &prog.stats else { return };
    let stats = stats.this_cpu_ptr(cpu);
    let flags = u64_stats_update_begin_irqsave(&stats.syncp, cpu);
    stats.misses.inc();
    u64_stats_update_end_irqrestore(&stats.syncp, cpu, flags);
}

/// Counts a run of `duration` ns on this CPU: the section that the run path and the trampoline share.
#[inline(always)]
pub fn count_run<K: Kconfig>(cpu: &Cpu<K>, stats: &PerCpu<BpfProgStats<K>>, duration: u64) {
    let stats = stats.this_cpu_ptr(cpu);
    let flags = u64_stats_update_begin_irqsave(&stats.syncp, cpu);
    stats.cnt.inc();
    stats.nsecs.add(duration);
    u64_stats_update_end_irqrestore(&stats.syncp, cpu, flags);
}
