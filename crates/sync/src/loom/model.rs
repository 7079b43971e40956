//! The harness of models: what they must reach, how many executions they explore, and, when one fails, what happened.
//!
//! A model that explores one execution passes everything. So each model states the outcomes that it must [`reach`], and the
//! exact number of its executions is pinned in `tests/loom_pins.txt` beside it (loom is deterministic: a number that changed
//! is a question; `LOOM_REPIN=1` answers it on purpose and shows old and new). A model of something wrong states the
//! [`invariant`] that must break. loom's silent limits are not used.
//!
//! A failure prints a swim-lane: one column a thread, one row an operation, with value, ordering and source line; a load
//! that saw an old value shows the newest one beside it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::path::PathBuf;
use std::time::Instant;

use super::atomic::Ordering;

/// An operation's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A load.
    Load,
    /// A load by the only writer.
    Own,
    /// A store.
    Store,
    /// A read-modify-write.
    Rmw,
    /// A fence.
    Fence,
    /// A remark of the model.
    Note,
}

struct Event {
    thread: String,
    op: Op,
    object: &'static str,
    value: u64,
    order: Option<Ordering>,
    /// The newest value, if a load saw an older one.
    newest: Option<u64>,
    note: String,
    at: &'static Location<'static>,
}

#[derive(Default)]
struct Execution {
    events: Vec<Event>,
    newest: HashMap<usize, u64>,
    spins: u32,
}

thread_local! {
    static EXECUTION: RefCell<Execution> = RefCell::default();
    static REACHED: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
    /// Of each thread that has one: how many operations until its interrupt, how many it made, and whether it is an NMI.
    static POINTS: RefCell<HashMap<loom::thread::ThreadId, (u64, u64, bool)>> = RefCell::default();
    static INTERRUPTS: Cell<bool> = const { Cell::new(false) };
    static WEAKENED: RefCell<Option<(String, Option<Ordering>)>> = const { RefCell::new(None) };
}

/// How often a model may spin in one execution before that is called stuck.
const MAX_SPINS: u32 = 8;

/// The invariant that a reader waits for a writer that is to come again.
pub const STUCK: &str = "stuck";

/// A point at which an interrupt may come.
pub(super) fn point() {
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
            note(if nmi { "-> NMI" } else { "-> interrupt" });
            // SAFETY: attached and not detached, so it is live and its functions expect it.
            unsafe { if nmi { ((*line).on_nmi)(line) } else { ((*line).on_interrupt)(line) } };
            note(if nmi { "<- NMI" } else { "<- interrupt" });
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

/// The ordering that an operation is done with: its own, or a weaker one if this site is the one that is weakened.
pub(super) fn ordering(_: Op, order: Ordering, at: &'static Location<'static>) -> Ordering {
    weakened(at).flatten().unwrap_or(order)
}

/// A fence, unless this site is the one that is dropped.
pub(super) fn fence_at(order: Ordering, at: &'static Location<'static>) {
    match weakened(at) {
        None => loom::sync::atomic::fence(order),
        Some(None) => {}
        Some(Some(weaker)) => loom::sync::atomic::fence(weaker),
    }
    log(Op::Fence, "", 0, 0, Some(order), at);
}

fn weakened(at: &'static Location<'static>) -> Option<Option<Ordering>> {
    WEAKENED.with_borrow(|w| w.as_ref().filter(|(site, _)| is_at(at, site)).map(|(_, order)| *order))
}

/// Whether `at` is `site`: the end of a file's path, a colon, a line.
fn is_at(at: &Location<'_>, site: &str) -> bool {
    site.rsplit_once(':')
        .is_some_and(|(file, line)| at.file().ends_with(file) && line == at.line().to_string())
}

pub(super) fn log(
    op: Op,
    object: &'static str,
    id: usize,
    value: u64,
    order: Option<Ordering>,
    at: &'static Location<'static>,
) {
    if std::thread::panicking() {
        return;
    }
    let thread = thread_name();
    EXECUTION.with_borrow_mut(|e| {
        let newest = e.newest.get(&id).copied().filter(|n| op == Op::Load && *n != value);
        if matches!(op, Op::Store | Op::Rmw) {
            e.newest.insert(id, value);
        }
        e.events.push(Event { thread, op, object, value, order, newest, note: String::new(), at });
    });
}

/// Remarks on what happens, for the swim-lane.
#[track_caller]
pub fn note(text: impl Into<String>) {
    let (thread, note, at) = (thread_name(), text.into(), Location::caller());
    let event = Event { thread, op: Op::Note, object: "", value: 0, order: None, newest: None, note, at };
    EXECUTION.with_borrow_mut(|e| e.events.push(event));
}

fn thread_name() -> String {
    loom::thread::current().name().unwrap_or("main").to_owned()
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
    assert!(holds, "[{name}] {}", what());
}

/// A thread has spun once more.
///
/// # Panics
/// With the invariant [`STUCK`], if that was once too often.
pub(super) fn spun() {
    let spins = EXECUTION.with_borrow_mut(|e| {
        e.spins += 1;
        e.spins
    });
    invariant(STUCK, spins <= MAX_SPINS, || {
        "a reader spins for a writer that cannot come: it sits on top of it".into()
    });
}

/// A model: what it is called, how far it is explored, and what must come of it.
pub struct Model {
    /// Pattern, and what is expected.
    pub name: &'static str,
    /// How many preemptions the quick set explores; `None`: all. The full set (`LOOM_FULL=1`) always explores all.
    pub quick: Option<usize>,
    /// The same for the full set, for models that are too large.
    pub full: Option<usize>,
    /// Outcomes that must be reached.
    pub reach: &'static [&'static str],
    /// The invariant that must break; `None`: none may.
    pub breaks: Option<&'static str>,
}

