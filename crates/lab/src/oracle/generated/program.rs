//! Random programs that the kernel's verifier takes, nearly all of them.
//!
//! r0 to r5, r7 and r8 are numbers and have a value at each point; r6 is the context, r9 the value of the first map. The
//! frame's upper part is initialised and holds numbers only. Each step takes an opcode from the list of all and appends
//! what makes it valid; so all are as frequent, whatever they need. Branches go forward, but for loops of a few rounds.
//! At its end a program stores its numbers in the map, all 64 bits, so that each of them is compared.

use std::ops::Range;

use bpf::BpfInsn;
use bpf::insn::*;
use fastrand::Rng;
use host::Release;

use super::opcodes::{self, Opcode, SIZES};

/// Maps by position: an array of one value, a hash, an array of few values.
pub(super) const DATA: i32 = 0;
pub(super) const HASH: i32 = 1;
pub(super) const ARRAY: i32 = 2;

/// Bytes of the first map's value that programs use as they like, and where their results begin.
const DATA_USED: i16 = 96;
const RESULTS: i16 = 96;
/// Bytes of the first map's value.
pub(super) const DATA_SIZE: u32 = 160;
/// Bytes of the other maps' values.
pub(super) const VALUE_SIZE: u32 = 16;
/// Keys that programs ask for: some are beyond the array, and one more than the hash has room for.
pub(super) const KEYS: u32 = 8;
pub(super) const HASH_ENTRIES: u32 = 6;
pub(super) const ARRAY_ENTRIES: u32 = 5;

const NUMBERS: [u8; 8] = [0, 1, 2, 3, 4, 5, 7, 8];
/// The registers that calls destroy.
const SCRATCH: [u8; 5] = [1, 2, 3, 4, 5];
const CTX: u8 = 6;
const VALUE: u8 = 9;
/// Bytes of the frame that hold numbers; below them a key.
const FRAME: i16 = 64;
const KEY: i16 = -72;

/// What a function may hold; the kernel does not take packet loads beside functions.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// The main function of a program with others.
    Main,
    /// One of the others.
    Sub,
    /// The only function, with packet loads.
    Packet,
}

/// A program of this seed, for kernels of this release.
pub(super) fn program(seed: u64, release: Release) -> Vec<BpfInsn> {
    let mut rng = Rng::with_seed(seed);
    let subs = rng.usize(0..=2);
    let kind = if subs == 0 { Kind::Packet } else { Kind::Main };
    let mut functions = Vec::new();
    for n in 0..=subs {
        let kind = if n == 0 { kind } else { Kind::Sub };
        let mut f = Function {
            rng: &mut rng,
            release,
            kind,
            calls: subs - n,
            opcodes: opcodes::all(),
            insns: vec![],
        };
        f.generate();
        functions.push(f.insns);
    }
    link(functions)
}

/// Puts functions one behind the other; a call's immediate says how many functions ahead its target is.
fn link(functions: Vec<Vec<BpfInsn>>) -> Vec<BpfInsn> {
    let starts: Vec<usize> = functions
        .iter()
        .scan(0, |at, f| {
            let start = *at;
            *at += f.len();
            Some(start)
        })
        .collect();
    let mut program = Vec::new();
    for (n, f) in functions.into_iter().enumerate() {
        for mut insn in f {
            if insn.code == BPF_JMP | BPF_CALL && insn.src_reg() == BPF_PSEUDO_CALL {
                let target = starts[n + insn.imm as usize];
                insn.imm = target as i32 - program.len() as i32 - 1;
            }
            program.push(insn);
        }
    }
    program
}

/// The instructions of each function's beginning, which give a value to all that it may read.
pub(super) fn beginnings(insns: &[BpfInsn]) -> Vec<Range<usize>> {
    let longest = 3 + 2 * NUMBERS.len() + FRAME as usize / 8;
    let ends = (0..insns.len()).filter(|&at| insns[at] == st_mem(BPF_DW, BPF_REG_FP, KEY, 0));
    ends.map(|end| end.saturating_sub(longest)..end + 1).collect()
}

struct Function<'a> {
    rng: &'a mut Rng,
    release: Release,
    kind: Kind,
    /// Functions behind this one, which it may call.
    calls: usize,
    opcodes: Vec<Opcode>,
    insns: Vec<BpfInsn>,
}

