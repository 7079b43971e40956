//! Scoped threads, workers that take jobs in order, and pinning. Kernel: `linux/kthread.h`, in spirit.
//!
//! Models know scoped threads only: a channel or a std lock would be invisible to them. So a [`Worker`] is what the
//! layers above use to hand work to a CPU; here it is one thread that waits on a channel, in a model it is a thread a
//! job.

use std::io;
use std::marker::PhantomData;
use std::time::Duration;

use crossbeam::channel;

pub use crate::panic::{Payload, panic_message};

/// Where threads can be spawned that borrow from outside; all have ended when [`scope`] returns.
#[derive(Clone, Copy)]
pub struct Scope<'scope, 'env: 'scope>(&'scope std::thread::Scope<'scope, 'env>);

/// Runs `f` with a scope for threads and waits for all of them.
///
/// # Panics
/// If a thread that nobody joined panicked.
pub fn scope<'env, R>(f: impl for<'scope> FnOnce(Scope<'scope, 'env>) -> R) -> R {
    std::thread::scope(|s| f(Scope(s)))
}

/// A thread's result to come.
pub struct Join<'scope, T>(std::thread::ScopedJoinHandle<'scope, T>);

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Spawns a thread called `name`.
    ///
    /// # Errors
    /// The host's, if it has no more threads.
    pub fn spawn<T: Send + 'scope>(
        &self,
        name: &str,
        f: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<Join<'scope, T>> {
        std::thread::Builder::new().name(name.into()).spawn_scoped(self.0, f).map(Join)
    }

    /// Spawns a worker called `name`: `body` is run with the jobs to come, and ends when the [`Worker`] is dropped.
    ///
    /// `body` may be run more than once (in a model, once a job), so it keeps nothing from one job to the next.
    ///
    /// # Errors
    /// The host's, if it has no more threads.
    pub fn worker<J: Send + 'scope>(
        &self,
        name: &str,
        body: impl Fn(Jobs<J>) + Send + 'scope,
    ) -> io::Result<Worker<'scope, J>> {
        let (tx, rx) = channel::unbounded();
        self.spawn(name, move || body(Jobs(rx)))?;
        Ok(Worker(tx, PhantomData))
    }

    /// Spawns a thread called `name` that calls `turn` again and again, and sleeps in between as that says.
    ///
    /// # Errors
    /// The host's, if it has no more threads.
    pub fn alarm(&self, name: &str, turn: impl Fn() -> Turn + Send + 'scope) -> io::Result<Waker> {
        let body = move || loop {
            match turn() {
                Turn::After(time) => std::thread::park_timeout(time),
                Turn::Woken => std::thread::park(),
                Turn::End => return,
            }
        };
        Ok(Waker(self.spawn(name, body)?.0.thread().clone()))
    }
}

/// When a thread of [`Scope::alarm`] takes its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// After this time, or when it is woken.
    After(Duration),
    /// When it is woken.
    Woken,
    /// Never.
    End,
}

/// Wakes the thread of [`Scope::alarm`].
#[derive(Clone)]
pub struct Waker(std::thread::Thread);

impl Waker {
    /// Wakes it; if it is awake, it takes one more turn.
    ///
    /// Context: any; async-signal-safe (a syscall at most).
    pub fn wake(&self) {
        self.0.unpark();
    }
}

impl<T> Join<'_, T> {
    /// Waits for the thread.
    ///
    /// # Errors
    /// What the thread panicked with.
    pub fn join(self) -> Result<T, Payload> {
        self.0.join()
    }
}

/// A thread that takes jobs in order.
pub struct Worker<'scope, J>(channel::Sender<J>, PhantomData<&'scope ()>);

impl<J> Worker<'_, J> {
    /// Hands the thread a job. A job for a worker that has ended is dropped.
    pub fn submit(&self, job: J) {
        // A send fails only if the body has returned, and then whoever waits for the job learns it from its promise.
        let _ = self.0.send(job);
    }
}

/// The jobs of a worker, as they come; ends when the [`Worker`] is dropped.
pub struct Jobs<J>(channel::Receiver<J>);

impl<J> Iterator for Jobs<J> {
    type Item = J;
    fn next(&mut self) -> Option<J> {
        self.0.recv().ok()
    }
}

/// The two ends of one value that a job will give.
pub fn promise<T>() -> (Promise<T>, Pending<T>) {
    let (tx, rx) = channel::bounded(1);
    (Promise(tx), Pending(rx))
}

/// The end that gives the value.
pub struct Promise<T>(channel::Sender<T>);

impl<T> Promise<T> {
    /// Gives the value.
    pub fn keep(self, v: T) {
        // The other end may have lost interest.
        let _ = self.0.send(v);
    }
}

/// The end that waits for the value.
pub struct Pending<T>(channel::Receiver<T>);

impl<T> Pending<T> {
    /// Waits for the value; `None` if the other end was dropped without giving one.
    pub fn wait(self) -> Option<T> {
        self.0.recv().ok()
    }

    /// Waits for the value, or for its giver to be gone, for `time` at most.
    ///
    /// # Errors
    /// Itself, if neither happened.
    pub fn wait_for(self, time: Duration) -> Result<Option<T>, Self> {
        match self.0.recv_timeout(time) {
            Ok(v) => Ok(Some(v)),
            Err(channel::RecvTimeoutError::Disconnected) => Ok(None),
            Err(channel::RecvTimeoutError::Timeout) => Err(self),
        }
    }
}

/// Runs `f` and catches its panic.
///
/// # Errors
/// What `f` panicked with.
pub fn catch<T>(f: impl FnOnce() -> T) -> Result<T, Payload> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f))
}

/// Waits for `time`, or longer.
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Lets another thread of the host run, while waiting for it.
///
/// Context: any; async-signal-safe (one syscall).
pub fn yield_now() {
    std::thread::yield_now()
}

/// A core of the host that this process may run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCore(core_affinity::CoreId);

impl HostCore {
    /// The host's number of the core.
    pub fn id(self) -> usize {
        self.0.id
    }
}

/// The cores that the **calling thread** may run on: ask before it is pinned.
pub fn host_cores() -> Vec<HostCore> {
    core_affinity::get_core_ids().unwrap_or_default().into_iter().map(HostCore).collect()
}

/// Pins the calling thread to `core`; false if the host refuses.
pub fn pin(core: HostCore) -> bool {
    core_affinity::set_for_current(core.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_takes_jobs_in_order_and_ends_with_its_handle() {
        let mut seen = Vec::new();
        let (tx, rx) = channel::unbounded();
        scope(|s| {
            let w = s.worker("w", move |jobs| jobs.for_each(|j: u32| tx.send(j).unwrap())).unwrap();
            (0..4).for_each(|j| w.submit(j));
        });
        seen.extend(rx);
        assert_eq!(seen, [0, 1, 2, 3]);
    }

    #[test]
    fn a_promise_that_is_dropped_ends_the_wait() {
        let (p, w) = promise::<u8>();
        drop(p);
        assert_eq!(w.wait(), None);
    }

    #[test]
    fn panics_are_caught_with_their_message() {
        assert_eq!(panic_message(&*catch(|| panic!("boom {}", 1)).unwrap_err()), "boom 1");
        assert_eq!(panic_message(&*catch(|| panic!("plain")).unwrap_err()), "plain");
    }
}
