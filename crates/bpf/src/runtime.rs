//! Programs on simulated CPUs: what makes a loaded [`Program`] a [`BpfProg`] of a machine. Kernel: `bpf_prog_load` and
//! `bpf_prog_select_runtime` (kernel/bpf/core.c), which set `prog->bpf_func`, v6.6.
//!
//! This is the engine's one generic file: the interpreter knows no machine, and is handed the CPU as an [`Env`].

use std::sync::Arc;

use filter::{Abort, BpfCtx, BpfFunc, BpfProg, Kconfig, ProgType, sched_clock};
use percpu::{
    Cpu, IrqFlags, Pcpu, PerCpu, Task, local_irq_restore, local_irq_save, migrate_disable, migrate_enable,
};
use sync::host::Ordering::Relaxed;
use sync::local::LocalU32;

use crate::env::Env;
use crate::errno::Errno;
use crate::interp;
use crate::prog::Program;

/// Allocates a program of a machine. Kernel: the part of `bpf_prog_load` after the verifier.
///
/// Context: task; may sleep.
///
/// # Errors
/// [`Errno::ENOMEM`] if its guard or its statistics cannot be had.
pub fn bpf_prog_load<K: Kconfig>(
    pcpu: &Pcpu,
    kind: ProgType,
    program: Arc<Program>,
) -> Result<BpfProg<K>, Errno> {
    BpfProg::alloc_shared(pcpu, kind, program).map_err(|_| Errno::ENOMEM)
}

impl<K: Kconfig> BpfFunc<K> for Program {
    fn call(&self, cpu: &Cpu<K>, ctx: &mut BpfCtx<'_>) -> u32 {
        match interp::run(self, ctx.mem, &OnCpu { cpu, program: self }) {
            Ok(r0) => r0 as u32,
            Err(fault) => {
                ctx.abort = Some(Abort { insn: fault.pc, why: fault.kind.why() });
                0
            }
        }
    }
}

/// The CPU and task that a program runs on.
struct OnCpu<'a, K: Kconfig> {
    cpu: &'a Cpu<K>,
    program: &'a Program,
}

impl<K: Kconfig> Env for OnCpu<'_, K> {
    fn smp_processor_id(&self) -> u32 {
        self.cpu.smp_processor_id() as u32
    }

    fn ktime_get_ns(&self) -> u64 {
        sched_clock(self.cpu)
    }

    fn get_prandom_u32(&self) -> u32 {
        // splitmix64: a counter through a mixer.
        let mut z = self.program.random.fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z >> 32) as u32
    }

    fn current_pid_tgid(&self) -> u64 {
        u64::from(self.program.tgid) << 32 | u64::from(self.cpu.pid().unsigned_abs())
    }

    fn current_comm(&self) -> [u8; 16] {
        self.cpu.comm()
    }

    fn trace_printk(&self, line: &[u8]) {
        if let Some(trace) = &self.program.trace {
            trace.push(line);
        }
    }

    fn local_irq_save(&self) -> usize {
        local_irq_save(self.cpu).into_raw()
    }

    fn local_irq_restore(&self, flags: usize) {
        local_irq_restore(self.cpu, IrqFlags::from_raw(flags));
    }
}

/// The system call side of a machine: a task that reads and changes maps. Kernel: kernel/bpf/syscall.c.
pub struct OnTask<'a, K: Kconfig>(pub &'a Task<K>);

impl<K: Kconfig> OnTask<'_, K> {
    fn prog_active(&self) -> &PerCpu<LocalU32> {
        &K::globals(self.0.raw_cpu().globals()).bpf_prog_active
    }
}

impl<K: Kconfig> Env for OnTask<'_, K> {
    fn smp_processor_id(&self) -> u32 {
        self.0.raw_cpu().smp_processor_id() as u32
    }

    fn ktime_get_ns(&self) -> u64 {
        sched_clock(&self.0.migrate_disable())
    }

    fn get_prandom_u32(&self) -> u32 {
        // No program asks: none runs here.
        0
    }

    fn current_pid_tgid(&self) -> u64 {
        u64::from(std::process::id()) << 32 | u64::from(self.0.pid().unsigned_abs())
    }

    fn current_comm(&self) -> [u8; 16] {
        self.0.comm()
    }

    fn trace_printk(&self, _: &[u8]) {}

    fn local_irq_save(&self) -> usize {
        local_irq_save(self.0).into_raw()
    }

    fn local_irq_restore(&self, flags: usize) {
        local_irq_restore(self.0, IrqFlags::from_raw(flags));
    }

    fn bpf_disable_instrumentation(&self) {
        migrate_disable(self.0);
        self.prog_active().this_cpu_inc_return(self.0.cpu());
    }

    fn bpf_enable_instrumentation(&self) {
        self.prog_active().this_cpu_dec(self.0.cpu());
        migrate_enable(self.0);
    }
}
