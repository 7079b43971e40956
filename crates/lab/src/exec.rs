//! `progstats exec`: one program, once, on given memory; prints r0. `progstats dump`: its instructions, as text.

use std::io::Read;

use anyhow::{Context, Result};
use bpf::disasm::Listing;
use bpf::interp::{RunOpts, run_with};
use bpf::{PlainEnv, Program};

use crate::cli::{ExecArgs, SourceArgs};
use crate::out;
use crate::source::{Source, bytes_from_hex, insns_from_hex};

/// Instructions that one run may execute: a fraction of a second.
const BUDGET: u64 = 1 << 26;

/// Entry point of `exec`: the program is hex on stdin, the memory hex in the argument; r1 is its address, r2 its length.
pub(crate) fn exec(args: &ExecArgs) -> Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("stdin: the program must be hex text")?;
    let insns = insns_from_hex(&text).context("stdin")?;
    let mut memory = bytes_from_hex(args.memory.as_deref().unwrap_or_default()).context("MEMORY")?;
    let program = Program::load("exec", &insns, vec![])?;
    let opts = RunOpts { len_in_r2: true, budget: BUDGET };
    let r0 = run_with(&program, &mut memory, &PlainEnv::default(), opts)?;
    out::print(&format!("{r0:#x}\n"))
}

/// Entry point of `dump`.
pub(crate) fn dump(args: &SourceArgs) -> Result<()> {
    out::print(&Listing(&Source::of(args)?.insns).to_string())
}
