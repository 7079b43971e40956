//! Programs on simulated CPUs: what a machine adds to the engine.

use std::sync::{Arc, Mutex};

use bpf::insn::*;
use bpf::runtime::{OnTask, bpf_prog_load};
use bpf::{Env, Map, MapAttr, MapType, Program, TraceBuf};
use filter::clock::OtherClock;
use filter::{BpfCtx, Config, Kconfig, ProgType, bpf_prog_get_stats, bpf_prog_run};
use jump_label::{AtomicKey, StaticKey};
use percpu::{Machine, NoSteps, Topology};
use stats::Bits64;

type K = Config<Bits64, OtherClock>;

fn machine(cpus: usize) -> Machine<K> {
    filter::machine::<Bits64, _, AtomicKey, _>(Topology::smp(cpus), NoSteps, OtherClock::os()).unwrap()
}

#[test]
fn a_program_is_timed_and_counts_in_a_map_of_each_cpu() {
    let m = machine(2);
    let attr = MapAttr::array("own", 8, 1).of_type(MapType::PercpuArray);
    let map = Map::create(1, attr, m.pcpu()).unwrap();
    let [lo, hi] = ld_map_fd(1, 0);
    let p = [
        st_mem(BPF_W, 10, -4, 0),
        mov64_reg(2, 10),
        alu64_imm(BPF_ADD, 2, -4),
        lo,
        hi,
        emit_call(1),
        jmp_imm(BPF_JEQ, 0, 0, 3),
        ldx_mem(BPF_DW, 1, 0, 0),
        alu64_imm(BPF_ADD, 1, 1),
        stx_mem(BPF_DW, 0, 1, 0),
        emit_call(8), // bpf_get_smp_processor_id
        exit_insn(),
    ];
    let program = Arc::new(Program::load("count", &p, vec![map.clone()]).unwrap());
    let prog = bpf_prog_load::<K>(m.pcpu(), ProgType::RawTracepoint, program).unwrap();
    K::globals(m.globals()).bpf_stats_enabled_key.slow_inc().unwrap();
    let ids = m.boot(|smp| {
        smp.on_each_cpu(|cpu| {
            let mut ctx = BpfCtx::default();
            let runs = 10 * (cpu.smp_processor_id() + 1);
            let id = (0..runs).fold(None, |_, _| Some(bpf_prog_run(cpu, &prog, &mut ctx)));
            assert_eq!(ctx.abort, None);
            id
        })
    });
    assert_eq!(ids, [Some(0), Some(1)]);
    assert_eq!(bpf_prog_get_stats(&prog).cnt, 30);
    let words = m.boot(|smp| smp.run(0, |cpu| map.lookup_elem(&OnTask(cpu), &[0; 4]).unwrap()).unwrap());
    let words: Vec<_> = words.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().unwrap())).collect();
    assert_eq!(words, [10, 20]);
}

/// Records what `bpf_prog_active` and the migration count are while the map is changed.
struct Watched<'a> {
    inner: OnTask<'a, K>,
    seen: &'a Mutex<Vec<u32>>,
}

impl Watched<'_> {
    fn active(&self) -> u32 {
        let cpu = self.inner.0.raw_cpu();
        K::globals(cpu.globals()).bpf_prog_active.per_cpu_ptr(cpu.smp_processor_id()).get()
    }
}

impl Env for Watched<'_> {
    fn smp_processor_id(&self) -> u32 {
        self.inner.smp_processor_id()
    }
    fn ktime_get_ns(&self) -> u64 {
        self.inner.ktime_get_ns()
    }
    fn get_prandom_u32(&self) -> u32 {
        self.inner.get_prandom_u32()
    }
    fn current_pid_tgid(&self) -> u64 {
        self.inner.current_pid_tgid()
    }
    fn current_comm(&self) -> [u8; 16] {
        self.inner.current_comm()
    }
    fn trace_printk(&self, line: &[u8]) {
        self.inner.trace_printk(line);
    }
    fn bpf_disable_instrumentation(&self) {
        self.inner.bpf_disable_instrumentation();
        percpu::cant_migrate(self.inner.0.raw_cpu());
        self.seen.lock().unwrap().push(self.active());
    }
    fn bpf_enable_instrumentation(&self) {
        self.seen.lock().unwrap().push(self.active());
        self.inner.bpf_enable_instrumentation();
    }
}

#[test]
fn map_operations_of_system_calls_raise_bpf_prog_active() {
    let m = machine(1);
    let map = Map::create(1, MapAttr::array("a", 8, 1).of_type(MapType::Hash), m.pcpu()).unwrap();
    let seen = Mutex::new(Vec::new());
    m.boot(|smp| {
        smp.spawn("bpftool", 0, |task| {
            let env = Watched { inner: OnTask(task), seen: &seen };
            map.update_elem(&env, &[0; 4], &[7; 8], 0).unwrap();
            map.delete_elem(&env, &[0; 4]).unwrap();
            assert_eq!(env.active(), 0, "lowered again");
        })
        .join()
        .unwrap();
    });
    assert_eq!(*seen.lock().unwrap(), [1, 1, 1, 1], "raised during the update and the delete");
    assert_eq!(m.taints(), 0, "pinned meanwhile");
}

#[test]
fn helpers_see_the_task_and_lines_reach_the_trace() {
    let m = machine(1);
    let trace = Arc::new(TraceBuf::new(4));
    // The line "hi\0" on the stack, printed; then the low half of pid_tgid.
    let p = [
        st_mem(BPF_W, 10, -4, i32::from_ne_bytes(*b"hi\0\0")),
        mov64_reg(1, 10),
        alu64_imm(BPF_ADD, 1, -4),
        mov64_imm(2, 3),
        emit_call(6),
        emit_call(14),
        exit_insn(),
    ];
    let program = Program::load("hi", &p, vec![]).unwrap().with_trace(trace.clone());
    let prog = bpf_prog_load::<K>(m.pcpu(), ProgType::RawTracepoint, Arc::new(program)).unwrap();
    let (pid, ret) = m.boot(|smp| {
        let run = |task: &percpu::Task<K>| {
            (task.pid(), bpf_prog_run(&task.preempt_disable(), &prog, &mut BpfCtx::default()))
        };
        smp.spawn("a task", 0, run).join().unwrap()
    });
    assert_eq!(pid as u32, ret);
    assert_eq!(trace.drain(), [b"hi".to_vec()]);
}

#[test]
fn a_fault_is_in_the_context_and_the_process_lives() {
    let m = machine(1);
    let p = [ldx_mem(BPF_DW, 0, 1, 64), exit_insn()];
    let program = Arc::new(Program::load("bad", &p, vec![]).unwrap());
    let prog = bpf_prog_load::<K>(m.pcpu(), ProgType::RawTracepoint, program).unwrap();
    let abort = m.boot(|smp| {
        smp.run(0, |cpu| {
            let mut memory = [0; 16];
            let mut ctx = BpfCtx::new(&mut memory);
            assert_eq!(bpf_prog_run(cpu, &prog, &mut ctx), 0);
            ctx.abort
        })
        .unwrap()
    });
    assert_eq!(abort.unwrap().to_string(), "insn 0: read of memory that it does not have");
}
