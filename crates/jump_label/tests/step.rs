//! A flip at every instruction around a site, single-stepped by the x86 trap flag; and what a site costs, counted so.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[path = "../../percpu/tests/stepper/mod.rs"]
mod stepper;

use std::cell::Cell;
use std::hint::black_box;
use std::thread;

use jump_label::{define_static_key_false, static_branch_unlikely};
use sync::host::{AtomicBool, Ordering::Relaxed};

const OFF: u64 = 0x0ff0_0ff0;
const ON: u64 = 0x0a0a_0a0a;

define_static_key_false!(static KEY);

#[inline(never)]
fn site() -> u64 {
    if static_branch_unlikely!(KEY) { ON } else { OFF }
}

/// Runs `code` with a flip at each of its instructions; the answers before and after the point where the site is passed.
fn flipped_at_every_instruction(on: bool) -> Vec<u64> {
    let (answer, mut answers) = (Cell::new(0), Vec::new());
    let flip = |to: bool| if to { KEY.slow_inc() } else { KEY.slow_dec() }.unwrap();
    if !on {
        flip(true);
    }
    // The action is no signal handler's business, but the stepped code holds no lock.
    let steps = stepper::at_every_instruction(
        || flip(on),
        || answer.set(site()),
        |_| {
            answers.push(answer.get());
            flip(!on);
        },
    );
    if !on {
        flip(false);
    }
    assert_eq!(answers.len() as u64, steps);
    answers
}

#[test]
fn a_flip_at_every_instruction_is_before_the_site_or_after_it() {
    jump_label::support().unwrap();
    for (on, first, last) in [(true, ON, OFF), (false, OFF, ON)] {
        let answers = flipped_at_every_instruction(on);
        // Flipped before the site is passed: the new answer; after it: the old one; nothing else, and in this order.
        let passed = answers.iter().position(|&a| a == last).expect("one flip comes after the site");
        assert!(passed > 0, "one flip comes before the site: {answers:x?}");
        assert!(answers[..passed].iter().all(|&a| a == first), "{answers:x?}");
        assert!(answers[passed..].iter().all(|&a| a == last), "{answers:x?}");
    }
}

/// Another thread meets int3s while this one has the stepper's handler set.
#[test]
fn steps_and_int3s_share_the_signal() {
    define_static_key_false!(static OTHER);
    static STOP: AtomicBool = AtomicBool::new(false);
    #[inline(never)]
    fn other() -> u64 {
        if static_branch_unlikely!(OTHER) { ON } else { OFF }
    }

    jump_label::support().unwrap();
    let rounds = if cfg!(debug_assertions) { 100 } else { 2_000 };
    let before = jump_label::traps();
    let wrong = thread::scope(|s| {
        let busy = s.spawn(|| {
            let mut wrong = 0u64;
            while !STOP.load(Relaxed) {
                wrong += u64::from(![ON, OFF].contains(&other()));
            }
            wrong
        });
        let mut round = 0;
        // Who meets whom is chance: go on until it has happened.
        while round < rounds || jump_label::traps() == before {
            round += 1;
            // The flip ends while the handler is set, and begins once while it is.
            let steps = stepper::at_every_instruction(
                || (),
                || {
                    black_box(other());
                },
                |_| {
                    OTHER.slow_inc().unwrap();
                    OTHER.slow_dec().unwrap();
                },
            );
            assert!(steps > 2, "{steps} steps");
        }
        STOP.store(true, Relaxed);
        busy.join().unwrap()
    });
    assert_eq!(wrong, 0);
}

/// The same function with and without a site: the one with it executes one instruction more, when off.
#[test]
fn off_costs_one_instruction() {
    define_static_key_false!(static NEVER);
    #[inline(never)]
    fn bare(_: &Cell<u64>) {}
    #[inline(never)]
    fn with_a_site(n: &Cell<u64>) {
        if static_branch_unlikely!(NEVER) {
            n.set(1);
        }
    }

    let n = Cell::new(0);
    let count = |code: fn(&Cell<u64>)| {
        let code = black_box(code);
        stepper::at_every_instruction(|| (), || code(&n), |_| ())
    };
    let (bare, with_a_site) = (count(bare), count(with_a_site));
    assert_eq!(with_a_site, bare + 1);
}
