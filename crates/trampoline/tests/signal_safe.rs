//! The hot path allocates nothing and asks nothing of the host, so that signal handlers may be on it.
//!
//! A program is run and entered on a CPU, plain and masked, and by interrupts and NMIs on top of that, at whatever
//! instruction
//! they come. What this does on the CPU's thread is watched: by an allocator that counts for each thread, and, in a
//! process of
//! its own, by a seccomp filter that ends the process at the first system call. (To return from a signal handler is one.)
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use filter::clock::OrderedTsc;
use filter::{BpfCtx, BpfProg, Config, ProgType, bpf_prog_get_stats, bpf_prog_run};
use jump_label::{AtomicKey, StaticKey};
use percpu::{Cpu, Irq, Machine, NoSteps, Topology, local_irq_restore, local_irq_save};
use stats::{Bits32, Bits32Rt, Bits64, Form};
use sync::host::{AtomicBool, AtomicU64, Ordering::Relaxed};
use trampoline::invoke_bpf_prog;

/// Counts what the calling thread allocates and frees.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: the system's allocator, and a count.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's.
        unsafe { System.dealloc(p, layout) }
    }
}

type K<F> = Config<F, OrderedTsc>;

/// What the path does between two runs, on its CPU: raise what is served on top of them, or leave that to others.
#[derive(Clone, Copy, PartialEq)]
enum Raise {
    Here,
    Elsewhere,
}

/// What the program does, apart from answering: nothing, or what it may not.
type Deed = fn();

/// How many interrupts and NMIs a watched path meets at least.
const TIMES: u64 = 500;

/// The hot path on CPU 0 while interrupts and NMIs come, until enough were served in the middle of it. `watch` gets it, on
/// the CPU's thread.
fn hot<F: Form>(raise: Raise, deed: Deed, watch: impl FnOnce(&dyn Fn()) + Send) {
    let m: Machine<K<F>> =
        filter::machine::<F, _, AtomicKey, _>(Topology::smp(1), NoSteps, OrderedTsc::new().unwrap()).unwrap();
    m.globals().bpf_stats_enabled_key.slow_inc().unwrap();
    let body = move |_: &Cpu<K<F>>, _: &mut BpfCtx<'_>| {
        deed();
        7
    };
    let prog = BpfProg::alloc(m.pcpu(), ProgType::Tracing, body).unwrap();
    let (rounds, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let served = || (m.interrupts(0).0, m.nmis(0));
    m.boot(|smp| {
        let on_top = |cpu: &Cpu<K<F>>| {
            _ = invoke_bpf_prog(cpu, &prog, 0, &mut BpfCtx::default());
        };
        smp.request_irq(Irq(0), on_top).unwrap();
        smp.request_nmi(on_top).unwrap();
        // What this CPU raises itself it serves at once, before the run; what others raise comes in the middle, by chance.
        let met = || raise == Raise::Here || bpf_prog_get_stats(&prog).misses > 0;
        let path = |cpu: &Cpu<K<F>>| {
            let from = served();
            while served().0 - from.0 < TIMES || served().1 - from.1 < TIMES || !met() {
                if raise == Raise::Here {
                    m.raise(0, Irq(0));
                    m.raise_nmi(0);
                }
                on_top(cpu);
                let flags = local_irq_save(cpu);
                bpf_prog_run(cpu, &prog, &mut BpfCtx::default());
                local_irq_restore(cpu, flags);
                rounds.fetch_add(1, Relaxed);
            }
        };
        // As fast as the CPU gets on: raised faster than they are served, they would come before one and the same
        // instruction.
        let raiser = smp.spawn_outside("raiser", || {
            while !stop.load(Relaxed) {
                let from = rounds.load(Relaxed);
                m.raise(0, Irq(0));
                m.raise_nmi(0);
                while !stop.load(Relaxed) && rounds.load(Relaxed) == from {
                    std::thread::yield_now();
                }
            }
        });
        smp.run(0, |cpu| {
            path(cpu); // once, so that all pages and symbols are there
            watch(&|| path(cpu));
        })
        .unwrap();
        stop.store(true, Relaxed);
        raiser.join().unwrap();
    });
}

/// How often the hot path calls the allocator.
fn allocations<F: Form>(raise: Raise, deed: Deed) -> u64 {
    let mut made = 0;
    hot::<F>(raise, deed, |path| {
        let from = CALLS.get();
        path();
        made = CALLS.get() - from;
    });
    made
}

#[test]
fn the_hot_path_allocates_nothing() {
    for raise in [Raise::Here, Raise::Elsewhere] {
        assert_eq!(allocations::<Bits64>(raise, || ()), 0);
        assert_eq!(allocations::<Bits32>(raise, || ()), 0);
        assert_eq!(allocations::<Bits32Rt>(raise, || ()), 0);
    }
    assert!(
        allocations::<Bits64>(Raise::Here, || drop(std::hint::black_box(Box::new(1)))) > 0,
        "it would be seen"
    );
}

/// Says to a process of this test which form it is to run and what the program does there.
const CHILD: &str = "SIGNAL_SAFE_CHILD";

/// The hot path under the filter, in a process of its own, which ends where it is over.
fn child<F: Form>(raise: Raise, deed: Deed) -> ! {
    // To raise one is to signal a thread of this process, and no more.
    let also: &[i64] = if raise == Raise::Here { &[libc::SYS_getpid, libc::SYS_tgkill] } else { &[] };
    hot::<F>(raise, deed, |path| {
        forbid_syscalls(also);
        path();
        // SAFETY: ends the process here and now.
        unsafe { libc::_exit(0) };
    });
    unreachable!("the process has ended")
}

/// From here on the calling thread may return from signals, end the process, and make those of `also`; else it is ended.
fn forbid_syscalls(also: &[i64]) {
    let op = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    // The number of the call is the first word of what the filter sees.
    let mut filter = vec![op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for &number in also.iter().chain(&[libc::SYS_rt_sigreturn, libc::SYS_exit_group]) {
        filter.push(op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number as u32, 0, 1));
        filter.push(op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0));
    }
    filter.push(op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS, 0, 0));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: a valid program, which lives until the call is over.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
    // What is freed here is freed by the allocator, which may ask the host.
    std::mem::forget(filter);
}

fn ask_the_host() {
    // SAFETY: takes nothing and cannot fail.
    _ = unsafe { libc::getppid() };
}

fn run_child(case: &str) -> ExitStatus {
    let name = "the_hot_path_makes_no_system_call";
    let exe = std::env::current_exe().unwrap();
    let mut command = Command::new(exe);
    command.args(["--exact", name, "--nocapture"]).env(CHILD, case);
    let output = command.output().unwrap();
    println!("{case}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    output.status
}

#[test]
fn the_hot_path_makes_no_system_call() {
    match std::env::var(CHILD).as_deref() {
        Ok("64") => child::<Bits64>(Raise::Elsewhere, || ()),
        Ok("32") => child::<Bits32>(Raise::Elsewhere, || ()),
        Ok("RT") => child::<Bits32Rt>(Raise::Elsewhere, || ()),
        Ok("raises") => child::<Bits32>(Raise::Here, || ()),
        Ok("asks") => child::<Bits64>(Raise::Elsewhere, ask_the_host),
        Ok(case) => panic!("no such case: {case}"),
        Err(_) => {}
    }
    for case in ["64", "32", "RT", "raises"] {
        assert_eq!(run_child(case).code(), Some(0), "{case}");
    }
    assert_eq!(run_child("asks").signal(), Some(libc::SIGSYS), "it would be seen");
}
