//! The assembler and the disassembler: every form of instruction by its text and its bytes, round trips, refusals.

use bpf::Program;
use bpf::asm::assemble;
use bpf::disasm::{Listing, disassemble};
use bpf::insn::*;

/// Each form once: what the kernel prints, and the instruction's eight bytes (sixteen for wide immediates).
#[rustfmt::skip]
const FORMS: &[(&str, &str)] = &[
    // Arithmetic.
    ("r1 += r2", "0f21000000000000"), ("w1 += w2", "0c21000000000000"),
    ("r1 += 5", "0701000005000000"), ("w1 += -5", "04010000fbffffff"),
    ("r1 -= r2", "1f21000000000000"), ("w1 -= 5", "1401000005000000"),
    ("r1 *= r2", "2f21000000000000"), ("w1 *= 5", "2401000005000000"),
    ("r1 /= r2", "3f21000000000000"), ("w1 /= 5", "3401000005000000"),
    ("r1 s/= r2", "3f21010000000000"), ("w1 s/= 5", "3401010005000000"),
    ("r1 |= r2", "4f21000000000000"), ("w1 |= 5", "4401000005000000"),
    ("r1 &= r2", "5f21000000000000"), ("w1 &= 5", "5401000005000000"),
    ("r1 <<= r2", "6f21000000000000"), ("w1 <<= 5", "6401000005000000"),
    ("r1 >>= r2", "7f21000000000000"), ("w1 >>= 5", "7401000005000000"),
    ("r1 = -r1", "8701000000000000"), ("w1 = -w1", "8401000000000000"),
    ("r1 %= r2", "9f21000000000000"), ("w1 %= 5", "9401000005000000"),
    ("r1 s%= r2", "9f21010000000000"), ("w1 s%= 5", "9401010005000000"),
    ("r1 ^= r2", "af21000000000000"), ("w1 ^= 5", "a401000005000000"),
    ("r1 = r2", "bf21000000000000"), ("w1 = w2", "bc21000000000000"),
    ("r1 = 5", "b701000005000000"), ("w1 = -1", "b4010000ffffffff"),
    ("r1 s>>= r2", "cf21000000000000"), ("w1 s>>= 5", "c401000005000000"),
    ("r1 = (s8)r2", "bf21080000000000"), ("r1 = (s16)r2", "bf21100000000000"), ("r1 = (s32)r2", "bf21200000000000"),
    ("w1 = (s8)w2", "bc21080000000000"), ("w1 = (s16)w2", "bc21100000000000"),
    ("r1 = le16 r1", "d401000010000000"), ("r1 = le32 r1", "d401000020000000"), ("r1 = le64 r1", "d401000040000000"),
    ("r1 = be16 r1", "dc01000010000000"), ("r1 = be32 r1", "dc01000020000000"), ("r1 = be64 r1", "dc01000040000000"),
    ("r1 = bswap16 r1", "d701000010000000"), ("r1 = bswap32 r1", "d701000020000000"),
    ("r1 = bswap64 r1", "d701000040000000"),
    // Jumps.
    ("goto pc+3", "0500030000000000"), ("goto pc-1", "0500ffff00000000"), ("gotol pc+70000", "0600000070110100"),
    ("if r1 == r2 goto pc+1", "1d21010000000000"), ("if w1 == 0x5 goto pc+1", "1601010005000000"),
    ("if r1 > r2 goto pc+1", "2d21010000000000"), ("if w1 > 0x5 goto pc+1", "2601010005000000"),
    ("if r1 >= r2 goto pc+1", "3d21010000000000"), ("if w1 >= 0x5 goto pc+1", "3601010005000000"),
    ("if r1 & r2 goto pc+1", "4d21010000000000"), ("if w1 & 0x5 goto pc+1", "4601010005000000"),
    ("if r1 != r2 goto pc+1", "5d21010000000000"), ("if w1 != 0x5 goto pc+1", "5601010005000000"),
    ("if r1 s> 0xffffffff goto pc-2", "6501feffffffffff"), ("if w1 s> w2 goto pc+1", "6e21010000000000"),
    ("if r1 s>= r2 goto pc+1", "7d21010000000000"), ("if w1 s>= 0x5 goto pc+1", "7601010005000000"),
    ("if r1 < r2 goto pc+1", "ad21010000000000"), ("if w1 < 0x5 goto pc+1", "a601010005000000"),
    ("if r1 <= r2 goto pc+1", "bd21010000000000"), ("if w1 <= 0x5 goto pc+1", "b601010005000000"),
    ("if r1 s< r2 goto pc+1", "cd21010000000000"), ("if w1 s< 0x5 goto pc+1", "c601010005000000"),
    ("if r1 s<= r2 goto pc+1", "dd21010000000000"), ("if w1 s<= 0x5 goto pc+1", "d601010005000000"),
    ("exit", "9500000000000000"), ("call pc+2", "8510000002000000"), ("call pc-2", "85100000feffffff"),
    ("call bpf_map_lookup_elem#1", "8500000001000000"), ("call unknown#9999", "850000000f270000"),
    ("call kernel-function#7", "8520000007000000"),
    // Memory.
    ("r1 = *(u8 *)(r2 +0)", "7121000000000000"), ("r1 = *(u16 *)(r2 -2)", "6921feff00000000"),
    ("r1 = *(u32 *)(r2 +4)", "6121040000000000"), ("r1 = *(u64 *)(r2 +8)", "7921080000000000"),
    ("r1 = *(s8 *)(r2 +0)", "9121000000000000"), ("r1 = *(s16 *)(r2 +0)", "8921000000000000"),
    ("r1 = *(s32 *)(r2 +0)", "8121000000000000"),
    ("*(u8 *)(r10 -1) = r1", "731affff00000000"), ("*(u16 *)(r10 -2) = r1", "6b1afeff00000000"),
    ("*(u32 *)(r10 -4) = r1", "631afcff00000000"), ("*(u64 *)(r10 -8) = r1", "7b1af8ff00000000"),
    ("*(u8 *)(r1 +0) = 7", "7201000007000000"), ("*(u16 *)(r1 +0) = 7", "6a01000007000000"),
    ("*(u32 *)(r1 +0) = -7", "62010000f9ffffff"), ("*(u64 *)(r1 +0) = 7", "7a01000007000000"),
    ("r0 = *(u8 *)skb[14]", "300000000e000000"), ("r0 = *(u16 *)skb[12]", "280000000c000000"),
    ("r0 = *(u32 *)skb[-4]", "20000000fcffffff"), ("r0 = *(u8 *)skb[r1 + 14]", "501000000e000000"),
    ("r0 = *(u16 *)skb[r1 + -2]", "48100000feffffff"), ("r0 = *(u32 *)skb[r1 + 0]", "4010000000000000"),
    // Atomics.
    ("lock *(u64 *)(r1 +0) += r2", "db21000000000000"), ("lock *(u32 *)(r1 +4) += r2", "c321040000000000"),
    ("lock *(u64 *)(r1 +0) |= r2", "db21000040000000"), ("lock *(u32 *)(r1 +0) &= r2", "c321000050000000"),
    ("lock *(u64 *)(r1 +0) ^= r2", "db210000a0000000"),
    ("r2 = atomic64_fetch_add((u64 *)(r1 +0), r2)", "db21000001000000"),
    ("r2 = atomic_fetch_or((u32 *)(r1 +0), r2)", "c321000041000000"),
    ("r2 = atomic64_fetch_and((u64 *)(r1 -8), r2)", "db21f8ff51000000"),
    ("r2 = atomic_fetch_xor((u32 *)(r1 +0), r2)", "c3210000a1000000"),
    ("r2 = atomic64_xchg((u64 *)(r1 +0), r2)", "db210000e1000000"),
    ("r2 = atomic_xchg((u32 *)(r1 +0), r2)", "c3210000e1000000"),
    ("r0 = atomic64_cmpxchg((u64 *)(r1 +0), r0, r2)", "db210000f1000000"),
    ("r0 = atomic_cmpxchg((u32 *)(r1 +0), r0, r2)", "c3210000f1000000"),
    // Wide immediates.
    ("r1 = 0x5 ll", "18010000050000000000000000000000"),
    ("r1 = 0x8877665544332211 ll", "18010000112233440000000055667788"),
    ("r1 = map[id:3]", "18110000030000000000000000000000"),
    ("r1 = map[id:3][0]+8", "18210000030000000000000008000000"),
    ("r1 = btf_id[9]", "18310000090000000000000000000000"),
    ("r1 = subprog[+4]", "18410000040000000000000000000000"),
    ("r1 = map[idx:2]", "18510000020000000000000000000000"),
    ("r1 = map[idx:2]+16", "18610000020000000000000010000000"),
    // What the kernel's form does not say in full.
    (".insn ff00000000000000", "ff00000000000000"),
    (".insn b711000005000000", "b711000005000000"),
    (".insn 9500000001000000", "9500000001000000"),
    (".insn 0f2b000000000000", "0f2b000000000000"),
];

