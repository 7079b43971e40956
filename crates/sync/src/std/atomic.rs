//! Words shared between CPUs. Kernel: `READ_ONCE`, `WRITE_ONCE`, `atomic_t`, `local64_t`.
//!
//! Each word has a name, given at construction: ordinary builds drop it, models print it. `load_own` and `add_own` say
//! that the caller is the only writer (with the interrupts of its CPU), which is what per-CPU counters rest on.

use std::sync::atomic;
pub use std::sync::atomic::Ordering;

/// A 32-bit word as the sequence counter and the counters' halves use it.
///
/// [`AtomicU32`] is the real one; a virtual machine wraps it in one that announces each access.
pub trait Word: Send + Sync {
    /// A new word called `name` that holds `v`.
    fn new(name: &'static str, v: u32) -> Self;
    /// Reads the word.
    fn load(&self, order: Ordering) -> u32;
    /// Reads the word as its only writer.
    fn load_own(&self) -> u32;
    /// Writes the word.
    fn store(&self, v: u32, order: Ordering);
}

macro_rules! atomic_word {
    ($(#[$doc:meta])* $name:ident, $int:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);

        impl $name {
            /// A new word called `name` (models print it) that holds `v`.
            #[inline(always)]
            pub const fn new(_name: &'static str, v: $int) -> Self {
                Self(atomic::$name::new(v))
            }

            /// Reads the word.
            #[inline(always)]
            pub fn load(&self, order: Ordering) -> $int {
                self.0.load(order)
            }

            /// Reads the word as its only writer: no other CPU stores to it, so no ordering is needed.
            #[inline(always)]
            pub fn load_own(&self) -> $int {
                self.0.load(Ordering::Relaxed)
            }

            /// Writes the word.
            #[inline(always)]
            pub fn store(&self, v: $int, order: Ordering) {
                self.0.store(v, order)
            }

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

            /// Writes `new` if the word holds `current`.
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

atomic_word!(/** A signed 32-bit word. Kernel: `atomic_t`. */ AtomicI32, i32);
atomic_word!(/** An unsigned 32-bit word. */ AtomicU32, u32);
atomic_word!(/** An unsigned 64-bit word. */ AtomicU64, u64);

impl Word for AtomicU32 {
    #[inline(always)]
    fn new(name: &'static str, v: u32) -> Self {
        AtomicU32::new(name, v)
    }
    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        AtomicU32::load(self, order)
    }
    #[inline(always)]
    fn load_own(&self) -> u32 {
        AtomicU32::load_own(self)
    }
    #[inline(always)]
    fn store(&self, v: u32, order: Ordering) {
        AtomicU32::store(self, v, order)
    }
}

impl AtomicU64 {
    /// Adds as the only writing CPU, in one instruction on x86-64, so that no interrupt of that CPU can fall inside.
    ///
    /// Kernel: `local64_add`, x86 `local_add`. A load, an add and a store would lose the count of an interrupt that came
    /// between them. Other CPUs may read the word, never write it.
    ///
    /// Context: any, on the CPU that owns the word.
    #[inline(always)]
    pub fn add_own(&self, v: u64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the pointer is to a live, aligned word that may be written through `&self`. The instruction is one
        // aligned read and one aligned write, as a relaxed load and a relaxed store are on this architecture; no other
        // CPU writes (the contract above), and an interrupt of this CPU falls before it or after it.
        unsafe {
            core::arch::asm!(
                "add qword ptr [{p}], {v}",
                p = in(reg) self.0.as_ptr(),
                v = in(reg) v,
                options(nostack),
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        self.0.fetch_add(v, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn add_own_wraps_and_carries() {
        let w = AtomicU64::new("w", 0xFFFF_FFFF);
        w.add_own(1);
        assert_eq!(w.load(Ordering::Relaxed), 0x1_0000_0000);
        w.add_own(u64::MAX);
        assert_eq!(w.load_own(), 0xFFFF_FFFF);
    }
}
