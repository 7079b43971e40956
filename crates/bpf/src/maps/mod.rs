//! Maps: memory that programs share with each other and with readers outside. Mirrors `struct bpf_map` and
//! `bpf_map_ops` (include/linux/bpf.h), and the element commands of kernel/bpf/syscall.c, v6.6.
//!
//! | module | mirrors |
//! |---|---|
//! | [`array`](mod@array) | kernel/bpf/arraymap.c: `array_map_*` |
//! | [`percpu_values`] | the per-CPU halves of arraymap.c and hashtab.c: where their values live |
//! | [`hash`] | kernel/bpf/hashtab.c |
//! | [`ringbuf`] | kernel/bpf/ringbuf.c |
//! | [`prog_array`] | kernel/bpf/arraymap.c: `fd_array_map_*`, `prog_array_map_*` |
//!
//! # Invariants
//! 1. Everything a program can reach is allocated when the map is made: no map operation of a program
//!    allocates, blocks or fails otherwise than by an [`Errno`]. What it can reach stays mapped until the map
//!    goes.
//! 2. A value's bytes are accessed through `sync::mem` only, since programs on other CPUs and interrupts do
//!    so at any time.
//! 3. A program may touch a value within its `value_size` bytes and nothing between values
//!    (`Map::find_value`).
//!
//! Differs: memory of a deleted element may be looked at until the map goes, and may be another element's by
//! then (the kernel: until an RCU grace period has passed, or as here for preallocated maps).
//! `BPF_F_NO_PREALLOC` is accepted and has no effect.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use percpu::Pcpu;

use crate::env::Env;
use crate::errno::Errno;

pub mod array;
pub mod hash;
mod lock;
pub mod percpu_values;
pub mod prog_array;
pub mod ringbuf;

use array::Array;
use hash::Hash;
use percpu_values::PercpuValues;
use prog_array::ProgArray;
use ringbuf::Ringbuf;

/// Update: create or replace.
pub const BPF_ANY: u64 = 0;
/// Update: create only.
pub const BPF_NOEXIST: u64 = 1;
/// Update: replace only.
pub const BPF_EXIST: u64 = 2;

/// Map flag: no preallocation; accepted, without effect.
pub const BPF_F_NO_PREALLOC: u32 = 1 << 0;
/// Map flag: programs may only read.
pub const BPF_F_RDONLY_PROG: u32 = 1 << 7;
/// Map flag: may be mapped by user space; accepted, without effect.
pub const BPF_F_MMAPABLE: u32 = 1 << 10;

/// The largest key of a hash, in bytes. Kernel: `MAX_BPF_STACK`, which bounded keys until 5.x.
pub const MAX_KEY_SIZE: u32 = 512;

/// The kinds of map there are, with the kernel's numbers. Kernel: `enum bpf_map_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MapType {
    /// `BPF_MAP_TYPE_HASH`
    Hash = 1,
    /// `BPF_MAP_TYPE_ARRAY`
    Array = 2,
    /// `BPF_MAP_TYPE_PROG_ARRAY`
    ProgArray = 3,
    /// `BPF_MAP_TYPE_PERCPU_HASH`
    PercpuHash = 5,
    /// `BPF_MAP_TYPE_PERCPU_ARRAY`
    PercpuArray = 6,
    /// `BPF_MAP_TYPE_RINGBUF`
    Ringbuf = 27,
}

impl MapType {
    /// The kind with the kernel's number `n`, if there is one here.
    pub fn from_number(n: u32) -> Option<Self> {
        use MapType::*;
        [Hash, Array, ProgArray, PercpuHash, PercpuArray, Ringbuf].into_iter().find(|&t| t as u32 == n)
    }

    /// Whether each CPU has its own copy of the values.
    pub fn is_percpu(self) -> bool {
        matches!(self, MapType::PercpuHash | MapType::PercpuArray)
    }

    /// The name as bpftool prints it.
    pub fn name(self) -> &'static str {
        match self {
            MapType::Hash => "hash",
            MapType::Array => "array",
            MapType::ProgArray => "prog_array",
            MapType::PercpuHash => "percpu_hash",
            MapType::PercpuArray => "percpu_array",
            MapType::Ringbuf => "ringbuf",
        }
    }
}

