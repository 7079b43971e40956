//! The simulation's side of the questions: a machine, programs of each type, and test runs of them.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use bpf::Errno;
use bpf::syscall::{BPF_ENABLE_STATS, Cap, Cred, Process};
use filter::clock::OtherClock;
use filter::{
    BpfCtx, BpfFunc, BpfProg, BpfProgKstats, Config, Kconfig, ProgType, bpf_dispatcher_nop_func,
    bpf_prog_get_stats, bpf_prog_run, history,
};
use host::Release;
use host::caller::Rights;
use jump_label::AtomicKey;
use percpu::{Cpu, Machine, NoSteps, Topology};
use stats::Bits64;
use trampoline::invoke_bpf_prog;

/// The configuration: 64-bit, as hosts are.
pub(super) type K = Config<Bits64, OtherClock>;

/// The body of a program that does nothing.
pub(super) fn nothing(_: &Cpu<K>, _: &mut BpfCtx<'_>) -> u32 {
    0
}

/// A machine of two CPUs that runs programs as kernels of a release do.
pub(super) struct Sim {
    pub(super) machine: Machine<K>,
    release: Release,
}

impl Sim {
    pub(super) fn new(release: Release) -> Result<Self> {
        let machine =
            filter::machine::<Bits64, _, AtomicKey, _>(Topology::smp(2), NoSteps, OtherClock::os())?;
        Ok(Self { machine, release })
    }

    pub(super) fn process(&self, rights: Rights) -> Process<'_, K> {
        let cred = match rights {
            Rights::All => Cred::ROOT,
            Rights::WithoutSysAdmin => Cred::user(0).with(Cap::NetAdmin).with(Cap::Perfmon).with(Cap::Bpf),
            Rights::Nobody => Cred::user(65534),
        };
        Process::new(&self.machine, cred)
    }

    /// Whether the key is on.
    pub(super) fn key(&self) -> &AtomicKey {
        &self.machine.globals().bpf_stats_enabled_key
    }

    pub(super) fn program(&self, kind: ProgType, f: impl BpfFunc<K> + 'static) -> Result<Arc<BpfProg<K>>> {
        Ok(Arc::new(BpfProg::alloc(self.machine.pcpu(), kind, f)?))
    }

    /// Does `f` on a CPU.
    pub(super) fn on_cpu<R: Send>(&self, f: impl FnOnce(&Cpu<K>) -> R + Send) -> Result<R> {
        self.machine.boot(|smp| smp.run(0, f)).map_err(|e| anyhow!("{e}"))
    }

    /// A run in the form of the release: the baseline is 6.6 with both fixes; mainline got them with 6.10 and 6.19.
    pub(super) fn run(&self, cpu: &Cpu<K>, prog: &BpfProg<K>, ctx: &mut BpfCtx<'_>) -> u32 {
        match self.release {
            r if r <= Release(6, 6) || r >= Release(6, 19) => bpf_prog_run(cpu, prog, ctx),
            r if r < Release(6, 10) => history::before_ce09cbdd9888::bpf_prog_run(cpu, prog, ctx),
            _ => history::before_7dc211c1159d::__bpf_prog_run(cpu, prog, ctx, bpf_dispatcher_nop_func),
        }
    }

    /// A test run. Kernel: net/bpf/test_run.c: `bpf_test_run` repeats; `bpf_prog_test_run_raw_tp` and
    /// `bpf_prog_test_run_syscall` take no number; `bpf_struct_ops_test_run` (net/bpf/bpf_dummy_struct_ops.c) does not look
    /// at it. No test run takes the guard.
    pub(super) fn test_run(
        &self,
        kind: host::ProgType,
        prog: &BpfProg<K>,
        repeat: u32,
    ) -> Result<Result<(), Errno>> {
        use host::ProgType as T;
        if matches!(kind, T::RawTracepoint | T::Syscall) && repeat != 0 {
            return Ok(Err(Errno::EINVAL));
        }
        let runs = if kind.is_of_packets() { repeat.max(1) } else { 1 };
        self.on_cpu(|cpu| {
            let mut packet = [0; 64];
            for _ in 0..runs {
                let mut ctx = BpfCtx::new(&mut packet);
                match kind {
                    T::StructOps => _ = invoke_bpf_prog(cpu, prog, 0, &mut ctx),
                    _ => _ = self.run(cpu, prog, &mut ctx),
                }
            }
        })?;
        Ok(Ok(()))
    }

    /// Whether a run is counted now.
    pub(super) fn sees_on(&self) -> Result<bool> {
        let witness = self.program(ProgType::SocketFilter, nothing)?;
        self.on_cpu(|cpu| self.run(cpu, &witness, &mut BpfCtx::default()))?;
        Ok(bpf_prog_get_stats(&witness) != BpfProgKstats::default())
    }
}

/// The simulation's kind of a program type: what decides how it is run.
pub(super) fn kind_of(prog_type: host::ProgType) -> ProgType {
    use host::ProgType as T;
    match prog_type {
        T::RawTracepoint => ProgType::RawTracepoint,
        T::Tracing => ProgType::Tracing,
        T::StructOps => ProgType::StructOps,
        _ => ProgType::SocketFilter,
    }
}

/// `BPF_ENABLE_STATS` with an attribute of these bytes.
pub(super) fn enable(process: &mut Process<'_, impl Kconfig>, attr: &[u8]) -> Result<i32, Errno> {
    let at = process.mem.map(attr);
    process.bpf(BPF_ENABLE_STATS, at, attr.len() as u32)
}

/// The name of an errno.
pub(super) fn name(errno: Errno) -> String {
    format!("{errno:?}")
}
