//! The path with the patched key: a run is counted whole or not at all, wherever a flip falls; one machine has it at a time.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[path = "../../percpu/tests/stepper/mod.rs"]
mod stepper;

use std::sync::{Mutex, MutexGuard};

use filter::clock::SchedClock;
use filter::{
    BpfCtx, BpfProg, BpfProgKstats, Config, NewError, PatchedKey, ProgType, bpf_prog_get_stats, bpf_prog_run,
};
use jump_label::{AtomicKey, KeyError, StaticKey};
use percpu::{Cpu, Machine, NoSteps, Topology};
use stats::{Bits32, Bits64, Form};
use sync::host::{AtomicBool, Ordering::Relaxed};

/// A clock of which each read is 5 after the one before, on a CPU, as far as one run can tell: so a run takes 5 or nothing.
struct Fives(percpu::PerCpu<sync::local::LocalU64>);

impl SchedClock for Fives {
    fn sched_clock<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) -> u64 {
        let now = self.0.this_cpu_ptr(cpu);
        now.set(now.get() + 5);
        now.get()
    }
}

type K<F> = Config<F, Fives, PatchedKey>;

/// The key is the program's, and tests share the program.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn machine<F: Form>(cpus: usize) -> Machine<K<F>> {
    let key = PatchedKey::claim().unwrap_or_else(|e| panic!("{e}"));
    let globals = |pcpu: &percpu::Pcpu| {
        let clock = Fives(pcpu.alloc(|_| sync::local::LocalU64::new(0)).unwrap());
        filter::Globals::new(pcpu, clock, key)
    };
    Machine::new(Topology::smp(cpus), NoSteps, globals).unwrap()
}

fn prog<F: Form>(m: &Machine<K<F>>) -> BpfProg<K<F>> {
    BpfProg::alloc(m.pcpu(), ProgType::RawTracepoint, |_: &Cpu<K<F>>, _: &mut BpfCtx<'_>| 7).unwrap()
}

fn flipped_under_load<F: Form>() {
    const CPUS: usize = 2;
    let flips = if cfg!(debug_assertions) { 400 } else { 4_000 };
    let m = machine::<F>(CPUS);
    let p = prog(&m);
    let key = &m.globals().bpf_stats_enabled_key;
    let stop = AtomicBool::new(false);
    let before = jump_label::traps();
    let runs: Vec<u64> = m.boot(|smp| {
        let flipper = smp.spawn_outside("flipper", || {
            let mut done = 0;
            // Who meets whom is chance: go on until it has happened, and something was counted.
            while done < flips || jump_label::traps() == before || bpf_prog_get_stats(&p).cnt == 0 {
                key.slow_inc().unwrap();
                key.slow_dec().unwrap();
                done += 1;
            }
            stop.store(true, Relaxed);
        });
        let runs = smp.on_each_cpu(|cpu| {
            let mut runs = 0;
            while !stop.load(Relaxed) {
                assert_eq!(bpf_prog_run(cpu, &p, &mut BpfCtx::default()), 7);
                runs += 1;
            }
            runs
        });
        flipper.join().unwrap();
        runs
    });
    let (runs, now) = (runs.iter().sum::<u64>(), bpf_prog_get_stats(&p));
    println!("{runs} runs, {} counted, {} traps", now.cnt, jump_label::traps() - before);
    assert!(0 < now.cnt && now.cnt <= runs, "{now:?} of {runs}");
    assert_eq!(now.nsecs, 5 * now.cnt, "whole or not at all");
}

#[test]
fn flips_under_load_leave_each_run_whole() {
    let _one = one_at_a_time();
    flipped_under_load::<Bits64>();
    flipped_under_load::<Bits32>();
}

#[test]
fn a_flip_at_every_instruction_leaves_each_run_whole() {
    let _one = one_at_a_time();
    let m = machine::<Bits64>(1);
    let p = prog(&m);
    let key = &m.globals().bpf_stats_enabled_key;
    m.boot(|smp| {
        smp.run(0, |cpu| {
            let mut cnt = 0;
            let mut counted = Vec::new();
            stepper::at_every_instruction(
                || key.slow_inc().unwrap(),
                || _ = bpf_prog_run(cpu, &p, &mut BpfCtx::default()),
                |_| {
                    key.slow_dec().unwrap();
                    let now = bpf_prog_get_stats(&p);
                    assert_eq!(now.nsecs, 5 * now.cnt);
                    counted.push(now.cnt - cnt);
                    cnt = now.cnt;
                },
            );
            // Switched on before the key is tested: counted. After: not. In this order, and both happen.
            let tested = counted.iter().position(|&n| n == 0).unwrap();
            assert!(tested > 0 && counted[..tested].iter().all(|&n| n == 1), "{counted:?}");
            assert!(counted[tested..].iter().all(|&n| n == 0), "{counted:?}");
        })
        .unwrap();
    });
}

#[test]
fn one_machine_has_the_patched_key() {
    let _one = one_at_a_time();
    let m = machine::<Bits64>(1);
    m.globals().bpf_stats_enabled_key.slow_inc().unwrap();
    let again = || filter::machine::<Bits32, _, PatchedKey, _>(Topology::smp(1), NoSteps, Still);
    let refused = again().err().expect("the first machine has the key");
    assert!(matches!(refused, NewError::Key(KeyError::Claimed)) && refused.to_string().contains("in use"));
    // Others have a word each.
    filter::machine::<Bits32, _, AtomicKey, _>(Topology::smp(1), NoSteps, Still).unwrap();
    // The next machine finds it off, whatever the one before has left.
    drop(m);
    let m = again().unwrap();
    assert_eq!(m.globals().bpf_stats_enabled_key.count(), 0);
    let p = BpfProg::alloc(m.pcpu(), ProgType::RawTracepoint, |_: &Cpu<_>, _: &mut BpfCtx<'_>| 7).unwrap();
    m.boot(|smp| smp.run(0, |cpu| bpf_prog_run(cpu, &p, &mut BpfCtx::default())).unwrap());
    assert_eq!(bpf_prog_get_stats(&p), BpfProgKstats::default());
}

struct Still;

impl SchedClock for Still {
    fn sched_clock<K: percpu::Kconfig>(&self, _: &Cpu<K>) -> u64 {
        1
    }
}
