//! Attachments that go with their descriptor. Mirrors `bpf_raw_tracepoint_open`, kernel/bpf/syscall.c.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::errno::Errno;
use crate::error::Error;
use crate::prog::Prog;
use crate::sys::{Cmd, bpf_fd, refused};

/// A program attached to a raw tracepoint, until this is dropped.
#[derive(Debug)]
pub struct Link(OwnedFd);

impl Link {
    /// Attaches a raw tracepoint program to the tracepoint `name`: from now on it runs on all CPUs, whoever gets
    /// there.
    ///
    /// # Errors
    /// `ENOENT` if this kernel has no such tracepoint, else what it answers.
    pub fn raw_tracepoint(name: &str, prog: &Prog) -> Result<Link, Error> {
        let call = || format!("{} {name}", Cmd::RawTracepointOpen.name());
        let text = CString::new(name).map_err(|_| Error::new(call(), Errno::EINVAL))?;
        open(text.as_ptr().expose_provenance() as u64, prog).map_err(|e| Error::new(call(), e))
    }

    /// Attaches a tracing program to the function that it was loaded for.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn tracing(prog: &Prog) -> Result<Link, Error> {
        open(0, prog).map_err(refused(Cmd::RawTracepointOpen))
    }
}

/// `name`: the address of a text that ends with a zero and outlives the call, or 0.
fn open(name: u64, prog: &Prog) -> Result<Link, Errno> {
    #[repr(C)]
    struct Attr {
        name: u64,
        prog_fd: u32,
        pad: u32,
        cookie: u64,
    }
    let mut attr = Attr { name, prog_fd: prog.as_fd().as_raw_fd() as u32, pad: 0, cookie: 0 };
    // SAFETY: as this function asks of its callers, all of this module.
    unsafe { bpf_fd(Cmd::RawTracepointOpen, &mut attr) }.map(Link)
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
