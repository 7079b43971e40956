//! What memory a run may reach. Stands for `check_mem_access` (kernel/bpf/verifier.c, v6.6): what the
//! verifier proves there is checked here at each access, over its full width.
//!
//! Addresses are the host's. A program may reach
//!
//! 1. its own frames, from the first to the one that runs (512 bytes each, side by side, the first lowest);
//! 2. the region of the last hit: a map's value or a ring buffer record that was searched for or just got
//!    from a helper; at first the context;
//! 3. the context, its records, the values of its maps: by search.
//!
//! 1 and 2 cost one comparison each.
//!
//! # Invariants
//! 1. What is in reach is initialised, and lives as long as the run: the context is borrowed, the program
//!    holds its maps, the stack is the run's own. Frames are zeroed as they are entered, and not in reach
//!    before.
//! 2. Others access it, if at all, through `sync::mem`, as the run does.
//!
//! Differs: a callee also reaches below its frame, into its caller's.

use std::mem::MaybeUninit;
use std::ptr;

use crate::env::Env;
use crate::fault::FaultKind;
use crate::maps::Map;
use crate::maps::ringbuf::Ringbuf;
use crate::prog::Program;

/// Bytes of a function's frame. Kernel: `MAX_BPF_STACK`.
pub const MAX_BPF_STACK: usize = 512;
/// Functions that may be active at once. Kernel: `MAX_CALL_FRAMES`.
pub const MAX_CALL_FRAMES: usize = 8;
/// Ring buffer records that a run may hold at once.
const MAX_RECORDS: usize = 8;

/// The frames of one run. Aligned so that r10 is aligned as the kernel's.
#[repr(C, align(16))]
pub(crate) struct Stack([u8; MAX_CALL_FRAMES * MAX_BPF_STACK]);

/// Bytes of the stack that are always zeroed and in reach, so that [`Vm::reach`] may subtract any width from
/// the length.
const MIN_STACK: u64 = 8;

/// Where the frame of function number `depth` ends.
fn end_of(depth: usize) -> usize {
    (depth + 1) * MAX_BPF_STACK
}

/// A piece of memory that a program may reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    base: u64,
    len: u64,
    /// 0 if the region is read-only, else `len`.
    writable: u64,
}

impl Region {
    /// A value of a map.
    pub(crate) fn value(map: &Map, base: u64) -> Self {
        let len = u64::from(map.value_size());
        Self { base, len, writable: if map.prog_may_write() { len } else { 0 } }
    }

    /// Whether the access lies within. `size` is not 0.
    #[inline(always)]
    fn holds(&self, addr: u64, size: u64, write: bool) -> bool {
        let len = if write { self.writable } else { self.len };
        addr.wrapping_sub(self.base) < len.saturating_sub(size - 1)
    }
}

/// A reserved record of a ring buffer.
#[derive(Clone, Copy)]
struct Record<'a> {
    ring: &'a Ringbuf,
    data: Region,
}

/// What a run may reach, and whom it may ask.
pub(crate) struct Vm<'a> {
    /// The lowest address of the first frame.
    stack: u64,
    /// Bytes of the stack that are in reach; at least [`MIN_STACK`].
    stack_len: u64,
    hit: Region,
    ctx: Region,
    /// The first `nr_records` are initialised.
    records: [MaybeUninit<Record<'a>>; MAX_RECORDS],
    nr_records: usize,
    pub(crate) prog: &'a Program,
    pub(crate) env: &'a dyn Env,
}

impl<'a> Vm<'a> {
    /// A run of `prog` on `ctx`, its first function entered.
    pub(crate) fn new(
        stack: &'a mut MaybeUninit<Stack>,
        ctx: &'a mut [u8],
        prog: &'a Program,
        env: &'a dyn Env,
    ) -> Self {
        let base = stack.as_mut_ptr().cast::<u8>();
        let len = ctx.len() as u64;
        let ctx = Region { base: ctx.as_mut_ptr().expose_provenance() as u64, len, writable: len };
        // SAFETY: within the stack.
        unsafe { base.write_bytes(0, MIN_STACK as usize) };
        let mut vm = Self {
            stack: base.expose_provenance() as u64,
            stack_len: MIN_STACK,
            hit: ctx,
            ctx,
            records: [const { MaybeUninit::uninit() }; MAX_RECORDS],
            nr_records: 0,
            prog,
            env,
        };
        vm.enter(0);
        vm
    }

    /// The context's address and length.
    pub(crate) fn ctx(&self) -> (u64, u64) {
        (self.ctx.base, self.ctx.len)
    }

    /// What r10 is in function number 0.
    pub(crate) fn frame_pointer(&self) -> u64 {
        self.stack + MAX_BPF_STACK as u64
    }

    /// Goes on with another program: what it may reach is its own.
    pub(crate) fn set_prog(&mut self, prog: &'a Program) {
        (self.prog, self.hit) = (prog, self.ctx);
    }

