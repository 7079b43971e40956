//! The interpreter. Mirrors `___bpf_prog_run` and `interpreters` of kernel/bpf/core.c, v6.6; the meaning of
//! each instruction is RFC 9669, sections 4 and 5.
//!
//! # Invariants
//! 1. A run allocates nothing, makes no system call and does not panic, and locks nothing but a map's bucket
//!    (see there): it may run in a signal handler, and over a run that it interrupted.
//! 2. A run ends: each taken jump charges the instructions since the last one to the budget.
//!
//! Differs: the kernel's verifier proves accesses beforehand, here they are checked as they happen
//! ([`crate::memory`]). Frames are zeroed (the kernel refuses programs that would read them unset). Legacy
//! packet loads read the context. Atomics may work on the context. A tail call in a function counts with
//! those of its callers, as in the kernel's JITs.

use std::mem::MaybeUninit;
use std::ptr;

use sync::mem;

use crate::decode::{Code, Op};
use crate::env::Env;
pub use crate::fault::{Fault, FaultKind};
use crate::helpers;
use crate::insn::*;
use crate::maps::Map;
use crate::memory::{MAX_BPF_STACK, MAX_CALL_FRAMES, Vm};
use crate::prog::Program;

/// Tail calls that one run may make. Kernel: `MAX_TAIL_CALL_CNT`.
pub const MAX_TAIL_CALL_CNT: u32 = 33;
/// Instructions that a run may take unless told otherwise: about a second.
pub const DEFAULT_BUDGET: u64 = 1 << 28;

/// How a program is run.
#[derive(Clone, Copy, Debug)]
pub struct RunOpts {
    /// r2 starts as the context's length, as for `exec`; else as 0.
    pub len_in_r2: bool,
    /// Instructions that the run may take; checked where it jumps.
    pub budget: u64,
}

impl Default for RunOpts {
    fn default() -> Self {
        Self { len_in_r2: false, budget: DEFAULT_BUDGET }
    }
}

/// Runs a program with r1 pointing to `ctx`; returns r0. Kernel: `bpf_prog_run` without the statistics.
///
/// Context: any; async-signal-safe, may be nested in itself.
///
/// # Errors
/// [`Fault`] if the program did what the kernel's verifier would have refused.
pub fn run(prog: &Program, ctx: &mut [u8], env: &dyn Env) -> Result<u64, Fault> {
    run_with(prog, ctx, env, RunOpts::default())
}

/// [`run`] with options.
///
/// # Errors
/// As [`run`].
pub fn run_with(prog: &Program, ctx: &mut [u8], env: &dyn Env, opts: RunOpts) -> Result<u64, Fault> {
    let mut stack = MaybeUninit::uninit();
    let mut vm = Vm::new(&mut stack, ctx, prog, env);
    let result = exec(&mut vm, opts);
    if vm.holds_records() {
        vm.discard_all();
    }
    result
}

/// What a call keeps of its caller.
#[derive(Clone, Copy)]
struct Saved<'a> {
    prog: &'a Program,
    ret: *const Op,
    r6_to_r9: [u64; 4],
}

const R0: usize = 0;
const R6: usize = 6;
const R10: usize = BPF_REG_FP as usize;

