//! The whole run: `__bpf_prog_run`, and a call through the trampoline's enter and exit, statistics off and on, against the
//! bare call.

use std::hint::black_box;

use anyhow::Result;
use filter::{BpfCtx, BpfProg, Kconfig, bpf_prog_run, sched_clock};
use jump_label::AtomicKey;
use percpu::{Cpu, Topology};
use stats::{Bits32, Bits32Rt, Bits64};
use trampoline::invoke_bpf_prog;

use crate::harness::{Harness, Variant, timed};
use crate::machines::{Bench, Patched32, Patched64, Real};

/// The run's group.
pub(crate) const RUN: &str = "run";
/// The trampoline's group.
pub(crate) const TRAMPOLINE: &str = "trampoline";
/// Its variants that others are compared with.
pub(crate) const BARE: &str = "bare call";
pub(crate) const CLOCKS: &str = "two ordered clock reads + call";

#[inline(never)]
fn bare<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>, ctx: &mut BpfCtx<'_>) -> u32 {
    prog.bpf_func.call(cpu, ctx)
}

/// What a timed run cannot do without.
#[inline(never)]
fn clocks<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>, ctx: &mut BpfCtx<'_>) -> u32 {
    let start = sched_clock(cpu);
    let ret = prog.bpf_func.call(cpu, ctx);
    ret ^ sched_clock(cpu).wrapping_sub(start) as u32
}

#[inline(never)]
pub(crate) fn run<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>, ctx: &mut BpfCtx<'_>) -> u32 {
    bpf_prog_run(cpu, prog, ctx)
}

#[inline(never)]
fn call<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>, ctx: &mut BpfCtx<'_>) -> u32 {
    invoke_bpf_prog(cpu, prog, 0, ctx).unwrap_or(0)
}

impl<K: Kconfig> Bench<K> {
    /// Runs the program by `how` on CPU 0, so many times: ns of one.
    #[inline(always)]
    pub(crate) fn runs(
        &self,
        n: u64,
        how: impl Fn(&Cpu<K>, &BpfProg<K>, &mut BpfCtx<'_>) -> u32 + Send + Sync,
    ) -> f64 {
        self.on_cpu(|cpu| {
            let mut ctx = BpfCtx::default();
            timed(n, || {
                black_box(how(black_box(cpu), black_box(&self.prog), black_box(&mut ctx)));
            })
        })
    }

    fn off_and_on<'a>(&'a self, kind: &str, runs: &mut Vec<Variant<'a>>, calls: &mut Vec<Variant<'a>>) {
        let name = |state: &str| format!("{state}, {kind}");
        runs.push(Variant::new(name("off"), |n| self.runs(n, run)).counted());
        runs.push(Variant::new(name("on"), |n| self.with_stats(|| self.runs(n, run))).counted());
        calls.push(Variant::new(name("off"), |n| self.runs(n, call)).counted());
        calls.push(Variant::new(name("on"), |n| self.with_stats(|| self.runs(n, call))).counted());
    }
}

/// Measures both groups.
///
/// # Errors
/// If there is no machine.
pub(crate) fn measure(harness: &mut Harness) -> Result<()> {
    if !harness.wants(RUN) && !harness.wants(TRAMPOLINE) {
        return Ok(());
    }
    let one = Topology::smp(1);
    let bits64 = Bench::<Real<Bits64, AtomicKey>>::new(one)?;
    let bits32 = Bench::<Real<Bits32, AtomicKey>>::new(one)?;
    let rt = Bench::<Real<Bits32Rt, AtomicKey>>::new(one)?;
    let patched = match jump_label::support() {
        Ok(()) => {
            Some((Bench::<Real<Bits64, Patched64>>::new(one)?, Bench::<Real<Bits32, Patched32>>::new(one)?))
        }
        Err(e) => {
            harness.note(format!("no patched keys: {e}"));
            None
        }
    };
    let bare_call = || Variant::new(BARE, |n| bits64.runs(n, bare)).counted();
    let mut runs = vec![bare_call(), Variant::new(CLOCKS, |n| bits64.runs(n, clocks)).counted()];
    let mut calls = vec![bare_call()];
    if let Some((bits64, bits32)) = &patched {
        bits64.off_and_on("64-bit, patched key", &mut runs, &mut calls);
        bits32.off_and_on("32-bit, patched key", &mut runs, &mut calls);
    }
    bits64.off_and_on("64-bit, AtomicKey", &mut runs, &mut calls);
    bits32.off_and_on("32-bit, AtomicKey", &mut runs, &mut calls);
    rt.off_and_on("32-bit RT, AtomicKey", &mut runs, &mut calls);
    harness.group(RUN, "One run of an empty program", runs);
    harness.group(TRAMPOLINE, "Enter, call and exit of an empty program", calls);
    Ok(())
}
