//! Hash maps and ring buffers: what the syscall side and programs see, with other CPUs and nested runs at work.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bpf::asm::assemble;
use bpf::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST};
use bpf::{Env, Errno, Map, MapAttr, MapType, PlainEnv, Program};
use percpu::{Machine, Native, Pcpu, Topology};

const CPUS: usize = 2;
/// Rounds of the tests that repeat.
const ROUNDS: u64 = if cfg!(debug_assertions) { 20_000 } else { 400_000 };

fn pcpu() -> Pcpu {
    Machine::<Native>::new(Topology::smp(CPUS), Default::default(), |_| ()).unwrap().pcpu().clone()
}

fn hash(map_type: MapType, key_size: u32, value_size: u32, max_entries: u32) -> Arc<Map> {
    let attr = MapAttr::array("h", value_size, max_entries).of_type(map_type).with_key_size(key_size);
    Map::create(1, attr, &pcpu()).unwrap()
}

fn ringbuf(bytes: u32) -> Arc<Map> {
    let attr = MapAttr::array("ring", 0, bytes).of_type(MapType::Ringbuf).with_key_size(0);
    Map::create(1, attr, &pcpu()).unwrap()
}

fn prog(text: &str, map: &Arc<Map>) -> Program {
    Program::load("test", &assemble(text).unwrap(), vec![map.clone()]).unwrap()
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

/// Runs something when it is asked for the time or the CPU: an interrupt at a place of one's choice.
struct Interrupted<'a> {
    plain: PlainEnv,
    /// Interrupts kept away.
    masked: Cell<i32>,
    interrupt: &'a dyn Fn(&PlainEnv),
}

impl Env for Interrupted<'_> {
    fn smp_processor_id(&self) -> u32 {
        (self.interrupt)(&self.plain);
        self.plain.smp_processor_id()
    }
    fn ktime_get_ns(&self) -> u64 {
        (self.interrupt)(&self.plain);
        0
    }
    fn get_prandom_u32(&self) -> u32 {
        0
    }
    fn current_pid_tgid(&self) -> u64 {
        0
    }
    fn current_comm(&self) -> [u8; 16] {
        [0; 16]
    }
    fn trace_printk(&self, _: &[u8]) {}
    fn local_irq_save(&self) -> usize {
        self.masked.set(self.masked.get() + 1);
        0
    }
    fn local_irq_restore(&self, _: usize) {
        self.masked.set(self.masked.get() - 1);
    }
}

/// Attributes that the kernel refuses, and its errors.
#[test]
fn attributes_are_checked() {
    let attr = |t, key, value, entries| MapAttr::array("m", value, entries).of_type(t).with_key_size(key);
    for (attr, want) in [
        (attr(MapType::Hash, 0, 8, 1), Errno::EINVAL),
        (attr(MapType::Hash, 8, 0, 1), Errno::EINVAL),
        (attr(MapType::Hash, 8, 8, 0), Errno::EINVAL),
        (attr(MapType::Hash, 513, 8, 1), Errno::E2BIG),
        (attr(MapType::Hash, 8, 1 << 31, 1), Errno::E2BIG),
        (attr(MapType::PercpuHash, 8, (32 << 10) + 1, 1), Errno::E2BIG),
        (attr(MapType::Hash, 8, 8, 1).with_flags(1 << 3), Errno::EINVAL),
        (attr(MapType::Ringbuf, 0, 0, 0), Errno::EINVAL),
        (attr(MapType::Ringbuf, 0, 0, 2048), Errno::EINVAL),
        (attr(MapType::Ringbuf, 0, 0, 3 * 4096), Errno::EINVAL),
        (attr(MapType::Ringbuf, 4, 0, 4096), Errno::EINVAL),
    ] {
        assert_eq!(Map::create(1, attr.clone(), &pcpu()).unwrap_err(), want, "{attr:?}");
    }
}

