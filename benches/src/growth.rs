//! What should not matter to a run: how many programs there are, how many CPUs there could be, how many sites the key has.
//! And what does: the sum over the CPUs, and programs in turn.

use std::hint::black_box;

use anyhow::Result;
use filter::{BpfCtx, BpfProg, Kconfig, bpf_prog_get_stats};
use jump_label::{AtomicKey, StaticKey};
use percpu::Topology;
use stats::{Bits32, Bits64, Form};

use crate::harness::{Harness, Variant, timed};
use crate::machines::{Bench, Real, program};
use crate::run::run;
use crate::sites::{Sites1, Sites16, Sites256, Sites4096};

/// Runs, by what should not matter.
pub(crate) const PROGRAMS: &str = "growth-programs";
pub(crate) const CPUS: &str = "growth-cpus";
pub(crate) const SITES: &str = "growth-sites";
/// Runs of programs in turn.
pub(crate) const IN_TURN: &str = "in-turn";
/// Sums.
pub(crate) const SUM: &str = "sum";

type Atomic = Real<Bits64, AtomicKey>;

/// Measures all.
///
/// # Errors
/// If there is no machine or no memory.
pub(crate) fn measure(harness: &mut Harness) -> Result<()> {
    if harness.wants(PROGRAMS) || harness.wants(IN_TURN) {
        programs(harness)?;
    }
    if harness.wants(CPUS) {
        let benches = possible::<Bits64>(&[2, 8, 64, 512])?;
        let variants = benches.iter().map(|(cpus, b)| on(format!("{cpus} possible CPUs"), b)).collect();
        harness.group(CPUS, "A run, statistics on, by possible CPUs", variants);
    }
    if harness.wants(SITES) {
        match jump_label::support() {
            Ok(()) => sites(harness)?,
            Err(e) => harness.note(format!("{SITES}: no patched keys: {e}")),
        }
    }
    if harness.wants(SUM) && !harness.counts() {
        sums(harness)?;
    }
    Ok(())
}

/// A run with statistics on.
fn on<'a, F: Form, S: StaticKey + 'static>(name: String, bench: &'a Bench<Real<F, S>>) -> Variant<'a> {
    Variant::new(name, |n| bench.with_stats(|| bench.runs(n, run))).counted()
}

/// One hot program among others, and all of them in turn.
fn programs(harness: &mut Harness) -> Result<()> {
    let mut benches = Vec::new();
    for n in [1, 16, 256, 4096, 16_384] {
        let bench = Bench::<Atomic>::new(Topology::smp(1))?;
        let mut others = (1..n).map(|_| program(&bench.machine)).collect::<Result<Vec<_>>>()?;
        fastrand::Rng::with_seed(1).shuffle(&mut others);
        benches.push((n, bench, others));
    }
    let name = |n: &usize| format!("{n} program{}", if *n == 1 { "" } else { "s" });
    let hot = benches.iter().map(|(n, bench, _)| on(name(n), bench)).collect();
    harness.group(PROGRAMS, "A run of one program, statistics on, by programs loaded", hot);
    let in_turn = benches.iter().filter(|(n, ..)| *n > 1);
    let in_turn = in_turn.map(|(n, bench, progs)| Variant::new(name(n), |n| turns(bench, progs, n)));
    harness.group(IN_TURN, "A run, statistics on, of many programs in turn", in_turn.collect());
    Ok(())
}

fn turns<K: Kconfig>(bench: &Bench<K>, progs: &[BpfProg<K>], n: u64) -> f64 {
    bench.with_stats(|| {
        bench.on_cpu(|cpu| {
            let (mut ctx, mut next) = (BpfCtx::default(), progs.iter().cycle());
            timed(n, || {
                if let Some(prog) = next.next() {
                    black_box(run(cpu, prog, &mut ctx));
                }
            })
        })
    })
}

/// Machines by their possible CPUs.
type ByCpus<F> = Vec<(usize, Bench<Real<F, AtomicKey>>)>;

fn possible<F: Form>(cpus: &[usize]) -> Result<ByCpus<F>> {
    cpus.iter().map(|&n| Ok((n, Bench::new(Topology::with_possible(1, n))?))).collect()
}

fn sites(harness: &mut Harness) -> Result<()> {
    let one = Topology::smp(1);
    let s1 = Bench::<Real<Bits64, Sites1>>::new(one)?;
    let s16 = Bench::<Real<Bits64, Sites16>>::new(one)?;
    let s256 = Bench::<Real<Bits64, Sites256>>::new(one)?;
    let s4096 = Bench::<Real<Bits64, Sites4096>>::new(one)?;
    let variants = vec![
        on("1 site".into(), &s1),
        on("16 sites".into(), &s16),
        on("256 sites".into(), &s256),
        on("4096 sites".into(), &s4096),
    ];
    harness.group(SITES, "A run, statistics on, by sites of the key", variants);
    Ok(())
}

fn sums(harness: &mut Harness) -> Result<()> {
    const CPUS: &[usize] = &[2, 8, 32, 128, 512];
    let (bits64, bits32) = (possible::<Bits64>(CPUS)?, possible::<Bits32>(CPUS)?);
    let mut variants = Vec::new();
    variants.extend(bits64.iter().map(|(cpus, bench)| sum(format!("64-bit, {cpus} possible CPUs"), bench)));
    variants.extend(bits32.iter().map(|(cpus, bench)| sum(format!("32-bit, {cpus} possible CPUs"), bench)));
    harness.group(SUM, "Reading a program's statistics: the sum over CPUs", variants);
    Ok(())
}

fn sum<K: Kconfig>(name: String, bench: &Bench<K>) -> Variant<'_> {
    Variant::new(name, |n| {
        bench.alone(n, |_| {
            black_box(bpf_prog_get_stats(black_box(&bench.prog)));
        })
    })
}
