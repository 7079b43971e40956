//! The update of a program's statistics, and reading them, against what else two counters could be kept in.

use std::hint::black_box;

use anyhow::Result;
use crossbeam::atomic::AtomicCell;
use crossbeam::utils::CachePadded;
use filter::prog_stats::count_run;
use filter::{BpfProg, Kconfig, bpf_prog_get_stats};
use jump_label::AtomicKey;
use percpu::{Cpu, Topology, local_irq_restore, local_irq_save};
use stats::{Bits32, Bits32Rt, Bits64, Form};
use sync::host::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::harness::{Harness, Variant, timed};
use crate::machines::{Bench, Real};

/// Updates on one CPU.
pub(crate) const ALONE: &str = "update";
/// Updates of the same program on two CPUs at once.
pub(crate) const TOGETHER: &str = "update-2";
/// Updates on one CPU and reads on another.
pub(crate) const BESIDE: &str = "readers";
/// Variants that others are compared with.
pub(crate) const BITS64: &str = "64-bit: local64 x 2";
pub(crate) const BITS32: &str = "32-bit: mask + seqcount + two words";
pub(crate) const BITS32_RT: &str = "32-bit RT: preemption off too";
pub(crate) const MUTEX: &str = "std Mutex";
pub(crate) const PARKING_LOT: &str = "parking_lot Mutex";
pub(crate) const CELL: &str = "AtomicCell<(u64, u64)>";
pub(crate) const SEQLOCK: &str = "seqlock crate";
pub(crate) const FETCH_ADD: &str = "two fetch_adds (no pair)";

/// Two counters: runs and ns.
trait Counters<K: Kconfig>: Send + Sync {
    /// Counts a run of `ns` on `cpu`.
    fn update(&self, cpu: &Cpu<K>, ns: u64);
    /// The sums.
    fn read(&self) -> (u64, u64);
}

impl<K: Kconfig> Counters<K> for BpfProg<K> {
    #[inline(always)]
    fn update(&self, cpu: &Cpu<K>, ns: u64) {
        if let Some(stats) = &self.stats {
            count_run(cpu, stats, ns);
        }
    }
    #[inline(always)]
    fn read(&self) -> (u64, u64) {
        let sum = bpf_prog_get_stats(self);
        (sum.cnt, sum.nsecs)
    }
}

impl<K: Kconfig> Counters<K> for std::sync::Mutex<(u64, u64)> {
    #[inline(always)]
    fn update(&self, _: &Cpu<K>, ns: u64) {
        let mut pair = self.lock().unwrap_or_else(|e| e.into_inner());
        *pair = (pair.0 + 1, pair.1.wrapping_add(ns));
    }
    #[inline(always)]
    fn read(&self) -> (u64, u64) {
        *self.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl<K: Kconfig> Counters<K> for parking_lot::Mutex<(u64, u64)> {
    #[inline(always)]
    fn update(&self, _: &Cpu<K>, ns: u64) {
        let mut pair = self.lock();
        *pair = (pair.0 + 1, pair.1.wrapping_add(ns));
    }
    #[inline(always)]
    fn read(&self) -> (u64, u64) {
        *self.lock()
    }
}

impl<K: Kconfig> Counters<K> for AtomicCell<(u64, u64)> {
    #[inline(always)]
    fn update(&self, _: &Cpu<K>, ns: u64) {
        // Always `Some`, so always `Ok`.
        let _ = self.fetch_update(|(cnt, nsecs)| Some((cnt + 1, nsecs.wrapping_add(ns))));
    }
    #[inline(always)]
    fn read(&self) -> (u64, u64) {
        self.load()
    }
}

impl<K: Kconfig> Counters<K> for seqlock::SeqLock<(u64, u64)> {
    #[inline(always)]
    fn update(&self, _: &Cpu<K>, ns: u64) {
        let mut pair = self.lock_write();
        *pair = (pair.0 + 1, pair.1.wrapping_add(ns));
    }
    #[inline(always)]
    fn read(&self) -> (u64, u64) {
        seqlock::SeqLock::read(self)
    }
}

impl<K: Kconfig> Counters<K> for [AtomicU64; 2] {
    #[inline(always)]
    fn update(&self, _: &Cpu<K>, ns: u64) {
        self[0].fetch_add(1, Relaxed);
        self[1].fetch_add(ns, Relaxed);
    }
    #[inline(always)]
    fn read(&self) -> (u64, u64) {
        (self[0].load(Relaxed), self[1].load(Relaxed))
    }
}

/// The 32-bit update on one of two CPUs.
pub(crate) const ON_ONE: &str = "32-bit, on one of the two CPUs";

/// What no program shares: how the host's two CPUs scale by themselves.
pub(crate) const PRIVATE: &str = "private word (the host's own scaling)";
pub(crate) const PRIVATE_ON_ONE: &str = "private word, on one of the two CPUs";

/// What a variant does with its counters.
#[derive(Clone, Copy)]
enum What {
    Alone,
    Together,
    /// An update, while another CPU reads.
    Update,
    /// A read, while another CPU updates.
    Read,
}

fn variant<'a, F: Form>(
    name: &str,
    bench: &'a Bench<Real<F, AtomicKey>>,
    counters: &'a impl Counters<Real<F, AtomicKey>>,
    what: What,
) -> Variant<'a> {
    let update = move |cpu: &Cpu<_>| black_box(counters).update(cpu, black_box(25));
    let read = move |_: &Cpu<_>| {
        black_box(black_box(counters).read());
    };
    match what {
        What::Alone => Variant::new(name, move |n| bench.alone(n, update)).counted(),
        What::Together => Variant::new(name, move |n| bench.together(n, update)),
        What::Update => Variant::new(format!("update, {name}"), move |n| bench.beside(n, update, read)),
        What::Read => Variant::new(format!("read, {name}"), move |n| bench.beside(n, read, update)),
    }
}