#[test]
fn hash_updates_by_flag_and_until_full() {
    let (m, env) = (hash(MapType::Hash, 4, 8, 3), PlainEnv::default());
    let key = |k: u32| k.to_ne_bytes();
    let update = |k, v: u64, flags| m.update_elem(&env, &key(k), &v.to_ne_bytes(), flags);
    let get = |k| m.lookup_elem(&env, &key(k));
    assert_eq!(get(1), Err(Errno::ENOENT));
    assert_eq!(update(1, 10, BPF_EXIST), Err(Errno::ENOENT));
    assert_eq!(update(1, 10, BPF_NOEXIST), Ok(()));
    assert_eq!(update(1, 11, BPF_NOEXIST), Err(Errno::EEXIST));
    assert_eq!(update(1, 12, BPF_EXIST), Ok(()));
    assert_eq!(update(1, 13, BPF_EXIST + 1), Err(Errno::EINVAL));
    assert_eq!(get(1), Ok(12u64.to_ne_bytes().into()));
    assert_eq!((update(2, 0, BPF_ANY), update(3, 0, BPF_ANY)), (Ok(()), Ok(())));
    assert_eq!(update(4, 0, BPF_ANY), Err(Errno::E2BIG), "full");
    assert_eq!(update(3, 1, BPF_ANY), Ok(()), "replacing needs no room");
    assert_eq!(m.delete_elem(&env, &key(2)), Ok(()));
    assert_eq!(m.delete_elem(&env, &key(2)), Err(Errno::ENOENT));
    assert_eq!(update(4, 0, BPF_ANY), Ok(()));
    assert_eq!(update(5, 0, BPF_ANY), Err(Errno::E2BIG));
    assert_eq!(m.update_elem(&env, &[0; 3], &[0; 8], BPF_ANY), Err(Errno::EINVAL), "key size");
    assert_eq!(m.update_elem(&env, &key(1), &[0; 7], BPF_ANY), Err(Errno::EINVAL), "value size");
    let mut keys = m.keys();
    keys.sort();
    assert_eq!(keys, [key(1), key(3), key(4)]);
    assert_eq!(
        m.get_next_key(None),
        m.get_next_key(Some(&key(99))),
        "after a key that is not there comes the first"
    );
}

/// A hash under random operations is what std's map is, keys of odd sizes included.
#[test]
fn hash_is_a_map() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let env = PlainEnv::default();
    for (key_size, value_size) in [(1, 1), (3, 5), (8, 8), (16, 24), (17, 40), (512, 9)] {
        let m = hash(MapType::Hash, key_size, value_size, 50);
        let mut model = BTreeMap::new();
        for _ in 0..ROUNDS / 20 {
            let mut key = vec![7; key_size as usize];
            key[key_size as usize - 1] = rng.u8(..70);
            let value: Vec<u8> = (0..value_size).map(|_| rng.u8(..)).collect();
            match rng.u8(..4) {
                0 | 1 => {
                    let room = model.len() < 50 || model.contains_key(&key);
                    let want = if room { Ok(()) } else { Err(Errno::E2BIG) };
                    assert_eq!(m.update_elem(&env, &key, &value, BPF_ANY), want);
                    if room {
                        model.insert(key, value);
                    }
                }
                2 => assert_eq!(m.delete_elem(&env, &key), model.remove(&key).map(drop).ok_or(Errno::ENOENT)),
                _ => assert_eq!(m.lookup_elem(&env, &key), model.get(&key).cloned().ok_or(Errno::ENOENT)),
            }
        }
        let mut keys = m.keys();
        keys.sort();
        assert_eq!(keys, model.into_keys().collect::<Vec<_>>());
    }
}

