//! Values of which each possible CPU has its own copy. Mirrors `bpf_array_alloc_percpu`,
//! `percpu_array_map_*`, `bpf_percpu_array_copy` (kernel/bpf/arraymap.c) and `pcpu_copy_value`
//! (kernel/bpf/hashtab.c), v6.6.
//!
//! They live in the machine's per-CPU memory: value `i` of a CPU is at the same offset of that CPU's area.
//!
//! Differs: the kernel allocates each value by itself; here up to a whole unit of them at once, a power of
//! two.

use percpu::mm::UNIT_SIZE;
use percpu::{Pcpu, PerCpuBytes};
use sync::mem;

use super::Bytes;
use crate::errno::Errno;

/// `count` values for each possible CPU.
pub(crate) struct PercpuValues {
    blocks: Box<[PerCpuBytes]>,
    /// A block holds `1 << shift` values.
    shift: u32,
    value_size: usize,
    elem_size: usize,
    count: u32,
    nr_cpus: u32,
    /// Where each CPU's copy of each block begins, ascending.
    starts: Box<[u64]>,
}

impl PercpuValues {
    pub(crate) fn new(value_size: u32, count: u32, pcpu: &Pcpu) -> Result<Self, Errno> {
        let elem_size = (value_size as usize).next_multiple_of(8);
        if elem_size > UNIT_SIZE {
            return Err(Errno::E2BIG);
        }
        let fits = (UNIT_SIZE / elem_size) as u32; // UNIT_SIZE is far below 2^32
        let shift = fits.min(count.checked_next_power_of_two().unwrap_or(fits)).ilog2();
        let nr_cpus = u32::try_from(pcpu.nr_cpu_ids()).map_err(|_| Errno::EINVAL)?;
        let mut blocks = Vec::new();
        for _ in 0..count.div_ceil(1 << shift) {
            blocks.push(pcpu.alloc_bytes(elem_size << shift).map_err(|_| Errno::ENOMEM)?);
        }
        let start = |b: &PerCpuBytes, cpu| b.per_cpu_ptr(cpu as usize).as_ptr().expose_provenance() as u64;
        let mut starts: Box<[u64]> =
            blocks.iter().flat_map(|b| (0..nr_cpus).map(move |c| start(b, c))).collect();
        starts.sort_unstable();
        Ok(Self {
            blocks: blocks.into(),
            shift,
            value_size: value_size as usize,
            elem_size,
            count,
            nr_cpus,
            starts,
        })
    }

    /// The copy that `cpu` has of value `index`; `None` if either does not exist.
    fn ptr(&self, index: u32, cpu: u32) -> Option<*mut u8> {
        if index >= self.count || cpu >= self.nr_cpus {
            return None;
        }
        let block = self.blocks.get((index >> self.shift) as usize)?.per_cpu_ptr(cpu as usize);
        let at = index as usize & ((1 << self.shift) - 1);
        // SAFETY: the block holds `1 << shift` elements.
        Some(unsafe { block.as_ptr().add(at * self.elem_size) })
    }

    /// The address of [`PercpuValues::ptr`]. Kernel: `percpu_array_map_lookup_elem`.
    pub(crate) fn addr(&self, index: u32, cpu: u32) -> Option<u64> {
        self.ptr(index, cpu).map(|p| p.addr() as u64)
    }

    pub(crate) fn find_value(&self, addr: u64) -> Option<u64> {
        let start = *self.starts[..self.starts.partition_point(|&s| s <= addr)].last()?;
        let off = addr - start;
        (off < (self.elem_size << self.shift) as u64)
            .then(|| start + off / self.elem_size as u64 * self.elem_size as u64)
    }

    /// Writes one CPU's copy; nothing if it does not exist.
    pub(crate) fn write(&self, index: u32, cpu: u32, value: Bytes<'_>) {
        debug_assert_eq!(value.len(), self.value_size);
        if let Some(p) = self.ptr(index, cpu) {
            // SAFETY: the copy has `value_size` bytes, which is the length of `value`.
            unsafe { value.copy_to(p) };
        }
    }

    /// Writes `cpu`'s copy and zeroes the others'. Kernel: `pcpu_init_value`, kernel/bpf/hashtab.c.
    pub(crate) fn init(&self, index: u32, cpu: u32, value: Bytes<'_>) {
        for other in (0..self.nr_cpus).filter(|&c| c != cpu) {
            if let Some(p) = self.ptr(index, other) {
                // SAFETY: the copy has `value_size` bytes.
                unsafe { mem::zero(p, self.value_size) };
            }
        }
        self.write(index, cpu, value);
    }

    /// Writes all CPUs' copies from values that are rounded up to 8 bytes each.
    pub(crate) fn write_all(&self, index: u32, values: &[u8]) {
        for (cpu, value) in (0..self.nr_cpus).zip(values.chunks_exact(self.elem_size)) {
            self.write(index, cpu, Bytes::of(&value[..self.value_size]));
        }
    }

    /// Reads all CPUs' copies, rounded up to 8 bytes each.
    pub(crate) fn read_all(&self, index: u32, out: &mut [u8]) -> Option<()> {
        for (cpu, value) in (0..self.nr_cpus).zip(out.chunks_exact_mut(self.elem_size)) {
            let p = self.ptr(index, cpu)?;
            // SAFETY: the copy has `value_size` bytes.
            unsafe { mem::load_bytes(p, &mut value[..self.value_size]) };
        }
        Some(())
    }
}
