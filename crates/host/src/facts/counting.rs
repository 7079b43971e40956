//! What is counted, how long it stays, and who sees it. Mirrors `bpf_prog_get_stats`, `bpf_prog_show_fdinfo` and
//! `bpf_prog_get_info_by_fd`, kernel/bpf/syscall.c.

use super::quiet;
use crate::caller::{self, Rights};
use crate::errno::Errno;
use crate::error::{CannotAsk, Error};
use crate::info::{self, FdInfo, ProgInfo, Stats, stats};
use crate::probe::minimal;
use crate::prog::{ProgType, by_id};
use crate::stats::StatsFd;

/// The statistics of a program of `prog_type` after each phase: `repeat` test runs with statistics on or off. Types
/// that know no repetition are run that often one by one.
///
/// # Errors
/// [`CannotAsk`].
pub fn survival(prog_type: ProgType, repeat: u32, phases: &[bool]) -> Result<Vec<Stats>, CannotAsk> {
    let _lock = quiet()?;
    let program = minimal(prog_type)?;
    let mut after = Vec::new();
    for &on in phases {
        let held = if on { Some(StatsFd::enable()?) } else { None };
        if prog_type.is_of_packets() {
            program.test_run(repeat)?;
        } else {
            for _ in 0..repeat {
                program.test_run(1)?;
            }
        }
        drop(held);
        after.push(stats(&program)?);
    }
    Ok(after)
}

/// How many runs a test run of `repeat` counts; the errno, where it is refused.
///
/// # Errors
/// [`CannotAsk`].
pub fn repeated(prog_type: ProgType, repeat: u32) -> Result<Result<u64, Errno>, CannotAsk> {
    let _lock = quiet()?;
    let program = minimal(prog_type)?;
    let _on = StatsFd::enable()?;
    if let Err(e) = program.test_run(repeat) {
        return Ok(Err(e.errno));
    }
    Ok(Ok(stats(&program)?.run_cnt))
}

/// What two ways to read a program's statistics gave, and who else could read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readings {
    /// `BPF_OBJ_GET_INFO_BY_FD`.
    pub info: ProgInfo,
    /// The text of the descriptor.
    pub fdinfo: FdInfo,
    /// The statistics as a copy of the descriptor shows them.
    pub by_copy: Stats,
    /// The same as a descriptor made from the id shows them.
    pub by_id: Stats,
    /// The same as a thread without any rights reads them from our descriptor.
    pub by_nobody: Stats,
    /// The errno that this thread gets when it asks for a descriptor by id.
    pub nobody_by_id: i32,
    /// Whether the walk over all ids found it, under its name.
    pub listed: bool,
}

/// Runs a program `repeat` times with statistics on and reads them in all ways, with statistics off again.
///
/// # Errors
/// [`CannotAsk`].
pub fn readings(repeat: u32) -> Result<Readings, CannotAsk> {
    let _lock = quiet()?;
    let program = minimal(ProgType::SocketFilter)?;
    let held = StatsFd::enable()?;
    program.test_run(repeat)?;
    drop(held);
    let info = info::info(&program)?;
    let id = info.id;
    let nobody = || -> Result<_, Error> {
        let refused = by_id(id).err().map_or(0, |e| e.errno.0);
        Ok((stats(&program)?, refused))
    };
    let (by_nobody, nobody_by_id) = caller::with(Rights::Nobody, nobody)??;
    Ok(Readings {
        fdinfo: FdInfo::read(&program)?,
        by_copy: stats(&program.dup()?)?,
        by_id: stats(&by_id(id)?)?,
        by_nobody,
        nobody_by_id,
        listed: info::programs()?.iter().any(|p| p.id == id && p.name == info.name && p.tag == info.tag),
        info,
    })
}
