//! The functions that programs call by number. Mirrors kernel/bpf/helpers.c, kernel/trace/bpf_trace.c and the
//! list `__BPF_FUNC_MAPPER` of include/uapi/linux/bpf.h, v6.6.
//!
//! Invariant: as of the interpreter: no allocation, system call or panic, whatever the arguments.
//!
//! Differs: the verifier proves what arguments are; here they are checked at the call. A pointer that the
//! program does not have, or a map of another kind, ends the run.

use std::mem::MaybeUninit;

use sync::mem;

use crate::errno::Errno;
use crate::fault::FaultKind;
use crate::maps::ringbuf::Ringbuf;
use crate::maps::{Bytes, MAX_KEY_SIZE, Map};
use crate::memory::{Region, Vm};
use crate::printk;

/// Names by number. Kernel: `__BPF_FUNC_MAPPER`.
#[rustfmt::skip]
const NAMES: &[&str] = &[
    "unspec", "map_lookup_elem", "map_update_elem", "map_delete_elem", "probe_read", "ktime_get_ns",
    "trace_printk", "get_prandom_u32", "get_smp_processor_id", "skb_store_bytes", "l3_csum_replace",
    "l4_csum_replace", "tail_call", "clone_redirect", "get_current_pid_tgid", "get_current_uid_gid",
    "get_current_comm", "get_cgroup_classid", "skb_vlan_push", "skb_vlan_pop", "skb_get_tunnel_key",
    "skb_set_tunnel_key", "perf_event_read", "redirect", "get_route_realm", "perf_event_output",
    "skb_load_bytes", "get_stackid", "csum_diff", "skb_get_tunnel_opt", "skb_set_tunnel_opt",
    "skb_change_proto", "skb_change_type", "skb_under_cgroup", "get_hash_recalc", "get_current_task",
    "probe_write_user", "current_task_under_cgroup", "skb_change_tail", "skb_pull_data", "csum_update",
    "set_hash_invalid", "get_numa_node_id", "skb_change_head", "xdp_adjust_head", "probe_read_str",
    "get_socket_cookie", "get_socket_uid", "set_hash", "setsockopt", "skb_adjust_room", "redirect_map",
    "sk_redirect_map", "sock_map_update", "xdp_adjust_meta", "perf_event_read_value",
    "perf_prog_read_value", "getsockopt", "override_return", "sock_ops_cb_flags_set", "msg_redirect_map",
    "msg_apply_bytes", "msg_cork_bytes", "msg_pull_data", "bind", "xdp_adjust_tail", "skb_get_xfrm_state",
    "get_stack", "skb_load_bytes_relative", "fib_lookup", "sock_hash_update", "msg_redirect_hash",
    "sk_redirect_hash", "lwt_push_encap", "lwt_seg6_store_bytes", "lwt_seg6_adjust_srh", "lwt_seg6_action",
    "rc_repeat", "rc_keydown", "skb_cgroup_id", "get_current_cgroup_id", "get_local_storage",
    "sk_select_reuseport", "skb_ancestor_cgroup_id", "sk_lookup_tcp", "sk_lookup_udp", "sk_release",
    "map_push_elem", "map_pop_elem", "map_peek_elem", "msg_push_data", "msg_pop_data", "rc_pointer_rel",
    "spin_lock", "spin_unlock", "sk_fullsock", "tcp_sock", "skb_ecn_set_ce", "get_listener_sock",
    "skc_lookup_tcp", "tcp_check_syncookie", "sysctl_get_name", "sysctl_get_current_value",
    "sysctl_get_new_value", "sysctl_set_new_value", "strtol", "strtoul", "sk_storage_get",
    "sk_storage_delete", "send_signal", "tcp_gen_syncookie", "skb_output", "probe_read_user",
    "probe_read_kernel", "probe_read_user_str", "probe_read_kernel_str", "tcp_send_ack",
    "send_signal_thread", "jiffies64", "read_branch_records", "get_ns_current_pid_tgid", "xdp_output",
    "get_netns_cookie", "get_current_ancestor_cgroup_id", "sk_assign", "ktime_get_boot_ns", "seq_printf",
    "seq_write", "sk_cgroup_id", "sk_ancestor_cgroup_id", "ringbuf_output", "ringbuf_reserve",
    "ringbuf_submit", "ringbuf_discard", "ringbuf_query", "csum_level", "skc_to_tcp6_sock",
    "skc_to_tcp_sock", "skc_to_tcp_timewait_sock", "skc_to_tcp_request_sock", "skc_to_udp6_sock",
    "get_task_stack", "load_hdr_opt", "store_hdr_opt", "reserve_hdr_opt", "inode_storage_get",
    "inode_storage_delete", "d_path", "copy_from_user", "snprintf_btf", "seq_printf_btf",
    "skb_cgroup_classid", "redirect_neigh", "per_cpu_ptr", "this_cpu_ptr", "redirect_peer",
    "task_storage_get", "task_storage_delete", "get_current_task_btf", "bprm_opts_set",
    "ktime_get_coarse_ns", "ima_inode_hash", "sock_from_file", "check_mtu", "for_each_map_elem",
    "snprintf", "sys_bpf", "btf_find_by_name_kind", "sys_close", "timer_init", "timer_set_callback",
    "timer_start", "timer_cancel", "get_func_ip", "get_attach_cookie", "task_pt_regs",
    "get_branch_snapshot", "trace_vprintk", "skc_to_unix_sock", "kallsyms_lookup_name", "find_vma", "loop",
    "strncmp", "get_func_arg", "get_func_ret", "get_func_arg_cnt", "get_retval", "set_retval",
    "xdp_get_buff_len", "xdp_load_bytes", "xdp_store_bytes", "copy_from_user_task", "skb_set_tstamp",
    "ima_file_hash", "kptr_xchg", "map_lookup_percpu_elem", "skc_to_mptcp_sock", "dynptr_from_mem",
    "ringbuf_reserve_dynptr", "ringbuf_submit_dynptr", "ringbuf_discard_dynptr", "dynptr_read",
    "dynptr_write", "dynptr_data", "tcp_raw_gen_syncookie_ipv4", "tcp_raw_gen_syncookie_ipv6",
    "tcp_raw_check_syncookie_ipv4", "tcp_raw_check_syncookie_ipv6", "ktime_get_tai_ns",
    "user_ringbuf_drain", "cgrp_storage_get", "cgrp_storage_delete",
];

