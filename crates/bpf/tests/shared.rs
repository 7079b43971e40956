//! Programs at once: two CPUs on one map with each atomic operation, runs over runs, and what a run must not
//! do.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bpf::insn::*;
use bpf::{BpfInsn, Env, Map, MapAttr, MapType, PlainEnv, Program};
use common::{array, insns, load, map, prog_array, set, word};

const LOOPS: i32 = if cfg!(debug_assertions) { 100_000 } else { 300_000 };
/// How long two programs hammer one word together, and the rounds after which that is given up.
const TOGETHER: Duration = Duration::from_millis(30);
const MAX_ROUNDS: usize = 100;
const ADD: i32 = BPF_ADD as i32;
const OR: i32 = BPF_OR as i32;
const AND: i32 = BPF_AND as i32;
const XOR: i32 = BPF_XOR as i32;

/// Repeats `body`: r6 is the map's word, r7 = `mine`, r8 counts in `body`, r9 is the loop's. Returns r8.
fn hammer(mine: u64, body: &[BpfInsn]) -> Vec<BpfInsn> {
    let back = -(body.len() as i16) - 2;
    insns(&[
        &ld_map_value(6, 0, 0),
        &set(7, mine),
        &[mov64_imm(8, 0), mov64_imm(9, LOOPS)],
        body,
        &[alu64_imm(BPF_SUB, 9, 1), jmp_imm(BPF_JNE, 9, 0, back), mov64_reg(0, 8), exit_insn()],
    ])
}

/// What two programs left: the word, and what each returned.
type Left = (u64, [u64; 2]);

/// Runs two programs at once on one word that holds `start`, until they have been at it together for a while
/// (a busy host may run one after the other), and has each result checked.
fn at_once(start: u64, programs: [Vec<BpfInsn>; 2], check: impl Fn(Left)) {
    let m = array(1);
    let progs = programs.map(|p| load(&p, vec![m.clone()]));
    let mut together = Duration::ZERO;
    for _ in 0..MAX_ROUNDS {
        m.update_elem(&PlainEnv::default(), &[0; 4], &start.to_ne_bytes(), 0).unwrap();
        let barrier = std::sync::Barrier::new(2);
        let run = |prog: &Program, cpu| {
            barrier.wait();
            let from = Instant::now();
            let r0 = bpf::run(prog, &mut [], &PlainEnv::new(cpu)).unwrap();
            (r0, from, Instant::now())
        };
        let [a, b] = std::thread::scope(|s| {
            let other = s.spawn(|| run(&progs[1], 1));
            [run(&progs[0], 0), other.join().unwrap()]
        });
        check((word(&m, 0), [a.0, b.0]));
        together += a.2.min(b.2).saturating_duration_since(a.1.max(b.1));
        if together > TOGETHER {
            return;
        }
    }
}

#[test]
fn add_and_fetch_add_lose_nothing() {
    for (size, mask) in [(BPF_DW, u64::MAX), (BPF_W, u64::from(u32::MAX))] {
        for op in [ADD, ADD | BPF_FETCH] {
            // The operand is in r1 each time, since fetch overwrites it.
            let body = [mov64_reg(1, 7), atomic_op(size, op, 6, 1, 0)];
            let start = mask - 5; // carries on the way; in 32 bits the high half must not see it
            at_once(start, [hammer(3, &body), hammer(5, &body)], |(v, _)| {
                assert_eq!(v, start.wrapping_add(8 * LOOPS as u64) & mask, "op {op:#x} size {size:#x}");
            });
        }
    }
}

#[test]
fn or_and_xor_keep_each_others_bits() {
    // Each sets its own bits, looks, clears them, looks: they can only be otherwise if the other's operation
    // undid it.
    for size in [BPF_DW, BPF_W] {
        for fetch in [0, BPF_FETCH] {
            let op = |op: i32| atomic_op(size, op | fetch, 6, 1, 0);
            let bits_are_set = [ldx_mem(size, 2, 6, 0), alu64_reg(BPF_AND, 2, 7), jmp_reg(BPF_JEQ, 2, 7, 1)];
            let bits_are_clear =
                [ldx_mem(size, 2, 6, 0), alu64_reg(BPF_AND, 2, 7), jmp_imm(BPF_JEQ, 2, 0, 1)];
            let count = [alu64_imm(BPF_ADD, 8, 1)];
            let clear_by_and = insns(&[&[mov64_reg(1, 7), alu64_imm(BPF_XOR, 1, -1)], &[op(AND)]]);
            let by_or_and = insns(&[
                &[mov64_reg(1, 7), op(OR)],
                &bits_are_set,
                &count,
                &clear_by_and,
                &bits_are_clear,
                &count,
            ]);
            let flip = [mov64_reg(1, 7), op(XOR)];
            let by_xor = insns(&[&flip, &bits_are_set, &count, &flip, &bits_are_clear, &count]);
            for body in [by_or_and, by_xor] {
                at_once(0, [hammer(0x0f0f_0000, &body), hammer(0x5030_0fff, &body)], |left| {
                    assert_eq!(left, (0, [0, 0]), "size {size:#x} fetch {fetch}");
                });
            }
        }
    }
}

