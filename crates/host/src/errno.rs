//! The kernel's error numbers, with their names. Mirrors `include/uapi/asm-generic/errno-base.h` and
//! `include/linux/errno.h`.

use std::{fmt, io};

/// An error number of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! names {
    ($($name:ident)*) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "`")]
                pub const $name: Errno = Errno(libc::$name);
            )*
        }
        const NAMES: &[(i32, &str)] = &[$((libc::$name, stringify!($name)),)*];
    };
}

names! {
    EPERM ENOENT ESRCH EINTR EIO E2BIG EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST ENODEV EINVAL ENFILE EMFILE
    ENOSPC ERANGE ENOSYS EOPNOTSUPP
}

impl Errno {
    /// What the kernel says of features that a build does not have; not meant for user space, but it gets out.
    pub const ENOTSUPP: Errno = Errno(524);

    /// The number that the last failed call of this thread left.
    pub fn last() -> Errno {
        Errno(io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// The name, `E?` for a number that is not listed here.
    pub fn name(self) -> &'static str {
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => name,
            None if self == Errno::ENOTSUPP => "ENOTSUPP",
            None => "E?",
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            "E?" => write!(f, "errno {}", self.0),
            name => f.write_str(name),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<io::Error> for Errno {
    /// Of an error that is not the system's: `EIO`.
    fn from(e: io::Error) -> Errno {
        Errno(e.raw_os_error().unwrap_or(libc::EIO))
    }
}
