//! How an interrupt reaches a simulated CPU: a POSIX signal to the thread that is that CPU, and one thread-local word.
//!
//! The word points at a [`Line`], the first field of whatever the layer above is on a CPU; the signal handler calls the
//! function it finds there. One word and not two: between two stores a signal would see half.
//!
//! The signal is SIGURG. Its default action is to be ignored, so one that arrives after the last machine is gone does
//! nothing; standard signals merge, which is harmless because whoever raises an interrupt counts it first.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::Mutex;

/// The signal that stands for an interrupt.
pub const SIGNAL: i32 = libc::SIGURG;

/// What the signal finds: first field of what `on_interrupt` expects.
#[repr(C)]
pub struct Line {
    /// Called in the signal handler, with the address of this line.
    pub on_interrupt: unsafe fn(*const Line),
}

thread_local! {
    static CURRENT: Cell<*const Line> = const { Cell::new(std::ptr::null()) };
}

extern "C" fn on_signal(_: i32) {
    let line = CURRENT.get();
    if line.is_null() {
        return;
    }
    let errno = errno();
    // SAFETY: `attach`'s contract: the line is live until it is detached, and its function expects it.
    unsafe { ((*line).on_interrupt)(line) };
    // SAFETY: the address of this thread's errno is valid while the thread is.
    unsafe { *errno = errno.read() };
}

/// The address of this thread's errno. A handler may end in syscalls, and the code it interrupts may be about to look.
fn errno() -> *mut i32 {
    // SAFETY: always callable.
    unsafe { libc::__errno_location() }
}

/// Makes `line` what interrupts of the calling thread find.
///
/// # Safety
/// `line` is the first field of what its function expects, lives until [`detach`] is called on this thread, and the
/// function is async-signal-safe.
pub unsafe fn attach(line: *const Line) {
    crate::barrier::barrier();
    CURRENT.set(line);
    crate::barrier::barrier();
}

/// Makes interrupts of the calling thread find nothing.
pub fn detach() {
    crate::barrier::barrier();
    CURRENT.set(std::ptr::null());
    crate::barrier::barrier();
}

/// What interrupts of the calling thread find; null if nothing.
#[inline(always)]
pub fn current() -> *const Line {
    CURRENT.get()
}

/// The calling thread, as [`kick`] takes it.
pub fn self_id() -> i32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Interrupts the thread `tid` of this process. A thread that has ended is not an error.
///
/// Context: any; async-signal-safe (two syscalls).
pub fn kick(tid: i32) {
    // SAFETY: plain syscalls on numbers. A wrong `tid` of this process finds a thread whose word is null or another
    // CPU, and a CPU that is kicked for nothing looks and finds nothing pending.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, SIGNAL) };
}

/// The signal is already in use by the program around us.
#[derive(Debug)]
pub struct SignalInUse(Option<io::Error>);

impl fmt::Display for SignalInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => write!(
                f,
                "this program already handles SIGURG, which simulated interrupts need: remove that handler first"
            ),
            Some(e) => write!(f, "the handler of SIGURG cannot be set: {e}"),
        }
    }
}

impl std::error::Error for SignalInUse {}

/// How many machines need the handler, and what was there before the first.
static INSTALLED: Mutex<(usize, Option<Saved>)> = Mutex::new((0, None));
struct Saved(libc::sigaction);

/// The signal handler, installed while at least one of these lives.
#[derive(Debug)]
pub struct Handlers(());

impl Handlers {
    /// Installs the handler, or shares the one that is installed.
    ///
    /// # Errors
    /// [`SignalInUse`] if the program around us has a handler of its own for the signal.
    pub fn install() -> Result<Self, SignalInUse> {
        let mut installed = INSTALLED.lock().unwrap_or_else(|e| e.into_inner());
        if installed.0 == 0 {
            let mine = on_signal as extern "C" fn(i32);
            // SAFETY: sigaction is plain data; all-zero is a valid value of it.
            let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
            new.sa_sigaction = mine as usize;
            new.sa_flags = libc::SA_RESTART;
            let old = sigaction(None)?;
            if old.sa_sigaction != libc::SIG_DFL && old.sa_sigaction != libc::SIG_IGN {
                return Err(SignalInUse(None));
            }
            sigaction(Some(&new))?;
            installed.1 = Some(Saved(old));
        }
        installed.0 += 1;
        Ok(Self(()))
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        let mut installed = INSTALLED.lock().unwrap_or_else(|e| e.into_inner());
        installed.0 -= 1;
        if installed.0 == 0
            && let Some(Saved(old)) = installed.1.take()
        {
            // It was accepted when it was read, so it is now; and there is nobody to tell.
            let _ = sigaction(Some(&old));
        }
    }
}

/// Sets the action of the signal if `new` is given; returns the one that was there.
fn sigaction(new: Option<&libc::sigaction>) -> Result<libc::sigaction, SignalInUse> {
    // SAFETY: plain data, all-zero is valid.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `new` is null or a valid action whose handler is async-signal-safe; `old` is writable.
    match unsafe { libc::sigaction(SIGNAL, new, &mut old) } {
        0 => Ok(old),
        _ => Err(SignalInUse(Some(io::Error::last_os_error()))),
    }
}
