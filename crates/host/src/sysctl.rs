//! The sysctl `kernel.bpf_stats_enabled`: read by anyone, written only under a guardian. Mirrors
//! `bpf_stats_handler`, kernel/bpf/syscall.c.
//!
//! What the sysctl holds outlives whoever wrote it. So a [`Guard`] starts a child first, which waits for the
//! end of its parent and then puts the old value back:
//! 1. the guard takes [`Exclusive`], notes the value, and forks the guardian;
//! 2. the guardian leaves the process group, blocks signals, closes all but what it needs, and says that it is
//!    ready; only then does [`Guard::new`] return, so nothing can be written before;
//! 3. it reads from a socket whose other end only the guard has: dropped or killed, that end closes;
//! 4. it writes the old value if another is there, and ends; with it goes the lock.
//!
//! Not covered: both killed at once (a container or cgroup that ends), since nothing is left that could act.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

use crate::errno::Errno;
use crate::error::Error;

/// Where it is.
pub const PATH: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// What the sysctl reads, without the newline: whether statistics were last switched on there, not whether they
/// are on.
///
/// # Errors
/// `ENOENT` on kernels without it.
pub fn read() -> Result<String, Error> {
    std::fs::read_to_string(PATH).map(|s| s.trim_end().to_string()).map_err(refused("read"))
}

/// Whether this thread may write it: asks by writing nothing, which checks the right and changes no value.
///
/// # Errors
/// `EACCES` for ordinary users, `EPERM` without `CAP_SYS_ADMIN`, `EROFS` in most containers.
pub fn may_write() -> Result<(), Error> {
    let file = File::options().write(true).open(PATH).map_err(refused("write"))?;
    file.write_at(&[], 0).map(|_| ()).map_err(refused("write"))
}

/// Makes an error of a refused access.
fn refused(what: &str) -> impl Fn(io::Error) -> Error {
    let call = format!("{what} {PATH}");
    move |e| Error::new(&call, e.into())
}

/// The lock that keeps questions about the machine-wide switches apart, between processes too: an advisory lock on
/// the sysctl's file. It goes with the process.
#[derive(Debug)]
pub struct Exclusive(File);

impl Exclusive {
    /// Waits until nobody else has it. A thread that has it must not ask again.
    ///
    /// # Errors
    /// If the sysctl cannot be opened.
    pub fn lock() -> Result<Exclusive, Error> {
        let file = File::open(PATH).map_err(refused("open"))?;
        file.lock().map_err(refused("lock"))?;
        Ok(Exclusive(file))
    }
}

/// The right to write the sysctl, for a while: what it held comes back when this is dropped, also if the process is
/// killed first.
#[derive(Debug)]
pub struct Guard {
    file: File,
    before: String,
    guardian: Guardian,
    // Dropped last.
    _lock: Exclusive,
}

impl Guard {
    /// Starts the guardian. Nothing is written yet.
    ///
    /// # Errors
    /// If the sysctl cannot be written here, or the guardian does not start.
    pub fn new(lock: Exclusive) -> Result<Guard, Error> {
        may_write()?;
        let file = File::options().read(true).write(true).open(PATH).map_err(refused("open"))?;
        let before = read()?;
        let guardian = Guardian::start(&file, &lock, before.as_bytes())?;
        Ok(Guard { file, before, guardian, _lock: lock })
    }

    /// Writes `text` in one call; returns how many bytes were taken.
    ///
    /// # Errors
    /// `EINVAL` for what the kernel does not take.
    pub fn write(&self, text: &[u8]) -> Result<usize, Errno> {
        self.file.write_at(text, 0).map_err(Errno::from)
    }

    /// What it read before.
    pub fn before(&self) -> &str {
        &self.before
    }

