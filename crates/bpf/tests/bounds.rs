//! Where memory ends: each width at both ends of each kind of region, by loads, stores, atomics and helpers;
//! and the other ways in which a run is ended.

mod common;

use std::sync::Arc;

use bpf::insn::*;
use bpf::maps::BPF_F_RDONLY_PROG;
use bpf::{BpfInsn, Fault, FaultKind, Map, MapAttr, MapType, PlainEnv, RunOpts, helpers};
use common::{array, insns, load, map, run, set};

const WIDTHS: [(u8, i64); 4] = [(BPF_B, 1), (BPF_H, 2), (BPF_W, 4), (BPF_DW, 8)];
const ADD: i32 = BPF_ADD as i32;

/// A region: how a program gets its address into r6, and how long it is.
struct Region {
    name: &'static str,
    setup: Vec<BpfInsn>,
    len: i64,
    maps: Vec<Arc<Map>>,
    writable: bool,
}

/// r6 = the value of element 0 of map 0, by lookup.
fn lookup() -> Vec<BpfInsn> {
    insns(&[
        &[st_mem(BPF_W, 10, -4, 0), mov64_reg(2, 10), alu64_imm(BPF_ADD, 2, -4)],
        &ld_map_fd(1, 0),
        &[emit_call(helpers::BPF_FUNC_MAP_LOOKUP_ELEM), mov64_reg(6, 0)],
    ])
}

fn regions() -> Vec<Region> {
    let region = |name, setup, len, maps| Region { name, setup, len, maps, writable: true };
    let attr = || MapAttr::array("map", 12, 1);
    vec![
        region("stack", vec![mov64_reg(6, 10), alu64_imm(BPF_ADD, 6, -512)], 512, vec![]),
        region("context", vec![mov64_reg(6, 1)], 20, vec![]),
        region("array", lookup(), 12, vec![map(attr())]),
        region("array, direct", ld_map_value(6, 0, 0).to_vec(), 12, vec![map(attr())]),
        region("per-CPU array", lookup(), 12, vec![map(attr().of_type(MapType::PercpuArray))]),
        region("hash", hash_lookup(), 12, vec![map(attr().of_type(MapType::Hash))]),
        region("second map", ld_map_value(6, 1, 0).to_vec(), 12, vec![array(1), map(attr())]),
        Region {
            writable: false,
            ..region(
                "read-only",
                ld_map_value(6, 0, 0).to_vec(),
                12,
                vec![map(attr().with_flags(BPF_F_RDONLY_PROG))],
            )
        },
    ]
}

/// r6 = the value of key 0 of map 0, which is put in first.
fn hash_lookup() -> Vec<BpfInsn> {
    let update = insns(&[
        &[st_mem(BPF_W, 10, -4, 0), mov64_reg(2, 10), alu64_imm(BPF_ADD, 2, -4)],
        &[mov64_reg(3, 10), alu64_imm(BPF_ADD, 3, -64), mov64_imm(4, 0)],
        &ld_map_fd(1, 0),
        &[emit_call(helpers::BPF_FUNC_MAP_UPDATE_ELEM)],
    ]);
    insns(&[&update, &lookup()])
}

/// Whether an offset is in a neighbour's value: what is next to a value in a hash depends on what was there
/// before.
fn neighbour(r: &Region, off: i64) -> bool {
    r.name == "hash" && !(0..16).contains(&off)
}

/// Runs `setup`, then `op`, on a context of 20 bytes; whether it came to an end, else why not.
fn access(r: &Region, off: i64, op: BpfInsn) -> Result<u64, FaultKind> {
    let p = insns(&[
        &r.setup,
        &set(7, off as u64),
        &[alu64_reg(BPF_ADD, 6, 7), mov64_imm(0, 0), op],
        &[exit_insn()],
    ]);
    let mut ctx = [0u8; 20];
    bpf::run(&load(&p, r.maps.clone()), &mut ctx, &PlainEnv::default()).map_err(|f| {
        assert_eq!(f.pc as usize, p.len() - 2, "the access is what ends the run");
        f.kind
    })
}

