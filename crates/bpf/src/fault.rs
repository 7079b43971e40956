//! Why a run was ended. The kernel has no such thing: there the verifier proves that none of this happens
//! (kernel/bpf/verifier.c, v6.6); here the interpreter finds out as it runs.
//!
//! A fault is made in any context, so it is `Copy` and allocates nothing; [`Fault::explain`] is for later.

use std::fmt;

use crate::helpers;
use crate::memory::MAX_CALL_FRAMES;
use crate::prog::Program;

/// Why a run was ended, and at which instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The instruction's index, in slots, in the program that ran last.
    pub pc: u32,
    /// What it did.
    pub kind: FaultKind,
}

/// What a program did that it may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It accessed memory that it does not have.
    OutOfBounds {
        /// Where.
        addr: u64,
        /// How many bytes.
        size: u64,
        /// Whether to write.
        write: bool,
    },
    /// It wrote to memory that it may only read.
    ReadOnly {
        /// Where.
        addr: u64,
    },
    /// An atomic operation was not aligned to its width.
    Misaligned {
        /// Where.
        addr: u64,
        /// The width.
        size: u64,
    },
    /// It ran for too long.
    Budget,
    /// Too many functions are active.
    CallDepth,
    /// A packet load without the context in r6.
    NoPacket,
    /// The program ended with a ring buffer record that was neither submitted nor discarded; it was
    /// discarded.
    UnreleasedRecord,
    /// A helper got an argument that it does not take.
    Helper {
        /// The helper's id.
        id: i32,
        /// What is wrong with the argument.
        why: &'static str,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "insn {}: {}", self.pc, self.kind)
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OutOfBounds { addr, size, write } => {
                let what = if write { "write" } else { "read" };
                write!(
                    f,
                    "invalid {what} of {size} {} at {addr:#x}",
                    if size == 1 { "byte" } else { "bytes" }
                )
            }
            Self::ReadOnly { addr } => write!(f, "write to read-only memory at {addr:#x}"),
            Self::Misaligned { addr, size } => {
                write!(f, "atomic access at {addr:#x} is not aligned to its {size} bytes")
            }
            Self::CallDepth => write!(f, "more than {MAX_CALL_FRAMES} functions are active"),
            Self::Helper { id, why } => {
                write!(f, "helper {}#{id}: {why}", helpers::name(id).unwrap_or("unknown"))
            }
            Self::Budget | Self::NoPacket | Self::UnreleasedRecord => f.write_str(self.why()),
        }
    }
}

impl std::error::Error for Fault {}

impl FaultKind {
    /// The fault in a few words, without its numbers. Context: any.
    pub fn why(&self) -> &'static str {
        match *self {
            Self::OutOfBounds { write: false, .. } => "read of memory that it does not have",
            Self::OutOfBounds { .. } => "write to memory that it does not have",
            Self::ReadOnly { .. } => "write to read-only memory",
            Self::Misaligned { .. } => "atomic access that is not aligned",
            Self::Budget => "the program ran for too many instructions",
            Self::CallDepth => "too many functions are active",
            Self::NoPacket => "packet load, but r6 does not hold the context",
            Self::UnreleasedRecord => "a ring buffer record was neither submitted nor discarded",
            Self::Helper { why, .. } => why,
        }
    }
}

impl Fault {
    /// The fault's sentence, with the memory that the program could reach besides its stack; `ctx` is what it
    /// was run on.
    ///
    /// Context: task; allocates.
    pub fn explain(&self, prog: &Program, ctx: &[u8]) -> String {
        let mut reach = vec![];
        if !ctx.is_empty() {
            let range = ctx.as_ptr_range();
            reach.push(format!("context {:p}..{:p} ({} bytes)", range.start, range.end, ctx.len()));
        }
        for map in prog.maps() {
            let ro = if map.prog_may_write() { "" } else { ", read-only" };
            reach.push(format!("values of map '{}' ({} bytes each{ro})", map.name(), map.value_size()));
        }
        if reach.is_empty() { self.to_string() } else { format!("{self}; in reach: {}", reach.join(", ")) }
    }
}
