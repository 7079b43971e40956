//! Statistics on while a descriptor is held. Mirrors `bpf_enable_stats`, kernel/bpf/syscall.c.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::Error;
use crate::sys::{Cmd, bpf_fd, refused};

/// Keeps the run-time statistics of all programs on, machine-wide, until it and its copies are dropped, or the
/// process ends. Switching costs 200 to 600 us.
#[derive(Debug)]
pub struct StatsFd(OwnedFd);

impl StatsFd {
    /// Switches them on.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`.
    pub fn enable() -> Result<StatsFd, Error> {
        const BPF_STATS_RUN_TIME: u32 = 0;
        let mut attr = BPF_STATS_RUN_TIME;
        // SAFETY: no addresses.
        unsafe { bpf_fd(Cmd::EnableStats, &mut attr) }.map(StatsFd).map_err(refused(Cmd::EnableStats))
    }

    /// Another descriptor of the same.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn dup(&self) -> Result<StatsFd, Error> {
        self.0.try_clone().map(StatsFd).map_err(|e| Error::new("dup", e.into()))
    }
}

impl AsFd for StatsFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
