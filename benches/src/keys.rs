//! Static keys: what a test costs that finds the key off, its word hot or cold, and what a flip costs.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use crossbeam::utils::CachePadded;
use jump_label::{AtomicKey, StaticKey, StaticKeyFalse, static_branch_unlikely};
use percpu::Topology;
use stats::Bits64;
use sync::host::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use sync::thread::{host_cores, pin};

use crate::harness::{Harness, Variant, timed};
use crate::machines::{Bench, Real};
use crate::sites;

/// Tests with everything in the nearest cache.
pub(crate) const HOT: &str = "key-test";
/// Tests whose word is not.
pub(crate) const COLD: &str = "key-test-cold";
/// Flips.
pub(crate) const FLIPS: &str = "flips";
/// One site, flipped while others execute it.
pub(crate) const BUSY: &str = "patched, 1 site, 2 threads running it";

jump_label::define_static_key_false!(static KEY);
static_keys::define_static_key_false!(PEER);
static FLAG: AtomicBool = AtomicBool::new(false);

/// Words that cold tests meet one after the other, 128 bytes each: more than caches hold.
const WORDS: usize = 1 << 19;
/// Flips a turn.
const FLIPS_A_TURN: u64 = 10;

#[cold]
#[inline(never)]
fn taken() {
    black_box(());
}

#[inline(never)]
fn test_nothing(n: u64) -> u64 {
    n + 1
}

#[inline(never)]
fn test_patched(n: u64) -> u64 {
    if static_branch_unlikely!(KEY) {
        taken();
    }
    n + 1
}

#[inline(never)]
fn test_static_keys(n: u64) -> u64 {
    if static_keys::static_branch_unlikely!(PEER) {
        taken();
    }
    n + 1
}

#[inline(never)]
fn test_flag(flag: &AtomicBool, n: u64) -> u64 {
    if flag.load(Relaxed) {
        taken();
    }
    n + 1
}

#[inline(never)]
fn test_atomic_key(key: &AtomicKey, n: u64) -> u64 {
    if key.unlikely() {
        taken();
    }
    n + 1
}

/// Measures all three.
///
/// # Errors
/// If there is no machine.
pub(crate) fn measure(harness: &mut Harness) -> Result<()> {
    if ![HOT, COLD, FLIPS].iter().any(|group| harness.wants(group)) {
        return Ok(());
    }
    let bench = Bench::<Real<Bits64, AtomicKey>>::new(Topology::smp(1))?;
    hot(harness, &bench);
    cold(harness, &bench);
    if harness.wants(FLIPS) && !harness.counts() {
        flips(harness)?;
    }
    Ok(())
}

fn hot(harness: &mut Harness, bench: &Bench<Real<Bits64, AtomicKey>>) {
    let key = AtomicKey::new();
    let variants = vec![
        hot_test("no test", bench, test_nothing),
        hot_test("patched key", bench, test_patched),
        hot_test("static-keys crate", bench, test_static_keys),
        hot_test("AtomicBool, relaxed", bench, |n| test_flag(&FLAG, n)),
        hot_test("AtomicKey", bench, |n| test_atomic_key(&key, n)),
    ];
    harness.group(HOT, "A test that finds the key off", variants);
}

fn hot_test<'a>(
    name: &str,
    bench: &'a Bench<Real<Bits64, AtomicKey>>,
    test: impl Fn(u64) -> u64 + Send + Sync + Copy + 'a,
) -> Variant<'a> {
    let run = move |n| {
        bench.alone(n, |_| {
            black_box(test(black_box(1)));
        })
    };
    Variant::new(name, run).counted()
}

/// Each test has a word of its own, far from the last one's; the patched key has no word to meet.
fn cold(harness: &mut Harness, bench: &Bench<Real<Bits64, AtomicKey>>) {
    if !harness.wants(COLD) || harness.counts() {
        return;
    }
    let flags: Vec<CachePadded<AtomicBool>> = (0..WORDS).map(|_| CachePadded::default()).collect();
    let variants = vec![
        cold_test("no test", bench, &flags, |_, n| test_nothing(n)),
        cold_test("patched key", bench, &flags, |_, n| test_patched(n)),
        cold_test("AtomicBool, relaxed", bench, &flags, test_flag),
    ];
    harness.group(COLD, "The same, each test's word in far memory", variants);
}