fn program(hex: &str) -> Vec<BpfInsn> {
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
    from_bytes(&bytes).unwrap()
}

#[test]
fn every_form_has_its_bytes_both_ways() {
    for &(text, hex) in FORMS {
        assert_eq!(disassemble(&program(hex)), format!("{text}\n"), "{hex}");
        assert_eq!(assemble(text), Ok(program(hex)), "{text}");
    }
}

/// What can be loaded is printed in words, not raw.
#[test]
fn every_opcode_that_loads_has_a_form() {
    let mut loaded = std::collections::BTreeSet::new();
    for code in 0..=255u8 {
        for (regs, off, imm) in combinations([0x00, 0x21, 0x10], [0, 1, 8], [0, 1, 5, 16, 0x40, 0xe1, 0xf1]) {
            let insn = BpfInsn { code, regs, off, imm };
            let second = if insn.is_ld_imm64() { BpfInsn::default() } else { exit_insn() };
            let prog = [&[insn, second][..], &[exit_insn(); 9]].concat();
            if Program::load("form", &prog, vec![]).is_ok() {
                loaded.insert(code);
                let text = disassemble(&prog);
                // The kernel accepts an exit with an offset, which its text does not show.
                let exit_with_offset = insn.code == exit_insn().code && insn.off != 0;
                assert!(exit_with_offset || !text.contains(".insn"), "{insn:?}: {text}");
            }
        }
    }
    // 12 operations x 2 widths x 2 operands, 2 negations, 3 conversions; 11 conditions x 2 x 2, 2 gotos, call, exit;
    // 7 loads, 4 + 4 stores, 2 atomics, 6 packet loads, 1 wide immediate.
    assert_eq!(loaded.len(), 12 * 4 + 2 + 3 + 11 * 4 + 4 + 7 + 8 + 2 + 6 + 1);
}