#[test]
fn every_width_at_both_ends_of_every_region() {
    for r in &regions() {
        for (code, size) in WIDTHS {
            for off in (-9..=9).chain(r.len - 9..=r.len + 9).filter(|&off| !neighbour(r, off)) {
                let inside = off >= 0 && off + size <= r.len;
                let what = format!("{}: {size} bytes at {off} of {}", r.name, r.len);
                let mut ops = vec![(ldx_mem(code, 0, 6, 0), false), (st_mem(code, 6, 0, 1), true)];
                ops.push((stx_mem(code, 6, 7, 0), true));
                if size < 8 {
                    ops.push((ldx_memsx(code, 0, 6, 0), false));
                }
                for (op, write) in ops {
                    match access(r, off, op) {
                        Ok(_) => assert!(inside && (r.writable || !write), "{what}: {op:x?} was let through"),
                        Err(FaultKind::ReadOnly { .. }) => {
                            assert!(inside && write && !r.writable, "{what}: {op:x?}")
                        }
                        Err(FaultKind::OutOfBounds { size: s, write: w, .. }) => {
                            assert!(!inside, "{what}: {op:x?} was refused");
                            assert_eq!((s, w), (size as u64, write), "{what}");
                        }
                        Err(e) => panic!("{what}: {e}"),
                    }
                }
            }
        }
    }
}

#[test]
fn atomics_at_both_ends_and_unaligned() {
    for r in &regions() {
        for (code, size) in [(BPF_W, 4), (BPF_DW, 8)] {
            // The base of each region is aligned to 8 here, except the context's, which is tried at its own
            // alignment.
            for off in (-9..=9).chain(r.len - 9..=r.len + 9).filter(|&off| !neighbour(r, off)) {
                let inside = off >= 0 && off + size <= r.len;
                let what = format!("{}: {size} bytes at {off} of {}", r.name, r.len);
                for op in [ADD, ADD | BPF_FETCH, BPF_XCHG, BPF_CMPXCHG] {
                    match access(r, off, atomic_op(code, op, 6, 7, 0)) {
                        Ok(_) => assert!(
                            inside && r.writable && (off % size == 0 || r.name == "context"),
                            "{what}"
                        ),
                        Err(FaultKind::Misaligned { addr, .. }) => {
                            assert!(inside && addr % size as u64 != 0, "{what}");
                        }
                        Err(FaultKind::ReadOnly { .. }) => assert!(inside && !r.writable, "{what}"),
                        Err(FaultKind::OutOfBounds { .. }) => assert!(!inside, "{what}"),
                        Err(e) => panic!("{what}: {e}"),
                    }
                }
            }
        }
    }
}

#[test]
fn addresses_that_wrap_or_are_nothing() {
    let nowhere = [
        0,
        1,
        8,
        u64::MAX,
        u64::MAX - 3,
        u64::MAX - 7,
        u64::MAX - 8,
        1 << 63,
        (1 << 63) - 4,
        1 << 47,
        1 << 48,
    ];
    for addr in nowhere {
        for (code, size) in WIDTHS {
            for (op, write) in [(ldx_mem(code, 0, 3, 0), false), (stx_mem(code, 3, 0, 0), true)] {
                let p = insns(&[&[mov64_reg(6, 10), mov64_imm(0, 0)], &set(3, addr), &[op, exit_insn()]]);
                let kind = run(&p, &mut [0; 16]).unwrap_err().kind;
                assert_eq!(kind, FaultKind::OutOfBounds { addr, size: size as u64, write });
            }
        }
    }
    // The offset wraps, too: an address is what the hardware would compute.
    let p = [mov64_imm(3, 1), ldx_mem(BPF_B, 0, 3, -2), exit_insn()];
    let kind = run(&p, &mut []).unwrap_err().kind;
    assert_eq!(kind, FaultKind::OutOfBounds { addr: u64::MAX, size: 1, write: false });
    // A distance from a valid address that only a sum without care would take for valid.
    for r in &regions() {
        for off in [i64::MIN, i64::MAX, -(1 << 32), 1 << 32, i64::from(i32::MIN)] {
            assert!(
                matches!(access(r, off, ldx_mem(BPF_DW, 0, 6, 0)), Err(FaultKind::OutOfBounds { .. })),
                "{}",
                r.name
            );
        }
    }
}

