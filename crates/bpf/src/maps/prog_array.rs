//! Arrays of programs, for tail calls. Mirrors `fd_array_map_*` and `prog_array_map_*` of
//! kernel/bpf/arraymap.c, v6.6.
//!
//! Invariant: a program that was ever put in stays alive until the array goes, so a run may use what it found
//! without a lock. Differs: the kernel frees a replaced program after an RCU grace period. As there, a
//! program and an array that hold each other are a cycle; [`ProgArray::clear`] empties the slots, and only
//! dropping the array ends the programs.

use std::sync::{Arc, Mutex};

use sync::host::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

use super::{MapAttr, array};
use crate::errno::Errno;
use crate::prog::Program;

/// The slots of a prog array.
pub struct ProgArray {
    slots: Box<[AtomicPtr<Program>]>,
    /// What was ever put in, each once.
    held: Mutex<Vec<Arc<Program>>>,
}

impl ProgArray {
    pub(crate) fn new(attr: &MapAttr) -> Result<Self, Errno> {
        array::check_attr(attr)?;
        if attr.value_size != 4 {
            return Err(Errno::EINVAL);
        }
        let slots = (0..attr.max_entries).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
        Ok(Self { slots, held: Mutex::default() })
    }

    /// Puts a program in. Kernel: `bpf_fd_array_map_update_elem`.
    ///
    /// Context: task.
    ///
    /// # Errors
    /// `E2BIG` for an index out of range.
    pub fn update(&self, index: u32, prog: Arc<Program>) -> Result<(), Errno> {
        let slot = self.slots.get(index as usize).ok_or(Errno::E2BIG)?;
        let mut held = self.held.lock().unwrap_or_else(|e| e.into_inner());
        let p = Arc::as_ptr(&prog).cast_mut();
        if !held.iter().any(|p| Arc::ptr_eq(p, &prog)) {
            held.push(prog);
        }
        // ORDERING: Release; pairs with the Acquire in `get`: the program is whole before it can be found.
        slot.store(p, Release);
        Ok(())
    }

    /// Empties a slot. Kernel: `fd_array_map_delete_elem`.
    ///
    /// # Errors
    /// `E2BIG` for an index out of range, `ENOENT` for an empty slot.
    pub fn delete(&self, index: u32) -> Result<(), Errno> {
        let slot = self.slots.get(index as usize).ok_or(Errno::E2BIG)?;
        // ORDERING: Release; nothing is published, it only keeps the pairing with `get` uniform.
        if slot.swap(std::ptr::null_mut(), Release).is_null() { Err(Errno::ENOENT) } else { Ok(()) }
    }

    /// Empties all slots. Kernel: `bpf_fd_array_map_clear`.
    pub fn clear(&self) {
        for index in 0..self.slots.len() as u32 {
            let _ = self.delete(index);
        }
    }

    /// Whether there is a slot `index`.
    pub fn has(&self, index: u32) -> bool {
        (index as usize) < self.slots.len()
    }

    /// The program in a slot. Context: any.
    pub fn get(&self, index: u32) -> Option<&Program> {
        // ORDERING: Acquire; pairs with the Release in `update`.
        let p = self.slots.get(index as usize)?.load(Acquire);
        // SAFETY: null or a program in `held`, which lives as long as `self`.
        unsafe { p.as_ref() }
    }

    /// The id of the program in a slot. Kernel: `bpf_fd_array_map_lookup_elem`.
    pub fn id_at(&self, index: u32) -> Option<u32> {
        self.get(index).map(|p| p.id())
    }
}
