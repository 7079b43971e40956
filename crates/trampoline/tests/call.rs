//! The call sequence: run contexts, what programs around a traced function see, and starts that are not their
//! own.

use std::sync::{Arc, Mutex};

use filter::virt::{self, AnnouncedFunc, VirtualConfig};
use filter::{BpfCtx, BpfProg, BpfProgKstats, ProgType, bpf_prog_get_stats};
use jump_label::StaticKey;
use percpu::{Cpu, Machine, Stage, Topology};
use stats::Bits64;
use trampoline::call::MAX_BPF_FUNC_ARGS;
use trampoline::{
    BpfTrampLink, BpfTrampRunCtx, BpfTrampoline, bpf_trampoline_enter, bpf_trampoline_exit, history,
    invoke_bpf_prog,
};

type V = VirtualConfig<Bits64>;

/// A virtual machine of one CPU, statistics on; a call costs 100 ns, a clock read 10.
fn machine() -> Machine<V> {
    let stage = Arc::new(Stage::new(1, 5000, &[("call", 100), ("clock", 10)]));
    let m = virt::machine::<Bits64>(Topology::smp(1), stage).unwrap();
    m.globals().bpf_stats_enabled_key.slow_inc().unwrap();
    m
}

fn prog(m: &Machine<V>, f: impl Fn(&Cpu<V>, &mut BpfCtx<'_>) -> u32 + Send + Sync + 'static) -> BpfProg<V> {
    BpfProg::alloc(m.pcpu(), ProgType::Tracing, AnnouncedFunc(f)).unwrap()
}

fn on_cpu<R: Send>(m: &Machine<V>, f: impl FnOnce(&Cpu<V>) -> R + Send) -> R {
    m.boot(|smp| smp.run(0, f).unwrap())
}

/// Makes this CPU refuse the program, as if it were in it.
fn hold(p: &BpfProg<V>) {
    p.active.as_ref().unwrap().per_cpu_ptr(0).set(1);
}

// Run contexts.

#[test]
fn the_run_context_is_the_innermost_programs_and_is_put_back() {
    let m = machine();
    const OUTSIDE: usize = 0xBEEF;
    let seen: Arc<Mutex<Vec<usize>>> = Arc::default();
    let note = |seen: &Arc<Mutex<Vec<usize>>>, cpu: &Cpu<V>| seen.lock().unwrap().push(cpu.bpf_ctx());
    let inner = prog(&m, {
        let seen = seen.clone();
        move |cpu, _| {
            note(&seen, cpu);
            0
        }
    });
    let outer = prog(&m, {
        let seen = seen.clone();
        move |cpu, ctx| {
            note(&seen, cpu);
            invoke_bpf_prog(cpu, &inner, 2, ctx);
            note(&seen, cpu);
            0
        }
    });
    on_cpu(&m, |cpu| {
        cpu.swap_bpf_ctx(OUTSIDE);
        invoke_bpf_prog(cpu, &outer, 1, &mut BpfCtx::default());
        assert_eq!(cpu.bpf_ctx(), OUTSIDE, "put back");
        cpu.swap_bpf_ctx(0);
    });
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3);
    assert!(seen[0] != OUTSIDE && seen[0] != 0 && seen[1] != seen[0], "{seen:x?}");
    assert_eq!(seen[2], seen[0], "the outer one's again");
}

#[test]
fn the_run_context_is_put_back_after_a_skip_too_and_keeps_its_cookie() {
    let m = machine();
    for refuse in [false, true] {
        for kind in [ProgType::Tracing, ProgType::Lsm, ProgType::LsmCgroup] {
            for sleepable in [false, true] {
                let p = BpfProg { kind, sleepable, ..prog(&m, |_, _| 7) };
                if refuse {
                    hold(&p);
                }
                on_cpu(&m, |cpu| {
                    cpu.swap_bpf_ctx(0xBEEF);
                    let mut ctx = BpfTrampRunCtx::default();
                    ctx.bpf_cookie = 42;
                    let start = bpf_trampoline_enter(&p)(cpu, &p, &mut ctx);
                    assert_eq!(start == 0, refuse && kind == ProgType::Tracing);
                    assert_eq!(cpu.bpf_ctx(), std::ptr::from_ref(&ctx).addr(), "what helpers find");
                    bpf_trampoline_exit(&p)(cpu, &p, start, &mut ctx);
                    assert_eq!((cpu.bpf_ctx(), ctx.bpf_cookie), (0xBEEF, 42));
                    cpu.swap_bpf_ctx(0);
                });
            }
        }
    }
}

