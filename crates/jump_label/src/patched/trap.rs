//! The handler of SIGTRAP: sends on who has met an int3 of ours, and hands on what is not ours. Kernel: `poke_int3_handler`,
//! arch/x86/kernel/alternative.c.
//!
//! It allocates nothing, takes no lock, and runs with all signals blocked, so that no other handler runs between the
//! int3 and
//! the place where the thread goes on. (The kernel of the host hands out an int3's signal before others that are pending.)

use std::cell::Cell;
use std::io;
use std::sync::{Mutex, MutexGuard};

use libc::{c_int, c_void, siginfo_t, ucontext_t};
use sync::host::{AtomicPtr, AtomicU64, Ordering};

use super::table;
use crate::PatchError;

/// How often a thread met a site in the middle of a flip.
static TRAPS: AtomicU64 = AtomicU64::new(0);

/// How often a thread has met a site in the middle of a flip, in this process. It was sent on as the key's state says.
pub fn traps() -> u64 {
    TRAPS.load(Ordering::Relaxed)
}

extern "C" fn on_trap(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands us the interrupted thread's registers and the reason, both ours to read and write.
    let (rip, reason) = unsafe {
        let context = context.cast::<ucontext_t>();
        (&raw mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize], (*info).si_code)
    };
    // SAFETY: as above. An int3 leaves the address after it.
    let int3 = (unsafe { *rip } as usize).wrapping_sub(1);
    if let Some(site) = table::site_at(int3) {
        TRAPS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above; the site goes on in the function that it stands in, with all registers as they are.
        unsafe { *rip = site.next() as i64 };
        if matches!(reason, libc::SI_KERNEL | libc::TRAP_BRKPT) {
            return;
        }
        // Somebody's SIGTRAP was pending when the int3 was met, and stands for both.
    }
    hand_on(signal, info, context);
}

/// What to do on SIGTRAP, as somebody else has set it.
struct Action(libc::sigaction);

impl Action {
    fn is(&self, other: &Self) -> bool {
        let (a, b) = (&self.0, &other.0);
        (a.sa_sigaction, a.sa_flags, first_word(&a.sa_mask))
            == (b.sa_sigaction, b.sa_flags, first_word(&b.sa_mask))
    }

    fn is_function(&self) -> bool {
        !matches!(self.0.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
    }
}

/// What was set when we came first, or was set after us since: traps that are not ours go there. Null: the default.
static BENEATH: AtomicPtr<Action> = AtomicPtr::new(std::ptr::null_mut());
/// What was set when we first came. A handler set after us may hand on to us; then it goes there. Null: the default.
static BOTTOM: AtomicPtr<Action> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// The registers that came with the trap that this thread is handing on.
    static HANDING_ON: Cell<*mut c_void> = const { Cell::new(std::ptr::null_mut()) };
}

/// Does what would be done if we were not here.
fn hand_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let outer = HANDING_ON.get();
    let came_back = outer == context;
    // ORDERING (host): Acquire; pairs with `set_beneath`: the action is there.
    let action = (if came_back { &BOTTOM } else { &BENEATH }).load(Ordering::Acquire);
    // SAFETY: null, or an action that lives for ever.
    let action = unsafe { action.as_ref() }.map(|action| &action.0);
    // SAFETY: the reason is ours to read. A signal that the kernel sends itself cannot be ignored.
    let from_kernel = unsafe { (*info).si_code } > 0;
    match action {
        Some(action) if action.sa_sigaction == libc::SIG_IGN && !from_kernel => {}
        Some(action) if !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) => {
            if action.sa_flags & libc::SA_RESETHAND != 0 {
                // ORDERING (host): Relaxed; there is nothing behind a null.
                BENEATH.store(std::ptr::null_mut(), Ordering::Relaxed);
            }
            HANDING_ON.set(context);
            // SAFETY: this is a handler that was set for this signal, called with what it was to be called with.
            unsafe { call(action, signal, info, context) };
            HANDING_ON.set(outer);
        }
        _ => die(signal, info),
    }
}

