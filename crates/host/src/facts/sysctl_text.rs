//! Which texts the sysctl takes, and as what. Mirrors `bpf_stats_handler` (kernel/bpf/syscall.c) and
//! `do_proc_dointvec` (kernel/sysctl.c).

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::quiet;
use crate::caller::{self, Rights};
use crate::errno::Errno;
use crate::error::CannotAsk;
use crate::sysctl::{self, Guard};

/// What came of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// How many bytes were taken, or the errno.
    pub taken: Result<usize, Errno>,
    /// What the sysctl reads afterwards.
    pub reads: String,
}

/// Writes `text` where `before` was written before. The old value is put back.
///
/// # Errors
/// [`CannotAsk`].
pub fn write(before: bool, text: &[u8]) -> Result<Written, CannotAsk> {
    let guard = Guard::new(quiet()?)?;
    guard.write(if before { b"1" } else { b"0" }).map_err(|e| CannotAsk(format!("write the sysctl: {e}")))?;
    let taken = guard.write(text);
    Ok(Written { taken, reads: sysctl::read()? })
}

/// The errno of opening the sysctl for writing, and of writing `text`, with these rights; 0 if accepted. Under a
/// guard, as it may be.
///
/// # Errors
/// [`CannotAsk`].
pub fn write_errno_as(rights: Rights, text: &[u8]) -> Result<i32, CannotAsk> {
    let _guard = Guard::new(quiet()?)?;
    caller::with(rights, || {
        let file = File::options().write(true).open(sysctl::PATH);
        let written = file.and_then(|f| f.write_at(text, 0));
        written.err().map_or(0, |e| Errno::from(e).0)
    })
}