macro_rules! helpers {
    ($($(#[$doc:meta])* $name:ident = $id:literal;)*) => {
        $($(#[$doc])* pub const $name: i32 = $id;)*
        const SUPPORTED: &[i32] = &[$($name,)*];
    };
}

helpers! {
    /// `void *bpf_map_lookup_elem(map, key)`
    BPF_FUNC_MAP_LOOKUP_ELEM = 1;
    /// `long bpf_map_update_elem(map, key, value, flags)`
    BPF_FUNC_MAP_UPDATE_ELEM = 2;
    /// `long bpf_map_delete_elem(map, key)`
    BPF_FUNC_MAP_DELETE_ELEM = 3;
    /// `long bpf_probe_read(dst, size, unsafe_ptr)`
    BPF_FUNC_PROBE_READ = 4;
    /// `u64 bpf_ktime_get_ns()`
    BPF_FUNC_KTIME_GET_NS = 5;
    /// `long bpf_trace_printk(fmt, fmt_size, ...)`
    BPF_FUNC_TRACE_PRINTK = 6;
    /// `u32 bpf_get_prandom_u32()`
    BPF_FUNC_GET_PRANDOM_U32 = 7;
    /// `u32 bpf_get_smp_processor_id()`
    BPF_FUNC_GET_SMP_PROCESSOR_ID = 8;
    /// `long bpf_tail_call(ctx, prog_array_map, index)`: the interpreter does it.
    BPF_FUNC_TAIL_CALL = 12;
    /// `u64 bpf_get_current_pid_tgid()`
    BPF_FUNC_GET_CURRENT_PID_TGID = 14;
    /// `u64 bpf_get_current_uid_gid()`
    BPF_FUNC_GET_CURRENT_UID_GID = 15;
    /// `long bpf_get_current_comm(buf, size_of_buf)`
    BPF_FUNC_GET_CURRENT_COMM = 16;
    /// `long bpf_probe_read_kernel(dst, size, unsafe_ptr)`
    BPF_FUNC_PROBE_READ_KERNEL = 113;
    /// `u64 bpf_ktime_get_boot_ns()`
    BPF_FUNC_KTIME_GET_BOOT_NS = 125;
    /// `long bpf_ringbuf_output(ringbuf, data, size, flags)`
    BPF_FUNC_RINGBUF_OUTPUT = 130;
    /// `void *bpf_ringbuf_reserve(ringbuf, size, flags)`
    BPF_FUNC_RINGBUF_RESERVE = 131;
    /// `void bpf_ringbuf_submit(data, flags)`
    BPF_FUNC_RINGBUF_SUBMIT = 132;
    /// `void bpf_ringbuf_discard(data, flags)`
    BPF_FUNC_RINGBUF_DISCARD = 133;
    /// `void *bpf_map_lookup_percpu_elem(map, key, cpu)`
    BPF_FUNC_MAP_LOOKUP_PERCPU_ELEM = 195;
}

/// The name of helper `id` without its prefix, if there is one with that number.
pub fn name(id: i32) -> Option<&'static str> {
    NAMES.get(usize::try_from(id).ok()?).filter(|_| id != 0).copied()
}

/// The number of the helper called `name`.
pub fn id(name: &str) -> Option<i32> {
    NAMES.iter().skip(1).position(|&n| n == name).map(|at| at as i32 + 1)
}

/// Whether programs may call helper `id` here.
pub fn is_supported(id: i32) -> bool {
    SUPPORTED.contains(&id)
}

/// Calls helper `id` with r1 to r5; returns r0.
#[inline(never)]
pub(crate) fn call(vm: &mut Vm<'_>, id: i32, args: [u64; 5]) -> Result<u64, FaultKind> {
    let [r1, r2, r3, r4, _] = args;
    Ok(match id {
        BPF_FUNC_MAP_LOOKUP_ELEM => {
            let map = elements(vm, id, r1)?;
            let cpu = vm.env.smp_processor_id();
            lookup(vm, map, r2, cpu)?
        }
        BPF_FUNC_MAP_LOOKUP_PERCPU_ELEM => {
            let map = elements(vm, id, r1)?;
            if !map.map_type().is_percpu() {
                return refuse(id, "r1 is not a per-CPU map");
            }
            lookup(vm, map, r2, r3 as u32)?
        }
        BPF_FUNC_MAP_UPDATE_ELEM => {
            let map = elements(vm, id, r1)?;
            if !map.prog_may_write() {
                return refuse(id, "the map is read-only");
            }
            let len = u64::from(map.value_size());
            let value = vm.reach_bytes(r3, len, false)?;
            // SAFETY: in reach for reads of `len` bytes as long as the run lasts, and accessed through `mem`
            // only.
            let value = unsafe { Bytes::shared(value, len as usize) };
            let mut buf = KeyBuf::uninit();
            let key = read_key(vm, map, r2, &mut buf)?;
            ret(map.update(vm.env, key, value, r4))
        }
        BPF_FUNC_MAP_DELETE_ELEM => {
            let map = elements(vm, id, r1)?;
            if !map.prog_may_write() {
                return refuse(id, "the map is read-only");
            }
            let mut buf = KeyBuf::uninit();
            let key = read_key(vm, map, r2, &mut buf)?;
            ret(map.delete(vm.env, key))
        }
        BPF_FUNC_PROBE_READ | BPF_FUNC_PROBE_READ_KERNEL => probe_read(vm, r1, r2, r3)?,
        BPF_FUNC_KTIME_GET_NS => vm.env.ktime_get_ns(),
        BPF_FUNC_KTIME_GET_BOOT_NS => vm.env.ktime_get_boot_ns(),
        BPF_FUNC_TRACE_PRINTK => printk::trace_printk(vm, args)?,
        BPF_FUNC_GET_PRANDOM_U32 => u64::from(vm.env.get_prandom_u32()),
        BPF_FUNC_GET_SMP_PROCESSOR_ID => u64::from(vm.env.smp_processor_id()),
        BPF_FUNC_GET_CURRENT_PID_TGID => vm.env.current_pid_tgid(),
        BPF_FUNC_GET_CURRENT_UID_GID => vm.env.current_uid_gid(),
        BPF_FUNC_GET_CURRENT_COMM => comm(vm, id, r1, r2)?,
        BPF_FUNC_RINGBUF_OUTPUT => {
            let ring = ringbuf(vm, id, r1)?;
            let data = vm.reach_bytes(r2, r3, false)?;
            // SAFETY: in reach for reads of as many bytes as long as the run lasts, and accessed through
            // `mem` only.
            let data = unsafe { Bytes::shared(data, r3 as usize) };
            ret(ring.output(vm.env, data, r4))
        }
        BPF_FUNC_RINGBUF_RESERVE => {
            let ring = ringbuf(vm, id, r1)?;
            if r3 == 0 { vm.reserve(ring, r2).unwrap_or(0) } else { 0 }
        }
        BPF_FUNC_RINGBUF_SUBMIT | BPF_FUNC_RINGBUF_DISCARD => {
            if !vm.commit(r1, id == BPF_FUNC_RINGBUF_DISCARD) {
                return refuse(id, "r1 is not a record that the program holds");
            }
            0
        }
        _ => return refuse(id, "it does not exist here"),
    })
}

fn refuse<T>(id: i32, why: &'static str) -> Result<T, FaultKind> {
    Err(FaultKind::Helper { id, why })
}

/// What a helper returns: 0, or the negative number of the error.
fn ret(r: Result<(), Errno>) -> u64 {
    r.map_or_else(Errno::to_ret, |()| 0)
}

/// The map whose address is `addr`, if it is of a kind with elements.
fn elements<'a>(vm: &Vm<'a>, id: i32, addr: u64) -> Result<&'a Map, FaultKind> {
    match vm.prog.map_at(addr) {
        Some(map) if map.has_elements() => Ok(map),
        Some(_) => refuse(id, "r1 is a map of a kind that the helper does not take"),
        None => refuse(id, "r1 is not a map of the program"),
    }
}

fn ringbuf<'a>(vm: &Vm<'a>, id: i32, addr: u64) -> Result<&'a Ringbuf, FaultKind> {
    match vm.prog.map_at(addr).and_then(Map::ringbuf) {
        Some(ring) => Ok(ring),
        None => refuse(id, "r1 is not a ring buffer of the program"),
    }
}

