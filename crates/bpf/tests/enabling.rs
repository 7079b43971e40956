//! Switching statistics on: descriptors, the sysctl, the order of the checks, and the one count behind both.

use bpf::Errno;
use bpf::syscall::{BPF_ENABLE_STATS, Cap, Cred, Process, UserMem, attr, files, stats};
use filter::clock::OtherClock;
use filter::{Config, Kconfig};
use jump_label::{AtomicKey, KeyError, StaticKey};
use percpu::{Machine, NoSteps, Topology};
use stats::read_bpf_stats_enabled;
use sync::host::{AtomicI32, Ordering::SeqCst};

type K = Config<::stats::Bits64, OtherClock>;

fn machine() -> Machine<K> {
    filter::machine::<::stats::Bits64, _, AtomicKey, _>(Topology::smp(1), NoSteps, OtherClock::os()).unwrap()
}

fn count<K: Kconfig>(m: &Machine<K>) -> i32 {
    K::globals(m.globals()).bpf_stats_enabled_key.count()
}

/// bpf(2) with this argument.
fn enable<K: Kconfig>(p: &mut Process<'_, K>, attr: &[u8]) -> Result<i32, Errno> {
    let at = p.mem.map(attr);
    p.bpf(BPF_ENABLE_STATS, at, attr.len() as u32)
}

/// `type` alone: BPF_STATS_RUN_TIME.
const RUN_TIME: [u8; 4] = [0; 4];

/// An argument with one byte set.
fn with_byte(len: usize, at: usize) -> Vec<u8> {
    let mut attr = vec![0; len];
    attr[at] = 1;
    attr
}

#[test]
fn each_open_file_counts_one_whatever_its_descriptors() {
    let m = machine();
    let mut p = Process::new(&m, Cred::ROOT);
    let a = enable(&mut p, &RUN_TIME).unwrap();
    let b = enable(&mut p, &RUN_TIME).unwrap();
    assert_eq!((a, b, count(&m)), (0, 1, 2));
    let dup = p.files.dup(a).unwrap();
    assert_eq!(count(&m), 2, "a second descriptor of one file");
    p.files.close(a).unwrap();
    assert_eq!(count(&m), 2, "its other descriptor is open");
    p.files.close(dup).unwrap();
    assert_eq!(count(&m), 1);
    assert_eq!(p.files.close(dup), Err(Errno::EBADF));
    assert_eq!(enable(&mut p, &RUN_TIME), Ok(0), "the lowest free number");
    drop(p);
    assert_eq!(count(&m), 0, "a process that dies closes what it had");
}

#[test]
fn descriptors_close_on_exec_and_their_duplicates_do_not() {
    let m = machine();
    let mut p = Process::new(&m, Cred::ROOT);
    let fd = enable(&mut p, &RUN_TIME).unwrap();
    enable(&mut p, &RUN_TIME).unwrap();
    p.files.dup(fd).unwrap();
    p.files.exec();
    assert_eq!((count(&m), p.files.count()), (1, 1));
}

#[test]
fn the_checks_come_in_the_kernels_order() {
    let m = machine();
    let mut user = Process::new(&m, Cred::user(1000).with(Cap::Bpf).with(Cap::Perfmon));
    let mut root = Process::new(&m, Cred::ROOT);
    // Each argument has every later fault too; each step takes the first one away.
    let unmapped = 0x10;
    let tail = user.mem.map(&with_byte(attr::SIZE + 1, attr::SIZE));
    let size = attr::SIZE as u32;
    assert_eq!(user.bpf(BPF_ENABLE_STATS, unmapped, 4097), Err(Errno::E2BIG), "more than a page, unread");
    assert_eq!(user.bpf(BPF_ENABLE_STATS, tail, size + 1), Err(Errno::E2BIG), "the tail");
    assert_eq!(user.bpf(BPF_ENABLE_STATS, unmapped, size), Err(Errno::EFAULT), "the copy");
    assert_eq!(user.bpf(BPF_ENABLE_STATS, tail + 10, size + 1), Err(Errno::EFAULT), "the tail is not mapped");
    for at in [4, 8, attr::SIZE - 1] {
        assert_eq!(
            enable(&mut user, &with_byte(attr::SIZE, at)),
            Err(Errno::EINVAL),
            "non-zero after `type`"
        );
    }
    for at in 0..4 {
        assert_eq!(enable(&mut user, &with_byte(4, at)), Err(Errno::EPERM), "the right, before the type");
        assert_eq!(enable(&mut root, &with_byte(4, at)), Err(Errno::EINVAL), "the type");
    }
    assert_eq!(enable(&mut user, &RUN_TIME), Err(Errno::EPERM), "CAP_BPF and CAP_PERFMON are not enough");
    let mut admin = Process::new(&m, Cred::user(1000).with(Cap::SysAdmin));
    assert_eq!(enable(&mut admin, &RUN_TIME), Ok(0), "CAP_SYS_ADMIN is");
    assert_eq!((count(&m), root.files.count()), (1, 0), "refusals count nothing and open nothing");
    assert_eq!(root.bpf(33_000, UserMem::START, 0), Err(Errno::EINVAL), "no such command");
}

