//! The command line.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Most simulated CPUs.
pub(crate) const MAX_CPUS: u64 = 64;
/// Most programs.
pub(crate) const MAX_PROGRAMS: u64 = 16_384;
/// Most generated programs.
pub(crate) const MAX_GENERATED: u64 = 10_000_000;
/// Longest measurement, in seconds.
pub(crate) const MAX_SECONDS: f64 = 3600.0;

/// The Linux kernel's BPF run-time statistics path: run it and see what run_time_ns / run_cnt contains.
#[derive(Parser)]
#[command(name = "progstats", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// The seed experiment: the duration taken before and after the statistics are updated (ce09cbdd9888)
    Seed(SeedArgs),
    /// Run programs and print their counters as bpftool does: the built-in ones, or one of yours
    Run(RunArgs),
    /// Run the same program in the simulation and in the running kernel, and see what statistics cost and report
    Compare(CompareArgs),
    /// Ask the same questions of the simulation and of the running kernel, and see where they differ
    Oracle(OracleArgs),
    /// See each bug of this path happen, and see it gone: list the scenarios, run them
    Scenario(crate::scenario::ScenarioArgs),
    /// Run one program once, and print r0: the program as hex on stdin, 8 bytes an instruction
    Exec(ExecArgs),
    /// Print a program's instructions, as bpftool does
    Dump(SourceArgs),
}

/// Where a program comes from.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Program")]
pub(crate) struct SourceArgs {
    /// An object that clang made (clang -target bpf -O2 -g -c)
    #[arg(long, value_name = "FILE", group = "source")]
    pub(crate) object: Option<PathBuf>,
    /// Which program of the object, by its section or its name
    #[arg(long, value_name = "NAME", requires = "object")]
    pub(crate) section: Option<String>,
    /// Assembly, as the kernel's verifier log and bpftool print it
    #[arg(long, value_name = "FILE", group = "source")]
    pub(crate) asm: Option<PathBuf>,
    /// Instructions as hex, 8 bytes each
    #[arg(long, value_name = "FILE", group = "source")]
    pub(crate) hex: Option<PathBuf>,
}

impl SourceArgs {
    /// Nothing was named: the built-in programs.
    pub(crate) fn is_builtin(&self) -> bool {
        self.object.is_none() && self.asm.is_none() && self.hex.is_none()
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ExecArgs {
    /// The memory that r1 points to and r2 counts, as hex
    #[arg(value_name = "MEMORY")]
    pub(crate) memory: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct SeedArgs {
    /// Simulated CPUs that run programs at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = up_to(MAX_CPUS), allow_negative_numbers = true)]
    pub(crate) cpus: u64,
    /// Programs of the cold set-up; each run finds its program's memory cold
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = up_to(MAX_PROGRAMS), allow_negative_numbers = true)]
    pub(crate) programs: u64,
    /// How long to measure
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) seconds: f64,
    /// The clock that programs are timed with
    #[arg(long, value_enum, default_value_t = Clock::Ordered)]
    pub(crate) clock: Clock,
    /// Word size of the statistics: 64 (whole counters) or 32 (sequence counter, interrupts masked)
    #[arg(long, value_enum, default_value_t = Bits::B64)]
    pub(crate) bits: Bits,
    /// With --clock virtual: what a step costs, in ns; may be given several times
    #[arg(long = "cost", value_name = "STEP=NS", value_parser = cost)]
    pub(crate) costs: Vec<(String, u64)>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// Simulated CPUs that run programs at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = up_to(MAX_CPUS), allow_negative_numbers = true)]
    pub(crate) cpus: u64,
    /// How long to run
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) seconds: f64,
    /// The clock that programs are timed with
    #[arg(long, value_enum, default_value_t = Clock::Ordered)]
    pub(crate) clock: Clock,
    /// Word size of the statistics
    #[arg(long, value_enum, default_value_t = Bits::B64)]
    pub(crate) bits: Bits,
    /// Leave statistics off, as a kernel does until somebody asks
    #[arg(long)]
    pub(crate) stats_off: bool,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Print as JSON, with bpftool's field names
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct CompareArgs {
    /// How long to measure
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) seconds: f64,
    /// The simulation's clock
    #[arg(long, value_enum, default_value_t = Clock::Ordered)]
    pub(crate) clock: Clock,
    /// Word size of the simulation's statistics
    #[arg(long, value_enum, default_value_t = Bits::B64)]
    pub(crate) bits: Bits,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct OracleArgs {
    /// Only facts with this in their family's or their own name
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Option<String>,
    /// Generated programs to run in both
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = up_to(MAX_GENERATED))]
    pub(crate) programs: u64,
    /// Seed of the first generated program, the others' follow; else one by chance, which is printed
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Clocks by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Clock {
    /// The TSC behind a fence: sched_clock of a KVM guest
    Ordered,
    /// The plain TSC: sched_clock of bare metal
    Tsc,
    /// The host's monotonic clock
    Os,
    /// Ticks of 4 ms
    Coarse,
    /// Ordered, a second apart from CPU to CPU
    Skewed,
    /// Always 0
    Zero,
    /// Declared costs at named steps: exact and repeatable
    Virtual,
}

impl Clock {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Ordered => "ordered TSC",
            Self::Tsc => "plain TSC",
            Self::Os => "OS clock",
            Self::Coarse => "coarse clock (4 ms)",
            Self::Skewed => "skewed TSC",
            Self::Zero => "a clock that returns 0",
            Self::Virtual => "virtual",
        }
    }
}

/// Word sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bits {
    #[value(name = "64")]
    B64,
    #[value(name = "32")]
    B32,
}

impl Bits {
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::B64 => 64,
            Self::B32 => 32,
        }
    }
}

/// A mistake in the arguments that the parser cannot see.
#[derive(Debug)]
pub(crate) struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Prints help as it is, and a mistake as one line; returns the exit code.
pub(crate) fn usage(e: clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    match e.kind() {
        DisplayHelp | DisplayVersion => {
            crate::out::print(&e.to_string()).map_or(ExitCode::from(1), |()| ExitCode::SUCCESS)
        }
        DisplayHelpOnMissingArgumentOrSubcommand => {
            eprint!("{e}");
            ExitCode::from(2)
        }
        _ => {
            // clap says it in several lines; what is wrong and what is possible is what stands before "Usage:".
            let text = e.to_string();
            let what = text
                .split("\n\nUsage:")
                .next()
                .unwrap_or(&text)
                .split("\n\nFor more")
                .next()
                .unwrap_or(&text);
            let words: Vec<&str> = what.trim_start_matches("error: ").split_whitespace().collect();
            eprintln!("progstats: {} (see --help)", words.join(" "));
            ExitCode::from(2)
        }
    }
}

/// A whole number from 1 to `max`.
fn up_to(max: u64) -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=max)
}

fn seconds(s: &str) -> Result<f64, String> {
    match s.parse::<f64>() {
        Ok(v) if v > 0.0 && v <= MAX_SECONDS => Ok(v),
        _ => Err(format!("a number above 0 and at most {MAX_SECONDS} is needed")),
    }
}

fn cost(s: &str) -> Result<(String, u64), String> {
    let (step, ns) = s.split_once('=').ok_or("STEP=NS is needed, for example call=500")?;
    let ns = ns.parse().ok().filter(|&ns: &u64| ns <= 1_000_000_000);
    Ok((step.into(), ns.ok_or("the cost must be whole ns, from 0 to 1000000000")?))
}