/// Kernel: `bpf_map_lookup_elem`. The value found is what the program accesses next.
fn lookup(vm: &mut Vm<'_>, map: &Map, key: u64, cpu: u32) -> Result<u64, FaultKind> {
    let mut buf = KeyBuf::uninit();
    let key = read_key(vm, map, key, &mut buf)?;
    Ok(match map.lookup(cpu, key) {
        Some(addr) => {
            vm.note(Region::value(map, addr));
            addr
        }
        None => 0,
    })
}

type KeyBuf = MaybeUninit<[u8; MAX_KEY_SIZE as usize]>;

/// Copies a key out of the program's memory, so that it does not change under the map.
fn read_key<'b>(vm: &mut Vm<'_>, map: &Map, addr: u64, buf: &'b mut KeyBuf) -> Result<&'b [u8], FaultKind> {
    let len = map.key_size().min(MAX_KEY_SIZE) as usize;
    let from = vm.reach_bytes(addr, len as u64, false)?;
    let to = buf.as_mut_ptr().cast::<u8>();
    // SAFETY: in reach for reads of `len` bytes, and the buffer has room for them; they are initialised by
    // the copy.
    unsafe {
        mem::copy(from, to, len);
        Ok(std::slice::from_raw_parts(to, len))
    }
}

/// Kernel: `bpf_probe_read_kernel_common`, kernel/trace/bpf_trace.c. Memory that the program does not have is
/// the memory whose reading fails.
fn probe_read(vm: &mut Vm<'_>, dst: u64, size: u64, from: u64) -> Result<u64, FaultKind> {
    let size = u64::from(size as u32);
    let to = vm.reach_bytes(dst, size, true)?;
    match vm.reach_bytes(from, size, false) {
        // SAFETY: both are in reach for `size` bytes.
        Ok(from) => unsafe { mem::copy(from, to, size as usize) },
        Err(_) => {
            // SAFETY: as above.
            unsafe { mem::zero(to, size as usize) };
            return Ok(Errno::EFAULT.to_ret());
        }
    }
    Ok(0)
}

