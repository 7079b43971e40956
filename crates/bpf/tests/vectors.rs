//! One table a kind of instruction, with results written out by hand from RFC 9669, section 4 and 5 (where it
//! leaves a choice: from kernel/bpf/core.c, v6.6). Checked by eye, so values stand in the form that shows the
//! effect.

mod common;

use bpf::insn::*;
use bpf::{BpfInsn, PlainEnv, RunOpts};
use common::{insns, load, run, set};

/// -1, in 64 and 32 bits.
const M1: u64 = 0xffff_ffff_ffff_ffff;
const M1W: u64 = 0xffff_ffff;
/// The smallest signed number.
const MIN: u64 = 0x8000_0000_0000_0000;
const MINW: u64 = 0x8000_0000;
/// The high half set: must not show in a 32-bit result.
const HI: u64 = 0xdead_beef_0000_0000;

const fn neg(v: u64) -> u64 {
    v.wrapping_neg()
}

/// A signed division or modulo: the offset field is 1.
const SIGNED: i16 = 1;

/// (operation, offset, bits, left, right, result): run with the right operand in a register, and as an
/// immediate if it is one.
#[rustfmt::skip]
const BINARY: &[(u8, i16, u32, u64, u64, u64)] = &[
    (BPF_ADD, 0, 64, 1, 2, 3),
    (BPF_ADD, 0, 64, M1, 1, 0),
    (BPF_ADD, 0, 64, 0, M1, M1),
    (BPF_ADD, 0, 64, 0x7fff_ffff_ffff_ffff, 1, MIN),
    (BPF_ADD, 0, 64, 0xffff_ffff, 1, 0x1_0000_0000),
    (BPF_ADD, 0, 64, 5, neg(0x8000_0000), 0xffff_ffff_8000_0005),
    (BPF_ADD, 0, 32, 1, 2, 3),
    (BPF_ADD, 0, 32, HI | 1, HI | 2, 3),
    (BPF_ADD, 0, 32, M1, 1, 0),
    (BPF_ADD, 0, 32, 0x7fff_ffff, 1, MINW),
    (BPF_ADD, 0, 32, 0, M1, M1W),
    (BPF_SUB, 0, 64, 5, 3, 2),
    (BPF_SUB, 0, 64, 0, 1, M1),
    (BPF_SUB, 0, 64, MIN, 1, 0x7fff_ffff_ffff_ffff),
    (BPF_SUB, 0, 64, 0, M1, 1),
    (BPF_SUB, 0, 32, 5, 3, 2),
    (BPF_SUB, 0, 32, HI, 1, M1W),
    (BPF_SUB, 0, 32, MINW, 1, 0x7fff_ffff),
    (BPF_MUL, 0, 64, 6, 7, 42),
    (BPF_MUL, 0, 64, M1, M1, 1),
    (BPF_MUL, 0, 64, 0x1_0000_0000, 0x1_0000_0000, 0),
    (BPF_MUL, 0, 64, 3, neg(2), neg(6)),
    (BPF_MUL, 0, 32, 6, 7, 42),
    (BPF_MUL, 0, 32, 0x1_0001, 0x1_0001, 0x2_0001),
    (BPF_MUL, 0, 32, HI | 3, neg(2), 0xffff_fffa),
    (BPF_DIV, 0, 64, 42, 5, 8),
    (BPF_DIV, 0, 64, M1, 2, 0x7fff_ffff_ffff_ffff),
    (BPF_DIV, 0, 64, 10, M1, 0),          // unsigned: -1 is the largest
    (BPF_DIV, 0, 64, M1, M1, 1),
    (BPF_DIV, 0, 64, 42, 0, 0),           // by zero: 0
    (BPF_DIV, 0, 32, HI | 42, 5, 8),
    (BPF_DIV, 0, 32, M1, 2, 0x7fff_ffff),
    (BPF_DIV, 0, 32, 10, M1, 0),
    (BPF_DIV, 0, 32, HI | 42, 0, 0),
    (BPF_DIV, 0, 32, 42, HI, 0),          // the low half is zero
    (BPF_DIV, SIGNED, 64, neg(42), 5, neg(8)),
    (BPF_DIV, SIGNED, 64, 42, neg(5), neg(8)),
    (BPF_DIV, SIGNED, 64, neg(42), neg(5), 8),
    (BPF_DIV, SIGNED, 64, MIN, M1, MIN),  // MIN / -1 wraps
    (BPF_DIV, SIGNED, 64, neg(42), 0, 0),
    (BPF_DIV, SIGNED, 32, neg(42), 5, 0xffff_fff8),
    (BPF_DIV, SIGNED, 32, 42, neg(5), 0xffff_fff8),
    (BPF_DIV, SIGNED, 32, HI | (M1W - 41), neg(5), 8),
    (BPF_DIV, SIGNED, 32, MINW, M1, MINW),
    (BPF_DIV, SIGNED, 32, neg(42), 0, 0),
    (BPF_MOD, 0, 64, 42, 5, 2),
    (BPF_MOD, 0, 64, M1, 10, 5),
    (BPF_MOD, 0, 64, 10, M1, 10),
    (BPF_MOD, 0, 64, HI | 42, 0, HI | 42), // by zero: unchanged
    (BPF_MOD, 0, 32, HI | 42, 5, 2),
    (BPF_MOD, 0, 32, M1, 10, 5),
    (BPF_MOD, 0, 32, HI | 42, 0, 42),     // by zero: unchanged, cut to 32 bits
    (BPF_MOD, SIGNED, 64, neg(42), 5, neg(2)),
    (BPF_MOD, SIGNED, 64, 42, neg(5), 2), // the sign is the dividend's
    (BPF_MOD, SIGNED, 64, MIN, M1, 0),
    (BPF_MOD, SIGNED, 64, neg(42), 0, neg(42)),
    (BPF_MOD, SIGNED, 32, neg(42), 5, 0xffff_fffe),
    (BPF_MOD, SIGNED, 32, 42, neg(5), 2),
    (BPF_MOD, SIGNED, 32, MINW, M1, 0),
    (BPF_MOD, SIGNED, 32, HI | 42, 0, 42),
    (BPF_OR, 0, 64, 0b1100, 0b1010, 0b1110),
    (BPF_OR, 0, 64, 1, neg(0x8000_0000), 0xffff_ffff_8000_0001),
    (BPF_OR, 0, 32, HI | 0b1100, 0b1010, 0b1110),
    (BPF_OR, 0, 32, 1, neg(0x8000_0000), 0x8000_0001),
    (BPF_AND, 0, 64, 0b1100, 0b1010, 0b1000),
    (BPF_AND, 0, 64, M1, neg(0x8000_0000), 0xffff_ffff_8000_0000),
    (BPF_AND, 0, 32, M1, 0b1010, 0b1010),
    (BPF_AND, 0, 32, M1, neg(0x8000_0000), 0x8000_0000),
    (BPF_XOR, 0, 64, 0b1100, 0b1010, 0b0110),
    (BPF_XOR, 0, 64, 0, M1, M1),
    (BPF_XOR, 0, 32, HI | 0b1100, 0b1010, 0b0110),
    (BPF_XOR, 0, 32, HI, M1, M1W),
    (BPF_LSH, 0, 64, 1, 63, MIN),
    (BPF_LSH, 0, 64, 1, 64, 1),           // six bits of the count are used
    (BPF_LSH, 0, 64, 1, 65, 2),
    (BPF_LSH, 0, 64, 3, M1, MIN),
    (BPF_LSH, 0, 32, 1, 31, MINW),
    (BPF_LSH, 0, 32, HI | 1, 32, 1),      // five bits
    (BPF_LSH, 0, 32, 1, 33, 2),
    (BPF_LSH, 0, 32, 0x8000_0001, 1, 2),
    (BPF_RSH, 0, 64, M1, 63, 1),
    (BPF_RSH, 0, 64, MIN, 64, MIN),
    (BPF_RSH, 0, 64, 4, 65, 2),
    (BPF_RSH, 0, 32, M1, 31, 1),
    (BPF_RSH, 0, 32, HI | 4, 1, 2),       // the high half does not shift in
    (BPF_RSH, 0, 32, HI | 4, 33, 2),
    (BPF_ARSH, 0, 64, MIN, 63, M1),
    (BPF_ARSH, 0, 64, 0x7000_0000_0000_0000, 60, 7),
    (BPF_ARSH, 0, 64, neg(8), 66, neg(2)),
    (BPF_ARSH, 0, 32, MINW, 31, M1W),
    (BPF_ARSH, 0, 32, HI | 0x7000_0000, 28, 7),
    (BPF_ARSH, 0, 32, neg(8), 34, 0xffff_fffe),
    (BPF_MOV, 0, 64, 1, HI | 2, HI | 2),
    (BPF_MOV, 0, 64, 1, neg(2), neg(2)),  // an immediate is sign-extended
    (BPF_MOV, 0, 32, HI | 1, HI | 2, 2),
    (BPF_MOV, 0, 32, 1, neg(2), 0xffff_fffe),
    (BPF_MOV, 8, 64, 0, 0x17f, 0x7f),     // movsx: register form only
    (BPF_MOV, 8, 64, 0, 0x180, neg(0x80)),
    (BPF_MOV, 16, 64, 0, 0x1_7fff, 0x7fff),
    (BPF_MOV, 16, 64, 0, 0x1_8000, neg(0x8000)),
    (BPF_MOV, 32, 64, 0, 0x1_7fff_ffff, 0x7fff_ffff),
    (BPF_MOV, 32, 64, 0, 0x1_8000_0000, neg(0x8000_0000)),
    (BPF_MOV, 8, 32, 0, 0x17f, 0x7f),
    (BPF_MOV, 8, 32, HI, 0x180, 0xffff_ff80),
    (BPF_MOV, 16, 32, 0, 0x1_7fff, 0x7fff),
    (BPF_MOV, 16, 32, HI, 0x1_8000, 0xffff_8000),
];

