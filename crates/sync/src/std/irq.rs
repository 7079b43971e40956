//! How an interrupt reaches a simulated CPU: a POSIX signal to the thread that is that CPU, and one thread-local word.
//!
//! The word points at a [`Line`], the first field of whatever the layer above is on a CPU; the signal handler calls the
//! function it finds there. One word and not two: between two stores a signal would see half.
//!
//! Interrupts are SIGURG, whose default action is to be ignored. NMIs are SIGSTKFLT, which no Linux ever sends and hardly
//! any program handles. Neither interrupts its own handler. An NMI interrupts that of an interrupt, and an interrupt waits
//! for the end of an NMI: so the host nests them as the hardware does, and a stack holds two frames at most. Both are
//! standard signals: they merge, which is harmless because whoever raises one counts it first, and sending one never
//! fails for want of memory, as sending a queued real-time signal may.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::Mutex;

/// A signal that is taken from the host program.
#[derive(Debug)]
struct Signal {
    number: i32,
    name: &'static str,
    stands_for: &'static str,
    /// The signal that waits for the end of this one's handler, beside this one itself.
    blocks: Option<i32>,
}

static INTERRUPT: Signal =
    Signal { number: libc::SIGURG, name: "SIGURG", stands_for: "interrupts", blocks: None };
static NMI: Signal =
    Signal { number: libc::SIGSTKFLT, name: "SIGSTKFLT", stands_for: "NMIs", blocks: Some(libc::SIGURG) };

/// What a signal finds: first field of what its functions expect. They are called in the signal handler, with the address
/// of this line.
#[repr(C)]
pub struct Line {
    /// An interrupt came.
    pub on_interrupt: unsafe fn(*const Line),
    /// An NMI came.
    pub on_nmi: unsafe fn(*const Line),
}

thread_local! {
    static CURRENT: Cell<*const Line> = const { Cell::new(std::ptr::null()) };
}

extern "C" fn on_signal(signal: i32) {
    let line = CURRENT.get();
    if line.is_null() {
        return;
    }
    let errno = errno();
    // SAFETY: the address of this thread's errno is valid while the thread is.
    let interrupted = unsafe { errno.read() };
    // SAFETY: `attach`'s contract: the line is live until it is detached, and its functions expect it.
    unsafe {
        let on = if signal == NMI.number { (*line).on_nmi } else { (*line).on_interrupt };
        on(line);
    }
    // SAFETY: as above.
    unsafe { errno.write(interrupted) };
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
    send(tid, &INTERRUPT);
}

/// The same, by an NMI.
pub fn kick_nmi(tid: i32) {
    send(tid, &NMI);
}

fn send(tid: i32, signal: &Signal) {
    // SAFETY: plain syscalls on numbers. A wrong `tid` of this process finds a thread whose word is null or another
    // CPU, and a CPU that is kicked for nothing looks and finds nothing pending.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal.number) };
}

/// Interrupts reach the calling thread while this lives, also inside the handler of one, which else holds them off.
pub struct Enabled {
    before: libc::sigset_t,
    _this_thread: PhantomData<*mut ()>,
}

/// Lets interrupts through to the calling thread.
///
/// Context: any; async-signal-safe (a syscall, and another when what it returns is dropped).
pub fn enable() -> Enabled {
    // SAFETY: a set is plain data; all-zero is one, and so is what the calls make of it.
    let (mut set, mut before) = unsafe { std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>() };
    // SAFETY: valid sets, a valid signal and a valid `how`, so neither can fail.
    unsafe {
        libc::sigaddset(&mut set, INTERRUPT.number);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, &mut before);
    }
    Enabled { before, _this_thread: PhantomData }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        // SAFETY: the set that this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// A signal is already in use by the program around us.
#[derive(Debug)]
pub struct SignalInUse {
    signal: &'static Signal,
    /// Why it cannot be set; `None`: it has a handler.
    error: Option<io::Error>,
}

impl fmt::Display for SignalInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Signal { name, stands_for, .. } = self.signal;
        match &self.error {
            None => write!(
                f,
                "this program already handles {name}, which simulated {stands_for} need: remove that handler first"
            ),
            Some(e) => write!(f, "the handler of {name} cannot be set: {e}"),
        }
    }
}

impl std::error::Error for SignalInUse {}

/// A signal that is ours, and what its action was; put back when dropped.
struct Taken {
    signal: &'static Signal,
    before: libc::sigaction,
}

impl Taken {
    fn new(signal: &'static Signal) -> Result<Self, SignalInUse> {
        let before = sigaction(signal, None)?;
        if ![libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction) {
            return Err(SignalInUse { signal, error: None });
        }
        let mut ours = action(on_signal as extern "C" fn(i32) as usize);
        ours.sa_flags = libc::SA_RESTART;
        if let Some(other) = signal.blocks {
            // SAFETY: a valid set and a valid signal.
            unsafe { libc::sigaddset(&mut ours.sa_mask, other) };
        }
        sigaction(signal, Some(&ours))?;
        Ok(Self { signal, before })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Ignored for a moment, which discards those still pending on any thread: SIGSTKFLT's default is to end the
        // process. Both actions are valid, so neither call fails.
        let _ = sigaction(self.signal, Some(&action(libc::SIG_IGN)));
        let _ = sigaction(self.signal, Some(&self.before));
    }
}

/// How many machines need the handlers, and what was there before the first.
static INSTALLED: Mutex<(usize, Vec<Taken>)> = Mutex::new((0, Vec::new()));

/// The signal handlers, installed while at least one of these lives.
#[derive(Debug)]
pub struct Handlers(());

impl Handlers {
    /// Installs the handlers, or shares those that are installed.
    ///
    /// # Errors
    /// [`SignalInUse`] if the program around us has a handler of its own for one of the signals; then none is installed.
    pub fn install() -> Result<Self, SignalInUse> {
        let mut installed = INSTALLED.lock().unwrap_or_else(|e| e.into_inner());
        if installed.0 == 0 {
            let (interrupt, nmi) = (Taken::new(&INTERRUPT)?, Taken::new(&NMI)?);
            installed.1.extend([interrupt, nmi]);
        }
        installed.0 += 1;
        Ok(Self(()))
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        let mut installed = INSTALLED.lock().unwrap_or_else(|e| e.into_inner());
        installed.0 -= 1;
        if installed.0 == 0 {
            installed.1.clear();
        }
    }
}

/// An action that calls `handler`.
fn action(handler: usize) -> libc::sigaction {
    // SAFETY: plain data, all-zero is valid (and an empty mask).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action
}

/// Sets the action of the signal if `new` is given; returns the one that was there.
fn sigaction(signal: &'static Signal, new: Option<&libc::sigaction>) -> Result<libc::sigaction, SignalInUse> {
    let mut old = action(libc::SIG_DFL);
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `new` is null or a valid action whose handler is async-signal-safe; `old` is writable.
    match unsafe { libc::sigaction(signal.number, new, &mut old) } {
        0 => Ok(old),
        _ => Err(SignalInUse { signal, error: Some(io::Error::last_os_error()) }),
    }
}
