//! Models of the sequence counter by itself: both forms of the reader, writers that exclude each other and writers that do
//! not, and a reader on top of the section it waits for.
//!
//! | pattern | result |
//! |---|---|
//! | one writer, one reader, by fences (6.6) and by acquire (6.12) | what is accepted is one moment's |
//! | two writers under a lock | nothing lost |
//! | two writers without | an update or the sequence is lost |
//! | a reader on top of an open section | spins for ever |
#![cfg(loom)]

use stats::later::since_d0dd066a0fa2;
use stats::u64_stats::Halves;
use stats::{Seqcount, U64Stats};
use sync::model::{Model, ONE_WRITER, STUCK, invariant, reach};
use sync::thread::scope;

const START: u64 = 0xFFFF_FFFF;
const STEP: u64 = 0x8000_0001;

struct Stats {
    seq: Seqcount,
    cnt: Halves,
    nsecs: Halves,
}

impl Stats {
    fn new() -> Self {
        Self { seq: Seqcount::new(), cnt: Halves::new("cnt", START), nsecs: Halves::new("nsecs", START) }
    }

    fn update(&self) {
        self.seq.write_begin();
        self.cnt.inc();
        self.nsecs.add(STEP);
        self.seq.write_end();
    }

    /// What one attempt read must be what the sequence says.
    fn read(&self, begin: impl Fn(&Seqcount) -> Option<u32>) {
        let Some(seq) = begin(&self.seq) else { return reach("again") };
        let read = (self.cnt.read(), self.nsecs.read());
        if self.seq.read_retry(seq) {
            return reach("again");
        }
        let k = u64::from(seq / 2);
        let moment = (START + k, START + k * STEP);
        invariant("one-moment", read == moment, || {
            format!("sequence {seq} says {moment:x?}, read {read:x?}")
        });
        reach(format!("{k} updates"));
    }
}

fn writer_reader(begin: fn(&Seqcount) -> Option<u32>) {
    let stats = Stats::new();
    scope(|s| {
        s.spawn("reader", || stats.read(begin)).unwrap();
        s.spawn("writer", || stats.update()).unwrap();
    });
}

#[test]
fn the_reader_by_fences() {
    Model::holds("stats::seqcount_fences", &["again", "0 updates", "1 updates"])
        .check(|| writer_reader(Seqcount::try_read_begin));
}

#[test]
fn the_reader_by_acquire() {
    Model::holds("stats::seqcount_acquire", &["again", "0 updates", "1 updates"])
        .check(|| writer_reader(since_d0dd066a0fa2::try_read_begin));
}

/// Two updates by two writers; under `lock` if there is one.
fn two_writers(locked: bool) {
    let (stats, lock) = (Stats::new(), sync::atomic::AtomicU32::new("lock", 0));
    let write = || {
        use sync::Ordering::{Acquire, Relaxed, Release};
        while locked && lock.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            sync::thread::yield_now();
        }
        stats.update();
        if locked {
            lock.store(0, Release);
        }
    };
    scope(|s| {
        s.spawn("writer0", write).unwrap();
        s.spawn("writer1", write).unwrap();
    });
    let read = (stats.cnt.read(), stats.nsecs.read());
    let even = stats.seq.try_read_begin();
    invariant("total", even == Some(4) && read == (START + 2, START + 2 * STEP), || {
        format!("{even:?} {read:x?}")
    });
    reach("both counted");
}

#[test]
fn two_writers_under_a_lock_lose_nothing() {
    Model::holds("stats::two_writers_locked", &["both counted"]).check(|| two_writers(true));
}

#[test]
fn two_writers_without_one_lose_an_update() {
    // Each writer reads its "own" word with no regard for the other.
    Model::breaks("stats::two_writers_unlocked", ONE_WRITER).check(|| two_writers(false));
}

#[test]
fn a_reader_on_top_of_an_open_section_is_stuck() {
    Model::breaks("stats::reader_on_top_of_writer", STUCK).check(|| {
        let stats = Stats::new();
        stats.seq.write_begin();
        // What an interrupt of the writer's CPU would do here.
        stats.seq.read_begin();
    });
    // One that only tries is told to come again.
    Model::holds("stats::try_on_top_of_writer", &["again"]).check(|| {
        let stats = Stats::new();
        stats.seq.write_begin();
        stats.read(Seqcount::try_read_begin);
    });
}