#[test]
fn binary_operations() {
    let mut as_imm = 0;
    for &(op, off, bits, left, right, want) in BINARY {
        let class = if bits == 64 { BPF_ALU64 } else { BPF_ALU };
        let what = format!("op {op:#x} off {off} bits {bits}: {left:#x}, {right:#x}");
        // The source is r9, and comes back in r0 if the result is right: it must not change.
        let x = BpfInsn::new(class | op | BPF_X, 3, 9, off, 0);
        let p = insns(&[&set(3, left), &set(9, right), &[x, mov64_reg(0, 3), exit_insn()]]);
        assert_eq!(run(&p, &mut []).unwrap(), want, "{what} (register)");
        let p = insns(&[&set(3, left), &set(9, right), &[x, mov64_reg(0, 9), exit_insn()]]);
        assert_eq!(run(&p, &mut []).unwrap(), right, "{what}: the source changed");

        let imm = right as i32;
        let fits = bits == 32 || imm as u64 == right;
        let divides = matches!(op, BPF_DIV | BPF_MOD);
        let shifts = matches!(op, BPF_LSH | BPF_RSH | BPF_ARSH);
        let refused =
            divides && imm == 0 || shifts && !(0..bits as i32).contains(&imm) || op == BPF_MOV && off != 0;
        if fits && !refused {
            let k = BpfInsn::new(class | op | BPF_K, 3, 0, off, imm);
            let p = insns(&[&set(3, left), &[k, mov64_reg(0, 3), exit_insn()]]);
            assert_eq!(run(&p, &mut []).unwrap(), want, "{what} (immediate)");
            as_imm += 1;
        }
    }
    assert!(as_imm > 60, "{as_imm} rows also ran as immediates");
}

