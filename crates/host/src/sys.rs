//! bpf(2) itself. Mirrors `enum bpf_cmd` and `union bpf_attr` of include/uapi/linux/bpf.h; each module has
//! the part of the union that it uses.

use std::os::fd::{FromRawFd, OwnedFd};

use crate::errno::Errno;
use crate::error::Error;

/// A command of bpf(2). Kernel: `enum bpf_cmd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the kernel's names, in bpf(2)")]
pub enum Cmd {
    MapCreate = 0,
    MapLookupElem = 1,
    MapUpdateElem = 2,
    MapDeleteElem = 3,
    ProgLoad = 5,
    ProgTestRun = 10,
    ProgGetNextId = 11,
    ProgGetFdById = 13,
    ObjGetInfoByFd = 15,
    RawTracepointOpen = 17,
    EnableStats = 32,
}

impl Cmd {
    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Cmd::MapCreate => "BPF_MAP_CREATE",
            Cmd::MapLookupElem => "BPF_MAP_LOOKUP_ELEM",
            Cmd::MapUpdateElem => "BPF_MAP_UPDATE_ELEM",
            Cmd::MapDeleteElem => "BPF_MAP_DELETE_ELEM",
            Cmd::ProgLoad => "BPF_PROG_LOAD",
            Cmd::ProgTestRun => "BPF_PROG_TEST_RUN",
            Cmd::ProgGetNextId => "BPF_PROG_GET_NEXT_ID",
            Cmd::ProgGetFdById => "BPF_PROG_GET_FD_BY_ID",
            Cmd::ObjGetInfoByFd => "BPF_OBJ_GET_INFO_BY_FD",
            Cmd::RawTracepointOpen => "BPF_RAW_TRACEPOINT_OPEN",
            Cmd::EnableStats => "BPF_ENABLE_STATS",
        }
    }
}

/// Makes the call. What it returns is a descriptor for the commands that make one, else 0.
///
/// # Safety
/// `attr` may be any address: the kernel checks it. But if `size` bytes there are readable, what they say must
/// be true of this process: addresses in them are written to by the kernel.
///
/// # Errors
/// What the kernel answers.
pub unsafe fn bpf_at(cmd: Cmd, attr: *mut u8, size: u32) -> Result<i32, Errno> {
    loop {
        // SAFETY: the caller's contract.
        let r = unsafe { libc::syscall(libc::SYS_bpf, cmd as libc::c_long, attr, libc::c_long::from(size)) };
        if r >= 0 {
            return Ok(r as i32);
        }
        // The verifier looks for pending signals and answers EAGAIN; it asks to be called again.
        match Errno::last() {
            Errno::EAGAIN if cmd == Cmd::ProgLoad => {}
            e => return Err(e),
        }
    }
}

/// The same for an attribute of ours, with no padding between fields.
///
/// # Safety
/// The addresses in `attr` are valid for what `cmd` does there.
pub(crate) unsafe fn bpf<T>(cmd: Cmd, attr: &mut T) -> Result<i32, Errno> {
    // SAFETY: readable and writable for its size; the rest is the caller's contract.
    unsafe { bpf_at(cmd, std::ptr::from_mut(attr).cast(), size_of::<T>() as u32) }
}

/// The same for commands that make a descriptor.
///
/// # Safety
/// As [`bpf`]; and `cmd` makes a descriptor.
pub(crate) unsafe fn bpf_fd<T>(cmd: Cmd, attr: &mut T) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller's contract; a new descriptor, nobody else's.
    unsafe { bpf(cmd, attr).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// Makes an error of a refused command.
pub(crate) fn refused(cmd: Cmd) -> impl Fn(Errno) -> Error {
    move |errno| Error::new(cmd.name(), errno)
}

/// A name as the kernel takes it: 15 bytes and a zero, of letters, digits, `_` and `.`; others become `_`.
pub(crate) fn obj_name(name: &str) -> [u8; 16] {
    let mut out = [0; 16];
    for (to, from) in out.iter_mut().zip(name.bytes().take(15)) {
        *to = if from.is_ascii_alphanumeric() || from == b'.' { from } else { b'_' };
    }
    out
}
