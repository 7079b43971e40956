//! The disassembler. Mirrors `print_bpf_insn` (kernel/bpf/disasm.c, v6.6) and what bpftool makes of map references
//! (tools/bpf/bpftool/xlated_dumper.c).
//!
//! Invariant: [`crate::asm::assemble`] brings every text back to the same bytes. An instruction that the kernel's form
//! does not say in full (an unknown opcode, a reserved field that is not 0) is printed raw, as `.insn` and its 16 hex
//! digits. That is not left to this file's care: each text is assembled and compared before it is given out.
//!
//! Differs: a plain 64-bit immediate ends in `ll`, as LLVM prints it, since `r1 = 5` also exists as one slot; maps by
//! index are `map[idx:1]` and, as in bpftool, `map[idx:1]+8` for an address in the value; a kernel variable is
//! `btf_id[5]`.

use std::fmt;

use crate::asm;
use crate::helpers;
use crate::insn::*;

/// A program as text, one instruction a line, as the assembler takes it.
pub fn disassemble(insns: &[BpfInsn]) -> String {
    texts(insns).map(|(_, text)| text + "\n").collect()
}

/// A program as the verifier's log and bpftool print it: number, opcode, text. The assembler takes this form too.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a>(pub &'a [BpfInsn]);

impl fmt::Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        texts(self.0).try_for_each(|(at, text)| writeln!(f, "{at:4}: ({:02x}) {text}", self.0[at].code))
    }
}

/// The text of the instruction at slot `at`, and the slots it takes; `None` behind the end.
pub fn insn_text(insns: &[BpfInsn], at: usize) -> Option<(String, usize)> {
    let slots = insns.get(at..)?;
    let &insn = slots.first()?;
    let (text, len) = match slots {
        [first, second, ..] if first.is_ld_imm64() => (wide_text(*first, *second), 2),
        _ => (text(insn), 1),
    };
    if let Some(text) = text
        && asm::assemble(&text).is_ok_and(|back| back == slots[..len])
    {
        return Some((text, len));
    }
    Some((format!(".insn {}", insn.to_bytes().map(|b| format!("{b:02x}")).concat()), 1))
}

/// Slots and texts of all instructions.
fn texts(insns: &[BpfInsn]) -> impl Iterator<Item = (usize, String)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (text, len) = insn_text(insns, at)?;
        at += len;
        Some((at - len, text))
    })
}

fn text(i: BpfInsn) -> Option<String> {
    match i.class() {
        BPF_ALU | BPF_ALU64 => alu_text(i),
        BPF_JMP | BPF_JMP32 => jmp_text(i),
        BPF_LDX => {
            let signed = i.mode() == BPF_MEMSX;
            Some(format!(
                "r{} = *({} *){}",
                i.dst_reg(),
                type_name(i.size(), signed),
                address(i.src_reg(), i.off)
            ))
        }
        BPF_ST => {
            Some(format!("*({} *){} = {}", type_name(i.size(), false), address(i.dst_reg(), i.off), i.imm))
        }
        BPF_STX if i.mode() == BPF_ATOMIC => atomic_text(i),
        BPF_STX => Some(format!(
            "*({} *){} = r{}",
            type_name(i.size(), false),
            address(i.dst_reg(), i.off),
            i.src_reg()
        )),
        _ => match i.mode() {
            BPF_ABS => Some(format!("r0 = *({} *)skb[{}]", type_name(i.size(), false), i.imm)),
            BPF_IND => {
                Some(format!("r0 = *({} *)skb[r{} + {}]", type_name(i.size(), false), i.src_reg(), i.imm))
            }
            _ => None,
        },
    }
}

fn alu_text(i: BpfInsn) -> Option<String> {
    let r = if i.class() == BPF_ALU64 { 'r' } else { 'w' };
    let (d, s) = (i.dst_reg(), i.src_reg());
    match i.op() {
        BPF_END => {
            let name = match (i.class(), i.src()) {
                (BPF_ALU64, _) => "bswap",
                (_, BPF_TO_BE) => "be",
                _ => "le",
            };
            Some(format!("r{d} = {name}{} r{d}", i.imm))
        }
        BPF_NEG => Some(format!("{r}{d} = -{r}{d}")),
        BPF_MOV if i.src() == BPF_X && i.off != 0 => Some(format!("{r}{d} = (s{}){r}{s}", i.off)),
        op => {
            let op = asm::ALU_OPS.iter().find(|&&(_, o, off)| (o, off) == (op, i.off))?.0;
            Some(if i.src() == BPF_X {
                format!("{r}{d} {op} {r}{s}")
            } else {
                format!("{r}{d} {op} {}", i.imm)
            })
        }
    }
}

