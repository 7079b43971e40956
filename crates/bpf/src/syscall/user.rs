//! The memory of a process as a system call sees it. Kernel: `copy_from_user`, `copy_to_user`
//! (include/linux/uaccess.h), `bpf_check_uarg_tail_zero` (kernel/bpf/syscall.c), v6.6.

use crate::errno::Errno;

/// Memory from [`UserMem::START`] on; everything else faults, null too.
#[derive(Clone, Debug, Default)]
pub struct UserMem(Vec<u8>);

impl UserMem {
    /// The lowest address that is mapped.
    pub const START: u64 = 0x1000;

    /// Maps these bytes above what there is, and returns their address.
    pub fn map(&mut self, bytes: &[u8]) -> u64 {
        let at = Self::START + self.0.len() as u64;
        self.0.extend_from_slice(bytes);
        at
    }

    fn range(&self, addr: u64, len: u64) -> Result<std::ops::Range<usize>, Errno> {
        let from = addr.checked_sub(Self::START).ok_or(Errno::EFAULT)?;
        let to = from.checked_add(len).filter(|&to| to <= self.0.len() as u64).ok_or(Errno::EFAULT)?;
        Ok(from as usize..to as usize)
    }

    /// The bytes at `addr`; none are read from anywhere. Kernel: `copy_from_user`.
    ///
    /// # Errors
    /// `EFAULT` if not all of them are mapped.
    pub fn read(&self, addr: u64, len: u64) -> Result<&[u8], Errno> {
        if len == 0 {
            return Ok(&[]);
        }
        self.range(addr, len).map(|r| &self.0[r])
    }

    /// Writes bytes to `addr`. Kernel: `copy_to_user`.
    ///
    /// # Errors
    /// `EFAULT` if not all of them are mapped; nothing is written then.
    pub fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), Errno> {
        let r = self.range(addr, bytes.len() as u64)?;
        self.0[r].copy_from_slice(bytes);
        Ok(())
    }

    /// A struct of which the caller has `actual` bytes and the kernel knows `expected`: whatever the kernel does not know
    /// must be zero. Kernel: `bpf_check_uarg_tail_zero`.
    ///
    /// # Errors
    /// `E2BIG` for more than a page, or something in the tail; `EFAULT` if the tail is not mapped.
    pub fn check_tail_zero(&self, addr: u64, expected: u32, actual: u32) -> Result<(), Errno> {
        if actual > 4096 {
            return Err(Errno::E2BIG);
        }
        let tail = actual.saturating_sub(expected);
        match tail == 0 || self.read(addr.wrapping_add(expected.into()), tail.into())?.iter().all(|&b| b == 0)
        {
            true => Ok(()),
            false => Err(Errno::E2BIG),
        }
    }
}