/// (class and operation, immediate, in, out)
#[rustfmt::skip]
const UNARY: &[(u8, i32, u64, u64)] = &[
    (BPF_ALU64 | BPF_NEG, 0, 1, M1),
    (BPF_ALU64 | BPF_NEG, 0, 0, 0),
    (BPF_ALU64 | BPF_NEG, 0, MIN, MIN),
    (BPF_ALU   | BPF_NEG, 0, 1, M1W),
    (BPF_ALU   | BPF_NEG, 0, HI | 1, M1W),
    (BPF_ALU   | BPF_NEG, 0, MINW, MINW),
    (BPF_ALU   | BPF_END | BPF_TO_LE, 16, 0x8877_6655_4433_2211, 0x2211),
    (BPF_ALU   | BPF_END | BPF_TO_LE, 32, 0x8877_6655_4433_2211, 0x4433_2211),
    (BPF_ALU   | BPF_END | BPF_TO_LE, 64, 0x8877_6655_4433_2211, 0x8877_6655_4433_2211),
    (BPF_ALU   | BPF_END | BPF_TO_BE, 16, 0x8877_6655_4433_2211, 0x1122),
    (BPF_ALU   | BPF_END | BPF_TO_BE, 32, 0x8877_6655_4433_2211, 0x1122_3344),
    (BPF_ALU   | BPF_END | BPF_TO_BE, 64, 0x8877_6655_4433_2211, 0x1122_3344_5566_7788),
    (BPF_ALU64 | BPF_END, 16, 0x8877_6655_4433_2211, 0x1122),
    (BPF_ALU64 | BPF_END, 32, 0x8877_6655_4433_2211, 0x1122_3344),
    (BPF_ALU64 | BPF_END, 64, 0x8877_6655_4433_2211, 0x1122_3344_5566_7788),
];

