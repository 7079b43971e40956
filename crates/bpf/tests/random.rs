//! Random programs: whatever they are, they are refused or they end, and nothing outside their memory
//! changes.

mod common;

use std::sync::Arc;

use bpf::insn::*;
use bpf::maps::BPF_F_RDONLY_PROG;
use bpf::{BpfInsn, Map, MapAttr, MapType, PlainEnv, Program, RunOpts};
use common::{array, map, prog_array};
use fastrand::Rng;

const PROGRAMS: u64 = if cfg!(debug_assertions) { 40_000 } else { 1_000_000 };
const SIZES: [u8; 4] = [BPF_B, BPF_H, BPF_W, BPF_DW];
const ALU: [u8; 12] = [
    BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_OR, BPF_AND, BPF_LSH, BPF_RSH, BPF_MOD, BPF_XOR, BPF_MOV,
    BPF_ARSH,
];
const JMP: [u8; 11] =
    [BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET, BPF_JNE, BPF_JSGT, BPF_JSGE, BPF_JLT, BPF_JLE, BPF_JSLT, BPF_JSLE];

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

fn imm(rng: &mut Rng) -> i32 {
    match rng.u8(..4) {
        0 => rng.i32(-2..=2),
        1 => rng.i32(-64..=64),
        2 => pick(rng, &[i32::MIN, i32::MAX, 31, 32, 63, 64, 512]),
        _ => rng.i32(..),
    }
}

/// Appends one instruction, or a few that belong together; about `len` will follow in all.
fn push(p: &mut Vec<BpfInsn>, rng: &mut Rng, len: i64) {
    let reg = |rng: &mut Rng| rng.u8(..10);
    let any = |rng: &mut Rng| rng.u8(..11);
    // Mostly within what the base has: the frame, or a context of 64 bytes.
    let place = |rng: &mut Rng| match rng.u8(..10) {
        0..=4 => (10, -8 * rng.i16(1..=64)),
        5..=7 => (1, rng.i16(0..=60)),
        8 => (any(rng), rng.i16(-600..600)),
        _ => (10, rng.i16(-516..=4)),
    };
    let to = |rng: &mut Rng, at: usize| (rng.i64(0..len) - at as i64 - 1) as i16;
    match rng.u8(..100) {
        0..=34 => {
            let (op, class) = (pick(rng, &ALU), pick(rng, &[BPF_ALU, BPF_ALU64]));
            let off = i16::from(matches!(op, BPF_DIV | BPF_MOD) && rng.bool());
            if rng.bool() {
                let off = if op == BPF_MOV { pick(rng, &[0, 0, 8, 16]) } else { off };
                p.push(BpfInsn::new(class | op | BPF_X, reg(rng), any(rng), off, 0));
            } else {
                let bits = if class == BPF_ALU { 32 } else { 64 };
                let imm = match op {
                    BPF_LSH | BPF_RSH | BPF_ARSH => rng.i32(0..bits),
                    BPF_DIV | BPF_MOD => imm(rng) | 1,
                    _ => imm(rng),
                };
                p.push(BpfInsn::new(class | op | BPF_K, reg(rng), 0, off, imm));
            }
        }
        35..=38 => {
            let code = pick(rng, &[BPF_ALU | BPF_END, BPF_ALU | BPF_END | BPF_TO_BE, BPF_ALU64 | BPF_END]);
            p.push(BpfInsn::new(code, reg(rng), 0, 0, pick(rng, &[16, 32, 64])));
        }
        39 => p.push(BpfInsn::new(pick(rng, &[BPF_ALU, BPF_ALU64]) | BPF_NEG, reg(rng), 0, 0, 0)),
        40..=53 => {
            let (op, class) = (pick(rng, &JMP), pick(rng, &[BPF_JMP, BPF_JMP32]));
            let off = to(rng, p.len());
            if rng.bool() {
                p.push(BpfInsn::new(class | op | BPF_X, any(rng), any(rng), off, 0));
            } else {
                p.push(BpfInsn::new(class | op | BPF_K, any(rng), 0, off, imm(rng)));
            }
        }
        54 => p.push(jmp_a(to(rng, p.len()))),
        55 => p.push(jmp32_a(i32::from(to(rng, p.len())))),
        56..=67 => {
            let (base, off) = place(rng);
            p.push(ldx_mem(pick(rng, &SIZES), reg(rng), base, off));
        }
        68..=69 => {
            let (base, off) = place(rng);
            p.push(ldx_memsx(pick(rng, &SIZES[..3]), reg(rng), base, off));
        }
        70..=79 => {
            let (base, off) = place(rng);
            let (size, src) = (pick(rng, &SIZES), any(rng));
            p.push(if rng.bool() {
                stx_mem(size, base, src, off)
            } else {
                st_mem(size, base, off, imm(rng))
            });
        }
        80..=84 => {
            let (base, off) = place(rng);
            let plain = pick(rng, &[BPF_ADD, BPF_OR, BPF_AND, BPF_XOR]) as i32;
            let op = pick(rng, &[plain, plain | BPF_FETCH, BPF_XCHG, BPF_CMPXCHG]);
            p.push(atomic_op(pick(rng, &[BPF_W, BPF_DW]), op, base, reg(rng), off));
        }
        85 => p.extend(ld_imm64(reg(rng), rng.u64(..))),
        86 => p.extend(ld_map_fd(reg(rng), rng.i32(0..4))),
        87 => p.extend(ld_map_value(reg(rng), pick(rng, &[2, 2, 2, 0]), rng.i32(0..9))),
        88..=91 => {
            // A helper with arguments that may be right.
            p.extend([mov64_reg(2, 10), alu64_imm(BPF_ADD, 2, -8 * rng.i32(1..4)), mov64_reg(3, 2)]);
            p.extend(ld_map_fd(1, rng.i32(0..4)));
            p.push(mov64_imm(4, rng.i32(0..4)));
            p.push(emit_call(rng.i32(1..=3)));
            if rng.bool() {
                p.extend([jmp_imm(BPF_JEQ, 0, 0, 1), ldx_mem(pick(rng, &SIZES), 0, 0, rng.i16(-1..8))]);
            }
        }
        92..=93 => p.push(emit_call(pick(rng, &[5, 7, 8, 14, 15, 16, 6, 113, 195]))),
        94 => {
            p.extend(ld_map_fd(2, 3));
            p.extend([mov64_imm(3, rng.i32(-1..5)), emit_call(12)]);
        }
        95..=96 => p.push(call_rel(i32::from(to(rng, p.len())))),
        97..=98 => p.push(exit_insn()),
        _ => {
            let insn = BpfInsn::from_bytes(rng.u64(..).to_ne_bytes());
            // Raw bytes are refused nearly always, so few of them.
            p.push(if rng.u8(..4) == 0 { insn } else { mov64_imm(reg(rng), insn.imm) });
        }
    }
}