    /// The guardian's process id, to look for it.
    pub fn guardian(&self) -> i32 {
        self.guardian.pid
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.guardian.end();
        // Only if somebody has killed the guardian.
        if read().is_ok_and(|now| now != self.before)
            && let Err(e) = self.write(self.before.as_bytes())
        {
            eprintln!("{PATH} is not as it was: write {} to it ({e})", self.before);
        }
    }
}

/// The child that outlives its parent.
#[derive(Debug)]
struct Guardian {
    pid: libc::pid_t,
    /// Closing it is the signal.
    line: Option<OwnedFd>,
}

impl Guardian {
    fn start(file: &File, lock: &Exclusive, before: &[u8]) -> Result<Guardian, Error> {
        const WHAT: &str = "start the guardian of the sysctl";
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        let made = unsafe {
            libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr())
        };
        if made < 0 {
            return Err(Error::last(WHAT));
        }
        // SAFETY: two new descriptors, nobody else's.
        let [ours, its] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        let keep = [file.as_raw_fd(), its.as_raw_fd(), lock.0.as_raw_fd()];
        // SAFETY: the child does nothing but `guard`, which is made for that.
        match unsafe { libc::fork() } {
            -1 => Err(Error::last(WHAT)),
            0 => guard(keep, before),
            pid => {
                let guardian = Guardian { pid, line: Some(ours) };
                drop(its);
                let mut ready = 0u8;
                let line = guardian.line.as_ref().map_or(-1, AsRawFd::as_raw_fd);
                // SAFETY: room for one byte.
                match retry(|| unsafe { libc::read(line, (&raw mut ready).cast(), 1) }) {
                    1 => Ok(guardian),
                    _ => Err(Error::new(WHAT, Errno::ESRCH)),
                }
            }
        }
    }

    /// Lets it put the value back, and waits until it has.
    fn end(&mut self) {
        if self.line.take().is_some() {
            // SAFETY: a child of ours that nobody else waits for; no status is asked for.
            retry(|| unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) } as isize);
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.end();
    }
}

/// Calls again while signals interrupt.
fn retry(mut call: impl FnMut() -> isize) -> isize {
    loop {
        let r = call();
        if r >= 0 || Errno::last() != Errno::EINTR {
            return r;
        }
    }
}

/// The guardian's life. `keep`: the sysctl's file, the line to the parent, the lock.
///
/// Context: the child of a process that may have had more threads: async-signal-safe calls only, no allocation.
fn guard(mut keep: [RawFd; 3], before: &[u8]) -> ! {
    const NAME: &CStr = c"bpf_stats_guard";
    let [file, line, _] = keep;
    keep.sort_unstable();
    // SAFETY: every call is async-signal-safe, and what it is given lives in this frame. Descriptors are closed
    // that nobody uses: this child runs nothing but this function.
    unsafe {
        // What ends its parent's group or terminal must not end it: it has to act after that.
        libc::setsid();
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        // Else others would wait for the end of pipes that only it holds open: the parent's output, above all.
        let mut from = 0;
        for fd in keep {
            if from < fd && libc::syscall(libc::SYS_close_range, from, fd - 1, 0) < 0 {
                libc::_exit(1);
            }
            from = fd + 1;
        }
        if libc::syscall(libc::SYS_close_range, from, libc::c_long::from(u32::MAX), 0) < 0 {
            libc::_exit(1);
        }
        libc::send(line, c"r".as_ptr().cast(), 1, libc::MSG_NOSIGNAL);

        let mut byte = 0u8;
        retry(|| libc::read(line, (&raw mut byte).cast(), 1));

        // Only if another value is there: a write would be an event for whoever traces it.
        let mut now = [0u8; 8];
        let len = libc::pread(file, now.as_mut_ptr().cast(), now.len(), 0);
        let same = usize::try_from(len).is_ok_and(|len| now[..len].trim_ascii_end() == before);
        let restored = same || libc::pwrite(file, before.as_ptr().cast(), before.len(), 0) >= 0;
        libc::_exit(if restored { 0 } else { 1 })
    }
}