#[test]
fn percpu_hash_keeps_a_copy_for_each_cpu() {
    let m = hash(MapType::PercpuHash, 4, 4, 2);
    let (cpu0, cpu1) = (PlainEnv::new(0), PlainEnv::new(1));
    let p = prog(
        "*(u64 *)(r10 -8) = 5          ; the key
         *(u64 *)(r10 -16) = 100       ; the first value
         r1 = map[id:0]
         r2 = r10
         r2 += -8
         call bpf_map_lookup_elem
         if r0 == 0 goto new
         r1 = 1
         lock *(u32 *)(r0 +0) += r1
         r0 = *(u32 *)(r0 +0)
         exit
         new: r1 = map[id:0]
         r2 = r10
         r2 += -8
         r3 = r10
         r3 += -16
         r4 = 1
         call bpf_map_update_elem
         exit",
        &m,
    );
    let run = |env: &PlainEnv| bpf::run(&p, &mut [], env).unwrap();
    assert_eq!(run(&cpu1), 0, "inserted");
    assert_eq!((run(&cpu1), run(&cpu0), run(&cpu0), run(&cpu0)), (101, 1, 2, 3), "CPU 0's copy began as 0");
    let all = m.lookup_elem(&cpu0, &5u32.to_ne_bytes()).unwrap();
    assert_eq!(all, bytes(&[3, 101]), "each value rounded up to 8");
    assert_eq!(m.update_elem(&cpu0, &5u32.to_ne_bytes(), &bytes(&[7, 8]), BPF_EXIST), Ok(()));
    assert_eq!((run(&cpu0), run(&cpu1)), (8, 9));
    // A deleted element's memory is used again, and begins as new on every CPU.
    assert_eq!(m.delete_elem(&cpu0, &5u32.to_ne_bytes()), Ok(()));
    assert_eq!((run(&cpu0), run(&cpu1)), (0, 1));
}

/// Does a map operation until its bucket is free: the host may put a CPU to sleep for longer than another one waits.
fn patiently(op: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    loop {
        match op() {
            Err(Errno::EBUSY) => std::thread::yield_now(),
            other => return other,
        }
    }
}

/// Two CPUs insert, replace, find and delete their own keys in shared buckets: nothing is lost.
#[test]
fn two_cpus_on_one_hash() {
    let m = hash(MapType::Hash, 8, 16, 8);
    std::thread::scope(|s| {
        for cpu in 0..CPUS as u64 {
            let m = &m;
            s.spawn(move || {
                let env = PlainEnv::new(cpu as u32);
                for i in 0..ROUNDS {
                    let key = ((cpu << 32) | (i % 4)).to_ne_bytes();
                    let value = bytes(&[i, !i]);
                    assert_eq!(patiently(|| m.update_elem(&env, &key, &value, BPF_ANY)), Ok(()), "{i}");
                    assert_eq!(m.lookup_elem(&env, &key), Ok(value), "{i}");
                    if i % 3 == 0 {
                        assert_eq!(patiently(|| m.delete_elem(&env, &key)), Ok(()), "{i}");
                        assert_eq!(m.lookup_elem(&env, &key), Err(Errno::ENOENT), "{i}");
                    }
                }
            });
        }
    });
    // All nodes are still there: emptied, the map takes as many as it should.
    let env = PlainEnv::default();
    m.keys().iter().for_each(|k| m.delete_elem(&env, k).unwrap());
    for k in 0..9u64 {
        let want = if k < 8 { Ok(()) } else { Err(Errno::E2BIG) };
        assert_eq!(m.update_elem(&env, &k.to_ne_bytes(), &[0; 16], BPF_NOEXIST), want);
    }
}

/// A key that is only ever replaced is found at any time, while its bucket's other keys come and go.
#[test]
fn a_replaced_key_is_never_missing() {
    let m = hash(MapType::Hash, 8, 8, 2);
    let env = PlainEnv::default();
    let steady = 0u64.to_ne_bytes();
    m.update_elem(&env, &steady, &steady, BPF_ANY).unwrap();
    std::thread::scope(|s| {
        let writer = s.spawn(|| {
            let env = PlainEnv::new(1);
            for i in 1..ROUNDS {
                m.update_elem(&env, &steady, &i.to_ne_bytes(), BPF_EXIST).unwrap();
                m.update_elem(&env, &i.to_ne_bytes(), &steady, BPF_NOEXIST).unwrap();
                m.delete_elem(&env, &i.to_ne_bytes()).unwrap();
            }
        });
        while !writer.is_finished() {
            for _ in 0..100 {
                assert!(m.lookup_elem(&env, &steady).is_ok());
            }
        }
        writer.join().unwrap();
    });
}