#[test]
#[cfg(target_endian = "little")]
fn unary_operations() {
    for &(code, imm, input, want) in UNARY {
        let p = insns(&[&set(7, input), &[BpfInsn::new(code, 7, 0, 0, imm), mov64_reg(0, 7), exit_insn()]]);
        assert_eq!(run(&p, &mut []).unwrap(), want, "{code:#x} imm {imm}: {input:#x}");
    }
}

/// (operation, left, right, taken in 64 bits, taken in 32 bits)
#[rustfmt::skip]
const JUMPS: &[(u8, u64, u64, bool, bool)] = &[
    (BPF_JEQ, 1, 1, true, true),
    (BPF_JEQ, 1, 2, false, false),
    (BPF_JEQ, HI | 1, 1, false, true),
    (BPF_JEQ, M1, M1, true, true),       // an immediate is sign-extended
    (BPF_JEQ, M1W, M1, false, true),
    (BPF_JNE, 1, 1, false, false),
    (BPF_JNE, 1, 2, true, true),
    (BPF_JNE, HI | 1, 1, true, false),
    (BPF_JGT, 2, 1, true, true),
    (BPF_JGT, 1, 1, false, false),
    (BPF_JGT, M1, 1, true, true),        // unsigned
    (BPF_JGT, 1, M1, false, false),
    (BPF_JGT, HI, 1, true, false),
    (BPF_JGE, 1, 1, true, true),
    (BPF_JGE, 0, 1, false, false),
    (BPF_JGE, M1, 1, true, true),
    (BPF_JGE, HI, 1, true, false),
    (BPF_JLT, 1, 2, true, true),
    (BPF_JLT, 1, 1, false, false),
    (BPF_JLT, 1, M1, true, true),
    (BPF_JLT, HI, 1, false, true),
    (BPF_JLE, 1, 1, true, true),
    (BPF_JLE, 2, 1, false, false),
    (BPF_JLE, M1, 1, false, false),
    (BPF_JLE, HI, 1, false, true),
    (BPF_JSGT, 1, M1, true, true),       // signed
    (BPF_JSGT, M1, 1, false, false),
    (BPF_JSGT, 1, 1, false, false),
    (BPF_JSGT, M1W, 0, true, false),
    (BPF_JSGE, 1, 1, true, true),
    (BPF_JSGE, M1, 0, false, false),
    (BPF_JSGE, 0, M1, true, true),
    (BPF_JSGE, MINW, 0, true, false),
    (BPF_JSLT, M1, 1, true, true),
    (BPF_JSLT, 1, M1, false, false),
    (BPF_JSLT, 1, 1, false, false),
    (BPF_JSLT, MINW, 0, false, true),
    (BPF_JSLE, 1, 1, true, true),
    (BPF_JSLE, M1, 0, true, true),
    (BPF_JSLE, 1, M1, false, false),
    (BPF_JSLE, M1W, 0, false, true),
    (BPF_JSET, 0b110, 0b010, true, true),
    (BPF_JSET, 0b100, 0b010, false, false),
    (BPF_JSET, HI, M1, true, false),
];

