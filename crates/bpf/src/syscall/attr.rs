//! The argument of bpf(2) as bytes. Kernel: `union bpf_attr`, include/uapi/linux/bpf.h; `CHECK_ATTR`,
//! kernel/bpf/syscall.c, v6.6.

use crate::errno::Errno;

/// Bytes of the union. Kernel: `sizeof(union bpf_attr)`.
pub const SIZE: usize = 144;

/// The union, zero behind what the caller gave.
pub(super) struct Attr(pub(super) [u8; SIZE]);

impl Attr {
    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(std::array::from_fn(|i| self.0[at + i]))
    }

    /// The command's own part ends at `end`: behind it must be nothing. Kernel: `CHECK_ATTR`.
    ///
    /// # Errors
    /// `EINVAL`.
    pub(super) fn check(&self, end: usize) -> Result<(), Errno> {
        if self.0[end..].iter().all(|&b| b == 0) { Ok(()) } else { Err(Errno::EINVAL) }
    }
}
