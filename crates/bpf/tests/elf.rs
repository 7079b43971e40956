//! Objects from clang: what is in them, that their programs run, what is refused, and that no file of any kind panics.
//! The objects are built from their sources by `objects/build.sh`.

use std::sync::Arc;

use bpf::elf::Object;
use bpf::maps::{BPF_F_MMAPABLE, BPF_F_RDONLY_PROG};
use bpf::prog_type::ProgType;
use bpf::{Map, MapType, PlainEnv, Program};
use percpu::{Machine, Native, Pcpu, Topology};

const BTF_MAPS: &[u8] = include_bytes!("objects/btf_maps.o");
const LEGACY_MAPS: &[u8] = include_bytes!("objects/legacy_maps.o");
const CORE: &[u8] = include_bytes!("objects/core.o");
const EXTERN: &[u8] = include_bytes!("objects/extern.o");
const I386: &[u8] = include_bytes!("objects/i386.o");
const X86_64: &[u8] = include_bytes!("objects/x86_64.o");

fn pcpu() -> Pcpu {
    Machine::<Native>::new(Topology::smp(2), Default::default(), |_| ()).unwrap().pcpu().clone()
}

fn load(object: &Object, name: &str, maps: &[Arc<Map>]) -> Program {
    Program::load(name, &object.program(name).unwrap().insns, maps.to_vec()).unwrap()
}

fn run(prog: &Program, args: [u64; 2], env: &PlainEnv) -> u64 {
    let mut ctx: Vec<u8> = args.iter().flat_map(|a| a.to_ne_bytes()).collect();
    bpf::run(prog, &mut ctx, env).unwrap()
}

