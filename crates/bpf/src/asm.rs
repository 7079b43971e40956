//! The assembler: the form that the kernel's verifier log and bpftool print (kernel/bpf/disasm.c, v6.6), read back.
//!
//! One instruction a line. What a listing has in front (`12: (b7)`) may stay. Beyond what the kernel prints:
//!
//! - comments from `;` or `//` to the end of the line; empty lines;
//! - labels: `name:` on a line of its own or before an instruction, as target of `goto`, `gotol`, `if` and `call`;
//! - helpers by name or number alone: `call bpf_ktime_get_ns`, `call ktime_get_ns`, `call 5`;
//! - immediates decimal or hexadecimal, in 32 bits signed or unsigned; `r1 = 5 ll` for a 64-bit one;
//! - maps as [`crate::disasm`] prints them: `r1 = map[id:3]`, `r1 = map[id:3][0]+8`, `r1 = map[idx:0]`;
//! - raw slots: `.insn b700000001000000`.
//!
//! ```
//! let insns = bpf::asm::assemble(
//!     "r0 = 0
//!      again:
//!      r0 += 1             ; counts to ten
//!      if r0 != 10 goto again
//!      exit",
//! )?;
//! assert_eq!(insns.len(), 4);
//! assert_eq!(bpf::asm::assemble("r0 += x").unwrap_err().to_string(), "1:7: expected a register or a number");
//! # Ok::<(), bpf::asm::AsmError>(())
//! ```

use std::collections::HashMap;
use std::fmt;

use crate::helpers;
use crate::insn::*;

/// Spelling, operation and offset field of arithmetic; no spelling is the beginning of a later one.
pub(crate) const ALU_OPS: [(&str, u8, i16); 14] = [
    ("s>>=", BPF_ARSH, 0),
    ("s/=", BPF_DIV, 1),
    ("s%=", BPF_MOD, 1),
    ("<<=", BPF_LSH, 0),
    (">>=", BPF_RSH, 0),
    ("+=", BPF_ADD, 0),
    ("-=", BPF_SUB, 0),
    ("*=", BPF_MUL, 0),
    ("/=", BPF_DIV, 0),
    ("|=", BPF_OR, 0),
    ("&=", BPF_AND, 0),
    ("%=", BPF_MOD, 0),
    ("^=", BPF_XOR, 0),
    ("=", BPF_MOV, 0),
];

/// Spelling and operation of conditions; no spelling is the beginning of a later one.
pub(crate) const JMP_OPS: [(&str, u8); 11] = [
    ("s>=", BPF_JSGE),
    ("s<=", BPF_JSLE),
    ("s>", BPF_JSGT),
    ("s<", BPF_JSLT),
    ("==", BPF_JEQ),
    ("!=", BPF_JNE),
    (">=", BPF_JGE),
    ("<=", BPF_JLE),
    (">", BPF_JGT),
    ("<", BPF_JLT),
    ("&", BPF_JSET),
];

/// Name, spelling without fetch, and immediate of atomic operations.
pub(crate) const ATOMIC_OPS: [(&str, &str, i32); 4] = [
    ("add", "+=", BPF_ADD as i32),
    ("or", "|=", BPF_OR as i32),
    ("and", "&=", BPF_AND as i32),
    ("xor", "^=", BPF_XOR as i32),
];

/// What is wrong with a text: where, and one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsmError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for AsmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.reason)
    }
}

impl std::error::Error for AsmError {}

/// Assembles a program.
///
/// # Errors
/// [`AsmError`] for the first line that is wrong, or the first label that does not exist.
pub fn assemble(text: &str) -> Result<Vec<BpfInsn>, AsmError> {
    let mut a = Assembler::default();
    for (n, line) in text.lines().enumerate() {
        let end = line.find(';').into_iter().chain(line.find("//")).min().unwrap_or(line.len());
        let mut p = Parser { line: &line[..end], at: 0, number: n + 1 };
        a.line(&mut p)?;
    }
    a.link()
}

