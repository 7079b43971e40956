//! Programs at a function of the kernel, through a trampoline that takes the guard. Mirrors `bpf_prog_test_run_tracing`,
//! net/bpf/test_run.c, which calls that function.

use super::quiet;
use crate::btf;
use crate::errno::Errno;
use crate::error::{CannotAsk, Error};
use crate::info::{Stats, stats};
use crate::insn::returns;
use crate::link::Link;
use crate::prog::{Load, ProgType};
use crate::stats::StatsFd;

/// Where such a program stands. Kernel: `enum bpf_attach_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `BPF_TRACE_FENTRY`: before the function.
    Fentry = 24,
    /// `BPF_TRACE_FEXIT`: after it.
    Fexit = 25,
}

/// What one call of the traced function added, with statistics on or off.
///
/// # Errors
/// [`CannotAsk`]: among them kernels that are locked down.
pub fn traced(place: Place, on: bool) -> Result<Stats, CannotAsk> {
    const TRACED: &str = "bpf_fentry_test1";
    let _lock = quiet()?;
    let func = btf::func_id(TRACED)?
        .ok_or_else(|| Error::new(format!("find the function {TRACED}"), Errno::ENOENT))?;
    let insns = returns(0);
    let mut load = Load::new(ProgType::Tracing, "progstats_tr", &insns);
    load.member = Some((func, place as u32));
    let program = load.load()?;
    let _link = Link::tracing(&program)?;
    let held = if on { Some(StatsFd::enable()?) } else { None };
    program.test_run(0)?;
    drop(held);
    Ok(stats(&program)?)
}