#[test]
fn conditional_jumps() {
    for &(op, left, right, taken64, taken32) in JUMPS {
        for (class, taken) in [(BPF_JMP, taken64), (BPF_JMP32, taken32)] {
            let x = BpfInsn::new(class | op | BPF_X, 3, 4, 1, 0);
            let k = BpfInsn::new(class | op | BPF_K, 3, 0, 1, right as i32);
            let fits = class == BPF_JMP32 || right as i32 as u64 == right;
            for jump in [Some(x), fits.then_some(k)].into_iter().flatten() {
                let tail = [mov64_imm(0, 1), jump, mov64_imm(0, 0), exit_insn()];
                let p = insns(&[&set(3, left), &set(4, right), &tail]);
                let what = format!("{:#x}: {left:#x}, {right:#x}", jump.code);
                assert_eq!(run(&p, &mut []).unwrap(), u64::from(taken), "{what}");
            }
        }
    }
}

#[test]
fn plain_jumps_go_both_ways_and_far() {
    let there_and_back = [
        jmp_a(2),         // 0 -> 3
        mov64_imm(0, 42), // 1
        exit_insn(),      // 2
        jmp32_a(-3),      // 3 -> 1
    ];
    assert_eq!(run(&there_and_back, &mut []), Ok(42));
    // gotol reaches what 16 bits do not.
    let filler = vec![mov64_imm(0, 1); 100_000];
    let p = insns(&[&[jmp32_a(100_000)], &filler, &[mov64_imm(0, 7), exit_insn()]]);
    assert_eq!(run(&p, &mut []), Ok(7));
}

#[test]
fn a_wide_immediate_is_all_64_bits_and_counts_as_two_slots() {
    for v in [0, 1, M1, MIN, M1W, MINW, 0x1122_3344_5566_7788, 0xffff_ffff_0000_0000] {
        let p = insns(&[&[jmp_a(2)], &ld_imm64(0, 0), &ld_imm64(0, v), &[exit_insn()]]);
        assert_eq!(run(&p, &mut []), Ok(v), "{v:#x}");
    }
}

const MEM: [u8; 16] =
    [0x01, 0x82, 0x03, 0x84, 0x05, 0x86, 0x07, 0x88, 0x11, 0x12, 0x13, 0x94, 0x15, 0x16, 0x17, 0x98];

type Load = fn(u8, u8, u8, i16) -> BpfInsn;

