//! The patched key: what its sites hold, and flips while other threads execute them.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::hint::black_box;
use std::thread;

use jump_label::{
    KeyError, StaticKey, StaticKeyFalse, define_claimed_key, define_static_key_false, static_branch_unlikely,
};
use sync::barrier::barrier;
use sync::host::{AtomicBool, AtomicU64, Ordering};

const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
/// What a site's test answers, far from what garbage would.
const OFF: u64 = 0x0ff0_0ff0;
const ON: u64 = 0x0a0a_0a0a;

/// What flips need to be many, and still end in a moment without optimizations.
const fn flips(release: u64) -> u64 {
    if cfg!(debug_assertions) { release / 50 } else { release }
}

/// Fails in one line where keys cannot be patched: then there is nothing to test, and that should be known.
fn supported() {
    if let Err(e) = jump_label::support() {
        panic!("{e}");
    }
}

macro_rules! answer {
    ($key:path) => {
        if static_branch_unlikely!($key) { black_box(ON) } else { black_box(OFF) }
    };
}

#[test]
fn a_site_is_a_no_op_when_off_and_a_jump_when_on() {
    define_static_key_false!(static KEY);
    #[inline(never)]
    fn site() -> u64 {
        answer!(KEY)
    }

    supported();
    for _ in 0..3 {
        assert_eq!((site(), KEY.count()), (OFF, 0));
        assert!(KEY.sites().count() > 0);
        assert!(KEY.sites().all(|site| site.bytes() == NOP));
        KEY.slow_inc().unwrap();
        assert_eq!((site(), KEY.count()), (ON, 1));
        for site in KEY.sites() {
            let [0xe9, distance @ ..] = site.bytes() else { panic!("no jump: {:x?}", site.bytes()) };
            let to = (site.code() + 5).wrapping_add_signed(i32::from_le_bytes(distance) as isize);
            assert_eq!(to, site.target());
        }
        KEY.slow_dec().unwrap();
    }
}

#[test]
fn sites_belong_to_their_key() {
    define_static_key_false!(static ONE);
    define_static_key_false!(static OTHER);
    #[inline(never)]
    fn both() -> (u64, u64) {
        (answer!(ONE), answer!(OTHER))
    }

    supported();
    ONE.slow_inc().unwrap();
    assert_eq!(both(), (ON, OFF));
    OTHER.slow_inc().unwrap();
    ONE.slow_dec().unwrap();
    assert_eq!(both(), (OFF, ON));
    OTHER.slow_dec().unwrap();
    assert_eq!(both(), (OFF, OFF));
}

#[test]
fn many_sites_flip_as_one() {
    define_static_key_false!(static KEY);
    #[inline(always)]
    fn test() -> u64 {
        answer!(KEY)
    }
    #[inline(never)]
    fn generic<const N: usize>() -> u64 {
        test() + N as u64
    }

    supported();
    let all =
        || [test() + 10, generic::<11>(), generic::<12>(), generic::<13>(), test() + 14, generic::<15>()];
    let expected = |answer: u64| [10, 11, 12, 13, 14, 15].map(|n| answer + n);
    assert!(KEY.sites().count() >= 6, "{} sites", KEY.sites().count());
    assert_eq!(all(), expected(OFF));
    KEY.slow_inc().unwrap();
    assert_eq!(all(), expected(ON));
    KEY.slow_dec().unwrap();
    assert_eq!(all(), expected(OFF));
}

