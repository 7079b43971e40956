//! What the running kernel answers to each question, against what is known of it.

use host::caller::Rights;
use host::expect::asked;
use host::facts::counting::{readings, survival};
use host::facts::enable::{Attr, enable_errno};
use host::facts::flip::{Path, flip_during_run};
use host::facts::misses::recursion;
use host::facts::sysctl_text::{Written, write, write_errno_as};
use host::facts::toggle::{Seen, Step, toggle};
use host::facts::torn::samples;
use host::{Errno, ProgType, Release};

/// The baseline; what came later says so.
const SINCE: Release = Release(6, 6);

const OK: i32 = 0;
const EPERM: i32 = Errno::EPERM.0;
const E2BIG: i32 = Errno::E2BIG.0;
const EACCES: i32 = Errno::EACCES.0;
const EFAULT: i32 = Errno::EFAULT.0;
const EINVAL: i32 = Errno::EINVAL.0;

#[test]
fn enable_stats_attributes() {
    let mut beyond = [0; 4096];
    beyond[4095] = 1;
    let cases: &[(&str, Attr<'_>, u32, i32)] = &[
        ("type 0", Attr::Bytes(&[0; 4]), 4, OK),
        ("type 1", Attr::Bytes(&[1, 0, 0, 0]), 4, EINVAL),
        ("type -1", Attr::Bytes(&[0xff; 4]), 4, EINVAL),
        ("size 8, zero after type", Attr::Bytes(&[]), 8, OK),
        ("first byte after type", Attr::Bytes(&[0, 0, 0, 0, 1]), 8, EINVAL),
        ("last byte of 8", Attr::Bytes(&[0, 0, 0, 0, 0, 0, 0, 1]), 8, EINVAL),
        ("the same out of sight", Attr::Bytes(&[0, 0, 0, 0, 1]), 4, OK),
        ("size 0", Attr::Bytes(&[]), 0, OK),
        ("size 0 of type 1", Attr::Bytes(&[1]), 0, OK),
        ("size 2", Attr::Bytes(&[]), 2, OK),
        ("size 2 of type 1", Attr::Bytes(&[1]), 2, EINVAL),
        ("size 4096, zero", Attr::Bytes(&[]), 4096, OK),
        ("size 4096, last byte", Attr::Bytes(&beyond), 4096, E2BIG),
        ("size 4097", Attr::Bytes(&[]), 4097, E2BIG),
        ("bad address", Attr::BadAddress, 4, EFAULT),
        ("bad address, size 0", Attr::BadAddress, 0, OK),
        ("bad address, size 4097", Attr::BadAddress, 4097, E2BIG),
    ];
    for &(what, attr, size, errno) in cases {
        let Some(answer) = asked(SINCE, enable_errno(attr, size, Rights::All)) else { return };
        assert_eq!(Errno(answer), Errno(errno), "{what}");
    }
}

#[test]
fn enable_stats_checks_tail_then_capability_then_type() {
    let (right, wrong_type, tail): (_, _, &[u8]) = ([0; 4], [1, 0, 0, 0], &[0, 0, 0, 0, 1]);
    let mut beyond = [0; 4096];
    beyond[4095] = 1;
    for rights in [Rights::WithoutSysAdmin, Rights::Nobody] {
        let cases = [
            ("right", Attr::Bytes(&right), 4, EPERM),
            ("wrong type", Attr::Bytes(&wrong_type), 4, EPERM),
            ("tail", Attr::Bytes(tail), 8, EINVAL),
            ("beyond the kernel's attribute", Attr::Bytes(&beyond), 4096, E2BIG),
        ];
        for (what, attr, size, errno) in cases {
            let Some(answer) = asked(SINCE, enable_errno(attr, size, rights)) else { return };
            assert_eq!(Errno(answer), Errno(errno), "{what}, {rights:?}");
        }
    }
}

#[test]
fn sysctl_texts() {
    const ON: &str = "1";
    const OFF: &str = "0";
    let refused: &[&[u8]] =
        &[b"2", b"-1", b"abc", b"+1", b"1abc", b"1\0", b"\n", b" ", b"99999999999999999999", b"4294967296"];
    for &text in refused {
        for (before, reads) in [(false, OFF), (true, ON)] {
            let Some(answer) = asked(SINCE, write(before, text)) else { return };
            let expected = Written { taken: Err(Errno::EINVAL), reads: reads.into() };
            assert_eq!(answer, expected, "{:?}", String::from_utf8_lossy(text));
        }
    }
    let accepted: &[(&[u8], &str, usize)] = &[
        (b"1", ON, 1),
        (b"1\n", ON, 2),
        (b"01", ON, 2),
        (b"0x1", ON, 3),
        (b" 1", ON, 2),
        (b"1 ", ON, 2),
        (b"1 1", ON, 2),
        (b"0", OFF, 1),
        (b"-0", OFF, 2),
        (b"0 1", OFF, 2),
    ];
    for &(text, reads, len) in accepted {
        // From the other value, so that nothing done does not pass.
        let Some(answer) = asked(SINCE, write(reads == OFF, text)) else { return };
        assert_eq!(
            answer,
            Written { taken: Ok(len), reads: reads.into() },
            "{:?}",
            String::from_utf8_lossy(text)
        );
    }
    for (before, reads) in [(false, OFF), (true, ON)] {
        let Some(answer) = asked(SINCE, write(before, b"")) else { return };
        assert_eq!(answer, Written { taken: Ok(0), reads: reads.into() }, "empty: no change");
    }
}

#[test]
fn sysctl_without_the_right() {
    // The capability comes before the value; who may not open the file does not get to either.
    for (rights, errno) in [(Rights::WithoutSysAdmin, EPERM), (Rights::Nobody, EACCES)] {
        for text in ["1", "0", "2", ""] {
            let Some(answer) = asked(SINCE, write_errno_as(rights, text.as_bytes())) else { return };
            assert_eq!(Errno(answer), Errno(errno), "{text:?}, {rights:?}");
        }
    }
}

/// Takes the steps and compares what is seen after each: `on` or `off`, and what the sysctl reads.
fn toggles(steps: &[(Step, &str)]) {
    let only: Vec<Step> = steps.iter().map(|&(step, _)| step).collect();
    let Some(seen) = asked(SINCE, toggle(&only)) else { return };
    for (n, (&(step, expected), Seen { on, sysctl })) in steps.iter().zip(seen).enumerate() {
        let seen = format!("{} {}", if on { "on" } else { "off" }, u8::from(sysctl));
        assert_eq!(seen, expected, "step {n}: {step:?} of {only:?}");
    }
}

#[test]
fn one_of_two_descriptors_closed_stays_on() {
    toggles(&[
        (Step::Open, "on 0"),
        (Step::Open, "on 0"),
        (Step::Close(0), "on 0"),
        (Step::Close(1), "off 0"),
        (Step::Open, "on 0"),
        (Step::Close(2), "off 0"),
    ]);
}

#[test]
fn a_copy_keeps_on_and_counts_once() {
    toggles(&[
        (Step::Open, "on 0"),
        (Step::Dup(0), "on 0"),
        (Step::Close(0), "on 0"),
        (Step::Dup(1), "on 0"),
        (Step::Close(1), "on 0"),
        (Step::Close(2), "off 0"),
    ]);
}

#[test]
fn sysctl_and_descriptor_are_apart() {
    toggles(&[
        (Step::Open, "on 0"),
        (Step::Write(true), "on 1"),
        (Step::Write(false), "on 0"),
        (Step::Close(0), "off 0"),
        (Step::Write(true), "on 1"),
        (Step::Open, "on 1"),
        (Step::Close(1), "on 1"),
        (Step::Write(false), "off 0"),
    ]);
}

#[test]
fn sysctl_counts_once() {
    toggles(&[
        (Step::Write(true), "on 1"),
        (Step::Write(true), "on 1"),
        (Step::Write(false), "off 0"),
        (Step::Write(false), "off 0"),
        (Step::Open, "on 0"),
        (Step::Write(false), "on 0"),
        (Step::Close(0), "off 0"),
    ]);
}

#[test]
fn key_flipped_during_a_run() {
    const ON: bool = true;
    const OFF: bool = false;
    // The states, and whether the run is counted: on the plain path, and on the trampoline's.
    let cases: &[(&[bool], u64, u64)] = &[
        (&[OFF], 0, 0),
        (&[ON], 1, 1),
        (&[OFF, ON], 0, 0),
        (&[ON, OFF], 1, 0),
        (&[ON, OFF, ON], 1, 1),
        (&[OFF, ON, OFF], 0, 0),
    ];
    for &(flips, prog_run, trampoline) in cases {
        for (path, counted) in [(Path::ProgRun, prog_run), (Path::Trampoline, trampoline)] {
            let Some(added) = asked(Release(6, 9), flip_during_run(path, flips)) else { return };
            assert_eq!(added.run_cnt, counted, "{path:?}, {flips:?}");
            assert_eq!(
                added.run_time_ns > 0,
                counted > 0,
                "whole or not at all: {path:?}, {flips:?}, {added:?}"
            );
            assert_eq!(added.recursion_misses, 0);
        }
    }
}

#[test]
fn misses_do_not_ask_the_key() {
    const RUNS: u32 = 100;
    if !cfg!(target_arch = "x86_64") {
        host::expect::skipped("the tracepoint of page faults is x86's");
        return;
    }
    for on in [false, true] {
        let Some(seen) = asked(SINCE, recursion(on, RUNS)) else { return };
        assert_eq!(seen.added.recursion_misses, u64::from(RUNS), "statistics {on}: {seen:?}");
        // A miss adds no run: test runs take no guard, so each enters twice, itself and by its first fault.
        assert_eq!(seen.entered, 2 * u64::from(RUNS), "statistics {on}: {seen:?}");
        if on {
            assert!(seen.added.run_cnt >= 2 * u64::from(RUNS), "{seen:?}");
        } else {
            assert_eq!((seen.added.run_cnt, seen.added.run_time_ns), (0, 0), "{seen:?}");
        }
    }
}

#[test]
fn counters_never_go_back() {
    const SAMPLES: u64 = 200_000;
    let Some(seen) = asked(SINCE, samples(SAMPLES, |_| false)) else { return };
    println!("{seen:?}");
    assert_eq!((seen.taken, seen.backwards), (SAMPLES, 0));
    assert!(seen.both > 0, "it ran while it was read: {seen:?}");
    assert!(seen.both > 10 * (seen.count_alone + seen.time_alone), "torn pairs are rare: {seen:?}");
}

#[test]
fn counters_stay_and_only_counted_runs_count() {
    const RUNS: u64 = 500;
    for prog_type in [
        ProgType::SocketFilter,
        ProgType::SchedCls,
        ProgType::CgroupSkb,
        ProgType::RawTracepoint,
        ProgType::Syscall,
        ProgType::StructOps,
    ] {
        let Some(after) = asked(SINCE, survival(prog_type, RUNS as u32, &[false, true, false, true])) else {
            return;
        };
        let counts: Vec<u64> = after.iter().map(|s| s.run_cnt).collect();
        assert_eq!(counts, [0, RUNS, RUNS, 2 * RUNS], "{prog_type:?}");
        assert_eq!(after[0].run_time_ns, 0);
        assert_eq!(after[1], after[2], "{prog_type:?}: off, nothing moves");
        assert!(after[3].run_time_ns > after[2].run_time_ns && after[1].run_time_ns > 0, "{after:?}");
    }
}

#[test]
fn all_readings_agree() {
    const RUNS: u32 = 100;
    let Some(r) = asked(SINCE, readings(RUNS)) else { return };
    assert_eq!(r.info.stats.run_cnt, u64::from(RUNS));
    assert_eq!(r.info.stats, r.fdinfo.stats);
    assert_eq!((r.info.id, r.info.tag, r.info.prog_type), (r.fdinfo.id, r.fdinfo.tag, r.fdinfo.prog_type));
    assert_eq!(r.fdinfo.verified_insns, Some(r.info.verified_insns));
    assert_eq!((r.by_copy, r.by_id, r.by_nobody), (r.info.stats, r.info.stats, r.info.stats));
    assert_eq!((r.nobody_by_id, r.listed), (EPERM, true));
    assert_eq!((r.info.name.as_str(), r.info.xlated_len, r.info.gpl_compatible), ("progstats_min", 16, true));
    assert!(r.info.load_time > 0 && r.fdinfo.memlock > 0);
}
