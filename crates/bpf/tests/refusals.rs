//! What does not load: the whole line that a user sees.

mod common;

use bpf::insn::*;
use bpf::{BpfInsn, Program, helpers};
use common::{array, insns, prog_array};

const EXIT: BpfInsn = exit_insn();
const R0: BpfInsn = mov64_imm(0, 0);

const fn raw(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> BpfInsn {
    BpfInsn::new(code, dst, src, off, imm)
}

/// Loads with two maps: 0 an array with two values of 8 bytes, 1 a program array.
fn refusal(insns: &[BpfInsn]) -> Option<String> {
    Program::load("test", insns, vec![array(2), prog_array(1)]).err().map(|e| e.to_string())
}

/// One instruction, refused wherever it stands: here between two others.
#[rustfmt::skip]
const ALONE: &[(BpfInsn, &str)] = &[
    // Registers.
    (raw(BPF_ALU64 | BPF_MOV | BPF_K, 11, 0, 0, 0), "R11 is invalid"),
    (raw(BPF_ALU64 | BPF_MOV | BPF_X, 0, 15, 0, 0), "R15 is invalid"),
    (mov64_imm(10, 0), "frame pointer is read only"),
    (alu64_imm(BPF_ADD, 10, 8), "frame pointer is read only"),
    (raw(BPF_ALU | BPF_END | BPF_TO_BE, 10, 0, 0, 16), "frame pointer is read only"),
    (raw(BPF_ALU64 | BPF_NEG, 10, 0, 0, 0), "frame pointer is read only"),
    (ldx_mem(BPF_DW, 10, 1, 0), "frame pointer is read only"),
    (atomic_op(BPF_DW, BPF_XCHG, 1, 10, 0), "frame pointer is read only"),
    (atomic_op(BPF_W, BPF_ADD as i32 | BPF_FETCH, 1, 10, 0), "frame pointer is read only"),
    // Opcodes.
    (raw(0xff, 0, 0, 0, 0), "unknown opcode ff"),
    (raw(BPF_JMP32 | BPF_CALL, 0, 0, 0, 0), "calls of a register (callx) are not supported"),
    (raw(BPF_JMP | BPF_CALL | BPF_X, 0, 0, 0, 1), "calls of a register (callx) are not supported"),
    (raw(BPF_JMP32 | BPF_EXIT, 0, 0, 0, 0), "unknown opcode 96"),
    (raw(BPF_JMP | 0xe0, 0, 0, 0, 0), "unknown opcode e5"),
    (raw(BPF_ALU | 0xe0, 0, 0, 0, 0), "unknown opcode e4"),
    (raw(BPF_LDX | BPF_MEMSX | BPF_DW, 0, 1, 0, 0), "unknown opcode 99"),
    (raw(BPF_LDX | BPF_IMM | BPF_W, 0, 1, 0, 0), "unknown opcode 01"),
    (raw(BPF_ST | BPF_ATOMIC | BPF_W, 1, 0, 0, 0), "unknown opcode c2"),
    (raw(BPF_LD | BPF_MEM | BPF_W, 0, 0, 0, 0), "unknown opcode 60"),
    (raw(BPF_LD | BPF_ABS | BPF_DW, 0, 0, 0, 0), "unknown opcode 38"),
    (raw(BPF_LD | BPF_IMM | BPF_W, 0, 0, 0, 0), "unknown opcode 00"),
    // Reserved fields.
    (raw(BPF_ALU64 | BPF_ADD | BPF_X, 0, 1, 0, 5), "BPF_ALU uses reserved fields"),
    (raw(BPF_ALU64 | BPF_ADD | BPF_K, 0, 1, 0, 5), "BPF_ALU uses reserved fields"),
    (raw(BPF_ALU64 | BPF_ADD | BPF_K, 0, 0, 1, 5), "BPF_ALU uses reserved fields"),
    (raw(BPF_ALU64 | BPF_DIV | BPF_K, 0, 0, 2, 5), "BPF_ALU uses reserved fields"),
    (raw(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 8, 5), "BPF_ALU uses reserved fields"),
    (raw(BPF_ALU64 | BPF_NEG, 0, 0, 0, 1), "BPF_NEG uses reserved fields"),
    (raw(BPF_ALU64 | BPF_NEG | BPF_X, 0, 0, 0, 0), "BPF_NEG uses reserved fields"),
    (raw(BPF_ALU | BPF_END, 0, 1, 0, 16), "BPF_END uses reserved fields"),
    (raw(BPF_ALU64 | BPF_END | BPF_TO_BE, 0, 0, 0, 16), "BPF_END uses reserved fields"),
    (raw(BPF_LDX | BPF_MEM | BPF_W, 0, 1, 0, 1), "BPF_LDX uses reserved fields"),
    (raw(BPF_STX | BPF_MEM | BPF_W, 1, 0, 0, 1), "BPF_STX uses reserved fields"),
    (raw(BPF_ST | BPF_MEM | BPF_W, 1, 1, 0, 1), "BPF_ST uses reserved fields"),
    (raw(BPF_JMP | BPF_JA, 0, 0, 0, 1), "BPF_JA uses reserved fields"),
    (raw(BPF_JMP32 | BPF_JA, 0, 0, 1, 0), "BPF_JA uses reserved fields"),
    (raw(BPF_JMP | BPF_JEQ | BPF_X, 0, 1, 0, 1), "BPF_JMP uses reserved fields"),
    (raw(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0, 1), "BPF_JMP uses reserved fields"),
    (raw(BPF_JMP | BPF_EXIT, 0, 0, 0, 1), "BPF_EXIT uses reserved fields"),
    (raw(BPF_JMP | BPF_CALL, 0, 0, 1, 5), "BPF_CALL uses reserved fields"),
    (raw(BPF_JMP | BPF_CALL, 0, 3, 0, 5), "BPF_CALL uses reserved fields"),
    (raw(BPF_LD | BPF_ABS | BPF_W, 1, 0, 0, 0), "BPF_LD_ABS uses reserved fields"),
    (raw(BPF_LD | BPF_IND | BPF_W, 0, 1, 1, 0), "BPF_LD_IND uses reserved fields"),
    // Operands.
    (alu64_imm(BPF_DIV, 0, 0), "division by zero"),
    (alu32_imm(BPF_MOD, 0, 0), "division by zero"),
    (raw(BPF_ALU64 | BPF_MOD | BPF_K, 0, 0, 1, 0), "division by zero"),
    (alu64_imm(BPF_LSH, 0, 64), "shift by 64: 0 to 63 are allowed"),
    (alu32_imm(BPF_ARSH, 0, 32), "shift by 32: 0 to 31 are allowed"),
    (alu64_imm(BPF_RSH, 0, -1), "shift by -1: 0 to 63 are allowed"),
    (raw(BPF_ALU | BPF_END, 0, 0, 0, 8), "byte order conversion of 8 bits: 16, 32 and 64 exist"),
    (raw(BPF_ALU64 | BPF_MOV | BPF_X, 0, 1, 64, 0), "BPF_MOV cannot sign-extend from 64 bits here"),
    (raw(BPF_ALU | BPF_MOV | BPF_X, 0, 1, 32, 0), "BPF_MOV cannot sign-extend from 32 bits here"),
    (atomic_op(BPF_DW, BPF_SUB as i32, 1, 2, 0), "BPF_ATOMIC uses invalid atomic opcode 0x10"),
    (atomic_op(BPF_DW, BPF_XCHG & !BPF_FETCH, 1, 2, 0), "BPF_ATOMIC uses invalid atomic opcode 0xe0"),
    (atomic_op(BPF_H, BPF_ADD as i32, 1, 2, 0), "atomic operations are 4 or 8 bytes wide"),
    // Jumps and calls: three instructions, this one is the second.
    (jmp_a(1), "jump to insn 3, but the program has 3"),
    (jmp_a(-3), "jump to insn -1, but the program has 3"),
    (jmp_imm(BPF_JEQ, 0, 0, 32767), "jump to insn 32769, but the program has 3"),
    (jmp32_a(i32::MAX), "jump to insn 2147483649, but the program has 3"),
    (call_rel(i32::MIN), "call to insn -2147483646, but the program has 3"),
    // Helpers.
    (emit_call(0), "helper #0 does not exist"),
    (emit_call(-1), "helper #-1 does not exist"),
    (emit_call(212), "helper #212 does not exist"),
    (emit_call(25), "helper perf_event_output#25 is not supported here"),
    (raw(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_KFUNC_CALL, 0, 7),
        "calls kernel function #7: kernel functions are not supported"),
];

#[test]
fn instructions_that_are_refused_wherever_they_stand() {
    for &(insn, why) in ALONE {
        assert_eq!(refusal(&[R0, insn, EXIT]), Some(format!("insn 1: {why}")), "{insn:x?}");
    }
}

#[test]
fn every_opcode_is_known_or_refused_by_name() {
    let mut known = 0;
    for code in 0..=u8::MAX {
        // With fields under which each form that exists is accepted by some.
        let tries = [(0, 0, 0, 16), (0, 1, 0, 0), (0, 0, 0, 1), (0, 0, 0, 0), (1, 2, 0, 0)];
        let results =
            tries.map(|(dst, src, off, imm)| refusal(&[R0, raw(code, dst, src, off, imm), EXIT, EXIT]));
        if results.contains(&None) {
            known += 1;
        } else {
            let said = results.iter().flatten().any(|e| {
                e.contains("unknown opcode")
                    || e.contains("reserved")
                    || e.contains("callx")
                    || e.contains("4 or 8")
                    || e.contains("second half")
                    || e.contains("jump to insn")
                    || e.contains("64-bit")
            });
            assert!(said, "{code:#x}: {results:?}");
        }
    }
    // ALU and ALU64: 12 operations with two operands, neg, end (two forms in ALU). JMP and JMP32: 11
    // conditions with two, ja; call and exit. Loads: 4 and 3 signed; stores 2 * 4; atomics 2; packet 2 * 3.
    // (A wide immediate needs two.)
    assert_eq!(known, 2 * (12 * 2 + 1) + 3 + 2 * (11 * 2 + 1) + 2 + 4 + 3 + 8 + 2 + 6);
}

#[test]
fn wide_immediates() {
    let wide = |src, lo, hi| ld_imm64_raw(1, src, lo, hi);
    for (pair, at, why) in [
        (wide(7, 0, 0), 1, "unrecognized 64-bit immediate: source register field 7"),
        (wide(BPF_PSEUDO_MAP_FD, 2, 0), 1, "map 2 of 2: there is none"),
        (wide(BPF_PSEUDO_MAP_IDX, -1, 0), 1, "map -1 of 2: there is none"),
        (wide(BPF_PSEUDO_MAP_FD, 0, 1), 2, "BPF_LD_IMM64 uses reserved fields"),
        (
            wide(BPF_PSEUDO_MAP_VALUE, 1, 0),
            1,
            "no direct access to offset 0 of map 'progs': EOPNOTSUPP: not supported",
        ),
        (
            wide(BPF_PSEUDO_MAP_VALUE, 0, 0),
            1,
            "no direct access to offset 0 of map 'array': EINVAL: invalid argument",
        ),
        (wide(BPF_PSEUDO_BTF_ID, 5, 0), 1, "names kernel variable BTF id 5: there are none here"),
        (wide(BPF_PSEUDO_FUNC, 5, 0), 1, "takes the address of a function: callbacks are not supported"),
        ([raw(BPF_LD | BPF_IMM | BPF_DW, 10, 0, 0, 0), raw(0, 0, 0, 0, 0)], 1, "frame pointer is read only"),
        (
            [raw(BPF_LD | BPF_IMM | BPF_DW, 0, 0, 1, 0), raw(0, 0, 0, 0, 0)],
            1,
            "BPF_LD_IMM64 uses reserved fields",
        ),
        ([ld_imm64(0, 0)[0], EXIT], 2, "the second half of a 64-bit immediate holds more than an immediate"),
        (
            [ld_imm64(0, 0)[0], raw(0, 1, 0, 0, 0)],
            2,
            "the second half of a 64-bit immediate holds more than an immediate",
        ),
    ] {
        assert_eq!(refusal(&insns(&[&[R0], &pair, &[EXIT]])), Some(format!("insn {at}: {why}")));
    }
    let cut = [R0, ld_imm64(0, 0)[0]];
    assert_eq!(refusal(&cut).unwrap(), "insn 1: the second half of a 64-bit immediate is missing");
    for (first, why) in [
        (jmp_a(1), "insn 0: jump to insn 2, the second half of a 64-bit immediate"),
        (jmp_imm(BPF_JNE, 1, 0, 1), "insn 0: jump to insn 2, the second half of a 64-bit immediate"),
        (call_rel(1), "insn 0: call to insn 2, the second half of a 64-bit immediate"),
    ] {
        assert_eq!(refusal(&insns(&[&[first], &ld_imm64(0, 0), &[EXIT]])).unwrap(), why);
    }
    // An offset within one value is taken, one behind it is not.
    let load = |off| Program::load("test", &insns(&[&ld_map_value(0, 0, off), &[EXIT]]), vec![array(1)]);
    assert!(load(7).is_ok());
    for off in [8, -1] {
        let e = load(off).err().unwrap().to_string();
        assert!(e.starts_with("insn 0: no direct access to offset "), "{e}");
    }
}

#[test]
fn the_flow_of_control() {
    for (p, why) in [
        (vec![], "insn 0: the program is empty"),
        (vec![R0], "insn 0: the last instruction is not an exit or a jump"),
        (vec![EXIT, R0], "insn 1: the last instruction is not an exit or a jump"),
        (vec![EXIT, jmp_imm(BPF_JEQ, 0, 0, -2)], "insn 1: the last instruction is not an exit or a jump"),
        (vec![EXIT, emit_call(5)], "insn 1: the last instruction is not an exit or a jump"),
        (insns(&[&[EXIT], &ld_imm64(0, 0)]), "insn 2: the last instruction is not an exit or a jump"),
        // Functions: 0 and 2.
        (vec![call_rel(1), R0, R0, EXIT], "insn 1: the last instruction is not an exit or a jump"),
        (vec![call_rel(2), jmp_a(1), EXIT, R0, EXIT], "insn 1: jump to insn 3, out of its function (0 to 2)"),
        (vec![call_rel(1), EXIT, jmp_a(-3), EXIT], "insn 2: jump to insn 0, out of its function (2 to 3)"),
    ] {
        assert_eq!(refusal(&p).as_deref(), Some(why), "{p:x?}");
    }
    // A loop and code that is never reached are fine here.
    assert_eq!(refusal(&[jmp_a(-1), EXIT]), None);
    assert_eq!(refusal(&[EXIT, jmp_a(-1)]), None);
}

#[test]
fn sizes() {
    let mut p = vec![R0; MAX_INSNS];
    p[MAX_INSNS - 1] = EXIT;
    assert_eq!(refusal(&p), None);
    p.push(EXIT);
    let why = "insn 1000000: the program has 1000001 instructions, and 1000000 are allowed";
    assert_eq!(refusal(&p).as_deref(), Some(why));
    let e = Program::load("test", &[EXIT], vec![array(1); 65]).unwrap_err();
    assert_eq!(e.to_string(), "insn 0: the program comes with 65 maps, and 64 are allowed");
}

#[test]
fn each_helper_that_is_here_loads_and_has_a_name() {
    let here: Vec<i32> = (-10..300).filter(|&id| refusal(&[emit_call(id), EXIT]).is_none()).collect();
    assert!(here.iter().all(|&id| helpers::is_supported(id) && helpers::name(id).is_some()));
    assert!([1, 2, 3, 5, 6, 7, 8, 12, 14, 15, 16].iter().all(|id| here.contains(id)), "{here:?}");
}
