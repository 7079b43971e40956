//! Switching run-time statistics on and off. Kernel: `bpf_enable_runtime_stats`, `bpf_stats_release`,
//! `bpf_stats_handler`, kernel/bpf/syscall.c, v6.6; descriptors since `d46edd671a14` (5.8).
//!
//! Statistics are on while the key's count is above 0. Each open file counts one, and the sysctl counts one while its own
//! value is 1. One mutex covers both, so that the sysctl's value and its count never part.

use std::sync::{Mutex, MutexGuard};

use filter::Kconfig;
use jump_label::StaticKey;
use percpu::Machine;

use super::cred::{Cap, Cred};
use super::sysctl;
use crate::errno::Errno;

fn lock(mutex: &Mutex<i32>) -> MutexGuard<'_, i32> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// An open `anon_inode:bpf-stats`: counts one while it lives. It cannot be pinned: it is no object of bpffs.
pub struct StatsFile<'m, K: Kconfig>(&'m Machine<K>);

impl<'m, K: Kconfig> StatsFile<'m, K> {
    /// What /proc shows as the name of its descriptors.
    pub const NAME: &'static str = "anon_inode:bpf-stats";

    /// Counts one more; `open` makes the descriptor of it. Kernel: `bpf_enable_runtime_stats`.
    ///
    /// # Errors
    /// `EBUSY` above `INT_MAX / 2` counts; then nothing else was asked. What `open` says; then nothing is counted.
    pub(super) fn enable(
        machine: &'m Machine<K>,
        open: impl FnOnce(&dyn Fn() -> Self) -> Result<i32, Errno>,
    ) -> Result<i32, Errno> {
        let globals = K::globals(machine.globals());
        let _held = lock(&globals.bpf_stats_enabled_mutex);
        let key = &globals.bpf_stats_enabled_key;
        if key.count() > i32::MAX / 2 {
            return Err(Errno::EBUSY);
        }
        // Far from its limit, as just seen under the mutex.
        open(&|| {
            let _ = key.slow_inc();
            Self(machine)
        })
    }
}

impl<K: Kconfig> Drop for StatsFile<'_, K> {
    /// Kernel: `bpf_stats_release`.
    fn drop(&mut self) {
        let globals = K::globals(self.0.globals());
        let _held = lock(&globals.bpf_stats_enabled_mutex);
        let taken = globals.bpf_stats_enabled_key.slow_dec();
        debug_assert_eq!(taken, Ok(()), "a descriptor's count was gone before it");
    }
}

/// Writes `kernel.bpf_stats_enabled`; returns how many bytes were taken. Kernel: `bpf_stats_handler`.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, before anything is read; `EINVAL` if it is not one of 0 and 1.
pub fn write_bpf_stats_enabled<K: Kconfig>(
    machine: &Machine<K>,
    cred: Cred,
    bytes: &[u8],
    pos: u64,
) -> Result<usize, Errno> {
    if !cred.capable(Cap::SysAdmin) {
        return Err(Errno::EPERM);
    }
    let globals = K::globals(machine.globals());
    let mut saved = lock(&globals.bpf_stats_enabled_mutex);
    let (val, taken) = sysctl::write_int_minmax(bytes, pos, 0..=1)?;
    if let Some(val) = val
        && val != *saved
    {
        // As in the kernel there is no limit here, and what the key says is not looked at.
        let _ = if val != 0 {
            globals.bpf_stats_enabled_key.slow_inc()
        } else {
            globals.bpf_stats_enabled_key.slow_dec()
        };
        *saved = val;
    }
    Ok(taken)
}

/// Reads `kernel.bpf_stats_enabled`: what was last written, **not** whether statistics are on. Anybody may.
pub fn read_bpf_stats_enabled<K: Kconfig>(machine: &Machine<K>, pos: u64) -> Vec<u8> {
    match pos {
        0 => format!("{}\n", lock(&K::globals(machine.globals()).bpf_stats_enabled_mutex)).into_bytes(),
        _ => Vec::new(),
    }
}
