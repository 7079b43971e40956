//! What `BPF_ENABLE_STATS` answers to attributes, right and wrong. Mirrors `__sys_bpf`,
//! `bpf_check_uarg_tail_zero` and `bpf_enable_stats`, kernel/bpf/syscall.c.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::quiet;
use crate::caller::{self, Rights};
use crate::error::{CannotAsk, Error};
use crate::stats::StatsFd;
use crate::sys::{Cmd, bpf_at};

/// An attribute for the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attr<'a> {
    /// These bytes, then zeroes.
    Bytes(&'a [u8]),
    /// An address that is not mapped.
    BadAddress,
}

/// The errno for `attr` with this `size`, asked with these rights; 0 if it was accepted (the descriptor is closed
/// again). `Errno(0)` never comes as an error.
///
/// # Errors
/// [`CannotAsk`].
///
/// # Panics
/// If there are more than 8192 bytes, or `size` is more than that.
pub fn enable_errno(attr: Attr<'_>, size: u32, rights: Rights) -> Result<i32, CannotAsk> {
    const ROOM: usize = 8192;
    assert!(size as usize <= ROOM, "size {size}");
    let mut bytes = vec![0u8; ROOM];
    let mut address = bytes.as_mut_ptr();
    match attr {
        Attr::Bytes(given) => bytes[..given.len()].copy_from_slice(given),
        // In the first page, which nobody can map.
        Attr::BadAddress => address = std::ptr::without_provenance_mut(8),
    }
    let _lock = quiet()?;
    // A number, so that the question can go to another thread.
    let address = address.expose_provenance();
    caller::with(rights, move || {
        let address = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: the command reads its attribute only, up to a size that is there, and refuses the bad address.
        match unsafe { bpf_at(Cmd::EnableStats, address, size) } {
            Ok(fd) => {
                // SAFETY: a new descriptor, nobody else's.
                drop(unsafe { OwnedFd::from_raw_fd(fd) });
                0
            }
            Err(errno) => errno.0,
        }
    })
}

/// What the command's descriptor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The file's name, as /proc shows it.
    pub name: String,
    /// Whether it is closed by exec.
    pub close_on_exec: bool,
}

/// Opens a descriptor and looks at it.
///
/// # Errors
/// [`CannotAsk`].
pub fn descriptor() -> Result<Descriptor, CannotAsk> {
    let _lock = quiet()?;
    let file = StatsFd::enable()?;
    let fd = file.as_fd().as_raw_fd();
    let path = format!("/proc/thread-self/fd/{fd}");
    let name = std::fs::read_link(&path).map_err(|e| Error::new(format!("readlink {path}"), e.into()))?;
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    if flags < 0 {
        return Err(Error::last("fcntl").into());
    }
    Ok(Descriptor { name: name.display().to_string(), close_on_exec: flags & libc::FD_CLOEXEC != 0 })
}