/// What interrupts a CPU while it holds a bucket is refused at once; another CPU waits, and not for ever. The interrupt
/// comes where the map asks which CPU's copy to write, which it does with the bucket held.
#[test]
fn a_held_bucket_is_busy() {
    let m = hash(MapType::PercpuHash, 8, 8, 64);
    let update = prog(
        "r2 = r1
         r3 = r1
         r3 += 8
         r1 = map[id:0]
         r4 = 0
         call bpf_map_update_elem
         exit",
        &m,
    );
    let key = |k: u64| k.to_ne_bytes();
    let (asked, results) = (Cell::new(0), Cell::new(None));
    let env = Interrupted {
        plain: PlainEnv::default(),
        masked: Cell::new(0),
        interrupt: &|plain| {
            asked.set(asked.get() + 1);
            if asked.get() == 2 {
                let on = |env: &dyn Env, k| m.update_elem(env, &key(k), &bytes(&[5, 5]), BPF_ANY);
                let others = (1..10).filter(|&k| on(plain, k).is_ok()).count();
                let cpu1 = Interrupted { plain: PlainEnv::new(1), masked: Cell::new(0), interrupt: &|_| {} };
                let delete = m.delete_elem(plain, &key(0));
                results.set(Some((on(plain, 0), delete, on(&cpu1, 0), others)));
                assert_eq!(cpu1.masked.get(), 0, "who is refused gets its interrupts back");
                assert_eq!(m.lookup_elem(plain, &key(0)), Err(Errno::ENOENT), "readers are not held up");
            }
        },
    };
    assert_eq!(bpf::run(&update, &mut bytes(&[0, 77]), &env), Ok(0), "the interrupted update succeeds");
    let (again, delete, other_cpu, others) = results.take().unwrap();
    assert_eq!((again, delete, other_cpu), (Err(Errno::EBUSY), Err(Errno::EBUSY), Err(Errno::EBUSY)));
    assert!(others > 5, "other buckets are free: {others} of 9");
    assert_eq!(m.lookup_elem(&env.plain, &key(0)), Ok(bytes(&[77, 0])));
    assert_eq!(m.delete_elem(&env.plain, &key(0)), Ok(()), "nothing is left locked");
}

/// Interrupts are kept away exactly while a bucket is held, and programs' instrumentation around the syscall side.
#[test]
fn masks_are_paired() {
    #[derive(Default)]
    struct Counting {
        plain: PlainEnv,
        irq: Cell<i32>,
        off: Cell<i32>,
        saves: Cell<u32>,
    }
    impl Env for Counting {
        fn smp_processor_id(&self) -> u32 {
            self.plain.smp_processor_id()
        }
        fn ktime_get_ns(&self) -> u64 {
            0
        }
        fn get_prandom_u32(&self) -> u32 {
            0
        }
        fn current_pid_tgid(&self) -> u64 {
            0
        }
        fn current_comm(&self) -> [u8; 16] {
            [0; 16]
        }
        fn trace_printk(&self, _: &[u8]) {}
        fn local_irq_save(&self) -> usize {
            assert_eq!(self.off.get(), 1, "the syscall side has switched programs off");
            self.saves.set(self.saves.get() + 1);
            self.irq.set(self.irq.get() + 1);
            42
        }
        fn local_irq_restore(&self, flags: usize) {
            assert_eq!(flags, 42);
            self.irq.set(self.irq.get() - 1);
        }
        fn bpf_disable_instrumentation(&self) {
            self.off.set(self.off.get() + 1);
        }
        fn bpf_enable_instrumentation(&self) {
            self.off.set(self.off.get() - 1);
        }
    }
    let (m, env) = (hash(MapType::Hash, 4, 4, 1), Counting::default());
    let k = [1; 4];
    assert_eq!(m.update_elem(&env, &k, &k, BPF_ANY), Ok(()));
    assert_eq!(m.update_elem(&env, &k, &k, BPF_NOEXIST), Err(Errno::EEXIST));
    assert_eq!(m.update_elem(&env, &[2; 4], &k, BPF_ANY), Err(Errno::E2BIG));
    assert_eq!(m.delete_elem(&env, &k), Ok(()));
    assert_eq!(m.delete_elem(&env, &k), Err(Errno::ENOENT));
    assert!(m.lookup_elem(&env, &k).is_err());
    assert_eq!((env.irq.get(), env.off.get(), env.saves.get()), (0, 0, 5), "a lookup takes no lock");
}

