//! What went wrong: which call the kernel refused, why as far as can be found out, and what to do.

use std::fmt;

use crate::caller::{self, Capability};
use crate::errno::Errno;

/// A call that the kernel refused.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    /// The call, for people: `BPF_PROG_LOAD raw_tracepoint`.
    pub call: String,
    /// What the kernel answered.
    pub errno: Errno,
    /// The verifier's log, if it had something to say.
    pub log: String,
    /// Why, and what to do about it; empty if there is nothing to say beyond the number.
    pub advice: String,
}

impl Error {
    /// `call` was refused with `errno`; looks for the reason now, as the state of this thread is what matters.
    pub fn new(call: impl Into<String>, errno: Errno) -> Error {
        let advice = match errno {
            Errno::EPERM | Errno::EACCES => advice_on_permission(),
            Errno::ENOSYS => "this kernel has no bpf(2), or a sandbox hides it".into(),
            Errno::ENOTSUPP | Errno::EOPNOTSUPP => "this kernel was built without it".into(),
            Errno::EMFILE | Errno::ENFILE => "too many open files: raise the limit (ulimit -n)".into(),
            _ => String::new(),
        };
        Error { call: call.into(), errno, log: String::new(), advice }
    }

    /// The last failed call of this thread was `call`.
    pub fn last(call: impl Into<String>) -> Error {
        Error::new(call, Errno::last())
    }

    /// The same with the verifier's log.
    pub fn with_log(self, log: String) -> Error {
        Error { log, ..self }
    }
}

/// Why this thread was refused: the first of what is known to forbid bpf(2).
fn advice_on_permission() -> String {
    let caps = [Capability::SysAdmin, Capability::Bpf, Capability::Perfmon, Capability::NetAdmin];
    let missing: Vec<_> = caps.into_iter().filter(|&c| !caller::has(c)).map(Capability::name).collect();
    if !missing.is_empty() {
        let uid = caller::euid();
        let off = match read_line("/proc/sys/kernel/unprivileged_bpf_disabled").as_deref() {
            Some("0") | None => String::new(),
            Some(value) => format!(", and kernel.unprivileged_bpf_disabled is {value}"),
        };
        return format!("this thread (user {uid}) lacks {}{off}: run as root", missing.join(", "));
    }
    if let Some(mode) = lockdown() {
        return format!("kernel lockdown is on ({mode}): boot with lockdown=none");
    }
    if caller::status("Seccomp:").is_some_and(|mode| mode != "0") {
        return "a seccomp filter may forbid it: allow bpf(2) in the sandbox's profile".into();
    }
    "no capability is missing: the kernel's build, a security module or a BPF token policy forbids it".into()
}

/// The lockdown mode, unless it is none.
fn lockdown() -> Option<String> {
    let modes = read_line("/sys/kernel/security/lockdown")?;
    let mode = modes.split_once('[')?.1.split_once(']')?.0;
    (mode != "none").then(|| mode.to_string())
}

/// The first line of a small file, if it can be read.
fn read_line(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

impl fmt::Display for Error {
    /// One line; the verifier's log is cut to its last telling line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.errno)?;
        let telling =
            |l: &&str| !l.is_empty() && !l.starts_with("processed ") && !l.starts_with("verification ");
        if let Some(line) = self.log.lines().rev().find(telling) {
            write!(f, ": the verifier says: {line}")?;
        }
        if self.advice.is_empty() { Ok(()) } else { write!(f, ": {}", self.advice) }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        if self.log.is_empty() { Ok(()) } else { write!(f, "\n{}", self.log) }
    }
}

impl std::error::Error for Error {}

/// A question that cannot be asked of this kernel, by this process, now; the reason is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotAsk(pub String);

impl fmt::Display for CannotAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CannotAsk {}

impl From<Error> for CannotAsk {
    fn from(e: Error) -> CannotAsk {
        CannotAsk(e.to_string())
    }
}
