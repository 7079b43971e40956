//! Descriptors of a process. Kernel: fs/file.c (`get_unused_fd_flags`, `dup`, `close`, `do_close_on_exec`), v6.6.
//!
//! A descriptor is one of possibly several names of an open file; the file is released when its last name is closed. That
//! is what dropping the last `Arc` does, so a process that dies releases all it had.

use std::sync::Arc;

use crate::errno::Errno;

/// What a process may have open. Kernel: the soft `RLIMIT_NOFILE`.
pub const NR_OPEN: usize = 1024;

struct Descriptor<F> {
    file: Arc<F>,
    close_on_exec: bool,
}

/// A table of descriptors. Kernel: `struct fdtable`.
pub struct Files<F>(Vec<Option<Descriptor<F>>>);

impl<F> Default for Files<F> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// What a forked process has: the same files. Kernel: `dup_fd`.
impl<F> Clone for Files<F> {
    fn clone(&self) -> Self {
        let slot = |d: &Descriptor<F>| Descriptor { file: d.file.clone(), close_on_exec: d.close_on_exec };
        Self(self.0.iter().map(|d| d.as_ref().map(slot)).collect())
    }
}

impl<F> Files<F> {
    /// The lowest free number. Kernel: `get_unused_fd_flags`.
    ///
    /// # Errors
    /// `EMFILE` if none is free.
    pub fn unused(&self) -> Result<i32, Errno> {
        let n = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        if n < NR_OPEN { Ok(n as i32) } else { Err(Errno::EMFILE) }
    }

    fn install(&mut self, file: Arc<F>, close_on_exec: bool) -> Result<i32, Errno> {
        let fd = self.unused()?;
        if fd as usize == self.0.len() {
            self.0.push(None);
        }
        self.0[fd as usize] = Some(Descriptor { file, close_on_exec });
        Ok(fd)
    }

    /// Opens a file that has no name in the file system, close-on-exec. Kernel: `anon_inode_getfd` with `O_CLOEXEC`.
    ///
    /// # Errors
    /// `EMFILE`; `file` is released.
    pub fn open(&mut self, file: F) -> Result<i32, Errno> {
        self.install(Arc::new(file), true)
    }

    fn slot(&self, fd: i32) -> Option<&Descriptor<F>> {
        usize::try_from(fd).ok().and_then(|fd| self.0.get(fd)?.as_ref())
    }

    /// The file behind a descriptor. Kernel: `fdget`.
    pub fn get(&self, fd: i32) -> Option<&Arc<F>> {
        self.slot(fd).map(|d| &d.file)
    }

    /// A second descriptor of the same file, which survives exec. Kernel: `dup`.
    ///
    /// # Errors
    /// `EBADF`, `EMFILE`.
    pub fn dup(&mut self, fd: i32) -> Result<i32, Errno> {
        let file = self.get(fd).ok_or(Errno::EBADF)?.clone();
        self.install(file, false)
    }

    /// Closes a descriptor; the file is released with its last one. Kernel: `close`.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&mut self, fd: i32) -> Result<(), Errno> {
        let slot = usize::try_from(fd).ok().and_then(|fd| self.0.get_mut(fd));
        slot.and_then(Option::take).map(drop).ok_or(Errno::EBADF)
    }

    /// Closes what does not survive exec. Kernel: `do_close_on_exec`.
    pub fn exec(&mut self) {
        for slot in &mut self.0 {
            slot.take_if(|d| d.close_on_exec);
        }
    }

    /// How many descriptors are open.
    pub fn count(&self) -> usize {
        self.0.iter().flatten().count()
    }
}
