//! `progstats seed`: the seed commit's effect, measured.
//!
//! One machine runs the counter program in the form before and the form after, in turn, in one run. Two set-ups: one
//! program, whose memory is always hot; and many, each of which finds its own cold, as programs in a kernel do that has
//! other work between two runs. That work is a walk over other memory before each pass; see also [`Bench`].

use std::cell::Cell;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bpf::runtime::bpf_prog_load;
use filter::{Abort, BpfCtx, BpfProg, Kconfig, ProgType, bpf_prog_get_stats, bpf_prog_run, history};
use indicatif::{ProgressBar, ProgressStyle};
use jump_label::StaticKey;
use percpu::{Cpu, Machine, PerCpuBytes, Smp, Topology};
use serde::Serialize;
use sync::host::{AtomicBool, Ordering::Relaxed};

use crate::cli::{Clock, SeedArgs, Usage};
use crate::machines::{OnMachine, with_machine};
use crate::sample::Summary;
use crate::source::Source;
use crate::{out, seed_virtual};

/// Runs of the hot set-up's one program in a pass.
const HOT_RUNS: usize = 4096;

/// What a pass of the cold set-up walks over first, in bytes: more than a core's own caches hold.
const OTHER_WORK: usize = 8 << 20;
/// What other per-CPU memory lies between two programs', in bytes: in a kernel it belongs to everybody.
const OTHERS_PERCPU: usize = 448;
/// What sys_enter hands on, in bytes: struct pt_regs *, long.
const ARGS: usize = 16;
/// A cache line, in bytes.
const LINE: usize = 64;

/// Entry point.
pub(crate) fn main(args: &SeedArgs) -> Result<()> {
    if args.clock == Clock::Virtual {
        return seed_virtual::main(args);
    }
    if !args.costs.is_empty() {
        bail!(Usage("--cost charges the steps of the virtual clock: add --clock virtual".into()));
    }
    let topology = Topology::smp(args.cpus as usize);
    let report = with_machine(args.clock, args.bits, topology, Experiment(args))?;
    if args.json {
        return out::print(&format!("{}\n", serde_json::to_string_pretty(&report)?));
    }
    out::print(&report.text())
}

/// What the experiment found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    commit: &'static str,
    clock: &'static str,
    bits: u32,
    cpus: u64,
    /// Host cores, if there are fewer than CPUs.
    shared_cores: Option<usize>,
    seconds: f64,
    /// Ended early by Ctrl-C.
    interrupted: bool,
    setups: Vec<SetUp>,
}

#[derive(Debug, Serialize)]
struct SetUp {
    name: &'static str,
    programs: usize,
    /// Runs counted, by form.
    runs_before: u64,
    runs_after: u64,
    /// What run_time_ns / run_cnt says.
    reported_before_ns: Summary,
    reported_after_ns: Summary,
    /// By how much `after` is below `before`, in percent.
    decrease_percent: f64,
    /// What a run really costs, from outside.
    real_off_ns: Summary,
    real_before_ns: Summary,
    real_after_ns: Summary,
}

struct Experiment<'a>(&'a SeedArgs);

impl OnMachine for Experiment<'_> {
    type Output = Report;

    fn on<K: Kconfig>(self, machine: Machine<K>) -> Result<Report> {
        let args = self.0;
        let source = Source::of(&args.source)?;
        let stop = stop_on_ctrl_c();
        let each = Duration::from_secs_f64(args.seconds / 2.0);
        let progress = progress(args.seconds);
        let mut setups = Vec::new();
        for (name, programs, runs) in [("cold", args.programs as usize, 1), ("hot", 1, HOT_RUNS)] {
            let bench = Bench::new(&machine, &source, programs, runs)?;
            // One run first: a program that is stopped has nothing to measure.
            let progs = &bench.progs;
            let abort = machine.boot(|smp| smp.run(0, |cpu| try_one(cpu, progs)))?;
            if let Some(abort) = abort {
                bail!("the program was stopped: {abort}");
            }
            setups.push(machine.boot(|smp| bench.measure(smp, name, each, stop, &progress)));
            if stop.load(Relaxed) {
                break;
            }
        }
        progress.finish_and_clear();
        Ok(Report {
            commit: "ce09cbdd9888",
            clock: args.clock.describe(),
            bits: args.bits.number(),
            cpus: args.cpus,
            shared_cores: machine.shares_cores(),
            seconds: args.seconds,
            interrupted: stop.load(Relaxed),
            setups,
        })
    }
}

/// A flag that Ctrl-C (or a termination) sets: what was measured so far is printed then.
fn stop_on_ctrl_c() -> &'static AtomicBool {
    static STOP: AtomicBool = AtomicBool::new(false);
    // Without a handler Ctrl-C just ends us.
    let _ = ctrlc::set_handler(|| STOP.store(true, Relaxed));
    &STOP
}

/// A progress bar on a terminal; nothing in a pipe.
fn progress(seconds: f64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:>5} {wide_bar} {eta:>3}");
    let bar = ProgressBar::new((seconds * 1000.0) as u64);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Programs, in the order in which a pass runs them, and how often it runs each.