/// Each answer is one of the two, and outside of flips the right one: the flipping thread counts where its flips begin and
/// end.
#[test]
fn flips_under_load() {
    define_static_key_false!(static KEY);
    static MOMENT: AtomicU64 = AtomicU64::new(0);
    static STOP: AtomicBool = AtomicBool::new(false);
    #[inline(always)]
    fn test() -> u64 {
        answer!(KEY)
    }
    #[inline(never)]
    fn one() -> u64 {
        test()
    }
    #[inline(never)]
    fn other() -> u64 {
        test().wrapping_mul(black_box(1))
    }

    fn watch(site: fn() -> u64) -> (u64, u64, u64) {
        let (mut wrong, mut settled, mut all) = (0, 0, 0);
        while !STOP.load(Ordering::Relaxed) {
            let before = MOMENT.load(Ordering::SeqCst);
            barrier();
            let answer = site();
            barrier();
            let after = MOMENT.load(Ordering::SeqCst);
            // Moments: off, flipping on, on, flipping off.
            let right = match before % 4 {
                _ if before != after => answer == ON || answer == OFF,
                0 => answer == OFF,
                2 => answer == ON,
                _ => answer == ON || answer == OFF,
            };
            wrong += u64::from(!right);
            all += 1;
            settled += u64::from(before == after && before.is_multiple_of(2));
        }
        (wrong, settled, all)
    }

    supported();
    let traps = jump_label::traps();
    let watchers = thread::scope(|s| {
        let watchers = [one as fn() -> u64, other, one].map(|site| s.spawn(move || watch(site)));
        let mut flipped = 0;
        // Who meets whom is chance: go on until it has happened.
        while flipped < flips(100_000) || jump_label::traps() == traps {
            flipped += 2;
            for change in [StaticKeyFalse::slow_inc, StaticKeyFalse::slow_dec] {
                MOMENT.fetch_add(1, Ordering::SeqCst);
                change(&KEY).unwrap();
                MOMENT.fetch_add(1, Ordering::SeqCst);
                (0..100).for_each(|_| std::hint::spin_loop());
            }
        }
        STOP.store(true, Ordering::Relaxed);
        watchers.map(|w| w.join().unwrap())
    });
    let traps = jump_label::traps() - traps;
    println!(
        "{} sites, {} flips, {traps} traps, (wrong, settled) {watchers:?}",
        KEY.sites().count(),
        flips(100_000)
    );
    assert!(watchers.iter().all(|&(wrong, ..)| wrong == 0), "wrong answers: {watchers:?}");
    assert!(watchers.iter().map(|w| w.1).sum::<u64>() > 0, "nobody looked between flips");
    assert!(KEY.count() == 0 && KEY.sites().all(|site| site.bytes() == NOP));
}

/// Two come and go, one comes and stays for a while: who has it on finds it on.
#[test]
fn two_togglers_and_an_opener() {
    define_static_key_false!(static KEY);
    #[inline(never)]
    fn site() -> u64 {
        answer!(KEY)
    }
    let toggle = |stay: u64| {
        for n in 0..flips(10_000) {
            KEY.slow_inc().unwrap();
            for _ in 0..n % (stay + 1) {
                assert_eq!(site(), ON, "while we have it on");
                assert!(KEY.count() > 0);
            }
            KEY.slow_dec().unwrap();
            assert!(KEY.count() >= 0);
        }
    };

    supported();
    thread::scope(|s| {
        s.spawn(|| toggle(1));
        s.spawn(|| toggle(2));
        s.spawn(|| toggle(500));
    });
    assert_eq!((KEY.count(), site()), (0, OFF));
    assert_eq!(KEY.slow_dec(), Err(KeyError::Negative));
    assert!(KEY.sites().all(|site| site.bytes() == NOP));
}

define_claimed_key!(
    /// A key for one owner at a time.
    struct Owned;
);

#[inline(never)]
fn owned(key: &Owned) -> u64 {
    if key.unlikely() { ON } else { OFF }
}

#[test]
fn a_claimed_key_is_one_owners_until_he_is_gone() {
    supported();
    let key = Owned::claim().unwrap();
    assert_eq!(Owned::claim().unwrap_err(), KeyError::Claimed);
    assert_eq!((key.slow_dec(), key.count(), owned(&key)), (Err(KeyError::Negative), 0, OFF));
    key.slow_inc().unwrap();
    key.slow_inc().unwrap();
    assert_eq!((key.count(), owned(&key)), (2, ON));
    // He is gone with two users left: the next one finds it off.
    drop(key);
    let key = Owned::claim().unwrap();
    assert_eq!((key.count(), owned(&key)), (0, OFF));
    thread::scope(|s| s.spawn(|| assert_eq!(Owned::claim().unwrap_err(), KeyError::Claimed)).join().unwrap());
}