impl<K: Kconfig> Bench<K> {
    /// `body` on CPU 0, so many times, while CPU 1 does `other` all the time: ns of one `body`.
    fn beside(
        &self,
        n: u64,
        body: impl Fn(&Cpu<K>) + Send + Sync,
        other: impl Fn(&Cpu<K>) + Send + Sync,
    ) -> f64 {
        let (started, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let ns = self.machine.boot(|smp| {
            smp.on_each_cpu(|cpu| {
                let pinned = cpu.migrate_disable();
                let cpu: &Cpu<K> = &pinned;
                if cpu.smp_processor_id() == 0 {
                    while !started.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                    let ns = timed(n, || body(black_box(cpu)));
                    stop.store(true, Relaxed);
                    return ns;
                }
                while !stop.load(Relaxed) {
                    other(black_box(cpu));
                    started.store(true, Relaxed);
                }
                0.0
            })
        });
        ns[0]
    }
}

fn mask<K: Kconfig>(cpu: &Cpu<K>) {
    local_irq_restore(cpu, local_irq_save(cpu));
}

/// Measures it.
///
/// # Errors
/// If there is no machine.
pub(crate) fn measure(harness: &mut Harness) -> Result<()> {
    let groups = [
        (ALONE, "An update of two counters", &[What::Alone][..], 1),
        (TOGETHER, "The same on two CPUs at once, one program", &[What::Together], 2),
        (BESIDE, "Updates on one CPU, reads on another", &[What::Update, What::Read], 2),
    ];
    for (group, title, whats, cpus) in groups {
        if !harness.wants(group) || (harness.counts() && group != ALONE) {
            continue;
        }
        let topology = Topology::smp(cpus);
        let bits64 = Bench::<Real<Bits64, AtomicKey>>::new(topology)?;
        let bits32 = Bench::<Real<Bits32, AtomicKey>>::new(topology)?;
        let rt = Bench::<Real<Bits32Rt, AtomicKey>>::new(topology)?;
        if let Some(cores) = bits64.machine.shares_cores() {
            harness.note(format!("{group}: {cpus} CPUs would share {cores} core"));
            continue;
        }
        let mutex = CachePadded::new(std::sync::Mutex::new((0, 0)));
        let parking_lot = CachePadded::new(parking_lot::Mutex::new((0, 0)));
        let cell = CachePadded::new(AtomicCell::new((0, 0)));
        let seqlock = CachePadded::new(seqlock::SeqLock::new((0, 0)));
        let fetch_add = CachePadded::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let mut variants = Vec::new();
        for &what in whats {
            variants.extend([
                variant(BITS64, &bits64, &bits64.prog, what),
                variant(BITS32, &bits32, &bits32.prog, what),
                variant(BITS32_RT, &rt, &rt.prog, what),
                variant(FETCH_ADD, &bits64, &*fetch_add, what),
                variant(MUTEX, &bits64, &*mutex, what),
                variant(PARKING_LOT, &bits64, &*parking_lot, what),
                variant(CELL, &bits64, &*cell, what),
                variant(SEQLOCK, &bits64, &*seqlock, what),
            ]);
        }
        if group == TOGETHER {
            variants.extend([
                variant(ON_ONE, &bits32, &bits32.prog, What::Alone),
                Variant::new(PRIVATE, |n| bits64.together(n, mask)),
                Variant::new(PRIVATE_ON_ONE, |n| bits64.alone(n, mask)),
            ]);
        }
        harness.group(group, title, variants);
    }
    Ok(())
}
