//! Scoped threads, explored. A worker is a thread a job; a promise is kept through loom's channel.

use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::atomic::Ordering;
pub use crate::panic::{Payload, panic_message};

type Handle = loom::thread::JoinHandle<()>;

/// The threads of a scope that nobody has joined yet.
struct Threads<'scope, 'env: 'scope> {
    unjoined: RefCell<Vec<Option<Handle>>>,
    _life: PhantomData<(&'scope mut &'scope (), &'env mut &'env ())>,
}

/// Where threads can be spawned that borrow from outside; all have ended when [`scope`] returns.
#[derive(Clone, Copy)]
pub struct Scope<'scope, 'env: 'scope>(&'scope Threads<'scope, 'env>);

/// Runs `f` with a scope for threads and waits for all of them.
pub fn scope<'env, R>(f: impl for<'scope> FnOnce(Scope<'scope, 'env>) -> R) -> R {
    let threads = Threads { unjoined: RefCell::default(), _life: PhantomData };
    // SAFETY: only the lifetime changes: 'scope ends with this function, which joins every thread before it returns. A
    // panic ends the whole execution, with all of its threads.
    let r = f(Scope(unsafe { &*std::ptr::from_ref(&threads) }));
    let unjoined: Vec<_> = threads.unjoined.borrow_mut().iter_mut().filter_map(Option::take).collect();
    for handle in unjoined {
        handle.join().expect("a model's panic ends the model");
    }
    r
}

/// A thread's result to come.
pub struct Join<'scope, T> {
    threads: *const RefCell<Vec<Option<Handle>>>,
    index: usize,
    result: Arc<Mutex<Option<T>>>,
    _life: PhantomData<&'scope ()>,
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Spawns a thread called `name`.
    ///
    /// # Errors
    /// Never.
    pub fn spawn<T: Send + 'scope>(
        &self,
        name: &str,
        f: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<Join<'scope, T>> {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let body: Box<dyn FnOnce() + Send + 'scope> = Box::new(move || *slot.lock().unwrap() = Some(f()));
        // SAFETY: only the lifetime changes; the scope joins the thread.
        let body: Box<dyn FnOnce() + Send + 'static> = unsafe { std::mem::transmute(body) };
        let handle = loom::thread::Builder::new().name(name.into()).spawn(body)?;
        let mut unjoined = self.0.unjoined.borrow_mut();
        unjoined.push(Some(handle));
        Ok(Join {
            threads: &raw const self.0.unjoined,
            index: unjoined.len() - 1,
            result,
            _life: PhantomData,
        })
    }

    /// A worker called `name`: `body` is run once for each job, on a thread of its own.
    ///
    /// # Errors
    /// Never.
    pub fn worker<J: Send + 'scope>(
        &self,
        name: &str,
        body: impl Fn(Jobs<J>) + Send + 'scope,
    ) -> io::Result<Worker<'scope, J>> {
        let body = Arc::new(body);
        // SAFETY: only the lifetime changes; a worker does not outlive its scope.
        let scope: Scope<'scope, 'scope> = unsafe { std::mem::transmute(*self) };
        let name = name.to_owned();
        Ok(Worker(Box::new(move |job| {
            let body = OneThread(body.clone());
            let run = move || body.into_inner()(Jobs(Some(job)));
            scope.spawn(&name, run).expect("never fails");
        })))
    }

    /// No thread: in a model no time passes.
    ///
    /// # Errors
    /// Never.
    pub fn alarm(&self, _: &str, _: impl Fn() -> Turn + Send + 'scope) -> io::Result<Waker> {
        Ok(Waker(()))
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

/// Wakes nobody.
#[derive(Clone)]
pub struct Waker(());

impl Waker {
    /// Nobody sleeps.
    pub fn wake(&self) {}
}

/// All threads of a model are coroutines on one host thread.
struct OneThread<T>(T);

// SAFETY: as it says.
unsafe impl<T> Send for OneThread<T> {}

impl<T> OneThread<T> {
    fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Join<'_, T> {
    /// Waits for the thread.
    ///
    /// # Errors
    /// Never: a panic ends the model.
    ///
    /// # Panics
    /// If the thread was joined before.
    pub fn join(self) -> Result<T, Payload> {
        // SAFETY: the scope outlives the join, by its lifetime.
        let handle = unsafe { &*self.threads }.borrow_mut()[self.index].take().expect("joined once");
        handle.join()?;
        Ok(self.result.lock().unwrap().take().expect("the thread ended"))
    }
}

/// A thread a job.
pub struct Worker<'scope, J>(Box<dyn Fn(J) + 'scope>);

impl<J> Worker<'_, J> {
    /// Hands a thread the job.
    pub fn submit(&self, job: J) {
        (self.0)(job);
    }
}

/// One job.
pub struct Jobs<J>(Option<J>);

impl<J> Iterator for Jobs<J> {
    type Item = J;
    fn next(&mut self) -> Option<J> {
        self.0.take()
    }
}

/// What the two ends of a promise share. The value is std's, invisible to loom; the notification is what orders it.
struct Shared<T> {
    value: Mutex<Option<T>>,
    given: loom::sync::Notify,
}

/// The two ends of one value that a job will give.
pub fn promise<T>() -> (Promise<T>, Pending<T>) {
    let shared = Arc::new(Shared { value: Mutex::new(None), given: loom::sync::Notify::new() });
    (Promise(OneThread(shared.clone())), Pending(shared))
}

/// The end that gives the value.
pub struct Promise<T>(OneThread<Arc<Shared<T>>>);

impl<T> Promise<T> {
    /// Gives the value.
    pub fn keep(self, v: T) {
        let shared = self.0.into_inner();
        *shared.value.lock().unwrap() = Some(v);
        shared.given.notify();
    }
}

/// The end that waits for the value.
pub struct Pending<T>(Arc<Shared<T>>);

impl<T> Pending<T> {
    /// Waits for the value, which a model always gives.
    pub fn wait(self) -> Option<T> {
        loop {
            // loom wakes waiters for nothing, too.
            self.0.given.wait();
            if let Some(v) = self.0.value.lock().unwrap().take() {
                return Some(v);
            }
        }
    }

    /// The same: models know no time.
    ///
    /// # Errors
    /// Never.
    pub fn wait_for(self, _: Duration) -> Result<Option<T>, Self> {
        Ok(self.wait())
    }
}

/// Runs `f`; a panic ends the model.
///
/// # Errors
/// Never.
pub fn catch<T>(f: impl FnOnce() -> T) -> Result<T, Payload> {
    Ok(f())
}

/// Models know no time: the same as [`yield_now`].
pub fn sleep(_: Duration) {
    yield_now();
}

/// Lets another thread run, and comes after what the others did before they yielded: a CPU changes hands by words of the
/// host, which models do not see, and who waits for one waits here.
pub fn yield_now() {
    loom::sync::atomic::fence(Ordering::SeqCst);
    loom::thread::yield_now();
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// No cores: nothing is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostCore {}

impl HostCore {
    /// There is none.
    pub fn id(self) -> usize {
        match self {}
    }
}

/// None.
pub fn host_cores() -> Vec<HostCore> {
    Vec::new()
}

/// There is none to pin to.
pub fn pin(core: HostCore) -> bool {
    match core {}
}
