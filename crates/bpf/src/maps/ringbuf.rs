//! Ring buffers. Mirrors kernel/bpf/ringbuf.c, v6.6.
//!
//! 1. A producer reserves, under the lock: it writes the record's header as busy, then moves the producer position.
//! 2. It fills the record and clears the busy bit (or marks the record discarded).
//! 3. The consumer takes records in order and stops at a busy one.
//!
//! Positions count bytes for ever; a record is an 8-byte header and its data, rounded up to 8.
//!
//! Differs: the kernel maps the data twice in a row, so that a record that wraps is in one piece. Here the memory really is
//! twice as long: a record that begins before the end of the ring goes on behind it, and the part at the ring's start that
//! it stands for is left unused. Headers are kept beside the data. There is no wake-up: readers poll.

use std::sync::Mutex;

use sync::host::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use sync::mem::{self, SharedMem};

use super::lock::CpuLock;
use super::{Bytes, MapAttr};
use crate::env::Env;
use crate::errno::Errno;

/// `bpf_ringbuf_output`, `submit`, `discard`: wake nobody.
pub const BPF_RB_NO_WAKEUP: u64 = 1;
/// `bpf_ringbuf_output`, `submit`, `discard`: wake in any case.
pub const BPF_RB_FORCE_WAKEUP: u64 = 2;

const BUSY: u32 = 1 << 31;
const DISCARD: u32 = 1 << 30;
const HDR: u64 = 8;

/// The ring and its positions.
pub struct Ringbuf {
    data: SharedMem,
    /// One header for each 8 bytes of the ring, used where a record begins.
    headers: Box<[AtomicU32]>,
    mask: u64,
    lock: CpuLock,
    producer: AtomicU64,
    consumer: AtomicU64,
    consuming: Mutex<()>,
}

impl Ringbuf {
    /// Kernel: `ringbuf_map_alloc`.
    pub(crate) fn new(attr: &MapAttr) -> Result<Self, Errno> {
        let size = attr.max_entries;
        if attr.key_size != 0 || attr.value_size != 0 || !size.is_power_of_two() || !size.is_multiple_of(4096)
        {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            data: SharedMem::new(2 * size as usize).ok_or(Errno::ENOMEM)?,
            headers: (0..size / 8).map(|_| AtomicU32::new(0)).collect(),
            mask: u64::from(size) - 1,
            lock: CpuLock::default(),
            producer: AtomicU64::new(0),
            consumer: AtomicU64::new(0),
            consuming: Mutex::new(()),
        })
    }

    /// Reserves `size` bytes; returns where the record's data begins. Kernel: `__bpf_ringbuf_reserve`.
    pub(crate) fn reserve(&self, env: &dyn Env, size: u64) -> Option<u64> {
        if size >= u64::from(DISCARD) {
            return None;
        }
        let len = (size + HDR).next_multiple_of(8);
        if len > self.mask + 1 {
            return None;
        }
        let _guard = self.lock.lock(env).ok()?;
        let at = self.producer.load(Relaxed);
        // ORDERING: Acquire; pairs with the Release in `consume`: the consumer is done with what it gave back.
        let consumed = self.consumer.load(Acquire);
        if at + len - consumed > self.mask + 1 {
            return None;
        }
        self.header(at).store(size as u32 | BUSY, Relaxed);
        // ORDERING: Release; pairs with the Acquire in `consume`: the header is busy before the record can be seen.
        self.producer.store(at + len, Release);
        Some(self.record(at).addr() as u64)
    }

    /// Makes a reserved record visible, or marks it to be skipped. `data` is what [`Ringbuf::reserve`] returned, once for
    /// each. Kernel: `bpf_ringbuf_commit`.
    pub(crate) fn commit(&self, data: u64, discard: bool) {
        let at = data.wrapping_sub(HDR).wrapping_sub(self.data.as_ptr().addr() as u64);
        let header = self.header(at);
        let len = header.load(Relaxed) & !BUSY;
        // ORDERING: Release; pairs with the Acquire in `consume`: the data is there before the record is.
        header.store(if discard { len | DISCARD } else { len }, Release);
    }

    /// Kernel: `bpf_ringbuf_output`.
    pub(crate) fn output(&self, env: &dyn Env, bytes: Bytes<'_>, flags: u64) -> Result<(), Errno> {
        if flags & !(BPF_RB_NO_WAKEUP | BPF_RB_FORCE_WAKEUP) != 0 {
            return Err(Errno::EINVAL);
        }
        let data = self.reserve(env, bytes.len() as u64).ok_or(Errno::EAGAIN)?;
        // SAFETY: the record was just reserved for as many bytes.
        unsafe { bytes.copy_to(std::ptr::with_exposed_provenance_mut(data as usize)) };
        self.commit(data, false);
        Ok(())
    }

    /// Takes the records that are there, oldest first. Stands for libbpf's `ring_buffer__consume`.
    ///
    /// Context: task.
    pub fn consume(&self) -> Vec<Vec<u8>> {
        let _one = self.consuming.lock().unwrap_or_else(|e| e.into_inner());
        let mut records = Vec::new();
        let mut at = self.consumer.load(Relaxed);
        // ORDERING: Acquire; pairs with the Release in `reserve`.
        while at < self.producer.load(Acquire) {
            // ORDERING: Acquire; pairs with the Release in `commit`.
            let header = self.header(at).load(Acquire);
            if header & BUSY != 0 {
                break;
            }
            let len = header & !DISCARD;
            if header & DISCARD == 0 {
                let mut bytes = vec![0; len as usize];
                // SAFETY: the record has `len` bytes of data.
                unsafe { mem::load_bytes(self.record(at), &mut bytes) };
                records.push(bytes);
            }
            at += (u64::from(len) + HDR).next_multiple_of(8);
            // ORDERING: Release; pairs with the Acquire in `reserve`.
            self.consumer.store(at, Release);
        }
        records
    }

    /// Bytes that are reserved or not yet taken. Kernel: `ringbuf_avail_data_sz`.
    pub fn available(&self) -> u64 {
        self.producer.load(Relaxed).saturating_sub(self.consumer.load(Relaxed))
    }

    fn header(&self, at: u64) -> &AtomicU32 {
        &self.headers[((at & self.mask) / 8) as usize]
    }

    /// The data of the record at a position.
    fn record(&self, at: u64) -> *mut u8 {
        // SAFETY: the position is below the ring's size, and the memory twice as long.
        unsafe { self.data.as_ptr().add((at & self.mask) as usize + HDR as usize) }
    }
}