/// All combinations of three fields.
fn combinations<const A: usize, const B: usize, const C: usize>(
    regs: [u8; A],
    offs: [i16; B],
    imms: [i32; C],
) -> impl Iterator<Item = (u8, i16, i32)> {
    regs.into_iter()
        .flat_map(move |r| offs.into_iter().flat_map(move |o| imms.into_iter().map(move |i| (r, o, i))))
}

/// Random fields under every opcode, valid or not, come back as they were; and so does the numbered listing.
#[test]
fn random_programs_round_trip() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..if cfg!(debug_assertions) { 300 } else { 5_000 } {
        let prog: Vec<BpfInsn> = (0..rng.usize(1..40))
            .flat_map(|_| {
                // Zero is the most likely value of a field that is reserved.
                let mut field = |of: &[i32]| if rng.bool() { of[rng.usize(..of.len())] } else { rng.i32(..) };
                let code = field(&[0x18, 0xb7, 0xdb, 0xc3, 0x85, 0x07, 0x61]) as u8;
                let insn = BpfInsn {
                    code,
                    regs: field(&[0, 0x21, 0x10, 0x01]) as u8,
                    off: field(&[0, 1, 8, -8]) as i16,
                    imm: field(&[0, 1, 16, 0xe1, 0xf1, 0x41, -1]),
                };
                let second = BpfInsn::new(0, 0, 0, 0, field(&[0, 7]));
                if insn.is_ld_imm64() { vec![insn, second] } else { vec![insn] }
            })
            .collect();
        assert_eq!(assemble(&disassemble(&prog)).as_ref(), Ok(&prog));
        assert_eq!(assemble(&Listing(&prog).to_string()).as_ref(), Ok(&prog));
    }
}

#[test]
fn listing_looks_like_the_kernels() {
    let prog = [&ld_map_fd(1, 7)[..], &[mov64_imm(0, 0), exit_insn()]].concat();
    assert_eq!(Listing(&prog).to_string(), "   0: (18) r1 = map[id:7]\n   2: (b7) r0 = 0\n   3: (95) exit\n");
}

#[test]
fn labels_comments_and_short_forms() {
    let text = "
        ; counts down
        start:  r1 = 3
        again: r1 -= 1          // one less
                if r1 != 0 goto again
        call ktime_get_ns
        call 5
        call bpf_ktime_get_ns
        call twice
        r2 = *(u32*)(r10-4)
        r3 = *(u8 *)( r10 )
        r4 = 0xffffffff
        r5 = -1 ll
        gotol start
        end: exit
        twice:
        r0 += r0
        goto end2
        end2: exit
    ";
    let call = emit_call(5);
    let minus_one = ld_imm64(5, u64::MAX);
    let want = [
        mov64_imm(1, 3),
        alu64_imm(BPF_SUB, 1, 1),
        jmp_imm(BPF_JNE, 1, 0, -2),
        call,
        call,
        call,
        call_rel(7),
        ldx_mem(BPF_W, 2, 10, -4),
        ldx_mem(BPF_B, 3, 10, 0),
        mov64_imm(4, -1),
        minus_one[0],
        minus_one[1],
        jmp32_a(-13),
        exit_insn(),
        alu64_reg(BPF_ADD, 0, 0),
        jmp_a(0),
        exit_insn(),
    ];
    assert_eq!(assemble(text).unwrap(), want);
}

