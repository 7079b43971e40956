//! What the harness knows about each call, so that it can say afterwards what must have been counted.
//!
//! Time is each thread's own: a program's body takes [`BODY`], and whatever comes on top of it (an interrupt, an NMI, a
//! softirq, a refused call of itself) puts the time back to what it found. So each run lasts [`BODY`], whoever interrupts,
//! preempts or moves it, and a program that was counted n times has reported n times that.
//!
//! A call that reads the clock twice is counted, one that reads it less often is not: so the harness knows exactly what is
//! counted while the key is flipped under it.

use std::cell::Cell;

use filter::clock::SchedClock;
use sync::host::{AtomicU64, Ordering::Relaxed};

/// How long a program runs, in ns.
pub(crate) const BODY: u64 = 5;

thread_local! {
    // Without destructors and const: what signal handlers may use.
    static NOW: Cell<u64> = const { Cell::new(1000) };
    static READS: Cell<u32> = const { Cell::new(0) };
    static DIE: Cell<u32> = const { Cell::new(1) };
}

/// Seeds the calling thread's die.
pub(crate) fn seed(seed: u64) {
    DIE.set((seed ^ seed >> 32) as u32 | 1);
}

/// True once in `n` times, by chance. For what may run in a signal handler.
pub(crate) fn once_in(n: u32) -> bool {
    // xorshift32
    let mut x = DIE.get();
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    DIE.set(x);
    x.is_multiple_of(n)
}

/// The clock of the calling thread.
pub(crate) struct OwnTime;

impl SchedClock for OwnTime {
    fn sched_clock<K: percpu::Kconfig>(&self, _: &percpu::Cpu<K>) -> u64 {
        READS.set(READS.get() + 1);
        NOW.get()
    }
}

/// A program's body took its time.
pub(crate) fn spend() {
    NOW.set(NOW.get() + BODY);
}

/// What became of the calls of one program.
#[derive(Default)]
pub(crate) struct Tally {
    /// Runs that must have been counted.
    pub(crate) counted: AtomicU64,
    /// Runs while statistics were off, at one end at least.
    pub(crate) uncounted: AtomicU64,
    /// Calls that the guard refused, each of which is a miss.
    pub(crate) refused: AtomicU64,
}

impl Tally {
    /// Makes a call, which says whether the program ran, and counts what became of it.
    pub(crate) fn attempt(&self, call: impl FnOnce() -> bool) -> bool {
        let (now, reads) = (NOW.get(), READS.replace(0));
        let ran = call();
        let made = READS.replace(reads);
        NOW.set(now);
        let of = match (ran, made) {
            (false, _) => &self.refused,
            (true, 2) => &self.counted,
            (true, _) => &self.uncounted,
        };
        of.fetch_add(1, Relaxed);
        ran
    }

    /// Counted, uncounted, refused.
    pub(crate) fn now(&self) -> [u64; 3] {
        [&self.counted, &self.uncounted, &self.refused].map(|n| n.load(Relaxed))
    }
}