/// Puts out as many bytes of its context as the context's first word says; returns the helper's result.
fn output_prog(ring: &Arc<Map>) -> Program {
    prog(
        "r3 = *(u64 *)(r1 +0)
         r2 = r1
         r2 += 8
         r1 = map[id:0]
         r4 = 0
         call bpf_ringbuf_output
         exit",
        ring,
    )
}

fn output(p: &Program, env: &dyn Env, data: &[u8]) -> u64 {
    let mut ctx = [&(data.len() as u64).to_ne_bytes(), data].concat();
    bpf::run(p, &mut ctx, env).unwrap()
}

/// Records of any size over many laps of the ring are what a queue with the same room gives.
#[test]
fn a_ring_buffer_is_a_queue() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (ring, env) = (ringbuf(4096), PlainEnv::default());
    let (p, mut queue, mut used) = (output_prog(&ring), VecDeque::new(), 0);
    let taken = |record: &[u8]| (record.len() + 8).next_multiple_of(8);
    for _ in 0..ROUNDS / 4 {
        let most = [16, 100, 4200][rng.usize(..3)];
        let record: Vec<u8> = (0..rng.usize(..most)).map(|_| rng.u8(..)).collect();
        let fits = used + taken(&record) <= 4096;
        assert_eq!(
            output(&p, &env, &record),
            if fits { 0 } else { Errno::EAGAIN.to_ret() },
            "{}",
            record.len()
        );
        if fits {
            used += taken(&record);
            queue.push_back(record);
        }
        assert_eq!(ring.ringbuf().unwrap().available(), used as u64);
        if !fits || rng.u8(..8) == 0 {
            assert_eq!(ring.ringbuf().unwrap().consume(), queue.drain(..).collect::<Vec<_>>());
            used = 0;
        }
    }
}

/// Reserves 16 bytes, asks for the time, writes the context's two words, and submits or discards by the second.
const RESERVE: &str = "
    r6 = r1
    r1 = map[id:0]
    r2 = 16
    r3 = 0
    call bpf_ringbuf_reserve
    if r0 == 0 goto full
    r7 = r0
    call bpf_ktime_get_ns
    r1 = *(u64 *)(r6 +0)
    *(u64 *)(r7 +0) = r1
    r2 = *(u64 *)(r6 +8)
    *(u64 *)(r7 +8) = r2
    r1 = r7
    if r2 != 0 goto discard
    r2 = 0
    call bpf_ringbuf_submit
    r0 = 0
    exit
    discard: r2 = 0
    call bpf_ringbuf_discard
    r0 = 1
    exit
    full: r0 = 2
    exit";

#[test]
fn reserved_records_are_submitted_or_skipped_and_hold_back_later_ones() {
    let ring = ringbuf(4096);
    let (reserve, out) = (prog(RESERVE, &ring), output_prog(&ring));
    let (r, asked) = (ring.ringbuf().unwrap(), Cell::new(0));
    // An interrupt of a run that has a record reserved puts out one of its own; the reader waits for the first.
    let env = Interrupted {
        plain: PlainEnv::default(),
        masked: Cell::new(0),
        interrupt: &|plain| {
            // First the ring's lock asks for the CPU, then the program for the time.
            asked.set(asked.get() + 1);
            if asked.get() % 2 == 0 {
                assert_eq!(output(&out, plain, b"from the interrupt"), 0);
                assert_eq!(r.consume(), Vec::<Vec<u8>>::new(), "the older record is busy");
            }
        },
    };
    assert_eq!(bpf::run(&reserve, &mut bytes(&[7, 0]), &env), Ok(0));
    assert_eq!(r.consume(), [bytes(&[7, 0]), b"from the interrupt".to_vec()]);
    assert_eq!(bpf::run(&reserve, &mut bytes(&[8, 1]), &env), Ok(1));
    assert_eq!(r.consume(), [b"from the interrupt"], "the discarded record is skipped");
    // 170 records of 24 bytes leave 16.
    let plain = PlainEnv::default();
    for _ in 0..170 {
        assert_eq!(bpf::run(&reserve, &mut bytes(&[9, 0]), &plain), Ok(0));
    }
    assert_eq!(bpf::run(&reserve, &mut bytes(&[9, 0]), &plain), Ok(2), "full");
    assert_eq!(r.consume().len(), 170);
}

