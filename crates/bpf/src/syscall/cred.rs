//! Who asks. Kernel: `struct cred` (include/linux/cred.h), `capable`, `bpf_capable` and `perfmon_capable`
//! (include/linux/capability.h), v6.6.
//!
//! Differs: there is one user namespace.

/// A right that a task may have. Kernel: `CAP_*`, include/uapi/linux/capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the kernel's names")]
pub enum Cap {
    NetAdmin = 12,
    SysAdmin = 21,
    Perfmon = 38,
    Bpf = 39,
}

/// A task's user and its rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cred {
    /// The user.
    pub uid: u32,
    effective: u64,
}

impl Cred {
    /// The superuser, with all rights.
    pub const ROOT: Self = Self { uid: 0, effective: u64::MAX };

    /// A user without rights.
    pub const fn user(uid: u32) -> Self {
        Self { uid, effective: 0 }
    }

    /// The same user with one right more.
    pub const fn with(self, cap: Cap) -> Self {
        Self { effective: self.effective | 1 << cap as u8, ..self }
    }

    /// Whether it has the right. Kernel: `capable`.
    pub const fn capable(self, cap: Cap) -> bool {
        self.effective & 1 << cap as u8 != 0
    }

    /// Kernel: `bpf_capable`.
    pub const fn bpf_capable(self) -> bool {
        self.capable(Cap::Bpf) || self.capable(Cap::SysAdmin)
    }

    /// Kernel: `perfmon_capable`.
    pub const fn perfmon_capable(self) -> bool {
        self.capable(Cap::Perfmon) || self.capable(Cap::SysAdmin)
    }
}