/// Calls a handler with the signals blocked that it wants blocked; the return from ours puts the mask back.
///
/// # Safety
/// `action` is a function for this signal, the others are what came with it.
unsafe fn call(action: &libc::sigaction, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: of a context's mask the kernel writes the first word. The handler has the right type: it was set so; one
    // without SA_SIGINFO takes the first argument and does not see the others.
    unsafe {
        let interrupted = first_word(&raw const (*context.cast::<ucontext_t>()).uc_sigmask);
        let own = if action.sa_flags & libc::SA_NODEFER == 0 { 1 << (signal - 1) } else { 0 };
        let mask = mask_of(interrupted | first_word(&raw const action.sa_mask) | own);
        libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
        let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
            std::mem::transmute(action.sa_sigaction);
        handler(signal, info, context);
    }
}

/// Lets the signal do what it does by default: end the process, here, for this reason.
fn die(signal: c_int, info: *mut siginfo_t) {
    // SAFETY: plain data and numbers. The signal is blocked here: it strikes when the handler returns, where it came from.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &default, std::ptr::null_mut());
        let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
        if libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info) != 0 {
            libc::abort();
        }
    }
}

/// Signals 1 to 64 of a set, which is what the kernel reads and writes of it.
fn first_word(set: *const libc::sigset_t) -> u64 {
    // SAFETY: a set begins with this word, and is aligned for it. Callers hand us one, or a kernel's one, that is no longer.
    unsafe { set.cast::<u64>().read() }
}

fn mask_of(word: u64) -> libc::sigset_t {
    // SAFETY: plain data, and the set begins with that word.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        (&raw mut set).cast::<u64>().write(word);
        set
    }
}

/// Who needs the handler.
struct Installed {
    users: usize,
    /// One of the users never goes.
    kept: bool,
    /// Traps may still come to us: ours is set, or was when somebody set his.
    in_use: bool,
    /// All that was found beneath, each once: what a handler may be looking at cannot be freed.
    found: Vec<&'static Action>,
}

static INSTALLED: Mutex<Installed> =
    Mutex::new(Installed { users: 0, kept: false, in_use: false, found: Vec::new() });

fn installed() -> MutexGuard<'static, Installed> {
    INSTALLED.lock().unwrap_or_else(|e| e.into_inner())
}

/// The handler, set while at least one of these lives.
#[derive(Debug)]
pub(crate) struct Handler(());

impl Handler {
    /// Sets the handler, or shares the one that is set.
    pub(crate) fn install() -> Result<Self, PatchError> {
        installed().add_user()
    }

    /// Sets the handler for good: the sites of a key that nobody has claimed may be executed at any time, so that a trap may
    /// come at any time after a flip (rule 2 of `patched`).
    pub(crate) fn keep() -> Result<(), PatchError> {
        let mut installed = installed();
        if !installed.kept {
            std::mem::forget(installed.add_user()?);
            installed.kept = true;
        }
        Ok(())
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        let mut installed = installed();
        installed.users -= 1;
        if installed.users == 0 {
            installed.leave();
        }
    }
}

/// Sees to it that traps come to us before anybody who has set a handler since.
pub(super) fn come_first() -> Result<(), PatchError> {
    installed().come_first()
}

impl Installed {
    fn add_user(&mut self) -> Result<Handler, PatchError> {
        if self.users == 0 {
            table::init();
            self.come_first()?;
        }
        self.users += 1;
        Ok(Handler(()))
    }

    /// Sets our handler if it is not set. What is found is beneath us from then on, and the bottom if nobody knows us yet.
    fn come_first(&mut self) -> Result<(), PatchError> {
        let mut found = sigaction(None)?;
        while !is_ours(&found) {
            // Before ours is set, so that a trap finds it.
            self.set_beneath(found);
            let replaced = sigaction(Some(&ours(&found)))?;
            if is_ours(&replaced) || Action(replaced).is(&Action(found)) {
                break;
            }
            // Somebody was faster: he is beneath.
            found = replaced;
        }
        self.in_use = true;
        Ok(())
    }