impl Model {
    /// A model in which nothing may break.
    pub const fn holds(name: &'static str, reach: &'static [&'static str]) -> Self {
        Self { name, quick: Some(2), full: None, reach, breaks: None }
    }

    /// A model in which `invariant` must break.
    pub const fn breaks(name: &'static str, invariant: &'static str) -> Self {
        Self { name, quick: Some(2), full: None, reach: &[], breaks: Some(invariant) }
    }

    /// The same, and the quick set explores this many preemptions instead of 2.
    pub const fn quick(self, quick: usize) -> Self {
        Self { quick: Some(quick), ..self }
    }

    /// The same, and the full set explores this many preemptions only.
    pub const fn bounded(self, full: usize) -> Self {
        Self { full: Some(full), ..self }
    }

    /// Explores `body` and checks what must come of it.
    ///
    /// # Panics
    /// If something else came of it: the message says what, with the swim-lane of the execution that shows it.
    pub fn check(&self, body: impl Fn() + Send + Sync + 'static) {
        let found = self.explore(body);
        let set = if full() { "full" } else { "quick" };
        let reached: Vec<_> = found.reached.iter().map(String::as_str).collect();
        println!(
            "model {:<58} {set:<5} {:>8} executions {:>7.2} s  {}",
            self.name,
            found.executions,
            found.seconds,
            found.broken.as_deref().map_or_else(|| reached.join(", "), |b| format!("breaks {b}"))
        );
        if let (true, Some(broken), None) = (weakened_run(), &found.broken, self.breaks) {
            println!("killed by {} after {} executions: {broken}", self.name, found.executions);
        }
        match (&found.failure, self.breaks) {
            (Some(failure), None) => panic!("{}: {failure}", self.name),
            (None, Some(invariant)) => panic!("{}: [{invariant}] should have broken and did not", self.name),
            (Some(failure), Some(invariant)) => assert!(
                found.broken.as_deref() == Some(invariant),
                "{}: [{invariant}] should have broken, and this did: {failure}",
                self.name
            ),
            (None, None) => {}
        }
        let missing: Vec<_> = self.reach.iter().filter(|r| !found.reached.contains(**r)).collect();
        assert!(missing.is_empty(), "{}: never reached {missing:?}; reached {reached:?}", self.name);
        check_pin(self.name, set, found.executions);
    }

    fn explore(&self, body: impl Fn() + Send + Sync + 'static) -> Found {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = if full() { self.full } else { self.quick };
        builder.max_branches = 100_000;
        // loom's own limits end in silent success: none.
        (builder.max_duration, builder.max_permutations) = (None, None);
        weaken_from_env();
        REACHED.take();
        thread_local! { static COUNT: Cell<u64> = const { Cell::new(0) }; }
        COUNT.set(0);
        let start = Instant::now();
        let once = move || {
            COUNT.set(COUNT.get() + 1);
            EXECUTION.take();
            POINTS.take();
            INTERRUPTS.set(false);
            super::irq::forget();
            body();
        };
        // loom's coroutines run on this thread, so the thread-locals are the model's.
        let result = catch_unwind(AssertUnwindSafe(|| builder.check(once)));
        let failure = result.err().map(|payload| super::thread::panic_message(&*payload).to_owned());
        let name =
            |f: &String| f.strip_prefix('[').and_then(|f| f.split_once(']')).map(|(name, _)| name.to_owned());
        Found {
            executions: COUNT.get(),
            seconds: start.elapsed().as_secs_f64(),
            reached: REACHED.take(),
            broken: failure.as_ref().and_then(name),
            failure: failure.map(|f| format!("{f}\n{}", swim_lane(&EXECUTION.take().events, &f))),
        }
    }
}

struct Found {
    executions: u64,
    seconds: f64,
    reached: BTreeSet<String>,
    /// The name of the invariant that broke.
    broken: Option<String>,
    failure: Option<String>,
}

fn full() -> bool {
    std::env::var_os("LOOM_FULL").is_some()
}

/// Whether this run explores a weakened program: its numbers mean nothing.
fn weakened_run() -> bool {
    std::env::var_os("LOOM_WEAKEN").is_some()
}

/// `LOOM_WEAKEN=seqcount.rs:45` drops the fence there; `LOOM_WEAKEN=x.rs:9=Relaxed` weakens the operation.
fn weaken_from_env() {
    let weaken = std::env::var("LOOM_WEAKEN").ok().map(|spec| match spec.split_once('=') {
        Some((site, _)) => (site.to_owned(), Some(Ordering::Relaxed)),
        None => (spec, None),
    });
    WEAKENED.set(weaken);
}

/// The pinned numbers: `name set executions`, one a line.
fn pins() -> (PathBuf, BTreeMap<(String, String), u64>) {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").expect("run by cargo");
    let path = PathBuf::from(folder).join("tests/loom_pins.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let line = |l: &str| {
        let mut words = l.split_whitespace();
        Some(((words.next()?.to_owned(), words.next()?.to_owned()), words.next()?.parse().ok()?))
    };
    (path, text.lines().filter_map(line).collect())
}

fn check_pin(name: &str, set: &str, executions: u64) {
    let (path, mut pins) = pins();
    let key = (name.to_owned(), set.to_owned());
    let old = pins.get(&key).copied();
    if old == Some(executions) || weakened_run() {
        return;
    }
    assert!(
        std::env::var_os("LOOM_REPIN").is_some(),
        "{name}: {executions} executions, pinned are {old:?}. What changed? `cargo xtask loom --repin` pins anew"
    );
    println!("repinned {name} {set}: {old:?} -> {executions}");
    pins.insert(key, executions);
    let text: String = pins.iter().map(|((name, set), n)| format!("{name} {set} {n}\n")).collect();
    std::fs::write(path, text).expect("the pins can be written");
}

/// One column a thread, one row an operation; the broken invariant last.
fn swim_lane(events: &[Event], broken: &str) -> String {
    const WIDTH: usize = 34;
    let mut threads: Vec<&str> = Vec::new();
    for e in events {
        if !threads.contains(&e.thread.as_str()) {
            threads.push(&e.thread);
        }
    }
    let mut out = String::from("    ");
    for t in &threads {
        let _ = write!(out, "| {t:<WIDTH$}");
    }
    out.push_str("| source\n");
    for (i, e) in events.iter().enumerate() {
        let text = describe(e);
        let _ = write!(out, "{:>3} ", i + 1);
        for t in &threads {
            let _ = write!(out, "| {:<WIDTH$}", if *t == e.thread { &text } else { "" });
        }
        let file = e.at.file().rsplit('/').next().unwrap_or_default();
        let _ = writeln!(out, "| {file}:{}", e.at.line());
    }
    let _ = writeln!(out, "    broken: {}", broken.lines().next().unwrap_or_default());
    out
}

fn describe(e: &Event) -> String {
    let order = e.order.map(|o| format!(" {o:?}")).unwrap_or_default();
    let stale = e.newest.map(|n| format!(" OLD, newest {n:#x}")).unwrap_or_default();
    match e.op {
        Op::Note => e.note.clone(),
        Op::Fence => format!("fence{order}"),
        Op::Load => format!("{} -> {:#x}{order}{stale}", e.object, e.value),
        Op::Own => format!("{} -> {:#x} (own)", e.object, e.value),
        Op::Store | Op::Rmw => format!("{} = {:#x}{order}", e.object, e.value),
    }
}