#[test]
fn an_empty_context_has_no_byte() {
    for (op, write) in [(ldx_mem(BPF_B, 0, 1, 0), false), (st_mem(BPF_B, 1, 0, 0), true)] {
        let f = run(&[mov64_imm(0, 0), op, exit_insn()], &mut []).unwrap_err();
        assert!(matches!(f.kind, FaultKind::OutOfBounds { size: 1, write: w, .. } if w == write));
    }
}

#[test]
fn an_access_does_not_go_from_one_value_to_the_next() {
    // Values of 8 bytes stand side by side, values of 12 have 4 bytes between them.
    for (value_size, off, size, ok) in [
        (8, 0, BPF_DW, true),
        (8, 8, BPF_DW, true),
        (8, 4, BPF_DW, false),
        (8, 7, BPF_H, false),
        (12, 8, BPF_W, true),
        (12, 12, BPF_W, false),
        (12, 11, BPF_H, false),
        (12, 15, BPF_B, false),
        (12, 16, BPF_W, true),
    ] {
        for map_type in [MapType::Array, MapType::PercpuArray] {
            let m = map(MapAttr::array("map", value_size, 4).of_type(map_type));
            let p = insns(&[&lookup(), &[ldx_mem(size, 0, 6, off), exit_insn()]]);
            let r = bpf::run(&load(&p, vec![m]), &mut [], &PlainEnv::default());
            assert_eq!(r.is_ok(), ok, "{map_type} of {value_size} at {off}: {r:?}");
        }
    }
}

#[test]
fn a_frame_that_was_left_is_out_of_reach() {
    let p = [
        mov64_reg(6, 10),
        call_rel(3),
        st_mem(BPF_DW, 6, -8, 1),
        ldx_mem(BPF_B, 1, 0, 0), // 3: the callee's frame
        exit_insn(),
        mov64_reg(0, 10),
        alu64_imm(BPF_ADD, 0, -1),
        st_mem(BPF_B, 0, 0, 1), // in reach while it runs
        exit_insn(),
    ];
    let f = run(&p, &mut []).unwrap_err();
    assert!(matches!(f, Fault { pc: 3, kind: FaultKind::OutOfBounds { size: 1, .. } }), "{f}");
    // Above the callee's frame is nothing either.
    let p = [mov64_imm(6, 0), call_rel(1), exit_insn(), ldx_mem(BPF_B, 0, 10, 0), exit_insn()];
    assert_eq!(run(&p, &mut []).unwrap_err().pc, 3);
}

#[test]
fn runs_end() {
    let opts = RunOpts { budget: 1000, ..RunOpts::default() };
    let limited = |p: &[BpfInsn]| bpf::run_with(&load(p, vec![]), &mut [], &PlainEnv::default(), opts);
    let f = limited(&[jmp_a(-1), exit_insn()]).unwrap_err();
    assert_eq!(f.to_string(), "insn 0: the program ran for too many instructions");
    assert_eq!(limited(&[jmp32_a(-1), exit_insn()]).unwrap_err().kind, FaultKind::Budget);
    assert_eq!(
        limited(&[mov64_imm(0, 0), jmp_imm(BPF_JEQ, 0, 0, -2), exit_insn()]).unwrap_err().kind,
        FaultKind::Budget
    );
    // Two calls in each of seven functions: 127 * 4 + 128 * 2 instructions.
    let mut p = vec![];
    for _ in 0..7 {
        p.extend([mov64_imm(0, 0), call_rel(2), call_rel(1), exit_insn()]);
    }
    p.extend([mov64_imm(0, 0), exit_insn()]);
    assert_eq!(run(&p, &mut []), Ok(0));
    let opts = RunOpts { budget: 500, ..RunOpts::default() };
    let f = bpf::run_with(&load(&p, vec![]), &mut [], &PlainEnv::default(), opts).unwrap_err();
    assert_eq!(f.kind, FaultKind::Budget);
    // As many as the budget allows, and one more.
    let count =
        |n| insns(&[&[mov64_imm(0, n), alu64_imm(BPF_SUB, 0, 1), jmp_imm(BPF_JNE, 0, 0, -2), exit_insn()]]);
    assert_eq!(limited(&count(500)), Ok(0));
    assert_eq!(limited(&count(501)).unwrap_err().kind, FaultKind::Budget);
}

