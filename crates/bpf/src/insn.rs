//! Instructions, opcodes, and functions that build them. Mirrors `include/uapi/linux/bpf.h`, `bpf_common.h`
//! and the macros of `include/linux/filter.h`, v6.6; the encoding is RFC 9669, section 3.
//!
//! Invariant: a [`BpfInsn`] has the kernel's eight bytes, so a slice of them can be dumped and read back
//! ([`to_bytes`], [`from_bytes`]). On disk the multi-byte fields are little endian.

/// One instruction slot. Kernel: `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BpfInsn {
    /// The opcode: class in the low three bits.
    pub code: u8,
    /// Destination register in the low half, source register in the high half.
    pub regs: u8,
    /// Signed offset: of a jump in instructions, of a memory access in bytes.
    pub off: i16,
    /// Signed immediate.
    pub imm: i32,
}

/// Instructions a program may have. Kernel: `BPF_COMPLEXITY_LIMIT_INSNS`.
pub const MAX_INSNS: usize = 1_000_000;

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => { $($(#[$doc])* pub const $name: u8 = $value;)* };
}

opcodes! {
    /// Class: wide immediates and legacy packet loads.
    BPF_LD = 0x00;
    /// Class: loads into a register.
    BPF_LDX = 0x01;
    /// Class: stores of an immediate.
    BPF_ST = 0x02;
    /// Class: stores of a register, and atomics.
    BPF_STX = 0x03;
    /// Class: 32-bit arithmetic.
    BPF_ALU = 0x04;
    /// Class: 64-bit jumps, call, exit.
    BPF_JMP = 0x05;
    /// Class: 32-bit jumps.
    BPF_JMP32 = 0x06;
    /// Class: 64-bit arithmetic.
    BPF_ALU64 = 0x07;

    /// Width: 4 bytes.
    BPF_W = 0x00;
    /// Width: 2 bytes.
    BPF_H = 0x08;
    /// Width: 1 byte.
    BPF_B = 0x10;
    /// Width: 8 bytes.
    BPF_DW = 0x18;

    /// Mode: 64-bit immediate.
    BPF_IMM = 0x00;
    /// Mode: packet at a constant offset.
    BPF_ABS = 0x20;
    /// Mode: packet at a register's offset.
    BPF_IND = 0x40;
    /// Mode: plain memory.
    BPF_MEM = 0x60;
    /// Mode: sign-extending load.
    BPF_MEMSX = 0x80;
    /// Mode: atomic.
    BPF_ATOMIC = 0xc0;

    /// Operand: the immediate.
    BPF_K = 0x00;
    /// Operand: the source register.
    BPF_X = 0x08;

    /// `dst += src`
    BPF_ADD = 0x00;
    /// `dst -= src`
    BPF_SUB = 0x10;
    /// `dst *= src`
    BPF_MUL = 0x20;
    /// `dst /= src`
    BPF_DIV = 0x30;
    /// `dst |= src`
    BPF_OR = 0x40;
    /// `dst &= src`
    BPF_AND = 0x50;
    /// `dst <<= src`
    BPF_LSH = 0x60;
    /// `dst >>= src`
    BPF_RSH = 0x70;
    /// `dst = -dst`
    BPF_NEG = 0x80;
    /// `dst %= src`
    BPF_MOD = 0x90;
    /// `dst ^= src`
    BPF_XOR = 0xa0;
    /// `dst = src`
    BPF_MOV = 0xb0;
    /// `dst s>>= src`
    BPF_ARSH = 0xc0;
    /// byte order conversion
    BPF_END = 0xd0;
    /// [`BPF_END`]: to little endian.
    BPF_TO_LE = 0x00;
    /// [`BPF_END`]: to big endian.
    BPF_TO_BE = 0x08;

    /// always
    BPF_JA = 0x00;
    /// `==`
    BPF_JEQ = 0x10;
    /// `>` unsigned
    BPF_JGT = 0x20;
    /// `>=` unsigned
    BPF_JGE = 0x30;
    /// `dst & src` is not 0
    BPF_JSET = 0x40;
    /// `!=`
    BPF_JNE = 0x50;
    /// `>` signed
    BPF_JSGT = 0x60;
    /// `>=` signed
    BPF_JSGE = 0x70;
    /// call
    BPF_CALL = 0x80;
    /// return
    BPF_EXIT = 0x90;
    /// `<` unsigned
    BPF_JLT = 0xa0;
    /// `<=` unsigned
    BPF_JLE = 0xb0;
    /// `<` signed
    BPF_JSLT = 0xc0;
    /// `<=` signed
    BPF_JSLE = 0xd0;

    /// 64-bit immediate: the descriptor of a map.
    BPF_PSEUDO_MAP_FD = 1;
    /// 64-bit immediate: an address in a map's value, the map by descriptor.
    BPF_PSEUDO_MAP_VALUE = 2;
    /// 64-bit immediate: the address of a kernel variable.
    BPF_PSEUDO_BTF_ID = 3;
    /// 64-bit immediate: the address of a function of the program.
    BPF_PSEUDO_FUNC = 4;
    /// 64-bit immediate: a map by its index in the load's array.
    BPF_PSEUDO_MAP_IDX = 5;
    /// 64-bit immediate: an address in a map's value, the map by its index.
    BPF_PSEUDO_MAP_IDX_VALUE = 6;
    /// [`BPF_CALL`]: a function of the program.
    BPF_PSEUDO_CALL = 1;
    /// [`BPF_CALL`]: a function of the kernel.
    BPF_PSEUDO_KFUNC_CALL = 2;
}

/// Atomics: return the old value in the source register.
pub const BPF_FETCH: i32 = 0x01;
/// Atomics: exchange.
pub const BPF_XCHG: i32 = 0xe0 | BPF_FETCH;
/// Atomics: compare with r0 and exchange.
pub const BPF_CMPXCHG: i32 = 0xf0 | BPF_FETCH;

/// The frame pointer, r10. Kernel: `BPF_REG_FP`.
pub const BPF_REG_FP: u8 = 10;

impl BpfInsn {
    /// An instruction from its fields; registers are cut to four bits.
    pub const fn new(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Self {
        Self { code, regs: (dst & 15) | (src << 4), off, imm }
    }

    /// The destination register, 0 to 15.
    pub const fn dst_reg(&self) -> u8 {
        self.regs & 15
    }

    /// The source register, 0 to 15.
    pub const fn src_reg(&self) -> u8 {
        self.regs >> 4
    }

    /// The class: the low three bits. Kernel: `BPF_CLASS`.
    pub const fn class(&self) -> u8 {
        self.code & 0x07
    }

    /// The operation of an arithmetic or jump instruction. Kernel: `BPF_OP`.
    pub const fn op(&self) -> u8 {
        self.code & 0xf0
    }

    /// Immediate or register. Kernel: `BPF_SRC`.
    pub const fn src(&self) -> u8 {
        self.code & 0x08
    }

    /// The width of a load or store. Kernel: `BPF_SIZE`.
    pub const fn size(&self) -> u8 {
        self.code & 0x18
    }

    /// The mode of a load or store. Kernel: `BPF_MODE`.
    pub const fn mode(&self) -> u8 {
        self.code & 0xe0
    }

    /// Whether this is the first slot of a 64-bit immediate.
    pub const fn is_ld_imm64(&self) -> bool {
        self.code == BPF_LD | BPF_IMM | BPF_DW
    }

    /// The eight bytes, little endian.
    pub const fn to_bytes(self) -> [u8; 8] {
        let (o, i) = (self.off.to_le_bytes(), self.imm.to_le_bytes());
        [self.code, self.regs, o[0], o[1], i[0], i[1], i[2], i[3]]
    }

    /// An instruction from eight bytes, little endian.
    pub const fn from_bytes(b: [u8; 8]) -> Self {
        Self {
            code: b[0],
            regs: b[1],
            off: i16::from_le_bytes([b[2], b[3]]),
            imm: i32::from_le_bytes([b[4], b[5], b[6], b[7]]),
        }
    }
}

/// The bytes of a program.
pub fn to_bytes(insns: &[BpfInsn]) -> Vec<u8> {
    insns.iter().flat_map(|i| i.to_bytes()).collect()
}

/// The program of some bytes; `None` if their number is not a multiple of 8.
pub fn from_bytes(bytes: &[u8]) -> Option<Vec<BpfInsn>> {
    let (insns, rest) = bytes.as_chunks::<8>();
    rest.is_empty().then(|| insns.iter().map(|&b| BpfInsn::from_bytes(b)).collect())
}

/// `dst op= imm`, 64 bit. Kernel: `BPF_ALU64_IMM`.
pub const fn alu64_imm(op: u8, dst: u8, imm: i32) -> BpfInsn {
    BpfInsn::new(BPF_ALU64 | op | BPF_K, dst, 0, 0, imm)
}

/// `dst op= src`, 64 bit. Kernel: `BPF_ALU64_REG`.
pub const fn alu64_reg(op: u8, dst: u8, src: u8) -> BpfInsn {
    BpfInsn::new(BPF_ALU64 | op | BPF_X, dst, src, 0, 0)
}

/// `dst op= imm`, 32 bit. Kernel: `BPF_ALU32_IMM`.
pub const fn alu32_imm(op: u8, dst: u8, imm: i32) -> BpfInsn {
    BpfInsn::new(BPF_ALU | op | BPF_K, dst, 0, 0, imm)
}

/// `dst op= src`, 32 bit. Kernel: `BPF_ALU32_REG`.
pub const fn alu32_reg(op: u8, dst: u8, src: u8) -> BpfInsn {
    BpfInsn::new(BPF_ALU | op | BPF_X, dst, src, 0, 0)
}

/// `dst = imm`, sign-extended. Kernel: `BPF_MOV64_IMM`.
pub const fn mov64_imm(dst: u8, imm: i32) -> BpfInsn {
    alu64_imm(BPF_MOV, dst, imm)
}

/// `dst = src`. Kernel: `BPF_MOV64_REG`.
pub const fn mov64_reg(dst: u8, src: u8) -> BpfInsn {
    alu64_reg(BPF_MOV, dst, src)
}

/// `dst = *(size *)(src + off)`. Kernel: `BPF_LDX_MEM`.
pub const fn ldx_mem(size: u8, dst: u8, src: u8, off: i16) -> BpfInsn {
    BpfInsn::new(BPF_LDX | size | BPF_MEM, dst, src, off, 0)
}

/// `dst = *(signed size *)(src + off)`. Kernel: `BPF_LDX_MEMSX`.
pub const fn ldx_memsx(size: u8, dst: u8, src: u8, off: i16) -> BpfInsn {
    BpfInsn::new(BPF_LDX | size | BPF_MEMSX, dst, src, off, 0)
}

/// `*(size *)(dst + off) = src`. Kernel: `BPF_STX_MEM`.
pub const fn stx_mem(size: u8, dst: u8, src: u8, off: i16) -> BpfInsn {
    BpfInsn::new(BPF_STX | size | BPF_MEM, dst, src, off, 0)
}

/// `*(size *)(dst + off) = imm`. Kernel: `BPF_ST_MEM`.
pub const fn st_mem(size: u8, dst: u8, off: i16, imm: i32) -> BpfInsn {
    BpfInsn::new(BPF_ST | size | BPF_MEM, dst, 0, off, imm)
}

/// An atomic `op` (an arithmetic operation, with or without [`BPF_FETCH`], [`BPF_XCHG`], [`BPF_CMPXCHG`]) on
/// `*(size *)(dst + off)`. Kernel: `BPF_ATOMIC_OP`.
pub const fn atomic_op(size: u8, op: i32, dst: u8, src: u8, off: i16) -> BpfInsn {
    BpfInsn::new(BPF_STX | size | BPF_ATOMIC, dst, src, off, op)
}

/// `if dst op imm goto pc + off`, 64 bit. Kernel: `BPF_JMP_IMM`.
pub const fn jmp_imm(op: u8, dst: u8, imm: i32, off: i16) -> BpfInsn {
    BpfInsn::new(BPF_JMP | op | BPF_K, dst, 0, off, imm)
}

/// `if dst op src goto pc + off`, 64 bit. Kernel: `BPF_JMP_REG`.
pub const fn jmp_reg(op: u8, dst: u8, src: u8, off: i16) -> BpfInsn {
    BpfInsn::new(BPF_JMP | op | BPF_X, dst, src, off, 0)
}

/// `if dst op imm goto pc + off`, 32 bit. Kernel: `BPF_JMP32_IMM`.
pub const fn jmp32_imm(op: u8, dst: u8, imm: i32, off: i16) -> BpfInsn {
    BpfInsn::new(BPF_JMP32 | op | BPF_K, dst, 0, off, imm)
}

/// `if dst op src goto pc + off`, 32 bit. Kernel: `BPF_JMP32_REG`.
pub const fn jmp32_reg(op: u8, dst: u8, src: u8, off: i16) -> BpfInsn {
    BpfInsn::new(BPF_JMP32 | op | BPF_X, dst, src, off, 0)
}

/// `goto pc + off`. Kernel: `BPF_JMP_A`.
pub const fn jmp_a(off: i16) -> BpfInsn {
    BpfInsn::new(BPF_JMP | BPF_JA, 0, 0, off, 0)
}

/// `gotol pc + off`. Kernel: `BPF_JMP32_A`.
pub const fn jmp32_a(off: i32) -> BpfInsn {
    BpfInsn::new(BPF_JMP32 | BPF_JA, 0, 0, 0, off)
}

/// Calls a helper by id. Kernel: `BPF_EMIT_CALL`.
pub const fn emit_call(helper: i32) -> BpfInsn {
    BpfInsn::new(BPF_JMP | BPF_CALL, 0, 0, 0, helper)
}

/// Calls the function `off` instructions after the next. Kernel: `BPF_CALL_REL`.
pub const fn call_rel(off: i32) -> BpfInsn {
    BpfInsn::new(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, off)
}

/// `exit`. Kernel: `BPF_EXIT_INSN`.
pub const fn exit_insn() -> BpfInsn {
    BpfInsn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
}

/// `dst = imm`, 64 bit: two slots. Kernel: `BPF_LD_IMM64`.
pub const fn ld_imm64(dst: u8, imm: u64) -> [BpfInsn; 2] {
    ld_imm64_raw(dst, 0, imm as u32 as i32, (imm >> 32) as i32)
}

/// `dst = map`, by descriptor. Kernel: `BPF_LD_MAP_FD`.
pub const fn ld_map_fd(dst: u8, fd: i32) -> [BpfInsn; 2] {
    ld_imm64_raw(dst, BPF_PSEUDO_MAP_FD, fd, 0)
}

/// `dst = the map's value + off`, by descriptor. Kernel: `BPF_LD_MAP_VALUE`.
pub const fn ld_map_value(dst: u8, fd: i32, off: i32) -> [BpfInsn; 2] {
    ld_imm64_raw(dst, BPF_PSEUDO_MAP_VALUE, fd, off)
}

/// `dst = map`, by index in the load's map array.
pub const fn ld_map_idx(dst: u8, idx: i32) -> [BpfInsn; 2] {
    ld_imm64_raw(dst, BPF_PSEUDO_MAP_IDX, idx, 0)
}

/// `dst = the map's value + off`, by index in the load's map array.
pub const fn ld_map_idx_value(dst: u8, idx: i32, off: i32) -> [BpfInsn; 2] {
    ld_imm64_raw(dst, BPF_PSEUDO_MAP_IDX_VALUE, idx, off)
}

/// A 64-bit immediate of any pseudo form. Kernel: `BPF_LD_IMM64_RAW_FULL`.
pub const fn ld_imm64_raw(dst: u8, src: u8, lo: i32, hi: i32) -> [BpfInsn; 2] {
    [BpfInsn::new(BPF_LD | BPF_IMM | BPF_DW, dst, src, 0, lo), BpfInsn::new(0, 0, 0, 0, hi)]
}
