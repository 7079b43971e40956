//! Helpers and arrays: what a program and what the syscall side gets, with the kernel's error numbers.

mod common;

use std::sync::Arc;

use bpf::insn::*;
use bpf::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST};
use bpf::{BpfInsn, Errno, Map, MapAttr, MapType, PlainEnv, helpers::*};
use common::{NR_CPUS, array, insns, load, machine, map, prog_array, run};

fn call(setup: &[&[BpfInsn]], id: i32, maps: Vec<Arc<Map>>) -> u64 {
    call_on(&PlainEnv::default(), setup, id, maps)
}

fn call_on(env: &PlainEnv, setup: &[&[BpfInsn]], id: i32, maps: Vec<Arc<Map>>) -> u64 {
    let p = insns(&[&insns(setup), &[emit_call(id), exit_insn()]]);
    bpf::run(&load(&p, maps), &mut [0; 64], env).unwrap()
}

/// r2 = a key of 4 bytes, r3 = a value of 8 bytes, r4 = flags, r1 = map 0.
fn update(key: i32, value: i32, flags: i32) -> Vec<BpfInsn> {
    insns(&[
        &[st_mem(BPF_W, 10, -4, key), mov64_reg(2, 10), alu64_imm(BPF_ADD, 2, -4)],
        &[st_mem(BPF_DW, 10, -16, value), mov64_reg(3, 10), alu64_imm(BPF_ADD, 3, -16), mov64_imm(4, flags)],
        &ld_map_fd(1, 0),
    ])
}

#[test]
fn the_cpu_and_the_task() {
    let env = PlainEnv::new(2);
    let ask = |id| call_on(&env, &[], id, vec![]);
    assert_eq!(ask(BPF_FUNC_GET_SMP_PROCESSOR_ID), 2);
    assert!(ask(BPF_FUNC_KTIME_GET_NS) < ask(BPF_FUNC_KTIME_GET_NS));
    assert!(ask(BPF_FUNC_KTIME_GET_NS) < ask(BPF_FUNC_KTIME_GET_BOOT_NS));
    assert_eq!(ask(BPF_FUNC_GET_CURRENT_PID_TGID), 1 << 32 | 1);
    assert_eq!(ask(BPF_FUNC_GET_CURRENT_UID_GID), 0);
    let random: Vec<_> = (0..4).map(|_| ask(BPF_FUNC_GET_PRANDOM_U32)).collect();
    assert!(random.iter().all(|&r| r <= u64::from(u32::MAX)) && random.windows(2).any(|w| w[0] != w[1]));
}

#[test]
fn the_tasks_name_is_cut_ended_and_padded() {
    for (size, want) in [
        (16, &b"progstats\0\0\0\0\0\0\0"[..]),
        (10, b"progstats\0\xaa\xaa"),
        (9, b"progstat\0\xaa"),
        (1, b"\0\xaa"),
        (20, b"progstats\0\0\0\0\0\0\0\0\0\0\0\xaa"),
    ] {
        let mut ctx = [0xaa; 32];
        let p = [mov64_imm(2, size), emit_call(BPF_FUNC_GET_CURRENT_COMM), exit_insn()];
        assert_eq!(run(&p, &mut ctx), Ok(0));
        assert_eq!(&ctx[..want.len()], want, "size {size}");
    }
}

