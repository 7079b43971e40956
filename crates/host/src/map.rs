//! Maps of the real kernel. Mirrors the `BPF_MAP_*` commands of kernel/bpf/syscall.c.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::error::Error;
use crate::sys::{Cmd, bpf, bpf_fd, obj_name, refused};

/// The kinds of map that can be made here. Kernel: `enum bpf_map_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapType {
    /// `BPF_MAP_TYPE_HASH`
    Hash = 1,
    /// `BPF_MAP_TYPE_ARRAY`
    Array = 2,
    /// `BPF_MAP_TYPE_PERCPU_HASH`
    PercpuHash = 5,
    /// `BPF_MAP_TYPE_PERCPU_ARRAY`
    PercpuArray = 6,
    /// `BPF_MAP_TYPE_RINGBUF`: no keys, and of the values only how many bytes there are.
    Ringbuf = 27,
}

/// A map; it goes with this handle and the programs that use it.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key_size: usize,
    /// As the syscalls see it: of per-CPU maps one value for each possible CPU.
    syscall_value_size: usize,
}

#[repr(C)]
#[derive(Default)]
struct CreateAttr {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; 16],
}

#[repr(C)]
struct ElemAttr {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Map {
    /// Makes a map; sizes in bytes.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn create(
        map_type: MapType,
        name: &str,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    ) -> Result<Map, Error> {
        let mut attr = CreateAttr {
            map_type: map_type as u32,
            key_size,
            value_size,
            max_entries,
            map_name: obj_name(name),
            ..CreateAttr::default()
        };
        // SAFETY: no addresses.
        let fd = unsafe { bpf_fd(Cmd::MapCreate, &mut attr) }.map_err(refused(Cmd::MapCreate))?;
        let value_size = value_size as usize;
        let syscall_value_size = match map_type {
            MapType::Hash | MapType::Array | MapType::Ringbuf => value_size,
            MapType::PercpuHash | MapType::PercpuArray => value_size.next_multiple_of(8) * possible_cpus()?,
        };
        Ok(Map { fd, key_size: key_size as usize, syscall_value_size })
    }

    /// An array of `max_entries` values of `value_size` bytes.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn array(name: &str, value_size: u32, max_entries: u32) -> Result<Map, Error> {
        Map::create(MapType::Array, name, 4, value_size, max_entries)
    }

    /// An element's value; of per-CPU maps those of all possible CPUs, each rounded up to 8 bytes.
    ///
    /// # Errors
    /// `ENOENT`.
    ///
    /// # Panics
    /// If `key` has not the map's key size.
    pub fn lookup(&self, key: &[u8]) -> Result<Vec<u8>, Error> {
        assert_eq!(key.len(), self.key_size, "key size");
        let mut value = vec![0; self.syscall_value_size];
        let mut attr = self.elem(key, value.as_mut_ptr().expose_provenance(), 0);
        // SAFETY: the key is read with its size, the value is written with the map's.
        unsafe { bpf(Cmd::MapLookupElem, &mut attr) }.map_err(refused(Cmd::MapLookupElem))?;
        Ok(value)
    }

    /// Creates or replaces an element; `value` as [`Map::lookup`] gives it.
    ///
    /// # Errors
    /// `E2BIG` for an index out of range or a full map.
    ///
    /// # Panics
    /// If `key` or `value` has not the map's size.
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        assert_eq!((key.len(), value.len()), (self.key_size, self.syscall_value_size), "key and value size");
        let mut attr = self.elem(key, value.as_ptr().expose_provenance(), 0);
        // SAFETY: key and value are read with their sizes.
        unsafe { bpf(Cmd::MapUpdateElem, &mut attr) }.map_err(refused(Cmd::MapUpdateElem))?;
        Ok(())
    }

    /// Takes an element away.
    ///
    /// # Errors
    /// `ENOENT`, `EINVAL` of an array.
    ///
    /// # Panics
    /// If `key` has not the map's key size.
    pub fn delete(&self, key: &[u8]) -> Result<(), Error> {
        assert_eq!(key.len(), self.key_size, "key size");
        let mut attr = self.elem(key, 0, 0);
        // SAFETY: the key is read with its size.
        unsafe { bpf(Cmd::MapDeleteElem, &mut attr) }.map_err(refused(Cmd::MapDeleteElem))?;
        Ok(())
    }

    /// The words that the first value of an array begins with.
    pub(crate) fn words<const N: usize>(&self) -> Result<[u64; N], Error> {
        let value = self.lookup(&[0; 4])?;
        let (words, _) = value.as_chunks::<8>();
        Ok(std::array::from_fn(|n| u64::from_ne_bytes(words[n])))
    }

    /// Sets the whole first value of an array.
    pub(crate) fn set_words<const N: usize>(&self, words: [u64; N]) -> Result<(), Error> {
        self.update(&[0; 4], words.map(u64::to_ne_bytes).as_flattened())
    }

    fn elem(&self, key: &[u8], value: usize, flags: u64) -> ElemAttr {
        let map_fd = self.fd.as_raw_fd() as u32;
        ElemAttr { map_fd, pad: 0, key: key.as_ptr().expose_provenance() as u64, value: value as u64, flags }
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// How many CPUs per-CPU memory is made for. Kernel: `num_possible_cpus`, of `/sys/devices/system/cpu/possible`.
///
/// # Errors
/// If the file cannot be read or says something else.
pub fn possible_cpus() -> Result<usize, Error> {
    const PATH: &str = "/sys/devices/system/cpu/possible";
    let text = std::fs::read_to_string(PATH).map_err(|e| Error::new(format!("read {PATH}"), e.into()))?;
    // `0-3` or `0-1,4-5`: what counts is how many there are.
    let cpus = |range: &str| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(to.parse::<usize>().ok()?.checked_sub(from.parse().ok()?)? + 1)
    };
    let sum: Option<usize> = text.trim().split(',').map(cpus).sum();
    sum.ok_or_else(|| Error::new(format!("{PATH} is {text:?}"), crate::Errno::EINVAL))
}
