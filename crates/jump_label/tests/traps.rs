//! SIGTRAP is not ours alone: what else is sent, or met, goes where it would go without us.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod child;

use std::arch::asm;
use std::os::unix::process::ExitStatusExt;

use jump_label::{StaticKey, define_claimed_key, define_static_key_false, static_branch_unlikely};
use libc::{SIGTRAP, SIGUSR1, c_int, c_void, siginfo_t};
use sync::host::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::Relaxed};

define_static_key_false!(static KEY);

#[inline(never)]
fn on() -> bool {
    static_branch_unlikely!(KEY)
}

/// What the foreign handler has seen.
static CALLS: AtomicU64 = AtomicU64::new(0);
static SIGNAL: AtomicI32 = AtomicI32::new(0);
static CODE: AtomicI32 = AtomicI32::new(0);
static RIP: AtomicUsize = AtomicUsize::new(0);
static TRAP_BLOCKED: AtomicBool = AtomicBool::new(false);
static USR1_BLOCKED: AtomicBool = AtomicBool::new(false);

fn note(signal: c_int) {
    CALLS.fetch_add(1, Relaxed);
    SIGNAL.store(signal, Relaxed);
    TRAP_BLOCKED.store(blocked(SIGTRAP), Relaxed);
    USR1_BLOCKED.store(blocked(SIGUSR1), Relaxed);
}

extern "C" fn simple(signal: c_int) {
    note(signal);
}

extern "C" fn with_info(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    note(signal);
    // SAFETY: a signal's handler is handed these.
    unsafe {
        CODE.store((*info).si_code, Relaxed);
        let context = context.cast::<libc::ucontext_t>();
        RIP.store((*context).uc_mcontext.gregs[libc::REG_RIP as usize] as usize, Relaxed);
    }
}

/// What was set before `passes_on`.
static BEFORE: AtomicUsize = AtomicUsize::new(0);
static PASSED_ON: AtomicU64 = AtomicU64::new(0);

extern "C" fn passes_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    assert!(PASSED_ON.fetch_add(1, Relaxed) < 10, "round and round");
    // SAFETY: it is a handler with this type, since it was ours when it was read.
    unsafe {
        let before: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
            std::mem::transmute(BEFORE.load(Relaxed));
        before(signal, info, context);
    }
}

fn blocked(signal: c_int) -> bool {
    // SAFETY: plain data.
    unsafe {
        let mut mask = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        libc::sigismember(&mask, signal) == 1
    }
}

/// Sets a handler, SIGUSR1 blocked in it; returns the one that was set.
fn set(handler: usize, flags: c_int) -> usize {
    // SAFETY: plain data; handlers here touch atomics only.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = handler;
        new.sa_flags = flags;
        libc::sigaddset(&mut new.sa_mask, SIGUSR1);
        assert_eq!(libc::sigaction(SIGTRAP, &new, &mut old), 0);
        old.sa_sigaction
    }
}

/// The handler, its flags, and whether SIGUSR1 and SIGURG are blocked in it.
fn is_set() -> (usize, c_int, bool, bool) {
    // SAFETY: plain data.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(SIGTRAP, std::ptr::null(), &mut now), 0);
        let blocked = |signal| libc::sigismember(&now.sa_mask, signal) == 1;
        // Without the flag that the C library sets for itself (SA_RESTORER).
        (now.sa_sigaction, now.sa_flags & !0x0400_0000, blocked(SIGUSR1), blocked(libc::SIGURG))
    }
}

/// The program's own int3; the address after it.
#[inline(never)]
fn int3() -> usize {
    let after: usize;
    // SAFETY: whoever handles it lets us go on.
    unsafe { asm!("int3", "2: lea {after}, [rip + 2b]", after = out(reg) after) };
    after
}

fn flip() {
    KEY.slow_inc().unwrap();
    assert!(on());
    KEY.slow_dec().unwrap();
    assert!(!on());
}

const SIMPLE: extern "C" fn(c_int) = simple;
const WITH_INFO: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = with_info;
const PASSES_ON: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = passes_on;

#[test]
fn the_programs_own_int3_reaches_its_handler() {
    child::well("the_programs_own_int3_reaches_its_handler", || {
        set(WITH_INFO as usize, libc::SA_SIGINFO);
        flip();
        assert_ne!(is_set().0, WITH_INFO as usize, "ours is set");
        assert!(is_set().3, "no other handler runs inside ours");
        let rip = int3();
        assert_eq!((CALLS.load(Relaxed), SIGNAL.load(Relaxed), RIP.load(Relaxed)), (1, SIGTRAP, rip));
        assert_eq!(CODE.load(Relaxed), libc::SI_KERNEL);
        assert!(TRAP_BLOCKED.load(Relaxed) && USR1_BLOCKED.load(Relaxed), "as it was set");
        assert!(!blocked(SIGTRAP) && !blocked(SIGUSR1), "the mask is put back");
        flip();
        int3();
        assert_eq!(CALLS.load(Relaxed), 2);
    });
}

#[test]
fn handlers_without_info_and_with_other_flags() {
    child::well("handlers_without_info_and_with_other_flags", || {
        set(SIMPLE as usize, libc::SA_NODEFER);
        flip();
        int3();
        assert_eq!((CALLS.load(Relaxed), SIGNAL.load(Relaxed)), (1, SIGTRAP));
        assert!(!TRAP_BLOCKED.load(Relaxed) && USR1_BLOCKED.load(Relaxed), "as it was set");
        // A signal that somebody sends.
        // SAFETY: there is a handler.
        assert_eq!(unsafe { libc::raise(SIGTRAP) }, 0);
        assert_eq!(CALLS.load(Relaxed), 2);
    });
}