#[test]
fn xchg_neither_loses_nor_doubles() {
    for size in [BPF_DW, BPF_W] {
        // Each holds a token, and swaps it with the word: three tokens stay three.
        let body = [atomic_op(size, BPF_XCHG, 6, 7, 0), mov64_reg(8, 7)];
        at_once(1, [hammer(2, &body), hammer(4, &body)], |(v, [a, b])| {
            assert_eq!(v | a | b, 7, "{v} {a} {b}");
        });
    }
}

#[test]
fn cmpxchg_counts_exactly() {
    for size in [BPF_DW, BPF_W] {
        let body = [
            ldx_mem(size, 0, 6, 0),
            mov64_reg(2, 0),
            mov64_reg(1, 0),
            alu64_imm(BPF_ADD, 1, 1),
            atomic_op(size, BPF_CMPXCHG, 6, 1, 0),
            jmp_reg(BPF_JNE, 0, 2, -6),
        ];
        at_once(0, [hammer(0, &body), hammer(0, &body)], |(v, _)| assert_eq!(v, 2 * LOOPS as u64));
    }
}

/// Adds 1 to element `index` of map 0 by lookup, as a counting program does.
fn count(index: i32) -> Vec<BpfInsn> {
    insns(&[
        &[st_mem(BPF_W, 10, -4, index), mov64_reg(2, 10), alu64_imm(BPF_ADD, 2, -4)],
        &ld_map_fd(1, 0),
        &[emit_call(1), jmp_imm(BPF_JNE, 0, 0, 2), mov64_imm(0, 1), exit_insn()],
        &[mov64_imm(1, 1), atomic_op(BPF_DW, ADD, 0, 1, 0), mov64_imm(0, 0), exit_insn()],
    ])
}

#[test]
fn per_cpu_values_are_apart_and_shared_ones_are_not() {
    for map_type in [MapType::Array, MapType::PercpuArray] {
        let m = map(MapAttr::array("map", 8, 4).of_type(map_type));
        let prog = load(&count(2), vec![m.clone()]);
        std::thread::scope(|s| {
            for cpu in 0..common::NR_CPUS as u32 {
                let prog = &prog;
                s.spawn(move || {
                    for _ in 0..=cpu {
                        assert_eq!(bpf::run(prog, &mut [], &PlainEnv::new(cpu)), Ok(0));
                    }
                });
            }
        });
        let value = m.lookup_elem(&PlainEnv::default(), &2u32.to_ne_bytes()).unwrap();
        let words: Vec<_> = value.chunks(8).map(|w| u64::from_ne_bytes(*w.first_chunk().unwrap())).collect();
        assert_eq!(words, if map_type == MapType::Array { vec![6] } else { vec![1, 2, 3] });
    }
}

/// An environment that runs another program whenever it is asked for the time: as an interrupt would, within
/// a helper.
struct Nesting<'a> {
    inner: &'a Program,
    depth: Cell<u32>,
    plain: PlainEnv,
}

impl Env for Nesting<'_> {
    fn smp_processor_id(&self) -> u32 {
        0
    }
    fn ktime_get_ns(&self) -> u64 {
        if self.depth.get() == 0 {
            return 0;
        }
        self.depth.set(self.depth.get() - 1);
        bpf::run(self.inner, &mut [0; 8], self).unwrap()
    }
    fn get_prandom_u32(&self) -> u32 {
        self.plain.get_prandom_u32()
    }
    fn current_pid_tgid(&self) -> u64 {
        0
    }
    fn current_comm(&self) -> [u8; 16] {
        *b"nested\0\0\0\0\0\0\0\0\0\0"
    }
    fn trace_printk(&self, line: &[u8]) {
        self.plain.trace_printk(line);
    }
}