#[derive(Default)]
struct Assembler {
    insns: Vec<BpfInsn>,
    labels: HashMap<String, usize>,
    /// Instructions whose target is a label.
    uses: Vec<LabelUse>,
}

struct LabelUse {
    insn: usize,
    label: String,
    /// Where it stands, as an error without a reason.
    place: AsmError,
}

/// Where a jump or call goes.
enum Target {
    Relative(i64),
    Label(String, AsmError),
}

/// A register: its number, and whether it was written `w`, as 32 bits.
#[derive(Clone, Copy)]
struct Reg {
    number: u8,
    narrow: bool,
}

/// The second operand.
enum Operand {
    Reg(u8),
    Imm(i32),
}

impl Assembler {
    fn line(&mut self, p: &mut Parser<'_>) -> Result<(), AsmError> {
        p.listing_prefix();
        let mut start = p.clone();
        while let Some(label) = p.label() {
            if self.labels.insert(label.clone(), self.insns.len()).is_some() {
                return start.fail(format!("label '{label}' exists already"));
            }
            start = p.clone();
        }
        if p.at_end() {
            return Ok(());
        }
        self.statement(p)?;
        if p.at_end() { Ok(()) } else { p.fail("the instruction should end here") }
    }

    fn statement(&mut self, p: &mut Parser<'_>) -> Result<(), AsmError> {
        let insn = if p.eat(".insn") {
            p.raw_insn()?
        } else if p.word("exit") {
            exit_insn()
        } else if p.word("goto") {
            self.with_off(jmp_a(0), p.target()?, p)?
        } else if p.word("gotol") {
            self.with_imm(jmp32_a(0), p.target()?, p)?
        } else if p.word("if") {
            self.condition(p)?
        } else if p.word("call") {
            self.call(p)?
        } else if p.word("lock") {
            p.locked()?
        } else if p.eat("*") {
            p.store()?
        } else if let Some(dst) = p.reg()? {
            self.insns.extend(p.assignment(dst)?);
            return Ok(());
        } else {
            return p.fail("expected an instruction");
        };
        self.insns.push(insn);
        Ok(())
    }

    /// `if r1 s> 0x5 goto pc+3`
    fn condition(&mut self, p: &mut Parser<'_>) -> Result<BpfInsn, AsmError> {
        let dst = p.expect_reg()?;
        let Some(&(_, op)) = JMP_OPS.iter().find(|(text, _)| p.eat(text)) else {
            return p.fail("expected a comparison");
        };
        let class = if dst.narrow { BPF_JMP32 } else { BPF_JMP };
        let insn = match p.operand(dst)? {
            Operand::Reg(src) => BpfInsn::new(class | op | BPF_X, dst.number, src, 0, 0),
            Operand::Imm(imm) => BpfInsn::new(class | op | BPF_K, dst.number, 0, 0, imm),
        };
        p.expect_word("goto")?;
        self.with_off(insn, p.target()?, p)
    }

    /// `call pc+2`, `call bpf_map_lookup_elem#1`, `call 1`, `call label`
    fn call(&mut self, p: &mut Parser<'_>) -> Result<BpfInsn, AsmError> {
        if let Some(id) = p.number_if_any()? {
            return Ok(emit_call(p.imm32(id)?));
        }
        let start = p.clone();
        if p.eat("kernel-function#") {
            let id = p.expect_number()?;
            return Ok(BpfInsn::new(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_KFUNC_CALL, 0, p.imm32(id)?));
        }
        if let Some(name) = p.ident() {
            if p.eat("#") {
                let id = p.expect_number()?;
                let id = p.imm32(id)?;
                let known = helpers::name(id).map_or("unknown".into(), |name| format!("bpf_{name}"));
                if name != known {
                    return start.fail(format!("helper #{id} is {known}, not {name}"));
                }
                return Ok(emit_call(id));
            }
            if let Some(id) = helpers::id(name.strip_prefix("bpf_").unwrap_or(name)) {
                return Ok(emit_call(id));
            }
        }
        *p = start;
        self.with_imm(call_rel(0), p.target()?, p)
    }

