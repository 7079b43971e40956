//! Words shared only between a CPU and its own interrupts. Kernel: `local_t`, `this_cpu_*` on a private word.
//!
//! They are relaxed atomics, because a signal handler of the same thread may touch them between any two instructions,
//! and because a task that moves to another CPU takes them along. Models do not explore them: no other CPU looks.

use std::sync::atomic::{self, Ordering};

macro_rules! local_word {
    ($(#[$doc:meta])* $name:ident, $atomic:ident, $int:ty) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(atomic::$atomic);

        impl $name {
            /// A new word that holds `v`.
            pub const fn new(v: $int) -> Self {
                Self(atomic::$atomic::new(v))
            }

            /// Reads the word.
            #[inline(always)]
            pub fn get(&self) -> $int {
                self.0.load(Ordering::Relaxed)
            }

            /// Writes the word.
            #[inline(always)]
            pub fn set(&self, v: $int) {
                self.0.store(v, Ordering::Relaxed)
            }
        }
    };
}

local_word!(/** 32 bits. */ LocalU32, AtomicU32, u32);
local_word!(/** 64 bits. */ LocalU64, AtomicU64, u64);
local_word!(/** As wide as a pointer. */ LocalUsize, AtomicUsize, usize);

impl LocalU32 {
    /// Adds `v`, wrapping, and returns the new value, as one step: no interrupt of this CPU falls inside.
    ///
    /// Kernel: `this_cpu_add_return` (x86: an unlocked `xadd`).
    #[inline(always)]
    pub fn add_return(&self, v: u32) -> u32 {
        let old: u32;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a live, aligned word that may be written through `&self`. Without a lock prefix the instruction is
        // indivisible only on its own CPU, and by this type's contract nobody else looks.
        unsafe {
            core::arch::asm!(
                "xadd dword ptr [{p}], {v:e}",
                p = in(reg) self.0.as_ptr(),
                v = inout(reg) v => old,
                options(nostack),
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            old = self.0.fetch_add(v, Ordering::Relaxed);
        }
        old.wrapping_add(v)
    }

    /// Adds 1 and returns the new value, as one step. Kernel: `this_cpu_inc_return`.
    #[inline(always)]
    pub fn inc_return(&self) -> u32 {
        self.add_return(1)
    }

    /// Subtracts 1 as one step. Kernel: `this_cpu_dec`.
    #[inline(always)]
    pub fn dec(&self) {
        self.add_return(u32::MAX);
    }
}

impl LocalUsize {
    /// Writes the word and returns what it held. Two steps: for words that only their own thread writes.
    #[inline(always)]
    pub fn replace(&self, v: usize) -> usize {
        let old = self.get();
        self.set(v);
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inc_return_gives_the_new_value_and_dec_takes_it_back() {
        let w = LocalU32::new(0);
        assert_eq!(w.inc_return(), 1);
        assert_eq!(w.inc_return(), 2);
        w.dec();
        assert_eq!(w.get(), 1);
        assert_eq!(LocalU32::new(u32::MAX).inc_return(), 0);
    }
}
