//! Per-CPU memory as base + offset. Kernel: mm/percpu.c, include/linux/percpu-defs.h, v6.6.
//!
//! Memory comes in chunks; a chunk holds one unit for each possible CPU, and the units of every chunk lie equally far
//! apart. So an allocation is one address (in CPU 0's unit), and another CPU's copy is that address plus the CPU's
//! offset, which the CPU knows: `this_cpu_ptr` is one addition. Small allocations of one CPU pack into its cache lines
//! (two programs' statistics to a line); no two CPUs ever share one.
//!
//! Differs: chunks come from the host's allocator, and free space is a first-fit list instead of a bitmap.

use std::alloc::{self, Layout};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use sync::host::{AtomicU64, Ordering::Relaxed};
use sync::local::LocalU32;

use crate::cpu::Cpu;
use crate::step::Step;
use crate::{Kconfig, step};

/// The size of one CPU's unit in a chunk, in bytes, and so the largest allocation. Kernel: `PCPU_MIN_UNIT_SIZE`.
pub const UNIT_SIZE: usize = 32 << 10;
/// The alignment of a unit, and so the largest alignment of an allocation. Kernel: `PAGE_SIZE`.
pub const UNIT_ALIGN: usize = 4096;

/// This CPU's copy of per-CPU memory is looked up. Charged and recorded on virtual machines.
pub static THIS_CPU_PTR: Step = Step::new("this_cpu_ptr", "this CPU's copy is looked up");

/// This CPU's counter is incremented and read as one step.
pub static THIS_CPU_INC_RETURN: Step =
    Step::new("this_cpu_inc_return", "this CPU's counter goes up and is read");
/// This CPU's counter is decremented.
pub static THIS_CPU_DEC: Step = Step::new("this_cpu_dec", "this CPU's counter goes down");

/// Per-CPU memory could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError;

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of per-CPU memory")
    }
}

impl std::error::Error for AllocError {}

/// The per-CPU memory of one machine. Clones are handles to the same memory.
#[derive(Clone)]
pub struct Pcpu(Arc<Areas>);

pub(crate) struct Areas {
    nr_cpus: usize,
    chunks: Mutex<Vec<Chunk>>,
    /// Bytes in use in each unit.
    used: AtomicU64,
    /// The allocation that is to fail, counted down; 0: none.
    fail_in: AtomicU64,
}

struct Chunk {
    base: NonNull<u8>,
    /// Free ranges `(start, end)` of the unit, ascending, never touching.
    free: Vec<(usize, usize)>,
}

// SAFETY: a chunk owns its memory; the pointer is used under the lock, or by those who hold an allocation in it.
unsafe impl Send for Chunk {}

impl Pcpu {
    /// Per-CPU memory for `nr_cpus` possible CPUs.
    pub(crate) fn new(nr_cpus: usize) -> Self {
        Self(Arc::new(Areas {
            nr_cpus,
            chunks: Mutex::new(Vec::new()),
            used: AtomicU64::new(0),
            fail_in: AtomicU64::new(0),
        }))
    }

    /// The number of possible CPUs. Kernel: `nr_cpu_ids`.
    pub fn nr_cpu_ids(&self) -> usize {
        self.0.nr_cpus
    }

    /// Allocates one `T` for each possible CPU; `init` is called with the number of each. Kernel: `alloc_percpu`.
    ///
    /// Context: task; may sleep.
    ///
    /// # Errors
    /// [`AllocError`] if the host has no memory, if `T` does not fit a unit, or if this allocation was told to fail.
    pub fn alloc<T: Send + Sync>(&self, init: impl FnMut(usize) -> T) -> Result<PerCpu<T>, AllocError> {
        let raw = self.alloc_raw(Layout::new::<T>())?;
        // First all values, then the memory: a panic in `init` then has nothing to undo but the range.
        let values: Vec<T> = (0..self.0.nr_cpus).map(init).collect();
        for (id, v) in values.into_iter().enumerate() {
            // SAFETY: the copy of CPU `id` is in bounds, aligned for `T`, and nobody else has the range.
            unsafe { raw.per_cpu(id).cast::<T>().write(v) };
        }
        Ok(PerCpu { raw, _values: PhantomData })
    }

