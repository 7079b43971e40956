//! Switches a branch on and off while two threads execute it: `cargo run --release -p jump_label --example flip_under_load`.

use std::thread;
use std::time::Instant;

use jump_label::{define_static_key_false, static_branch_unlikely};
use sync::host::{AtomicBool, AtomicU64, Ordering::Relaxed};

define_static_key_false!(
    /// Whether work is counted.
    static COUNTING
);
static COUNTED: AtomicU64 = AtomicU64::new(0);
static STOP: AtomicBool = AtomicBool::new(false);

/// What is done all the time. While nobody counts, the test is one no-op.
#[inline(never)]
fn work(n: u64) -> u64 {
    if static_branch_unlikely!(COUNTING) {
        COUNTED.fetch_add(1, Relaxed);
    }
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7)
}

fn main() {
    if let Err(e) = jump_label::support() {
        println!("{e}");
        return;
    }
    let busy = || {
        let (mut n, mut done) = (1, 0u64);
        while !STOP.load(Relaxed) {
            n = work(n);
            done += 1;
        }
        std::hint::black_box(n);
        done
    };
    const FLIPS: u32 = 1_000;
    let (done, took) = thread::scope(|s| {
        let busy = [s.spawn(busy), s.spawn(busy)];
        let start = Instant::now();
        for _ in 0..FLIPS / 2 {
            // Cannot fail where `support` did not, but for a breakpoint on the site.
            COUNTING.slow_inc().unwrap_or_else(|e| panic!("{e}"));
            COUNTING.slow_dec().unwrap_or_else(|e| panic!("{e}"));
        }
        let took = start.elapsed();
        STOP.store(true, Relaxed);
        (busy.map(|b| b.join().unwrap_or(0)).iter().sum::<u64>(), took)
    });
    let counted = COUNTED.load(Relaxed);
    println!("{done} pieces of work, {counted} of them while they were counted");
    println!("{FLIPS} flips of {} site(s), {:.1?} each", COUNTING.sites().count(), took / FLIPS);
    println!("{} times a thread met a flip in the middle, and was sent on", jump_label::traps());
}
