//! The sequence counter: what readers see of a write, and what two writers break.

use std::cell::RefCell;

use stats::Seqcount;
use stats::later::since_d0dd066a0fa2;
use sync::Ordering;
use sync::atomic::{AtomicU32, Word};
use sync::host;

#[test]
fn the_sequence_is_odd_inside_a_write_and_even_after() {
    let s: Seqcount = Seqcount::new();
    for even in [0, 2, 4] {
        assert_eq!(s.try_read_begin(), Some(even));
        s.write_begin();
        assert_eq!(s.try_read_begin(), None, "odd: a write is in progress");
        s.write_end();
    }
    assert_eq!(s.try_read_begin(), Some(6));
}

#[test]
fn a_reader_retries_if_a_write_has_begun_or_passed_and_only_then() {
    let s: Seqcount = Seqcount::new();
    let start = s.read_begin();
    assert!(!s.read_retry(start), "nothing was written");
    s.write_begin();
    assert!(s.read_retry(start), "a write is in progress");
    s.write_end();
    assert!(s.read_retry(start), "a write has passed");
    assert!(!s.read_retry(s.read_begin()));
}

#[test]
fn the_later_acquire_form_agrees_with_the_fences() {
    let s: Seqcount = Seqcount::new();
    for _ in 0..3 {
        let both = |s: &Seqcount| (s.try_read_begin(), since_d0dd066a0fa2::try_read_begin(s));
        let (now, later) = both(&s);
        assert!(now.is_some() && now == later);
        s.write_begin();
        assert_eq!(both(&s), (None, None));
        s.write_end();
    }
}

/// A word that starts just below its wrap-around.
struct NearWrap(AtomicU32);

impl Word for NearWrap {
    fn new(name: &'static str, _: u32) -> Self {
        Self(AtomicU32::new(name, u32::MAX - 1))
    }
    fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }
    fn load_own(&self) -> u32 {
        self.0.load_own()
    }
    fn store(&self, v: u32, order: Ordering) {
        self.0.store(v, order);
    }
}

#[test]
fn the_sequence_wraps_around() {
    let s: Seqcount<NearWrap> = Seqcount::new();
    let start = s.read_begin();
    assert_eq!(start, u32::MAX - 1);
    s.write_begin();
    assert_eq!(s.try_read_begin(), None);
    s.write_end();
    assert_eq!(s.try_read_begin(), Some(0));
    assert!(s.read_retry(start));
}

/// A word that tells how often readers have loaded it.
struct Watched(AtomicU32);

static LOADS: host::AtomicU32 = host::AtomicU32::new(0);

impl Word for Watched {
    fn new(name: &'static str, v: u32) -> Self {
        Self(AtomicU32::new(name, v))
    }
    fn load(&self, order: Ordering) -> u32 {
        LOADS.fetch_add(1, Ordering::Relaxed);
        self.0.load(order)
    }
    fn load_own(&self) -> u32 {
        self.0.load_own()
    }
    fn store(&self, v: u32, order: Ordering) {
        self.0.store(v, order);
    }
}

#[test]
fn a_reader_waits_until_the_write_is_over() {
    let s: Seqcount<Watched> = Seqcount::new();
    s.write_begin();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| s.read_begin());
        // It has looked, more than once, and found the sequence odd each time.
        while LOADS.load(Ordering::Relaxed) < 3 && !reader.is_finished() {
            std::thread::yield_now();
        }
        s.write_end();
        assert_eq!(reader.join().unwrap(), 2);
    });
}

thread_local! {
    /// What happens between the load and the store of the next increment.
    static BETWEEN: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// A word into whose increments another writer may fall.
struct Raced(AtomicU32);

impl Word for Raced {
    fn new(name: &'static str, v: u32) -> Self {
        Self(AtomicU32::new(name, v))
    }
    fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }
    fn load_own(&self) -> u32 {
        self.0.load_own()
    }
    fn store(&self, v: u32, order: Ordering) {
        if let Some(between) = BETWEEN.take() {
            between();
        }
        self.0.store(v, order);
    }
}

#[test]
fn two_writers_at_once_lose_an_increment_and_readers_would_spin_for_ever() {
    let s: &'static Seqcount<Raced> = Box::leak(Box::new(Seqcount::new()));
    BETWEEN.set(Some(Box::new(|| s.write_begin())));
    s.write_begin(); // the other writer's increment falls inside and is overwritten
    s.write_end();
    s.write_end(); // the other's
    assert_eq!(s.try_read_begin(), None, "odd, and nobody is inside");
}

#[test]
fn a_writer_nested_in_a_section_looks_like_none_to_readers() {
    // An NMI that counts a miss inside an open section: odd, even, odd, even.
    let s: Seqcount = Seqcount::new();
    let inside: Vec<bool> =
        [Seqcount::write_begin, Seqcount::write_begin, Seqcount::write_end, Seqcount::write_end]
            .into_iter()
            .map(|step: fn(&Seqcount)| {
                step(&s);
                s.try_read_begin().is_none()
            })
            .collect();
    assert_eq!(inside, [true, false, true, false]);
}