    fn set_beneath(&mut self, found: libc::sigaction) {
        let found = Action(found);
        let action: &'static Action = match self.found.iter().find(|action| action.is(&found)) {
            Some(action) => action,
            None => {
                let action = Box::leak(Box::new(found));
                self.found.push(action);
                action
            }
        };
        let action = std::ptr::from_ref(action).cast_mut();
        // ORDERING (host): Release; pairs with `hand_on`: the action is written.
        BENEATH.store(action, Ordering::Release);
        if !self.in_use {
            // ORDERING (host): Release; pairs with `hand_on`: the action is written.
            BOTTOM.store(action, Ordering::Release);
        }
    }

    /// Puts back what is beneath us, unless somebody has set a handler since.
    fn leave(&mut self) {
        if !sigaction(None).is_ok_and(|found| is_ours(&found)) {
            return;
        }
        // ORDERING (host): Relaxed; it is written with this lock held, or is null.
        // SAFETY: null, or an action that lives for ever; all-zero is the default action.
        let beneath = unsafe {
            BENEATH.load(Ordering::Relaxed).as_ref().map_or_else(|| std::mem::zeroed(), |action| action.0)
        };
        // It was accepted when it was read, so it is now; and there is nobody to tell.
        match sigaction(Some(&beneath)) {
            Ok(replaced) if !is_ours(&replaced) => drop(sigaction(Some(&replaced))), // Somebody was faster.
            replaced => self.in_use = replaced.is_err(),
        }
    }
}

/// Our action in the place of another, whose way with stacks and system calls it keeps.
fn ours(found: &libc::sigaction) -> libc::sigaction {
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_trap;
    let kept = match Action(*found).is_function() {
        true => found.sa_flags & (libc::SA_ONSTACK | libc::SA_RESTART),
        // Threads with little stacks have others for signals.
        false => libc::SA_ONSTACK | libc::SA_RESTART,
    };
    // SAFETY: plain data.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = handler as usize;
    ours.sa_flags = libc::SA_SIGINFO | kept;
    ours.sa_mask = mask_of(u64::MAX);
    ours
}

fn is_ours(action: &libc::sigaction) -> bool {
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_trap;
    action.sa_sigaction == handler as usize
}

/// Sets the action of SIGTRAP if `new` is given; returns the one that was there.
fn sigaction(new: Option<&libc::sigaction>) -> Result<libc::sigaction, PatchError> {
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: plain data, all-zero is valid; `new` is null or a valid action; `old` is writable.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        match libc::sigaction(libc::SIGTRAP, new, &mut old) {
            0 => Ok(old),
            _ => Err(PatchError::Handler(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::define_static_key_false!(static KEY);

    #[inline(never)]
    fn site() -> bool {
        crate::static_branch_unlikely!(KEY)
    }

    /// The kernel hands out one signal for two of a kind: whatever reason it gives, who is behind a site's int3 is sent on.
    #[test]
    fn a_signal_that_somebody_sent_may_stand_for_an_int3_too() {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        extern "C" fn foreign(_: c_int) {
            CALLS.fetch_add(1, Ordering::Relaxed);
        }

        assert!(!site());
        Handler::keep().unwrap();
        let _nobody_else = installed();
        let beneath = BENEATH.load(Ordering::Relaxed);
        // SAFETY: plain data.
        let mut action = Action(unsafe { std::mem::zeroed() });
        action.0.sa_sigaction = foreign as extern "C" fn(c_int) as usize;
        BENEATH.store(&raw mut action, Ordering::Relaxed);
        let code = table::sites_of(&KEY).next().unwrap().code();
        let after = code + table::SIZE;
        for (reason, rip, went_to, calls) in [
            (libc::SI_KERNEL, code + 1, after, 0),
            (libc::TRAP_BRKPT, code + 1, after, 0),
            (libc::SI_TKILL, code + 1, after, 1),
            (libc::SI_USER, code + 1, after, 2),
            (libc::SI_USER, after, after, 3),
            (libc::TRAP_TRACE, after, after, 4),
        ] {
            // SAFETY: plain data.
            let (mut info, mut context): (siginfo_t, ucontext_t) = unsafe { std::mem::zeroed() };
            info.si_code = reason;
            context.uc_mcontext.gregs[libc::REG_RIP as usize] = rip as i64;
            on_trap(libc::SIGTRAP, &mut info, (&raw mut context).cast());
            assert_eq!(context.uc_mcontext.gregs[libc::REG_RIP as usize], went_to as i64);
            assert_eq!(CALLS.load(Ordering::Relaxed), calls, "handed on for reason {reason}");
        }
        BENEATH.store(beneath, Ordering::Relaxed);
    }
}
