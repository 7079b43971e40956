//! The opcodes that kernels since 6.6 take from an ordinary program, and how often programs have each.
//!
//! Ordinary: a socket filter, with nothing of the kernel's types. Kernels have taken a few more since (may_goto,
//! load-acquire, store-release), which the simulation does not have.

use std::collections::BTreeMap;

use bpf::BpfInsn;
use bpf::disasm::insn_text;
use bpf::insn::*;

/// What tells one operation from another: the opcode, and the fields that choose among several of one opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Opcode {
    pub(super) code: u8,
    /// Signed division, sign extension from so many bits.
    pub(super) off: i16,
    /// Byte order conversion to so many bits; which atomic.
    pub(super) imm: i32,
    /// What a wide immediate or a call names.
    pub(super) src: u8,
}

impl Opcode {
    fn plain(code: u8) -> Self {
        Self { code, off: 0, imm: 0, src: 0 }
    }

    fn of(insn: &BpfInsn) -> Self {
        let plain = Self::plain(insn.code);
        match (insn.class(), insn.op()) {
            (BPF_ALU | BPF_ALU64, BPF_END) => Self { imm: insn.imm, ..plain },
            (BPF_ALU | BPF_ALU64, _) => Self { off: insn.off, ..plain },
            (BPF_STX, _) if insn.mode() == BPF_ATOMIC => Self { imm: insn.imm, ..plain },
            (BPF_JMP, BPF_CALL) => Self { src: insn.src_reg(), ..plain },
            _ if insn.is_ld_imm64() => Self { src: insn.src_reg(), ..plain },
            _ => plain,
        }
    }

    /// An instruction of it as the disassembler writes it.
    pub(super) fn text(self) -> String {
        // Some have no destination.
        let dst = match (self.code & 7, self.code & 0xe0) {
            (BPF_LD, BPF_ABS | BPF_IND) | (BPF_JMP, BPF_CALL) => 0,
            (BPF_JMP | BPF_JMP32, BPF_JA) if self.code & 0xf0 == BPF_JA => 0,
            _ => u8::from(self.code != BPF_JMP | BPF_EXIT),
        };
        let insn = BpfInsn::new(self.code, dst, self.src, self.off, self.imm);
        let insns = [insn, BpfInsn::default()];
        insn_text(&insns, 0).map_or_else(|| format!("{self:?}"), |(text, _)| text)
    }
}

pub(super) const SIZES: [u8; 4] = [BPF_B, BPF_H, BPF_W, BPF_DW];
const ALU: [u8; 12] = [
    BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_OR, BPF_AND, BPF_LSH, BPF_RSH, BPF_MOD, BPF_XOR, BPF_MOV,
    BPF_ARSH,
];
const JMP: [u8; 11] =
    [BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET, BPF_JNE, BPF_JSGT, BPF_JSGE, BPF_JLT, BPF_JLE, BPF_JSLT, BPF_JSLE];

/// All of them.
pub(super) fn all() -> Vec<Opcode> {
    let mut all = Vec::new();
    for src in [BPF_K, BPF_X] {
        for class in [BPF_ALU, BPF_ALU64] {
            all.extend(ALU.map(|op| Opcode::plain(class | op | src)));
            all.extend([BPF_DIV, BPF_MOD].map(|op| Opcode { off: 1, ..Opcode::plain(class | op | src) }));
        }
        for class in [BPF_JMP, BPF_JMP32] {
            all.extend(JMP.map(|op| Opcode::plain(class | op | src)));
        }
    }
    all.extend([BPF_ALU, BPF_ALU64].map(|class| Opcode::plain(class | BPF_NEG)));
    let sign = |class, off| Opcode { off, ..Opcode::plain(class | BPF_MOV | BPF_X) };
    all.extend([8, 16].map(|bits| sign(BPF_ALU, bits)));
    all.extend([8, 16, 32].map(|bits| sign(BPF_ALU64, bits)));
    for code in [BPF_ALU | BPF_END | BPF_TO_LE, BPF_ALU | BPF_END | BPF_TO_BE, BPF_ALU64 | BPF_END] {
        all.extend([16, 32, 64].map(|imm| Opcode { imm, ..Opcode::plain(code) }));
    }
    all.extend([BPF_JMP, BPF_JMP32].map(|class| Opcode::plain(class | BPF_JA)));
    all.extend([0, BPF_PSEUDO_CALL].map(|src| Opcode { src, ..Opcode::plain(BPF_JMP | BPF_CALL) }));
    all.push(Opcode::plain(BPF_JMP | BPF_EXIT));
    for size in SIZES {
        all.extend([BPF_LDX, BPF_ST, BPF_STX].map(|class| Opcode::plain(class | BPF_MEM | size)));
    }
    for size in [BPF_B, BPF_H, BPF_W] {
        all.push(Opcode::plain(BPF_LDX | BPF_MEMSX | size));
        all.extend([BPF_ABS, BPF_IND].map(|mode| Opcode::plain(BPF_LD | mode | size)));
    }
    for size in [BPF_W, BPF_DW] {
        let ops = [BPF_ADD, BPF_OR, BPF_AND, BPF_XOR].map(i32::from);
        let fetching = ops.map(|op| op | BPF_FETCH);
        let imms = ops.into_iter().chain(fetching).chain([BPF_XCHG, BPF_CMPXCHG]);
        all.extend(imms.map(|imm| Opcode { imm, ..Opcode::plain(BPF_STX | BPF_ATOMIC | size) }));
    }
    let wide = |src| Opcode { src, ..Opcode::plain(BPF_LD | BPF_IMM | BPF_DW) };
    all.extend([0, BPF_PSEUDO_MAP_FD, BPF_PSEUDO_MAP_VALUE].map(wide));
    all
}

/// How often each was there.
#[derive(Debug, Default)]
pub(super) struct Tally(BTreeMap<Opcode, u64>);

impl Tally {
    /// Counts the instructions of an accepted program.
    pub(super) fn count(&mut self, insns: &[BpfInsn]) {
        let mut second = false;
        for insn in insns {
            if !second {
                *self.0.entry(Opcode::of(insn)).or_default() += 1;
            }
            second = insn.is_ld_imm64() && !second;
        }
    }

    /// Each opcode's number, the rarest first.
    pub(super) fn counts(&self) -> Vec<(Opcode, u64)> {
        let number = |opcode| (opcode, self.0.get(&opcode).copied().unwrap_or(0));
        let mut counts: Vec<_> = all().into_iter().map(number).collect();
        counts.sort_by_key(|(_, n)| *n);
        counts
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_opcode_once_and_known_to_the_disassembler() {
        let all = all();
        let set: BTreeSet<Opcode> = all.iter().copied().collect();
        assert_eq!(set.len(), all.len());
        let texts: BTreeSet<String> = all.iter().map(|o| o.text()).collect();
        assert_eq!(texts.len(), all.len(), "{texts:#?}");
    }
}