    /// Allocates `len` zeroed bytes, aligned to 8, for each possible CPU. Kernel: `__alloc_percpu`.
    ///
    /// Context: task; may sleep.
    ///
    /// # Errors
    /// As [`Pcpu::alloc`].
    pub fn alloc_bytes(&self, len: usize) -> Result<PerCpuBytes, AllocError> {
        let raw = self.alloc_raw(Layout::from_size_align(len, 8).map_err(|_| AllocError)?)?;
        for id in 0..self.0.nr_cpus {
            // SAFETY: in bounds, and nobody else has the range.
            unsafe { raw.per_cpu(id).write_bytes(0, len) };
        }
        Ok(PerCpuBytes { raw })
    }

    /// Bytes in use for each CPU, to see that nothing leaked.
    pub fn used(&self) -> u64 {
        self.0.used.load(Relaxed)
    }

    /// Makes the `n`-th allocation from now fail (1: the next); 0 takes it back. Kernel: `fail_nth` of fault injection.
    pub fn fail_nth(&self, n: u64) {
        self.0.fail_in.store(n, Relaxed);
    }

    pub(crate) fn areas(&self) -> Arc<Areas> {
        self.0.clone()
    }

    fn alloc_raw(&self, layout: Layout) -> Result<Raw, AllocError> {
        let size = layout.size().max(1);
        if size > UNIT_SIZE || layout.align() > UNIT_ALIGN || self.0.is_to_fail() {
            return Err(AllocError);
        }
        let mut chunks = self.0.chunks.lock().unwrap_or_else(|e| e.into_inner());
        let found = chunks.iter_mut().find_map(|c| c.take(size, layout.align()));
        let base = match found {
            Some(base) => base,
            None => {
                let mut chunk = Chunk::new(self.0.nr_cpus)?;
                let base = chunk.take(size, layout.align()).ok_or(AllocError)?;
                chunks.push(chunk);
                base
            }
        };
        self.0.used.fetch_add(size as u64, Relaxed);
        Ok(Raw { base, size, areas: self.0.clone() })
    }
}

impl Areas {
    fn is_to_fail(&self) -> bool {
        let n = self.fail_in.load(Relaxed);
        n != 0 && {
            self.fail_in.store(n - 1, Relaxed);
            n == 1
        }
    }

    fn free(&self, base: NonNull<u8>, size: usize) {
        let mut chunks = self.chunks.lock().unwrap_or_else(|e| e.into_inner());
        let chunk = chunks.iter_mut().find(|c| c.unit_offset(base).is_some());
        if let Some(chunk) = chunk {
            chunk.give_back(base, size);
            self.used.fetch_sub(size as u64, Relaxed);
        }
    }
}

impl Drop for Areas {
    fn drop(&mut self) {
        for chunk in self.chunks.get_mut().unwrap_or_else(|e| e.into_inner()) {
            if let Ok(layout) = chunk_layout(self.nr_cpus) {
                // SAFETY: allocated with this layout; every allocation in it held a handle to us and is gone.
                unsafe { alloc::dealloc(chunk.base.as_ptr(), layout) };
            }
        }
    }
}

fn chunk_layout(nr_cpus: usize) -> Result<Layout, AllocError> {
    Layout::from_size_align(nr_cpus.saturating_mul(UNIT_SIZE), UNIT_ALIGN).map_err(|_| AllocError)
}

impl Chunk {
    fn new(nr_cpus: usize) -> Result<Self, AllocError> {
        // SAFETY: the layout's size is not 0, as there is at least one CPU.
        let base = unsafe { alloc::alloc(chunk_layout(nr_cpus)?) };
        Ok(Self { base: NonNull::new(base).ok_or(AllocError)?, free: vec![(0, UNIT_SIZE)] })
    }

    /// Takes the first range that fits.
    fn take(&mut self, size: usize, align: usize) -> Option<NonNull<u8>> {
        let (at, start) = self.free.iter().enumerate().find_map(|(at, &(from, to))| {
            let start = from.next_multiple_of(align);
            (start + size <= to).then_some((at, start))
        })?;
        let (from, to) = self.free.remove(at);
        if start + size < to {
            self.free.insert(at, (start + size, to));
        }
        if from < start {
            self.free.insert(at, (from, start));
        }
        // SAFETY: within CPU 0's unit.
        Some(unsafe { self.base.byte_add(start) })
    }

    /// Where in CPU 0's unit `p` points; `None` if it is not of this chunk.
    fn unit_offset(&self, p: NonNull<u8>) -> Option<usize> {
        (p.addr().get().checked_sub(self.base.addr().get())).filter(|&o| o < UNIT_SIZE)
    }