impl Function<'_> {
    fn generate(&mut self) {
        self.begin();
        let steps = self.rng.usize(8..40);
        (0..steps).for_each(|_| self.step(0));
        self.end();
    }

    fn push(&mut self, insn: BpfInsn) {
        self.insns.push(insn);
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(..of.len())]
    }

    fn number(&mut self) -> u8 {
        self.pick(&NUMBERS)
    }

    fn imm(&mut self) -> i32 {
        match self.rng.u8(..4) {
            0 => self.rng.i32(-2..=2),
            1 => self.rng.i32(-256..=256),
            2 => self.pick(&[i32::MIN, i32::MAX, 31, 32, 63, 64, -1]),
            _ => self.rng.i32(..),
        }
    }

    /// Gives a register a value: one that the verifier knows, or one that it does not.
    fn set(&mut self, reg: u8) {
        match self.rng.u8(..4) {
            0 => {
                let imm = self.imm();
                self.push(mov64_imm(reg, imm));
            }
            1 => {
                let imm = self.rng.u64(..);
                self.insns.extend(ld_imm64(reg, imm));
            }
            _ => {
                let off = 8 * self.rng.i16(0..DATA_USED / 8);
                self.push(ldx_mem(BPF_DW, reg, VALUE, off));
            }
        }
    }

    fn begin(&mut self) {
        if self.kind != Kind::Sub {
            self.push(mov64_reg(CTX, 1));
        }
        self.insns.extend(ld_map_value(VALUE, DATA, 0));
        let given: &[u8] = if self.kind == Kind::Sub { &SCRATCH } else { &[] };
        for reg in NUMBERS {
            if !given.contains(&reg) {
                self.set(reg);
            }
        }
        for slot in 1..=FRAME / 8 {
            let reg = self.number();
            self.push(stx_mem(BPF_DW, BPF_REG_FP, reg, -8 * slot));
        }
        self.push(st_mem(BPF_DW, BPF_REG_FP, KEY, 0));
    }

    fn end(&mut self) {
        if self.calls > 0 {
            // The kernel takes no function that nobody calls.
            self.call_function(1);
        }
        if self.kind != Kind::Sub {
            for (n, reg) in NUMBERS.into_iter().enumerate() {
                self.push(stx_mem(BPF_DW, VALUE, reg, RESULTS + 8 * n as i16));
            }
        }
        self.push(exit_insn());
    }

    /// Appends one opcode of the list, with what it needs.
    fn step(&mut self, depth: u32) {
        let opcodes = std::mem::take(&mut self.opcodes);
        let opcode = self.pick(&opcodes);
        self.opcodes = opcodes;
        match opcode.code & 7 {
            BPF_ALU | BPF_ALU64 => self.alu(opcode),
            BPF_JMP | BPF_JMP32 => self.jmp(opcode, depth),
            BPF_LDX => {
                let (base, off) = self.place(opcode.code & 0x18);
                let dst = self.number();
                self.push(BpfInsn::new(opcode.code, dst, base, off, 0));
            }
            BPF_ST => {
                let (base, off) = self.place(opcode.code & 0x18);
                let imm = self.imm();
                self.push(BpfInsn::new(opcode.code, base, 0, off, imm));
            }
            BPF_STX => {
                let (base, off) = self.place(opcode.code & 0x18);
                let atomic = opcode.code & 0xe0 == BPF_ATOMIC;
                let (src, off) = (self.number(), if atomic { off & !7 } else { off });
                self.push(BpfInsn::new(opcode.code, base, src, off, opcode.imm));
                if atomic && base == BPF_REG_FP && opcode.imm & BPF_FETCH != 0 {
                    self.forget(if opcode.imm == BPF_CMPXCHG { 0 } else { src });
                }
            }
            _ => self.ld(opcode),
        }
    }

    /// Makes the verifier forget what it knows of a number that was fetched from the frame.
    ///
    /// `backtrack_insn` (kernel/bpf/verifier.c, seen in 6.18) does not go on from a fetched register to the slot it came
    /// from. So what a branch needs to be known of the slot is lost, a path with another value there is taken for one
    /// already seen, and a branch that this path takes is removed: these programs found it.
    fn forget(&mut self, reg: u8) {
        self.push(stx_mem(BPF_DW, VALUE, reg, DATA_USED - 8));
        self.push(ldx_mem(BPF_DW, reg, VALUE, DATA_USED - 8));
    }

    /// Memory of this width: the frame, aligned as it must be, or the map's value.
    fn place(&mut self, size: u8) -> (u8, i16) {
        let width: i16 = match size {
            BPF_B => 1,
            BPF_H => 2,
            BPF_W => 4,
            _ => 8,
        };
        match self.rng.bool() {
            true => (BPF_REG_FP, -width * self.rng.i16(1..=FRAME / width)),
            false => (VALUE, self.rng.i16(0..=DATA_USED - 8)),
        }
    }

    fn alu(&mut self, opcode: Opcode) {
        let Opcode { code, off, mut imm, .. } = opcode;
        let (op, reg, bits) = (code & 0xf0, code & BPF_X != 0, if code & 7 == BPF_ALU { 32 } else { 64 });
        let dst = self.number();
        let mut src = 0;
        if op == BPF_END || op == BPF_NEG {
            // The bit that elsewhere means a register says which order.
        } else if reg {
            src = self.number();
            if off == 1 && self.release < Release(6, 12) {
                // Until then the smallest number divided by -1 was a fault.
                self.push(alu64_imm(BPF_AND, src, 0xff));
            }
        } else {
            imm = match op {
                BPF_LSH | BPF_RSH | BPF_ARSH => self.rng.i32(0..bits),
                BPF_DIV | BPF_MOD if self.release < Release(6, 12) => self.imm() & 0x7fff_ffff | 1,
                BPF_DIV | BPF_MOD => self.imm() | 1,
                _ => self.imm(),
            };
        }
        self.push(BpfInsn::new(code, dst, src, off, imm));
    }

    fn jmp(&mut self, opcode: Opcode, depth: u32) {
        match (opcode.code & 0xf0, opcode.src) {
            (BPF_JA, _) => self.either(opcode, depth),
            (BPF_EXIT, _) => {
                let (exit, reg) = (exit_insn(), self.number());
                let body = [mov64_reg(0, reg), exit];
                let mut jump = self.condition();
                jump.off = body.len() as i16;
                self.push(jump);
                self.insns.extend(body);
            }
            (BPF_CALL, 0) => self.helper(),
            (BPF_CALL, _) if self.calls > 0 => {
                let ahead = self.rng.usize(1..=self.calls);
                self.call_function(ahead);
            }
            (BPF_CALL, _) => {}
            _ if self.rng.u8(..8) == 0 => self.repeat(opcode),
            _ => {
                let body = self.block(depth);
                let mut jump = self.conditional(opcode);
                jump.off = body.len() as i16;
                self.push(jump);
                self.insns.extend(body);
            }
        }
    }

    /// Calls the function `ahead` behind this one; [`link`] makes the distance of it.
    fn call_function(&mut self, ahead: usize) {
        self.push(call_rel(ahead as i32));
        SCRATCH.into_iter().for_each(|reg| self.set(reg));
    }

    /// A few steps, apart.
    fn block(&mut self, depth: u32) -> Vec<BpfInsn> {
        let before = std::mem::take(&mut self.insns);
        let steps = if depth < 2 { self.rng.usize(1..4) } else { 0 };
        (0..steps).for_each(|_| self.step(depth + 1));
        let reg = self.number();
        self.set(reg);
        std::mem::replace(&mut self.insns, before)
    }

    /// A conditional jump of this opcode on numbers.
    fn conditional(&mut self, opcode: Opcode) -> BpfInsn {
        let (dst, src, imm) = (self.number(), self.number(), self.imm());
        match opcode.code & BPF_X {
            0 => BpfInsn::new(opcode.code, dst, 0, 0, imm),
            _ => BpfInsn::new(opcode.code, dst, src, 0, 0),
        }
    }

    /// A conditional jump of any kind.
    fn condition(&mut self) -> BpfInsn {
        let op = self.pick(&[BPF_JEQ, BPF_JNE, BPF_JSGT, BPF_JLT]);
        self.conditional(Opcode { code: BPF_JMP | op | BPF_K, off: 0, imm: 0, src: 0 })
    }

    /// One of two blocks, the first with a jump over the second.
    fn either(&mut self, opcode: Opcode, depth: u32) {
        let (first, second) = (self.block(depth), self.block(depth));
        let mut jump = self.condition();
        jump.off = first.len() as i16 + 1;
        self.push(jump);
        self.insns.extend(first);
        let over = second.len() as i16;
        self.push(if opcode.code & 7 == BPF_JMP { jmp_a(over) } else { jmp32_a(i32::from(over)) });
        self.insns.extend(second);
    }

    /// A loop of a few rounds: a counter in the frame's key slot goes down to 0, and the opcode may leave it early.
    fn repeat(&mut self, opcode: Opcode) {
        let rounds = self.rng.i32(1..4);
        let counter = self.pick(&[7, 8]);
        self.push(mov64_imm(counter, rounds));
        let start = self.insns.len();
        for _ in 0..self.rng.usize(1..4) {
            let (op, imm) = (self.pick(&[BPF_ADD, BPF_XOR, BPF_MUL]), self.imm());
            let dst = self.pick(&SCRATCH);
            self.push(alu64_imm(op, dst, imm));
        }
        let mut leave = self.conditional(opcode);
        leave.off = 2;
        self.push(leave);
        self.push(alu64_imm(BPF_SUB, counter, 1));
        let back = start as i16 - self.insns.len() as i16 - 1;
        self.push(jmp_imm(BPF_JNE, counter, 0, back));
    }

    fn ld(&mut self, opcode: Opcode) {
        let Opcode { code, src, .. } = opcode;
        if code == BPF_LD | BPF_IMM | BPF_DW {
            match src {
                0 => {
                    let (dst, imm) = (self.number(), self.rng.u64(..));
                    self.insns.extend(ld_imm64(dst, imm));
                }
                BPF_PSEUDO_MAP_FD => self.helper(),
                _ => self.insns.extend(ld_map_value(VALUE, DATA, 0)),
            }
            return;
        }
        if self.kind != Kind::Packet {
            return;
        }
        // A few reach behind the packet, which ends the program.
        let far = if self.rng.u8(..16) == 0 { 64 } else { 40 };
        let imm = self.rng.i32(0..far);
        let index = self.number();
        if code & 0xe0 == BPF_IND {
            self.push(alu64_imm(BPF_AND, index, 7));
            self.push(BpfInsn::new(code, 0, index, 0, imm));
        } else {
            self.push(BpfInsn::new(code, 0, 0, 0, imm));
        }
        SCRATCH.into_iter().for_each(|reg| self.set(reg));
    }

    /// A map's helper: a lookup and something with the value, an update or a deletion.
    fn helper(&mut self) {
        const LOOKUP: i32 = 1;
        const UPDATE: i32 = 2;
        const DELETE: i32 = 3;
        let map = self.pick(&[HASH, ARRAY]);
        let call = self.pick(&[LOOKUP, LOOKUP, UPDATE, DELETE]);
        let from = self.number();
        self.push(mov64_reg(2, from));
        self.push(alu64_imm(BPF_AND, 2, KEYS as i32 - 1));
        self.push(stx_mem(BPF_W, BPF_REG_FP, 2, KEY));
        self.push(mov64_reg(2, BPF_REG_FP));
        self.push(alu64_imm(BPF_ADD, 2, i32::from(KEY)));
        if call == UPDATE {
            let slot = self.rng.i32(2..=i32::from(FRAME) / 8);
            self.push(mov64_reg(3, BPF_REG_FP));
            self.push(alu64_imm(BPF_ADD, 3, -8 * slot));
            // BPF_ANY, BPF_NOEXIST, BPF_EXIST, and one that there is not.
            let flags = self.rng.i32(0..=3);
            self.push(mov64_imm(4, flags));
        }
        self.insns.extend(ld_map_fd(1, map));
        self.push(emit_call(call));
        if call == LOOKUP {
            self.push(jmp_imm(BPF_JEQ, 0, 0, 2));
            let (size, off) = (self.pick(&SIZES), 8 * self.rng.i16(0..VALUE_SIZE as i16 / 8));
            let number = self.pick(&[7, 8]);
            match self.rng.u8(..3) {
                0 => self.push(stx_mem(size, 0, number, off)),
                1 => self.push(atomic_op(BPF_DW, i32::from(BPF_ADD), 0, number, off)),
                _ => self.push(ldx_mem(size, number, 0, off)),
            }
            // So that it is a number on both ways.
            self.push(mov64_imm(0, 1));
        }
        SCRATCH.into_iter().for_each(|reg| self.set(reg));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_program_that_the_simulations_check_takes() {
        let mut sizes = 0;
        for seed in 0..500 {
            let insns = program(seed, Release(6, 6));
            assert_eq!(insns, program(seed, Release(6, 6)));
            sizes += insns.len();
        }
        assert!(sizes > 500 * 50, "{sizes} instructions");
    }
}
