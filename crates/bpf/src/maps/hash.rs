//! Hash maps, shared and per-CPU. Mirrors kernel/bpf/hashtab.c and kernel/bpf/percpu_freelist.c, v6.6, in the
//! preallocated form.
//!
//! 1. A bucket is a singly linked chain of nodes, and a sequence number that is odd while the chain changes.
//! 2. Readers take no lock. A node may be deleted and reused under a reader, so that the rest of the chain is not what it
//!    was; whoever found nothing and sees that the number was odd or has changed starts over.
//! 3. Writers hold their bucket's lock. Replacing links a new node in front of the old and unlinks the old. Per-CPU maps
//!    overwrite in place: each CPU only its own copy.
//! 4. Free nodes are on a lock-free stack, whose head carries a tag against reuse.
//!
//! Invariants: a node is on the free stack, in one chain, or in the hands of one writer. There are as many nodes as
//! entries, and some more for each CPU, since a replacement needs one while the old one is still linked.
//!
//! Differs: the kernel marks a chain's end with the bucket's number (`hlist_nulls`) instead of counting changes; so there a
//! lookup may miss a key while it is being replaced, here it does not. One free stack instead of one a CPU; keys are at
//! most 512 bytes; the hash is not seeded, so the order of keys is the same in every run.

use percpu::Pcpu;
use sync::host::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use sync::mem::{self, SharedMem};

use super::lock::CpuLock;
use super::percpu_values::PercpuValues;
use super::{BPF_EXIST, BPF_NOEXIST, Bytes, MAX_KEY_SIZE, MapAttr};
use crate::env::Env;
use crate::errno::Errno;

/// Nodes beyond `max_entries` for each CPU: one for each context that can interrupt another (task, softirq, irq, NMI).
const EXTRA_PER_CPU: u32 = 4;
/// The end of a chain or of the free stack.
const NONE: u32 = u32::MAX;
/// Entries a map may have.
const MAX_ENTRIES: u32 = 1 << 30;
/// Times a reader starts over before it takes the key for absent: a bound for one that has interrupted a writer of its own
/// CPU, whose sequence number stays odd meanwhile.
const RESTARTS: u32 = 256;

/// Buckets, nodes and the free stack.
pub(crate) struct Hash {
    buckets: Box<[Bucket]>,
    nodes: Box<[Node]>,
    keys: SharedMem,
    key_size: usize,
    key_stride: usize,
    values: Values,
    /// The first free node in the low half, a tag in the high half.
    free: AtomicU64,
    count: AtomicU32,
    max_entries: u32,
}

struct Bucket {
    head: AtomicU32,
    /// Changes begun and ended.
    seq: AtomicU32,
    lock: CpuLock,
}

struct Node {
    /// The next node of the chain. Kept while the node is free: a reader may still be on it.
    next: AtomicU32,
    hash: AtomicU32,
    next_free: AtomicU32,
}

enum Values {
    Shared { mem: SharedMem, value_size: usize, stride: usize },
    Percpu(PercpuValues),
}

