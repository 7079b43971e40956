//! Where the host does not let a process patch its own text, experiments run all the same, and a line says so.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use libc::{SYS_membarrier, sock_filter, sock_fprog};

/// From here on, and in what is executed, membarrier(2) fails with EPERM.
fn deny_membarrier() -> io::Result<()> {
    let op = |code: u32, jf: u8, k: u32| sock_filter { code: code as u16, jt: 0, jf, k };
    let mut filter = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, SYS_membarrier as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program lives while the call lasts.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[test]
fn without_patching_a_line_says_so_and_all_is_counted() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_progstats"));
    command.args(["run", "--seconds", "0.1", "--json"]);
    // SAFETY: two system calls, which a child of fork may make.
    let out = unsafe { command.pre_exec(deny_membarrier) }.output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success(), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    for words in ["static keys cannot be patched", "membarrier(2)", "each run tests a word instead"] {
        assert!(err.contains(words), "{err:?} does not say {words:?}");
    }
    let shown: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(shown[0]["run_cnt"].as_u64().unwrap() > 0);
}
