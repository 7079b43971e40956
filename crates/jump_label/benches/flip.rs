//! What a flip costs: `cargo bench -p jump_label`. Medians of switching on and off again; prints, decides nothing.
//!
//! How far busy threads slow a flip depends on whether there is a core for the one that flips.

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use jump_label::{AtomicKey, StaticKey, StaticKeyFalse, define_static_key_false, static_branch_unlikely};
use sync::host::{AtomicBool, Ordering::Relaxed};

const FLIPS: usize = 4_000;

define_static_key_false!(static ONE);
define_static_key_false!(static MANY);

#[inline(never)]
fn one() -> u64 {
    u64::from(static_branch_unlikely!(ONE))
}

/// Ten sites, of which the first is the busy threads'. Each answers its own, or they would be made one.
#[inline(never)]
fn many<const N: u64>() -> u64 {
    if static_branch_unlikely!(MANY) { N } else { N + 10 }
}

const TEN: [fn() -> u64; 10] = [
    many::<0>, many::<1>, many::<2>, many::<3>, many::<4>, many::<5>, many::<6>, many::<7>, many::<8>,
    many::<9>,
];

/// The median time of on and off, in us, while `busy` threads execute `site`.
fn flip(key: &'static StaticKeyFalse, site: fn() -> u64, busy: usize) -> f64 {
    let stop = AtomicBool::new(false);
    let work = || {
        while !stop.load(Relaxed) {
            black_box(site());
        }
    };
    thread::scope(|s| {
        (0..busy).for_each(|_| drop(s.spawn(work)));
        let mut times: Vec<f64> = (0..FLIPS)
            .map(|_| {
                let start = Instant::now();
                key.slow_inc().unwrap_or_else(|e| panic!("{e}"));
                key.slow_dec().unwrap_or_else(|e| panic!("{e}"));
                start.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        stop.store(true, Relaxed);
        times.sort_unstable_by(f64::total_cmp);
        times[FLIPS / 2]
    })
}

fn main() {
    if let Err(e) = jump_label::support() {
        println!("{e}");
        return;
    }
    black_box(TEN).iter().for_each(|site| _ = black_box(site()));
    for (name, key, site) in [("one site", &ONE, one as fn() -> u64), ("ten sites", &MANY, TEN[0])] {
        for busy in 0..3 {
            let us = flip(key, site, busy);
            println!("{name:<10} ({:>2}), {busy} busy threads: on + off {us:>8.1} us", key.sites().count());
        }
    }
    let word = AtomicKey::new();
    let start = Instant::now();
    for _ in 0..FLIPS {
        let _ = black_box(&word).slow_inc();
        let _ = black_box(&word).slow_dec();
    }
    println!("a word: on + off {:.4} us", start.elapsed().as_secs_f64() * 1e6 / FLIPS as f64);
}
