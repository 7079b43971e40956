//! The built-in programs, as eBPF instructions.

use std::sync::Arc;

use anyhow::Result;
use bpf::insn::{BPF_ADD, BPF_DW, BpfInsn, alu64_imm, exit_insn, ld_map_value, ldx_mem, mov64_imm, stx_mem};
use bpf::{Map, MapAttr};
use percpu::Pcpu;

/// The seed author's program: on each system call (raw_tracepoint/sys_enter) it increments a local counter, which clang
/// keeps in the object's `.bss`, an array map of one value.
///
/// ```c
/// static __u64 counter;
/// SEC("raw_tracepoint/sys_enter")
/// int count_sys_enter(void *ctx) { counter++; return 0; }
/// ```
pub(crate) fn count_sys_enter() -> Vec<BpfInsn> {
    let [lo, hi] = ld_map_value(1, 0, 0);
    vec![
        lo,
        hi,
        ldx_mem(BPF_DW, 2, 1, 0),
        alu64_imm(BPF_ADD, 2, 1),
        stx_mem(BPF_DW, 1, 2, 0),
        mov64_imm(0, 0),
        exit_insn(),
    ]
}

/// A program that does nothing: what is left is the cost of running one.
pub(crate) fn empty() -> Vec<BpfInsn> {
    vec![mov64_imm(0, 0), exit_insn()]
}

/// The counter program's map: the object's `.bss`.
pub(crate) fn counter_map(pcpu: &Pcpu, id: u32) -> Result<Arc<Map>> {
    Ok(Map::create(id, MapAttr::array(".bss", 8, 1), pcpu)?)
}