/// (load, width, offset, result)
#[rustfmt::skip]
const LOADS: &[(Load, u8, i16, u64)] = &[
    (ldx_mem, BPF_B, 0, 0x01),
    (ldx_mem, BPF_B, 1, 0x82),
    (ldx_mem, BPF_B, 15, 0x98),
    (ldx_mem, BPF_H, 0, 0x8201),
    (ldx_mem, BPF_H, 1, 0x0382),
    (ldx_mem, BPF_H, 14, 0x9817),
    (ldx_mem, BPF_W, 0, 0x8403_8201),
    (ldx_mem, BPF_W, 3, 0x0786_0584),
    (ldx_mem, BPF_W, 12, 0x9817_1615),
    (ldx_mem, BPF_DW, 0, 0x8807_8605_8403_8201),
    (ldx_mem, BPF_DW, 5, 0x1594_1312_1188_0786),
    (ldx_mem, BPF_DW, 8, 0x9817_1615_9413_1211),
    (ldx_memsx, BPF_B, 0, 0x01),
    (ldx_memsx, BPF_B, 1, 0xffff_ffff_ffff_ff82),
    (ldx_memsx, BPF_H, 0, 0xffff_ffff_ffff_8201),
    (ldx_memsx, BPF_H, 1, 0x0382),
    (ldx_memsx, BPF_W, 0, 0xffff_ffff_8403_8201),
    (ldx_memsx, BPF_W, 1, 0x0584_0382),
];

#[test]
#[cfg(target_endian = "little")]
fn loads_of_each_width_at_any_alignment() {
    for &(load, size, off, want) in LOADS {
        let p = [load(size, 0, 1, off), exit_insn()];
        assert_eq!(run(&p, &mut MEM.clone()), Ok(want), "{:#x} at {off}", p[0].code);
        // The same with the base behind the memory and a negative offset.
        let p = [alu64_imm(BPF_ADD, 1, 16), load(size, 0, 1, off - 16), exit_insn()];
        assert_eq!(run(&p, &mut MEM.clone()), Ok(want), "{:#x} at {off} - 16", p[1].code);
    }
}

/// (width, offset, value, bytes of a zeroed context from the offset)
#[rustfmt::skip]
const STORES: &[(u8, i16, u64, &[u8])] = &[
    (BPF_B, 0, 0x1122_3344, &[0x44, 0]),
    (BPF_B, 15, neg(1), &[0xff]),
    (BPF_H, 1, 0x1122_3344, &[0x44, 0x33, 0]),
    (BPF_W, 3, 0x1122_3344, &[0x44, 0x33, 0x22, 0x11, 0]),
    (BPF_W, 4, neg(2), &[0xfe, 0xff, 0xff, 0xff, 0]),
    (BPF_DW, 0, 0x1122_3344, &[0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0, 0]),
    (BPF_DW, 5, neg(2), &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0]), // sign-extended
];

#[test]
#[cfg(target_endian = "little")]
fn stores_of_each_width_at_any_alignment() {
    for &(size, off, v, want) in STORES {
        let st = insns(&[&[st_mem(size, 1, off, v as i32), mov64_imm(0, 0), exit_insn()]]);
        let stx = insns(&[&set(5, v), &[stx_mem(size, 1, 5, off), mov64_imm(0, 0), exit_insn()]]);
        for p in [st, stx] {
            let mut mem = [0; 16];
            run(&p, &mut mem).unwrap();
            let (before, after) = mem.split_at(off as usize);
            assert_eq!((before, &after[..want.len()]), (&vec![0; off as usize][..], want), "{p:x?}");
        }
    }
}

/// What an atomic finds and leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
struct State {
    mem: u64,
    src: u64,
    r0: u64,
}

const fn st(mem: u64, src: u64, r0: u64) -> State {
    State { mem, src, r0 }
}

/// A pattern for what must not change.
const R0: u64 = 0x0123_4567_89ab_cdef;

