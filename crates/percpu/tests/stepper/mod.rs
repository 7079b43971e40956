//! Single-steps code by the x86 trap flag and does something at the n-th instruction. Shared by the step tests.

use std::cell::Cell;
use std::sync::Mutex;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
    static AT: Cell<u64> = const { Cell::new(u64::MAX) };
    static ACTION: Cell<Option<*const dyn Fn()>> = const { Cell::new(None) };
}

const TRAP_FLAG: i64 = 0x100;

/// SIGTRAP has one handler a process, and under `cargo test` tests share the process.
static SIGTRAP: Mutex<()> = Mutex::new(());

extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
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
    let _sigtrap = SIGTRAP.lock().unwrap_or_else(|e| e.into_inner());
    for at in 0.. {
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
/// Takes SIGTRAP; steps only the calling thread.
fn step(at: u64, action: &dyn Fn(), code: &dyn Fn()) -> u64 {
    // SAFETY: plain data.
    let mut act: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = on_trap;
    act.sa_sigaction = handler as usize;
    act.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler touches thread-locals and calls the action, which the caller makes async-signal-safe.
    assert_eq!(unsafe { libc::sigaction(libc::SIGTRAP, &act, std::ptr::null_mut()) }, 0);
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