#[test]
fn any_size_of_argument_is_taken_and_what_is_missing_is_zero() {
    let m = machine();
    let mut p = Process::new(&m, Cred::ROOT);
    for size in [0, 1, 3, 4, 5, attr::SIZE, attr::SIZE + 1, 4096] {
        enable(&mut p, &vec![0; size]).unwrap_or_else(|e| panic!("{size} bytes: {e}"));
    }
    assert_eq!(p.bpf(BPF_ENABLE_STATS, 0x10, 0), Ok(8), "of nothing the address does not matter");
    assert_eq!(count(&m), 9);
}

#[test]
fn a_child_has_its_parents_files() {
    let m = machine();
    let mut p = Process::new(&m, Cred::ROOT);
    let fd = enable(&mut p, &RUN_TIME).unwrap();
    let child = p.fork();
    p.files.close(fd).unwrap();
    assert_eq!((count(&m), child.files.count()), (1, 1), "one file, and the child has it");
    drop(child);
    assert_eq!(count(&m), 0);
}

#[test]
fn without_a_free_descriptor_nothing_is_counted() {
    let m = machine();
    let mut p = Process::new(&m, Cred::ROOT);
    for _ in 0..files::NR_OPEN {
        enable(&mut p, &RUN_TIME).unwrap();
    }
    assert_eq!(enable(&mut p, &RUN_TIME), Err(Errno::EMFILE));
    assert_eq!(count(&m), files::NR_OPEN as i32);
}

/// A key that many have on already, and that records no more than its count.
struct Crowded(AtomicI32);

impl StaticKey for Crowded {
    fn claim() -> Result<Self, KeyError> {
        Ok(Self(AtomicI32::new(i32::MAX / 2)))
    }
    fn unlikely(&self) -> bool {
        self.count() > 0
    }
    fn slow_inc(&self) -> Result<(), KeyError> {
        self.0.fetch_add(1, SeqCst);
        Ok(())
    }
    fn slow_dec(&self) -> Result<(), KeyError> {
        self.0.fetch_sub(1, SeqCst);
        Ok(())
    }
    fn count(&self) -> i32 {
        self.0.load(SeqCst)
    }
}

#[test]
fn descriptors_are_busy_above_half_of_int_max_and_the_sysctl_has_no_limit() {
    let clock = OtherClock::os();
    let m = filter::machine::<::stats::Bits64, _, Crowded, _>(Topology::smp(1), NoSteps, clock).unwrap();
    let mut p = Process::new(&m, Cred::ROOT);
    let fd = enable(&mut p, &RUN_TIME).expect("half is not above half");
    assert_eq!(enable(&mut p, &RUN_TIME), Err(Errno::EBUSY));
    let mut user = Process::new(&m, Cred::user(1));
    assert_eq!(enable(&mut user, &RUN_TIME), Err(Errno::EPERM), "rights come before");
    assert_eq!(p.write_bpf_stats_enabled(b"1"), Ok(1));
    assert_eq!(count(&m), i32::MAX / 2 + 2);
    p.write_bpf_stats_enabled(b"0").unwrap();
    p.files.close(fd).unwrap();
    assert_eq!(enable(&mut p, &RUN_TIME), Ok(0));
}

#[test]
fn the_sysctl_counts_one_at_most_and_tells_only_its_own_value() {
    let m = machine();
    let mut p = Process::new(&m, Cred::ROOT);
    assert_eq!(p.read_bpf_stats_enabled(), b"0\n");
    for (write, want) in [("1", 1), ("1", 1), ("0", 0), ("0", 0), ("1", 1)] {
        p.write_bpf_stats_enabled(write.as_bytes()).unwrap();
        assert_eq!(count(&m), want, "after {write}");
        assert_eq!(p.read_bpf_stats_enabled(), format!("{write}\n").as_bytes());
    }
    let fd = enable(&mut p, &RUN_TIME).unwrap();
    p.write_bpf_stats_enabled(b"0").unwrap();
    assert_eq!((count(&m), p.read_bpf_stats_enabled()), (1, b"0\n".to_vec()), "on, by the descriptor alone");
    p.files.close(fd).unwrap();
    assert_eq!(count(&m), 0);
    assert_eq!(read_bpf_stats_enabled(&m, 1), b"", "the file has one line");
}

