//! Where patching is refused: nothing changes, and the error is a line to print. Refused by seccomp, each in a process.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod child;

use jump_label::{
    AtomicKey, KeyError, PatchError, StaticKey, define_claimed_key, define_static_key_false,
    static_branch_unlikely,
};
use libc::{EPERM, SYS_membarrier, SYS_pwrite64, c_long, sock_filter, sock_fprog};

define_static_key_false!(static KEY);
define_claimed_key!(
    /// A key that is claimed.
    struct Owned;
);

const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
/// membarrier(2)'s PRIVATE_EXPEDITED_SYNC_CORE, without its registration.
const SYNC_CORE: u32 = 1 << 5;

#[inline(never)]
fn on() -> bool {
    static_branch_unlikely!(KEY)
}

/// From here on a system call fails with EPERM, on all threads; with `argument`, only if that one has that value.
fn deny(call: c_long, argument: Option<(u32, u32)>) {
    let stmt = |code: u32, k: u32| sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = |offset: u32| stmt(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    // On to the next, or to the last.
    let equal = |k: u32, last: u8| sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf: last,
        k,
    };
    let ret = |value: u32| stmt(libc::BPF_RET | libc::BPF_K, value);
    let (index, value) = argument.unwrap_or_default();
    let mut filter = match argument {
        // struct seccomp_data: the call's number, then its arguments from byte 16.
        Some(_) => vec![load(0), equal(call as u32, 3), load(16 + 8 * index), equal(value, 1)],
        None => vec![load(0), equal(call as u32, 1)],
    };
    filter.extend([ret(libc::SECCOMP_RET_ERRNO | EPERM as u32), ret(libc::SECCOMP_RET_ALLOW)]);
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program lives while the call lasts.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let flags = libc::SECCOMP_FILTER_FLAG_TSYNC;
        assert_eq!(libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &program), 0);
    }
}

/// Off, and refuses to be on for this reason.
fn stays_off(why: PatchError) {
    for _ in 0..2 {
        assert_eq!(KEY.slow_inc(), Err(KeyError::Patch(why)));
        assert_eq!((KEY.count(), on()), (0, false));
        assert!(KEY.sites().all(|site| site.bytes() == NOP));
        assert_eq!(jump_label::support(), Err(why));
        assert_eq!(Owned::claim().unwrap_err(), KeyError::Patch(why), "and not claimed by the try");
    }
}

#[test]
fn without_membarrier_nothing_is_patched_and_a_line_says_so() {
    child::well("without_membarrier_nothing_is_patched_and_a_line_says_so", || {
        deny(SYS_membarrier, None);
        stays_off(PatchError::Membarrier(EPERM));
        let line = jump_label::support().unwrap_err().to_string();
        assert!(
            !line.contains('\n') && line.contains("membarrier(2)") && line.contains("not permitted"),
            "{line}"
        );
        // What callers do then.
        let key = AtomicKey::claim().unwrap();
        key.slow_inc().unwrap();
        assert!(key.unlikely());
    });
}

#[test]
fn without_writing_nothing_is_patched() {
    child::well("without_writing_nothing_is_patched", || {
        deny(SYS_pwrite64, None);
        stays_off(PatchError::Memory(EPERM));
    });
}

#[test]
fn a_flip_that_fails_behind_its_int3_is_taken_back() {
    child::well("a_flip_that_fails_behind_its_int3_is_taken_back", || {
        // The registration passes, the first call to sync does not.
        deny(SYS_membarrier, Some((0, SYNC_CORE)));
        stays_off(PatchError::Membarrier(EPERM));
    });
}

#[test]
fn a_flip_that_fails_between_its_steps_keeps_what_it_was() {
    child::well("a_flip_that_fails_between_its_steps_keeps_what_it_was", || {
        // int3 is one byte and can be written, the tail is four and cannot.
        deny(SYS_pwrite64, Some((2, 4)));
        for _ in 0..2 {
            assert!(matches!(KEY.slow_inc(), Err(KeyError::Patch(_))));
            assert_eq!((KEY.count(), on()), (0, false));
        }
        // The int3 cannot be taken back by the rules. So who comes by traps, and goes on as before.
        assert!(KEY.sites().all(|site| site.bytes()[0] == 0xcc) && jump_label::traps() >= 2);
    });
}

#[test]
fn a_flip_back_that_fails_between_its_steps_keeps_what_it_was() {
    child::well("a_flip_back_that_fails_between_its_steps_keeps_what_it_was", || {
        KEY.slow_inc().unwrap();
        deny(SYS_pwrite64, Some((2, 4)));
        for _ in 0..2 {
            assert!(matches!(KEY.slow_dec(), Err(KeyError::Patch(_))));
            assert_eq!((KEY.count(), on()), (1, true));
        }
        assert!(KEY.sites().all(|site| site.bytes()[0] == 0xcc) && jump_label::traps() >= 2);
    });
}

#[test]
fn on_stays_on() {
    child::well("on_stays_on", || {
        KEY.slow_inc().unwrap();
        let owned = Owned::claim().unwrap();
        owned.slow_inc().unwrap();
        assert!(owned.unlikely(), "it has a site");
        deny(SYS_membarrier, None);
        assert_eq!(KEY.slow_dec(), Err(KeyError::Patch(PatchError::Membarrier(EPERM))));
        assert_eq!((KEY.count(), on()), (1, true));
        // More than one may come and go: that takes no patching.
        KEY.slow_inc().unwrap();
        KEY.slow_dec().unwrap();
        assert!(on());
        // What cannot be switched off is nobody's again.
        drop(owned);
        assert_eq!(Owned::claim().unwrap_err(), KeyError::Claimed);
    });
}
