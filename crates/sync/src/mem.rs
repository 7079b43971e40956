//! Raw accesses to memory that simulated programs share. Mirrors `asm-generic/rwonce.h` and what the eBPF
//! interpreter does with `atomic_*` and `atomic64_*` (kernel/bpf/core.c, v6.6).
//!
//! A program's memory (map values, stack, context) has no Rust type: programs on several CPUs, their
//! interrupts, and readers outside access it at once, with any width at any address. So each access here is a
//! relaxed atomic of its width where the address is aligned to it, and a row of relaxed byte accesses where
//! it is not (which may tear, as on the hardware). That makes racing accesses of one width defined.
//!
//! Differs: Rust, unlike the kernel's memory model, does not say what racing accesses of *different* widths
//! to one word mean. A program that does that gets what the hardware gives.
//!
//! Read-modify-writes that return the old value are fully ordered (SeqCst), those that do not are relaxed, as
//! the kernel's are.
//!
//! Context: all functions are async-signal-safe: no lock, no allocation, no panic.

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::atomic::{self, Ordering::Relaxed, Ordering::SeqCst};

/// Alignment of [`SharedMem`], in bytes: a cache line.
const SHARED_ALIGN: usize = 64;

macro_rules! load_store {
    ($load:ident, $store:ident, $int:ty, $atomic:ident) => {
        /// Loads one value in host byte order; whole if `p` is aligned to its width, byte by byte if not.
        ///
        /// # Safety
        /// `p` is valid for reads of the width, and every access to that memory is atomic while others may be
        /// writing.
        #[inline(always)]
        pub unsafe fn $load(p: *const u8) -> $int {
            if p.cast::<$int>().is_aligned() {
                // SAFETY: valid by contract, aligned as just checked. ORDERING: Relaxed; a plain load of the
                // program.
                unsafe { (*p.cast::<atomic::$atomic>()).load(Relaxed) }
            } else {
                let mut bytes = [0; size_of::<$int>()];
                // SAFETY: the caller's contract.
                unsafe { load_bytes(p, &mut bytes) };
                <$int>::from_ne_bytes(bytes)
            }
        }

        /// Stores one value in host byte order; whole if `p` is aligned to its width, byte by byte if not.
        ///
        /// # Safety
        /// `p` is valid for writes of the width, and every access to that memory is atomic while others may
        /// access it.
        #[inline(always)]
        pub unsafe fn $store(p: *mut u8, v: $int) {
            if p.cast::<$int>().is_aligned() {
                // SAFETY: valid by contract, aligned as just checked. ORDERING: Relaxed; a plain store of the
                // program.
                unsafe { (*p.cast::<atomic::$atomic>()).store(v, Relaxed) }
            } else {
                // SAFETY: the caller's contract.
                unsafe { store_bytes(p, &v.to_ne_bytes()) };
            }
        }
    };
}

load_store!(load8, store8, u8, AtomicU8);
load_store!(load16, store16, u16, AtomicU16);
load_store!(load32, store32, u32, AtomicU32);
load_store!(load64, store64, u64, AtomicU64);

