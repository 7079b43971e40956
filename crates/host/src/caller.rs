//! Who asks: the capabilities of the calling thread, and asking with fewer of them.
//!
//! Credentials are a thread's own in Linux (libc makes them look like the process's), so a question can be
//! asked with fewer rights on a thread that ends afterwards, and nobody else notices.

use std::thread;
use std::time::Duration;

use crate::errno::Errno;
use crate::error::CannotAsk;

/// The capabilities that BPF asks for. Kernel: include/uapi/linux/capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// `CAP_NET_ADMIN`: networking programs.
    NetAdmin = 12,
    /// `CAP_SYS_ADMIN`: stands for the others, and the only one for statistics and ids.
    SysAdmin = 21,
    /// `CAP_PERFMON`: tracing programs.
    Perfmon = 38,
    /// `CAP_BPF`: maps and loading.
    Bpf = 39,
}

impl Capability {
    /// The name in the manual.
    pub fn name(self) -> &'static str {
        match self {
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::Perfmon => "CAP_PERFMON",
            Capability::Bpf => "CAP_BPF",
        }
    }

    const fn bit(self) -> u64 {
        1 << self as u32
    }
}

/// The value of a line of this thread's `/proc/thread-self/status`, by the line's beginning.
pub(crate) fn status(field: &str) -> Option<String> {
    let text = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    text.lines().find_map(|l| l.strip_prefix(field)).map(|value| value.trim().to_string())
}

fn effective() -> u64 {
    status("CapEff:").and_then(|hex| u64::from_str_radix(&hex, 16).ok()).unwrap_or(0)
}

/// Whether this thread has `cap`.
pub fn has(cap: Capability) -> bool {
    effective() & cap.bit() != 0
}

/// Whether this thread has all that the questions need.
pub fn is_privileged() -> bool {
    [Capability::NetAdmin, Capability::SysAdmin, Capability::Perfmon, Capability::Bpf].into_iter().all(has)
}

/// The effective user of this thread.
pub fn euid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

/// The time that this thread has had a CPU, so that what a call costs can be told from waiting for others.
pub fn cpu_time() -> Duration {
    // SAFETY: all zero is a value of it.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: room for the answer; the clock exists everywhere, so it cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Which rights to ask with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Those of the caller, which must be a privileged one.
    All,
    /// Those of the caller without `CAP_SYS_ADMIN`.
    WithoutSysAdmin,
    /// Those of the user `nobody`.
    Nobody,
}

/// The user and group `nobody` has nearly everywhere. Kernel: `DEFAULT_OVERFLOWUID`.
const NOBODY: libc::c_long = 65534;

/// Runs `ask` with `rights`, on a thread of its own if they are not the caller's.
///
/// # Errors
/// [`CannotAsk`] if the caller is not privileged, or rights cannot be given up.
///
/// # Panics
/// If `ask` does.
pub fn with<T: Send>(rights: Rights, ask: impl FnOnce() -> T + Send) -> Result<T, CannotAsk> {
    if !is_privileged() {
        let user = euid();
        return Err(CannotAsk(format!("needs CAP_SYS_ADMIN, CAP_BPF and more (user {user}): run as root")));
    }
    if rights == Rights::All {
        return Ok(ask());
    }
    let on_thread = || {
        give_up(rights).map_err(|e| CannotAsk(format!("cannot give up rights: {e}")))?;
        Ok(ask())
    };
    thread::scope(|s| s.spawn(on_thread).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

/// Takes rights from this thread, for good.
fn give_up(rights: Rights) -> Result<(), Errno> {
    let done = |r: libc::c_long| if r < 0 { Err(Errno::last()) } else { Ok(()) };
    match rights {
        Rights::All => Ok(()),
        Rights::WithoutSysAdmin => {
            #[repr(C)]
            struct Header {
                version: u32,
                pid: i32,
            }
            let keep = effective() & !Capability::SysAdmin.bit();
            let (low, high) = (keep as u32, (keep >> 32) as u32);
            // Version 3; effective, permitted, inheritable, low halves first.
            let (header, data) = (Header { version: 0x2008_0522, pid: 0 }, [low, low, 0, high, high, 0]);
            // SAFETY: two structures of the layout that version 3 has; both outlive the call.
            done(unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) })
        }
        Rights::Nobody => {
            // The raw calls: libc's would change all threads.
            // SAFETY: no pointers but a null one with length 0.
            unsafe {
                done(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()))?;
                done(libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY))?;
                done(libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY))?;
                // The change of user made the process's files in /proc root's; they are ours still.
                done(libc::c_long::from(libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0)))
            }
        }
    }
}
