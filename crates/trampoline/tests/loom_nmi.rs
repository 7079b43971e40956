//! Models of a trampoline that an NMI enters too, at any point: no mask stops it, the masked update included.
//!
//! | pattern | result |
//! |---|---|
//! | an NMI that enters the same program at any point outside the open section, a reader elsewhere | refused or run; no run or miss is lost; the guard is free; what is accepted is one moment's |
//! | the same inside the open section | refused; the kernel's latent fault: two moments' values are accepted |
#![cfg(loom)]

use std::sync::OnceLock;

use filter::clock::SchedClock;
use filter::{BpfCtx, BpfProg, Config, ProgType};
use jump_label::{AtomicKey, StaticKey};
use percpu::{Cpu, NoSteps, Topology};
use stats::u64_stats::read_once;
use stats::{Bits32, U64Stats};
use sync::local::LocalU64;
use sync::model::{Model, invariant, nmi_at, note, points_made, reach};
use trampoline::invoke_bpf_prog;

/// What each run takes.
const DURATION: u64 = 10;

struct Ticks(LocalU64);

impl SchedClock for Ticks {
    fn sched_clock<K: percpu::Kconfig>(&self, _: &Cpu<K>) -> u64 {
        self.0.set(self.0.get() + DURATION);
        self.0.get()
    }
}

type K = Config<Bits32, Ticks>;

/// One run, an NMI before its `at`-th operation that enters the same program, and a reader elsewhere.
fn struck(at: u64, points: &'static OnceLock<u64>) {
    let m = filter::machine::<Bits32, _, AtomicKey, _>(Topology::smp(1), NoSteps, Ticks(LocalU64::new(100)))
        .unwrap();
    m.globals().bpf_stats_enabled_key.slow_inc().unwrap();
    let body = |_: &Cpu<K>, _: &mut BpfCtx<'_>| 7;
    let prog = BpfProg::alloc(m.pcpu(), ProgType::Tracing, body).unwrap();
    let stats = || prog.stats.as_ref().unwrap().per_cpu_ptr(0);
    let read = || read_once(&stats().syncp, || (stats().cnt.read(), stats().nsecs.read()));
    m.boot(|smp| {
        let call = |cpu: &Cpu<K>| _ = invoke_bpf_prog(cpu, &prog, 0, &mut BpfCtx::default());
        smp.request_nmi(call).unwrap();
        smp.spawn_outside("reader", || match read() {
            None => reach("again"),
            Some((_, (cnt, nsecs))) => {
                note(format!("accepts {cnt} runs, {nsecs} ns"));
                // A run that an NMI ran on top of has that one's clock reads in its time.
                let whole = if cnt == 0 { nsecs == 0 } else { nsecs >= cnt * DURATION };
                invariant("one-moment", whole, || format!("{cnt} runs of {nsecs} ns"));
            }
        });
        let m = &m;
        smp.on(0, move |cpu| {
            // Counted now; the model says when it comes.
            m.raise_nmi(0);
            nmi_at(at);
            call(cpu);
            let _ = points.set(points_made());
        });
    });
    let calls = 1 + m.nmis(0);
    let (cnt, misses) = (stats().cnt.read(), stats().misses.read());
    invariant("total", cnt + misses == calls && cnt > 0, || format!("{calls} calls, {cnt} and {misses}"));
    invariant("even", read().is_some(), || "the sequence was left odd: readers wait for ever".into());
    let held = prog.active.as_ref().unwrap().per_cpu_ptr(0).get();
    invariant("guard-free", held == 0, || format!("the guard is left at {held}"));
    reach(if misses > 0 { "refused" } else { "ran" });
}

/// The operations of the run before which an NMI's miss fools a reader: from the first store of a counter to the second one
/// of the sequence; and between the load and the store of the sequence's first step, which then goes back by one.
fn fools(at: u64) -> bool {
    at == 4 || (6..15).contains(&at)
}

#[test]
fn an_nmi_at_any_point_loses_nothing_and_fools_readers_where_the_section_is_open() {
    static POINTS: OnceLock<u64> = OnceLock::new();
    Model::holds("trampoline::nmi_never", &["ran", "again"]).bounded(2).check(|| struck(u64::MAX, &POINTS));
    let points = *POINTS.get().unwrap();
    assert!(points > 15, "{points} operations are too few to be enter and exit");
    for at in 0..=points {
        let name: &'static str = format!("trampoline::nmi_at_{at}").leak();
        let model = if fools(at) { Model::breaks(name, "one-moment") } else { Model::holds(name, &[]) };
        model.quick(1).bounded(2).check(move || struck(at, &POINTS));
    }
}
