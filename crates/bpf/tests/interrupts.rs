//! A run in a signal handler over a run of the same CPU, at whatever instruction it was.

mod common;

use bpf::insn::*;
use bpf::{MapAttr, MapType, PlainEnv};
use common::{insns, load, machine, map, word};
use percpu::Irq;
use sync::host::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Runs of the task; interrupts come as long as they last, and there are some in any case.
const RUNS: u64 = if cfg!(debug_assertions) { 300 } else { 3_000 };

#[test]
fn runs_over_runs_of_one_cpu_count_exactly_and_keep_their_frames() {
    // Two maps: a shared word, and a per-CPU word. Each round checks a pattern in two frames, and counts in
    // both maps.
    let (shared, own) =
        (map(MapAttr::array("shared", 8, 1)), map(MapAttr::array("own", 8, 1).of_type(MapType::PercpuArray)));
    let rounds = 100;
    let p = insns(&[
        &[mov64_imm(9, rounds), mov64_reg(8, 1)],
        // 2: the pattern: r9 into this frame, and its double into the callee's.
        &[stx_mem(BPF_DW, 10, 9, -8), mov64_reg(1, 9), call_rel(22)],
        &[ldx_mem(BPF_DW, 1, 10, -8), jmp_reg(BPF_JNE, 1, 9, 18)],
        &[mov64_reg(1, 9), alu64_reg(BPF_ADD, 1, 9), jmp_reg(BPF_JNE, 0, 1, 15)],
        &ld_map_value(2, 0, 0),
        &[mov64_imm(1, 1), atomic_op(BPF_DW, BPF_ADD as i32, 2, 1, 0)],
        &[st_mem(BPF_W, 10, -12, 0), mov64_reg(2, 10), alu64_imm(BPF_ADD, 2, -12)],
        &ld_map_fd(1, 1),
        &[
            emit_call(1),
            jmp_imm(BPF_JEQ, 0, 0, 4),
            mov64_imm(1, 1),
            atomic_op(BPF_DW, BPF_ADD as i32, 0, 1, 0),
        ],
        &[alu64_imm(BPF_SUB, 9, 1), jmp_imm(BPF_JNE, 9, 0, -23), mov64_reg(0, 9), exit_insn()],
        // The function.
        &[stx_mem(BPF_DW, 10, 1, -16), ldx_mem(BPF_DW, 0, 10, -16), alu64_reg(BPF_ADD, 0, 1), exit_insn()],
    ]);
    let prog = load(&p, vec![shared.clone(), own.clone()]);
    // Made once: to make one allocates, which a handler must not.
    let env = PlainEnv::default();
    let once = || assert_eq!(bpf::run(&prog, &mut [0; 8], &env), Ok(0));
    once();
    let m = machine();
    let (in_irq, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut in_task = 1; // the one above
    m.boot(|smp| {
        smp.request_irq(Irq(0), |_| {
            // A failed assertion would unwind out of a handler: count what succeeds instead.
            if bpf::run(&prog, &mut [0; 8], &env) == Ok(0) {
                in_irq.fetch_add(1, Relaxed);
            }
        })
        .unwrap();
        std::thread::scope(|s| {
            s.spawn(|| {
                while !stop.load(Relaxed) {
                    m.raise(0, Irq(0));
                    // Else the CPU does nothing but handle interrupts.
                    std::thread::sleep(std::time::Duration::from_micros(100));
                }
            });
            let done = smp.run(0, |_| {
                while in_task < RUNS || in_irq.load(Relaxed) < 100 {
                    once();
                    in_task += 1;
                }
            });
            stop.store(true, Relaxed);
            done.unwrap();
        });
    });
    let want = (in_task + in_irq.load(Relaxed)) * rounds as u64;
    assert_eq!((word(&shared, 0), word(&own, 0)), (want, want));
}
