//! Timers of a CPU. Kernel: kernel/time/hrtimer.c, include/linux/hrtimer.h, v6.6.
//!
//! One host thread of the machine stands for the CPUs' clock event devices. It sleeps until the next timer is due, marks it,
//! and raises [`LOCAL_TIMER`] on its CPU, where the interrupt runs what is marked. So a timer is
//! found by the same rules as any interrupt, whoever is on the CPU by then. (A POSIX timer would signal one thread, and
//! threads come and go on CPUs.) The thread is there from the first timer on, until the machine goes down.
//!
//! A timer is off, due at a time, marked, or running, and all of that is one word:
//! 1. Due becomes marked (the thread), marked becomes running (the CPU), each by an exchange that fails if anybody was
//!    faster.
//! 2. Running becomes due again, if its callback wants that and nobody started or cancelled the timer meanwhile.
//! 3. Cancelling turns it off, and then waits while its callback runs: the callback says that it runs, then takes the mark;
//!    cancelling takes the mark, then looks whether it runs.

use std::time::{Duration, Instant};

use sync::host::Ordering::{Acquire, Relaxed, Release, SeqCst};
use sync::host::{AtomicBool, AtomicPtr, AtomicU64};
use sync::thread::{self, Turn, Waker};

use crate::Kconfig;
use crate::cpu::Cpu;
use crate::handler::guarded;
use crate::irq::LOCAL_TIMER;
use crate::smp::{Machine, Smp};

/// What a timer does after its callback. Kernel: `enum hrtimer_restart`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HrtimerRestart {
    /// It is off, unless the callback started it.
    NoRestart,
    /// It is due again an interval after the last time it was due; times that have passed by now are skipped and counted.
    /// Kernel: `hrtimer_forward_now` and `HRTIMER_RESTART`.
    Restart,
}

/// The states below every time.
const OFF: u64 = 0;
const MARKED: u64 = 1;
const RUNNING: u64 = 2;
const FIRST_TIME: u64 = 3;

type Callback<'env, K> = Box<dyn Fn(&Cpu<K>, &Hrtimer<'_, K>) -> HrtimerRestart + Send + Sync + 'env>;

/// One timer, and the one that the machine got before it.
pub(crate) struct Node<K: Kconfig> {
    cpu: usize,
    function: Callback<'static, K>,
    epoch: Instant,
    waker: Waker,
    /// A state, or when it is due, in ns since the epoch.
    state: AtomicU64,
    /// When it was due last, and the interval, in ns.
    expires: AtomicU64,
    interval: AtomicU64,
    overruns: AtomicU64,
    /// Its callback runs, or is about to look whether it may.
    running: AtomicBool,
    next: *mut Node<K>,
}

/// The timers of a boot; they go when the machine is down.
pub(crate) struct Timers<K: Kconfig>(AtomicPtr<Node<K>>);

// SAFETY: what is behind the pointers is shared as `&Node` only: atomics, a callback that is `Send + Sync`, a waker.
unsafe impl<K: Kconfig> Send for Node<K> {}
// SAFETY: as above.
unsafe impl<K: Kconfig> Sync for Node<K> {}

/// A timer of one CPU, off at first. Kernel: `struct hrtimer`.
pub struct Hrtimer<'scope, K: Kconfig>(&'scope Node<K>);

impl<'scope, 'env, K: Kconfig> Smp<'scope, 'env, K> {
    /// A timer that runs `f` on CPU `cpu`, as an interrupt. Kernel: `hrtimer_init`, and pinned to the CPU.
    ///
    /// `f` is handed the timer, which it may start; else as in [`Smp::request_irq`].
    ///
    /// # Panics
    /// If CPU `cpu` is not online, or the host has no thread for the machine's first timer.
    pub fn hrtimer(
        &self,
        cpu: usize,
        f: impl Fn(&Cpu<K>, &Hrtimer<'_, K>) -> HrtimerRestart + Send + Sync + 'env,
    ) -> Hrtimer<'scope, K> {
        let machine = self.machine();
        assert!(machine.cpu_online(cpu), "CPU {cpu} is not online");
        let function: Callback<'env, K> = Box::new(f);
        let node = Box::new(Node {
            cpu,
            // SAFETY: only the lifetime changes; the machine drops it before `boot` returns, within 'env.
            function: unsafe { std::mem::transmute::<Callback<'env, K>, Callback<'static, K>>(function) },
            epoch: Instant::now(),
            waker: self.timer_thread(),
            state: AtomicU64::new(OFF),
            expires: AtomicU64::new(0),
            interval: AtomicU64::new(0),
            overruns: AtomicU64::new(0),
            running: AtomicBool::new(false),
            next: std::ptr::null_mut(),
        });
        let node = machine.handlers.timers.push(node);
        // SAFETY: the machine keeps it until no thread of the boot is left, which is after 'scope.
        Hrtimer(unsafe { &*node })
    }
}

impl<K: Kconfig> Machine<K> {
    /// One turn of the timer thread: marks what is due, and says when the next one is.
    pub(crate) fn clock_event(&self) -> Turn {
        let first = self.handlers.timers.iter().filter_map(|node| node.expire(self)).min();
        first.map_or(Turn::Woken, Turn::After)
    }
}

/// What the timer interrupt does: runs this CPU's marked timers. Kernel: `hrtimer_interrupt`.
pub(crate) fn hrtimer_interrupt<K: Kconfig>(cpu: &Cpu<K>) {
    let here = cpu.smp_processor_id();
    cpu.machine().handlers.timers.iter().filter(|node| node.cpu == here).for_each(|node| node.run(cpu));
}