macro_rules! rmw {
    ($(#[$doc:meta])* $name:ident, $int:ty, $atomic:ident, $op:ident, $order:ident) => {
        $(#[$doc])*
        /// Returns the old value.
        ///
        /// # Safety
        /// `p` is aligned to the width and valid for reads and writes of it, and every access to that memory
        /// is atomic.
        #[inline(always)]
        pub unsafe fn $name(p: *mut u8, v: $int) -> $int {
            // SAFETY: the caller's contract. ORDERING: as the module says: SeqCst with a result, Relaxed
            // without.
            unsafe { (*p.cast::<atomic::$atomic>()).$op(v, $order) }
        }
    };
}

rmw!(/** Adds; relaxed. Kernel: `atomic_add`. */ add32, u32, AtomicU32, fetch_add, Relaxed);
rmw!(/** Ors; relaxed. Kernel: `atomic_or`. */ or32, u32, AtomicU32, fetch_or, Relaxed);
rmw!(/** Ands; relaxed. Kernel: `atomic_and`. */ and32, u32, AtomicU32, fetch_and, Relaxed);
rmw!(/** Xors; relaxed. Kernel: `atomic_xor`. */ xor32, u32, AtomicU32, fetch_xor, Relaxed);
rmw!(/** Adds; fully ordered. Kernel: `atomic_fetch_add`. */ fetch_add32, u32, AtomicU32, fetch_add, SeqCst);
rmw!(/** Ors; fully ordered. Kernel: `atomic_fetch_or`. */ fetch_or32, u32, AtomicU32, fetch_or, SeqCst);
rmw!(/** Ands; fully ordered. Kernel: `atomic_fetch_and`. */ fetch_and32, u32, AtomicU32, fetch_and, SeqCst);
rmw!(/** Xors; fully ordered. Kernel: `atomic_fetch_xor`. */ fetch_xor32, u32, AtomicU32, fetch_xor, SeqCst);
rmw!(/** Exchanges; fully ordered. Kernel: `atomic_xchg`. */ xchg32, u32, AtomicU32, swap, SeqCst);
rmw!(/** Adds; relaxed. Kernel: `atomic64_add`. */ add64, u64, AtomicU64, fetch_add, Relaxed);
rmw!(/** Ors; relaxed. Kernel: `atomic64_or`. */ or64, u64, AtomicU64, fetch_or, Relaxed);
rmw!(/** Ands; relaxed. Kernel: `atomic64_and`. */ and64, u64, AtomicU64, fetch_and, Relaxed);
rmw!(/** Xors; relaxed. Kernel: `atomic64_xor`. */ xor64, u64, AtomicU64, fetch_xor, Relaxed);
rmw!(
    /** Adds; fully ordered. Kernel: `atomic64_fetch_add`. */
    fetch_add64, u64, AtomicU64, fetch_add, SeqCst
);
rmw!(/** Ors; fully ordered. Kernel: `atomic64_fetch_or`. */ fetch_or64, u64, AtomicU64, fetch_or, SeqCst);
rmw!(
    /** Ands; fully ordered. Kernel: `atomic64_fetch_and`. */
    fetch_and64, u64, AtomicU64, fetch_and, SeqCst
);
rmw!(
    /** Xors; fully ordered. Kernel: `atomic64_fetch_xor`. */
    fetch_xor64, u64, AtomicU64, fetch_xor, SeqCst
);
rmw!(/** Exchanges; fully ordered. Kernel: `atomic64_xchg`. */ xchg64, u64, AtomicU64, swap, SeqCst);

/// Stores `new` if the word holds `old`; fully ordered. Returns what it held. Kernel: `atomic_cmpxchg`.
///
/// # Safety
/// `p` is aligned to the width and valid for reads and writes of it, and every access to that memory is
/// atomic.
#[inline(always)]
pub unsafe fn cmpxchg32(p: *mut u8, old: u32, new: u32) -> u32 {
    // SAFETY: the caller's contract. ORDERING: SeqCst; it returns a value.
    let r = unsafe { (*p.cast::<atomic::AtomicU32>()).compare_exchange(old, new, SeqCst, SeqCst) };
    r.unwrap_or_else(|held| held)
}

/// Stores `new` if the word holds `old`; fully ordered. Returns what it held. Kernel: `atomic64_cmpxchg`.
///
/// # Safety
/// `p` is aligned to the width and valid for reads and writes of it, and every access to that memory is
/// atomic.
#[inline(always)]
pub unsafe fn cmpxchg64(p: *mut u8, old: u64, new: u64) -> u64 {
    // SAFETY: the caller's contract. ORDERING: SeqCst; it returns a value.
    let r = unsafe { (*p.cast::<atomic::AtomicU64>()).compare_exchange(old, new, SeqCst, SeqCst) };
    r.unwrap_or_else(|held| held)
}

/// Copies `out.len()` bytes out of shared memory, byte by byte: a value written meanwhile may tear.
///
/// # Safety
/// `p` is valid for reads of `out.len()` bytes, and every access to them is atomic while others may be
/// writing.
#[inline]
pub unsafe fn load_bytes(p: *const u8, out: &mut [u8]) {
    for (i, b) in out.iter_mut().enumerate() {
        // SAFETY: `i` is within the length, so valid by contract. ORDERING: Relaxed; see the module.
        *b = unsafe { (*p.add(i).cast::<atomic::AtomicU8>()).load(Relaxed) };
    }
}

/// Copies `bytes` into shared memory, byte by byte: a reader meanwhile may see part of it.
///
/// # Safety
/// `p` is valid for writes of `bytes.len()` bytes, and every access to them is atomic while others may access
/// them.
#[inline]
pub unsafe fn store_bytes(p: *mut u8, bytes: &[u8]) {
    for (i, &b) in bytes.iter().enumerate() {
        // SAFETY: `i` is within the length, so valid by contract. ORDERING: Relaxed; see the module.
        unsafe { (*p.add(i).cast::<atomic::AtomicU8>()).store(b, Relaxed) };
    }
}

/// Copies `len` bytes from shared memory to shared memory, in whole 64-bit words where both ends are aligned
/// to 8.
/// Kernel: `bpf_long_memcpy`, include/linux/bpf.h.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `len` bytes; every access to either is atomic while
/// others may access it. They may overlap; what then comes out is some mixture.
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    let whole = if from.cast::<u64>().is_aligned() && to.cast::<u64>().is_aligned() { len & !7 } else { 0 };
    for i in (0..whole).step_by(8) {
        // SAFETY: `i + 8 <= len`.
        unsafe { store64(to.add(i), load64(from.add(i))) };
    }
    for i in whole..len {
        // SAFETY: `i < len`.
        unsafe { store8(to.add(i), load8(from.add(i))) };
    }
}

/// Zeroes `len` bytes of shared memory, in whole 64-bit words where it is aligned to 8.
///
/// # Safety
/// `p` is valid for writes of `len` bytes, and every access to them is atomic while others may access them.
pub unsafe fn zero(p: *mut u8, len: usize) {
    let whole = if p.cast::<u64>().is_aligned() { len & !7 } else { 0 };
    for i in (0..whole).step_by(8) {
        // SAFETY: `i + 8 <= len`.
        unsafe { store64(p.add(i), 0) };
    }
    for i in whole..len {
        // SAFETY: `i < len`.
        unsafe { store8(p.add(i), 0) };
    }
}

/// Whether `len` bytes of shared memory equal `bytes`.
///
/// # Safety
/// `p` is valid for reads of `bytes.len()` bytes, and every access to them is atomic while others may be
/// writing.
#[inline]
pub unsafe fn equal(p: *const u8, bytes: &[u8]) -> bool {
    // SAFETY: `i` is within the length.
    bytes.iter().enumerate().all(|(i, &b)| unsafe { load8(p.add(i)) } == b)
}

/// Zeroed memory that is shared: owned here, accessed only through this module's functions. Aligned to a
/// cache line.
#[derive(Debug)]
pub struct SharedMem {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns plain bytes, and all access to them is atomic by the contract of the functions above.
unsafe impl Send for SharedMem {}
// SAFETY: as above.
unsafe impl Sync for SharedMem {}

impl SharedMem {
    /// `len` zeroed bytes (1 if `len` is 0); `None` if the host has no memory for them. May allocate: not for
    /// interrupts.
    pub fn new(len: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len.max(1), SHARED_ALIGN).ok()?;
        // SAFETY: the size is not 0.
        let base = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        Some(Self { base, layout })
    }

    /// The first byte. Its provenance is exposed, so that an address computed by a program can be turned
    /// back.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr().expose_provenance();
        self.base.as_ptr()
    }

    /// The length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.layout.size()
    }

    /// Never: there is at least one byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl Drop for SharedMem {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`.
        unsafe { alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unaligned_values_are_written_and_read_whole() {
        let m = SharedMem::new(32).unwrap();
        for at in 0..16 {
            // SAFETY: `at + 8` is within the 32 bytes, and nobody else has them.
            unsafe {
                let p = m.as_ptr().add(at);
                store64(p, 0x1122_3344_5566_7788);
                assert_eq!(load64(p), 0x1122_3344_5566_7788);
                store32(p, 0xaabb_ccdd);
                assert_eq!(load32(p), 0xaabb_ccdd);
                store16(p, 0xbeef);
                assert_eq!(load16(p), 0xbeef);
                store8(p, 7);
                assert_eq!(load8(p), 7);
            }
        }
    }

    #[test]
    fn copies_of_any_length_and_alignment() {
        let m = SharedMem::new(128).unwrap();
        for (from, to, len) in [(0, 64, 32), (1, 64, 31), (0, 65, 8), (3, 70, 0), (8, 64, 13)] {
            let bytes: Vec<u8> = (0..len as u8).map(|i| i ^ 0x5a).collect();
            let mut out = vec![0; len];
            // SAFETY: both ranges are within the 128 bytes, and nobody else has them.
            unsafe {
                store_bytes(m.as_ptr().add(from), &bytes);
                copy(m.as_ptr().add(from), m.as_ptr().add(to), len);
                assert!(equal(m.as_ptr().add(to), &bytes));
                load_bytes(m.as_ptr().add(to), &mut out);
                assert_eq!(out, bytes);
                zero(m.as_ptr().add(to), len);
                assert!(equal(m.as_ptr().add(to), &vec![0; len]));
            }
        }
    }
}
