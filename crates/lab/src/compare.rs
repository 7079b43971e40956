//! `progstats compare`: the same program in the simulation and in the running kernel, side by side.
//!
//! Rounds of passes, the order turned each time: statistics off and on in each world, and in the simulation two clock
//! reads around the program with statistics off, which is the least that timing costs there. Costs are CPU time of the
//! thread: what others on the machine take is not in them.

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bpf::runtime::bpf_prog_load;
use filter::{BpfCtx, BpfProg, Kconfig, ProgType, bpf_prog_get_stats, bpf_prog_run, sched_clock};
use host::caller::cpu_time;
use host::facts::quiet;
use host::{CannotAsk, Host, StatsFd};
use jump_label::StaticKey;
use percpu::{Cpu, Machine, Smp, Topology};
use serde::Serialize;

use crate::cli::{Clock, CompareArgs, Usage};
use crate::machines::{OnMachine, with_machine};
use crate::out;
use crate::sample::Summary;
use crate::source::Source;
use crate::twin::Twin;

/// Runs in a pass.
const RUNS: u32 = 20_000;
/// What a socket filter's packet has, in bytes.
const PACKET: usize = 64;

/// Entry point.
pub(crate) fn main(args: &CompareArgs) -> Result<()> {
    if args.clock == Clock::Virtual {
        bail!(Usage(
            "compare measures real time; the virtual clock is for seed: progstats seed --clock virtual"
                .into()
        ));
    }
    let report = with_machine(args.clock, args.bits, Topology::smp(1), Compare(args))?;
    if args.json {
        out::print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?;
    } else {
        out::print(&report.text())?;
    }
    for program in &report.programs {
        if let Some(kernel) = &program.kernel {
            let (ours, theirs) = (program.simulation.runs_counted, kernel.runs_counted);
            ensure!(
                ours == theirs,
                "{}: {ours} runs counted in the simulation, {theirs} in this kernel",
                program.name
            );
        }
    }
    Ok(())
}

/// What was found.
#[derive(Debug, Serialize)]
struct Report {
    kernel: String,
    clock: &'static str,
    bits: u32,
    seconds: f64,
    rounds: u32,
    /// Why this kernel could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    cannot_ask: Option<String>,
    programs: Vec<Compared>,
}

#[derive(Debug, Serialize)]
struct Compared {
    name: String,
    simulation: Side,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel: Option<Side>,
    /// Two clock reads of the simulation around the program, less the program.
    simulation_clocks_ns: Summary,
    /// The simulation's overhead less these.
    simulation_above_clocks_ns: Summary,
}

/// One world's numbers, in ns a run.
#[derive(Debug, Serialize)]
struct Side {
    runs_counted: u64,
    /// `run_time_ns / run_cnt`
    reported_ns: Summary,
    off_ns: Summary,
    on_ns: Summary,
    /// on - off, by round.
    overhead_ns: Summary,
    /// The part of the overhead that is in the reported time, in percent: what is reported, less what the program itself
    /// costs beyond an empty one, of the overhead.
    overhead_reported_percent: f64,
    /// Switching on and off again.
    switch_us: Summary,
}

struct Compare<'a>(&'a CompareArgs);

impl OnMachine for Compare<'_> {
    type Output = Report;

    fn on<K: Kconfig>(self, machine: Machine<K>) -> Result<Report> {
        let args = self.0;
        let mut sources = vec![Source::empty()];
        sources.push(if args.source.is_builtin() { Source::counter() } else { Source::of(&args.source)? });
        let programs =
            sources.iter().map(|s| Ok(Arc::new(s.load(machine.pcpu(), 1)?))).collect::<Result<Vec<_>>>()?;
        let load = |p: &Arc<bpf::Program>| bpf_prog_load(machine.pcpu(), ProgType::SocketFilter, p.clone());
        let progs = programs.iter().map(load).collect::<Result<Vec<BpfProg<K>>, _>>()?;
        // The program first: one that is stopped has nothing to compare.
        for prog in &progs {
            let abort = machine.boot(|smp| smp.run(0, |cpu| pass(cpu, prog, Pass::Off, 1).1))?;
            if let Some(abort) = abort {
                bail!("the program was stopped: {abort}");
            }
        }
        let (lock, cannot_ask) = match quiet() {
            Ok(lock) => (Some(lock), None),
            Err(CannotAsk(why)) => (None, Some(why)),
        };
        let mut twins = Vec::new();
        if lock.is_some() {
            for program in &programs {
                let twin = Twin::load(program, host::ProgType::SocketFilter, "progstats_cmp");
                twins.push(twin.with_context(|| format!("{} in this kernel", program.name()))?);
            }
        }
        let time = Duration::from_secs_f64(args.seconds);
        let mut measured: Vec<Measured> = progs.iter().map(|_| Measured::default()).collect();
        let start = Instant::now();
        let mut rounds = 0;
        machine.boot(|smp| -> Result<()> {
            while rounds < 2 || start.elapsed() < time {
                for (n, m) in measured.iter_mut().enumerate() {
                    m.round(smp, &progs[n], twins.get(n), rounds % 2 == 1)?;
                }
                rounds += 1;
            }
            Ok(())
        })?;
        let empty = measured.first().map(|m| (m.sim.off(), m.kernel.off())).unwrap_or_default();
        let compared = |(source, m): (&Source, &Measured)| Compared {
            name: source.name.clone(),
            simulation: m.sim.side(empty.0),
            kernel: lock.is_some().then(|| m.kernel.side(empty.1)),
            simulation_clocks_ns: Summary::of(&m.clocks),
            simulation_above_clocks_ns: Summary::of(&differences(&m.sim.overheads(), &m.clocks)),
        };
        Ok(Report {
            kernel: Host::uname(),
            clock: args.clock.describe(),
            bits: args.bits.number(),
            seconds: args.seconds,
            rounds,
            cannot_ask,
            programs: sources.iter().zip(&measured).map(compared).collect(),
        })
    }
}