/// The loop. Registers are indexed by four bits, so that no bounds check remains.
fn exec<'a>(vm: &mut Vm<'a>, opts: RunOpts) -> Result<u64, Fault> {
    let mut regs = [0u64; 16];
    let (ctx, ctx_len) = vm.ctx();
    regs[1] = ctx;
    regs[2] = if opts.len_in_r2 { ctx_len } else { 0 };
    regs[R10] = vm.frame_pointer();
    let mut ops: *const Op = vm.prog.ops.as_ptr();
    let mut saved = [const { MaybeUninit::<Saved<'a>>::uninit() }; MAX_CALL_FRAMES - 1];
    let (mut depth, mut tail_calls) = (0, 0);
    // `pc` is the next instruction; those since `start` are not charged yet. Pointers, as they are cheaper
    // than indices: by decode's invariant they stay within the program whose instructions begin at `ops`.
    let (mut pc, mut start, mut budget) = (ops, ops, opts.budget);

    macro_rules! fault {
        ($kind:expr) => {
            return Err(Fault { pc: distance(ops, pc) as u32 - 1, kind: $kind })
        };
    }
    macro_rules! charge {
        () => {
            match budget.checked_sub(distance(start, pc)) {
                Some(left) => budget = left,
                None => fault!(FaultKind::Budget),
            }
        };
    }
    macro_rules! goto {
        ($to:expr) => {{
            charge!();
            // SAFETY: a checked target of this program.
            pc = unsafe { ops.add($to) };
            start = pc;
        }};
    }
    loop {
        // SAFETY: by decode's invariant, `pc` is the first op, a checked target, or follows an op that is not
        // the last.
        let op = unsafe { *pc };
        // SAFETY: at most the end.
        pc = unsafe { pc.add(1) };
        let (d, s) = (usize::from(op.dst & 15), usize::from(op.src & 15));

        macro_rules! alu64 {
            ($rhs:expr, |$a:ident, $b:ident| $e:expr) => {{
                let ($a, $b): (u64, u64) = (regs[d], $rhs);
                regs[d] = $e;
            }};
        }
        macro_rules! alu32 {
            ($rhs:expr, |$a:ident, $b:ident| $e:expr) => {{
                let ($a, $b): (u32, u32) = (regs[d] as u32, $rhs as u32);
                regs[d] = u64::from($e);
            }};
        }
        macro_rules! jmp {
            ($int:ty, $rhs:expr, |$a:ident, $b:ident| $e:expr) => {{
                let ($a, $b) = (regs[d] as $int, $rhs as $int);
                if $e {
                    goto!(op.off as usize);
                }
            }};
        }
        macro_rules! ldx {
            ($load:ident, $size:literal $(, $signed:ty)?) => {{
                match vm.reach(regs[s].wrapping_add(i64::from(op.off) as u64), $size, false) {
                    // SAFETY: in reach for this width, and memory of programs is accessed through `mem` only.
                    Ok(p) => regs[d] = unsafe { mem::$load(p) } $(as $signed as i64)? as u64,
                    Err(kind) => fault!(kind),
                }
            }};
        }
        macro_rules! store {
            ($store:ident, $size:literal, $int:ty, $v:expr) => {{
                match vm.reach(regs[d].wrapping_add(i64::from(op.off) as u64), $size, true) {
                    // SAFETY: in reach for writes of this width, and accessed through `mem` only.
                    Ok(p) => unsafe { mem::$store(p, $v as $int) },
                    Err(kind) => fault!(kind),
                }
            }};
        }
        macro_rules! ret {
            () => {{
                if depth == 0 {
                    if vm.holds_records() {
                        fault!(FaultKind::UnreleasedRecord);
                    }
                    return Ok(regs[R0]);
                }
                charge!();
                depth -= 1;
                // SAFETY: written by the call that made `depth` one more.
                let caller = unsafe { saved[depth].assume_init() };
                regs[R6..R10].copy_from_slice(&caller.r6_to_r9);
                regs[R10] = regs[R10].wrapping_sub(MAX_BPF_STACK as u64);
                if !ptr::eq(vm.prog, caller.prog) {
                    vm.set_prog(caller.prog);
                    ops = caller.prog.ops.as_ptr();
                }
                vm.leave_to(depth);
                pc = caller.ret;
                start = pc;
            }};
        }
        macro_rules! packet {
            ($off:expr, $size:literal, $load:ident, $int:ty) => {{
                if regs[R6] != ctx {
                    fault!(FaultKind::NoPacket);
                }
                let off = $off as i32;
                if off >= 0 && (off as u64) < ctx_len.saturating_sub($size - 1) {
                    let p = ptr::with_exposed_provenance::<u8>(ctx as usize + off as usize);
                    // SAFETY: within the context.
                    regs[R0] = u64::from(<$int>::from_be(unsafe { mem::$load(p) }));
                } else {
                    regs[R0] = 0;
                    ret!();
                }
            }};
        }

        match op.code {
            Code::Add64K => alu64!(op.imm as u64, |a, b| a.wrapping_add(b)),
            Code::Add64X => alu64!(regs[s], |a, b| a.wrapping_add(b)),
            Code::Add32K => alu32!(op.imm, |a, b| a.wrapping_add(b)),
            Code::Add32X => alu32!(regs[s], |a, b| a.wrapping_add(b)),
            Code::Sub64K => alu64!(op.imm as u64, |a, b| a.wrapping_sub(b)),
            Code::Sub64X => alu64!(regs[s], |a, b| a.wrapping_sub(b)),
            Code::Sub32K => alu32!(op.imm, |a, b| a.wrapping_sub(b)),
            Code::Sub32X => alu32!(regs[s], |a, b| a.wrapping_sub(b)),
            Code::Mul64K => alu64!(op.imm as u64, |a, b| a.wrapping_mul(b)),
            Code::Mul64X => alu64!(regs[s], |a, b| a.wrapping_mul(b)),
            Code::Mul32K => alu32!(op.imm, |a, b| a.wrapping_mul(b)),
            Code::Mul32X => alu32!(regs[s], |a, b| a.wrapping_mul(b)),
            // Division by zero gives 0; modulo by zero leaves the dividend, cut to the width.
            Code::Div64K => alu64!(op.imm as u64, |a, b| a.checked_div(b).unwrap_or(0)),
            Code::Div64X => alu64!(regs[s], |a, b| a.checked_div(b).unwrap_or(0)),
            Code::Div32K => alu32!(op.imm, |a, b| a.checked_div(b).unwrap_or(0)),
            Code::Div32X => alu32!(regs[s], |a, b| a.checked_div(b).unwrap_or(0)),
            Code::Mod64K => alu64!(op.imm as u64, |a, b| a.checked_rem(b).unwrap_or(a)),
            Code::Mod64X => alu64!(regs[s], |a, b| a.checked_rem(b).unwrap_or(a)),
            Code::Mod32K => alu32!(op.imm, |a, b| a.checked_rem(b).unwrap_or(a)),
            Code::Mod32X => alu32!(regs[s], |a, b| a.checked_rem(b).unwrap_or(a)),
            Code::Sdiv64K => alu64!(op.imm as u64, |a, b| sdiv64(a, b)),
            Code::Sdiv64X => alu64!(regs[s], |a, b| sdiv64(a, b)),
            Code::Sdiv32K => alu32!(op.imm, |a, b| sdiv32(a, b)),
            Code::Sdiv32X => alu32!(regs[s], |a, b| sdiv32(a, b)),
            Code::Smod64K => alu64!(op.imm as u64, |a, b| smod64(a, b)),
            Code::Smod64X => alu64!(regs[s], |a, b| smod64(a, b)),
            Code::Smod32K => alu32!(op.imm, |a, b| smod32(a, b)),
            Code::Smod32X => alu32!(regs[s], |a, b| smod32(a, b)),
            Code::Or64K => alu64!(op.imm as u64, |a, b| a | b),
            Code::Or64X => alu64!(regs[s], |a, b| a | b),
            Code::Or32K => alu32!(op.imm, |a, b| a | b),
            Code::Or32X => alu32!(regs[s], |a, b| a | b),
            Code::And64K => alu64!(op.imm as u64, |a, b| a & b),
            Code::And64X => alu64!(regs[s], |a, b| a & b),
            Code::And32K => alu32!(op.imm, |a, b| a & b),
            Code::And32X => alu32!(regs[s], |a, b| a & b),
            Code::Xor64K => alu64!(op.imm as u64, |a, b| a ^ b),
            Code::Xor64X => alu64!(regs[s], |a, b| a ^ b),
            Code::Xor32K => alu32!(op.imm, |a, b| a ^ b),
            Code::Xor32X => alu32!(regs[s], |a, b| a ^ b),
            // Shifts use the low six bits (five in 32 bit) of the right operand: `wrapping_sh*` is that.
            Code::Lsh64K => alu64!(op.imm as u64, |a, b| a.wrapping_shl(b as u32)),
            Code::Lsh64X => alu64!(regs[s], |a, b| a.wrapping_shl(b as u32)),
            Code::Lsh32K => alu32!(op.imm, |a, b| a.wrapping_shl(b)),
            Code::Lsh32X => alu32!(regs[s], |a, b| a.wrapping_shl(b)),
            Code::Rsh64K => alu64!(op.imm as u64, |a, b| a.wrapping_shr(b as u32)),
            Code::Rsh64X => alu64!(regs[s], |a, b| a.wrapping_shr(b as u32)),
            Code::Rsh32K => alu32!(op.imm, |a, b| a.wrapping_shr(b)),
            Code::Rsh32X => alu32!(regs[s], |a, b| a.wrapping_shr(b)),
            Code::Arsh64K => alu64!(op.imm as u64, |a, b| (a as i64).wrapping_shr(b as u32) as u64),
            Code::Arsh64X => alu64!(regs[s], |a, b| (a as i64).wrapping_shr(b as u32) as u64),
            Code::Arsh32K => alu32!(op.imm, |a, b| (a as i32).wrapping_shr(b) as u32),
            Code::Arsh32X => alu32!(regs[s], |a, b| (a as i32).wrapping_shr(b) as u32),
            Code::Mov64K => regs[d] = op.imm as u64,
            Code::Mov64X => regs[d] = regs[s],
            Code::Mov32K => regs[d] = u64::from(op.imm as u32),
            Code::Mov32X => regs[d] = u64::from(regs[s] as u32),
            Code::Movsx8To64 => regs[d] = regs[s] as i8 as u64,
            Code::Movsx16To64 => regs[d] = regs[s] as i16 as u64,
            Code::Movsx32To64 => regs[d] = regs[s] as i32 as u64,
            Code::Movsx8To32 => regs[d] = u64::from(regs[s] as i8 as u32),
            Code::Movsx16To32 => regs[d] = u64::from(regs[s] as i16 as u32),
            Code::Neg64 => regs[d] = regs[d].wrapping_neg(),
            Code::Neg32 => regs[d] = u64::from((regs[d] as u32).wrapping_neg()),
            Code::Le16 => regs[d] = u64::from((regs[d] as u16).to_le()),
            Code::Le32 => regs[d] = u64::from((regs[d] as u32).to_le()),
            Code::Le64 => regs[d] = regs[d].to_le(),
            Code::Be16 => regs[d] = u64::from((regs[d] as u16).to_be()),
            Code::Be32 => regs[d] = u64::from((regs[d] as u32).to_be()),
            Code::Be64 => regs[d] = regs[d].to_be(),
            Code::Bswap16 => regs[d] = u64::from((regs[d] as u16).swap_bytes()),
            Code::Bswap32 => regs[d] = u64::from((regs[d] as u32).swap_bytes()),
            Code::Bswap64 => regs[d] = regs[d].swap_bytes(),

            Code::Jeq64K => jmp!(u64, op.imm, |a, b| a == b),
            Code::Jeq64X => jmp!(u64, regs[s], |a, b| a == b),
            Code::Jeq32K => jmp!(u32, op.imm, |a, b| a == b),
            Code::Jeq32X => jmp!(u32, regs[s], |a, b| a == b),
            Code::Jne64K => jmp!(u64, op.imm, |a, b| a != b),
            Code::Jne64X => jmp!(u64, regs[s], |a, b| a != b),
            Code::Jne32K => jmp!(u32, op.imm, |a, b| a != b),
            Code::Jne32X => jmp!(u32, regs[s], |a, b| a != b),
            Code::Jgt64K => jmp!(u64, op.imm, |a, b| a > b),
            Code::Jgt64X => jmp!(u64, regs[s], |a, b| a > b),
            Code::Jgt32K => jmp!(u32, op.imm, |a, b| a > b),
            Code::Jgt32X => jmp!(u32, regs[s], |a, b| a > b),
            Code::Jge64K => jmp!(u64, op.imm, |a, b| a >= b),
            Code::Jge64X => jmp!(u64, regs[s], |a, b| a >= b),
            Code::Jge32K => jmp!(u32, op.imm, |a, b| a >= b),
            Code::Jge32X => jmp!(u32, regs[s], |a, b| a >= b),
            Code::Jlt64K => jmp!(u64, op.imm, |a, b| a < b),
            Code::Jlt64X => jmp!(u64, regs[s], |a, b| a < b),
            Code::Jlt32K => jmp!(u32, op.imm, |a, b| a < b),
            Code::Jlt32X => jmp!(u32, regs[s], |a, b| a < b),
            Code::Jle64K => jmp!(u64, op.imm, |a, b| a <= b),
            Code::Jle64X => jmp!(u64, regs[s], |a, b| a <= b),
            Code::Jle32K => jmp!(u32, op.imm, |a, b| a <= b),
            Code::Jle32X => jmp!(u32, regs[s], |a, b| a <= b),
            Code::Jsgt64K => jmp!(i64, op.imm, |a, b| a > b),
            Code::Jsgt64X => jmp!(i64, regs[s], |a, b| a > b),
            Code::Jsgt32K => jmp!(i32, op.imm, |a, b| a > b),
            Code::Jsgt32X => jmp!(i32, regs[s], |a, b| a > b),
            Code::Jsge64K => jmp!(i64, op.imm, |a, b| a >= b),
            Code::Jsge64X => jmp!(i64, regs[s], |a, b| a >= b),
            Code::Jsge32K => jmp!(i32, op.imm, |a, b| a >= b),
            Code::Jsge32X => jmp!(i32, regs[s], |a, b| a >= b),
            Code::Jslt64K => jmp!(i64, op.imm, |a, b| a < b),
            Code::Jslt64X => jmp!(i64, regs[s], |a, b| a < b),
            Code::Jslt32K => jmp!(i32, op.imm, |a, b| a < b),
            Code::Jslt32X => jmp!(i32, regs[s], |a, b| a < b),
            Code::Jsle64K => jmp!(i64, op.imm, |a, b| a <= b),
            Code::Jsle64X => jmp!(i64, regs[s], |a, b| a <= b),
            Code::Jsle32K => jmp!(i32, op.imm, |a, b| a <= b),
            Code::Jsle32X => jmp!(i32, regs[s], |a, b| a <= b),
            Code::Jset64K => jmp!(u64, op.imm, |a, b| a & b != 0),
            Code::Jset64X => jmp!(u64, regs[s], |a, b| a & b != 0),
            Code::Jset32K => jmp!(u32, op.imm, |a, b| a & b != 0),
            Code::Jset32X => jmp!(u32, regs[s], |a, b| a & b != 0),
            Code::Ja => goto!(op.off as usize),

            Code::Ldx8 => ldx!(load8, 1),
            Code::Ldx16 => ldx!(load16, 2),
            Code::Ldx32 => ldx!(load32, 4),
            Code::Ldx64 => ldx!(load64, 8),
            Code::Ldsx8 => ldx!(load8, 1, i8),
            Code::Ldsx16 => ldx!(load16, 2, i16),
            Code::Ldsx32 => ldx!(load32, 4, i32),
            Code::St8 => store!(store8, 1, u8, op.imm),
            Code::St16 => store!(store16, 2, u16, op.imm),
            Code::St32 => store!(store32, 4, u32, op.imm),
            Code::St64 => store!(store64, 8, u64, op.imm),
            Code::Stx8 => store!(store8, 1, u8, regs[s]),
            Code::Stx16 => store!(store16, 2, u16, regs[s]),
            Code::Stx32 => store!(store32, 4, u32, regs[s]),
            Code::Stx64 => store!(store64, 8, u64, regs[s]),
            Code::Atomic32 => match vm.aligned(regs[d].wrapping_add(i64::from(op.off) as u64), 4) {
                // SAFETY: in reach for writes of 4 bytes and aligned.
                Ok(p) => unsafe { atomic32(p, op.imm as i32, &mut regs, s) },
                Err(kind) => fault!(kind),
            },
            Code::Atomic64 => match vm.aligned(regs[d].wrapping_add(i64::from(op.off) as u64), 8) {
                // SAFETY: in reach for writes of 8 bytes and aligned.
                Ok(p) => unsafe { atomic64(p, op.imm as i32, &mut regs, s) },
                Err(kind) => fault!(kind),
            },
            Code::LdImm64 => {
                regs[d] = op.imm as u64;
                // SAFETY: the second slot is not the last op.
                pc = unsafe { pc.add(1) };
            }
            Code::LdAbs8 => packet!(op.imm, 1, load8, u8),
            Code::LdAbs16 => packet!(op.imm, 2, load16, u16),
            Code::LdAbs32 => packet!(op.imm, 4, load32, u32),
            Code::LdInd8 => packet!(regs[s].wrapping_add(op.imm as u64), 1, load8, u8),
            Code::LdInd16 => packet!(regs[s].wrapping_add(op.imm as u64), 2, load16, u16),
            Code::LdInd32 => packet!(regs[s].wrapping_add(op.imm as u64), 4, load32, u32),

            Code::CallHelper => {
                let [_, r1, r2, r3, r4, r5, ..] = regs;
                match helpers::call(vm, op.imm as i32, [r1, r2, r3, r4, r5]) {
                    Ok(r0) => regs[R0] = r0,
                    Err(kind) => fault!(kind),
                }
            }
            Code::Call => {
                if depth == MAX_CALL_FRAMES - 1 {
                    fault!(FaultKind::CallDepth);
                }
                charge!();
                let r6_to_r9 = [regs[6], regs[7], regs[8], regs[9]];
                saved[depth].write(Saved { prog: vm.prog, ret: pc, r6_to_r9 });
                depth += 1;
                regs[R10] = regs[R10].wrapping_add(MAX_BPF_STACK as u64);
                vm.enter(depth);
                // SAFETY: a checked target of this program.
                pc = unsafe { ops.add(op.off as usize) };
                start = pc;
            }
            Code::TailCall => {
                let Some(array) = vm.prog.map_at(regs[2]).and_then(Map::prog_array) else {
                    let (id, why) = (helpers::BPF_FUNC_TAIL_CALL, "r2 is not a program array");
                    fault!(FaultKind::Helper { id, why });
                };
                let index = regs[3] as u32;
                // An index out of range does not count, an empty slot does.
                if array.has(index) && tail_calls < MAX_TAIL_CALL_CNT {
                    tail_calls += 1;
                    if let Some(next) = array.get(index) {
                        charge!();
                        vm.set_prog(next);
                        ops = next.ops.as_ptr();
                        vm.enter(depth);
                        (pc, start) = (ops, ops);
                    }
                }
            }
            Code::Exit => ret!(),
            // Never reached: `LdImm64` steps over it, and no jump leads here.
            Code::Slot2 => {}
        }
    }
}

/// Ops from `a` to `b`, which are of one program, `b` not before `a`.
fn distance(a: *const Op, b: *const Op) -> u64 {
    ((b.addr() - a.addr()) / size_of::<Op>()) as u64
}

fn sdiv64(a: u64, b: u64) -> u64 {
    if b == 0 { 0 } else { (a as i64).wrapping_div(b as i64) as u64 }
}

fn sdiv32(a: u32, b: u32) -> u32 {
    if b == 0 { 0 } else { (a as i32).wrapping_div(b as i32) as u32 }
}

fn smod64(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { (a as i64).wrapping_rem(b as i64) as u64 }
}

fn smod32(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { (a as i32).wrapping_rem(b as i32) as u32 }
}

macro_rules! atomic {
    (
        $name:ident, $int:ty, $add:ident $or:ident $and:ident $xor:ident
        $fadd:ident $for:ident $fand:ident $fxor:ident $xchg:ident $cmpxchg:ident
    ) => {
        /// One atomic instruction. Kernel: `ATOMIC_ALU_OP` of `___bpf_prog_run`.
        ///
        /// A 32-bit compare-and-exchange leaves r0 zero-extended, as in the kernel's interpreter and RFC 9669.
        /// Differs: compiled for x86 it may leave r0's high half as it was if it succeeds, where the verifier
        /// sees no need to clear it (seen on 6.18).
        ///
        /// # Safety
        /// `p` is aligned, and valid for reads and writes of the width.
        #[inline(always)]
        unsafe fn $name(p: *mut u8, op: i32, regs: &mut [u64; 16], s: usize) {
            const ADD: i32 = BPF_ADD as i32;
            const OR: i32 = BPF_OR as i32;
            const AND: i32 = BPF_AND as i32;
            const XOR: i32 = BPF_XOR as i32;
            const FETCH_ADD: i32 = ADD | BPF_FETCH;
            const FETCH_OR: i32 = OR | BPF_FETCH;
            const FETCH_AND: i32 = AND | BPF_FETCH;
            const FETCH_XOR: i32 = XOR | BPF_FETCH;
            let v = regs[s] as $int;
            // SAFETY: the caller's contract.
            unsafe {
                let old = match op {
                    ADD => {
                        mem::$add(p, v);
                        return;
                    }
                    OR => {
                        mem::$or(p, v);
                        return;
                    }
                    AND => {
                        mem::$and(p, v);
                        return;
                    }
                    XOR => {
                        mem::$xor(p, v);
                        return;
                    }
                    FETCH_ADD => mem::$fadd(p, v),
                    FETCH_OR => mem::$for(p, v),
                    FETCH_AND => mem::$fand(p, v),
                    FETCH_XOR => mem::$fxor(p, v),
                    BPF_XCHG => mem::$xchg(p, v),
                    // BPF_CMPXCHG; decode lets no other pass.
                    _ => {
                        regs[R0] = u64::from(mem::$cmpxchg(p, regs[R0] as $int, v));
                        return;
                    }
                };
                regs[s] = u64::from(old);
            }
        }
    };
}

atomic!(atomic32, u32, add32 or32 and32 xor32
    fetch_add32 fetch_or32 fetch_and32 fetch_xor32 xchg32 cmpxchg32);
atomic!(atomic64, u64, add64 or64 and64 xor64
    fetch_add64 fetch_or64 fetch_and64 fetch_xor64 xchg64 cmpxchg64);