    fn give_back(&mut self, base: NonNull<u8>, size: usize) {
        let Some(start) = self.unit_offset(base) else { return };
        let at = self.free.partition_point(|&(from, _)| from < start);
        let mut range = (start, start + size);
        if at < self.free.len() && self.free[at].0 == range.1 {
            range.1 = self.free.remove(at).1;
        }
        if at > 0 && self.free[at - 1].1 == range.0 {
            self.free[at - 1].1 = range.1;
        } else {
            self.free.insert(at, range);
        }
    }
}

/// A range of the units, given back when dropped.
struct Raw {
    /// The copy of CPU 0. Its provenance is the whole chunk.
    base: NonNull<u8>,
    size: usize,
    areas: Arc<Areas>,
}

impl Raw {
    /// The copy of CPU `id`.
    ///
    /// # Safety
    /// `id` is a possible CPU.
    unsafe fn per_cpu(&self, id: usize) -> *mut u8 {
        // SAFETY: the caller's; the chunk has a unit for each possible CPU.
        unsafe { self.base.byte_add(id * UNIT_SIZE).as_ptr() }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.areas.free(self.base, self.size);
    }
}

/// One `T` for each possible CPU of one machine. Kernel: a `T __percpu *`.
///
/// Shared memory: the CPU, its interrupts, and readers elsewhere hold `&T` at once.
pub struct PerCpu<T> {
    raw: Raw,
    _values: PhantomData<T>,
}

// SAFETY: it owns the values like a box does, and hands out `&T` to any thread.
unsafe impl<T: Send + Sync> Send for PerCpu<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for PerCpu<T> {}

impl<T: Send + Sync> PerCpu<T> {
    /// The copy of the CPU that `cpu` says we are on. Kernel: `this_cpu_ptr`.
    ///
    /// Context: any in which the caller may not move; the token says so.
    ///
    /// # Panics
    /// If `cpu` is of another machine: two threads could then be "this CPU" of one copy.
    #[inline(always)]
    #[track_caller]
    pub fn this_cpu_ptr<K: Kconfig>(&self, cpu: &Cpu<K>) -> &T {
        step::announce(cpu, &THIS_CPU_PTR);
        self.this_cpu(cpu)
    }

    #[inline(always)]
    fn this_cpu<K: Kconfig>(&self, cpu: &Cpu<K>) -> &T {
        if !Arc::ptr_eq(&cpu.areas, &self.raw.areas) {
            another_machine();
        }
        // SAFETY: the CPU is of the machine that this memory is of, so its offset leads to the copy of a possible CPU,
        // which `alloc` initialised and which lives as long as `self`.
        unsafe { self.raw.base.byte_add(cpu.per_cpu_offset.get()).cast().as_ref() }
    }

    /// The copy of CPU `id`. Kernel: `per_cpu_ptr`.
    ///
    /// Context: any; the value may change under the reader.
    ///
    /// # Panics
    /// If `id` is not a possible CPU.
    pub fn per_cpu_ptr(&self, id: usize) -> &T {
        assert!(id < self.raw.areas.nr_cpus, "CPU {id} is not possible");
        // SAFETY: possible, as checked; initialised by `alloc`.
        unsafe { &*self.raw.per_cpu(id).cast() }
    }

    /// The copies of all possible CPUs, online or not. Kernel: `for_each_possible_cpu`.
    pub fn iter_possible(&self) -> impl Iterator<Item = &T> {
        (0..self.raw.areas.nr_cpus).map(|id| self.per_cpu_ptr(id))
    }
}

impl PerCpu<LocalU32> {
    /// Adds 1 to this CPU's counter and returns the new value, as one step. Kernel: `this_cpu_inc_return`.
    ///
    /// # Panics
    /// As [`PerCpu::this_cpu_ptr`].
    #[inline(always)]
    #[track_caller]
    pub fn this_cpu_inc_return<K: Kconfig>(&self, cpu: &Cpu<K>) -> u32 {
        step::announce(cpu, &THIS_CPU_INC_RETURN);
        self.this_cpu(cpu).inc_return()
    }

    /// Takes 1 from this CPU's counter, as one step. Kernel: `this_cpu_dec`.
    ///
    /// # Panics
    /// As [`PerCpu::this_cpu_ptr`].
    #[inline(always)]
    #[track_caller]
    pub fn this_cpu_dec<K: Kconfig>(&self, cpu: &Cpu<K>) {
        step::announce(cpu, &THIS_CPU_DEC);
        self.this_cpu(cpu).dec();
    }
}

