//! What the tests that ask the running kernel share.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

/// `progstats` with these arguments, nothing on stdin.
pub(crate) fn progstats(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_progstats"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs it without any capability, whoever we are.
pub(crate) fn without_rights(mut command: Command) -> Output {
    let drop_rights = || {
        // What exec may give to root; each until there are no more.
        for cap in 0.. {
            // SAFETY: no pointers.
            if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, cap, 0, 0, 0) } < 0 {
                match io::Error::last_os_error().raw_os_error() {
                    // Not ours to drop: then we have none either.
                    Some(libc::EINVAL | libc::EPERM) => break,
                    _ => return Err(io::Error::last_os_error()),
                }
            }
        }
        Ok(())
    };
    // SAFETY: system calls only, which a child of fork may make.
    unsafe { command.pre_exec(drop_rights) }.output().unwrap()
}