#[test]
fn array_updates_and_lookups() {
    let env = PlainEnv::new(1);
    let err = |e: Errno| e.to_ret();
    for map_type in [MapType::Array, MapType::PercpuArray] {
        let m = map(MapAttr::array("map", 8, 3).of_type(map_type));
        for (key, flags, want) in [
            (0, BPF_ANY, 0),
            (2, BPF_EXIST, 0),
            (2, BPF_NOEXIST, err(Errno::EEXIST)),
            (3, BPF_ANY, err(Errno::E2BIG)),
            (-1, BPF_ANY, err(Errno::E2BIG)),
            (3, BPF_NOEXIST, err(Errno::E2BIG)),
            (0, 3, err(Errno::EINVAL)),
            (3, 3, err(Errno::EINVAL)),
        ] {
            let setup = update(key, key + 100, flags as i32);
            let what = format!("{map_type} {key} {flags}");
            assert_eq!(call_on(&env, &[&setup], BPF_FUNC_MAP_UPDATE_ELEM, vec![m.clone()]), want, "{what}");
            // The syscall side says the same.
            let value = vec![7; m.syscall_value_size()];
            let r = m.update_elem(&env, &(key as u32).to_ne_bytes(), &value, flags);
            assert_eq!(r.map_or_else(Errno::to_ret, |()| 0), want, "{what} (syscall)");
            call_on(&env, &[&setup], BPF_FUNC_MAP_UPDATE_ELEM, vec![m.clone()]);
        }
        let key = 2u32.to_ne_bytes();
        let mut want = vec![7u8; m.syscall_value_size()];
        let at = if map_type == MapType::Array { 0 } else { 8 }; // this CPU's copy only
        want[at..at + 8].copy_from_slice(&102u64.to_ne_bytes());
        assert_eq!(m.lookup_elem(&env, &key), Ok(want));
        assert_eq!(m.lookup_elem(&env, &3u32.to_ne_bytes()), Err(Errno::ENOENT));
        assert_eq!(m.lookup_elem(&env, &[0; 3]), Err(Errno::EINVAL));
        assert_eq!(m.update_elem(&env, &key, &[0; 7], 0), Err(Errno::EINVAL));
        assert_eq!(m.delete_elem(&env, &key), Err(Errno::EINVAL));
        assert_eq!(call(&[&update(2, 0, 0)], BPF_FUNC_MAP_DELETE_ELEM, vec![m.clone()]), err(Errno::EINVAL));
        assert_eq!(call(&[&update(3, 0, 0)], BPF_FUNC_MAP_LOOKUP_ELEM, vec![m.clone()]), 0);
        assert_ne!(call(&[&update(2, 0, 0)], BPF_FUNC_MAP_LOOKUP_ELEM, vec![m.clone()]), 0);
        let keys: Vec<_> = m.keys().iter().map(|k| u32::from_ne_bytes(*k.first_chunk().unwrap())).collect();
        assert_eq!(keys, [0, 1, 2]);
        assert_eq!(m.get_next_key(Some(&key)), Err(Errno::ENOENT));
        assert_eq!(m.get_next_key(Some(&9u32.to_ne_bytes())), Ok(vec![0; 4]));
    }
}

#[test]
fn another_cpus_copy() {
    let m = map(MapAttr::array("map", 8, 1).of_type(MapType::PercpuArray));
    let values: Vec<u8> = (1..=NR_CPUS as u64).flat_map(|v| (10 * v).to_ne_bytes()).collect();
    m.update_elem(&PlainEnv::default(), &[0; 4], &values, 0).unwrap();
    for cpu in -1..=NR_CPUS as i32 {
        let p = insns(&[
            &update(0, 0, 0),
            &[mov64_imm(3, cpu), emit_call(BPF_FUNC_MAP_LOOKUP_PERCPU_ELEM)],
            &[jmp_imm(BPF_JEQ, 0, 0, 1), ldx_mem(BPF_DW, 0, 0, 0), exit_insn()],
        ]);
        let want = if (0..NR_CPUS as i32).contains(&cpu) { 10 * (cpu as u64 + 1) } else { 0 };
        assert_eq!(bpf::run(&load(&p, vec![m.clone()]), &mut [], &PlainEnv::new(2)), Ok(want), "CPU {cpu}");
    }
}

#[test]
fn maps_that_cannot_be_made() {
    let m = machine();
    let create = |attr| Map::create(1, attr, m.pcpu()).map(|_| ()).unwrap_err();
    let attr = |value_size, entries| MapAttr::array("map", value_size, entries);
    for map_type in [MapType::Array, MapType::PercpuArray] {
        assert_eq!(create(attr(8, 0).of_type(map_type)), Errno::EINVAL);
        assert_eq!(create(attr(0, 1).of_type(map_type)), Errno::EINVAL);
        assert_eq!(create(attr(8, 1).of_type(map_type).with_key_size(8)), Errno::EINVAL);
        assert_eq!(create(attr(8, 1).of_type(map_type).with_flags(1 << 20)), Errno::EINVAL);
        assert_eq!(create(attr(u32::MAX, 1).of_type(map_type)), Errno::E2BIG);
    }
    assert_eq!(create(attr((32 << 10) + 1, 1).of_type(MapType::PercpuArray)), Errno::E2BIG);
    assert_eq!(create(attr(8, 1).of_type(MapType::ProgArray)), Errno::EINVAL);
    m.pcpu().fail_nth(1);
    assert_eq!(create(attr(8, 1).of_type(MapType::PercpuArray)), Errno::ENOMEM);
    assert_eq!(m.pcpu().used(), 0);
}