fn cold_test<'a>(
    name: &str,
    bench: &'a Bench<Real<Bits64, AtomicKey>>,
    flags: &'a [CachePadded<AtomicBool>],
    test: impl Fn(&AtomicBool, u64) -> u64 + Send + Sync + Copy + 'a,
) -> Variant<'a> {
    let mut at = 1;
    Variant::new(name, move |n| {
        bench.on_cpu(|_| {
            timed(n, || {
                // A generator that meets every word: `test` adds 1. It goes on where the last turn ended.
                at = test(&flags[at], at as u64 * 5) as usize % WORDS;
            })
        })
    })
}

/// Flips a key on and off, so many times, each timed.
fn each(n: u64, on: impl Fn(), off: impl Fn()) -> Vec<f64> {
    let flip = |_| {
        let start = Instant::now();
        on();
        off();
        start.elapsed().as_nanos() as f64
    };
    (0..n).map(flip).collect()
}

/// Makes each core that runs this process answer. A flip of a key does so three times. Any flip has registered us.
fn membarrier() {
    // linux/membarrier.h: MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE.
    const SYNC_CORE: libc::c_long = 1 << 5;
    // SAFETY: takes two numbers (command, flags).
    let done = unsafe { libc::syscall(libc::SYS_membarrier, SYNC_CORE, 0) };
    assert_eq!(done, 0, "membarrier: {}", std::io::Error::last_os_error());
}

/// Does `on` and `off` on one core, so many times, each timed, while `others` threads run `run_all`: the first on
/// another core.
fn under_load(
    n: u64,
    on: impl Fn() + Send,
    off: impl Fn() + Send,
    run_all: impl Fn() -> u64 + Sync,
    others: usize,
) -> Vec<f64> {
    let cores = host_cores();
    let pin_to = |i: usize| cores.get(i % cores.len().max(1)).copied().map(pin);
    let (running, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for i in 1..=others {
            let (running, stop, pin_to, run_all) = (&running, &stop, &pin_to, &run_all);
            scope.spawn(move || {
                pin_to(i);
                running.fetch_add(1, Relaxed);
                while !stop.load(Relaxed) {
                    black_box(run_all());
                }
            });
        }
        let flips = scope.spawn(|| {
            pin_to(0);
            while running.load(Relaxed) < others {
                std::thread::yield_now();
            }
            let flips = each(n, on, off);
            stop.store(true, Relaxed);
            flips
        });
        flips.join().expect("a flip that fails has said why")
    })
}

fn on(key: &'static StaticKeyFalse) {
    key.slow_inc().expect("text can be patched, as was tried before");
}

fn off(key: &'static StaticKeyFalse) {
    key.slow_dec().expect("it was switched on");
}

fn flips(harness: &mut Harness) -> Result<()> {
    let mut variants = Vec::new();
    match jump_label::support() {
        Err(e) => harness.note(format!("flips: no patched keys: {e}")),
        Ok(()) => {
            let one: (&'static StaticKeyFalse, fn() -> u64) = (&KEY, || test_patched(0));
            for (key, run_all) in [one].into_iter().chain(sites::KEYS) {
                let sites = match key.sites().count() {
                    1 => "1 site".into(),
                    n => format!("{n} sites"),
                };
                for (cpus, load) in [(0, "idle"), (1, "1 thread running it"), (2, "2 threads running it")] {
                    let name = format!("patched, {sites}, {load}");
                    variants.push(Variant::samples(name, move |n| {
                        under_load(n, || on(key), || off(key), run_all, cpus)
                    }));
                }
            }
        }
    }
    let atomic = AtomicKey::new();
    if jump_label::support().is_ok() {
        let name = "6 x membarrier, 1 thread running";
        let three = || (0..3).for_each(|_| membarrier());
        variants.push(Variant::samples(name, move |n| under_load(n, three, three, || test_nothing(0), 1)));
    }
    variants.push(Variant::samples("AtomicKey", |n| {
        each(n, || atomic.slow_inc().expect("one user"), || atomic.slow_dec().expect("the user from above"))
    }));
    // SAFETY: no other thread runs the peer's one site, nor anything near it, while it is written.
    let peer = |on: bool| unsafe { if on { PEER.enable() } else { PEER.disable() } };
    variants.push(Variant::samples("static-keys crate, 1 site, idle", move |n| {
        each(n, || peer(true), || peer(false))
    }));
    harness.group(
        FLIPS,
        "A key on and off again",
        variants.into_iter().map(|v| v.iterations(FLIPS_A_TURN)).collect(),
    );
    Ok(())
}
