//! Arrays. Mirrors `array_map_*` of kernel/bpf/arraymap.c, v6.6.
//!
//! Invariant: element `i` is at `i` times the value size rounded up to 8, in one piece of memory; all
//! elements exist from the start.

use sync::mem::{self, SharedMem};

use super::{BPF_EXIST, BPF_NOEXIST, Bytes, MapAttr};
use crate::errno::Errno;

/// The values of an array.
pub(crate) struct Array {
    mem: SharedMem,
    value_size: u32,
    elem_size: usize,
    max_entries: u32,
}

/// Kernel: `array_map_alloc_check`.
pub(crate) fn check_attr(attr: &MapAttr) -> Result<(), Errno> {
    if attr.max_entries == 0 || attr.key_size != 4 || attr.value_size == 0 {
        return Err(Errno::EINVAL);
    }
    if attr.value_size > i32::MAX as u32 { Err(Errno::E2BIG) } else { Ok(()) }
}

/// The checks of an update, in the kernel's order. Kernel: `array_map_update_elem`.
pub(crate) fn check_update(index: u32, max_entries: u32, flags: u64) -> Result<(), Errno> {
    if flags > BPF_EXIST {
        Err(Errno::EINVAL)
    } else if index >= max_entries {
        Err(Errno::E2BIG)
    } else if flags == BPF_NOEXIST {
        Err(Errno::EEXIST)
    } else {
        Ok(())
    }
}

/// The index after `index`; the first for none and for one out of range. Kernel: `array_map_get_next_key`.
pub(crate) fn next_index(index: Option<u32>, max_entries: u32) -> Result<u32, Errno> {
    match index {
        Some(i) if i < max_entries => Some(i + 1).filter(|&i| i < max_entries).ok_or(Errno::ENOENT),
        _ => Ok(0),
    }
}

impl Array {
    pub(crate) fn new(attr: &MapAttr) -> Result<Self, Errno> {
        check_attr(attr)?;
        let elem_size = (attr.value_size as usize).next_multiple_of(8);
        let len = elem_size.checked_mul(attr.max_entries as usize).ok_or(Errno::ENOMEM)?;
        let mem = SharedMem::new(len).ok_or(Errno::ENOMEM)?;
        Ok(Self { mem, value_size: attr.value_size, elem_size, max_entries: attr.max_entries })
    }

    fn ptr(&self, index: u32) -> Option<*mut u8> {
        // SAFETY: an existing element is within the memory.
        (index < self.max_entries).then(|| unsafe { self.mem.as_ptr().add(index as usize * self.elem_size) })
    }

    /// Kernel: `array_map_lookup_elem`.
    pub(crate) fn lookup(&self, index: u32) -> Option<u64> {
        self.ptr(index).map(|p| p.addr() as u64)
    }

    pub(crate) fn find_value(&self, addr: u64) -> Option<u64> {
        let base = self.mem.as_ptr().addr() as u64;
        let off = addr.wrapping_sub(base);
        (off < self.mem.len() as u64).then(|| base + off / self.elem_size as u64 * self.elem_size as u64)
    }

    pub(crate) fn read(&self, index: u32, out: &mut [u8]) -> Option<()> {
        debug_assert_eq!(out.len(), self.value_size as usize);
        // SAFETY: the element has `value_size` bytes, which is the length of `out`.
        self.ptr(index).map(|p| unsafe { mem::load_bytes(p, out) })
    }

    /// Kernel: `array_map_update_elem`.
    pub(crate) fn update(&self, index: u32, value: Bytes<'_>, flags: u64) -> Result<(), Errno> {
        check_update(index, self.max_entries, flags)?;
        debug_assert_eq!(value.len(), self.value_size as usize);
        let p = self.ptr(index).ok_or(Errno::E2BIG)?;
        // SAFETY: the element has `value_size` bytes, which is the length of `value`.
        unsafe { value.copy_to(p) };
        Ok(())
    }
}
