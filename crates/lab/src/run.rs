//! `progstats run`: programs on the machine, and their counters as bpftool prints them.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bpf::Program;
use bpf::runtime::bpf_prog_load;
use filter::{BpfCtx, BpfProg, Kconfig, ProgType, bpf_prog_get_stats, bpf_prog_run};
use jump_label::StaticKey;
use percpu::{Machine, Topology};
use serde::Serialize;

use crate::cli::{Clock, RunArgs, Usage};
use crate::machines::{OnMachine, with_machine};
use crate::out;
use crate::source::Source;

/// Entry point.
pub(crate) fn main(args: &RunArgs) -> Result<()> {
    if args.clock == Clock::Virtual {
        bail!(Usage(
            "run measures real time; the virtual clock is for seed: progstats seed --clock virtual".into()
        ));
    }
    let shown = with_machine(args.clock, args.bits, Topology::smp(args.cpus as usize), Workload(args))?;
    if args.json {
        return out::print(&format!("{}\n", serde_json::to_string(&shown)?));
    }
    out::print(&text(&shown, args.stats_off))
}

/// A program as `bpftool prog show` prints it. As there, counters that are 0 are left out of the JSON.
#[derive(Debug, Serialize)]
struct ProgShow {
    id: u32,
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    gpl_compatible: bool,
    #[serde(skip_serializing_if = "is_zero")]
    run_time_ns: u64,
    #[serde(skip_serializing_if = "is_zero")]
    run_cnt: u64,
    #[serde(skip_serializing_if = "is_zero")]
    recursion_misses: u64,
    bytes_xlated: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    map_ids: Vec<u32>,
}

fn is_zero(v: &u64) -> bool {
    *v == 0
}

struct Workload<'a>(&'a RunArgs);

impl OnMachine for Workload<'_> {
    type Output = Vec<ProgShow>;

    fn on<K: Kconfig>(self, machine: Machine<K>) -> Result<Vec<ProgShow>> {
        let pcpu = machine.pcpu();
        let sources = match self.0.source.is_builtin() {
            true => vec![Source::counter(), Source::empty()],
            false => vec![Source::of(&self.0.source)?],
        };
        let load = |source: &Source| source.load(pcpu, 1).map(Arc::new);
        let programs: Vec<Arc<Program>> = sources.iter().map(load).collect::<Result<_>>()?;
        let load = |p: &Arc<Program>| bpf_prog_load(pcpu, ProgType::RawTracepoint, p.clone());
        let progs: Vec<BpfProg<K>> = programs.iter().map(load).collect::<Result<_, _>>()?;
        if !self.0.stats_off {
            K::globals(machine.globals()).bpf_stats_enabled_key.slow_inc()?;
        }
        let time = Duration::from_secs_f64(self.0.seconds);
        let aborts = machine.boot(|smp| {
            smp.on_each_cpu(|cpu| {
                let mut args = [0u8; 16];
                let mut ctx = BpfCtx::new(&mut args);
                let start = Instant::now();
                while start.elapsed() < time && ctx.abort.is_none() {
                    // One system call in a thousand looks at the watch.
                    for _ in 0..1000 {
                        progs.iter().for_each(|prog| _ = bpf_prog_run(cpu, prog, &mut ctx));
                    }
                }
                ctx.abort
            })
        });
        if let Some(abort) = aborts.into_iter().flatten().next() {
            bail!("the program was stopped: {abort}");
        }
        let show = |id: usize| {
            let (source, program, prog) = (&sources[id], &programs[id], &progs[id]);
            let stats = bpf_prog_get_stats(prog);
            ProgShow {
                id: id as u32 + 1,
                kind: source.kind,
                name: program.name().into(),
                gpl_compatible: true,
                run_time_ns: stats.nsecs,
                run_cnt: stats.cnt,
                recursion_misses: stats.misses,
                bytes_xlated: program.insns().len() * 8,
                map_ids: program.maps().iter().map(|m| m.id()).collect(),
            }
        };
        Ok((0..programs.len()).map(show).collect())
    }
}

fn text(shown: &[ProgShow], stats_off: bool) -> String {
    let mut t = String::new();
    for p in shown {
        let _ = write!(t, "{}: {}  name {}  gpl", p.id, p.kind, p.name);
        for (name, v) in
            [("run_time_ns", p.run_time_ns), ("run_cnt", p.run_cnt), ("recursion_misses", p.recursion_misses)]
        {
            if v != 0 {
                let _ = write!(t, " {name} {v}");
            }
        }
        let _ = write!(t, "\n\txlated {}B", p.bytes_xlated);
        if !p.map_ids.is_empty() {
            let ids: Vec<_> = p.map_ids.iter().map(u32::to_string).collect();
            let _ = write!(t, "  map_ids {}", ids.join(","));
        }
        if p.run_cnt > 0 {
            let _ = write!(t, "  avg {:.1} ns", p.run_time_ns as f64 / p.run_cnt as f64);
        }
        t.push('\n');
    }
    if stats_off {
        t.push_str("statistics were off: nothing was counted, however often the programs ran\n");
    }
    t
}
