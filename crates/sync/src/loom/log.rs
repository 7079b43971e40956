//! What the threads of one execution did, in order: becomes a [`Timeline`] when a model fails.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::Location;

use loom::thread::ThreadId;
use timeline::{Source, Timeline, What};

use super::atomic::Ordering;

/// The thread that a model begins with.
const MAIN: &str = "main";

/// An operation's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// A load.
    Load,
    /// A load by the only writer, which is always the newest value.
    Own,
    /// A store.
    Store,
    /// A read-modify-write.
    Rmw,
}

enum Kind {
    Word { op: Op, object: &'static str, id: usize, value: u64, order: Ordering, newest: Option<u64> },
    Fence(Option<Ordering>),
    Note(String),
}

struct Event {
    lane: usize,
    kind: Kind,
    at: &'static Location<'static>,
}

#[derive(Default)]
struct Execution {
    events: Vec<Event>,
    lanes: Vec<String>,
    /// Of each thread: its lane, and the kinds of the interrupts that it is in.
    threads: HashMap<ThreadId, (usize, Vec<&'static str>)>,
    newest: HashMap<usize, u64>,
    /// How many words were made.
    words: usize,
}

impl Execution {
    /// The lane of the calling thread, or of the interrupt that it is in.
    fn lane(&mut self) -> usize {
        let thread = loom::thread::current();
        let (lane, kinds) = self.threads.entry(thread.id()).or_insert_with(|| {
            self.lanes.push(thread.name().unwrap_or(MAIN).to_owned());
            (self.lanes.len() - 1, Vec::new())
        });
        let Some(kind) = kinds.last() else { return *lane };
        let name = format!("{} {kind}", self.lanes[*lane]);
        self.lanes.iter().position(|l| *l == name).unwrap_or_else(|| {
            self.lanes.push(name);
            self.lanes.len() - 1
        })
    }
}

thread_local! {
    static EXECUTION: RefCell<Execution> = RefCell::default();
}

/// A new execution begins.
pub(super) fn begin() {
    EXECUTION.take();
}

/// A number for a new word.
pub(super) fn new_id() -> usize {
    EXECUTION.with_borrow_mut(|e| {
        e.words += 1;
        e.words
    })
}

/// How many operations there are so far.
pub(super) fn len() -> usize {
    EXECUTION.with_borrow(|e| e.events.len())
}

pub(super) fn word(
    op: Op,
    object: &'static str,
    id: usize,
    value: u64,
    order: Ordering,
    at: &'static Location<'static>,
) {
    if std::thread::panicking() {
        return;
    }
    EXECUTION.with_borrow_mut(|e| {
        let newest = e.newest.get(&id).copied().filter(|n| op == Op::Load && *n != value);
        if matches!(op, Op::Store | Op::Rmw) {
            e.newest.insert(id, value);
        }
        let lane = e.lane();
        e.events.push(Event { lane, kind: Kind::Word { op, object, id, value, order, newest }, at });
    });
}

/// Reads a word as its own; if loom sees a race there and panics, the log says where.
pub(super) fn owned<T>(object: &'static str, at: &'static Location<'static>, read: impl FnOnce() -> T) -> T {
    struct Racing(&'static str, &'static Location<'static>);
    impl Drop for Racing {
        fn drop(&mut self) {
            record(Kind::Note(format!("{} is read as its own: another writes it", self.0)), self.1);
        }
    }
    let racing = Racing(object, at);
    let v = read();
    std::mem::forget(racing);
    v
}

/// A fence; `None`: it was dropped.
pub(super) fn fence(order: Option<Ordering>, at: &'static Location<'static>) {
    push(Kind::Fence(order), at);
}

pub(super) fn note(text: String, at: &'static Location<'static>) {
    push(Kind::Note(text), at);
}

fn push(kind: Kind, at: &'static Location<'static>) {
    if !std::thread::panicking() {
        record(kind, at);
    }
}

fn record(kind: Kind, at: &'static Location<'static>) {
    EXECUTION.with_borrow_mut(|e| {
        let lane = e.lane();
        e.events.push(Event { lane, kind, at });
    });
}

/// The calling thread's operations are an interrupt's, or an NMI's, until [`interrupt_ends`].
pub(super) fn interrupt_begins(nmi: bool) {
    nest(|kinds| kinds.push(if nmi { "nmi" } else { "irq" }));
}

/// The calling thread is back from an interrupt.
pub(super) fn interrupt_ends() {
    nest(|kinds| _ = kinds.pop());
}

fn nest(change: impl Fn(&mut Vec<&'static str>)) {
    EXECUTION.with_borrow_mut(|e| {
        e.lane();
        let thread = e.threads.get_mut(&loom::thread::current().id()).expect("it has a lane");
        change(&mut thread.1);
    });
}

/// The execution as it stands, ended by `verdict`.
pub(super) fn timeline(title: &str, verdict: &str) -> Timeline {
    EXECUTION.with_borrow(|e| {
        let mut t = Timeline::new(title);
        t.verdict = verdict.to_owned();
        let names = names(&e.events);
        // What the model set up before it began says nothing.
        let set_up = e.events.iter().take_while(|event| e.lanes[event.lane] == MAIN).count();
        let rows = if set_up < e.events.len() { &e.events[set_up..] } else { &e.events[..] };
        for event in rows {
            let lane = t.lane(&e.lanes[event.lane]);
            let row = t.push(lane, what(&event.kind, &names));
            row.source = Some(Source { file: event.at.file().to_owned(), line: event.at.line() });
        }
        t.sort_lanes();
        t.keep_sources(|file| std::fs::read_to_string(super::model::workspace().join(file)).ok());
        t
    })
}

/// A name for each word: its own, with a number where several have the same.
fn names(events: &[Event]) -> HashMap<usize, String> {
    let mut names = HashMap::new();
    let mut used: HashMap<&str, usize> = HashMap::new();
    for event in events {
        if let Kind::Word { object, id, .. } = &event.kind {
            names.entry(*id).or_insert_with(|| {
                let n = used.entry(object).or_default();
                *n += 1;
                if *n == 1 { (*object).to_owned() } else { format!("{object}'{n}") }
            });
        }
    }
    names
}

fn what(kind: &Kind, names: &HashMap<usize, String>) -> What {
    let shown = |order: Ordering| (order != Ordering::Relaxed).then(|| format!("{order:?}"));
    match kind {
        Kind::Word { op: Op::Load | Op::Own, id, value, order, newest, .. } => {
            What::Load { object: names[id].clone(), value: *value, order: shown(*order), newest: *newest }
        }
        Kind::Word { id, value, order, .. } => {
            What::Store { object: names[id].clone(), value: *value, order: shown(*order) }
        }
        Kind::Fence(order) => What::Fence { order: order.and_then(shown) },
        Kind::Note(text) => What::Note { text: text.clone() },
    }
}
