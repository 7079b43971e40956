//! Types of program, and how a section's name tells them. Mirrors `enum bpf_prog_type` (include/uapi/linux/bpf.h, v6.6),
//! bpftool's names for it, and libbpf's table of sections.

use std::fmt;

macro_rules! prog_types {
    ($($variant:ident = $number:literal, $name:literal;)*) => {
        /// A type of program, with the kernel's number.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(u32)]
        #[expect(missing_docs, reason = "the kernel's names")]
        pub enum ProgType {
            #[default]
            $($variant = $number,)*
        }

        impl ProgType {
            /// The name as bpftool prints it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The type with the kernel's number `n`.
            pub fn from_number(n: u32) -> Option<Self> {
                match n {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

prog_types! {
    Unspec = 0, "unspec";
    SocketFilter = 1, "socket_filter";
    Kprobe = 2, "kprobe";
    SchedCls = 3, "sched_cls";
    SchedAct = 4, "sched_act";
    Tracepoint = 5, "tracepoint";
    Xdp = 6, "xdp";
    PerfEvent = 7, "perf_event";
    CgroupSkb = 8, "cgroup_skb";
    CgroupSock = 9, "cgroup_sock";
    LwtIn = 10, "lwt_in";
    LwtOut = 11, "lwt_out";
    LwtXmit = 12, "lwt_xmit";
    SockOps = 13, "sock_ops";
    SkSkb = 14, "sk_skb";
    CgroupDevice = 15, "cgroup_device";
    SkMsg = 16, "sk_msg";
    RawTracepoint = 17, "raw_tracepoint";
    CgroupSockAddr = 18, "cgroup_sock_addr";
    LwtSeg6local = 19, "lwt_seg6local";
    LircMode2 = 20, "lirc_mode2";
    SkReuseport = 21, "sk_reuseport";
    FlowDissector = 22, "flow_dissector";
    CgroupSysctl = 23, "cgroup_sysctl";
    RawTracepointWritable = 24, "raw_tracepoint_writable";
    CgroupSockopt = 25, "cgroup_sockopt";
    Tracing = 26, "tracing";
    StructOps = 27, "struct_ops";
    Ext = 28, "ext";
    Lsm = 29, "lsm";
    SkLookup = 30, "sk_lookup";
    Syscall = 31, "syscall";
    Netfilter = 32, "netfilter";
}

/// Names of sections, or what precedes a `/`, a `+` or a `.s` in them.
const SECTIONS: [(&str, ProgType); 48] = [
    ("socket", ProgType::SocketFilter),
    ("kprobe", ProgType::Kprobe),
    ("kretprobe", ProgType::Kprobe),
    ("uprobe", ProgType::Kprobe),
    ("uretprobe", ProgType::Kprobe),
    ("usdt", ProgType::Kprobe),
    ("ksyscall", ProgType::Kprobe),
    ("kretsyscall", ProgType::Kprobe),
    ("kprobe.multi", ProgType::Kprobe),
    ("kretprobe.multi", ProgType::Kprobe),
    ("tc", ProgType::SchedCls),
    ("tcx", ProgType::SchedCls),
    ("classifier", ProgType::SchedCls),
    ("action", ProgType::SchedAct),
    ("tracepoint", ProgType::Tracepoint),
    ("tp", ProgType::Tracepoint),
    ("raw_tracepoint", ProgType::RawTracepoint),
    ("raw_tp", ProgType::RawTracepoint),
    ("raw_tracepoint.w", ProgType::RawTracepointWritable),
    ("raw_tp.w", ProgType::RawTracepointWritable),
    ("tp_btf", ProgType::Tracing),
    ("fentry", ProgType::Tracing),
    ("fmod_ret", ProgType::Tracing),
    ("fexit", ProgType::Tracing),
    ("iter", ProgType::Tracing),
    ("freplace", ProgType::Ext),
    ("lsm", ProgType::Lsm),
    ("lsm_cgroup", ProgType::Lsm),
    ("syscall", ProgType::Syscall),
    ("xdp", ProgType::Xdp),
    ("xdp.frags", ProgType::Xdp),
    ("perf_event", ProgType::PerfEvent),
    ("lwt_in", ProgType::LwtIn),
    ("lwt_out", ProgType::LwtOut),
    ("lwt_xmit", ProgType::LwtXmit),
    ("lwt_seg6local", ProgType::LwtSeg6local),
    ("sockops", ProgType::SockOps),
    ("sk_skb", ProgType::SkSkb),
    ("sk_msg", ProgType::SkMsg),
    ("lirc_mode2", ProgType::LircMode2),
    ("flow_dissector", ProgType::FlowDissector),
    ("cgroup_skb", ProgType::CgroupSkb),
    ("cgroup/skb", ProgType::CgroupSkb),
    ("cgroup/dev", ProgType::CgroupDevice),
    ("cgroup/sysctl", ProgType::CgroupSysctl),
    ("struct_ops", ProgType::StructOps),
    ("sk_lookup", ProgType::SkLookup),
    ("netfilter", ProgType::Netfilter),
];

impl ProgType {
    /// The type that libbpf gives to a section of this name; [`ProgType::Unspec`] if it is not in the table.
    pub fn from_section(section: &str) -> Self {
        let find = |name: &str| SECTIONS.iter().find(|(s, _)| *s == name).map(|&(_, t)| t);
        let head = section.split(['/', '+']).next().unwrap_or(section);
        find(section).or_else(|| find(head)).or_else(|| find(head.trim_end_matches(".s"))).unwrap_or_default()
    }
}

impl fmt::Display for ProgType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_tell_the_type() {
        for (section, want) in [
            ("raw_tracepoint/sys_enter", ProgType::RawTracepoint),
            ("raw_tp+", ProgType::RawTracepoint),
            ("fentry.s/do_unlink", ProgType::Tracing),
            ("cgroup_skb/egress", ProgType::CgroupSkb),
            ("cgroup/dev", ProgType::CgroupDevice),
            ("socket", ProgType::SocketFilter),
            ("socketx", ProgType::Unspec),
            ("", ProgType::Unspec),
        ] {
            assert_eq!(ProgType::from_section(section), want, "{section}");
        }
    }
}