#[test]
fn a_handler_for_one_time_is_called_once() {
    let out = child::in_a_process("a_handler_for_one_time_is_called_once", || {
        set(SIMPLE as usize, libc::SA_RESETHAND);
        flip();
        int3();
        println!("calls {}", CALLS.load(Relaxed));
        int3();
        println!("calls {}", CALLS.load(Relaxed));
    });
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.signal(), Some(SIGTRAP), "{text}");
    assert!(text.contains("calls 1") && !text.contains("calls 2"), "{text}");
}

#[test]
fn a_handler_set_later_that_passes_on_meets_the_one_before() {
    child::well("a_handler_set_later_that_passes_on_meets_the_one_before", || {
        set(WITH_INFO as usize, libc::SA_SIGINFO);
        flip();
        BEFORE.store(set(PASSES_ON as usize, libc::SA_SIGINFO), Relaxed);
        int3();
        assert_eq!((PASSED_ON.load(Relaxed), CALLS.load(Relaxed)), (1, 1));
        // A flip puts us first again: he is beneath us, passes on to us, and we to who was there before us.
        flip();
        assert_ne!(is_set().0, PASSES_ON as usize);
        int3();
        assert_eq!((PASSED_ON.load(Relaxed), CALLS.load(Relaxed)), (2, 2));
        flip();
    });
}

#[test]
fn a_handler_set_later_that_keeps_all_for_itself() {
    child::well("a_handler_set_later_that_keeps_all_for_itself", || {
        flip();
        for n in 1..4 {
            set(WITH_INFO as usize, libc::SA_SIGINFO);
            flip();
            int3();
            assert_eq!(CALLS.load(Relaxed), n);
        }
    });
}

#[test]
fn by_default_the_process_ends() {
    let name = "by_default_the_process_ends";
    let out = child::in_a_process(name, || {
        flip();
        println!("flipped");
        int3();
    });
    assert_eq!(out.status.signal(), Some(SIGTRAP), "{}", out.status);
    assert!(String::from_utf8_lossy(&out.stdout).contains("flipped"));
}

#[test]
fn ignored_means_what_is_sent_and_not_what_is_met() {
    let out = child::in_a_process("ignored_means_what_is_sent_and_not_what_is_met", || {
        set(libc::SIG_IGN, 0);
        flip();
        // SAFETY: it is ignored.
        assert_eq!(unsafe { libc::raise(SIGTRAP) }, 0);
        println!("still here");
        int3();
    });
    assert_eq!(out.status.signal(), Some(SIGTRAP), "{}", out.status);
    assert!(String::from_utf8_lossy(&out.stdout).contains("still here"));
}

define_claimed_key!(
    /// A key that goes.
    struct Owned;
);

#[test]
fn what_was_set_is_set_again_when_the_last_claim_is_gone() {
    child::well("what_was_set_is_set_again_when_the_last_claim_is_gone", || {
        set(WITH_INFO as usize, libc::SA_SIGINFO | libc::SA_NODEFER);
        let before = is_set();
        jump_label::support().unwrap();
        assert_eq!(is_set(), before, "asking leaves nothing behind");
        let key = Owned::claim().unwrap();
        assert_ne!(is_set(), before);
        key.slow_inc().unwrap();
        assert!(key.unlikely());
        drop(key);
        assert_eq!(is_set(), before);
        // Who has set his own meanwhile keeps it.
        let key = Owned::claim().unwrap();
        set(SIMPLE as usize, 0);
        drop(key);
        assert_eq!(is_set().0, SIMPLE as usize);
    });
}

/// The kernel hands out one SIGTRAP for one that was sent and an int3 met at once.
#[test]
fn signals_sent_while_sites_flip_are_seen_and_do_no_harm() {
    child::well("signals_sent_while_sites_flip_are_seen_and_do_no_harm", || {
        static STOP: AtomicBool = AtomicBool::new(false);
        static TID: AtomicI32 = AtomicI32::new(0);
        let flips = if cfg!(debug_assertions) { 500 } else { 20_000 };
        set(WITH_INFO as usize, libc::SA_SIGINFO);
        KEY.slow_inc().unwrap();
        KEY.slow_dec().unwrap();
        std::thread::scope(|s| {
            s.spawn(|| {
                // SAFETY: no arguments.
                TID.store(unsafe { libc::syscall(libc::SYS_gettid) } as i32, Relaxed);
                while !STOP.load(Relaxed) {
                    on();
                }
            });
            s.spawn(|| {
                while !STOP.load(Relaxed) {
                    // SAFETY: numbers; a thread of ours, which has a handler.
                    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), TID.load(Relaxed), SIGTRAP) };
                }
            });
            // Who meets whom is chance: go on until both have happened.
            let mut done = 0;
            while done < flips || CALLS.load(Relaxed) == 0 || jump_label::traps() == 0 {
                KEY.slow_inc().unwrap();
                KEY.slow_dec().unwrap();
                done += 1;
            }
            STOP.store(true, Relaxed);
        });
        assert_eq!(CODE.load(Relaxed), libc::SI_TKILL, "int3s of sites are not his");
    });
}
