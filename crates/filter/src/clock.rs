//! The clock. Kernel: `sched_clock`, arch/x86/kernel/tsc.c and kvmclock.c; kernel/sched/clock.c, v6.6.
//!
//! On bare metal the kernel reads the TSC **unordered**; in a KVM guest it is kvmclock, which orders the read. The seed's
//! author measured in a guest, so the ordered clock is the faithful one there and the default here. It also decides what
//! one sees: an unordered read lets the processor start the statistics' cold line while the clock is still to be read.
//!
//! Clocks of different CPUs may not be compared. A duration of 0 is legal.

use std::fmt;
use std::hint::spin_loop;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use percpu::Cpu;

use crate::Kconfig;

/// A clock of nanoseconds on the calling CPU.
pub trait SchedClock: Send + Sync + 'static {
    /// The time on `cpu`, in ns.
    ///
    /// Context: any; async-signal-safe.
    fn sched_clock<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) -> u64;
}

/// The time on this CPU, in ns. Kernel: `sched_clock`.
#[inline(always)]
#[track_caller]
pub fn sched_clock<K: Kconfig>(cpu: &Cpu<K>) -> u64 {
    K::globals(cpu.globals()).clock.sched_clock(cpu)
}

/// The TSC cannot serve as a clock here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockError(&'static str);

impl fmt::Display for ClockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ClockError {}

/// Nanoseconds a TSC cycle, as a fraction of 2^64.
///
/// Kernel: `struct cyc2ns_data`. Differs: one multiply to the high half instead of multiply and shift by a variable, which
/// costs about 15 instructions less for two reads and asks for a TSC above 1 GHz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cyc2ns(u64);

impl Cyc2ns {
    /// Measures the TSC against the host's clock; once a process, then remembered.
    ///
    /// # Errors
    /// [`ClockError`] if this is no x86-64, or the TSC is not above 1 GHz, or two measurements do not agree.
    pub fn calibrate() -> Result<Self, ClockError> {
        static MEASURED: OnceLock<Result<Cyc2ns, ClockError>> = OnceLock::new();
        MEASURED.get_or_init(Self::measure).clone()
    }

    fn measure() -> Result<Self, ClockError> {
        const WINDOW: Duration = Duration::from_millis(10);
        let mut last = f64::NAN;
        for _ in 0..10 {
            let ns_a_cycle = Self::measure_once(WINDOW)?;
            // NaN (the first time) agrees with nothing.
            if (ns_a_cycle / last - 1.0).abs() < 1e-3 {
                return Ok(Self((ns_a_cycle * 18_446_744_073_709_551_616.0) as u64));
            }
            last = ns_a_cycle;
        }
        Err(ClockError("the TSC does not keep time with the host's clock: use the clock os"))
    }

    fn measure_once(window: Duration) -> Result<f64, ClockError> {
        let (from, cycles) = (Instant::now(), rdtsc_ordered()?);
        while from.elapsed() < window {
            spin_loop();
        }
        let (ns, cycles) = (from.elapsed().as_nanos() as f64, rdtsc_ordered()?.wrapping_sub(cycles) as f64);
        if ns < cycles {
            Ok(ns / cycles)
        } else {
            Err(ClockError("the TSC ticks below 1 GHz: use the clock os"))
        }
    }

    /// Cycles to ns. Kernel: `cycles_2_ns`.
    #[inline(always)]
    fn ns(self, cycles: u64) -> u64 {
        #[cfg(target_arch = "x86_64")]
        return x86::mul_high(cycles, self.0);
        #[cfg(not(target_arch = "x86_64"))]
        return ((u128::from(cycles) * u128::from(self.0)) >> 64) as u64;
    }
}

fn rdtsc_ordered() -> Result<u64, ClockError> {
    #[cfg(target_arch = "x86_64")]
    return Ok(x86::rdtsc_ordered());
    #[cfg(not(target_arch = "x86_64"))]
    return Err(ClockError("there is no TSC on this architecture: use the clock os"));
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::x86_64::{_mm_lfence, _rdtsc};

    /// Kernel: `rdtsc_ordered`: a fence keeps the read from starting before what stands before it.
    #[inline(always)]
    pub(super) fn rdtsc_ordered() -> u64 {
        // SAFETY: both instructions are in every x86-64.
        unsafe {
            _mm_lfence();
            _rdtsc()
        }
    }

    /// Kernel: `rdtsc`.
    #[inline(always)]
    pub(super) fn rdtsc() -> u64 {
        // SAFETY: as above.
        unsafe { _rdtsc() }
    }

    /// The high half of the product, made here and now: a compiler puts a multiplication off until its result is used, past
    /// the program's call, and keeps the three words that it is made of meanwhile (eight instructions more a run).
    #[inline(always)]
    pub(super) fn mul_high(a: u64, b: u64) -> u64 {
        let high;
        // SAFETY: multiplies two registers. Not marked `pure`, so that it stays where it stands.
        unsafe {
            core::arch::asm!(
                "mul {b}",
                b = in(reg) b,
                inout("rax") a => _,
                out("rdx") high,
                options(nomem, nostack),
            );
        }
        high
    }
}

