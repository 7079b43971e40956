//! Clocks, a start and a stop in ns; and masking interrupts.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::time::Instant;

use anyhow::Result;
use filter::clock::{OrderedTsc, OtherClock, SchedClock};
use jump_label::AtomicKey;
use percpu::{Topology, local_irq_restore, local_irq_save};
use stats::Bits64;

use crate::harness::{Harness, Variant};
use crate::machines::{Bench, Real};

/// The clocks' group.
pub(crate) const CLOCKS: &str = "clocks";
/// The masks' group, and its variants.
pub(crate) const MASKS: &str = "masks";
pub(crate) const SOFT: &str = "local_irq_save + local_irq_restore (soft)";
pub(crate) const SIGPROCMASK: &str = "sigprocmask: block + restore";

/// Measures both.
///
/// # Errors
/// If there is no machine or no TSC.
pub(crate) fn measure(harness: &mut Harness) -> Result<()> {
    if !harness.wants(CLOCKS) && !harness.wants(MASKS) {
        return Ok(());
    }
    let bench = Bench::<Real<Bits64, AtomicKey>>::new(Topology::smp(1))?;
    let quanta = quanta::Clock::new();
    let (ordered, tsc, os) = (OrderedTsc::new()?, OtherClock::tsc()?, OtherClock::os());
    let variants = vec![
        sched_clock("OrderedTsc: lfence, rdtsc", &bench, ordered),
        sched_clock("plain TSC", &bench, tsc),
        sched_clock("OS clock", &bench, os),
        Variant::new("quanta, raw", |n| {
            bench.alone(n, |_| {
                let start = quanta.raw();
                black_box(quanta.delta_as_nanos(start, quanta.raw()));
            })
        }),
        Variant::new("quanta, Instant", |n| {
            bench.alone(n, |_| {
                let start = quanta.now();
                black_box(quanta.now().duration_since(start).as_nanos());
            })
        }),
        Variant::new("std Instant", |n| {
            bench.alone(n, |_| {
                let start = Instant::now();
                black_box(start.elapsed().as_nanos());
            })
        }),
    ];
    harness.group(CLOCKS, "A clock's start and stop, in ns", variants);
    let masks = vec![
        Variant::new(SOFT, |n| {
            bench.alone(n, |cpu| {
                let flags = local_irq_save(cpu);
                local_irq_restore(cpu, flags);
            })
        })
        .counted(),
        Variant::new(SIGPROCMASK, |n| bench.alone(n, |_| sigprocmask())),
    ];
    harness.group(MASKS, "Masking interrupts and back", masks);
    Ok(())
}

fn sched_clock<'a>(
    name: &str,
    bench: &'a Bench<Real<Bits64, AtomicKey>>,
    clock: impl SchedClock,
) -> Variant<'a> {
    let run = move |n| {
        bench.alone(n, |cpu| {
            let start = clock.sched_clock(cpu);
            black_box(clock.sched_clock(cpu).wrapping_sub(start));
        })
    };
    Variant::new(name, run).counted()
}

fn sigprocmask() {
    let (mut all, mut old) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: `all` is filled before it is read, `old` by the first sigprocmask; the mask is put back.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), old.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut());
    }
}