///
/// The order is a shuffled one: in a row, the processor would fetch the next program's statistics ahead of time, which it
/// cannot do for the programs of a kernel, that run as events come.
struct Bench<K: Kconfig> {
    progs: Vec<BpfProg<K>>,
    runs: usize,
    /// The other work's memory; none if the programs are to be hot.
    other: Vec<u8>,
    /// Other per-CPU memory, between the programs'.
    _others: Vec<PerCpuBytes>,
    /// Runs and ns of all programs, as last read.
    last: Cell<(u64, u64)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Off,
    Before,
    After,
}

/// What one pass measured, as means over its runs, in ns.
struct Passed {
    runs: u64,
    reported: f64,
    real: f64,
}

impl<K: Kconfig> Bench<K> {
    fn new(machine: &Machine<K>, source: &Source, programs: usize, runs: usize) -> Result<Self> {
        let pcpu = machine.pcpu();
        let mut others = Vec::new();
        let mut load = |id| {
            others.push(pcpu.alloc_bytes(OTHERS_PERCPU)?);
            let program = source.load(pcpu, id)?;
            Ok(bpf_prog_load(pcpu, ProgType::RawTracepoint, Arc::new(program))?)
        };
        let mut progs = (0..programs as u32).map(&mut load).collect::<Result<Vec<_>>>()?;
        fastrand::Rng::with_seed(1).shuffle(&mut progs);
        let other = if runs == 1 { vec![1; OTHER_WORK] } else { Vec::new() };
        Ok(Self { progs, runs, other, _others: others, last: Cell::new((0, 0)) })
    }

    /// Measures for `time`, or until told to stop; one round at least.
    fn measure(
        &self,
        smp: &Smp<'_, '_, K>,
        name: &'static str,
        time: Duration,
        stop: &AtomicBool,
        progress: &ProgressBar,
    ) -> SetUp {
        progress.set_message(name);
        let (mut off, mut before, mut after) = (Vec::new(), Vec::new(), Vec::new());
        let start = Instant::now();
        let done = progress.position();
        // One round to warm up, then rounds that count, the order turned each time.
        self.round(smp, &[Pass::Before, Pass::After]);
        let mut turned = false;
        while off.is_empty() || (!stop.load(Relaxed) && start.elapsed() < time) {
            let order = if turned { [Pass::After, Pass::Before] } else { [Pass::Before, Pass::After] };
            for (pass, passed) in self.round(smp, &order) {
                match pass {
                    Pass::Off => off.push(passed),
                    Pass::Before => before.push(passed),
                    Pass::After => after.push(passed),
                }
            }
            turned = !turned;
            progress.set_position(done + start.elapsed().as_millis() as u64);
        }
        let runs = |of: &[Passed]| of.iter().map(|p| p.runs).sum();
        let reported = |of: &[Passed]| Summary::of(&of.iter().map(|p| p.reported).collect::<Vec<_>>());
        let real = |of: &[Passed]| Summary::of(&of.iter().map(|p| p.real).collect::<Vec<_>>());
        let (reported_before_ns, reported_after_ns) = (reported(&before), reported(&after));
        SetUp {
            name,
            programs: self.progs.len(),
            runs_before: runs(&before),
            runs_after: runs(&after),
            decrease_percent: match reported_before_ns.median {
                0.0 => 0.0,
                b => (1.0 - reported_after_ns.median / b) * 100.0,
            },
            reported_before_ns,
            reported_after_ns,
            real_off_ns: real(&off),
            real_before_ns: real(&before),
            real_after_ns: real(&after),
        }
    }

    /// Each of `passes`, and as many with statistics off.
    fn round(&self, smp: &Smp<'_, '_, K>, passes: &[Pass]) -> Vec<(Pass, Passed)> {
        let key = &K::globals(smp.machine().globals()).bpf_stats_enabled_key;
        let mut result = Vec::new();
        for &pass in passes {
            result.push((Pass::Off, self.pass(smp, Pass::Off)));
            // One user comes and goes: neither can fail.
            let _ = key.slow_inc();
            result.push((pass, self.pass(smp, pass)));
            let _ = key.slow_dec();
        }
        result
    }

    fn pass(&self, smp: &Smp<'_, '_, K>, pass: Pass) -> Passed {
        let progs = &self.progs;
        let (runs, other) = (self.runs, &self.other);
        let ns: Vec<f64> = smp.on_each_cpu(|cpu| {
            std::hint::black_box(other.iter().step_by(LINE).fold(0u8, |sum, v| sum.wrapping_add(*v)));
            let start = Instant::now();
            run_all(cpu, progs, runs, pass);
            start.elapsed().as_nanos() as f64
        });
        let real = ns.iter().sum::<f64>() / ns.len() as f64 / (progs.len() * runs) as f64;
        if pass == Pass::Off {
            return Passed { runs: 0, reported: 0.0, real };
        }
        let (from, to) = (self.last.get(), self.sum());
        self.last.set(to);
        let (cnt, nsecs) = (to.0 - from.0, to.1.wrapping_sub(from.1));
        Passed { runs: cnt, reported: if cnt == 0 { 0.0 } else { nsecs as f64 / cnt as f64 }, real }
    }