    /// Puts function number `depth` on the stack: zeroes its frame, and those below it that were never in
    /// reach. The frame of a program that does not read r10 stays out of reach.
    pub(crate) fn enter(&mut self, depth: usize) {
        if !self.prog.uses_stack {
            return;
        }
        let (from, to) =
            ((self.stack_len as usize / MAX_BPF_STACK).min(depth) * MAX_BPF_STACK, end_of(depth));
        // SAFETY: `depth` is below `MAX_CALL_FRAMES`, so this is within the run's stack, whose provenance was
        // exposed and which is borrowed for the run.
        unsafe {
            ptr::with_exposed_provenance_mut::<u8>(self.stack as usize + from).write_bytes(0, to - from)
        };
        self.stack_len = to as u64;
    }

    /// Takes the functions above number `depth` off the stack.
    pub(crate) fn leave_to(&mut self, depth: usize) {
        self.stack_len = self.stack_len.min(end_of(depth) as u64);
    }

    /// The pointer for an access of `size` bytes, at most 8 and not 0.
    #[inline(always)]
    pub(crate) fn reach(&mut self, addr: u64, size: u64, write: bool) -> Result<*mut u8, FaultKind> {
        if addr.wrapping_sub(self.stack) <= self.stack_len - size || self.hit.holds(addr, size, write) {
            return Ok(ptr::with_exposed_provenance_mut(addr as usize));
        }
        self.search(addr, size, write)
    }

    /// The pointer for an access of any number of bytes; of none, any pointer. For helpers.
    pub(crate) fn reach_bytes(&mut self, addr: u64, size: u64, write: bool) -> Result<*mut u8, FaultKind> {
        let stack = Region { base: self.stack, len: self.stack_len, writable: self.stack_len };
        if size == 0 || stack.holds(addr, size, write) || self.hit.holds(addr, size, write) {
            return Ok(ptr::with_exposed_provenance_mut(addr as usize));
        }
        self.search(addr, size, write)
    }

    /// The slow part of [`Vm::reach`]: everything but the stack.
    #[cold]
    #[inline(never)]
    fn search(&mut self, addr: u64, size: u64, write: bool) -> Result<*mut u8, FaultKind> {
        // The context does not become the last hit: it is found again as fast, and values are not.
        if self.ctx.holds(addr, size, write) {
            return Ok(ptr::with_exposed_provenance_mut(addr as usize));
        }
        let record = self.records().map(|r| r.data).find(|r| r.holds(addr, size, write));
        if let Some(data) = record {
            self.hit = data;
            return Ok(ptr::with_exposed_provenance_mut(addr as usize));
        }
        let mut kind = FaultKind::OutOfBounds { addr, size, write };
        for map in self.prog.maps() {
            let Some(base) = map.find_value(addr) else { continue };
            let value = Region::value(map, base);
            if value.holds(addr, size, write) {
                self.hit = value;
                return Ok(ptr::with_exposed_provenance_mut(addr as usize));
            }
            if value.holds(addr, size, false) {
                kind = FaultKind::ReadOnly { addr };
            }
        }
        Err(kind)
    }

    /// Notes a region that the program is likely to access next.
    pub(crate) fn note(&mut self, region: Region) {
        self.hit = region;
    }

    pub(crate) fn aligned(&mut self, addr: u64, size: u64) -> Result<*mut u8, FaultKind> {
        let p = self.reach(addr, size, true)?;
        if addr & (size - 1) == 0 { Ok(p) } else { Err(FaultKind::Misaligned { addr, size }) }
    }
}

/// Ring buffer records that the program reserved. Stands for the verifier's references
/// (`acquire_reference_state`).
impl<'a> Vm<'a> {
    /// Whether some record was neither submitted nor discarded.
    pub(crate) fn holds_records(&self) -> bool {
        self.nr_records != 0
    }

    fn records(&self) -> impl Iterator<Item = Record<'a>> + '_ {
        // SAFETY: the first `nr_records` are initialised.
        self.records[..self.nr_records].iter().map(|r| unsafe { r.assume_init() })
    }

    /// Reserves a record, which is then in reach; `None` if the ring is full or too many records are held.
    pub(crate) fn reserve(&mut self, ring: &'a Ringbuf, size: u64) -> Option<u64> {
        let free = self.records.get_mut(self.nr_records)?;
        let base = ring.reserve(self.env, size)?;
        let data = Region { base, len: size, writable: size };
        free.write(Record { ring, data });
        self.nr_records += 1;
        self.hit = data;
        Some(base)
    }

    /// Submits or discards the record at `addr`, which is out of reach then; `false` if there is none.
    pub(crate) fn commit(&mut self, addr: u64, discard: bool) -> bool {
        let Some(at) = self.records().position(|r| r.data.base == addr) else { return false };
        // SAFETY: `at` is below `nr_records`.
        unsafe { self.records[at].assume_init() }.ring.commit(addr, discard);
        self.nr_records -= 1;
        self.records[at] = self.records[self.nr_records];
        self.hit = self.ctx;
        true
    }

    /// Discards all records.
    #[cold]
    pub(crate) fn discard_all(&mut self) {
        self.records().for_each(|r| r.ring.commit(r.data.base, true));
        self.nr_records = 0;
    }
}
