//! The system call side: bpf(2), the descriptors it gives, and `kernel.bpf_stats_enabled`. Mirrors kernel/bpf/syscall.c,
//! v6.6.
//!
//! | module | what it is |
//! |---|---|
//! | [`cred`] | who asks, with which rights |
//! | [`user`] | the memory of a process |
//! | [`files`] | its descriptors |
//! | [`attr`] | the argument as bytes |
//! | [`stats`] | switching statistics on |
//!
//! Differs: there are no security modules, and of the commands those that the path needs.

pub mod attr;
pub mod cred;
pub mod files;
pub mod stats;
mod sysctl;
pub mod user;

use filter::Kconfig;
use percpu::Machine;

use crate::errno::Errno;
use attr::Attr;
pub use cred::{Cap, Cred};
use files::Files;
use stats::StatsFile;
pub use user::UserMem;

/// Kernel: `BPF_ENABLE_STATS`.
pub const BPF_ENABLE_STATS: u32 = 32;

/// The only kind of statistics. Kernel: `BPF_STATS_RUN_TIME`.
pub const BPF_STATS_RUN_TIME: u32 = 0;

/// What a descriptor may be of.
pub enum File<'m, K: Kconfig> {
    /// `anon_inode:bpf-stats`: statistics are on while it is open.
    Stats(StatsFile<'m, K>),
}

impl<K: Kconfig> File<'_, K> {
    /// What /proc shows as the name of its descriptors.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stats(_) => StatsFile::<K>::NAME,
        }
    }
}

/// A process: who it is, its memory, its descriptors. All of them are closed when it is dropped.
pub struct Process<'m, K: Kconfig> {
    machine: &'m Machine<K>,
    /// Who it is.
    pub cred: Cred,
    /// Its memory.
    pub mem: UserMem,
    /// Its descriptors.
    pub files: Files<File<'m, K>>,
}

impl<'m, K: Kconfig> Process<'m, K> {
    /// A process of this machine's, with nothing in memory and nothing open.
    pub fn new(machine: &'m Machine<K>, cred: Cred) -> Self {
        Self { machine, cred, mem: UserMem::default(), files: Files::default() }
    }

    /// A child with the same memory and the same files. Kernel: `copy_process`.
    pub fn fork(&self) -> Self {
        let Self { machine, cred, mem, files } = self;
        Self { machine, cred: *cred, mem: mem.clone(), files: files.clone() }
    }

    /// bpf(2): the command, the address of its argument, and the argument's size in bytes. Kernel: `__sys_bpf`.
    ///
    /// Context: task; may sleep.
    ///
    /// # Errors
    /// First `E2BIG` for something in the tail that this kernel does not know, then `EFAULT` for an argument that is not
    /// mapped, then the command's own; `EINVAL` for a command that there is not.
    pub fn bpf(&mut self, cmd: u32, uattr: u64, size: u32) -> Result<i32, Errno> {
        self.mem.check_tail_zero(uattr, attr::SIZE as u32, size)?;
        let mut attr = Attr([0; attr::SIZE]);
        let size = attr::SIZE.min(size as usize);
        attr.0[..size].copy_from_slice(self.mem.read(uattr, size as u64)?);
        match cmd {
            BPF_ENABLE_STATS => self.bpf_enable_stats(&attr),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Kernel: `bpf_enable_stats`.
    fn bpf_enable_stats(&mut self, attr: &Attr) -> Result<i32, Errno> {
        attr.check(4)?;
        if !self.cred.capable(Cap::SysAdmin) {
            return Err(Errno::EPERM);
        }
        match attr.u32(0) {
            BPF_STATS_RUN_TIME => {
                let files = &mut self.files;
                StatsFile::enable(self.machine, |file| {
                    files.unused()?;
                    files.open(File::Stats(file()))
                })
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Opens the file /proc/sys/kernel/bpf_stats_enabled and writes it from its start.
    ///
    /// # Errors
    /// `EACCES` for all users but root, whatever their rights: the file's mode is 0644 (`test_perm`,
    /// fs/proc/proc_sysctl.c). Then as [`stats::write_bpf_stats_enabled`].
    pub fn write_bpf_stats_enabled(&self, bytes: &[u8]) -> Result<usize, Errno> {
        if self.cred.uid != 0 {
            return Err(Errno::EACCES);
        }
        stats::write_bpf_stats_enabled(self.machine, self.cred, bytes, 0)
    }

    /// Reads it from its start.
    pub fn read_bpf_stats_enabled(&self) -> Vec<u8> {
        stats::read_bpf_stats_enabled(self.machine, 0)
    }
}