/// (operation, bits, before, after)
#[rustfmt::skip]
const ATOMICS: &[(i32, u32, State, State)] = &[
    (BPF_ADD as i32, 64, st(M1, 2, R0), st(1, 2, R0)),
    (BPF_OR  as i32, 64, st(0b1100, 0b1010, R0), st(0b1110, 0b1010, R0)),
    (BPF_AND as i32, 64, st(0b1100, 0b1010, R0), st(0b1000, 0b1010, R0)),
    (BPF_XOR as i32, 64, st(0b1100, 0b1010, R0), st(0b0110, 0b1010, R0)),
    (BPF_ADD as i32 | BPF_FETCH, 64, st(M1, 2, R0), st(1, M1, R0)),
    (BPF_OR  as i32 | BPF_FETCH, 64, st(0b1100, 0b1010, R0), st(0b1110, 0b1100, R0)),
    (BPF_AND as i32 | BPF_FETCH, 64, st(0b1100, 0b1010, R0), st(0b1000, 0b1100, R0)),
    (BPF_XOR as i32 | BPF_FETCH, 64, st(0b1100, 0b1010, R0), st(0b0110, 0b1100, R0)),
    (BPF_XCHG, 64, st(HI | 1, 2, R0), st(2, HI | 1, R0)),
    (BPF_CMPXCHG, 64, st(HI | 1, 2, HI | 1), st(2, 2, HI | 1)),
    (BPF_CMPXCHG, 64, st(HI | 1, 2, 1), st(HI | 1, 2, HI | 1)),
    // 32 bits: the high half of memory stays, of a register that gets the old value goes.
    (BPF_ADD as i32, 32, st(HI | M1W, HI | 2, R0), st(HI | 1, HI | 2, R0)),
    (BPF_OR  as i32, 32, st(HI | 0b1100, 0b1010, R0), st(HI | 0b1110, 0b1010, R0)),
    (BPF_AND as i32, 32, st(HI | 0b1100, 0b1010, R0), st(HI | 0b1000, 0b1010, R0)),
    (BPF_XOR as i32, 32, st(HI | 0b1100, 0b1010, R0), st(HI | 0b0110, 0b1010, R0)),
    (BPF_ADD as i32 | BPF_FETCH, 32, st(HI | M1W, HI | 2, R0), st(HI | 1, M1W, R0)),
    (BPF_OR  as i32 | BPF_FETCH, 32, st(HI | 0b1100, HI | 0b1010, R0), st(HI | 0b1110, 0b1100, R0)),
    (BPF_AND as i32 | BPF_FETCH, 32, st(HI | 0b1100, HI | 0b1010, R0), st(HI | 0b1000, 0b1100, R0)),
    (BPF_XOR as i32 | BPF_FETCH, 32, st(HI | 0b1100, HI | 0b1010, R0), st(HI | 0b0110, 0b1100, R0)),
    (BPF_XCHG, 32, st(HI | 1, HI | 2, R0), st(HI | 2, 1, R0)),
    (BPF_CMPXCHG, 32, st(HI | 1, 2, 1), st(HI | 2, 2, 1)),
    (BPF_CMPXCHG, 32, st(HI | 1, 2, MIN | 1), st(HI | 2, 2, 1)), // only the low half is compared
    (BPF_CMPXCHG, 32, st(HI | 1, 2, 3), st(HI | 1, 2, 1)),
];

#[test]
#[cfg(target_endian = "little")]
fn atomics() {
    for &(op, bits, before, after) in ATOMICS {
        let size = if bits == 64 { BPF_DW } else { BPF_W };
        let p = insns(&[
            &set(0, before.mem),
            &[stx_mem(BPF_DW, 10, 0, -8)],
            &set(0, before.r0),
            &set(2, before.src),
            &[atomic_op(size, op, 10, 2, -8)],
            &[ldx_mem(BPF_DW, 3, 10, -8), stx_mem(BPF_DW, 1, 3, 0)],
            &[stx_mem(BPF_DW, 1, 2, 8), stx_mem(BPF_DW, 1, 0, 16), exit_insn()],
        ]);
        let mut out = [0; 24];
        run(&p, &mut out).unwrap();
        let [mem, src, r0] = [0, 8, 16].map(|at| u64::from_ne_bytes(*out[at..].first_chunk().unwrap()));
        assert_eq!(State { mem, src, r0 }, after, "op {op:#x} bits {bits}");
    }
    // fetch-add with the source r0, and with destination and source one register (an address by accident).
    let p = [
        st_mem(BPF_DW, 10, -8, 5),
        mov64_imm(0, 2),
        atomic_op(BPF_DW, BPF_ADD as i32 | BPF_FETCH, 10, 0, -8),
        exit_insn(),
    ];
    assert_eq!(run(&p, &mut []), Ok(5));
}