/// Kernel: `bpf_get_current_comm`, kernel/bpf/helpers.c.
fn comm(vm: &mut Vm<'_>, id: i32, buf: u64, size: u64) -> Result<u64, FaultKind> {
    let size = u64::from(size as u32);
    if size == 0 {
        return refuse(id, "r2, the size, is 0");
    }
    let to = vm.reach_bytes(buf, size, true)?;
    let mut comm = vm.env.current_comm();
    let len = comm.len().min(size as usize);
    // As strscpy_pad: always terminated, and the rest zeroed.
    comm[len - 1] = 0;
    let end = comm.iter().position(|&b| b == 0).unwrap_or(0);
    // SAFETY: `size` bytes are in reach for writing, and `end` is less.
    unsafe {
        mem::store_bytes(to, &comm[..end]);
        mem::zero(to.add(end), size as usize - end);
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_stand_at_their_numbers() {
        for (id, want) in [
            (1, "map_lookup_elem"),
            (12, "tail_call"),
            (25, "perf_event_output"),
            (113, "probe_read_kernel"),
            (130, "ringbuf_output"),
            (181, "loop"),
            (195, "map_lookup_percpu_elem"),
            (211, "cgrp_storage_delete"),
        ] {
            assert_eq!(super::name(id), Some(want));
            assert_eq!(super::id(want), Some(id));
        }
        assert_eq!(
            (super::name(0), super::name(-1), super::name(212), super::id("unspec")),
            (None, None, None, None)
        );
    }
}
