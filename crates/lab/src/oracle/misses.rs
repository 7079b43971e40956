//! Runs that the guard refuses. Kernel: `__bpf_trace_run` (kernel/trace/bpf_trace.c), `bpf_prog_inc_misses_counter`.

use std::sync::{Arc, OnceLock, Weak};

use anyhow::{Result, anyhow};
use filter::{BpfCtx, BpfProg, ProgType, bpf_prog_get_stats};
use host::Release;
use host::facts::misses::{Recursion, recursion};
use jump_label::StaticKey;
use percpu::Cpu;
use sync::host::{AtomicU64, Ordering::Relaxed};
use trampoline::invoke_bpf_prog;

use super::Fact;
use super::counting::of_sim;
use super::sim::{K, Sim};

const FAMILY: &str = "a raw tracepoint's program meets itself, 100 times";
/// `05b24ff9b2cf`
const SINCE: Release = Release(6, 1);
const RUNS: u32 = 100;

pub(super) fn facts() -> Vec<Fact> {
    let facts = [(false, "statistics off"), (true, "statistics on")];
    let fact = |(on, name)| {
        Fact::new(
            FAMILY,
            name,
            SINCE,
            move |sim| Ok(text(on, sim_recursion(sim, on)?)),
            move || Ok(text(on, recursion(on, RUNS)?)),
        )
    };
    facts.into_iter().map(fact).collect()
}

/// Test runs take no guard, so each enters twice, itself and by its first fault; that run's fault is refused.
///
/// Of the host's run count only its least is known: other threads' faults run the program too.
fn text(on: bool, seen: Recursion) -> String {
    let counted = match seen.added.run_cnt {
        n if on && n >= seen.entered => "all counted".into(),
        n => format!("{n} counted"),
    };
    format!("{} runs, {counted}, {} misses", seen.entered, seen.added.recursion_misses)
}

/// The body of a program that is attached to what it does.
#[derive(Default)]
struct Body {
    entered: AtomicU64,
    program: OnceLock<Weak<BpfProg<K>>>,
}

fn sim_recursion(sim: &Sim, on: bool) -> Result<Recursion> {
    let body = Arc::new(Body::default());
    let program = sim.program(ProgType::RawTracepoint, {
        let body = body.clone();
        move |cpu: &Cpu<K>, _: &mut BpfCtx<'_>| {
            body.entered.fetch_add(1, Relaxed);
            // The fault: the tracepoint, and the program that is attached to it.
            if let Some(program) = body.program.get().and_then(Weak::upgrade) {
                invoke_bpf_prog(cpu, &program, 0, &mut BpfCtx::default());
            }
            0
        }
    })?;
    body.program.set(Arc::downgrade(&program)).map_err(|_| anyhow!("attached twice"))?;
    if on {
        sim.key().slow_inc()?;
    }
    for _ in 0..RUNS {
        sim.test_run(host::ProgType::RawTracepoint, &program, 0)??;
    }
    Ok(Recursion { entered: body.entered.load(Relaxed), added: of_sim(bpf_prog_get_stats(&program)) })
}