#[test]
fn the_sysctl_takes_and_refuses_these_strings() {
    let m = machine();
    let p = Process::new(&m, Cred::ROOT);
    let page = [b" ".repeat(4094), b"1".to_vec()].concat();
    let taken: [(&[u8], i32, usize); 14] = [
        (b"1", 1, 1),
        (b"1\n", 1, 2),
        (b"01", 1, 2),
        (b"0x1", 1, 3),
        (b"0X1", 1, 3),
        (b" 1", 1, 2),
        (b"\t\n\x0b\x0c\r\xa01", 1, 7),
        (b"1 ", 1, 2),
        (b"1 1", 1, 2),
        (b"1\tx", 1, 2),
        (b"0", 0, 1),
        (b"-0", 0, 2),
        (b"00000000000000000001", 1, 20),
        (&page, 1, 4095),
    ];
    for (bytes, want, len) in taken {
        for before in [b"0", b"1"] {
            p.write_bpf_stats_enabled(before).unwrap();
            assert_eq!(p.write_bpf_stats_enabled(bytes), Ok(len), "{bytes:?}");
            assert_eq!((count(&m), p.read_bpf_stats_enabled()[0]), (want, b'0' + want as u8), "{bytes:?}");
        }
    }
    let long = b"000000000000000000001"; // fills what the kernel keeps of a number
    let refused: [&[u8]; 22] = [
        b"2",
        b"-1",
        b"-",
        b"abc",
        b"+1",
        b"1abc",
        b"1\0",
        b"\x001",
        b" ",
        b"\n",
        b"1\x0b",
        b"1\xa0",
        b"0x",
        b"0x2",
        b"08",
        b"1,",
        b"--1",
        b"4294967297",
        b"18446744073709551617",
        b"99999999999999999999",
        b"-2147483649",
        long,
    ];
    for before in [b"0\n", b"1\n"] {
        p.write_bpf_stats_enabled(before).unwrap();
        for bytes in refused {
            assert_eq!(p.write_bpf_stats_enabled(bytes), Err(Errno::EINVAL), "{bytes:?}");
            assert_eq!(p.read_bpf_stats_enabled(), before, "{bytes:?}");
        }
        assert_eq!(p.write_bpf_stats_enabled(b""), Ok(0));
        assert_eq!(
            stats::write_bpf_stats_enabled(&m, Cred::ROOT, b"2", 1),
            Ok(1),
            "not at the start: ignored"
        );
        assert_eq!(p.read_bpf_stats_enabled(), before, "nothing written, nothing changed");
    }
}

#[test]
fn the_sysctl_asks_for_the_right_before_it_reads() {
    let m = machine();
    let user = Process::new(&m, Cred::user(1000).with(Cap::SysAdmin));
    let root = Process::new(&m, Cred::user(0).with(Cap::Bpf));
    for bytes in [&b"1"[..], b"0", b"", b"abc"] {
        assert_eq!(user.write_bpf_stats_enabled(bytes), Err(Errno::EACCES), "the file is root's");
        assert_eq!(root.write_bpf_stats_enabled(bytes), Err(Errno::EPERM), "who lacks the right");
    }
    assert_eq!((count(&m), user.read_bpf_stats_enabled()), (0, b"0\n".to_vec()), "reading is for all");
}

#[test]
fn descriptors_and_the_sysctl_of_many_threads_leave_statistics_off() {
    let m = machine();
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                let mut p = Process::new(&m, Cred::ROOT);
                for _ in 0..2_000 {
                    let fd = enable(&mut p, &RUN_TIME).unwrap();
                    assert!(count(&m) >= 1, "mine is open");
                    p.files.close(fd).unwrap();
                }
            });
            s.spawn(|| {
                let p = Process::new(&m, Cred::ROOT);
                for _ in 0..2_000 {
                    p.write_bpf_stats_enabled(b"1").unwrap();
                    p.write_bpf_stats_enabled(b"0").unwrap();
                    assert!(count(&m) <= 3, "two descriptors and the sysctl's one");
                }
            });
        }
    });
    assert_eq!(count(&m), 0);
}
