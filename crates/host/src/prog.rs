//! Programs of the real kernel: load and test run. Mirrors `bpf_prog_load` (kernel/bpf/syscall.c) and
//! net/bpf/test_run.c.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::error::Error;
use crate::insn::Insn;
use crate::sys::{Cmd, bpf, bpf_fd, obj_name, refused};

/// The kinds of program that are loaded here. Kernel: `enum bpf_prog_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgType {
    /// `BPF_PROG_TYPE_SOCKET_FILTER`
    SocketFilter = 1,
    /// `BPF_PROG_TYPE_SCHED_CLS`
    SchedCls = 3,
    /// `BPF_PROG_TYPE_XDP`
    Xdp = 6,
    /// `BPF_PROG_TYPE_CGROUP_SKB`
    CgroupSkb = 8,
    /// `BPF_PROG_TYPE_LWT_IN`
    LwtIn = 10,
    /// `BPF_PROG_TYPE_RAW_TRACEPOINT`
    RawTracepoint = 17,
    /// `BPF_PROG_TYPE_FLOW_DISSECTOR`
    FlowDissector = 22,
    /// `BPF_PROG_TYPE_TRACING`: fentry, fexit and their like.
    Tracing = 26,
    /// `BPF_PROG_TYPE_STRUCT_OPS`
    StructOps = 27,
    /// `BPF_PROG_TYPE_SYSCALL`
    Syscall = 31,
}

impl ProgType {
    /// The name as bpftool prints it.
    pub fn name(self) -> &'static str {
        match self {
            ProgType::SocketFilter => "socket_filter",
            ProgType::SchedCls => "sched_cls",
            ProgType::Xdp => "xdp",
            ProgType::CgroupSkb => "cgroup_skb",
            ProgType::LwtIn => "lwt_in",
            ProgType::RawTracepoint => "raw_tracepoint",
            ProgType::FlowDissector => "flow_dissector",
            ProgType::Tracing => "tracing",
            ProgType::StructOps => "struct_ops",
            ProgType::Syscall => "syscall",
        }
    }

    /// Whether it runs on packets, and a test run repeats it.
    pub fn is_of_packets(self) -> bool {
        !matches!(self, ProgType::RawTracepoint | ProgType::Tracing | ProgType::StructOps | ProgType::Syscall)
    }
}

/// May sleep. Kernel: `BPF_F_SLEEPABLE`.
const BPF_F_SLEEPABLE: u32 = 1 << 4;

/// Bytes for the verifier's log.
const LOG_SIZE: usize = 1 << 20;

/// What to load.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The kind.
    pub prog_type: ProgType,
    /// The name: 15 bytes of it are kept.
    pub name: &'a str,
    /// The instructions.
    pub insns: &'a [Insn],
    /// The maps that instructions name by index (`BPF_PSEUDO_MAP_IDX`).
    pub maps: &'a [&'a crate::Map],
    /// Of struct_ops: the type's id and which of its functions this is. Of tracing: the traced function's id and how
    /// (`enum bpf_attach_type`).
    pub member: Option<(u32, u32)>,
    /// Whether it may sleep. Programs of type syscall always do.
    pub sleepable: bool,
}

#[repr(C)]
#[derive(Default)]
struct LoadAttr {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
    attach_prog_fd: u32,
    core_relo_cnt: u32,
    fd_array: u64,
}

impl<'a> Load<'a> {
    /// A program without maps by index.
    pub fn new(prog_type: ProgType, name: &'a str, insns: &'a [Insn]) -> Load<'a> {
        Load { prog_type, name, insns, maps: &[], member: None, sleepable: prog_type == ProgType::Syscall }
    }

    /// The same with maps that instructions name by index.
    pub fn with_maps(self, maps: &'a [&'a crate::Map]) -> Load<'a> {
        Load { maps, ..self }
    }

    /// Loads it.
    ///
    /// # Errors
    /// What the kernel answers; with the verifier's log, if it is the verifier that refuses.
    pub fn load(&self) -> Result<Prog, Error> {
        let fds: Vec<RawFd> = self.maps.iter().map(|m| m.as_fd().as_raw_fd()).collect();
        let (attach_btf_id, expected_attach_type) = self.member.unwrap_or_default();
        let mut attr = LoadAttr {
            prog_type: self.prog_type as u32,
            insn_cnt: self.insns.len() as u32,
            insns: self.insns.as_ptr().expose_provenance() as u64,
            license: c"GPL".as_ptr().expose_provenance() as u64,
            prog_flags: if self.sleepable { BPF_F_SLEEPABLE } else { 0 },
            prog_name: obj_name(self.name),
            expected_attach_type,
            attach_btf_id,
            fd_array: if fds.is_empty() { 0 } else { fds.as_ptr().expose_provenance() as u64 },
            ..LoadAttr::default()
        };
        // SAFETY: instructions, licence and descriptors are read within their sizes.
        match unsafe { bpf_fd(Cmd::ProgLoad, &mut attr) } {
            Ok(fd) => Ok(Prog { fd, prog_type: self.prog_type }),
            Err(errno) => {
                // Again for the log: it costs, and most programs are taken.
                let mut log = vec![0u8; LOG_SIZE];
                attr.log_level = 1;
                attr.log_size = LOG_SIZE as u32;
                attr.log_buf = log.as_mut_ptr().expose_provenance() as u64;
                // SAFETY: as above, and the log is written within its size.
                drop(unsafe { bpf_fd(Cmd::ProgLoad, &mut attr) });
                let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
                let call = format!("{} {}", Cmd::ProgLoad.name(), self.prog_type.name());
                Err(Error::new(call, errno).with_log(String::from_utf8_lossy(&log[..end]).into_owned()))
            }
        }
    }
}

