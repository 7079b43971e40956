//! The interpreter against rbpf's, on the same programs in one run: `cargo bench -p bpf`.
//!
//! Each line is the least of several rounds, in ns an instruction; the two take turns, so that the machine's noise meets
//! both. Prints; decides nothing.
//!
//! Where the linker happens to put the loop matters: the same machine code took 1.2 ns an instruction in one build and
//! 1.9 in another, and rbpf's figure jumps between rounds. Compare several builds before believing a difference.

use std::hint::black_box;
use std::time::Instant;

use bpf::asm::assemble;
use bpf::{PlainEnv, Program};

const ROUNDS: usize = 9;

/// Programs by name; each runs its loop `r1` times, over `r2` instructions a turn.
const PROGRAMS: [(&str, u64, &str); 3] = [
    (
        "arithmetic loop",
        10,
        "r0 = 1
         r2 = 7
         again:
         r0 += r2
         r0 ^= 0x55
         r0 *= 3
         w2 += 5
         r2 &= 0xffff
         r0 -= r2
         r3 = r0
         r3 >>= 7
         r1 -= 1
         if r1 != 0 goto again
         exit",
    ),
    (
        "jumps",
        6,
        "r0 = 0
         again:
         if r0 s> 100 goto reset
         r0 += 1
         goto next
         reset: r0 = 0
         goto next
         next:
         if w0 == 77 goto odd
         odd:
         r1 -= 1
         if r1 != 0 goto again
         exit",
    ),
    (
        "stack loads and stores",
        8,
        "r0 = 0
         again:
         *(u64 *)(r10 -8) = r1
         r2 = *(u64 *)(r10 -8)
         r0 += r2
         *(u32 *)(r10 -16) = r0
         r2 = *(u32 *)(r10 -16)
         r0 ^= r2
         r1 -= 1
         if r1 != 0 goto again
         exit",
    ),
];

fn main() {
    println!("{:<26} {:>8} {:>8} {:>7}   (ns an instruction)", "", "bpf", "rbpf", "ratio");
    for (name, insns_a_turn, text) in PROGRAMS {
        // The number of turns is an immediate: rbpf and we pass r1 differently.
        let text = format!("r1 = 1000000\n{text}");
        let insns = assemble(&text).expect("the program is right");
        let bytes = bpf::insn::to_bytes(&insns);
        let prog = Program::load(name, &insns, vec![]).expect("the program is right");
        let rbpf = rbpf::EbpfVmNoData::new(Some(&bytes)).expect("rbpf takes the program");
        let env = PlainEnv::default();
        let ours = || bpf::run(black_box(&prog), &mut [], &env).expect("it does not fault");
        let theirs = || black_box(&rbpf).execute_program().expect("it does not fail");
        assert_eq!(ours(), theirs(), "{name}");
        let (mut best_ours, mut best_theirs) = (f64::MAX, f64::MAX);
        for _ in 0..ROUNDS {
            best_ours = best_ours.min(time(ours));
            best_theirs = best_theirs.min(time(theirs));
        }
        let each = |ns: f64| ns / (1_000_000 * insns_a_turn) as f64;
        let (a, b) = (each(best_ours), each(best_theirs));
        println!("{name:<26} {a:>8.2} {b:>8.2} {:>6.1}x", b / a);
    }
}

fn time(f: impl Fn() -> u64) -> f64 {
    let start = Instant::now();
    black_box(f());
    start.elapsed().as_nanos() as f64
}
