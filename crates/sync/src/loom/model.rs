//! The harness of models: what they must reach, how many executions they explore, and, when one fails, what happened.
//!
//! A model that explores one execution passes everything. So each model states the outcomes that it must [`reach`], and the
//! exact number of its executions is pinned beside it (loom is deterministic: a number that changed is a question;
//! `LOOM_REPIN=1` answers it on purpose and shows old and new). A model of something wrong states the [`invariant`] that
//! must break, and its shortest counterexample is kept in the tree. loom's silent limits are not used.
//!
//! A failure prints a timeline: one column a thread and one for its interrupts, one row an operation, with value, ordering
//! and source line; a load that saw an old value shows the newest one beside it. The failing execution is kept, so that
//! `cargo xtask loom --replay MODEL` runs it again, alone.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use timeline::Timeline;

use super::{log, pins, weaken};

thread_local! {
    static REACHED: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
    static SPINS: Cell<u32> = const { Cell::new(0) };
    /// Of each thread that has one: how many operations until its interrupt, how many it made, and whether it is an NMI.
    static POINTS: RefCell<HashMap<loom::thread::ThreadId, (u64, u64, bool)>> = RefCell::default();
    static INTERRUPTS: Cell<bool> = const { Cell::new(false) };
    static SHORTEST: RefCell<Option<Shortest>> = const { RefCell::new(None) };
}

/// The search for the shortest execution that breaks an invariant.
struct Shortest {
    title: String,
    invariant: &'static str,
    /// Whether this execution broke it already: what it does after that says nothing.
    broken: bool,
    found: Option<Timeline>,
}

/// How often a model may spin in one execution before that is called stuck.
const MAX_SPINS: u32 = 8;

/// The invariant that a reader waits for a writer that is to come again.
pub const STUCK: &str = "stuck";

/// The invariant that a word which its owner reads as its own has no other writer. loom sees it break.
pub const ONE_WRITER: &str = "one-writer";

/// The root of the workspace.
pub(super) fn workspace() -> PathBuf {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("run by cargo"));
    package.ancestors().nth(2).expect("packages are in crates/").to_path_buf()
}

/// A point at which an interrupt may come: before the operation `at`.
pub(super) fn point(at: &'static Location<'static>) {
    if !INTERRUPTS.get() || std::thread::panicking() {
        return;
    }
    let id = loom::thread::current().id();
    let now = POINTS.with_borrow_mut(|points| match points.get_mut(&id) {
        Some((at, made, nmi)) => {
            *made += 1;
            (*made - 1 == *at).then_some(*nmi)
        }
        None => None,
    });
    if let Some(nmi) = now {
        let line = super::irq::current();
        if !line.is_null() {
            log::interrupt_begins(nmi);
            log::note(if nmi { "NMI, before this" } else { "interrupt, before this" }.into(), at);
            // SAFETY: attached and not detached, so it is live and its functions expect it.
            unsafe { if nmi { ((*line).on_nmi)(line) } else { ((*line).on_interrupt)(line) } };
            log::interrupt_ends();
        }
    }
}

/// Makes an interrupt come before the calling thread's `n`-th operation from here (0: the next).
pub fn interrupt_at(n: u64) {
    comes_at(n, false);
}

/// Makes an NMI come there instead.
pub fn nmi_at(n: u64) {
    comes_at(n, true);
}

fn comes_at(n: u64, nmi: bool) {
    INTERRUPTS.set(true);
    POINTS.with_borrow_mut(|points| points.insert(loom::thread::current().id(), (n, 0, nmi)));
}

/// How many operations the calling thread made since [`interrupt_at`].
pub fn points_made() -> u64 {
    POINTS.with_borrow(|points| points.get(&loom::thread::current().id()).map_or(0, |p| p.1))
}

/// Remarks on what happens, for the timeline.
#[track_caller]
pub fn note(text: impl Into<String>) {
    log::note(text.into(), Location::caller());
}

/// Says that this execution reached an outcome.
pub fn reach(outcome: impl Into<String>) {
    REACHED.with_borrow_mut(|r| r.insert(outcome.into()));
}

/// Says that `holds` must hold; if not, the invariant called `name` is broken, as `what` tells.
///
/// # Panics
/// If it does not hold.
#[track_caller]
pub fn invariant(name: &str, holds: bool, what: impl FnOnce() -> String) {
    if holds {
        return;
    }
    let broken = format!("[{name}] {}", what());
    // While the shortest counterexample is searched for, the execution goes on to its end.
    assert!(is_searched(&broken), "{broken}");
}

/// Keeps the execution so far if it is the shortest that breaks what is searched for; whether there is a search.
fn is_searched(broken: &str) -> bool {
    SHORTEST.with_borrow_mut(|search| {
        let Some(s) = search else { return false };
        let shorter = s.found.as_ref().is_none_or(|t| log::len() < t.rows.len());
        if name_of(broken) == Some(s.invariant) && !s.broken {
            if shorter {
                s.found = Some(log::timeline(&s.title, broken));
            }
            s.broken = true;
        }
        true
    })
}

