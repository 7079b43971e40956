//! Atomics of the host program: plumbing that no model should see (who holds a CPU, which thread to signal, a stop flag).
//!
//! They are std's under every cfg. They are types of their own, not re-exports, so that a lint can tell the two kinds
//! apart, and so that each use is a visible decision to stay out of the models.

use std::sync::atomic;
pub use std::sync::atomic::Ordering;

macro_rules! host_atomic {
    ($(#[$doc:meta])* $name:ident, $int:ty) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);

        impl $name {
            /// A new word that holds `v`.
            pub const fn new(v: $int) -> Self {
                Self(atomic::$name::new(v))
            }

            /// Reads the word.
            #[inline(always)]
            pub fn load(&self, order: Ordering) -> $int {
                self.0.load(order)
            }

            /// Writes the word.
            #[inline(always)]
            pub fn store(&self, v: $int, order: Ordering) {
                self.0.store(v, order)
            }

            /// Writes the word and returns what it held.
            #[inline(always)]
            pub fn swap(&self, v: $int, order: Ordering) -> $int {
                self.0.swap(v, order)
            }

            /// Writes `new` if the word holds `current`; returns what it held, as `Ok` if it was written.
            ///
            /// # Errors
            /// The value found, if it was not `current`.
            #[inline(always)]
            pub fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                self.0.compare_exchange(current, new, success, failure)
            }
        }
    };
}

macro_rules! host_counter {
    ($name:ident, $int:ty) => {
        impl $name {
            /// Adds, wrapping, and returns what the word held.
            #[inline(always)]
            pub fn fetch_add(&self, v: $int, order: Ordering) -> $int {
                self.0.fetch_add(v, order)
            }

            /// Subtracts, wrapping, and returns what the word held.
            #[inline(always)]
            pub fn fetch_sub(&self, v: $int, order: Ordering) -> $int {
                self.0.fetch_sub(v, order)
            }

            /// Ors bits in and returns what the word held.
            #[inline(always)]
            pub fn fetch_or(&self, v: $int, order: Ordering) -> $int {
                self.0.fetch_or(v, order)
            }
        }
    };
}

host_atomic!(/** A flag. */ AtomicBool, bool);
host_atomic!(/** A signed 32-bit word (a thread id, say). */ AtomicI32, i32);
host_atomic!(/** An unsigned 32-bit word. */ AtomicU32, u32);
host_atomic!(/** An unsigned 64-bit word. */ AtomicU64, u64);
host_atomic!(/** A pointer-sized word. */ AtomicUsize, usize);
host_counter!(AtomicI32, i32);
host_counter!(AtomicU32, u32);
host_counter!(AtomicU64, u64);
host_counter!(AtomicUsize, usize);

/// A pointer.
#[derive(Debug)]
#[repr(transparent)]
pub struct AtomicPtr<T>(atomic::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    /// A new word that holds `p`.
    pub const fn new(p: *mut T) -> Self {
        Self(atomic::AtomicPtr::new(p))
    }

    /// Reads the pointer.
    #[inline(always)]
    pub fn load(&self, order: Ordering) -> *mut T {
        self.0.load(order)
    }

    /// Writes the pointer.
    #[inline(always)]
    pub fn store(&self, p: *mut T, order: Ordering) {
        self.0.store(p, order)
    }

    /// Writes the pointer and returns the one it held.
    #[inline(always)]
    pub fn swap(&self, p: *mut T, order: Ordering) -> *mut T {
        self.0.swap(p, order)
    }

    /// Writes `new` if the word holds `current`.
    ///
    /// # Errors
    /// The pointer found, if it was not `current`.
    #[inline(always)]
    pub fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.0.compare_exchange(current, new, success, failure)
    }
}