/// What an update writes.
#[derive(Clone, Copy)]
pub(crate) enum NewValue<'a> {
    /// A helper's: of per-CPU maps this CPU's copy.
    ThisCpu(Bytes<'a>),
    /// The syscall side's: of per-CPU maps one value for each CPU.
    AllCpus(&'a [u8]),
}

/// Kernel: `htab_map_alloc_check`.
fn check_attr(attr: &MapAttr) -> Result<(), Errno> {
    if attr.max_entries == 0 || attr.key_size == 0 || attr.value_size == 0 {
        return Err(Errno::EINVAL);
    }
    let too_big =
        attr.key_size > MAX_KEY_SIZE || attr.value_size > i32::MAX as u32 || attr.max_entries > MAX_ENTRIES;
    if too_big { Err(Errno::E2BIG) } else { Ok(()) }
}

impl Hash {
    pub(crate) fn new(attr: &MapAttr, pcpu: &Pcpu, per_cpu: bool) -> Result<Self, Errno> {
        check_attr(attr)?;
        let extra = if per_cpu { 0 } else { EXTRA_PER_CPU.saturating_mul(pcpu.nr_cpu_ids() as u32) };
        let nr_nodes = attr.max_entries.saturating_add(extra);
        let key_stride = (attr.key_size as usize).next_multiple_of(8);
        let alloc = |stride: usize| {
            stride.checked_mul(nr_nodes as usize).and_then(SharedMem::new).ok_or(Errno::ENOMEM)
        };
        let values = if per_cpu {
            Values::Percpu(PercpuValues::new(attr.value_size, nr_nodes, pcpu)?)
        } else {
            let stride = (attr.value_size as usize).next_multiple_of(8);
            Values::Shared { mem: alloc(stride)?, value_size: attr.value_size as usize, stride }
        };
        let node = |at: u32| Node {
            next: AtomicU32::new(NONE),
            hash: AtomicU32::new(0),
            next_free: AtomicU32::new(if at + 1 < nr_nodes { at + 1 } else { NONE }),
        };
        let bucket =
            |_| Bucket { head: AtomicU32::new(NONE), seq: AtomicU32::new(0), lock: CpuLock::default() };
        Ok(Self {
            buckets: (0..attr.max_entries.next_power_of_two()).map(bucket).collect(),
            nodes: (0..nr_nodes).map(node).collect(),
            keys: alloc(key_stride)?,
            key_size: attr.key_size as usize,
            key_stride,
            values,
            free: AtomicU64::new(0),
            count: AtomicU32::new(0),
            max_entries: attr.max_entries,
        })
    }

    /// The address of the value of `key` on `cpu`. Kernel: `__htab_map_lookup_elem`, `htab_percpu_map_lookup_elem`.
    pub(crate) fn lookup(&self, key: &[u8], cpu: u32) -> Option<u64> {
        let node = self.find(hash(key), key)?;
        match &self.values {
            Values::Shared { .. } => self.shared(node).map(|p| p.addr() as u64),
            Values::Percpu(p) => p.addr(node, cpu),
        }
    }

    /// Copies a value out as the syscall side sees it.
    pub(crate) fn read(&self, key: &[u8], out: &mut [u8]) -> Option<()> {
        let node = self.find(hash(key), key)?;
        match &self.values {
            Values::Shared { value_size, .. } => {
                debug_assert_eq!(out.len(), *value_size);
                // SAFETY: the node's value has `value_size` bytes, which is the length of `out`.
                self.shared(node).map(|p| unsafe { mem::load_bytes(p, out) })
            }
            Values::Percpu(p) => p.read_all(node, out),
        }
    }

    /// Kernel: `htab_map_update_elem`, `__htab_percpu_map_update_elem`.
    pub(crate) fn update(
        &self,
        env: &dyn Env,
        key: &[u8],
        value: NewValue<'_>,
        flags: u64,
    ) -> Result<(), Errno> {
        if flags > BPF_EXIST {
            return Err(Errno::EINVAL);
        }
        let hash = hash(key);
        let bucket = self.bucket(hash);
        let _guard = bucket.lock.lock(env)?;
        let old = self.find(hash, key);
        match (old, flags) {
            (Some(_), BPF_NOEXIST) => return Err(Errno::EEXIST),
            (None, BPF_EXIST) => return Err(Errno::ENOENT),
            _ => {}
        }
        if let (Some(old), Values::Percpu(p)) = (old, &self.values) {
            match value {
                NewValue::ThisCpu(v) => p.write(old, env.smp_processor_id(), v),
                NewValue::AllCpus(v) => p.write_all(old, v),
            }
            return Ok(());
        }
        if old.is_none() && !self.count_up() {
            return Err(Errno::E2BIG);
        }
        let Some(new) = self.pop_free() else {
            // Only if more updates are under way at once than there are contexts.
            if old.is_none() {
                self.count.fetch_sub(1, Relaxed);
            }
            return Err(Errno::EBUSY);
        };
        self.fill(env, new, hash, key, value);
        bucket.begin_change();
        // ORDERING: Release; pairs with the Acquire in `find`: a reader still on the node from before sees the change.
        self.node(new).next.store(bucket.head.load(Relaxed), Release);
        // ORDERING: Release; pairs with the Acquire in `find`: key, hash and value are there before the node is.
        bucket.head.store(new, Release);
        if let Some(old) = old {
            self.unlink(bucket, old);
        }
        bucket.end_change();
        if let Some(old) = old {
            self.push_free(old);
        }
        Ok(())
    }

    /// Kernel: `htab_map_delete_elem`.
    pub(crate) fn delete(&self, env: &dyn Env, key: &[u8]) -> Result<(), Errno> {
        let hash = hash(key);
        let bucket = self.bucket(hash);
        let _guard = bucket.lock.lock(env)?;
        let old = self.find(hash, key).ok_or(Errno::ENOENT)?;
        bucket.begin_change();
        self.unlink(bucket, old);
        bucket.end_change();
        self.push_free(old);
        // Last: an update that counts up finds a free node.
        self.count.fetch_sub(1, Relaxed);
        Ok(())
    }

    /// The key after `key` in the order of buckets. Kernel: `htab_map_get_next_key`.
    pub(crate) fn next_key(&self, key: Option<&[u8]>) -> Option<Vec<u8>> {
        let mut from = 0;
        if let Some(key) = key {
            let hash = hash(key);
            if let Some(node) = self.find(hash, key) {
                let next = self.node(node).next.load(Acquire);
                if next != NONE {
                    return Some(self.key(next));
                }
                from = self.bucket_index(hash) + 1;
            }
        }
        // ORDERING: Acquire; as in `find`.
        let mut heads = self.buckets.get(from..)?.iter().map(|b| b.head.load(Acquire));
        heads.find(|&h| h != NONE).map(|h| self.key(h))
    }

    pub(crate) fn find_value(&self, addr: u64) -> Option<u64> {
        match &self.values {
            Values::Shared { mem, stride, .. } => {
                let base = mem.as_ptr().addr() as u64;
                let off = addr.wrapping_sub(base);
                (off < mem.len() as u64).then(|| base + off / *stride as u64 * *stride as u64)
            }
            Values::Percpu(p) => p.find_value(addr),
        }
    }

    /// The node that holds `key`. Kernel: `lookup_nulls_elem_raw`.
    fn find(&self, hash: u32, key: &[u8]) -> Option<u32> {
        let bucket = self.bucket(hash);
        for _ in 0..RESTARTS {
            // ORDERING: Acquire; pairs with the Release in `end_change`: what was changed before is seen.
            let seq = bucket.seq.load(Acquire);
            // ORDERING: Acquire; pairs with the Release in `update` and `unlink`: a node found is whole, and a link that
            // changed brings the odd sequence number with it.
            let mut at = bucket.head.load(Acquire);
            // No chain is longer than there are nodes; one that seems so changed under us.
            for _ in 0..self.nodes.len() {
                if at == NONE {
                    break;
                }
                let node = self.node(at);
                // SAFETY: every node has `key_size` bytes of key.
                if node.hash.load(Relaxed) == hash && unsafe { mem::equal(self.key_ptr(at), key) } {
                    return Some(at);
                }
                at = node.next.load(Acquire);
            }
            // ORDERING: Relaxed; the Acquire loads of the links keep it behind them.
            if seq & 1 == 0 && bucket.seq.load(Relaxed) == seq {
                return None;
            }
        }
        None
    }

    /// Takes a node out of its chain; the caller holds the lock. The node keeps its own link, for readers that are on it.
    fn unlink(&self, bucket: &Bucket, node: u32) {
        let next = self.node(node).next.load(Relaxed);
        let mut link = &bucket.head;
        loop {
            let at = link.load(Relaxed);
            if at == node {
                // ORDERING: Release; pairs with the Acquire in `find`: what follows was whole already, and stays so.
                link.store(next, Release);
                return;
            }
            if at == NONE {
                debug_assert!(false, "a linked node is in its bucket's chain");
                return;
            }
            link = &self.node(at).next;
        }
    }

    fn fill(&self, env: &dyn Env, node: u32, hash: u32, key: &[u8], value: NewValue<'_>) {
        self.node(node).hash.store(hash, Relaxed);
        // SAFETY: every node has `key_size` bytes of key, which is the length of `key`.
        unsafe { mem::store_bytes(self.key_ptr(node), key) };
        match (&self.values, value) {
            (Values::Percpu(p), NewValue::ThisCpu(v)) => p.init(node, env.smp_processor_id(), v),
            (Values::Percpu(p), NewValue::AllCpus(v)) => p.write_all(node, v),
            (Values::Shared { value_size, .. }, v) => {
                let v = match v {
                    NewValue::ThisCpu(v) => v,
                    NewValue::AllCpus(v) => Bytes::of(v),
                };
                debug_assert_eq!(v.len(), *value_size);
                if let Some(p) = self.shared(node) {
                    // SAFETY: the node's value has `value_size` bytes, which is the length of `v`.
                    unsafe { v.copy_to(p) };
                }
            }
        }
    }

    /// Counts one element more, if there is room.
    fn count_up(&self) -> bool {
        if self.count.fetch_add(1, Relaxed) < self.max_entries {
            return true;
        }
        self.count.fetch_sub(1, Relaxed);
        false
    }

    fn pop_free(&self) -> Option<u32> {
        // ORDERING: Acquire; pairs with the Release in `push_free`: the link below the top is read as it was written.
        let mut head = self.free.load(Acquire);
        loop {
            let top = head as u32;
            if top == NONE {
                return None;
            }
            let next = self.node(top).next_free.load(Relaxed);
            match self.free.compare_exchange(head, retag(head, next), Acquire, Acquire) {
                Ok(_) => return Some(top),
                Err(now) => head = now,
            }
        }
    }

    fn push_free(&self, node: u32) {
        let mut head = self.free.load(Relaxed);
        loop {
            self.node(node).next_free.store(head as u32, Relaxed);
            // ORDERING: Release; pairs with the Acquire in `pop_free`.
            match self.free.compare_exchange(head, retag(head, node), Release, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn bucket_index(&self, hash: u32) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    fn bucket(&self, hash: u32) -> &Bucket {
        &self.buckets[self.bucket_index(hash)]
    }

    /// Links only ever hold numbers of nodes (or [`NONE`], which callers test first).
    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn key_ptr(&self, node: u32) -> *mut u8 {
        debug_assert!((node as usize) < self.nodes.len());
        // SAFETY: within the keys, of which there is one for each node.
        unsafe { self.keys.as_ptr().add(node as usize * self.key_stride) }
    }

    fn key(&self, node: u32) -> Vec<u8> {
        let mut key = vec![0; self.key_size];
        // SAFETY: every node has `key_size` bytes of key.
        unsafe { mem::load_bytes(self.key_ptr(node), &mut key) };
        key
    }

    /// A node's value, if values are shared.
    fn shared(&self, node: u32) -> Option<*mut u8> {
        let Values::Shared { mem, stride, .. } = &self.values else { return None };
        debug_assert!((node as usize) < self.nodes.len());
        // SAFETY: within the values, of which there is one for each node.
        Some(unsafe { mem.as_ptr().add(node as usize * stride) })
    }
}

impl Bucket {
    /// The chain changes from here on; the caller holds the lock.
    fn begin_change(&self) {
        // ORDERING: Relaxed; the Release stores to the links carry it.
        self.seq.store(self.seq.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// The chain has changed.
    fn end_change(&self) {
        // ORDERING: Release; pairs with the Acquire in `find`.
        self.seq.store(self.seq.load(Relaxed).wrapping_add(1), Release);
    }
}

/// A head of the free stack that names `top` and differs from every recent one.
fn retag(head: u64, top: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(top)
}

/// FNV-1a over the key, its halves mixed.
fn hash(key: &[u8]) -> u32 {
    let h =
        key.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    (h ^ (h >> 32)) as u32
}