/// Line, column and sentence of every refusal.
#[test]
fn mistakes_are_named_with_their_place() {
    for (text, want) in [
        ("frob", "1:1: expected an instruction"),
        ("exit\n\n  r1 ? 5", "3:6: expected an operation, as = or +="),
        ("r1 =", "1:5: expected a register or a number"),
        ("r1 = 0xfffffffff", "1:6: 68719476735 does not fit 32 bits"),
        ("r1 = 99999999999999999999", "1:6: '99999999999999999999' is not a number of 64 bits"),
        ("r1 = 0xzz", "1:6: '0xzz' is not a number of 64 bits"),
        ("r11 = 5", "1:1: there is no register r11: they are r0 to r10 and w0 to w10"),
        ("r1 += w2", "1:7: both registers must be r, or both w"),
        ("w1 = 5 ll", "1:8: the instruction should end here"),
        ("r1 = -r2", "1:6: a register can only be negated into itself"),
        ("r1 = be16 r2", "1:6: a register can only be converted into itself"),
        ("w1 = (s32)w2", "1:6: expected a sign extension: (s8), (s16), or for r registers (s32)"),
        ("w1 = *(u32 *)(r1 +0)", "1:6: only an r register can hold that"),
        ("r1 = *(u24 *)(r1 +0)", "1:8: expected a type: u8, u16, u32, u64, s8, s16 or s32"),
        ("r1 = *(u32 *)(r1 +40000)", "1:18: 40000 does not fit the 16 bits of an offset"),
        ("r1 = *(u32 *)(w1 +0)", "1:15: r1 is needed here, in full width"),
        ("*(s8 *)(r1 +0) = 1", "1:2: the type must be unsigned here"),
        ("r1 = *(u8 *)skb[1]", "1:7: packet loads are u8, u16 or u32, into r0"),
        ("lock *(u8 *)(r1 +0) += r2", "1:7: atomic operations are u32 or u64"),
        ("lock *(u64 *)(r1 +0) -= r2", "1:22: expected an atomic operation: +=, |=, &= or ^="),
        ("r1 = atomic64_xchg((u64 *)(r1 +0), r2)", "1:19: the old value is returned into the operand, r2"),
        ("r1 = atomic64_swap((u64 *)(r1 +0), r1)", "1:19: there is no such atomic operation"),
        ("r1 = map[id:1]+4", "1:17: an address in a value is written map[id:N][0]+OFFSET"),
        ("goto nowhere", "1:6: there is no label or helper 'nowhere'"),
        ("goto 5", "1:6: expected pc+N, pc-N, or a label"),
        ("goto pc+40000", "1:14: 40000 does not fit the 16 bits of an offset"),
        ("if r1 = 5 goto pc+1", "1:7: expected a comparison"),
        ("if r1 == 5 go", "1:12: expected 'goto'"),
        ("a: exit\na: exit", "2:1: label 'a' exists already"),
        ("call bpf_map_lookup_elem#2", "1:6: helper #2 is bpf_map_update_elem, not bpf_map_lookup_elem"),
        ("call bpf_frobnicate", "1:6: there is no label or helper 'bpf_frobnicate'"),
        (".insn 12", "1:7: expected the 16 hex digits of an instruction"),
        ("exit exit", "1:6: the instruction should end here"),
        ("r1 = ü", "1:6: expected a register or a number"),
    ] {
        assert_eq!(assemble(text).unwrap_err().to_string(), want, "{text}");
    }
}

/// Text of any kind is refused or assembled, and never panics.
#[test]
fn random_text_is_refused_or_assembled() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..if cfg!(debug_assertions) { 20_000 } else { 300_000 } {
        let mut text: Vec<char> = FORMS[rng.usize(..FORMS.len())].0.chars().collect();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..=text.len());
            match rng.u8(..3) {
                0 => text.insert(
                    at,
                    *rng.choice(&['r', 'w', '1', '-', '+', '(', '*', ' ', '\n', ':', 'ü', 'x']).unwrap(),
                ),
                1 if at < text.len() => drop(text.remove(at)),
                _ => text.truncate(at),
            }
        }
        let text: String = text.into_iter().collect();
        if let Ok(prog) = assemble(&text) {
            assert_eq!(assemble(&disassemble(&prog)), Ok(prog), "{text}");
        }
    }
}
