//! The errors of bpf(2) and of helpers. Mirrors `include/uapi/asm-generic/errno-base.h` and `errno.h`, v6.6.

/// An error number with its sentence. What a helper returns to a program is its negative ([`Errno::to_ret`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(i32)]
#[expect(clippy::upper_case_acronyms, reason = "the kernel's names")]
pub enum Errno {
    /// Operation not permitted.
    #[error("operation not permitted (EPERM)")]
    EPERM = 1,
    /// No such entry.
    #[error("no such entry (ENOENT)")]
    ENOENT = 2,
    /// Argument list too long: an index is out of range or a map is full.
    #[error("too big: an index is out of range or the map is full (E2BIG)")]
    E2BIG = 7,
    /// Bad descriptor.
    #[error("bad descriptor (EBADF)")]
    EBADF = 9,
    /// Try again.
    #[error("try again (EAGAIN)")]
    EAGAIN = 11,
    /// Out of memory.
    #[error("out of memory (ENOMEM)")]
    ENOMEM = 12,
    /// Permission denied.
    #[error("permission denied (EACCES)")]
    EACCES = 13,
    /// Bad address.
    #[error("bad address (EFAULT)")]
    EFAULT = 14,
    /// Busy.
    #[error("busy (EBUSY)")]
    EBUSY = 16,
    /// The entry exists.
    #[error("the entry exists (EEXIST)")]
    EEXIST = 17,
    /// Invalid argument.
    #[error("invalid argument (EINVAL)")]
    EINVAL = 22,
    /// No space left.
    #[error("no space left (ENOSPC)")]
    ENOSPC = 28,
    /// Out of range.
    #[error("out of range (ERANGE)")]
    ERANGE = 34,
    /// Not supported.
    #[error("not supported (EOPNOTSUPP)")]
    EOPNOTSUPP = 95,
}

impl Errno {
    /// The kernel's number.
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// What a helper leaves in r0: the negative number, sign-extended.
    pub const fn to_ret(self) -> u64 {
        -(self as i64) as u64
    }
}
