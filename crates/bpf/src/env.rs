//! What a running program may ask of the CPU and task it runs on. Mirrors the sources that helpers read:
//! `raw_smp_processor_id`, `ktime_get_mono_fast_ns`, `current`, `trace_printk`, and
//! `bpf_disable_instrumentation` (include/linux/bpf.h), v6.6.
//!
//! The engine does not know the machine: a shim implements [`Env`] for a simulated CPU. [`PlainEnv`] is one
//! without a machine, for a single run.

use sync::host::{AtomicU64, Ordering::Relaxed};

use crate::trace::TraceBuf;

/// The CPU and task that a program runs on.
///
/// Context: any, interrupts included: implementations must be async-signal-safe (no allocation, lock, system
/// call, or panic).
pub trait Env {
    /// The CPU's number, below the number of CPUs that the program's maps were made for. It does not change
    /// while a program runs.
    fn smp_processor_id(&self) -> u32;
    /// Monotonic time in ns.
    fn ktime_get_ns(&self) -> u64;
    /// Time since boot in ns, with suspended time.
    fn ktime_get_boot_ns(&self) -> u64 {
        self.ktime_get_ns()
    }
    /// A pseudo-random number.
    fn get_prandom_u32(&self) -> u32;
    /// The thread group's id in the high half, the thread's in the low half.
    fn current_pid_tgid(&self) -> u64;
    /// The group's id in the high half, the user's in the low half.
    fn current_uid_gid(&self) -> u64 {
        0
    }
    /// The task's name, padded with zeroes.
    fn current_comm(&self) -> [u8; 16];
    /// Takes one line of `bpf_trace_printk`.
    fn trace_printk(&self, line: &[u8]);
    /// Keeps this CPU's interrupts away until [`Env::local_irq_restore`]; returns what was before. Maps lock
    /// under it.
    fn local_irq_save(&self) -> usize {
        0
    }
    /// Takes back one [`Env::local_irq_save`].
    fn local_irq_restore(&self, flags: usize) {
        let _ = flags;
    }
    /// A map is about to be changed from the syscall side: raises `bpf_prog_active` on this CPU, so that
    /// tracing programs do not run in the middle. Kernel: `bpf_disable_instrumentation`.
    fn bpf_disable_instrumentation(&self) {}
    /// Takes back one [`Env::bpf_disable_instrumentation`].
    fn bpf_enable_instrumentation(&self) {}
}

/// CPU 0 of no machine: time is the number of questions asked, the task is `progstats`, printed lines go to a
/// buffer.
#[derive(Debug)]
pub struct PlainEnv {
    cpu: u32,
    now: AtomicU64,
    random: AtomicU64,
    /// The lines printed.
    pub trace: TraceBuf,
}

impl PlainEnv {
    /// An environment on CPU `cpu`. Allocates: not for interrupts.
    pub fn new(cpu: u32) -> Self {
        Self { cpu, now: AtomicU64::new(0), random: AtomicU64::new(u64::from(cpu)), trace: TraceBuf::new(64) }
    }
}

impl Default for PlainEnv {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Env for PlainEnv {
    fn smp_processor_id(&self) -> u32 {
        self.cpu
    }

    fn ktime_get_ns(&self) -> u64 {
        self.now.fetch_add(1, Relaxed) + 1
    }

    fn get_prandom_u32(&self) -> u32 {
        // splitmix64: a counter through a mixer.
        let mut z = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z >> 32) as u32
    }

    fn current_pid_tgid(&self) -> u64 {
        1 << 32 | 1
    }

    fn current_comm(&self) -> [u8; 16] {
        *b"progstats\0\0\0\0\0\0\0"
    }

    fn trace_printk(&self, line: &[u8]) {
        self.trace.push(line);
    }
}