/// What one world did, a value a round.
#[derive(Default)]
struct World {
    counted: u64,
    reported: Vec<f64>,
    off: Vec<f64>,
    on: Vec<f64>,
    switch_us: Vec<f64>,
}

impl World {
    fn off(&self) -> f64 {
        Summary::of(&self.off).median
    }

    fn overheads(&self) -> Vec<f64> {
        differences(&self.on, &self.off)
    }

    /// `empty_off`: what an empty program costs here, statistics off.
    fn side(&self, empty_off: f64) -> Side {
        let [reported_ns, off_ns, on_ns] = [&self.reported, &self.off, &self.on].map(|v| Summary::of(v));
        let overhead_ns = Summary::of(&self.overheads());
        let body = off_ns.median - empty_off;
        let overhead_reported_percent = match overhead_ns.median {
            overhead if overhead > 0.0 => (reported_ns.median - body) / overhead * 100.0,
            _ => 0.0,
        };
        let switch_us = Summary::of(&self.switch_us);
        Side {
            runs_counted: self.counted,
            reported_ns,
            off_ns,
            on_ns,
            overhead_ns,
            overhead_reported_percent,
            switch_us,
        }
    }

    /// A pass with statistics on: what was counted and reported, and what it cost.
    fn on(&mut self, ns: f64, (cnt, nsecs): (u64, u64), switch: Duration) {
        self.counted += cnt;
        self.reported.push(if cnt == 0 { 0.0 } else { nsecs as f64 / cnt as f64 });
        self.on.push(ns);
        self.switch_us.push(switch.as_nanos() as f64 / 1000.0);
    }
}

fn differences(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// A program's numbers.
#[derive(Default)]
struct Measured {
    sim: World,
    kernel: World,
    /// Two clock reads around the program, less the program.
    clocks: Vec<f64>,
}

/// The simulation's passes.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Off,
    Clocks,
    On,
}

impl Measured {
    fn round<K: Kconfig>(
        &mut self,
        smp: &Smp<'_, '_, K>,
        prog: &BpfProg<K>,
        twin: Option<&Twin>,
        turned: bool,
    ) -> Result<()> {
        if turned {
            self.kernel_round(twin, turned)?;
            self.sim_round(smp, prog, turned)
        } else {
            self.sim_round(smp, prog, turned)?;
            self.kernel_round(twin, turned)
        }
    }

    fn sim_round<K: Kconfig>(&mut self, smp: &Smp<'_, '_, K>, prog: &BpfProg<K>, turned: bool) -> Result<()> {
        let mut passes = [Pass::Off, Pass::Clocks, Pass::On];
        if turned {
            passes.reverse();
        }
        let mut clocks = 0.0;
        for p in passes {
            let ns = || smp.run(0, |cpu| pass(cpu, prog, p, RUNS).0);
            match p {
                Pass::Off => self.sim.off.push(ns()?),
                Pass::Clocks => clocks = ns()?,
                Pass::On => {
                    let key = &K::globals(smp.machine().globals()).bpf_stats_enabled_key;
                    let before = bpf_prog_get_stats(prog);
                    let switch = Instant::now();
                    key.slow_inc()?;
                    let mut switched = switch.elapsed();
                    let ns = ns()?;
                    let switch = Instant::now();
                    key.slow_dec()?;
                    switched += switch.elapsed();
                    let after = bpf_prog_get_stats(prog);
                    self.sim.on(
                        ns,
                        (after.cnt - before.cnt, after.nsecs.wrapping_sub(before.nsecs)),
                        switched,
                    );
                }
            }
        }
        let off = self.sim.off.last().copied().unwrap_or_default();
        self.clocks.push(clocks - off);
        Ok(())
    }