impl<K: Kconfig> Node<K> {
    fn now(&self) -> u64 {
        ns(self.epoch.elapsed()).saturating_add(FIRST_TIME)
    }

    /// Marks the timer if it is due and raises its interrupt; else how long it takes until it is.
    fn expire(&self, machine: &Machine<K>) -> Option<Duration> {
        // ORDERING (host): SeqCst; rule 1 of `hrtimer`, pairs with `start`.
        let due = self.state.load(SeqCst);
        let now = self.now();
        if due < FIRST_TIME {
            return None;
        }
        if due > now {
            return Some(Duration::from_nanos(due - now));
        }
        // ORDERING (host): SeqCst; rule 1 of `hrtimer`, pairs with `run`, `start` and `cancel`.
        if self.state.compare_exchange(due, MARKED, SeqCst, Relaxed).is_err() {
            return Some(Duration::ZERO); // started anew meanwhile: look again
        }
        machine.raise(self.cpu, LOCAL_TIMER);
        None
    }

    /// Runs the callback if the timer is marked. Kernel: `__run_hrtimer`.
    fn run(&self, cpu: &Cpu<K>) {
        // ORDERING (host): SeqCst; here and below, rules 2 and 3 of `hrtimer`, pairs with `expire`, `start` and `cancel`.
        self.running.store(true, SeqCst);
        if self.state.compare_exchange(MARKED, RUNNING, SeqCst, Relaxed).is_ok() {
            let restart =
                guarded(cpu, || (self.function)(cpu, &Hrtimer(self))) == Some(HrtimerRestart::Restart);
            let next = if restart { self.forward_now() } else { OFF };
            if self.state.compare_exchange(RUNNING, next, SeqCst, Relaxed).is_ok() && restart {
                self.waker.wake();
            }
        }
        // ORDERING (host): SeqCst; rule 3 of `hrtimer`, pairs with `cancel`.
        self.running.store(false, SeqCst);
    }

    /// When the timer is due next: after the last time, by as many intervals as it takes. Kernel: `hrtimer_forward_now`.
    fn forward_now(&self) -> u64 {
        let (expires, interval) = (self.expires.load(Relaxed), self.interval.load(Relaxed));
        let missed = self.now().saturating_sub(expires) / interval;
        let next = expires.saturating_add(interval.saturating_mul(missed + 1));
        self.overruns.fetch_add(missed, Relaxed);
        self.expires.store(next, Relaxed);
        next
    }
}

impl<K: Kconfig> Hrtimer<'_, K> {
    /// Makes the timer due after `interval`, from now, and from then on if its callback says [`HrtimerRestart::Restart`].
    /// A timer that is due already is moved. Kernel: `hrtimer_start`, relative.
    ///
    /// Context: any, also its own callback; async-signal-safe.
    pub fn start(&self, interval: Duration) {
        let node = self.0;
        let due = node.now().saturating_add(ns(interval));
        node.interval.store(ns(interval).max(1), Relaxed);
        node.expires.store(due, Relaxed);
        // ORDERING (host): SeqCst; rules 1 and 2 of `hrtimer`, pairs with `expire` and `run`: they see the interval too.
        node.state.store(due, SeqCst);
        node.waker.wake();
    }

    /// Turns the timer off and waits for its callback, if that runs; whether it was due or running. Kernel:
    /// `hrtimer_cancel`.
    ///
    /// Context: any but its own callback, and an NMI on top of that: it would wait for itself.
    pub fn cancel(&self) -> bool {
        // ORDERING (host): SeqCst; rule 3 of `hrtimer`, pairs with `expire` and `run`.
        let was = self.0.state.swap(OFF, SeqCst);
        while self.0.running.load(SeqCst) {
            thread::yield_now();
        }
        was != OFF
    }

    /// Whether the timer is due, or its callback runs. Kernel: `hrtimer_active`.
    pub fn is_active(&self) -> bool {
        self.0.state.load(Relaxed) != OFF
    }

    /// How many times were skipped because the callback came too late for them. Kernel: what `hrtimer_forward` returns.
    pub fn overruns(&self) -> u64 {
        self.0.overruns.load(Relaxed)
    }
}

impl<K: Kconfig> Default for Timers<K> {
    fn default() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }
}

impl<K: Kconfig> Timers<K> {
    fn push(&self, mut node: Box<Node<K>>) -> *const Node<K> {
        node.next = self.0.load(Relaxed);
        let node = Box::into_raw(node);
        // ORDERING (host): Release; pairs with `Timers::iter` and `clear`: a timer that is found is whole.
        while let Err(first) =
            // SAFETY: not published yet, so nobody else looks.
            self.0.compare_exchange(unsafe { (*node).next }, node, Release, Relaxed)
        {
            // SAFETY: as above.
            unsafe { (*node).next = first };
        }
        node
    }

    fn iter(&self) -> impl Iterator<Item = &Node<K>> {
        // ORDERING (host): Acquire; pairs with `Timers::push`.
        let first = self.0.load(Acquire);
        // SAFETY: null, or a timer that stays until no thread of the machine is left.
        std::iter::successors(unsafe { first.as_ref() }, |node| unsafe { node.next.as_ref() })
    }

    /// Drops them. No thread of the machine may be left.
    pub(crate) fn clear(&self) {
        // ORDERING (host): Acquire; pairs with `Timers::push`.
        let mut next = self.0.load(Acquire);
        self.0.store(std::ptr::null_mut(), Relaxed);
        while !next.is_null() {
            // SAFETY: made by `Box::into_raw` in `push`, and nobody is left to look.
            let node = unsafe { Box::from_raw(next) };
            next = node.next;
        }
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