#[test]
fn a_run_over_a_run_disturbs_nothing() {
    // Returns 1 + what the run above it returned, if its stack, its registers and its context are what they
    // were.
    let p = insns(&[
        &[mov64_reg(6, 1), mov64_imm(7, 77), st_mem(BPF_DW, 10, -8, 88), st_mem(BPF_DW, 6, 0, 99)],
        &[emit_call(5), ldx_mem(BPF_DW, 1, 10, -8), ldx_mem(BPF_DW, 2, 6, 0)],
        &[jmp_imm(BPF_JNE, 1, 88, 4), jmp_imm(BPF_JNE, 2, 99, 3), jmp_imm(BPF_JNE, 7, 77, 2)],
        &[alu64_imm(BPF_ADD, 0, 1), exit_insn(), mov64_imm(0, -1000), exit_insn()],
    ]);
    let prog = load(&p, vec![]);
    let env = Nesting { inner: &prog, depth: Cell::new(10), plain: PlainEnv::default() };
    assert_eq!(bpf::run(&prog, &mut [0; 8], &env), Ok(11));
}

#[test]
fn tail_calls_stop_at_the_limit_and_go_on_behind_it() {
    let progs = prog_array(2);
    // Adds 1 to the context and calls slot r3: at the limit it falls through and returns 5.
    let p = |slot| {
        insns(&[
            &[ldx_mem(BPF_W, 0, 1, 0), alu64_imm(BPF_ADD, 0, 1), stx_mem(BPF_W, 1, 0, 0)],
            &ld_map_fd(2, 0),
            &[mov64_imm(3, slot), emit_call(12), mov64_imm(0, 5), exit_insn()],
        ])
    };
    let itself = Arc::new(load(&p(0), vec![progs.clone()]));
    progs.prog_array().unwrap().update(0, itself.clone()).unwrap();
    let mut ctx = [0; 4];
    assert_eq!(bpf::run(&itself, &mut ctx, &PlainEnv::default()), Ok(5));
    assert_eq!(u32::from_ne_bytes(ctx), 34, "the first run and 33 tail calls");
    // An empty slot and one that is not there: the program goes on.
    for slot in [1, 2, -1] {
        let prog = load(&p(slot), vec![progs.clone()]);
        let mut ctx = [0; 4];
        assert_eq!(bpf::run(&prog, &mut ctx, &PlainEnv::default()), Ok(5));
        assert_eq!(u32::from_ne_bytes(ctx), 1);
    }
    progs.prog_array().unwrap().clear();
}

#[test]
fn a_tail_call_in_a_function_returns_to_its_caller() {
    let progs = prog_array(1);
    // The target uses its stack, and reads it first: zeroed.
    let target = load(&[ldx_mem(BPF_DW, 0, 10, -8), alu64_imm(BPF_ADD, 0, 40), exit_insn()], vec![]);
    progs.prog_array().unwrap().update(0, Arc::new(target)).unwrap();
    let caller = insns(&[
        &[mov64_imm(6, 2), call_rel(2), alu64_reg(BPF_ADD, 0, 6), exit_insn()],
        &ld_map_fd(2, 0),
        &[mov64_imm(3, 0), emit_call(12), mov64_imm(0, 0), exit_insn()],
    ]);
    assert_eq!(bpf::run(&load(&caller, vec![progs]), &mut [], &PlainEnv::default()), Ok(42));
}

/// Counts allocations of the threads that ask for it.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<Option<u64>> = const { Cell::new(None) };
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|a| a.set(a.get().map(|n| n + 1)));
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        ALLOCATIONS.with(|a| a.set(a.get().map(|n| n + 1)));
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_run_does_not_allocate() {
    let maps: Vec<Arc<Map>> = vec![array(4), prog_array(1)];
    let printing = insns(&[
        &[
            st_mem(BPF_DW, 10, -8, i32::from_le_bytes(*b"%d %")),
            st_mem(BPF_W, 10, -4, i32::from_le_bytes(*b"x\0\0\0")),
        ],
        &[mov64_reg(1, 10), alu64_imm(BPF_ADD, 1, -8), mov64_imm(2, 8), mov64_imm(3, 1)],
        &[emit_call(6), exit_insn()],
    ]);
    let fault = vec![ldx_mem(BPF_DW, 0, 1, 4), exit_insn()];
    let tail = insns(&[&ld_map_fd(2, 1), &[mov64_imm(3, 0), emit_call(12), exit_insn()]]);
    let call = vec![call_rel(1), exit_insn(), mov64_imm(0, 0), exit_insn()];
    for p in [count(1), count(9), printing, fault, tail, call] {
        let prog = load(&p, maps.clone());
        let env = PlainEnv::default();
        ALLOCATIONS.set(Some(0));
        let _ = bpf::run(&prog, &mut [0; 8], &env);
        assert_eq!(ALLOCATIONS.take(), Some(0), "{p:x?}");
    }
}
