//! The check at load, and the form that runs. Mirrors the parts of kernel/bpf/verifier.c, v6.6, that look at
//! one instruction at a time (`check_subprogs`, `check_alu_op`, `check_cond_jmp_op`, `check_atomic`,
//! `check_ld_abs`, `resolve_pseudo_ldimm64`) and `bpf_opcode_in_insntable`.
//!
//! Each slot becomes one `Op` at the same index, so a fault's `pc` is the instruction's number: the opcode
//! is a dense enum, immediates are extended, jump targets absolute, maps resolved to addresses.
//!
//! Invariant, on which the interpreter's unchecked fetch relies: every jump and call target is the index of
//! an op that is not the second slot of a wide immediate, and the last op of each function is `exit` or an
//! unconditional jump; so from any op that runs, the next one exists.
//!
//! Differs: registers' contents are not followed. What the verifier proves of them (pointers, bounds,
//! initialised registers, references) the interpreter checks as it runs. Unreachable code and loops are
//! allowed.

use std::fmt;
use std::sync::Arc;

use crate::helpers;
use crate::insn::*;
use crate::maps::Map;

/// Maps a program may hold. Kernel: `MAX_USED_MAPS`.
pub const MAX_USED_MAPS: usize = 64;

/// Why a program was refused: the instruction, and one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The instruction's index, in slots.
    pub insn: usize,
    /// Why.
    pub reason: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "insn {}: {}", self.insn, self.reason)
    }
}

impl std::error::Error for LoadError {}

/// One predecoded instruction; 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) code: Code,
    pub(crate) dst: u8,
    pub(crate) src: u8,
    /// Jumps and calls: the target's index. Memory: the offset in bytes.
    pub(crate) off: i32,
    /// The immediate, sign-extended; for wide immediates all of it; for calls the helper's id.
    pub(crate) imm: i64,
}

/// Generates [`Code`], and for arithmetic and jumps the choice of a code by operation.
macro_rules! codes {
    (
        alu { $($op:ident: $k64:ident $x64:ident $k32:ident $x32:ident;)* }
        jmp { $($jop:ident: $jk64:ident $jx64:ident $jk32:ident $jx32:ident;)* }
        other { $($other:ident)* }
    ) => {
        /// What an [`Op`] does; dense, so that the interpreter's match is one jump table. The names end in K
        /// for an immediate and X for a register operand.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Code {
            $($k64, $x64, $k32, $x32,)*
            $($jk64, $jx64, $jk32, $jx32,)*
            $($other,)*
        }

        /// The code of a plain arithmetic operation.
        fn alu_code(op: u8, wide: bool, reg: bool) -> Option<Code> {
            Some(match op {
                $($op => [[Code::$k32, Code::$x32], [Code::$k64, Code::$x64]],)*
                _ => return None,
            }[usize::from(wide)][usize::from(reg)])
        }

        /// The code of a conditional jump.
        fn jmp_code(op: u8, wide: bool, reg: bool) -> Option<Code> {
            Some(match op {
                $($jop => [[Code::$jk32, Code::$jx32], [Code::$jk64, Code::$jx64]],)*
                _ => return None,
            }[usize::from(wide)][usize::from(reg)])
        }
    };
}

