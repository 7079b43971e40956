//! Tasks that are preempted and moved at any point run one program: pinned they lose nothing, unpinned they
//! do.

use std::hint::black_box;
use std::marker::PhantomData;

use filter::clock::SchedClock;
use filter::{BpfCtx, BpfProg, Config, ProgType, bpf_prog_run, bpf_prog_run_pin_on_cpu};
use jump_label::{AtomicKey, StaticKey};
use percpu::{Cpu, Machine, NoSteps, Task, Topology};
use stats::{Bits32, Bits32Rt, Bits64, Form, U64Stats, U64StatsSync};
use sync::host::{AtomicBool, Ordering::Relaxed};

const CPUS: usize = 2;
/// Runs of each of the tasks.
const RUNS: u64 = if cfg!(debug_assertions) { 20_000 } else { 100_000 };

/// A clock that stands still.
struct Still;

impl SchedClock for Still {
    fn sched_clock<K: percpu::Kconfig>(&self, _: &Cpu<K>) -> u64 {
        5
    }
}

/// Form `F`, slow to begin a section: more time to be moved between the look-up of this CPU's counters and
/// the update.
struct Slow<F>(PhantomData<fn() -> F>);

impl<F: Form> Form for Slow<F> {
    type Sync = SlowSync<F::Sync>;
    type U64 = F::U64;
}

struct SlowSync<S>(S);

impl<S: U64StatsSync> U64StatsSync for SlowSync<S> {
    type Flags = S::Flags;

    fn new() -> Self {
        Self(S::new())
    }
    fn update_begin<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) {
        self.0.update_begin(cpu);
    }
    fn update_end<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) {
        self.0.update_end(cpu);
    }
    fn update_begin_irqsave<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) -> S::Flags {
        (0..100).for_each(|i| _ = black_box(i));
        self.0.update_begin_irqsave(cpu)
    }
    fn update_end_irqrestore<K: percpu::Kconfig>(&self, cpu: &Cpu<K>, flags: S::Flags) {
        self.0.update_end_irqrestore(cpu, flags);
    }
    fn try_fetch_begin(&self) -> Option<u32> {
        self.0.try_fetch_begin()
    }
    fn fetch_begin(&self) -> u32 {
        self.0.fetch_begin()
    }
    fn fetch_retry(&self, start: u32) -> bool {
        self.0.fetch_retry(start)
    }
}

type K<F> = Config<Slow<F>, Still>;

/// Runs a program from tasks that are moved all the time: what was counted, and what should have been.
fn counted<F: Form>(run: impl Fn(&Task<K<F>>, &BpfProg<K<F>>) + Sync) -> (u64, u64) {
    let m: Machine<K<F>> =
        filter::machine::<_, _, AtomicKey, _>(Topology::smp(CPUS), NoSteps, Still).unwrap();
    m.globals().bpf_stats_enabled_key.slow_inc().unwrap();
    let p = BpfProg::alloc(m.pcpu(), ProgType::Tracing, |_: &Cpu<K<F>>, _: &mut BpfCtx<'_>| 7).unwrap();
    let stop = AtomicBool::new(false);
    let body = |task: &Task<K<F>>| {
        let mut made = 0;
        // Enough moves that the test tests something, however fast the machine is.
        while made < RUNS || task.switches().1 < 8 {
            run(task, &p);
            made += 1;
        }
        made
    };
    let made = m.boot(|smp| {
        let tasks: Vec<_> = (0..2 * CPUS).map(|i| smp.spawn("task", i % CPUS, body)).collect();
        let ticker = smp.spawn_outside("ticker", || {
            while !stop.load(Relaxed) {
                (0..CPUS).for_each(|cpu| m.resched(cpu));
                std::thread::sleep(std::time::Duration::from_micros(30));
            }
        });
        let made: Vec<_> = tasks.into_iter().map(|t| t.join()).collect();
        stop.store(true, Relaxed);
        ticker.join().unwrap();
        made.into_iter().map(Result::unwrap).sum()
    });
    // Without waiting: updates that fell into each other may have left a sequence odd.
    (p.stats.as_ref().unwrap().iter_possible().map(|s| s.cnt.read()).sum(), made)
}

fn pinned<F: Form>() {
    let (counted, made) =
        counted::<F>(|task, p| _ = bpf_prog_run_pin_on_cpu(task, p, &mut BpfCtx::default()));
    assert_eq!(counted, made);
}

fn unpinned<F: Form>() -> bool {
    let (counted, made) = counted::<F>(|task, p| _ = bpf_prog_run(task.raw_cpu(), p, &mut BpfCtx::default()));
    counted < made
}

#[test]
fn pinned_runs_of_tasks_that_are_preempted_and_moved_lose_nothing() {
    pinned::<Bits64>();
    pinned::<Bits32>();
    pinned::<Bits32Rt>();
}

#[test]
fn unpinned_runs_of_tasks_that_are_moved_lose_counts() {
    // Whether two updates meet is chance, so there are a few tries.
    assert!((0..50).any(|_| unpinned::<Bits32>()), "nothing was lost: the pinned test proves nothing");
}
