//! Words shared only between a CPU and its own interrupts: plain cells, which models do not explore.

use std::cell::Cell;

macro_rules! local_word {
    ($name:ident, $int:ty) => {
        /// A word of one CPU.
        #[derive(Debug, Default)]
        pub struct $name(Cell<$int>);

        // SAFETY: all threads of a model are coroutines on one host thread.
        unsafe impl Sync for $name {}

        impl $name {
            /// A new word that holds `v`.
            pub const fn new(v: $int) -> Self {
                Self(Cell::new(v))
            }

            /// Reads the word.
            pub fn get(&self) -> $int {
                self.0.get()
            }

            /// Writes the word.
            pub fn set(&self, v: $int) {
                self.0.set(v)
            }
        }
    };
}

local_word!(LocalU32, u32);
local_word!(LocalU64, u64);
local_word!(LocalUsize, usize);

impl LocalU32 {
    /// Adds `v`, wrapping, and returns the new value, as one step.
    #[track_caller]
    pub fn add_return(&self, v: u32) -> u32 {
        super::model::point(std::panic::Location::caller());
        self.0.set(self.0.get().wrapping_add(v));
        self.0.get()
    }

    /// Adds 1 and returns the new value, as one step.
    #[track_caller]
    pub fn inc_return(&self) -> u32 {
        self.add_return(1)
    }

    /// Subtracts 1 as one step.
    #[track_caller]
    pub fn dec(&self) {
        self.add_return(u32::MAX);
    }
}

impl LocalUsize {
    /// Writes the word and returns what it held.
    pub fn replace(&self, v: usize) -> usize {
        self.0.replace(v)
    }
}
