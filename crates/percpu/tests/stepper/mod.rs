//! Single-steps code by the x86 trap flag and does something at the n-th instruction. Shared by the step tests.
//!
//! SIGTRAP has one handler a process, and patched keys need it too: of the traps the stepper takes those that are steps,
//! hands on the others, and puts back what was set.

use std::cell::Cell;
use std::sync::Mutex;

use sync::host::{AtomicUsize, Ordering};

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
    static AT: Cell<u64> = const { Cell::new(u64::MAX) };
    static ACTION: Cell<Option<*const dyn Fn()>> = const { Cell::new(None) };
}

const TRAP_FLAG: i64 = 0x100;

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// Under `cargo test` tests share the process.
static SIGTRAP: Mutex<()> = Mutex::new(());
/// The handler that was set before ours; 0: none.
static BEFORE: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_trap(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands us the reason.
    if unsafe { (*info).si_code } != libc::TRAP_TRACE {
        match BEFORE.load(Ordering::Relaxed) {
            // SAFETY: always callable. Nobody is there for this trap.
            libc::SIG_DFL | libc::SIG_IGN => unsafe { libc::abort() },
            before => {
                // SAFETY: it was set as a handler, and is called as one.
                let before = unsafe { std::mem::transmute::<usize, Handler>(before) };
                before(signal, info, context);
            }
        }
        return;
    }
    let n = STEPS.get();
    STEPS.set(n + 1);
    if n == AT.get()
        && let Some(action) = ACTION.get()
    {
        // SAFETY: `step` keeps the action alive while the trap flag is set. The handler itself runs with the flag clear.
        unsafe { (*action)() };
        // SAFETY: the kernel hands us this thread's context. The rest of the code need not be stepped.
        unsafe {
            (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP_FLAG
        };
    }
}

/// Runs `code` once for each of its instructions, with `action` after that one, and `check` after each run; returns how many
/// instructions there were.
///
/// Where the code ends is found as it runs: the number of its instructions may change (a branch goes another way once).
pub(crate) fn at_every_instruction(action: impl Fn(), code: impl Fn(), mut check: impl FnMut(u64)) -> u64 {
    let _one = SIGTRAP.lock().unwrap_or_else(|e| e.into_inner());
    let mut set = Set(sigaction(None));
    for at in 0.. {
        set.again();
        let stepped = step(at, &action, &code);
        if stepped <= at {
            return stepped;
        }
        check(at);
    }
    unreachable!("the code does not end");
}

/// Runs `code` instruction by instruction and does `action` after the `at`-th; returns how many were stepped: all of them
/// if `action` was not done.
///
/// Steps only the calling thread.
fn step(at: u64, action: &dyn Fn(), code: &dyn Fn()) -> u64 {
    // SAFETY: only the lifetime changes; it is taken back below, before `action` goes.
    ACTION.set(Some(unsafe { std::mem::transmute::<*const dyn Fn(), *const (dyn Fn() + 'static)>(action) }));
    STEPS.set(0);
    AT.set(at);
    // SAFETY: sets the trap flag: from the next instruction on each one ends in SIGTRAP, which is handled. The stack is
    // used below the red zone's reach because `options` does not say `nostack`.
    unsafe { std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    code();
    // SAFETY: clears the trap flag.
    unsafe { std::arch::asm!("pushfq", "and qword ptr [rsp], ~0x100", "popfq") };
    ACTION.set(None);
    STEPS.get()
}

/// Our handler, and what was set before it.
struct Set(libc::sigaction);

impl Set {
    /// Sets our handler, if somebody (a key that is flipped, say) has set his since.
    fn again(&mut self) {
        // SAFETY: plain data.
        let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
        ours.sa_sigaction = on_trap as Handler as usize;
        ours.sa_flags = libc::SA_SIGINFO;
        let found = sigaction(None);
        if found.sa_sigaction != ours.sa_sigaction {
            self.0 = found;
            BEFORE.store(found.sa_sigaction, Ordering::Relaxed);
            sigaction(Some(&ours));
        }
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        if sigaction(None).sa_sigaction == on_trap as Handler as usize {
            sigaction(Some(&self.0));
        }
    }
}

/// Sets the action of SIGTRAP if `new` is given; returns the one that was there.
fn sigaction(new: Option<&libc::sigaction>) -> libc::sigaction {
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: plain data. Our handler touches thread-locals and calls the action, which the caller makes async-signal-safe.
    unsafe {
        let mut old = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGTRAP, new, &mut old), 0);
        old
    }
}