#[test]
fn program_arrays_hold_programs() {
    let m = prog_array(2);
    let prog = Arc::new(load(&[mov64_imm(0, 0), exit_insn()], vec![]));
    let slots = m.prog_array().unwrap();
    assert_eq!(slots.update(2, prog.clone()), Err(Errno::E2BIG));
    assert_eq!(slots.delete(1), Err(Errno::ENOENT));
    assert_eq!(slots.update(1, prog.clone()), Ok(()));
    assert_eq!((slots.id_at(1), slots.id_at(0), slots.id_at(2)), (Some(prog.id()), None, None));
    let env = PlainEnv::default();
    assert_eq!(m.lookup_elem(&env, &1u32.to_ne_bytes()), Ok(prog.id().to_ne_bytes().to_vec()));
    assert_eq!(m.lookup_elem(&env, &0u32.to_ne_bytes()), Err(Errno::ENOENT));
    assert_eq!(m.delete_elem(&env, &1u32.to_ne_bytes()), Ok(()));
    assert_eq!(slots.id_at(1), None);
}

#[test]
fn probe_read_copies_or_zeroes() {
    // From the context to the stack and back; then from nowhere.
    let p = |from: BpfInsn| {
        [
            mov64_reg(6, 1),
            st_mem(BPF_DW, 10, -8, -1),
            mov64_reg(1, 10),
            alu64_imm(BPF_ADD, 1, -8),
            mov64_imm(2, 4),
            from,
            emit_call(BPF_FUNC_PROBE_READ_KERNEL),
            ldx_mem(BPF_DW, 1, 10, -8),
            stx_mem(BPF_DW, 6, 1, 0),
            exit_insn(),
        ]
    };
    let mut ctx = [1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(run(&p(mov64_reg(3, 6)), &mut ctx), Ok(0));
    assert_eq!(ctx, [1, 2, 3, 4, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(run(&p(mov64_imm(3, 64)), &mut ctx), Ok(Errno::EFAULT.to_ret()));
    assert_eq!(ctx, [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
}

/// Prints with the format and the arguments; returns r0 and the line.
fn print(fmt: &[u8], args: [u64; 3]) -> (i64, Option<String>) {
    let mut ctx = [0; 300];
    ctx[..fmt.len()].copy_from_slice(fmt);
    let args: Vec<BpfInsn> = args.iter().zip(3..).flat_map(|(&v, reg)| ld_imm64(reg, v)).collect();
    let p = insns(&[&args, &[mov64_imm(2, fmt.len() as i32), emit_call(BPF_FUNC_TRACE_PRINTK), exit_insn()]]);
    let env = PlainEnv::default();
    let r0 = bpf::run(&load(&p, vec![]), &mut ctx, &env).unwrap();
    (r0 as i64, env.trace.drain().pop().map(|l| String::from_utf8(l).unwrap()))
}

#[test]
fn trace_printk_formats_as_the_kernel() {
    let m5 = -5i64 as u64;
    for (fmt, args, want) in [
        ("plain", [0; 3], "plain"),
        ("", [0; 3], ""),
        ("%d %u %x", [m5, m5, m5], "-5 4294967291 fffffffb"),
        ("%ld %lu %lx", [m5, m5, m5], "-5 18446744073709551611 fffffffffffffffb"),
        ("%lld %i %llX", [m5, 7, 0xab], "-5 7 AB"),
        ("100%% of %4d|%04d", [3, 3, 0], "100% of    3|0003"),
        ("%05d|%-4d|%+d", [m5, 7, 7], "-0005|7   |+7"),
        ("%p", [0xabc, 0, 0], "0000000000000abc"),
        ("%c%c", [65, 66, 0], "AB"),
        ("[%s]", [64, 0, 0], "[]"), // no memory of the program
        ("tab\tline\n", [0; 3], "tab\tline\n"),
        ("%u", [u64::MAX << 32, 0, 0], "0"),
    ] {
        let fmt = format!("{fmt}\0");
        assert_eq!(print(fmt.as_bytes(), args), (want.len() as i64, Some(want.into())), "{fmt:?}");
    }
    let einval = -i64::from(Errno::EINVAL.number());
    for bad in ["no end", "%d %d %d %d\0", "%\0", "%q\0", "\u{1}\0", "%l\0", "%lld%\0"] {
        assert_eq!(print(bad.as_bytes(), [0; 3]), (einval, None), "{bad:?}");
    }
    // A line is cut, and its length is not.
    let (len, line) = print(b"%200d%200d\0", [1, 2, 0]);
    assert_eq!((len, line.unwrap().len()), (400, bpf::trace::LINE_MAX));
}

#[test]
fn trace_printk_prints_strings_of_the_program() {
    let mut ctx = *b"<%s>\0\0\0\0text\0\0\0\0";
    let p = [mov64_reg(3, 1), alu64_imm(BPF_ADD, 3, 8), mov64_imm(2, 5), emit_call(6), exit_insn()];
    let env = PlainEnv::default();
    assert_eq!(bpf::run(&load(&p, vec![]), &mut ctx, &env), Ok(6));
    assert_eq!(env.trace.drain(), [b"<text>"]);
}

fn ring() -> Arc<Map> {
    map(MapAttr::array("ring", 0, 4096).of_type(MapType::Ringbuf).with_key_size(0))
}

#[test]
fn ring_buffer_records() {
    let ring = ring();
    // Reserves 8 bytes, writes r3's value, and submits or discards.
    let p = |value, end| {
        insns(&[
            &ld_map_fd(1, 0),
            &[mov64_imm(2, 8), mov64_imm(3, 0), emit_call(BPF_FUNC_RINGBUF_RESERVE)],
            &[jmp_imm(BPF_JNE, 0, 0, 2), mov64_imm(0, 1), exit_insn()],
            &[st_mem(BPF_DW, 0, 0, value), mov64_reg(1, 0), mov64_imm(2, 0), emit_call(end)],
            &[mov64_imm(0, 0), exit_insn()],
        ])
    };
    let env = PlainEnv::default();
    let go = |p: &[BpfInsn]| bpf::run(&load(p, vec![ring.clone()]), &mut [9; 8], &env);
    assert_eq!(go(&p(1, BPF_FUNC_RINGBUF_SUBMIT)), Ok(0));
    assert_eq!(go(&p(2, BPF_FUNC_RINGBUF_DISCARD)), Ok(0));
    let output = insns(&[
        &[mov64_reg(2, 1), mov64_imm(3, 8), mov64_imm(4, 0)],
        &ld_map_fd(1, 0),
        &[emit_call(BPF_FUNC_RINGBUF_OUTPUT), exit_insn()],
    ]);
    assert_eq!(go(&output), Ok(0));
    let records = ring.ringbuf().unwrap().consume();
    assert_eq!(records, [1u64.to_ne_bytes().to_vec(), vec![9; 8]]);
    // What was given away is out of reach.
    let mut after = p(3, BPF_FUNC_RINGBUF_SUBMIT);
    after.truncate(after.len() - 4);
    after.extend([mov64_reg(6, 1), mov64_imm(2, 0), emit_call(132), st_mem(BPF_B, 6, 0, 0), exit_insn()]);
    let f = go(&after).unwrap_err();
    assert!(matches!(f.kind, bpf::FaultKind::OutOfBounds { write: true, .. }), "{f}");
    // A record may be given back once, by its start; and must be.
    let why = |p: &[BpfInsn]| go(p).unwrap_err().kind.to_string();
    let not_held = "helper ringbuf_submit#132: r1 is not a record that the program holds";
    assert_eq!(why(&[mov64_imm(2, 0), emit_call(132), exit_insn()]), not_held);
    let kept = insns(&[&ld_map_fd(1, 0), &[mov64_imm(2, 8), mov64_imm(3, 0), emit_call(131), exit_insn()]]);
    assert_eq!(why(&kept), "a ring buffer record was neither submitted nor discarded");
    // It was discarded, so the reader is not stuck behind it.
    ring.ringbuf().unwrap().consume();
    assert_eq!(go(&output), Ok(0));
    assert_eq!(ring.ringbuf().unwrap().consume(), [vec![9; 8]]);
}

#[test]
fn a_fault_can_explain_itself() {
    let p = insns(&[&ld_map_fd(2, 0), &[mov64_imm(1, 0), ldx_mem(BPF_B, 0, 1, 0), exit_insn()]]);
    let prog = load(&p, vec![array(1)]);
    let mut ctx = [0; 8];
    let f = bpf::run(&prog, &mut ctx, &PlainEnv::default()).unwrap_err();
    assert_eq!(f.to_string(), "insn 3: invalid read of 1 byte at 0x0");
    let explained = f.explain(&prog, &ctx);
    assert!(
        explained.contains("in reach: context 0x")
            && explained.contains("values of map 'array' (8 bytes each)")
    );
}