fn jmp_text(i: BpfInsn) -> Option<String> {
    let r = if i.class() == BPF_JMP { 'r' } else { 'w' };
    match i.op() {
        BPF_JA if i.class() == BPF_JMP => Some(format!("goto pc{:+}", i.off)),
        BPF_JA => Some(format!("gotol pc{:+}", i.imm)),
        BPF_EXIT => Some("exit".into()),
        BPF_CALL => Some(match i.src_reg() {
            BPF_PSEUDO_CALL => format!("call pc{:+}", i.imm),
            BPF_PSEUDO_KFUNC_CALL => format!("call kernel-function#{}", i.imm),
            _ => match helpers::name(i.imm) {
                Some(name) => format!("call bpf_{name}#{}", i.imm),
                None => format!("call unknown#{}", i.imm),
            },
        }),
        op => {
            let op = asm::JMP_OPS.iter().find(|&&(_, o)| o == op)?.0;
            let d = i.dst_reg();
            Some(if i.src() == BPF_X {
                format!("if {r}{d} {op} {r}{} goto pc{:+}", i.src_reg(), i.off)
            } else {
                format!("if {r}{d} {op} {:#x} goto pc{:+}", i.imm, i.off)
            })
        }
    }
}

fn atomic_text(i: BpfInsn) -> Option<String> {
    let (size, at, s) = (type_name(i.size(), false), address(i.dst_reg(), i.off), i.src_reg());
    let bits = if i.size() == BPF_DW { "64" } else { "" };
    if i.imm == BPF_CMPXCHG {
        return Some(format!("r0 = atomic{bits}_cmpxchg(({size} *){at}, r0, r{s})"));
    }
    if i.imm == BPF_XCHG {
        return Some(format!("r{s} = atomic{bits}_xchg(({size} *){at}, r{s})"));
    }
    let &(name, op, _) = asm::ATOMIC_OPS.iter().find(|&&(_, _, imm)| imm == i.imm & !BPF_FETCH)?;
    Some(if i.imm & BPF_FETCH != 0 {
        format!("r{s} = atomic{bits}_fetch_{name}(({size} *){at}, r{s})")
    } else {
        format!("lock *({size} *){at} {op} r{s}")
    })
}

/// A 64-bit immediate, both slots.
fn wide_text(first: BpfInsn, second: BpfInsn) -> Option<String> {
    let (d, imm, off) = (first.dst_reg(), first.imm, second.imm);
    let value = match first.src_reg() {
        0 => format!("{:#x} ll", (off as u32 as u64) << 32 | u64::from(imm as u32)),
        BPF_PSEUDO_MAP_FD => format!("map[id:{imm}]"),
        BPF_PSEUDO_MAP_VALUE => format!("map[id:{imm}][0]+{}", off as u32),
        BPF_PSEUDO_BTF_ID => format!("btf_id[{imm}]"),
        BPF_PSEUDO_FUNC => format!("subprog[{imm:+}]"),
        BPF_PSEUDO_MAP_IDX => format!("map[idx:{imm}]"),
        BPF_PSEUDO_MAP_IDX_VALUE => format!("map[idx:{imm}]+{}", off as u32),
        _ => return None,
    };
    Some(format!("r{d} = {value}"))
}

fn address(reg: u8, off: i16) -> String {
    format!("(r{reg} {off:+})")
}

fn type_name(size: u8, signed: bool) -> &'static str {
    match (size, signed) {
        (BPF_B, false) => "u8",
        (BPF_H, false) => "u16",
        (BPF_W, false) => "u32",
        (_, false) => "u64",
        (BPF_B, true) => "s8",
        (BPF_H, true) => "s16",
        (BPF_W, true) => "s32",
        (_, true) => "s64",
    }
}