    /// Sets the target of a jump whose distance is in the offset field.
    fn with_off(&mut self, insn: BpfInsn, target: Target, p: &Parser<'_>) -> Result<BpfInsn, AsmError> {
        Ok(BpfInsn { off: p.off16(self.distance(target))?, ..insn })
    }

    /// Sets the target of a jump or call whose distance is in the immediate.
    fn with_imm(&mut self, insn: BpfInsn, target: Target, p: &Parser<'_>) -> Result<BpfInsn, AsmError> {
        Ok(BpfInsn { imm: p.imm32(self.distance(target).into())?, ..insn })
    }

    /// The distance if it is known; for a label 0, and the use is noted.
    fn distance(&mut self, target: Target) -> i64 {
        match target {
            Target::Relative(off) => off,
            Target::Label(label, place) => {
                self.uses.push(LabelUse { insn: self.insns.len(), label, place });
                0
            }
        }
    }

    /// Fills in the labels.
    fn link(mut self) -> Result<Vec<BpfInsn>, AsmError> {
        for LabelUse { insn, label, place } in self.uses {
            let Some(&to) = self.labels.get(&label) else {
                return Err(AsmError { reason: format!("there is no label or helper '{label}'"), ..place });
            };
            let distance = to as i64 - insn as i64 - 1;
            let i = &mut self.insns[insn];
            let far = || AsmError { reason: format!("label '{label}' is too far away"), ..place.clone() };
            if matches!((i.class(), i.op()), (BPF_JMP32, BPF_JA) | (_, BPF_CALL)) {
                i.imm = i32::try_from(distance).map_err(|_| far())?;
            } else {
                i.off = i16::try_from(distance).map_err(|_| far())?;
            }
        }
        Ok(self.insns)
    }
}