// Around a traced function.

/// Who ran, and the arguments and the result that it saw.
type Ran = (&'static str, Vec<u64>);
type Log = Arc<Mutex<Vec<Ran>>>;

fn words(mem: &[u8]) -> Vec<u64> {
    mem.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().unwrap())).collect()
}

/// A link of a program that notes what it sees and returns `ret`.
fn link(m: &Machine<V>, log: &Log, name: &'static str, ret: u32) -> BpfTrampLink<V> {
    let log = log.clone();
    let prog = prog(m, move |_, ctx| {
        log.lock().unwrap().push((name, words(ctx.mem)));
        ret
    });
    BpfTrampLink { prog: Arc::new(prog), cookie: 0 }
}

/// Calls a function of two arguments that returns 900, with all kinds of programs around it: its result, what
/// happened, and each program's statistics.
fn traced(fmod_ret: [(&'static str, u32); 2], refused: &[&str]) -> (u64, Vec<Ran>, Vec<BpfProgKstats>) {
    let m = machine();
    let log = Log::default();
    let trampoline = BpfTrampoline {
        fentry: vec![link(&m, &log, "fentry 1", 5), link(&m, &log, "fentry 2", 6)],
        fmod_ret: fmod_ret.map(|(name, ret)| link(&m, &log, name, ret)).into(),
        fexit: vec![link(&m, &log, "fexit 1", 7), link(&m, &log, "fexit 2", 8)],
    };
    let names = ["fentry 1", "fentry 2", fmod_ret[0].0, fmod_ret[1].0, "fexit 1", "fexit 2"];
    let links: Vec<_> =
        [&trampoline.fentry, &trampoline.fmod_ret, &trampoline.fexit].into_iter().flatten().collect();
    names
        .iter()
        .zip(&links)
        .filter(|(name, _)| refused.contains(name))
        .for_each(|(_, link)| hold(&link.prog));
    let result = on_cpu(&m, |cpu| {
        trampoline.call(cpu, &[10, u64::MAX], |args| {
            log.lock().unwrap().push(("function", args.to_vec()));
            900
        })
    });
    let stats = links.iter().map(|link| bpf_prog_get_stats(&link.prog)).collect();
    let log = std::mem::take(&mut *log.lock().unwrap());
    (result, log, stats)
}

const ARGS: [u64; 2] = [10, u64::MAX];

/// Arguments and behind them a result.
fn saw(result: u64) -> Vec<u64> {
    vec![ARGS[0], ARGS[1], result]
}

const ONE: BpfProgKstats = BpfProgKstats { cnt: 1, nsecs: 110, misses: 0 };
const NONE: BpfProgKstats = BpfProgKstats { cnt: 0, nsecs: 0, misses: 0 };
const MISSED: BpfProgKstats = BpfProgKstats { cnt: 0, nsecs: 0, misses: 1 };

#[test]
fn fentry_fmod_ret_function_fexit_run_in_this_order_and_only_the_function_gives_the_result() {
    let (result, log, stats) = traced([("fmod_ret 1", 0), ("fmod_ret 2", 0)], &[]);
    assert_eq!(result, 900);
    let expected = [
        ("fentry 1", saw(0)),
        ("fentry 2", saw(0)),
        ("fmod_ret 1", saw(0)),
        ("fmod_ret 2", saw(0)),
        ("function", ARGS.to_vec()),
        ("fexit 1", saw(900)),
        ("fexit 2", saw(900)),
    ];
    assert_eq!(log, expected);
    assert_eq!(stats, [ONE; 6]);
}

#[test]
fn an_fmod_ret_that_is_not_0_skips_the_rest_and_the_function_and_the_fexits_see_it() {
    let (result, log, stats) = traced([("fmod_ret 1", 77), ("fmod_ret 2", 0)], &[]);
    assert_eq!(result, 77);
    let expected = [
        ("fentry 1", saw(0)),
        ("fentry 2", saw(0)),
        ("fmod_ret 1", saw(0)),
        ("fexit 1", saw(77)),
        ("fexit 2", saw(77)),
    ];
    assert_eq!(log, expected);
    assert_eq!(stats, [ONE, ONE, ONE, NONE, ONE, ONE]);
}

#[test]
fn the_last_fmod_ret_can_replace_the_function_too() {
    let (result, log, _) = traced([("fmod_ret 1", 0), ("fmod_ret 2", u32::MAX)], &[]);
    assert_eq!(result, u64::from(u32::MAX), "the low half of r0");
    assert!(log.iter().all(|(name, _)| *name != "function"));
    assert_eq!(log.last().unwrap(), &("fexit 2", saw(u64::from(u32::MAX))));
}

#[test]
fn a_refused_program_is_missed_and_the_others_and_the_function_run() {
    let (result, log, stats) =
        traced([("fmod_ret 1", 77), ("fmod_ret 2", 0)], &["fentry 1", "fmod_ret 1", "fexit 2"]);
    assert_eq!(result, 900, "a refused fmod_ret returned 0");
    let expected =
        [("fentry 2", saw(0)), ("fmod_ret 2", saw(0)), ("function", ARGS.to_vec()), ("fexit 1", saw(900))];
    assert_eq!(log, expected);
    assert_eq!(stats, [MISSED, ONE, MISSED, ONE, ONE, MISSED]);
}

#[test]
fn a_trampoline_without_programs_is_the_function() {
    let m = machine();
    let args: Vec<u64> = (0..MAX_BPF_FUNC_ARGS as u64).collect();
    let sum = on_cpu(&m, |cpu| BpfTrampoline::default().call(cpu, &args, |args| args.iter().sum()));
    assert_eq!(sum, 66);
}

#[test]
fn a_traced_function_has_at_most_12_arguments() {
    let m = machine();
    let call = |cpu: &Cpu<V>| BpfTrampoline::default().call(cpu, &[0; MAX_BPF_FUNC_ARGS + 1], |_| 0);
    assert!(m.boot(|smp| smp.run(0, call)).unwrap_err().message.contains("at most 12 arguments"));
}

// Starts that are not their own.

#[test]
fn before_6_9_on_arm64_a_skipped_run_was_counted_with_the_start_of_an_earlier_program() {
    let m = machine();
    let (first, skipped) = (prog(&m, |_, _| 7), prog(&m, |_, _| 7));
    hold(&skipped);
    on_cpu(&m, |cpu| {
        let mut kept = 0; // of one trampoline
        let mut invoke =
            |p| history::before_dc7d7447b56b::invoke_bpf_prog(cpu, p, 0, &mut BpfCtx::default(), &mut kept);
        assert_eq!(invoke(&first), Some(7));
        assert_eq!(invoke(&skipped), None);
    });
    assert_eq!(bpf_prog_get_stats(&first), ONE);
    // From the start of the first: its run, and the clock read that counts the bogus one.
    assert_eq!(bpf_prog_get_stats(&skipped), BpfProgKstats { cnt: 1, nsecs: 120, misses: 1 });
}

#[test]
fn a_skipped_run_reaches_exit_with_0_and_is_not_counted() {
    let m = machine();
    let (first, skipped) = (prog(&m, |_, _| 7), prog(&m, |_, _| 7));
    hold(&skipped);
    on_cpu(&m, |cpu| {
        assert_eq!(invoke_bpf_prog(cpu, &first, 0, &mut BpfCtx::default()), Some(7));
        assert_eq!(invoke_bpf_prog(cpu, &skipped, 0, &mut BpfCtx::default()), None);
    });
    assert_eq!((bpf_prog_get_stats(&first), bpf_prog_get_stats(&skipped)), (ONE, MISSED));
}
