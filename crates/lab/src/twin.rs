//! The same program bytes in both worlds: a program of the simulation, brought to the running kernel with maps like its
//! own.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bpf::{BpfInsn, PlainEnv, Program, insn};
use host::{Insn, Load, ProgType};

/// A program of the running kernel, and its maps in the order of the simulation's.
pub(crate) struct Twin {
    pub(crate) prog: host::Prog,
    _maps: Vec<host::Map>,
}

impl Twin {
    /// Loads `program` there; its maps start with the same contents.
    ///
    /// # Errors
    /// If a map is of a kind that is not made there, or what the kernel answers.
    pub(crate) fn load(program: &Program, prog_type: ProgType, name: &str) -> Result<Self> {
        let maps = twin_maps(program.maps())?;
        let prog = load_with(program.insns(), &maps, prog_type, name)?;
        Ok(Self { prog, _maps: maps })
    }
}

/// Maps like these, in their order; arrays with the same contents.
///
/// # Errors
/// As [`Twin::load`].
pub(crate) fn twin_maps(maps: &[Arc<bpf::Map>]) -> Result<Vec<host::Map>> {
    maps.iter().map(|map| twin_map(map)).collect()
}

/// Loads instructions that name `maps` by position.
///
/// # Errors
/// What the kernel answers.
pub(crate) fn load_with(
    insns: &[BpfInsn],
    maps: &[host::Map],
    prog_type: ProgType,
    name: &str,
) -> Result<host::Prog, host::Error> {
    let insns = for_host(insns);
    let maps: Vec<&host::Map> = maps.iter().collect();
    Load::new(prog_type, name, &insns).with_maps(&maps).load()
}

/// The instructions in the form in which the kernel takes a map's position: `BPF_PSEUDO_MAP_FD` and its like become
/// `BPF_PSEUDO_MAP_IDX`. All else is the same bytes.
fn for_host(insns: &[BpfInsn]) -> Vec<Insn> {
    const BY_POSITION: u8 = insn::BPF_PSEUDO_MAP_IDX - insn::BPF_PSEUDO_MAP_FD;
    let mut second = false;
    let each = |insn: &BpfInsn| {
        let mut insn = *insn;
        let names_map = [insn::BPF_PSEUDO_MAP_FD, insn::BPF_PSEUDO_MAP_VALUE].contains(&insn.src_reg());
        if insn.is_ld_imm64() && !second && names_map {
            insn.regs += BY_POSITION << 4;
        }
        second = insn.is_ld_imm64() && !second;
        Insn { code: insn.code, regs: insn.regs, off: insn.off, imm: insn.imm }
    };
    insns.iter().map(each).collect()
}

fn twin_map(map: &bpf::Map) -> Result<host::Map> {
    let map_type = match map.map_type() {
        bpf::MapType::Hash => host::MapType::Hash,
        bpf::MapType::Array => host::MapType::Array,
        bpf::MapType::PercpuHash => host::MapType::PercpuHash,
        bpf::MapType::PercpuArray => host::MapType::PercpuArray,
        bpf::MapType::Ringbuf => host::MapType::Ringbuf,
        other => bail!("map {} is a {other}, which is not made in this kernel here", map.name()),
    };
    let [key, value, entries] = [map.key_size(), map.value_size(), map.max_entries()];
    let twin = host::Map::create(map_type, map.name(), key, value, entries)?;
    if map.map_type() == bpf::MapType::Array {
        for index in 0..entries {
            let key = index.to_ne_bytes();
            let value =
                map.lookup_elem(&PlainEnv::default(), &key).context("an array has all its elements")?;
            if value.iter().any(|&b| b != 0) {
                twin.update(&key, &value)?;
            }
        }
    }
    Ok(twin)
}