#[test]
fn eight_functions_may_be_active() {
    // r1 counts down; the function calls itself.
    let p = |depth| {
        [
            mov64_imm(1, depth),
            call_rel(1),
            exit_insn(),
            mov64_imm(0, 7),
            jmp_imm(BPF_JEQ, 1, 0, 2),
            alu64_imm(BPF_SUB, 1, 1),
            call_rel(-4),
            exit_insn(),
        ]
    };
    assert_eq!(run(&p(6), &mut []), Ok(7));
    let f = run(&p(7), &mut []).unwrap_err();
    assert_eq!(f.to_string(), "insn 6: more than 8 functions are active");
}

#[test]
fn helpers_check_what_they_are_given() {
    let key_at = |off| [mov64_reg(2, 10), alu64_imm(BPF_ADD, 2, off)];
    let call = |parts: &[&[BpfInsn]], id: i32| {
        let p = insns(&[&insns(parts), &[emit_call(id), exit_insn()]]);
        let maps = vec![
            array(2),
            map(MapAttr::array("ro", 8, 1).with_flags(BPF_F_RDONLY_PROG)),
            common::prog_array(1),
        ];
        bpf::run(&load(&p, maps), &mut [], &PlainEnv::default()).map_err(|f| f.kind.to_string())
    };
    let oob = |r: Result<u64, String>| r.is_err_and(|e| e.starts_with("invalid "));
    // A key just inside, and just outside at either end.
    assert!(call(&[&ld_map_fd(1, 0), &key_at(-4)], 1).is_ok());
    assert!(call(&[&ld_map_fd(1, 0), &key_at(-512)], 1).is_ok());
    assert!(oob(call(&[&ld_map_fd(1, 0), &key_at(-3)], 1)));
    assert!(oob(call(&[&ld_map_fd(1, 0), &key_at(-513)], 1)));
    // A value that ends behind the frame.
    let value_at = |off| [mov64_reg(3, 10), alu64_imm(BPF_ADD, 3, off), mov64_imm(4, 0)];
    assert_eq!(call(&[&ld_map_fd(1, 0), &key_at(-4), &value_at(-8)], 2), Ok(0));
    assert!(oob(call(&[&ld_map_fd(1, 0), &key_at(-4), &value_at(-7)], 2)));
    // Maps.
    let e = |r: Result<u64, String>| r.unwrap_err();
    assert_eq!(
        e(call(&[&[mov64_imm(1, 0)], &key_at(-4)], 1)),
        "helper map_lookup_elem#1: r1 is not a map of the program"
    );
    assert_eq!(
        e(call(&[&ld_map_fd(1, 2), &key_at(-4)], 1)),
        "helper map_lookup_elem#1: r1 is a map of a kind that the helper does not take"
    );
    assert_eq!(
        e(call(&[&ld_map_fd(1, 1), &key_at(-4), &value_at(-8)], 2)),
        "helper map_update_elem#2: the map is read-only"
    );
    assert_eq!(
        e(call(&[&ld_map_fd(2, 0), &[mov64_imm(3, 0)]], 12)),
        "helper tail_call#12: r2 is not a program array"
    );
    assert_eq!(
        e(call(&[&ld_map_fd(1, 0), &key_at(-4), &[mov64_imm(3, 0)]], 195)),
        "helper map_lookup_percpu_elem#195: r1 is not a per-CPU map"
    );
    // Buffers.
    let buf = |off, len| [mov64_reg(1, 10), alu64_imm(BPF_ADD, 1, off), mov64_imm(2, len)];
    assert_eq!(call(&[&buf(-16, 16)], 16), Ok(0));
    assert!(oob(call(&[&buf(-16, 17)], 16)));
    assert!(oob(call(&[&buf(-16, -1)], 16)));
    assert_eq!(e(call(&[&buf(-16, 0)], 16)), "helper get_current_comm#16: r2, the size, is 0");
    assert!(oob(call(&[&buf(-8, 9), &[mov64_imm(3, 0)]], 6)));
    assert_eq!(call(&[&buf(-8, 0)], 6), Ok(-22i64 as u64));
}