impl fmt::Display for MapType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a map is made from. Kernel: the `BPF_MAP_CREATE` part of `union bpf_attr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapAttr {
    /// The kind.
    pub map_type: MapType,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Elements; of a ring buffer its bytes.
    pub max_entries: u32,
    /// `BPF_F_*`.
    pub map_flags: u32,
    /// The name.
    pub name: String,
}

impl MapAttr {
    /// An array of `max_entries` values.
    pub fn array(name: &str, value_size: u32, max_entries: u32) -> Self {
        Self {
            map_type: MapType::Array,
            key_size: 4,
            value_size,
            max_entries,
            map_flags: 0,
            name: name.into(),
        }
    }

    /// The same attributes for another kind of map.
    pub fn of_type(self, map_type: MapType) -> Self {
        Self { map_type, ..self }
    }

    /// The same attributes with another key size.
    pub fn with_key_size(self, key_size: u32) -> Self {
        Self { key_size, ..self }
    }

    /// The same attributes with these flags.
    pub fn with_flags(self, map_flags: u32) -> Self {
        Self { map_flags, ..self }
    }
}

/// A map. Kernel: `struct bpf_map`.
pub struct Map {
    id: u32,
    attr: MapAttr,
    nr_cpus: u32,
    kind: Kind,
}

enum Kind {
    Array(Array),
    PercpuArray(PercpuValues),
    Hash(Hash),
    ProgArray(ProgArray),
    Ringbuf(Ringbuf),
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("id", &self.id).field("attr", &self.attr).finish_non_exhaustive()
    }
}

impl Map {
    /// Makes a map whose per-CPU values live in `pcpu`. Kernel: `map_create`, kernel/bpf/syscall.c.
    ///
    /// Context: task; allocates.
    ///
    /// # Errors
    /// `EINVAL` for sizes or flags that the kind does not take, `E2BIG` for values that are too large,
    /// `ENOMEM`.
    pub fn create(id: u32, attr: MapAttr, pcpu: &Pcpu) -> Result<Arc<Self>, Errno> {
        if attr.map_flags & !(BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG | BPF_F_MMAPABLE) != 0 {
            return Err(Errno::EINVAL);
        }
        let kind = match attr.map_type {
            MapType::Array => Kind::Array(Array::new(&attr)?),
            MapType::PercpuArray => {
                array::check_attr(&attr)?;
                Kind::PercpuArray(PercpuValues::new(attr.value_size, attr.max_entries, pcpu)?)
            }
            MapType::Hash => Kind::Hash(Hash::new(&attr, pcpu, false)?),
            MapType::PercpuHash => Kind::Hash(Hash::new(&attr, pcpu, true)?),
            MapType::ProgArray => Kind::ProgArray(ProgArray::new(&attr)?),
            MapType::Ringbuf => Kind::Ringbuf(Ringbuf::new(&attr)?),
        };
        let nr_cpus = u32::try_from(pcpu.nr_cpu_ids()).map_err(|_| Errno::EINVAL)?;
        Ok(Arc::new(Self { id, attr, nr_cpus, kind }))
    }

    /// The id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.attr.name
    }

    /// What it was made from.
    pub fn attr(&self) -> &MapAttr {
        &self.attr
    }

    /// The kind.
    pub fn map_type(&self) -> MapType {
        self.attr.map_type
    }

    /// Bytes of a key.
    pub fn key_size(&self) -> u32 {
        self.attr.key_size
    }

    /// Bytes of a value as a program sees it.
    pub fn value_size(&self) -> u32 {
        self.attr.value_size
    }

    /// Elements.
    pub fn max_entries(&self) -> u32 {
        self.attr.max_entries
    }

    /// Bytes of a value as the syscall side sees it: of per-CPU maps one value for each possible CPU, each
    /// rounded up to 8 bytes. Kernel: `bpf_map_value_size`, kernel/bpf/syscall.c.
    pub fn syscall_value_size(&self) -> usize {
        match self.attr.map_type {
            MapType::PercpuArray | MapType::PercpuHash => {
                (self.value_size() as usize).next_multiple_of(8) * self.nr_cpus as usize
            }
            MapType::ProgArray => 4,
            _ => self.value_size() as usize,
        }
    }

    /// The prog array, if this is one.
    pub fn prog_array(&self) -> Option<&ProgArray> {
        if let Kind::ProgArray(a) = &self.kind { Some(a) } else { None }
    }

    /// The ring buffer, if this is one.
    pub fn ringbuf(&self) -> Option<&Ringbuf> {
        if let Kind::Ringbuf(r) = &self.kind { Some(r) } else { None }
    }
}

/// The syscall side.
///
/// Context: task. `env` is the CPU that the caller is on.
impl Map {
    /// Copies an element's value out; of per-CPU maps all CPUs'. Kernel: `bpf_map_copy_value`,
    /// kernel/bpf/syscall.c.
    ///
    /// # Errors
    /// `ENOENT`; `EINVAL` for a key of another size; `EOPNOTSUPP` for kinds without lookup.
    pub fn lookup_elem(&self, env: &dyn Env, key: &[u8]) -> Result<Vec<u8>, Errno> {
        self.check_key(key)?;
        let _off = Uninstrumented::new(env);
        let mut out = vec![0; self.syscall_value_size()];
        let not_found = Errno::ENOENT;
        match &self.kind {
            Kind::Array(a) => a.read(index(key), &mut out).ok_or(not_found)?,
            Kind::PercpuArray(p) => p.read_all(index(key), &mut out).ok_or(not_found)?,
            Kind::Hash(h) => h.read(key, &mut out).ok_or(not_found)?,
            Kind::ProgArray(p) => out = p.id_at(index(key)).ok_or(not_found)?.to_ne_bytes().to_vec(),
            Kind::Ringbuf(_) => return Err(Errno::EOPNOTSUPP),
        }
        Ok(out)
    }

    /// Creates or replaces an element, by `flags` ([`BPF_ANY`], [`BPF_NOEXIST`], [`BPF_EXIST`]). Kernel:
    /// `bpf_map_update_value`, kernel/bpf/syscall.c.
    ///
    /// # Errors
    /// `EINVAL` for sizes and flags; `E2BIG` for an index out of range or a full map; `EEXIST`, `ENOENT` by
    /// the flags; `EBUSY` if an interrupted update of this CPU holds the bucket; `EOPNOTSUPP` for kinds
    /// without update.
    pub fn update_elem(&self, env: &dyn Env, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        self.check_key(key)?;
        if value.len() != self.syscall_value_size() {
            return Err(Errno::EINVAL);
        }
        let _off = Uninstrumented::new(env);
        match &self.kind {
            Kind::Array(a) => a.update(index(key), Bytes::of(value), flags),
            Kind::PercpuArray(p) => {
                array::check_update(index(key), self.max_entries(), flags)?;
                p.write_all(index(key), value);
                Ok(())
            }
            Kind::Hash(h) => h.update(env, key, hash::NewValue::AllCpus(value), flags),
            Kind::ProgArray(_) | Kind::Ringbuf(_) => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Deletes an element. Kernel: `map_delete_elem`, kernel/bpf/syscall.c.
    ///
    /// # Errors
    /// `ENOENT`; `EINVAL` for arrays and for a key of another size; `EBUSY` as in [`Map::update_elem`].
    pub fn delete_elem(&self, env: &dyn Env, key: &[u8]) -> Result<(), Errno> {
        self.check_key(key)?;
        let _off = Uninstrumented::new(env);
        match &self.kind {
            Kind::Array(_) | Kind::PercpuArray(_) => Err(Errno::EINVAL),
            Kind::Hash(h) => h.delete(env, key),
            Kind::ProgArray(p) => p.delete(index(key)),
            Kind::Ringbuf(_) => Err(Errno::EOPNOTSUPP),
        }
    }

    /// The key after `key`, or the first for `None` or a key that is not there. Kernel: `map_get_next_key`,
    /// kernel/bpf/syscall.c.
    ///
    /// # Errors
    /// `ENOENT` after the last; `EINVAL` for a key of another size; `EOPNOTSUPP` for kinds without keys.
    pub fn get_next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        if let Some(key) = key {
            self.check_key(key)?;
        }
        match &self.kind {
            Kind::Hash(h) => h.next_key(key).ok_or(Errno::ENOENT),
            Kind::Ringbuf(_) => Err(Errno::EOPNOTSUPP),
            _ => array::next_index(key.map(index), self.max_entries()).map(|i| i.to_ne_bytes().to_vec()),
        }
    }

    /// All keys there are, in the map's order.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        // A hash that changes meanwhile may lead back to its start: at most one round.
        let mut keys: Vec<Vec<u8>> = Vec::new();
        while keys.len() < self.max_entries() as usize {
            match self.get_next_key(keys.last().map(Vec::as_slice)) {
                Ok(key) => keys.push(key),
                Err(_) => break,
            }
        }
        keys
    }

    fn check_key(&self, key: &[u8]) -> Result<(), Errno> {
        if key.len() == self.key_size() as usize { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

/// The side of a running program.
///
/// Context: any, interrupts included.
impl Map {
    /// What a program gets as the map's address.
    pub(crate) fn addr(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }

    /// Whether programs may write values.
    pub(crate) fn prog_may_write(&self) -> bool {
        self.attr.map_flags & BPF_F_RDONLY_PROG == 0
    }

    /// The address of byte `off` of the first value. Kernel: `array_map_direct_value_addr`,
    /// kernel/bpf/arraymap.c.
    pub(crate) fn direct_value_addr(&self, off: u32) -> Result<u64, Errno> {
        match &self.kind {
            Kind::Array(a) if self.max_entries() == 1 && off < self.value_size() => {
                a.lookup(0).map(|addr| addr + u64::from(off)).ok_or(Errno::EINVAL)
            }
            Kind::Array(_) => Err(Errno::EINVAL),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Where the value begins that `addr` lies in, as seen from `cpu`; it is [`Map::value_size`] bytes long.
    pub(crate) fn find_value(&self, addr: u64) -> Option<u64> {
        match &self.kind {
            Kind::Array(a) => a.find_value(addr),
            Kind::PercpuArray(p) => p.find_value(addr),
            Kind::Hash(h) => h.find_value(addr),
            Kind::ProgArray(_) | Kind::Ringbuf(_) => None,
        }
    }

    /// Whether lookup, update and delete are for this kind. Kernel: `check_map_func_compatibility`.
    pub(crate) fn has_elements(&self) -> bool {
        matches!(self.kind, Kind::Array(_) | Kind::PercpuArray(_) | Kind::Hash(_))
    }

    /// The address of an element's value on `cpu`. Kernel: `bpf_map_lookup_elem`.
    pub(crate) fn lookup(&self, cpu: u32, key: &[u8]) -> Option<u64> {
        match &self.kind {
            Kind::Array(a) => a.lookup(index(key)),
            Kind::PercpuArray(p) => p.addr(index(key), cpu),
            Kind::Hash(h) => h.lookup(key, cpu),
            _ => None,
        }
    }

    /// Kernel: `bpf_map_update_elem`, the helper: of per-CPU maps only this CPU's value.
    pub(crate) fn update(
        &self,
        env: &dyn Env,
        key: &[u8],
        value: Bytes<'_>,
        flags: u64,
    ) -> Result<(), Errno> {
        match &self.kind {
            Kind::Array(a) => a.update(index(key), value, flags),
            Kind::PercpuArray(p) => {
                array::check_update(index(key), self.max_entries(), flags)?;
                p.write(index(key), env.smp_processor_id(), value);
                Ok(())
            }
            Kind::Hash(h) => h.update(env, key, hash::NewValue::ThisCpu(value), flags),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Kernel: `bpf_map_delete_elem`, the helper.
    pub(crate) fn delete(&self, env: &dyn Env, key: &[u8]) -> Result<(), Errno> {
        match &self.kind {
            Kind::Hash(h) => h.delete(env, key),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// The index that an array's key is; keys are of the right size by then.
fn index(key: &[u8]) -> u32 {
    key.first_chunk().map_or(u32::MAX, |b| u32::from_ne_bytes(*b))
}

/// `bpf_prog_active` raised while it lives.
struct Uninstrumented<'a>(&'a dyn Env);

impl<'a> Uninstrumented<'a> {
    fn new(env: &'a dyn Env) -> Self {
        env.bpf_disable_instrumentation();
        Self(env)
    }
}

impl Drop for Uninstrumented<'_> {
    fn drop(&mut self) {
        self.0.bpf_enable_instrumentation();
    }
}

/// Bytes to read that may be shared: a caller's slice, or memory of a program.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a> {
    ptr: *const u8,
    len: usize,
    _life: PhantomData<&'a [u8]>,
}

impl<'a> Bytes<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { ptr: bytes.as_ptr(), len: bytes.len(), _life: PhantomData }
    }

    /// # Safety
    /// `ptr` is valid for reads of `len` bytes during `'a`, and others write them by atomics only.
    pub(crate) unsafe fn shared(ptr: *const u8, len: usize) -> Self {
        Self { ptr, len, _life: PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies the bytes to shared memory.
    ///
    /// # Safety
    /// `to` is valid for writes of `self.len()` bytes, and others access them by atomics only.
    pub(crate) unsafe fn copy_to(&self, to: *mut u8) {
        // SAFETY: `self` by its constructors, `to` by contract.
        unsafe { sync::mem::copy(self.ptr, to, self.len) }
    }
}
