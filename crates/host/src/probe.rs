//! What can be asked of this kernel by this process, and of the rest why not.

use std::fmt;

use crate::caller;
use crate::errno::Errno;
use crate::error::{CannotAsk, Error};
use crate::insn::returns;
use crate::link::Link;
use crate::prog::{Load, Prog, ProgType, next_id};
use crate::stats::StatsFd;
use crate::{btf, sysctl};

/// A release: the first two numbers, which is what features come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u32, pub u32);

impl Release {
    /// Reads a release as uname(2) gives it: `6.6.87-suffix`. `None` if it does not begin with two numbers.
    pub fn parse(text: &str) -> Option<Release> {
        let mut parts = text.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?;
        let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
        Some(Release(major, minor[..digits].parse().ok()?))
    }

    /// The running kernel's: its text, and as numbers.
    fn running() -> (String, Release) {
        let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let text = text.trim().to_string();
        let release = Release::parse(&text).unwrap_or(Release(0, 0));
        (text, release)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Something that can be asked of a kernel, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Loading a program of this type, and running it as a test.
    TestRun(ProgType),
    /// Attaching to a tracepoint.
    Attach,
    /// Switching statistics on by a descriptor.
    EnableStats,
    /// Reading the sysctl.
    SysctlRead,
    /// Writing the sysctl.
    SysctlWrite,
    /// The kernel's types.
    Btf,
    /// Walking the ids of all programs.
    ProgIds,
}

impl Ask {
    /// All of them.
    pub const ALL: [Ask; 12] = [
        Ask::TestRun(ProgType::SocketFilter),
        Ask::TestRun(ProgType::SchedCls),
        Ask::TestRun(ProgType::CgroupSkb),
        Ask::TestRun(ProgType::RawTracepoint),
        Ask::TestRun(ProgType::Syscall),
        Ask::TestRun(ProgType::StructOps),
        Ask::Attach,
        Ask::EnableStats,
        Ask::SysctlRead,
        Ask::SysctlWrite,
        Ask::Btf,
        Ask::ProgIds,
    ];

    /// Tries it. [`Ask::EnableStats`] has statistics on for an instant, under the lock of the switches
    /// ([`sysctl::Exclusive`]), which the caller must not hold; nothing else changes anything.
    ///
    /// # Errors
    /// [`CannotAsk`] with the reason.
    pub fn try_it(self) -> Result<(), CannotAsk> {
        match self {
            Ask::TestRun(prog_type) => minimal(prog_type)?.test_run(1).map(drop)?,
            Ask::Attach => drop(Link::raw_tracepoint("sys_enter", &minimal(ProgType::RawTracepoint)?)?),
            Ask::EnableStats => {
                // Else who has the lock would see them go on.
                let _lock = sysctl::Exclusive::lock()?;
                drop(StatsFd::enable()?);
            }
            Ask::SysctlRead => drop(sysctl::read()?),
            Ask::SysctlWrite => sysctl::may_write()?,
            Ask::Btf => drop(btf::struct_id("task_struct")?),
            Ask::ProgIds => drop(next_id(0)?),
        }
        Ok(())
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ask::TestRun(prog_type) => return write!(f, "test run of {}", prog_type.name()),
            Ask::Attach => "attach to a tracepoint",
            Ask::EnableStats => "BPF_ENABLE_STATS",
            Ask::SysctlRead => "read the sysctl",
            Ask::SysctlWrite => "write the sysctl",
            Ask::Btf => "the kernel's types (BTF)",
            Ask::ProgIds => "ids of all programs",
        })
    }
}

/// The smallest program of a type.
///
/// # Errors
/// What the kernel answers; `ENOENT` if it has no `bpf_dummy_ops`, which struct_ops programs are run by.
pub fn minimal(prog_type: ProgType) -> Result<Prog, Error> {
    let insns = returns(match prog_type {
        // A cgroup's program says 1 for yes.
        ProgType::CgroupSkb => 1,
        // XDP_PASS
        ProgType::Xdp => 2,
        _ => 0,
    });
    let mut load = Load::new(prog_type, "progstats_min", &insns);
    if prog_type == ProgType::StructOps {
        load.member = Some((dummy_ops()?, 0));
    }
    load.load()
}

/// The id of the struct whose functions can be test-run through a trampoline. Kernel:
/// net/bpf/bpf_dummy_struct_ops.c.
///
/// # Errors
/// `ENOENT` if this kernel has none.
pub(crate) fn dummy_ops() -> Result<u32, Error> {
    btf::struct_id("bpf_dummy_ops")?.ok_or_else(|| Error::new("find the struct bpf_dummy_ops", Errno::ENOENT))
}

/// What can be asked here.
#[derive(Clone, Debug)]
pub struct Host {
    /// The release as uname(2) gives it.
    pub uname: String,
    /// The release as numbers; 0.0 if it has no such form.
    pub release: Release,
    /// Whether the process has the capabilities that the questions need.
    pub privileged: bool,
    /// Each question, and why not.
    pub answers: Vec<(Ask, Result<(), CannotAsk>)>,
}

impl Host {
    /// Tries everything once.
    pub fn probe() -> Host {
        let (uname, release) = Release::running();
        let answers = Ask::ALL.into_iter().map(|ask| (ask, ask.try_it())).collect();
        Host { uname, release, privileged: caller::is_privileged(), answers }
    }

    /// The running kernel's release as uname(2) gives it.
    pub fn uname() -> String {
        Release::running().0
    }

    /// The running kernel's release, without trying anything.
    pub fn release() -> Release {
        Release::running().1
    }

    /// Whether `ask` can be asked.
    ///
    /// # Errors
    /// [`CannotAsk`] with the reason.
    pub fn can(&self, ask: Ask) -> Result<(), CannotAsk> {
        let found = self.answers.iter().find(|(a, _)| *a == ask);
        found.map_or_else(|| ask.try_it(), |(_, answer)| answer.clone())
    }
}

impl fmt::Display for Host {
    /// A line for the kernel, then one for each question.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Linux {}, {}",
            self.uname,
            if self.privileged { "privileged" } else { "not privileged" }
        )?;
        for (ask, answer) in &self.answers {
            match answer {
                Ok(()) => writeln!(f, "  yes  {ask}")?,
                Err(why) => writeln!(f, "  no   {ask}: {why}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        assert_eq!(Release::parse("6.6.87.2-microsoft-standard-WSL2"), Some(Release(6, 6)));
        assert_eq!(Release::parse("6.18-rc1"), Some(Release(6, 18)));
        assert_eq!(Release::parse("6.12"), Some(Release(6, 12)));
        for bad in ["", "6", "6.", "x.1", "6.x"] {
            assert_eq!(Release::parse(bad), None, "{bad}");
        }
        assert!(Release(6, 6) < Release(6, 12) && Release(5, 19) < Release(6, 0));
    }
}