fn program(rng: &mut Rng) -> Vec<BpfInsn> {
    let len = rng.i64(2..32);
    let mut p = vec![];
    // Registers without values would make all arithmetic the same.
    for reg in 0..rng.u8(0..10) {
        if reg != 1 {
            p.push(mov64_imm(reg, imm(rng)));
        }
    }
    let len = len + p.len() as i64;
    while (p.len() as i64) < len {
        push(&mut p, rng, len);
    }
    p.extend([mov64_imm(0, 1), exit_insn()]);
    p
}

fn maps() -> Vec<Arc<Map>> {
    let attr = || MapAttr::array("map", 8, 1);
    let ro = map(attr().with_flags(BPF_F_RDONLY_PROG));
    ro.update_elem(&PlainEnv::default(), &[0; 4], b"constant", 0).unwrap();
    vec![array(4), map(MapAttr::array("percpu", 12, 3).of_type(MapType::PercpuArray)), ro, prog_array(4)]
}

#[test]
fn random_programs_are_refused_or_end() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let maps = maps();
    let env = PlainEnv::new(1);
    let opts = RunOpts { budget: 1000, len_in_r2: true };
    let (mut refused, mut faults, mut ended) = (0, 0, 0);
    for at in 0..PROGRAMS {
        let insns = program(&mut rng);
        let prog = match Program::load("random", &insns, maps.clone()) {
            Ok(prog) => Arc::new(prog),
            Err(e) => {
                assert!(e.insn < insns.len() && !e.reason.is_empty(), "{e}");
                refused += 1;
                continue;
            }
        };
        // The context in the middle: what is around it must stay.
        let mut memory = [0xa5u8; 192];
        rng.fill(&mut memory[64..128]);
        match bpf::run_with(&prog, &mut memory[64..128], &env, opts) {
            Ok(_) => ended += 1,
            Err(fault) => {
                assert!(!fault.to_string().is_empty() && !fault.kind.why().is_empty());
                faults += 1;
            }
        }
        let around = memory[..64].iter().chain(&memory[128..]);
        assert!(around.copied().all(|b| b == 0xa5), "program {at} wrote around its context: {insns:x?}");
        // Some become targets of tail calls. A program array keeps what was ever put in, so not too many.
        if at < 2000 {
            maps[3].prog_array().unwrap().update(rng.u32(..4), prog).unwrap();
        }
    }
    assert_eq!(maps[2].lookup_elem(&env, &[0; 4]).unwrap(), b"constant");
    println!("{refused} refused, {faults} ended by a fault, {ended} came to their end");
    assert!(faults + ended >= PROGRAMS / 2, "too few are accepted");
    assert!(ended >= PROGRAMS / 20 && faults >= PROGRAMS / 20, "both ways to end are tried");
}

#[test]
fn random_bytes_do_not_trouble_the_loader() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let maps = maps();
    for _ in 0..PROGRAMS {
        let mut insns: Vec<_> =
            (0..rng.usize(0..6)).map(|_| BpfInsn::from_bytes(rng.u64(..).to_ne_bytes())).collect();
        // Valid opcodes get further.
        for insn in &mut insns {
            insn.off %= 4;
            insn.imm %= 16;
            if rng.bool() {
                insn.regs &= 0x77;
            }
            if rng.bool() {
                insn.regs &= 0x0f;
            }
        }
        insns.push(exit_insn());
        if let Ok(prog) = Program::load("random", &insns, maps.clone()) {
            let opts = RunOpts { budget: 1000, ..RunOpts::default() };
            let _ = bpf::run_with(&prog, &mut [0; 16], &PlainEnv::default(), opts);
        }
    }
}