/// What a program may do with a record, and what becomes of one that it does not release.
#[test]
fn misused_records_are_faults() {
    let ring = ringbuf(4096);
    let reserve = "r1 = map[id:0]\nr2 = 16\nr3 = 0\ncall bpf_ringbuf_reserve\n";
    let submit = "r1 = r0\nr2 = 0\ncall bpf_ringbuf_submit\n";
    for (text, ok) in [
        (format!("{reserve}*(u64 *)(r0 +8) = 1\n{submit}r0 = 0\nexit"), true),
        (format!("{reserve}*(u64 *)(r0 +9) = 1\n{submit}exit"), false),
        (format!("{reserve}*(u8 *)(r0 -1) = 1\n{submit}exit"), false),
        (format!("{reserve}r0 = 0\nexit"), false),
        (format!("{reserve}r0 += 8\n{submit}exit"), false),
        (format!("{reserve}r6 = r0\n{submit}*(u64 *)(r6 +0) = 1\nexit"), false),
        (format!("{reserve}r6 = r0\n{submit}r0 = r6\n{submit}exit"), false),
        ("r1 = map[id:0]\nr2 = 16\nr3 = 1\ncall bpf_ringbuf_reserve\nexit".into(), true),
        ("r1 = map[id:0]\nr2 = 4089\nr3 = 0\ncall bpf_ringbuf_reserve\nexit".into(), true),
    ] {
        let result = bpf::run(&prog(&text, &ring), &mut [], &PlainEnv::default());
        assert_eq!(result.is_ok(), ok, "{text}: {result:?}");
        assert!(result.unwrap_or(0) == 0, "{text}");
    }
    assert_eq!(
        ring.ringbuf().unwrap().consume().len(),
        3,
        "submitted ones only; the rest was discarded, not leaked"
    );
    assert_eq!(ring.ringbuf().unwrap().available(), 0);
}

/// Two CPUs fill one ring while it is read: each CPU's records come whole and in order.
#[test]
fn two_cpus_on_one_ring() {
    let ring = ringbuf(4096);
    let produce = &|cpu: u64| {
        let (p, env) = (prog(RESERVE, &ring), PlainEnv::new(cpu as u32));
        for i in 0..ROUNDS {
            // Full: the reader makes room.
            while bpf::run(&p, &mut bytes(&[(cpu << 32) | i, 0]), &env) != Ok(0) {
                std::thread::yield_now();
            }
        }
    };
    let mut records = Vec::new();
    std::thread::scope(|s| {
        let producers = [0, 1].map(|cpu| s.spawn(move || produce(cpu)));
        loop {
            let finished = producers.iter().all(|p| p.is_finished());
            let more = ring.ringbuf().unwrap().consume();
            if finished && more.is_empty() {
                break;
            }
            records.extend(more);
        }
    });
    let mut next = [0; CPUS];
    for record in records {
        let (n, zero) = (u64::from_ne_bytes(record[..8].try_into().unwrap()), &record[8..]);
        assert_eq!(zero, [0; 8]);
        let cpu = (n >> 32) as usize;
        assert_eq!(n & 0xffff_ffff, next[cpu]);
        next[cpu] += 1;
    }
    assert_eq!(next, [ROUNDS; CPUS]);
}