codes! {
    alu {
    BPF_ADD: Add64K Add64X Add32K Add32X;
    BPF_SUB: Sub64K Sub64X Sub32K Sub32X;
    BPF_MUL: Mul64K Mul64X Mul32K Mul32X;
    BPF_DIV: Div64K Div64X Div32K Div32X;
    BPF_OR: Or64K Or64X Or32K Or32X;
    BPF_AND: And64K And64X And32K And32X;
    BPF_LSH: Lsh64K Lsh64X Lsh32K Lsh32X;
    BPF_RSH: Rsh64K Rsh64X Rsh32K Rsh32X;
    BPF_MOD: Mod64K Mod64X Mod32K Mod32X;
    BPF_XOR: Xor64K Xor64X Xor32K Xor32X;
    BPF_MOV: Mov64K Mov64X Mov32K Mov32X;
    BPF_ARSH: Arsh64K Arsh64X Arsh32K Arsh32X;
    }
    jmp {
    BPF_JEQ: Jeq64K Jeq64X Jeq32K Jeq32X;
    BPF_JGT: Jgt64K Jgt64X Jgt32K Jgt32X;
    BPF_JGE: Jge64K Jge64X Jge32K Jge32X;
    BPF_JSET: Jset64K Jset64X Jset32K Jset32X;
    BPF_JNE: Jne64K Jne64X Jne32K Jne32X;
    BPF_JSGT: Jsgt64K Jsgt64X Jsgt32K Jsgt32X;
    BPF_JSGE: Jsge64K Jsge64X Jsge32K Jsge32X;
    BPF_JLT: Jlt64K Jlt64X Jlt32K Jlt32X;
    BPF_JLE: Jle64K Jle64X Jle32K Jle32X;
    BPF_JSLT: Jslt64K Jslt64X Jslt32K Jslt32X;
    BPF_JSLE: Jsle64K Jsle64X Jsle32K Jsle32X;
    }
    other {
    Sdiv64K Sdiv64X Sdiv32K Sdiv32X Smod64K Smod64X Smod32K Smod32X
    Neg64 Neg32
    Movsx8To64 Movsx16To64 Movsx32To64 Movsx8To32 Movsx16To32
    Le16 Le32 Le64 Be16 Be32 Be64 Bswap16 Bswap32 Bswap64
    Ldx8 Ldx16 Ldx32 Ldx64 Ldsx8 Ldsx16 Ldsx32
    St8 St16 St32 St64 Stx8 Stx16 Stx32 Stx64
    Atomic32 Atomic64
    LdImm64 LdAbs8 LdAbs16 LdAbs32 LdInd8 LdInd16 LdInd32
    Ja Call CallHelper TailCall Exit
    Slot2
    }
}

/// A program that passed, with what it holds.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) ops: Box<[Op]>,
    /// Some instruction reads r10, so frames must be there.
    pub(crate) uses_stack: bool,
}

/// Checks a program and brings it into the form that runs.
///
/// # Errors
/// [`LoadError`] for the first instruction that the kernel would refuse by its form.
pub(crate) fn decode(insns: &[BpfInsn], maps: &[Arc<Map>]) -> Result<Decoded, LoadError> {
    if insns.is_empty() {
        return refuse(0, "the program is empty");
    }
    if insns.len() > MAX_INSNS {
        let n = insns.len();
        return refuse(MAX_INSNS, format!("the program has {n} instructions, and {MAX_INSNS} are allowed"));
    }
    if maps.len() > MAX_USED_MAPS {
        let n = maps.len();
        return refuse(0, format!("the program comes with {n} maps, and {MAX_USED_MAPS} are allowed"));
    }
    let mut d = Decoder { insns, maps, ops: Vec::with_capacity(insns.len()) };
    while d.ops.len() < insns.len() {
        d.insn()?;
    }
    check_flow(insns, &d.ops)?;
    let uses_stack = d.ops.iter().any(reads_fp);
    Ok(Decoded { ops: d.ops.into(), uses_stack })
}

fn refuse<T>(insn: usize, reason: impl Into<String>) -> Result<T, LoadError> {
    Err(LoadError { insn, reason: reason.into() })
}

/// Whether an op reads r10. Ops keep register fields zero where they have none.
fn reads_fp(op: &Op) -> bool {
    op.src == BPF_REG_FP || op.dst == BPF_REG_FP
}

struct Decoder<'a> {
    insns: &'a [BpfInsn],
    maps: &'a [Arc<Map>],
    ops: Vec<Op>,
}

