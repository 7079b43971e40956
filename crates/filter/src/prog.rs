//! A program and its statistics. Kernel: `struct bpf_prog`, `struct bpf_prog_stats`, include/linux/{bpf,filter}.h;
//! `bpf_prog_alloc`, kernel/bpf/core.c, v6.6.

use std::fmt;
use std::sync::Arc;

use percpu::{AllocError, Cpu, Pcpu, PerCpu};
use stats::{Form, U64Stats, U64StatsSync};
use sync::local::LocalU32;

use crate::Kconfig;

/// The counter and the sync object of configuration `K`.
type U64<K> = <<K as stats::Kconfig>::Form as Form>::U64;
type Sync<K> = <<K as stats::Kconfig>::Form as Form>::Sync;

/// What one CPU counted of a program. Kernel: `struct bpf_prog_stats`: 32 bytes, aligned to 16 (more on virtual machines,
/// whose counters announce themselves).
#[repr(C, align(16))]
pub struct BpfProgStats<K: stats::Kconfig> {
    /// Runs.
    pub cnt: U64<K>,
    /// Their time, in ns.
    pub nsecs: U64<K>,
    /// Runs refused by a recursion guard.
    pub misses: U64<K>,
    /// What makes the three readable together (on 32-bit).
    pub syncp: Sync<K>,
}

impl<K: stats::Kconfig> BpfProgStats<K> {
    /// Counters that start at `v`; in a kernel always 0. Others make a carry happen soon.
    pub fn starting_at(v: u64) -> Self {
        Self {
            cnt: U64::<K>::new("cnt", v),
            nsecs: U64::<K>::new("nsecs", v),
            misses: U64::<K>::new("misses", v),
            syncp: Sync::<K>::new(),
        }
    }
}

/// What a program is run on, and how its run ended.
#[derive(Debug, Default)]
pub struct BpfCtx<'a> {
    /// The memory that r1 points to.
    pub mem: &'a mut [u8],
    /// An skb's control block, which socket programs may use. Kernel: `qdisc_skb_cb.data`.
    pub cb: Option<&'a mut [u8; BPF_SKB_CB_LEN]>,
    /// The run was ended because the program did what it may not. A kernel's verifier proves that it never does; here it
    /// is checked as it runs.
    pub abort: Option<Abort>,
}

/// Kernel: `BPF_SKB_CB_LEN`.
pub const BPF_SKB_CB_LEN: usize = 20;

impl<'a> BpfCtx<'a> {
    /// A context of this memory.
    pub fn new(mem: &'a mut [u8]) -> Self {
        Self { mem, cb: None, abort: None }
    }
}

/// Why a run was ended: at instruction `insn`, and in a few words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// The instruction's index.
    pub insn: u32,
    /// What it did.
    pub why: &'static str,
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "insn {}: {}", self.insn, self.why)
    }
}

/// A program's text and what runs it: the pair `prog->insnsi` and `prog->bpf_func` as one.
pub trait BpfFunc<K: Kconfig>: Send + std::marker::Sync {
    /// Runs the text; returns the low half of r0.
    ///
    /// Context: any; async-signal-safe, may be nested in itself.
    fn call(&self, cpu: &Cpu<K>, ctx: &mut BpfCtx<'_>) -> u32;
}

/// A Rust function as a program's text, for tests and bare measurements.
impl<K: Kconfig, F: Fn(&Cpu<K>, &mut BpfCtx<'_>) -> u32 + Send + std::marker::Sync> BpfFunc<K> for F {
    fn call(&self, cpu: &Cpu<K>, ctx: &mut BpfCtx<'_>) -> u32 {
        self(cpu, ctx)
    }
}

/// The program types and attach types that decide how a program is entered. Kernel: `enum bpf_prog_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the kernel's names say it")]
pub enum ProgType {
    SocketFilter,
    RawTracepoint,
    /// fentry, fexit, fmod_ret.
    Tracing,
    /// An iterator: TRACING with attach type TRACE_ITER.
    TraceIter,
    Lsm,
    /// LSM with attach type LSM_CGROUP.
    LsmCgroup,
    StructOps,
    Ext,
}

/// A loaded program. Kernel: `struct bpf_prog`.
pub struct BpfProg<K: Kconfig> {
    /// What runs.
    pub bpf_func: Arc<dyn BpfFunc<K>>,
    /// What was counted, for each possible CPU. None for subprograms and the placeholder of program arrays.
    pub stats: Option<PerCpu<BpfProgStats<K>>>,
    /// The recursion guard, for each possible CPU.
    pub active: Option<PerCpu<LocalU32>>,
    /// Kernel: `prog->type` and what of `expected_attach_type` matters here.
    pub kind: ProgType,
    /// May sleep. Kernel: `prog->aux->sleepable`.
    pub sleepable: bool,
    /// Uses the skb's control block. Kernel: `prog->cb_access`.
    pub cb_access: bool,
}

impl<K: Kconfig> BpfProg<K> {
    /// A program with its guard and its counters at 0. Kernel: `bpf_prog_alloc`.
    ///
    /// Context: task; may sleep.
    ///
    /// # Errors
    /// [`AllocError`] (the kernel: NULL, which callers make ENOMEM) if either cannot be had; nothing is leaked.
    pub fn alloc(pcpu: &Pcpu, kind: ProgType, f: impl BpfFunc<K> + 'static) -> Result<Self, AllocError> {
        Self::alloc_shared(pcpu, kind, Arc::new(f))
    }

    /// The same, of a text that others hold too.
    ///
    /// # Errors
    /// As [`BpfProg::alloc`].
    pub fn alloc_shared(pcpu: &Pcpu, kind: ProgType, f: Arc<dyn BpfFunc<K>>) -> Result<Self, AllocError> {
        let mut prog = Self::no_stats(pcpu, kind, f)?;
        prog.stats = Some(pcpu.alloc(|_| BpfProgStats::starting_at(0))?);
        Ok(prog)
    }

    /// A program with a guard and no counters, as subprograms are. Kernel: `bpf_prog_alloc_no_stats`.
    ///
    /// # Errors
    /// As [`BpfProg::alloc`].
    pub fn alloc_no_stats(
        pcpu: &Pcpu,
        kind: ProgType,
        f: impl BpfFunc<K> + 'static,
    ) -> Result<Self, AllocError> {
        Self::no_stats(pcpu, kind, Arc::new(f))
    }

    fn no_stats(pcpu: &Pcpu, kind: ProgType, bpf_func: Arc<dyn BpfFunc<K>>) -> Result<Self, AllocError> {
        let active = Some(pcpu.alloc(|_| LocalU32::new(0))?);
        Ok(Self { bpf_func, stats: None, active, kind, sleepable: false, cb_access: false })
    }
}

/// A per-CPU pointer that must be there. A null one is no address 0 once the CPU's offset is added, so the kernel that
/// follows one writes to some address; here that is trapped.
///
/// # Panics
/// If it is not there.
#[inline(always)]
pub fn deref_percpu<T>(ptr: &Option<PerCpu<T>>) -> &PerCpu<T> {
    match ptr {
        Some(p) => p,
        None => null_percpu(),
    }
}

#[cold]
#[inline(never)]
fn null_percpu() -> ! {
    panic!("BUG: a null per-CPU pointer was followed")
}
