//! The errors of bpf(2) and of helpers. Mirrors `include/uapi/asm-generic/errno-base.h` and `errno.h`, v6.6.

/// An error number with its sentence. What a helper returns to a program is its negative ([`Errno::to_ret`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(i32)]
pub enum Errno {
    /// Operation not permitted.
    #[error("EPERM: operation not permitted")]
    EPERM = 1,
    /// No such entry.
    #[error("ENOENT: no such entry")]
    ENOENT = 2,
    /// Argument list too long: an index is out of range or a map is full.
    #[error("E2BIG: too big: an index is out of range or the map is full")]
    E2BIG = 7,
    /// Bad descriptor.
    #[error("EBADF: bad descriptor")]
    EBADF = 9,
    /// Try again.
    #[error("EAGAIN: try again")]
    EAGAIN = 11,
    /// Out of memory.
    #[error("ENOMEM: out of memory")]
    ENOMEM = 12,
    /// Permission denied.
    #[error("EACCES: permission denied")]
    EACCES = 13,
    /// Bad address.
    #[error("EFAULT: bad address")]
    EFAULT = 14,
    /// Busy.
    #[error("EBUSY: busy")]
    EBUSY = 16,
    /// The entry exists.
    #[error("EEXIST: the entry exists")]
    EEXIST = 17,
    /// Invalid argument.
    #[error("EINVAL: invalid argument")]
    EINVAL = 22,
    /// Too many open descriptors.
    #[error("EMFILE: too many open descriptors")]
    EMFILE = 24,
    /// No space left.
    #[error("ENOSPC: no space left")]
    ENOSPC = 28,
    /// Out of range.
    #[error("ERANGE: out of range")]
    ERANGE = 34,
    /// The descriptor is of no use here.
    #[error("EBADFD: no such descriptor")]
    EBADFD = 77,
    /// Not supported.
    #[error("EOPNOTSUPP: not supported")]
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
