//! What the tests share.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::sync::Arc;

use bpf::insn::*;
use bpf::{BpfInsn, Fault, Map, MapAttr, MapType, PlainEnv, Program, RunOpts};
use percpu::{Machine, Native, Topology};

/// CPUs of the machine that per-CPU maps are made for.
pub(crate) const NR_CPUS: usize = 3;

/// A machine, for its per-CPU memory.
pub(crate) fn machine() -> Machine<Native> {
    Machine::new(Topology::smp(NR_CPUS), Default::default(), |_| ()).unwrap()
}

/// A map without a machine that outlives it: per-CPU memory is shared by handle.
pub(crate) fn map(attr: MapAttr) -> Arc<Map> {
    Map::create(1, attr, machine().pcpu()).unwrap()
}

/// An array with values of 8 bytes.
pub(crate) fn array(entries: u32) -> Arc<Map> {
    map(MapAttr::array("array", 8, entries))
}

/// An empty program array.
pub(crate) fn prog_array(entries: u32) -> Arc<Map> {
    map(MapAttr::array("progs", 4, entries).of_type(MapType::ProgArray))
}

/// The first word of an array's element.
pub(crate) fn word(map: &Map, index: u32) -> u64 {
    let value = map.lookup_elem(&PlainEnv::default(), &index.to_ne_bytes()).unwrap();
    u64::from_ne_bytes(*value.first_chunk().unwrap())
}

/// A program from parts.
pub(crate) fn insns(parts: &[&[BpfInsn]]) -> Vec<BpfInsn> {
    parts.concat()
}

/// Loads a program that must load.
pub(crate) fn load(insns: &[BpfInsn], maps: Vec<Arc<Map>>) -> Program {
    Program::load("test", insns, maps).unwrap_or_else(|e| panic!("{e}\n{insns:x?}"))
}

/// Runs a program on memory; few enough instructions that a loop without end is seen.
pub(crate) fn run(insns: &[BpfInsn], mem: &mut [u8]) -> Result<u64, Fault> {
    let opts = RunOpts { budget: 1 << 20, ..RunOpts::default() };
    bpf::run_with(&load(insns, vec![]), mem, &PlainEnv::default(), opts)
}

/// `dst = v`, in the shortest form.
pub(crate) fn set(dst: u8, v: u64) -> Vec<BpfInsn> {
    match i32::try_from(v as i64) {
        Ok(imm) => vec![mov64_imm(dst, imm)],
        Err(_) => ld_imm64(dst, v).to_vec(),
    }
}