    fn kernel_round(&mut self, twin: Option<&Twin>, turned: bool) -> Result<()> {
        let Some(Twin { prog, .. }) = twin else { return Ok(()) };
        let ns = || -> Result<f64> {
            let start = cpu_time();
            prog.test_run(RUNS)?;
            Ok((cpu_time() - start).as_nanos() as f64 / f64::from(RUNS))
        };
        for on in if turned { [true, false] } else { [false, true] } {
            let before = host::info::stats(prog)?;
            if !on {
                self.kernel.off.push(ns()?);
                let counted = (host::info::stats(prog)? - before).run_cnt;
                ensure!(counted == 0, "somebody else has switched statistics on in this kernel: try again");
                continue;
            }
            let switch = Instant::now();
            let held = StatsFd::enable()?;
            let mut switched = switch.elapsed();
            let ns = ns()?;
            let switch = Instant::now();
            drop(held);
            switched += switch.elapsed();
            let added = host::info::stats(prog)? - before;
            self.kernel.on(ns, (added.run_cnt, added.run_time_ns), switched);
        }
        Ok(())
    }
}

/// Runs `prog`; the mean cost of a run in ns, and why it was stopped, if it was.
fn pass<K: Kconfig>(cpu: &Cpu<K>, prog: &BpfProg<K>, pass: Pass, runs: u32) -> (f64, Option<filter::Abort>) {
    let mut packet = [0u8; PACKET];
    let mut ctx = BpfCtx::new(&mut packet);
    let start = cpu_time();
    if pass == Pass::Clocks {
        for _ in 0..runs {
            let start = sched_clock(cpu);
            black_box(prog.bpf_func.call(cpu, &mut ctx));
            black_box(sched_clock(cpu).wrapping_sub(start));
        }
    } else {
        for _ in 0..runs {
            black_box(bpf_prog_run(cpu, prog, &mut ctx));
        }
    }
    ((cpu_time() - start).as_nanos() as f64 / f64::from(runs), ctx.abort)
}

impl Report {
    fn text(&self) -> String {
        let mut t = String::new();
        let title = "compare: the same program in the simulation and in this kernel";
        let _ = writeln!(t, "{}", out::bold(title));
        let Self { kernel, clock, bits, seconds, rounds, .. } = self;
        let _ = writeln!(t, "this kernel: Linux {kernel}, test runs of a socket filter");
        let _ = writeln!(t, "simulation: {clock}, {bits}-bit statistics");
        let _ = writeln!(t, "{seconds} s, {rounds} rounds of {RUNS} runs\n");
        for program in &self.programs {
            program.write(&mut t);
        }
        if let Some(why) = &self.cannot_ask {
            t += &out::fold(&format!("This kernel cannot be asked, so its column is empty: {why}."), 78);
        }
        if let Some(empty) = self.programs.first() {
            t += &out::fold(&empty.sentence(), 78);
        }
        t
    }
}

impl Compared {
    fn write(&self, t: &mut String) {
        let _ = writeln!(t, "{:<29}{:>18}{:>22}", out::bold(&self.name), "simulation", "this kernel");
        let kernel = self.kernel.as_ref();
        let mut row = |what: &str, ours: String, theirs: Option<String>| {
            let _ = writeln!(
                t,
                "{}",
                format!("  {what:<24}{ours:>21}{:>22}", theirs.unwrap_or("-".into())).trim_end()
            );
        };
        let mut ns = |what: &str, of: fn(&Side) -> Summary| {
            row(what, spread(&of(&self.simulation), "ns"), kernel.map(|k| spread(&of(k), "ns")));
        };
        ns("reported", |s| s.reported_ns);
        ns("cost, statistics off", |s| s.off_ns);
        ns("cost, statistics on", |s| s.on_ns);
        ns("overhead (on - off)", |s| s.overhead_ns);
        let part = |s: &Side| format!("{:.0} %   ", s.overhead_reported_percent);
        row("  of it reported", part(&self.simulation), kernel.map(part));
        row("  two clock reads", spread(&self.simulation_clocks_ns, "ns"), Some(String::new()));
        row("  above them", spread(&self.simulation_above_clocks_ns, "ns"), Some(String::new()));
        let us = |s: &Side| spread(&s.switch_us, "us");
        row("switching on and off", us(&self.simulation), kernel.map(us));
        let runs = |s: &Side| format!("{}   ", s.runs_counted);
        row("runs counted", runs(&self.simulation), kernel.map(runs));
        t.push('\n');
    }

    /// What the numbers of the empty program say.
    fn sentence(&self) -> String {
        let of = |s: &Side| {
            let (cost, reported) = (s.overhead_ns.median, s.reported_ns.median);
            format!(
                "{cost:.0} ns a run, of which it reports {reported:.0} ({:.0} %)",
                s.overhead_reported_percent
            )
        };
        let mut text = match &self.kernel {
            Some(kernel) => format!(
                "Statistics cost this kernel {}; they cost the simulation {}.",
                of(kernel),
                of(&self.simulation)
            ),
            None => format!("Statistics cost the simulation {}.", of(&self.simulation)),
        };
        let (above, clocks) = (self.simulation_above_clocks_ns.median, self.simulation_clocks_ns.median);
        let _ = write!(
            text,
            " Two clock reads alone cost the simulation {clocks:.1} ns: all else that its statistics do costs {above:.1} ns \
             more, the rest hides behind them."
        );
        text
    }
}

/// A median and its spread.
fn spread(s: &Summary, unit: &str) -> String {
    format!("{:.1} {unit} ±{:>5.1}", s.median, s.spread())
}