/// A thread has spun once more.
///
/// # Panics
/// With the invariant [`STUCK`], if that was once too often.
pub(super) fn spun() {
    SPINS.set(SPINS.get() + 1);
    assert!(
        SPINS.get() <= MAX_SPINS,
        "[{STUCK}] a reader spins for a writer that cannot come: it sits on top of it"
    );
}

/// A model: what it is called, how far it is explored, and what must come of it.
pub struct Model {
    /// Pattern, and what is expected.
    name: &'static str,
    /// How many preemptions the quick set explores.
    quick: usize,
    /// The same for the full set (`LOOM_FULL=1`); `None`: all.
    full: Option<usize>,
    /// Outcomes that must be reached.
    reach: &'static [&'static str],
    /// The invariant that must break; `None`: none may.
    breaks: Option<&'static str>,
    /// Whether its counterexample is kept in the tree.
    recorded: bool,
}

impl Model {
    /// A model in which nothing may break.
    pub const fn holds(name: &'static str, reach: &'static [&'static str]) -> Self {
        Self { name, quick: 2, full: None, reach, breaks: None, recorded: false }
    }

    /// A model in which `invariant` must break.
    pub const fn breaks(name: &'static str, invariant: &'static str) -> Self {
        Self { name, quick: 2, full: None, reach: &[], breaks: Some(invariant), recorded: true }
    }

    /// The same, and the quick set explores this many preemptions instead of 2.
    pub const fn quick(self, quick: usize) -> Self {
        Self { quick, ..self }
    }

    /// The same, and the full set explores this many preemptions only.
    pub const fn bounded(self, full: usize) -> Self {
        Self { full: Some(full), ..self }
    }

    /// The same, and its counterexample is not kept in the tree: one of the same family is.
    pub const fn unrecorded(self) -> Self {
        Self { recorded: false, ..self }
    }

    /// Explores `body` and checks what must come of it.
    ///
    /// # Panics
    /// If something else came of it: the message says what, with the timeline of the execution that shows it.
    pub fn check(&self, body: impl Fn() + Send + Sync + 'static) {
        let body: Body = Arc::new(body);
        if let Some(replayed) = std::env::var_os("LOOM_REPLAY") {
            if replayed == self.name {
                self.replay(&body);
            }
            return;
        }
        let (set, bound) = if full() { ("full", self.full) } else { ("quick", Some(self.quick)) };
        let start = Instant::now();
        let found = explore(self.name, bound, None, &body);
        let reached: Vec<_> = found.reached.iter().map(String::as_str).collect();
        println!(
            "model {:<58} {set:<5} {:>8} executions {:>7.2} s  {}",
            self.name,
            found.executions,
            start.elapsed().as_secs_f64(),
            found.broken().map_or_else(|| reached.join("; "), |b| format!("breaks {b}"))
        );
        if weaken::met() {
            println!("met by {}", self.name);
        }
        if let (true, Some(broken), None) = (weaken::is_changed(), found.broken(), self.breaks) {
            println!("killed by {} after {} executions: {broken}", self.name, found.executions);
        }
        match (&found.failure, self.breaks) {
            (None, None) => {}
            (Some(_), Some(invariant)) if found.broken() == Some(invariant) => {}
            (Some(_), _) => self.failed(&found, bound, &body),
            (None, Some(invariant)) => self.fail(&format!("[{invariant}] should have broken and did not")),
        }
        let missing: Vec<_> = self.reach.iter().filter(|r| !found.reached.contains(**r)).collect();
        if !missing.is_empty() {
            self.fail(&format!("never reached {missing:?}; reached {reached:?}"));
        }
        if weaken::is_changed() {
            return;
        }
        let same =
            pins::check_executions(self.name, set, found.executions).and_then(|()| match self.breaks {
                Some(invariant) if self.recorded && !full() => {
                    pins::check_counterexample(self.name, &self.shortest(invariant, &body))
                }
                _ => Ok(()),
            });
        if let Err(what) = same {
            self.fail(&what);
        }
    }

    fn fail(&self, what: &str) -> ! {
        println!("failed {}: {}", self.name, what.lines().next().unwrap_or_default());
        panic!("{}: {what}", self.name)
    }

    /// The shortest of the executions with the fewest preemptions that break `invariant`.
    fn shortest(&self, invariant: &'static str, body: &Body) -> Timeline {
        for preemptions in 0..=self.quick {
            let times = if preemptions == 1 { "preemption" } else { "preemptions" };
            let title = format!("{}: [{invariant}] breaks with {preemptions} {times}", self.name);
            SHORTEST.set(Some(Shortest { title: title.clone(), invariant, broken: false, found: None }));
            let found = explore(self.name, Some(preemptions), None, body);
            let search = SHORTEST.take().expect("set above");
            // Some invariants cannot be passed over: the execution ended with them.
            let ended =
                found.failure.filter(|f| name_of(f) == Some(invariant)).map(|f| log::timeline(&title, &f));
            if let Some(shortest) = search.found.into_iter().chain(ended).min_by_key(|t| t.rows.len()) {
                return shortest;
            }
        }
        unreachable!("{}: it broke with {} preemptions a moment ago", self.name, self.quick)
    }

    /// Keeps the failing execution, and says what happened in it.
    fn failed(&self, found: &Found, bound: Option<usize>, body: &Body) -> ! {
        let failure = found.failure.as_deref().unwrap_or_default();
        let shown = log::timeline(self.name, failure);
        let expected =
            self.breaks.map_or_else(String::new, |i| format!("[{i}] should have broken, not this: "));
        if !weaken::is_changed() {
            let (timeline, path) = kept(self.name);
            std::fs::create_dir_all(path.parent().expect("it is in a folder"))
                .expect("the folder can be made");
            std::fs::write(timeline, shown.json()).expect("the timeline can be kept");
            // Once more up to the execution that failed, which loom writes down before it begins.
            _ = std::fs::remove_file(&path);
            explore(self.name, bound, Some((&path, found.executions)), body);
            println!("failed {}; again: cargo xtask loom --replay {}", self.name, self.name);
        }
        panic!("{expected}{failure}\n\n{}", shown.text(120, false));
    }

    /// Runs the execution that failed once more, alone.
    fn replay(&self, body: &Body) {
        let (timeline, path) = kept(self.name);
        assert!(path.exists(), "{}: no failing execution was kept", self.name);
        let found = explore(self.name, None, Some((&path, 1)), body);
        let verdict = found.failure.unwrap_or_else(|| "nothing broke: this execution no longer fails".into());
        let shown = log::timeline(self.name, &verdict);
        std::fs::write(timeline, shown.json()).expect("the timeline can be kept");
        println!("replayed {}", self.name);
    }
}

type Body = Arc<dyn Fn() + Send + Sync>;

/// Where a failing execution is kept: as a timeline, and as loom's own path to it.
fn kept(name: &str) -> (PathBuf, PathBuf) {
    let timeline = workspace().join("target/loom/failed").join(pins::file_name(name));
    let path = timeline.with_extension("path");
    (timeline, path)
}

struct Found {
    executions: u64,
    reached: BTreeSet<String>,
    failure: Option<String>,
}

impl Found {
    /// The name of the invariant that broke.
    fn broken(&self) -> Option<&str> {
        self.failure.as_deref().and_then(name_of)
    }
}

/// The invariant's name in "[name] what".
fn name_of(failure: &str) -> Option<&str> {
    Some(failure.strip_prefix('[')?.split_once(']')?.0)
}

/// Explores `body`. `path`: where loom keeps the way to an execution, and at which number; if the file is there, the
/// exploration begins with it, and ends after it.
fn explore(name: &str, bound: Option<usize>, path: Option<(&Path, u64)>, body: &Body) -> Found {
    thread_local! { static COUNT: Cell<u64> = const { Cell::new(0) }; }
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.max_branches = 100_000;
    // loom's own limits end in silent success: none.
    (builder.max_duration, builder.max_permutations) = (None, None);
    let mut last = u64::MAX;
    if let Some((path, at)) = path {
        builder.checkpoint_file = Some(path.to_path_buf());
        builder.checkpoint_interval = usize::try_from(at).expect("it was counted");
        last = at;
    }
    weaken::begin();
    REACHED.take();
    COUNT.set(0);
    let once = {
        let body = body.clone();
        move || {
            COUNT.set(COUNT.get() + 1);
            assert!(COUNT.get() <= last, "the execution to replay has ended");
            log::begin();
            SPINS.set(0);
            POINTS.take();
            INTERRUPTS.set(false);
            super::irq::forget();
            SHORTEST.with_borrow_mut(|s| s.iter_mut().for_each(|s| s.broken = false));
            body();
        }
    };
    // loom's coroutines run on this thread, so the thread-locals are the model's.
    quiet_panics();
    EXPLORING.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| builder.check(once)));
    EXPLORING.set(false);
    let ended_in = |payload: Box<dyn std::any::Any + Send>| {
        let message = super::thread::panic_message(&*payload).to_owned();
        if message.contains("Causality violation") {
            let message = message.lines().next().unwrap_or_default();
            format!(
                "[{ONE_WRITER}] a word was read as its own by one thread and written by another ({message})"
            )
        } else {
            message
        }
    };
    if COUNT.get() > last {
        return Found { executions: last, reached: REACHED.take(), failure: None };
    }
    assert!(COUNT.get() > 0, "{name}: nothing was explored");
    Found { executions: COUNT.get(), reached: REACHED.take(), failure: result.err().map(ended_in) }
}

thread_local! { static EXPLORING: Cell<bool> = const { Cell::new(false) }; }

/// Panics that end an exploration are told by whoever explores: not by the panic hook, with its backtrace.
fn quiet_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !EXPLORING.get() {
                hook(info);
            }
        }));
    });
}

fn full() -> bool {
    std::env::var_os("LOOM_FULL").is_some()
}