/// A line, and how far it was read.
#[derive(Clone)]
struct Parser<'a> {
    line: &'a str,
    at: usize,
    number: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.line[self.at..]
    }

    fn skip_space(&mut self) {
        self.at = self.line.len() - self.rest().trim_start().len();
    }

    fn at_end(&mut self) -> bool {
        self.skip_space();
        self.rest().is_empty()
    }

    /// An error at the next thing that is not space.
    fn fail<T>(&self, reason: impl Into<String>) -> Result<T, AsmError> {
        let mut p = self.clone();
        p.skip_space();
        let column = p.line[..p.at].chars().count() + 1;
        Err(AsmError { line: self.number, column, reason: reason.into() })
    }

    /// Reads `text`, if it is next.
    fn eat(&mut self, text: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    fn expect(&mut self, text: &str) -> Result<(), AsmError> {
        if self.eat(text) { Ok(()) } else { self.fail(format!("expected '{text}'")) }
    }

    /// Reads a letter and what letters, digits and underscores follow, if there is one.
    fn ident(&mut self) -> Option<&'a str> {
        self.skip_space();
        let rest = self.rest();
        let len = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let word = &rest[..len];
        word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_').then(|| {
            self.at += len;
            word
        })
    }

    /// Reads the whole word `text`, if it is next.
    fn word(&mut self, text: &str) -> bool {
        let start = self.at;
        let found = self.ident() == Some(text);
        self.at = if found { self.at } else { start };
        found
    }

    fn expect_word(&mut self, text: &str) -> Result<(), AsmError> {
        if self.word(text) { Ok(()) } else { self.fail(format!("expected '{text}'")) }
    }

    /// What a listing prints before an instruction: its number, and its opcode in brackets.
    fn listing_prefix(&mut self) {
        let mut p = self.clone();
        p.skip_space();
        let digits = p.rest().len() - p.rest().trim_start_matches(|c: char| c.is_ascii_digit()).len();
        p.at += digits;
        if digits > 0 && p.eat(":") {
            *self = p.clone();
        }
        p = self.clone();
        if p.eat("(") {
            let hex = p.rest().bytes().take_while(u8::is_ascii_hexdigit).count();
            p.at += hex;
            if hex == 2 && p.eat(")") {
                *self = p;
            }
        }
    }

    /// Reads `name:`, if it is next.
    fn label(&mut self) -> Option<String> {
        let mut p = self.clone();
        let name = p.ident()?;
        p.eat(":").then(|| {
            *self = p;
            name.into()
        })
    }

    /// Reads a number with or without sign, decimal or hexadecimal, if one is next.
    fn number_if_any(&mut self) -> Result<Option<i128>, AsmError> {
        let mut p = self.clone();
        let negative = !p.eat("+") && p.eat("-");
        p.skip_space();
        let (radix, digits) = match p.rest().strip_prefix("0x") {
            Some(hex) => (16, hex),
            None => (10, p.rest()),
        };
        let len = digits.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        if !p.rest().starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(None);
        }
        let Ok(n) = u64::from_str_radix(&digits[..len], radix) else {
            return self.fail(format!(
                "'{}' is not a number of 64 bits",
                &p.rest()[..p.rest().len() - digits.len() + len]
            ));
        };
        p.at += p.rest().len() - digits.len() + len;
        *self = p;
        Ok(Some(if negative { -i128::from(n) } else { i128::from(n) }))
    }

    fn expect_number(&mut self) -> Result<i128, AsmError> {
        match self.number_if_any()? {
            Some(n) => Ok(n),
            None => self.fail("expected a number"),
        }
    }

    /// A number as 32 bits, written signed or unsigned.
    fn imm32(&self, n: i128) -> Result<i32, AsmError> {
        let fits = i32::try_from(n).ok().or_else(|| u32::try_from(n).ok().map(|n| n as i32));
        fits.map_or_else(|| self.fail(format!("{n} does not fit 32 bits")), Ok)
    }

    fn off16(&self, n: impl Into<i128>) -> Result<i16, AsmError> {
        let n = n.into();
        i16::try_from(n).or_else(|_| self.fail(format!("{n} does not fit the 16 bits of an offset")))
    }

    /// Reads a register, if one is next.
    fn reg(&mut self) -> Result<Option<Reg>, AsmError> {
        let mut p = self.clone();
        let Some(word) = p.ident() else { return Ok(None) };
        let Some(digits) = word.strip_prefix(['r', 'w']).filter(|d| d.bytes().all(|b| b.is_ascii_digit()))
        else {
            return Ok(None);
        };
        let number = match digits.parse() {
            Ok(number) if number <= BPF_REG_FP && !(digits.len() > 1 && digits.starts_with('0')) => number,
            _ if digits.is_empty() => return Ok(None),
            _ => return self.fail(format!("there is no register {word}: they are r0 to r10 and w0 to w10")),
        };
        *self = p;
        Ok(Some(Reg { number, narrow: word.starts_with('w') }))
    }

    fn expect_reg(&mut self) -> Result<Reg, AsmError> {
        match self.reg()? {
            Some(reg) => Ok(reg),
            None => self.fail("expected a register"),
        }
    }

    /// A register in full width.
    fn wide_reg(&mut self) -> Result<u8, AsmError> {
        let start = self.clone();
        let reg = self.expect_reg()?;
        if reg.narrow {
            start.fail(format!("r{} is needed here, in full width", reg.number))
        } else {
            Ok(reg.number)
        }
    }

    /// A register as wide as `like`.
    fn same_width_reg(&mut self, like: Reg) -> Result<u8, AsmError> {
        let start = self.clone();
        let reg = self.expect_reg()?;
        if reg.narrow == like.narrow {
            Ok(reg.number)
        } else {
            start.fail("both registers must be r, or both w")
        }
    }

    /// A register as wide as `like`, or a number.
    fn operand(&mut self, like: Reg) -> Result<Operand, AsmError> {
        let start = self.clone();
        if let Some(n) = self.number_if_any()? {
            return Ok(Operand::Imm(start.imm32(n)?));
        }
        match self.reg()? {
            Some(_) => {
                *self = start;
                Ok(Operand::Reg(self.same_width_reg(like)?))
            }
            None => self.fail("expected a register or a number"),
        }
    }

    /// `pc+3` or a label.
    fn target(&mut self) -> Result<Target, AsmError> {
        let start = self.clone();
        if self.eat("pc")
            && self.rest().starts_with(['+', '-'])
            && let Some(n) = self.number_if_any()?
        {
            return match i64::try_from(n) {
                Ok(n) => Ok(Target::Relative(n)),
                Err(_) => start.fail(format!("{n} is too far away")),
            };
        }
        *self = start.clone();
        let Some(label) = self.ident() else { return self.fail("expected pc+N, pc-N, or a label") };
        let Err(place) = start.fail::<()>("") else { return self.fail("expected a target") };
        Ok(Target::Label(label.into(), place))
    }

    /// `.insn` with its 16 hex digits.
    fn raw_insn(&mut self) -> Result<BpfInsn, AsmError> {
        self.skip_space();
        let digits = self.rest().trim_end();
        let value = u64::from_str_radix(digits, 16).ok();
        match value.filter(|_| digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit())) {
            Some(value) => {
                self.at += digits.len();
                Ok(BpfInsn::from_bytes(value.to_be_bytes()))
            }
            None => self.fail("expected the 16 hex digits of an instruction"),
        }
    }

    /// `(u64 *)`: the width, and whether it is signed.
    fn cast(&mut self) -> Result<(u8, bool), AsmError> {
        self.expect("(")?;
        let start = self.clone();
        let cast = match self.ident() {
            Some("u8") => (BPF_B, false),
            Some("u16") => (BPF_H, false),
            Some("u32") => (BPF_W, false),
            Some("u64") => (BPF_DW, false),
            Some("s8") => (BPF_B, true),
            Some("s16") => (BPF_H, true),
            Some("s32") => (BPF_W, true),
            _ => return start.fail("expected a type: u8, u16, u32, u64, s8, s16 or s32"),
        };
        self.expect("*")?;
        self.expect(")")?;
        Ok(cast)
    }

    /// `(u64 *)` where it cannot be signed.
    fn unsigned_cast(&mut self) -> Result<u8, AsmError> {
        let start = self.clone();
        let (size, signed) = self.cast()?;
        if signed { start.fail("the type must be unsigned here") } else { Ok(size) }
    }

    /// `(r1 +8)`
    fn address(&mut self) -> Result<(u8, i16), AsmError> {
        self.expect("(")?;
        let reg = self.wide_reg()?;
        let start = self.clone();
        let off = if self.eat("+") || self.eat("-") {
            *self = start.clone();
            start.off16(self.expect_number()?)?
        } else {
            0
        };
        self.expect(")")?;
        Ok((reg, off))
    }

    /// After the star: `(u32 *)(r10 -4) = r1`
    fn store(&mut self) -> Result<BpfInsn, AsmError> {
        let size = self.unsigned_cast()?;
        let (dst, off) = self.address()?;
        self.expect("=")?;
        Ok(match self.operand(Reg { number: 0, narrow: false })? {
            Operand::Reg(src) => stx_mem(size, dst, src, off),
            Operand::Imm(imm) => st_mem(size, dst, off, imm),
        })
    }

    /// After `lock`: `*(u64 *)(r1 +0) += r2`
    fn locked(&mut self) -> Result<BpfInsn, AsmError> {
        self.expect("*")?;
        let size = self.atomic_cast()?;
        let (dst, off) = self.address()?;
        let Some(&(_, _, op)) = ATOMIC_OPS.iter().find(|(_, text, _)| self.eat(text)) else {
            return self.fail("expected an atomic operation: +=, |=, &= or ^=");
        };
        Ok(atomic_op(size, op, dst, self.wide_reg()?, off))
    }

    fn atomic_cast(&mut self) -> Result<u8, AsmError> {
        let start = self.clone();
        match self.unsigned_cast()? {
            size @ (BPF_W | BPF_DW) => Ok(size),
            _ => start.fail("atomic operations are u32 or u64"),
        }
    }

    /// What follows a destination register.
    fn assignment(&mut self, dst: Reg) -> Result<Vec<BpfInsn>, AsmError> {
        let Some(&(_, op, off)) = ALU_OPS.iter().find(|(text, ..)| self.eat(text)) else {
            return self.fail("expected an operation, as = or +=");
        };
        if op == BPF_MOV
            && let Some(slots) = self.special_value(dst)?
        {
            return Ok(slots);
        }
        let class = if dst.narrow { BPF_ALU } else { BPF_ALU64 };
        let start = self.clone();
        if op == BPF_MOV
            && !dst.narrow
            && let Some(n) = self.number_if_any()?
        {
            // `r1 = 5` is one slot, `r1 = 5 ll` two.
            if !self.word("ll") {
                return Ok(vec![mov64_imm(dst.number, start.imm32(n)?)]);
            }
            let wide = u64::try_from(n).ok().or_else(|| i64::try_from(n).ok().map(|n| n as u64));
            return match wide {
                Some(imm) => Ok(ld_imm64(dst.number, imm).into()),
                None => start.fail(format!("{n} does not fit 64 bits")),
            };
        }
        Ok(vec![match self.operand(dst)? {
            Operand::Reg(src) => BpfInsn::new(class | op | BPF_X, dst.number, src, off, 0),
            Operand::Imm(imm) => BpfInsn::new(class | op | BPF_K, dst.number, 0, off, imm),
        }])
    }

    /// What can only stand after `=`: a load, an atomic, a negation, a conversion, a map.
    fn special_value(&mut self, dst: Reg) -> Result<Option<Vec<BpfInsn>>, AsmError> {
        let start = self.clone();
        let class = if dst.narrow { BPF_ALU } else { BPF_ALU64 };
        // `-w1`, but not `-5`.
        if self.eat("-") {
            if self.reg()?.is_none() {
                *self = start;
                return Ok(None);
            }
            self.at = start.at;
            self.expect("-")?;
            let src = self.same_width_reg(dst)?;
            if src != dst.number {
                return start.fail("a register can only be negated into itself");
            }
            return Ok(Some(vec![BpfInsn::new(class | BPF_NEG, src, 0, 0, 0)]));
        }
        // `(s8)r2`
        if self.eat("(") {
            let bits = match self.ident() {
                Some("s8") => 8,
                Some("s16") => 16,
                Some("s32") if !dst.narrow => 32,
                _ => return start.fail("expected a sign extension: (s8), (s16), or for r registers (s32)"),
            };
            self.expect(")")?;
            let src = self.same_width_reg(dst)?;
            return Ok(Some(vec![BpfInsn::new(class | BPF_MOV | BPF_X, dst.number, src, bits, 0)]));
        }
        let wide = || if dst.narrow { start.fail("only an r register can hold that") } else { Ok(()) };
        if self.eat("*") {
            wide()?;
            return self.load(dst.number).map(|i| Some(vec![i]));
        }
        let Some(word) = self.ident() else { return Ok(None) };
        if let Some(atomic) = word.strip_prefix("atomic") {
            wide()?;
            return self.fetch(dst.number, atomic).map(|i| Some(vec![i]));
        }
        let conversions = [("be", BPF_ALU | BPF_TO_BE), ("le", BPF_ALU | BPF_TO_LE), ("bswap", BPF_ALU64)];
        for (name, code) in conversions {
            if let Some(bits @ ("16" | "32" | "64")) = word.strip_prefix(name) {
                wide()?;
                if self.wide_reg()? != dst.number {
                    return start.fail("a register can only be converted into itself");
                }
                let bits = bits.parse().unwrap_or(64);
                return Ok(Some(vec![BpfInsn::new(code | BPF_END, dst.number, 0, 0, bits)]));
            }
        }
        if matches!(word, "map" | "btf_id" | "subprog") {
            wide()?;
            return self.reference(dst.number, word).map(|slots| Some(slots.into()));
        }
        *self = start;
        Ok(None)
    }

    /// After the star: `(u64 *)(r2 +8)`, `(u8 *)skb[14]`, `(u8 *)skb[r1 + 14]`
    fn load(&mut self, dst: u8) -> Result<BpfInsn, AsmError> {
        let start = self.clone();
        let (size, signed) = self.cast()?;
        if !self.word("skb") {
            let (src, off) = self.address()?;
            return Ok(if signed { ldx_memsx(size, dst, src, off) } else { ldx_mem(size, dst, src, off) });
        }
        if dst != 0 || signed || size == BPF_DW {
            return start.fail("packet loads are u8, u16 or u32, into r0");
        }
        self.expect("[")?;
        let insn = match self.reg()? {
            Some(reg) => {
                let imm = if self.eat("+") { self.expect_number()? } else { 0 };
                BpfInsn::new(BPF_LD | BPF_IND | size, 0, reg.number, 0, self.imm32(imm)?)
            }
            None => {
                let imm = self.expect_number()?;
                BpfInsn::new(BPF_LD | BPF_ABS | size, 0, 0, 0, self.imm32(imm)?)
            }
        };
        self.expect("]")?;
        Ok(insn)
    }

    /// After `r2 = atomic`: `64_fetch_add((u64 *)(r1 +0), r2)`
    fn fetch(&mut self, dst: u8, name: &str) -> Result<BpfInsn, AsmError> {
        let start = self.clone();
        let (size, name) = match name.strip_prefix("64_") {
            Some(name) => (BPF_DW, Some(name)),
            None => (BPF_W, name.strip_prefix('_')),
        };
        let fetch =
            |name: &str| ATOMIC_OPS.iter().find(|(n, ..)| *n == name).map(|&(_, _, op)| op | BPF_FETCH);
        let op = match name {
            Some("xchg") => Some(BPF_XCHG),
            Some("cmpxchg") => Some(BPF_CMPXCHG),
            Some(name) => name.strip_prefix("fetch_").and_then(fetch),
            None => None,
        };
        let Some(op) = op else { return start.fail("there is no such atomic operation") };
        self.expect("(")?;
        let cast = self.clone();
        if self.atomic_cast()? != size {
            return cast.fail("the type does not fit the operation: atomic64_ is for u64, atomic_ for u32");
        }
        let (at, off) = self.address()?;
        self.expect(",")?;
        if op == BPF_CMPXCHG {
            if self.wide_reg()? != 0 || dst != 0 {
                return start.fail("cmpxchg compares with r0, and returns into it");
            }
            self.expect(",")?;
        }
        let src = self.wide_reg()?;
        if op != BPF_CMPXCHG && src != dst {
            return start.fail(format!("the old value is returned into the operand, r{src}"));
        }
        self.expect(")")?;
        Ok(atomic_op(size, op, at, src, off))
    }

    /// After `map`, `btf_id` or `subprog`.
    fn reference(&mut self, dst: u8, word: &str) -> Result<[BpfInsn; 2], AsmError> {
        self.expect("[")?;
        let by_idx = word == "map" && {
            let by_idx = self.eat("idx:");
            if !by_idx {
                self.expect("id:")?;
            }
            by_idx
        };
        let n = self.expect_number()?;
        let n = self.imm32(n)?;
        self.expect("]")?;
        match word {
            "btf_id" => return Ok(ld_imm64_raw(dst, BPF_PSEUDO_BTF_ID, n, 0)),
            "subprog" => return Ok(ld_imm64_raw(dst, BPF_PSEUDO_FUNC, n, 0)),
            _ => {}
        }
        let in_value = !by_idx && self.eat("[0]");
        if !in_value && !self.clone().eat("+") {
            return Ok(if by_idx { ld_map_idx(dst, n) } else { ld_map_fd(dst, n) });
        }
        self.expect("+")?;
        let off = self.expect_number()?;
        let off = self.imm32(off)?;
        match (by_idx, in_value) {
            (true, _) => Ok(ld_map_idx_value(dst, n, off)),
            (false, true) => Ok(ld_map_value(dst, n, off)),
            (false, false) => self.fail("an address in a value is written map[id:N][0]+OFFSET"),
        }
    }
}