#[test]
fn packet_loads_are_big_endian_and_a_miss_returns_0() {
    let ld_abs = |size, imm| BpfInsn::new(BPF_LD | BPF_ABS | size, 0, 0, 0, imm);
    let ld_ind = |size, src, imm| BpfInsn::new(BPF_LD | BPF_IND | size, 0, src, 0, imm);
    for (insn, want) in [
        (ld_abs(BPF_B, 1), 0x82),
        (ld_abs(BPF_H, 1), 0x8203),
        (ld_abs(BPF_W, 0), 0x0182_0384),
        (ld_abs(BPF_W, 12), 0x1516_1798),
        (ld_ind(BPF_B, 7, 1), 0x84),
        (ld_ind(BPF_H, 7, 0), 0x0384),
        (ld_ind(BPF_W, 7, -2), 0x0182_0384),
    ] {
        let p = [mov64_reg(6, 1), mov64_imm(7, 2), insn, exit_insn()];
        assert_eq!(run(&p, &mut MEM.clone()), Ok(want), "{insn:x?}");
    }
    for insn in
        [ld_abs(BPF_B, 16), ld_abs(BPF_H, 15), ld_abs(BPF_W, 13), ld_abs(BPF_W, -4), ld_ind(BPF_B, 7, -3)]
    {
        let p = [mov64_reg(6, 1), mov64_imm(7, 2), insn, mov64_imm(0, 1), exit_insn()];
        assert_eq!(run(&p, &mut MEM.clone()), Ok(0), "{insn:x?}");
    }
}

#[test]
fn a_call_has_its_own_frame_and_keeps_r6_to_r9() {
    let p = [
        mov64_imm(6, 60),            // 0
        mov64_imm(9, 90),            // 1
        st_mem(BPF_DW, 10, -8, 1),   // 2
        mov64_imm(1, 5),             // 3
        call_rel(6),                 // 4 -> 11
        alu64_reg(BPF_ADD, 0, 6),    // 5
        alu64_reg(BPF_ADD, 0, 9),    // 6
        ldx_mem(BPF_DW, 1, 10, -8),  // 7
        alu64_imm(BPF_MUL, 1, 1000), // 8
        alu64_reg(BPF_ADD, 0, 1),    // 9
        exit_insn(),                 // 10
        ldx_mem(BPF_DW, 0, 10, -8),  // 11: its own frame, zeroed
        st_mem(BPF_DW, 10, -8, 7),   // 12
        mov64_imm(6, 1),             // 13
        mov64_imm(9, 1),             // 14
        alu64_reg(BPF_ADD, 0, 1),    // 15: the argument
        exit_insn(),                 // 16
    ];
    assert_eq!(run(&p, &mut []), Ok(1000 + 60 + 90 + 5));
    // A pointer to the caller's frame works in the callee.
    let p = [
        mov64_reg(1, 10),
        call_rel(2),
        ldx_mem(BPF_DW, 0, 10, -512),
        exit_insn(),
        st_mem(BPF_DW, 1, -512, 33),
        exit_insn(),
    ];
    assert_eq!(run(&p, &mut []), Ok(33));
}

#[test]
fn r1_is_the_context_and_r2_its_length_if_asked() {
    let prog = load(&[mov64_reg(0, 2), exit_insn()], vec![]);
    let (mut mem, env) = ([0; 5], PlainEnv::default());
    assert_eq!(bpf::run(&prog, &mut mem, &env), Ok(0));
    let opts = RunOpts { len_in_r2: true, ..RunOpts::default() };
    assert_eq!(bpf::run_with(&prog, &mut mem, &env, opts), Ok(5));
    let prog = load(&[mov64_reg(0, 1), exit_insn()], vec![]);
    assert_eq!(bpf::run(&prog, &mut mem, &env), Ok(mem.as_ptr() as u64));
}
