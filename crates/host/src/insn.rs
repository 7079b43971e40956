//! The few instructions that our own programs are made of. Mirrors `struct bpf_insn`, include/uapi/linux/bpf.h.
//!
//! Whoever has more to say builds the bytes elsewhere and hands them over with [`Insn::from_bytes`].

use std::os::fd::{AsFd, AsRawFd};

/// One instruction slot. Kernel: `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// The opcode.
    pub code: u8,
    /// Destination register in the low half, source register in the high half.
    pub regs: u8,
    /// Signed offset.
    pub off: i16,
    /// Signed immediate.
    pub imm: i32,
}

impl Insn {
    /// An instruction from its fields.
    pub const fn new(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
        Insn { code, regs: dst | src << 4, off, imm }
    }

    /// An instruction from its eight bytes, in this machine's order.
    pub fn from_bytes(b: [u8; 8]) -> Insn {
        Insn {
            code: b[0],
            regs: b[1],
            off: i16::from_ne_bytes([b[2], b[3]]),
            imm: i32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
        }
    }
}

/// `dst = imm`
pub const fn mov(dst: u8, imm: i32) -> Insn {
    Insn::new(0xb7, dst, 0, 0, imm)
}

/// `dst = src`
pub const fn mov_reg(dst: u8, src: u8) -> Insn {
    Insn::new(0xbf, dst, src, 0, 0)
}

/// `dst += imm`
pub const fn add(dst: u8, imm: i32) -> Insn {
    Insn::new(0x07, dst, 0, 0, imm)
}

/// `dst >>= imm`, unsigned
pub const fn rsh(dst: u8, imm: i32) -> Insn {
    Insn::new(0x77, dst, 0, 0, imm)
}

/// `dst = *(u64 *)(src + off)`
pub const fn load(dst: u8, src: u8, off: i16) -> Insn {
    Insn::new(0x79, dst, src, off, 0)
}

/// `*(u64 *)(dst + off) = imm`
pub const fn store(dst: u8, off: i16, imm: i32) -> Insn {
    Insn::new(0x7a, dst, 0, off, imm)
}

/// `lock *(u64 *)(dst + off) += src`
pub const fn atomic_add(dst: u8, src: u8, off: i16) -> Insn {
    Insn::new(0xdb, dst, src, off, 0)
}

/// `if dst != imm goto pc + off`
pub const fn jump_ne(dst: u8, imm: i32, off: i16) -> Insn {
    Insn::new(0x55, dst, 0, off, imm)
}

/// `goto pc + off`
pub const fn jump(off: i16) -> Insn {
    Insn::new(0x05, 0, 0, off, 0)
}

/// `may_goto pc + off`: goes on for a while, then jumps, so that the verifier takes an endless loop. Since 6.9.
pub const fn may_goto(off: i16) -> Insn {
    Insn::new(0xe5, 0, 0, off, 0)
}

/// `call helper`
pub const fn call(helper: i32) -> Insn {
    Insn::new(0x85, 0, 0, 0, helper)
}

/// `exit`
pub const fn exit() -> Insn {
    Insn::new(0x95, 0, 0, 0, 0)
}

/// `dst = ` the address of the first value of an array.
pub fn map_value(dst: u8, map: &impl AsFd) -> [Insn; 2] {
    [Insn::new(0x18, dst, 2, 0, map.as_fd().as_raw_fd()), Insn::new(0, 0, 0, 0, 0)]
}

/// `r0 = value; exit`: the smallest program.
pub const fn returns(value: i32) -> [Insn; 2] {
    [mov(0, value), exit()]
}