/// A loaded program; it goes with the last descriptor and link.
#[derive(Debug)]
pub struct Prog {
    fd: OwnedFd,
    prog_type: ProgType,
}

/// What a test run gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// What the program returned: the low 32 bits of r0.
    pub retval: u32,
    /// The mean time of a run in ns, by a clock around all of them.
    pub duration: u32,
}

#[repr(C)]
#[derive(Default)]
struct TestAttr {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    pad: u32,
}

/// What a packet program gets to see: an Ethernet frame with the beginning of IPv4 in it.
const PACKET: [u8; 64] = {
    let mut packet = [0; 64];
    packet[12] = 0x08;
    packet[14] = 0x45;
    packet
};

impl Prog {
    /// Runs it `repeat` times on made-up input (a packet, or arguments of zero); once for 0 or 1.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn test_run(&self, repeat: u32) -> Result<TestRun, Error> {
        self.run(&mut PACKET.clone(), repeat)
    }

    /// Runs it once on a packet, if it is of a type that runs on packets.
    ///
    /// # Errors
    /// What the kernel answers; `EINVAL` for less than an Ethernet header.
    pub fn test_run_on(&self, packet: &mut [u8]) -> Result<TestRun, Error> {
        self.run(packet, 1)
    }

    fn run(&self, packet: &mut [u8], repeat: u32) -> Result<TestRun, Error> {
        // The state that the functions of bpf_dummy_ops take first, and room for arguments after it.
        let mut state = [0u32; 4];
        let args = [state.as_mut_ptr().expose_provenance() as u64];
        let mut attr = TestAttr { prog_fd: self.fd.as_raw_fd() as u32, repeat, ..TestAttr::default() };
        match self.prog_type {
            packets if packets.is_of_packets() => {
                attr.data_size_in = packet.len() as u32;
                attr.data_in = packet.as_mut_ptr().expose_provenance() as u64;
            }
            ProgType::StructOps => {
                attr.ctx_size_in = size_of_val(&args) as u32;
                attr.ctx_in = args.as_ptr().expose_provenance() as u64;
            }
            // They take no number, not even 1.
            _ if repeat == 1 => attr.repeat = 0,
            _ => {}
        }
        let call = || format!("{} {}", Cmd::ProgTestRun.name(), self.prog_type.name());
        // SAFETY: packet, arguments and state are read and written within their sizes.
        unsafe { bpf(Cmd::ProgTestRun, &mut attr) }.map_err(|e| Error::new(call(), e))?;
        Ok(TestRun { retval: attr.retval, duration: attr.duration })
    }

    /// Another descriptor of the same program.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn dup(&self) -> Result<Prog, Error> {
        let fd = self.fd.try_clone().map_err(|e| Error::new("dup", e.into()))?;
        Ok(Prog { fd, prog_type: self.prog_type })
    }
}

impl AsFd for Prog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The id of the program after `id`; `None` after the last. Start with 0. Kernel: `bpf_obj_get_next_id`.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn next_id(id: u32) -> Result<Option<u32>, Error> {
    let mut attr = [id, 0, 0];
    // SAFETY: no addresses.
    match unsafe { bpf(Cmd::ProgGetNextId, &mut attr) } {
        Ok(_) => Ok(Some(attr[1])),
        Err(crate::Errno::ENOENT) => Ok(None),
        Err(e) => Err(refused(Cmd::ProgGetNextId)(e)),
    }
}

/// A descriptor of the program `id`, of any type. Kernel: `bpf_prog_get_fd_by_id`.
///
/// # Errors
/// `ENOENT` if it is gone, `EPERM` without `CAP_SYS_ADMIN`.
pub fn by_id(id: u32) -> Result<OwnedFd, Error> {
    let mut attr = [id, 0, 0];
    // SAFETY: no addresses; a new descriptor, nobody else's.
    unsafe { bpf(Cmd::ProgGetFdById, &mut attr).map(|fd| OwnedFd::from_raw_fd(fd)) }
        .map_err(refused(Cmd::ProgGetFdById))
}