impl Decoder<'_> {
    /// Decodes the next instruction: one slot, or two.
    fn insn(&mut self) -> Result<(), LoadError> {
        let at = self.ops.len();
        let i = self.insns[at];
        if i.dst_reg() > BPF_REG_FP || i.src_reg() > BPF_REG_FP {
            let (d, s) = (i.dst_reg(), i.src_reg());
            return refuse(at, format!("R{} is invalid", if d > BPF_REG_FP { d } else { s }));
        }
        let mut op = Op {
            code: Code::Exit,
            dst: i.dst_reg(),
            src: i.src_reg(),
            off: i32::from(i.off),
            imm: i64::from(i.imm),
        };
        op.code = match i.class() {
            BPF_ALU | BPF_ALU64 => self.alu(at, i)?,
            BPF_JMP | BPF_JMP32 => self.jmp(at, i, &mut op)?,
            BPF_LDX => self.ldx(at, i)?,
            BPF_STX => self.stx(at, i)?,
            BPF_ST => self.st(at, i)?,
            _ if i.is_ld_imm64() => self.ld_imm64(at, i, &mut op)?,
            _ => self.ld_abs(at, i)?,
        };
        self.ops.push(op);
        if op.code == Code::LdImm64 {
            self.ops.push(Op { code: Code::Slot2, dst: 0, src: 0, off: 0, imm: 0 });
        }
        Ok(())
    }

    /// Kernel: `check_alu_op`.
    fn alu(&self, at: usize, i: BpfInsn) -> Result<Code, LoadError> {
        let (wide, reg) = (i.class() == BPF_ALU64, i.src() == BPF_X);
        writable(at, i.dst_reg())?;
        match i.op() {
            BPF_END => {
                reserved(at, "BPF_END", i.src_reg() != 0 || i.off != 0 || (wide && reg))?;
                let codes = match (wide, reg) {
                    (false, false) => [Code::Le16, Code::Le32, Code::Le64],
                    (false, true) => [Code::Be16, Code::Be32, Code::Be64],
                    _ => [Code::Bswap16, Code::Bswap32, Code::Bswap64],
                };
                match i.imm {
                    16 => Ok(codes[0]),
                    32 => Ok(codes[1]),
                    64 => Ok(codes[2]),
                    n => refuse(at, format!("byte order conversion of {n} bits: 16, 32 and 64 exist")),
                }
            }
            BPF_NEG => {
                reserved(at, "BPF_NEG", reg || i.src_reg() != 0 || i.off != 0 || i.imm != 0)?;
                Ok(if wide { Code::Neg64 } else { Code::Neg32 })
            }
            BPF_MOV if reg && i.off != 0 => {
                reserved(at, "BPF_MOV", i.imm != 0)?;
                match (wide, i.off) {
                    (true, 8) => Ok(Code::Movsx8To64),
                    (true, 16) => Ok(Code::Movsx16To64),
                    (true, 32) => Ok(Code::Movsx32To64),
                    (false, 8) => Ok(Code::Movsx8To32),
                    (false, 16) => Ok(Code::Movsx16To32),
                    (_, n) => refuse(at, format!("BPF_MOV cannot sign-extend from {n} bits here")),
                }
            }
            op => {
                let Some(code) = alu_code(op, wide, reg) else { return unknown(at, i) };
                reserved(at, "BPF_ALU", if reg { i.imm != 0 } else { i.src_reg() != 0 })?;
                let divides = matches!(op, BPF_DIV | BPF_MOD);
                reserved(at, "BPF_ALU", i.off != 0 && !(divides && i.off == 1))?;
                if divides && !reg && i.imm == 0 {
                    return refuse(at, "division by zero");
                }
                let bits = if wide { 64 } else { 32 };
                if matches!(op, BPF_LSH | BPF_RSH | BPF_ARSH) && !reg && !(0..bits).contains(&i.imm) {
                    return refuse(at, format!("shift by {}: 0 to {} are allowed", i.imm, bits - 1));
                }
                Ok(if i.off == 1 { signed(code) } else { code })
            }
        }
    }

    /// Kernel: `do_check`, `check_cond_jmp_op`.
    fn jmp(&self, at: usize, i: BpfInsn, op: &mut Op) -> Result<Code, LoadError> {
        let (wide, reg) = (i.class() == BPF_JMP, i.src() == BPF_X);
        match i.op() {
            BPF_CALL => self.call(at, i, op),
            BPF_EXIT => {
                if !wide {
                    return unknown(at, i);
                }
                reserved(at, "BPF_EXIT", reg || i.imm != 0 || i.src_reg() != 0 || i.dst_reg() != 0)?;
                Ok(Code::Exit)
            }
            BPF_JA => {
                let unused = if wide { i.imm } else { i32::from(i.off) };
                reserved(at, "BPF_JA", reg || i.src_reg() != 0 || i.dst_reg() != 0 || unused != 0)?;
                op.off = self.target(at, "jump", if wide { i64::from(i.off) } else { i64::from(i.imm) })?;
                Ok(Code::Ja)
            }
            _ => {
                let Some(code) = jmp_code(i.op(), wide, reg) else { return unknown(at, i) };
                reserved(at, "BPF_JMP", if reg { i.imm != 0 } else { i.src_reg() != 0 })?;
                op.off = self.target(at, "jump", i64::from(i.off))?;
                Ok(code)
            }
        }
    }

    /// A call of the program's own function, or of a helper.
    fn call(&self, at: usize, i: BpfInsn, op: &mut Op) -> Result<Code, LoadError> {
        if i.class() == BPF_JMP32 || i.src() == BPF_X {
            return refuse(at, "calls of a register (callx) are not supported");
        }
        if i.src_reg() == BPF_PSEUDO_KFUNC_CALL {
            return refuse(
                at,
                format!("calls kernel function #{}: kernel functions are not supported", i.imm),
            );
        }
        reserved(at, "BPF_CALL", i.src_reg() > BPF_PSEUDO_CALL || i.off != 0 || i.dst_reg() != 0)?;
        op.src = 0;
        if i.src_reg() == BPF_PSEUDO_CALL {
            op.off = self.target(at, "call", i64::from(i.imm))?;
            return Ok(Code::Call);
        }
        match helpers::name(i.imm) {
            _ if i.imm == helpers::BPF_FUNC_TAIL_CALL => Ok(Code::TailCall),
            Some(_) if helpers::is_supported(i.imm) => Ok(Code::CallHelper),
            Some(name) => refuse(at, format!("helper {name}#{} is not supported here", i.imm)),
            None => refuse(at, format!("helper #{} does not exist", i.imm)),
        }
    }

    /// The absolute target of a relative jump or call.
    fn target(&self, at: usize, what: &str, off: i64) -> Result<i32, LoadError> {
        let (to, len) = (at as i64 + 1 + off, self.insns.len());
        if to < 0 || to >= len as i64 {
            return refuse(at, format!("{what} to insn {to}, but the program has {len}"));
        }
        // At most MAX_INSNS, so it fits.
        Ok(to as i32)
    }

    /// Kernel: `bpf_opcode_in_insntable`, `check_mem_access`.
    fn ldx(&self, at: usize, i: BpfInsn) -> Result<Code, LoadError> {
        let code = match (i.mode(), i.size()) {
            (BPF_MEM, BPF_B) => Code::Ldx8,
            (BPF_MEM, BPF_H) => Code::Ldx16,
            (BPF_MEM, BPF_W) => Code::Ldx32,
            (BPF_MEM, _) => Code::Ldx64,
            (BPF_MEMSX, BPF_B) => Code::Ldsx8,
            (BPF_MEMSX, BPF_H) => Code::Ldsx16,
            (BPF_MEMSX, BPF_W) => Code::Ldsx32,
            _ => return unknown(at, i),
        };
        reserved(at, "BPF_LDX", i.imm != 0)?;
        writable(at, i.dst_reg())?;
        Ok(code)
    }

    fn stx(&self, at: usize, i: BpfInsn) -> Result<Code, LoadError> {
        match (i.mode(), i.size()) {
            (BPF_MEM, size) => {
                reserved(at, "BPF_STX", i.imm != 0)?;
                Ok(match size {
                    BPF_B => Code::Stx8,
                    BPF_H => Code::Stx16,
                    BPF_W => Code::Stx32,
                    _ => Code::Stx64,
                })
            }
            (BPF_ATOMIC, BPF_W) => self.atomic(at, i, Code::Atomic32),
            (BPF_ATOMIC, BPF_DW) => self.atomic(at, i, Code::Atomic64),
            (BPF_ATOMIC, _) => refuse(at, "atomic operations are 4 or 8 bytes wide"),
            _ => unknown(at, i),
        }
    }

    /// Kernel: `check_atomic`.
    fn atomic(&self, at: usize, i: BpfInsn, code: Code) -> Result<Code, LoadError> {
        const ADD: i32 = BPF_ADD as i32;
        const OR: i32 = BPF_OR as i32;
        const AND: i32 = BPF_AND as i32;
        const XOR: i32 = BPF_XOR as i32;
        match i.imm {
            BPF_XCHG | BPF_CMPXCHG => {}
            n if matches!(n & !BPF_FETCH, ADD | OR | AND | XOR) => {}
            n => return refuse(at, format!("BPF_ATOMIC uses invalid atomic opcode {n:#04x}")),
        }
        if i.imm & BPF_FETCH != 0 && i.imm != BPF_CMPXCHG {
            writable(at, i.src_reg())?;
        }
        Ok(code)
    }

    fn st(&self, at: usize, i: BpfInsn) -> Result<Code, LoadError> {
        if i.mode() != BPF_MEM {
            return unknown(at, i);
        }
        reserved(at, "BPF_ST", i.src_reg() != 0)?;
        Ok(match i.size() {
            BPF_B => Code::St8,
            BPF_H => Code::St16,
            BPF_W => Code::St32,
            _ => Code::St64,
        })
    }

    /// Kernel: `check_ld_abs`.
    fn ld_abs(&self, at: usize, i: BpfInsn) -> Result<Code, LoadError> {
        let code = match (i.mode(), i.size()) {
            (BPF_ABS, BPF_B) => Code::LdAbs8,
            (BPF_ABS, BPF_H) => Code::LdAbs16,
            (BPF_ABS, BPF_W) => Code::LdAbs32,
            (BPF_IND, BPF_B) => Code::LdInd8,
            (BPF_IND, BPF_H) => Code::LdInd16,
            (BPF_IND, BPF_W) => Code::LdInd32,
            _ => return unknown(at, i),
        };
        let name = if i.mode() == BPF_ABS { "BPF_LD_ABS" } else { "BPF_LD_IND" };
        reserved(at, name, i.dst_reg() != 0 || i.off != 0 || (i.mode() == BPF_ABS && i.src_reg() != 0))?;
        Ok(code)
    }

    /// Kernel: `resolve_pseudo_ldimm64`, `check_ld_imm`.
    fn ld_imm64(&mut self, at: usize, i: BpfInsn, op: &mut Op) -> Result<Code, LoadError> {
        let Some(&second) = self.insns.get(at + 1) else {
            return refuse(at, "the second half of a 64-bit immediate is missing");
        };
        if second.code != 0 || second.regs != 0 || second.off != 0 {
            return refuse(at + 1, "the second half of a 64-bit immediate holds more than an immediate");
        }
        reserved(at, "BPF_LD_IMM64", i.off != 0)?;
        writable(at, i.dst_reg())?;
        (op.src, op.off) = (0, 0);
        op.imm = match i.src_reg() {
            0 => i64::from(second.imm) << 32 | i64::from(i.imm as u32),
            BPF_PSEUDO_MAP_FD | BPF_PSEUDO_MAP_IDX => {
                reserved(at + 1, "BPF_LD_IMM64", second.imm != 0)?;
                self.map(at, i)?.addr() as i64
            }
            BPF_PSEUDO_MAP_VALUE | BPF_PSEUDO_MAP_IDX_VALUE => {
                let map = self.map(at, i)?;
                // As the kernel does: the offset is unsigned.
                match map.direct_value_addr(second.imm as u32) {
                    Ok(addr) => addr as i64,
                    Err(e) => {
                        let (name, off) = (map.name(), second.imm as u32);
                        return refuse(at, format!("no direct access to offset {off} of map '{name}': {e}"));
                    }
                }
            }
            BPF_PSEUDO_BTF_ID => {
                return refuse(at, format!("names kernel variable BTF id {}: there are none here", i.imm));
            }
            BPF_PSEUDO_FUNC => {
                return refuse(at, "takes the address of a function: callbacks are not supported");
            }
            n => return refuse(at, format!("unrecognized 64-bit immediate: source register field {n}")),
        };
        Ok(Code::LdImm64)
    }

    /// The map of a reference: descriptors, too, are positions in the load's maps.
    fn map(&self, at: usize, i: BpfInsn) -> Result<&Arc<Map>, LoadError> {
        match usize::try_from(i.imm).ok().and_then(|n| self.maps.get(n)) {
            Some(map) => Ok(map),
            None => refuse(at, format!("map {} of {}: there is none", i.imm, self.maps.len())),
        }
    }
}