/// The ordered TSC: what a KVM guest's `sched_clock` is (pvclock). The default.
#[derive(Clone, Copy, Debug)]
pub struct OrderedTsc(Cyc2ns);

impl OrderedTsc {
    /// The clock, calibrated.
    ///
    /// # Errors
    /// As [`Cyc2ns::calibrate`].
    pub fn new() -> Result<Self, ClockError> {
        Cyc2ns::calibrate().map(Self)
    }
}

impl SchedClock for OrderedTsc {
    #[inline(always)]
    fn sched_clock<K: percpu::Kconfig>(&self, _: &Cpu<K>) -> u64 {
        #[cfg(target_arch = "x86_64")]
        return self.0.ns(x86::rdtsc_ordered());
        #[cfg(not(target_arch = "x86_64"))]
        return self.0.ns(0); // never made: `new` fails
    }
}

/// The clocks that need no type of their own.
#[derive(Clone, Copy, Debug)]
pub enum OtherClock {
    /// The plain TSC: what `sched_clock` is on bare metal. Unordered.
    Tsc(Cyc2ns),
    /// The host's monotonic clock.
    Os(Instant),
    /// Ticks of a clock of so many ns: `sched_clock` before the TSC is up, at HZ = 250.
    Coarse(Instant, u64),
    /// The ordered TSC, ahead by so many ns on each CPU after the first.
    Skewed(OrderedTsc, u64),
    /// Always 0.
    Zero,
}

impl OtherClock {
    /// The plain TSC.
    ///
    /// # Errors
    /// As [`Cyc2ns::calibrate`].
    pub fn tsc() -> Result<Self, ClockError> {
        Cyc2ns::calibrate().map(Self::Tsc)
    }

    /// The host's clock.
    pub fn os() -> Self {
        Self::Os(Instant::now())
    }

    /// Ticks of 4 ms.
    pub fn coarse() -> Self {
        Self::Coarse(Instant::now(), 4_000_000)
    }

    /// One second between neighbours.
    ///
    /// # Errors
    /// As [`Cyc2ns::calibrate`].
    pub fn skewed() -> Result<Self, ClockError> {
        OrderedTsc::new().map(|tsc| Self::Skewed(tsc, 1_000_000_000))
    }
}

/// ns since `from`, starting a second in: as on a machine that has booted.
fn since(from: Instant) -> u64 {
    1_000_000_000 + from.elapsed().as_nanos() as u64
}

impl SchedClock for OtherClock {
    #[inline(always)]
    fn sched_clock<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) -> u64 {
        match *self {
            #[cfg(target_arch = "x86_64")]
            Self::Tsc(cyc2ns) => cyc2ns.ns(x86::rdtsc()),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Tsc(_) => 0, // never made: `tsc` fails
            Self::Os(from) => since(from),
            Self::Coarse(from, tick) => since(from) / tick * tick,
            Self::Skewed(tsc, ns) => tsc.sched_clock(cpu) + ns * cpu.smp_processor_id() as u64,
            Self::Zero => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_conversion_is_exact_where_it_matters() {
        let quarter = Cyc2ns(1 << 62);
        assert_eq!(quarter.ns(8), 2);
        assert_eq!(quarter.ns(u64::MAX), u64::MAX / 4);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_tsc_keeps_time_with_the_host() {
        // Both clocks are read on both sides of the window, so a preemption inside it does no harm.
        let Ok(c) = Cyc2ns::calibrate() else { return };
        let (a, from) = (x86::rdtsc_ordered(), Instant::now());
        while from.elapsed() < Duration::from_millis(20) {}
        let (ns, b) = (from.elapsed().as_nanos() as f64, x86::rdtsc_ordered());
        let ratio = c.ns(b - a) as f64 / ns;
        assert!((0.5..2.0).contains(&ratio), "TSC/host = {ratio}");
    }
}
