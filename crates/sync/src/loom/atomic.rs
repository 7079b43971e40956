//! Words shared between CPUs, explored. See the other half for what each operation means.
//!
//! `load_own` is an unsynchronised load: a load that is no scheduling point. It must be one: a thread that loads a word and
//! then stores to it would otherwise hide another thread's earlier load from loom's reduction, and models explore a single
//! execution. loom panics if such a load races with a store.

use std::panic::Location;

pub use std::sync::atomic::Ordering;

use loom::sync::atomic;

use super::log::{Op, new_id, owned, word};
use super::model::point;
use super::weaken::ordering;

/// A 32-bit word as the sequence counter and the counters' halves use it.
pub trait Word: Send + Sync {
    /// A new word called `name` that holds `v`.
    fn new(name: &'static str, v: u32) -> Self;
    /// Reads the word.
    #[track_caller]
    fn load(&self, order: Ordering) -> u32;
    /// Reads the word as its only writer.
    #[track_caller]
    fn load_own(&self) -> u32;
    /// Writes the word.
    #[track_caller]
    fn store(&self, v: u32, order: Ordering);
}

macro_rules! atomic_word {
    ($name:ident, $int:ty) => {
        /// A word that models explore.
        #[derive(Debug)]
        pub struct $name {
            word: atomic::$name,
            name: &'static str,
            /// Not the address: words move until they are shared.
            id: usize,
        }

        impl $name {
            /// A new word called `name` that holds `v`.
            #[track_caller]
            pub fn new(name: &'static str, v: $int) -> Self {
                Self { word: atomic::$name::new(v), name, id: new_id() }
            }

            fn log(&self, op: Op, v: $int, order: Ordering, at: &'static Location<'static>) {
                word(op, self.name, self.id, v as u64, order, at);
            }

            /// Reads the word.
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $int {
                let at = Location::caller();
                point(at);
                let order = ordering(order, at);
                let v = self.word.load(order);
                self.log(Op::Load, v, order, at);
                v
            }

            /// Reads the word as its only writer: no scheduling point.
            #[track_caller]
            pub fn load_own(&self) -> $int {
                let at = Location::caller();
                point(at);
                // SAFETY: loom checks for a racing store and panics; it does not misbehave.
                let v = owned(self.name, at, || unsafe { self.word.unsync_load() });
                self.log(Op::Own, v, Ordering::Relaxed, at);
                v
            }

            /// Writes the word.
            #[track_caller]
            pub fn store(&self, v: $int, order: Ordering) {
                let at = Location::caller();
                point(at);
                let order = ordering(order, at);
                self.word.store(v, order);
                self.log(Op::Store, v, order, at);
            }

            /// Adds, wrapping, and returns what the word held.
            #[track_caller]
            pub fn fetch_add(&self, v: $int, order: Ordering) -> $int {
                let at = Location::caller();
                point(at);
                let order = ordering(order, at);
                let old = self.word.fetch_add(v, order);
                self.log(Op::Rmw, old.wrapping_add(v), order, at);
                old
            }

            /// Subtracts, wrapping, and returns what the word held.
            #[track_caller]
            pub fn fetch_sub(&self, v: $int, order: Ordering) -> $int {
                let at = Location::caller();
                point(at);
                let order = ordering(order, at);
                let old = self.word.fetch_sub(v, order);
                self.log(Op::Rmw, old.wrapping_sub(v), order, at);
                old
            }

            /// Writes `new` if the word holds `current`.
            ///
            /// # Errors
            /// The value found, if it was not `current`.
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                let at = Location::caller();
                point(at);
                let success = ordering(success, at);
                let r = self.word.compare_exchange(current, new, success, failure);
                match r {
                    Ok(_) => self.log(Op::Rmw, new, success, at),
                    Err(found) => self.log(Op::Load, found, failure, at),
                }
                r
            }
        }
    };
}

atomic_word!(AtomicI32, i32);
atomic_word!(AtomicU32, u32);
atomic_word!(AtomicU64, u64);

impl Word for AtomicU32 {
    fn new(name: &'static str, v: u32) -> Self {
        AtomicU32::new(name, v)
    }
    #[track_caller]
    fn load(&self, order: Ordering) -> u32 {
        AtomicU32::load(self, order)
    }
    #[track_caller]
    fn load_own(&self) -> u32 {
        AtomicU32::load_own(self)
    }
    #[track_caller]
    fn store(&self, v: u32, order: Ordering) {
        AtomicU32::store(self, v, order)
    }
}

impl AtomicU64 {
    /// Adds as the only writing CPU: a load of its own and a store, with no interrupt in between.
    #[track_caller]
    pub fn add_own(&self, v: u64) {
        let at = Location::caller();
        point(at);
        // SAFETY: as in `load_own`.
        let v = owned(self.name, at, || unsafe { self.word.unsync_load() }).wrapping_add(v);
        self.word.store(v, Ordering::Relaxed);
        self.log(Op::Store, v, Ordering::Relaxed, at);
    }
}