    /// Runs and ns of all programs.
    fn sum(&self) -> (u64, u64) {
        self.progs
            .iter()
            .map(bpf_prog_get_stats)
            .fold((0, 0), |sum, s| (sum.0 + s.cnt, sum.1.wrapping_add(s.nsecs)))
    }
}

/// Why a run of the first program is stopped, if it is.
fn try_one<K: Kconfig>(cpu: &Cpu<K>, progs: &[BpfProg<K>]) -> Option<Abort> {
    let mut args = [0u8; ARGS];
    let mut ctx = BpfCtx::new(&mut args);
    bpf_prog_run(cpu, progs.first()?, &mut ctx);
    ctx.abort
}

/// Each program, `runs` times.
fn run_all<K: Kconfig>(cpu: &Cpu<K>, progs: &[BpfProg<K>], runs: usize, pass: Pass) {
    let mut args = [0u8; ARGS];
    let mut ctx = BpfCtx::new(&mut args);
    for prog in progs {
        for _ in 0..runs {
            match pass {
                Pass::Before => history::before_ce09cbdd9888::bpf_prog_run(cpu, prog, &mut ctx),
                Pass::Off | Pass::After => bpf_prog_run(cpu, prog, &mut ctx),
            };
        }
    }
}

impl Report {
    fn text(&self) -> String {
        let mut t = String::new();
        let _ = writeln!(
            t,
            "{}",
            out::bold("seed: take the duration before the statistics are updated (ce09cbdd9888)")
        );
        let shared = self.shared_cores.map(|n| format!(" sharing {n} host core(s)")).unwrap_or_default();
        let early = if self.interrupted { ", interrupted" } else { "" };
        let _ = writeln!(
            t,
            "{} CPU(s){shared}, {}, {}-bit statistics, {} s{early}\n",
            self.cpus, self.clock, self.bits, self.seconds
        );
        for setup in &self.setups {
            setup.write(&mut t);
        }
        t.push_str(&out::fold(&self.sentence(), 78));
        t
    }

    /// What the numbers say, in words.
    fn sentence(&self) -> String {
        let find = |name| self.setups.iter().find(|s| s.name == name);
        let mut text = String::new();
        if let Some(cold) = find("cold") {
            let why = "before, the clock was read a second time inside the update, after the first touch of the \
                       program's statistics; cold, that touch is a cache miss, and it was reported as the program's time.";
            text = match cold.decrease_percent {
                d if d >= 3.0 => format!(
                    "With {} programs the change takes {d:.0} % off the reported time: {why} ",
                    cold.programs
                ),
                d => format!(
                    "With {} programs the change shows {d:.1} % here. What it removes: {why} ",
                    cold.programs
                ),
            };
            text += &cold.overhead();
        }
        if let Some(hot) = find("hot") {
            text += &format!(
                "One hot program shows {:.1} %, next to nothing: its line is in the nearest cache, and what is left of the \
                 update there hides behind the clock reads.",
                hot.decrease_percent
            );
        }
        text
    }
}

impl SetUp {
    fn write(&self, t: &mut String) {
        let title = match self.programs {
            1 => "1 program, hot".into(),
            n => format!("{n} programs, each run finds its own cold"),
        };
        let _ = writeln!(t, "{}", out::bold(&title));
        let max =
            self.reported_before_ns.median.max(self.real_before_ns.median).max(self.real_after_ns.median);
        let mut row = |what: &str, s: &Summary, note: &str| {
            let bar = out::bar(s.median, max, 24);
            let row = format!("  {what:<22}{:>8.1} ns ±{:>5.1}  {bar:<24} {note}", s.median, s.spread());
            let _ = writeln!(t, "{}", row.trim_end());
        };
        row("reported, before", &self.reported_before_ns, "");
        row("reported, after", &self.reported_after_ns, &format!("{:+.1} %", -self.decrease_percent));
        row("real, statistics off", &self.real_off_ns, "");
        row("real, on, before", &self.real_before_ns, "");
        row("real, on, after", &self.real_after_ns, "");
        let _ = writeln!(t, "  {:<22}{:>8} before, {} after\n", "runs", self.runs_before, self.runs_after);
    }

    /// How much of what statistics cost is in the reported time.
    fn overhead(&self) -> String {
        let (off, on, reported) =
            (self.real_off_ns.median, self.real_after_ns.median, self.reported_after_ns.median);
        let cost = on - off;
        if cost <= 0.0 {
            return String::new();
        }
        let in_it = (reported - off).clamp(0.0, cost);
        format!(
            "Switching statistics on really costs {cost:.0} ns a run (from {off:.0} to {on:.0}); about {in_it:.0} of \
             them are in the reported time, the other {:.0} nobody sees. ",
            cost - in_it
        )
    }
}
