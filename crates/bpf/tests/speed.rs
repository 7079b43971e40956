//! Figures, in release only: `cargo test --release -p bpf --test speed -- --ignored --nocapture`.

mod common;

use std::hint::black_box;
use std::time::Instant;

use bpf::insn::*;
use bpf::{BpfInsn, Map, PlainEnv, Program};
use common::{array, insns, load};

/// The best of several runs, in ns each.
fn best(prog: &Program, runs: u32) -> f64 {
    let env = PlainEnv::default();
    let mut mem = [1u8; 64];
    let once = |mem: &mut [u8; 64]| {
        let start = Instant::now();
        for _ in 0..runs {
            black_box(bpf::run(black_box(prog), mem, &env)).unwrap();
        }
        start.elapsed().as_nanos() as f64 / f64::from(runs)
    };
    (0..7).map(|_| once(&mut mem)).fold(f64::MAX, f64::min)
}

/// A loop of `body` that runs `n` times, counted in r9.
fn repeat(n: i32, setup: &[BpfInsn], body: &[BpfInsn]) -> Vec<BpfInsn> {
    let back = -(body.len() as i16) - 2;
    let tail = [alu64_imm(BPF_SUB, 9, 1), jmp_imm(BPF_JNE, 9, 0, back), mov64_imm(0, 0), exit_insn()];
    insns(&[setup, &[mov64_imm(9, n)], body, &tail])
}

#[test]
#[ignore = "measures"]
fn figures() {
    let n = 100_000;
    let line = |name: &str, setup: &[BpfInsn], body: &[BpfInsn], maps| {
        let per_loop = best(&load(&repeat(n, setup, body), maps), 3) / f64::from(n);
        println!("{name:<34} {:6.2} ns an instruction", per_loop / (body.len() + 2) as f64);
    };
    let zero = [mov64_imm(0, 0), mov64_imm(3, 7), mov64_imm(4, 9)];
    let arithmetic = [
        alu64_reg(BPF_ADD, 0, 3),
        alu64_imm(BPF_XOR, 0, 0x55),
        alu32_imm(BPF_LSH, 4, 3),
        alu64_reg(BPF_MUL, 4, 3),
        alu64_imm(BPF_AND, 4, 0xffff),
        alu64_reg(BPF_SUB, 0, 4),
        mov64_reg(5, 0),
        alu32_reg(BPF_OR, 5, 4),
    ];
    line("arithmetic", &zero, &arithmetic, vec![]);
    line("empty loop", &zero, &[], vec![]);
    let stack = [stx_mem(BPF_DW, 10, 3, -8), ldx_mem(BPF_DW, 4, 10, -8)];
    line("store and load on the stack", &zero, &stack.repeat(4), vec![]);
    line("load from the context", &zero, &[ldx_mem(BPF_W, 4, 1, 8); 8], vec![]);
    let two = [ldx_mem(BPF_W, 4, 1, 8), ldx_mem(BPF_W, 5, 8, 0)];
    let setup = insns(&[&ld_map_value(8, 0, 0)]);
    line("context and map value in turn", &setup, &two.repeat(4), vec![array(1)]);

    let run = |name: &str, insns: &[BpfInsn], maps: Vec<std::sync::Arc<Map>>| {
        println!("{name:<34} {:6.1} ns a run", best(&load(insns, maps), 100_000));
    };
    run("two instructions", &[mov64_imm(0, 0), exit_insn()], vec![]);
    run("with a stack", &[st_mem(BPF_DW, 10, -8, 0), mov64_imm(0, 0), exit_insn()], vec![]);
    let count = insns(&[
        &[st_mem(BPF_W, 10, -4, 0), mov64_reg(2, 10), alu64_imm(BPF_ADD, 2, -4)],
        &ld_map_fd(1, 0),
        &[emit_call(1), jmp_imm(BPF_JEQ, 0, 0, 2), mov64_imm(1, 1)],
        &[atomic_op(BPF_DW, BPF_ADD as i32, 0, 1, 0), mov64_imm(0, 0), exit_insn()],
    ]);
    run("count in an array (11 instructions)", &count, vec![array(16)]);
}