/// The signed form of a division or modulo.
fn signed(code: Code) -> Code {
    match code {
        Code::Div64K => Code::Sdiv64K,
        Code::Div64X => Code::Sdiv64X,
        Code::Div32K => Code::Sdiv32K,
        Code::Div32X => Code::Sdiv32X,
        Code::Mod64K => Code::Smod64K,
        Code::Mod64X => Code::Smod64X,
        Code::Mod32K => Code::Smod32K,
        Code::Mod32X => Code::Smod32X,
        other => other,
    }
}

fn reserved(at: usize, what: &str, used: bool) -> Result<(), LoadError> {
    if used { refuse(at, format!("{what} uses reserved fields")) } else { Ok(()) }
}

fn writable(at: usize, reg: u8) -> Result<(), LoadError> {
    if reg == BPF_REG_FP { refuse(at, "frame pointer is read only") } else { Ok(()) }
}

fn unknown<T>(at: usize, i: BpfInsn) -> Result<T, LoadError> {
    refuse(at, format!("unknown opcode {:02x}", i.code))
}

/// Where control may go. Kernel: `check_subprogs`, `check_cfg`, `add_subprog`.
fn check_flow(insns: &[BpfInsn], ops: &[Op]) -> Result<(), LoadError> {
    let mut starts = vec![0];
    for (at, op) in ops.iter().enumerate() {
        let (jumps, calls) = (is_jump(op.code), op.code == Code::Call);
        if (jumps || calls) && ops[op.off as usize].code == Code::Slot2 {
            let what = if calls { "call" } else { "jump" };
            return refuse(at, format!("{what} to insn {}, the second half of a 64-bit immediate", op.off));
        }
        if calls {
            starts.push(op.off as usize);
        }
    }
    starts.sort_unstable();
    starts.dedup();
    let ends = starts.iter().skip(1).copied().chain([insns.len()]);
    for (&start, end) in starts.iter().zip(ends) {
        for (at, op) in ops.iter().enumerate().take(end).skip(start) {
            if is_jump(op.code) && !(start..end).contains(&(op.off as usize)) {
                return refuse(
                    at,
                    format!("jump to insn {}, out of its function ({start} to {})", op.off, end - 1),
                );
            }
        }
        if !matches!(ops[end - 1].code, Code::Exit | Code::Ja) {
            return refuse(end - 1, "the last instruction is not an exit or a jump");
        }
    }
    Ok(())
}

/// Whether `off` of such an op is a jump target.
fn is_jump(code: Code) -> bool {
    code == Code::Ja || (Code::Jeq64K as u8..=Code::Jsle32X as u8).contains(&(code as u8))
}
