//! What the kernel tells about a program, both ways. Mirrors `bpf_prog_get_info_by_fd` and
//! `bpf_prog_show_fdinfo`, kernel/bpf/syscall.c, and `struct bpf_prog_info`, include/uapi/linux/bpf.h.

use std::ops::Sub;
use std::os::fd::{AsFd, AsRawFd};

use crate::errno::Errno;
use crate::error::Error;
use crate::prog;
use crate::sys::{Cmd, bpf, refused};

/// The run-time statistics of a program: sums over CPUs since it was loaded, never reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Time of the counted runs in ns.
    pub run_time_ns: u64,
    /// Runs that were counted.
    pub run_cnt: u64,
    /// Runs refused because the program ran on that CPU already.
    pub recursion_misses: u64,
}

impl Sub for Stats {
    type Output = Stats;

    /// What was added since `before`.
    fn sub(self, before: Stats) -> Stats {
        Stats {
            run_time_ns: self.run_time_ns.wrapping_sub(before.run_time_ns),
            run_cnt: self.run_cnt.wrapping_sub(before.run_cnt),
            recursion_misses: self.recursion_misses.wrapping_sub(before.recursion_misses),
        }
    }
}

/// `struct bpf_prog_info`, the parts that need no buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgInfo {
    /// The type's number: also of types that are not loaded here.
    pub prog_type: u32,
    /// The id.
    pub id: u32,
    /// A hash of the instructions.
    pub tag: [u8; 8],
    /// Bytes of machine code; 0 if it is interpreted, or hidden from the caller.
    pub jited_len: u32,
    /// Bytes of instructions after the verifier.
    pub xlated_len: u32,
    /// When it was loaded, in ns of `CLOCK_BOOTTIME`.
    pub load_time: u64,
    /// Who loaded it.
    pub created_by_uid: u32,
    /// How many maps it uses.
    pub nr_map_ids: u32,
    /// The name.
    pub name: String,
    /// Whether its licence is compatible with the kernel's.
    pub gpl_compatible: bool,
    /// The statistics.
    pub stats: Stats,
    /// Instructions that the verifier looked at; 0 before 5.16.
    pub verified_insns: u32,
}

/// Kernel: `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct Raw {
    prog_type: u32,
    id: u32,
    tag: [u8; 8],
    jited_prog_len: u32,
    xlated_prog_len: u32,
    jited_prog_insns: u64,
    xlated_prog_insns: u64,
    load_time: u64,
    created_by_uid: u32,
    nr_map_ids: u32,
    map_ids: u64,
    name: [u8; 16],
    ifindex: u32,
    gpl_compatible: u32,
    netns_dev: u64,
    netns_ino: u64,
    nr_jited_ksyms: u32,
    nr_jited_func_lens: u32,
    jited_ksyms: u64,
    jited_func_lens: u64,
    btf_id: u32,
    func_info_rec_size: u32,
    func_info: u64,
    nr_func_info: u32,
    nr_line_info: u32,
    line_info: u64,
    jited_line_info: u64,
    nr_jited_line_info: u32,
    line_info_rec_size: u32,
    jited_line_info_rec_size: u32,
    nr_prog_tags: u32,
    prog_tags: u64,
    run_time_ns: u64,
    run_cnt: u64,
    recursion_misses: u64,
    verified_insns: u32,
    attach_btf_obj_id: u32,
    attach_btf_id: u32,
    pad: u32,
}

/// What `bpf_prog_info` says of the program behind `fd`. One system call, no allocation but the name.
///
/// # Errors
/// `EBADF`, `EINVAL` if `fd` is no program.
pub fn info(fd: &impl AsFd) -> Result<ProgInfo, Error> {
    let raw = raw_info(fd)?;
    let name = raw.name.split(|&b| b == 0).next().unwrap_or_default();
    Ok(ProgInfo {
        prog_type: raw.prog_type,
        id: raw.id,
        tag: raw.tag,
        jited_len: raw.jited_prog_len,
        xlated_len: raw.xlated_prog_len,
        load_time: raw.load_time,
        created_by_uid: raw.created_by_uid,
        nr_map_ids: raw.nr_map_ids,
        name: String::from_utf8_lossy(name).into_owned(),
        gpl_compatible: raw.gpl_compatible & 1 != 0,
        stats: raw.stats(),
        verified_insns: raw.verified_insns,
    })
}

/// The statistics alone.
///
/// # Errors
/// As [`info`].
pub fn stats(fd: &impl AsFd) -> Result<Stats, Error> {
    raw_info(fd).map(|raw| raw.stats())
}

impl Raw {
    fn stats(&self) -> Stats {
        let Raw { run_time_ns, run_cnt, recursion_misses, .. } = *self;
        Stats { run_time_ns, run_cnt, recursion_misses }
    }
}