fn map<'a>(maps: &'a [Arc<Map>], name: &str) -> &'a Map {
    maps.iter().find(|m| m.name() == name).unwrap_or_else(|| panic!("no map {name}"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn an_objects_contents() {
    let o = Object::parse(BTF_MAPS).unwrap();
    let programs: Vec<_> = o.programs.iter().map(|p| (&*p.name, &*p.section, p.prog_type)).collect();
    assert_eq!(
        programs,
        [
            ("count", "raw_tracepoint/sys_enter", ProgType::RawTracepoint),
            ("calls_functions", "socket", ProgType::SocketFilter),
            ("event", "raw_tp/event", ProgType::RawTracepoint),
        ]
    );
    let maps: Vec<_> = o
        .maps
        .iter()
        .map(|m| &m.attr)
        .map(|a| (&*a.name, a.map_type, a.key_size, a.value_size, a.max_entries, a.map_flags))
        .collect();
    assert_eq!(
        maps,
        [
            ("calls", MapType::Hash, 4, 8, 64, 0),
            ("per_cpu", MapType::PercpuArray, 4, 16, 4, 0),
            ("events", MapType::Ringbuf, 0, 0, 4096, 0),
            ("fixed", MapType::Array, 4, 16, 2, BPF_F_RDONLY_PROG),
            (".rodata", MapType::Array, 4, 22, 1, BPF_F_RDONLY_PROG | BPF_F_MMAPABLE),
            (".data", MapType::Array, 4, 8, 1, BPF_F_MMAPABLE),
            (".bss", MapType::Array, 4, 8, 1, BPF_F_MMAPABLE),
            (".rodata.cst16", MapType::Array, 4, 16, 1, BPF_F_RDONLY_PROG | BPF_F_MMAPABLE),
        ]
    );
    assert_eq!(o.license, "GPL");
}

#[test]
fn a_program_with_btf_maps_and_global_data_runs() {
    let (o, env) = (Object::parse(BTF_MAPS).unwrap(), PlainEnv::default());
    let maps = o.create_maps(10, &pcpu()).unwrap();
    assert_eq!(maps.iter().map(|m| m.id()).collect::<Vec<_>>(), (10..18).collect::<Vec<_>>());
    let count = load(&o, "count", &maps);
    for call in [1, 7, 7] {
        assert_eq!(run(&count, [0, call], &env), 0);
    }
    let calls = map(&maps, "calls");
    assert_eq!(calls.lookup_elem(&env, &1u32.to_ne_bytes()), Ok(1u64.to_ne_bytes().into()));
    assert_eq!(calls.lookup_elem(&env, &7u32.to_ne_bytes()), Ok(2u64.to_ne_bytes().into()));
    let first = 0u32.to_ne_bytes();
    let per_cpu = map(&maps, "per_cpu").lookup_elem(&env, &first).unwrap();
    assert_eq!(
        (u64_at(&per_cpu, 0), per_cpu[8], u64_at(&per_cpu, 16)),
        (3, 7, 0),
        "CPU 0's copy, and CPU 1's"
    );
    // total begins at 40 and grows by step, 3; runs begins at 0.
    assert_eq!(map(&maps, ".data").lookup_elem(&env, &first), Ok(49u64.to_ne_bytes().into()));
    assert_eq!(map(&maps, ".bss").lookup_elem(&env, &first), Ok(3u64.to_ne_bytes().into()));
}

#[test]
fn functions_of_the_text_section_are_linked_in() {
    let o = Object::parse(BTF_MAPS).unwrap();
    let maps = o.create_maps(1, &pcpu()).unwrap();
    let prog = load(&o, "calls_functions", &maps);
    // thrice(x) = twice(x) + x = 2 x + 3 + x; hidden = { 1, 2, 3, 4 }.
    assert_eq!(run(&prog, [100, 2], &PlainEnv::default()), 303 + 3);
    assert_eq!(run(&prog, [0, 7], &PlainEnv::default()), 3 + 4);
}

/// The format is in `.rodata` behind something else, so its reference has an offset.
#[test]
fn strings_and_ring_buffers_are_found() {
    let (o, env) = (Object::parse(BTF_MAPS).unwrap(), PlainEnv::default());
    let maps = o.create_maps(1, &pcpu()).unwrap();
    assert_eq!(run(&load(&o, "count", &maps), [0, 1], &env), 0);
    assert_eq!(run(&load(&o, "event", &maps), [42, 0], &env), 0);
    assert_eq!(env.trace.drain(), [b"event 42 of 1\n"]);
    let record = [42u64, 1].map(u64::to_ne_bytes).concat();
    assert_eq!(map(&maps, "events").ringbuf().unwrap().consume(), [record]);
}

#[test]
fn a_legacy_object_runs_and_several_programs_share_a_section() {
    let (o, env) = (Object::parse(LEGACY_MAPS).unwrap(), PlainEnv::default());
    let maps = o.create_maps(1, &pcpu()).unwrap();
    assert_eq!(o.license, "Dual BSD/GPL");
    assert_eq!(map(&maps, "starts").map_type(), MapType::Hash);
    let (enter, leave) = (load(&o, "enter", &maps), load(&o, "leave", &maps));
    assert_eq!(run(&leave, [0, 0], &env), 0, "nothing has begun");
    assert_eq!(run(&enter, [0, 0], &env), 0);
    assert_eq!(run(&leave, [0, 0], &env), 1);
    let sum = map(&maps, "counters").lookup_elem(&env, &1u32.to_ne_bytes()).unwrap();
    assert_ne!(u64_at(&sum, 0), 0);
    assert_eq!(
        o.program("kprobe/do_work").unwrap_err().to_string(),
        "section 'kprobe/do_work' has several programs, name one: enter, leave"
    );
}

/// The section `maps` of an object, its first map's number of elements changed.
fn with_max_entries(n: u32) -> Vec<u8> {
    let fields = |n: u32| [2, 4, 8, n].map(u32::to_le_bytes).concat();
    let mut data = LEGACY_MAPS.to_vec();
    let at = data.windows(16).position(|w| w == fields(2)).unwrap();
    data[at..at + 16].copy_from_slice(&fields(n));
    data
}

#[test]
fn maps_larger_than_memory_are_refused() {
    assert!(Object::parse(&with_max_entries(1 << 20)).is_ok());
    assert_eq!(
        Object::parse(&with_max_entries(u32::MAX)).unwrap_err().to_string(),
        "the maps would take 68719477616 bytes, more than the 1073741824 allowed"
    );
}

#[test]
fn refusals_say_what_is_wrong() {
    let mut truncated = BTF_MAPS[..3000].to_vec();
    let mut big_endian = BTF_MAPS.to_vec();
    big_endian[5] = 2;
    // The relocation of the call at offset 0x10 of the section "socket".
    let call = [0x10u64, 0xd_0000_000a].map(u64::to_le_bytes).concat();
    let at = BTF_MAPS.windows(16).position(|w| w == call).unwrap();
    let (mut misplaced, mut unknown) = (BTF_MAPS.to_vec(), BTF_MAPS.to_vec());
    misplaced[at] = 0x11;
    unknown[at + 8] = 3;
    let mut executable = BTF_MAPS.to_vec();
    executable[16] = 2;
    for (data, want) in [
        (&b""[..], "not an ELF file"),
        (b"#!/bin/sh", "not an ELF file"),
        (b"\x7fELF\x02", "the ELF file ends in its header"),
        (b"\x7fELF\x02\x01\x01\0\0", "the ELF file ends in its header"),
        (I386, "a 32-bit ELF file: eBPF objects are 64-bit"),
        (X86_64, "an ELF file for machine 62, not for eBPF (247)"),
        (&big_endian, "a big-endian ELF file: only little-endian eBPF objects are supported"),
        (&executable, "not a relocatable object file"),
        (&misplaced, "section 'socket': the relocation at 0x11 is not of an instruction"),
        (&unknown, "function 'calls_functions': relocation of kind 3 is unknown"),
        (&truncated, "damaged ELF file: Invalid ELF section header offset/size/alignment"),
        (
            CORE,
            "function 'read_pid' needs a CO-RE relocation of 'task_struct' (access 0:0), which is not supported",
        ),
        (EXTERN, "function 'calls_it' calls 'bpf_frob', which the object does not have"),
    ] {
        assert_eq!(Object::parse(data).unwrap_err().to_string(), want);
    }
    truncated.truncate(40);
    assert!(Object::parse(&truncated).unwrap_err().to_string().starts_with("damaged ELF file"));
    let o = Object::parse(BTF_MAPS).unwrap();
    assert_eq!(
        o.program("xdp").unwrap_err().to_string(),
        "no program or section 'xdp'; there are: count in raw_tracepoint/sys_enter, calls_functions in socket, event in \
         raw_tp/event"
    );
}

/// Mutated objects are read or refused; what is read is loaded or refused, and what is loaded runs or faults.
#[test]
fn mutated_objects_never_panic() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (pcpu, env) = (pcpu(), PlainEnv::default());
    let (mut read, mut loaded) = (0, 0);
    for round in 0..if cfg!(debug_assertions) { 5_000 } else { 100_000 } {
        let mut data = [BTF_MAPS, LEGACY_MAPS, CORE, EXTERN][round % 4].to_vec();
        mutate(&mut rng, &mut data);
        let Ok(object) = Object::parse(&data) else { continue };
        read += 1;
        // Maps may be as large as they like to be; small ones are made.
        let bytes = |m: &bpf::elf::MapDef| {
            let entry = u64::from(m.attr.key_size) + u64::from(m.attr.value_size);
            u64::from(m.attr.max_entries).saturating_mul(entry)
        };
        if object.maps.iter().any(|m| bytes(m) > 1 << 16 || m.attr.max_entries > 1 << 13) {
            continue;
        }
        let Ok(maps) = object.create_maps(1, &pcpu) else { continue };
        for p in &object.programs {
            if let Ok(prog) = Program::load(&p.name, &p.insns, maps.clone()) {
                loaded += 1;
                let opts = bpf::RunOpts { budget: 10_000, ..Default::default() };
                let _ = bpf::run_with(&prog, &mut [0; 16], &env, opts);
            }
        }
    }
    println!("{read} objects read, {loaded} programs loaded");
    assert!(read > 500 && loaded > 500, "the mutations are too wild to test anything: {read}, {loaded}");
}

fn mutate(rng: &mut fastrand::Rng, data: &mut Vec<u8>) {
    for _ in 0..rng.usize(1..6) {
        let at = rng.usize(..data.len());
        match rng.u8(..6) {
            0 => data[at] ^= 1 << rng.u8(..8),
            1 => data[at] = rng.u8(..),
            2 => data[at] = *rng.choice(&[0, 1, 0x7f, 0x80, 0xff]).unwrap(),
            3 => {
                // A whole field.
                let (at, n) = (at & !3, rng.choice(&[0u32, 1, 8, u32::MAX, 0x7fff_ffff, 0x1000]).unwrap());
                if let Some(field) = data.get_mut(at..at + 4) {
                    field.copy_from_slice(&n.to_le_bytes());
                }
            }
            4 => {
                // A piece of the file over another.
                let len = rng.usize(1..64).min(data.len() - at);
                let from = rng.usize(..=data.len() - len);
                data.copy_within(from..from + len, at);
            }
            _ if rng.u8(..16) == 0 => data.truncate(at.max(1)),
            _ => {}
        }
    }
}