#[cold]
#[inline(never)]
fn another_machine() -> ! {
    panic!("per-CPU memory was used with a CPU of another machine")
}

impl<T> Drop for PerCpu<T> {
    fn drop(&mut self) {
        for id in 0..self.raw.areas.nr_cpus {
            // SAFETY: initialised by `alloc`, and nobody has a reference any more.
            unsafe { self.raw.per_cpu(id).cast::<T>().drop_in_place() };
        }
    }
}

/// `len` bytes for each possible CPU of one machine: what a per-CPU map keeps its values in.
pub struct PerCpuBytes {
    raw: Raw,
}

// SAFETY: bytes, reached by raw pointer only; who accesses them answers for how.
unsafe impl Send for PerCpuBytes {}
// SAFETY: as above.
unsafe impl Sync for PerCpuBytes {}

impl PerCpuBytes {
    /// The copy of CPU `id`: valid for reads and writes of the allocation's length while `self` lives, and shared, so
    /// accesses must be atomic.
    ///
    /// # Panics
    /// If `id` is not a possible CPU.
    #[inline]
    pub fn per_cpu_ptr(&self, id: usize) -> NonNull<u8> {
        assert!(id < self.raw.areas.nr_cpus, "CPU {id} is not possible");
        // SAFETY: possible, as checked.
        unsafe { self.raw.base.byte_add(id * UNIT_SIZE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_programs_share_a_line_and_two_cpus_do_not() {
        let p = Pcpu::new(3);
        let (a, b) = (p.alloc(|_| [0u64; 4]).unwrap(), p.alloc(|_| [0u64; 4]).unwrap());
        let line = |x: &[u64; 4]| x as *const _ as usize / 64;
        assert_eq!(line(a.per_cpu_ptr(1)), line(b.per_cpu_ptr(1)));
        assert_ne!(line(a.per_cpu_ptr(0)), line(a.per_cpu_ptr(1)));
        let far = |x: &PerCpu<[u64; 4]>, id| x.per_cpu_ptr(id) as *const _ as usize;
        assert_eq!(far(&a, 2) - far(&a, 1), far(&b, 1) - far(&b, 0), "one offset for all allocations");
    }

    #[test]
    fn freed_ranges_are_merged_and_used_again() {
        let p = Pcpu::new(1);
        let mut all: Vec<_> = (0..UNIT_SIZE / 32).map(|_| p.alloc(|_| [0u64; 4]).unwrap()).collect();
        assert_eq!(p.used(), UNIT_SIZE as u64);
        let first = all[0].per_cpu_ptr(0) as *const _ as usize;
        // Odd ones, then even ones: each gap has to merge with both neighbours.
        let mut odd = false;
        all.retain(|_| {
            odd = !odd;
            odd
        });
        drop(all);
        assert_eq!(p.used(), 0);
        let whole = p.alloc(|_| [0u8; UNIT_SIZE]).unwrap();
        assert_eq!(whole.per_cpu_ptr(0) as *const _ as usize, first);
    }

    #[test]
    fn alignment_is_kept_and_holes_are_filled() {
        let p = Pcpu::new(2);
        let a = p.alloc(|_| 1u32).unwrap();
        let b = p.alloc(|_| 2u128).unwrap();
        let c = p.alloc(|_| 3u32).unwrap();
        let at = |x: usize| x % UNIT_SIZE;
        assert_eq!(b.per_cpu_ptr(1) as *const _ as usize % 16, 0);
        assert_eq!(at(c.per_cpu_ptr(0) as *const _ as usize) - at(a.per_cpu_ptr(0) as *const _ as usize), 4);
    }

    #[test]
    fn values_are_dropped_once_for_each_cpu() {
        let p = Pcpu::new(5);
        let token = Arc::new(());
        let a = p.alloc(|_| token.clone()).unwrap();
        assert_eq!(Arc::strong_count(&token), 6);
        drop(a);
        assert_eq!(Arc::strong_count(&token), 1);
    }

    #[test]
    fn allocations_fail_when_told_and_when_too_large() {
        let p = Pcpu::new(1);
        p.fail_nth(2);
        assert!(p.alloc(|_| 0u8).is_ok());
        assert_eq!(p.alloc(|_| 0u8).err(), Some(AllocError));
        assert!(p.alloc(|_| 0u8).is_ok());
        assert!(p.alloc_bytes(UNIT_SIZE + 1).is_err());
        assert_eq!(p.used(), 0);
    }
}