fn raw_info(fd: &impl AsFd) -> Result<Raw, Error> {
    #[repr(C)]
    struct Attr {
        bpf_fd: u32,
        info_len: u32,
        info: u64,
    }
    let mut raw = Raw::default();
    let info = (&raw mut raw).expose_provenance() as u64;
    let bpf_fd = fd.as_fd().as_raw_fd() as u32;
    let mut attr = Attr { bpf_fd, info_len: size_of::<Raw>() as u32, info };
    // SAFETY: the answer is written within its size; it holds only numbers, and no buffer is asked for.
    unsafe { bpf(Cmd::ObjGetInfoByFd, &mut attr) }.map_err(refused(Cmd::ObjGetInfoByFd))?;
    Ok(raw)
}

/// The text that the kernel shows for a program's descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FdInfo {
    /// `prog_type`
    pub prog_type: u32,
    /// `prog_id`
    pub id: u32,
    /// `prog_tag`
    pub tag: [u8; 8],
    /// `prog_jited`
    pub jited: bool,
    /// `memlock`: bytes it takes.
    pub memlock: u64,
    /// `run_time_ns`, `run_cnt`, `recursion_misses`
    pub stats: Stats,
    /// `verified_insns`, since 5.16.
    pub verified_insns: Option<u32>,
}

impl FdInfo {
    /// Reads the text of a descriptor of this process.
    ///
    /// # Errors
    /// If it cannot be read, or `EINVAL` if it is not a program's.
    pub fn read(fd: &impl AsFd) -> Result<FdInfo, Error> {
        let path = format!("/proc/thread-self/fdinfo/{}", fd.as_fd().as_raw_fd());
        let text =
            std::fs::read_to_string(&path).map_err(|e| Error::new(format!("read {path}"), e.into()))?;
        FdInfo::parse(&text).ok_or_else(|| Error::new(format!("{path} is not a program's"), Errno::EINVAL))
    }

    /// Reads such a text: lines of a name, a colon, blanks and a value, in any order. `None` if one that a program
    /// has is missing or is no number.
    pub fn parse(text: &str) -> Option<FdInfo> {
        let text_of =
            |name: &str| text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        let number = |name: &str| text_of(name)?.parse::<u64>().ok();
        let tag = u64::from_str_radix(text_of("prog_tag").filter(|t| t.len() == 16)?, 16).ok()?;
        Some(FdInfo {
            prog_type: number("prog_type")?.try_into().ok()?,
            id: number("prog_id")?.try_into().ok()?,
            tag: tag.to_be_bytes(),
            jited: number("prog_jited")? != 0,
            memlock: number("memlock")?,
            stats: Stats {
                run_time_ns: number("run_time_ns")?,
                run_cnt: number("run_cnt")?,
                recursion_misses: number("recursion_misses")?,
            },
            verified_insns: number("verified_insns").and_then(|n| n.try_into().ok()),
        })
    }
}

/// All programs that are loaded now, by id; those that go meanwhile are left out.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn programs() -> Result<Vec<ProgInfo>, Error> {
    let (mut all, mut last) = (Vec::new(), 0);
    while let Some(id) = prog::next_id(last)? {
        match prog::by_id(id).and_then(|fd| info(&fd)) {
            Ok(info) => all.push(info),
            Err(e) if e.errno == Errno::ENOENT => {}
            Err(e) => return Err(e),
        }
        last = id;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "pos:\t0\nflags:\t02000002\nprog_type:\t1\nprog_jited:\t1\nprog_tag:\ta04f5eef06a7f555\n\
        memlock:\t4096\nprog_id:\t7\nrun_time_ns:\t12\nrun_cnt:\t3\nrecursion_misses:\t1\nverified_insns:\t2\n";

    #[test]
    fn text_of_a_program() {
        let info = FdInfo::parse(TEXT).unwrap();
        assert_eq!((info.prog_type, info.id, info.jited, info.memlock), (1, 7, true, 4096));
        assert_eq!(info.tag, [0xa0, 0x4f, 0x5e, 0xef, 0x06, 0xa7, 0xf5, 0x55]);
        assert_eq!(info.stats, Stats { run_time_ns: 12, run_cnt: 3, recursion_misses: 1 });
        assert_eq!(info.verified_insns, Some(2));
    }

    #[test]
    fn other_text() {
        assert_eq!(FdInfo::parse("pos:\t0\nflags:\t02\n"), None);
        for line in TEXT.lines().filter(|l| l.contains("prog_") || l.contains("run_") || l.contains("rec")) {
            assert_eq!(FdInfo::parse(&TEXT.replace(line, "")), None, "without {line}");
            let name = line.split(':').next().unwrap();
            assert_eq!(FdInfo::parse(&TEXT.replace(line, &format!("{name}:\tx"))), None, "{name} x");
        }
        let old = FdInfo::parse(&TEXT.replace("verified_insns:\t2\n", "")).unwrap();
        assert_eq!(old.verified_insns, None);
    }
}
