//! A child of fork has text of its own: its flips are not the parent's.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod child;

use jump_label::{define_static_key_false, static_branch_unlikely};

define_static_key_false!(static KEY);

#[inline(never)]
fn on() -> bool {
    static_branch_unlikely!(KEY)
}

#[test]
fn parent_and_child_flip_their_own() {
    // One thread there: the test's, since there is but one.
    child::well("parent_and_child_flip_their_own", || {
        KEY.slow_inc().unwrap();
        KEY.slow_dec().unwrap();
        // SAFETY: the child of a process with one other thread, which waits for the test, touches nothing of that one.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let ok =
                KEY.slow_inc().is_ok() && on() && KEY.slow_dec().is_ok() && !on() && KEY.slow_inc().is_ok();
            // SAFETY: ends the child, with the key on.
            unsafe { libc::_exit(i32::from(!ok)) };
        }
        let mut status = -1;
        // SAFETY: a child of ours.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child flips");
        assert!(KEY.count() == 0 && !on(), "and the parent does not notice");
        KEY.slow_inc().unwrap();
        assert!(on());
    });
}
