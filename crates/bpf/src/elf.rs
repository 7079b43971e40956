//! Objects from clang (`-target bpf`): programs, maps, global data. Mirrors what libbpf does before `bpf(2)`
//! (`bpf_object__open`, `bpf_object__relocate`, tools/lib/bpf/libbpf.c, v6.6).
//!
//! 1. Functions are found by their symbols. Those outside `.text` are programs, by section; if there are none, those in it.
//! 2. Maps are those of the sections `.maps` (defined by BTF) and `maps` (legacy structs), then one array for each section
//!    of global data: `.rodata*` (read-only for programs), `.data*`, `.bss*`.
//! 3. Each program is linked: the functions it calls, wherever they are, are placed behind it, and calls and references to
//!    maps and data are filled in. Maps are named by index ([`ld_map_idx`]), so the list of maps is the load's table.
//!
//! Refused by name: CO-RE relocations, functions of the kernel and other externs, addresses of functions, addresses in
//! initialised data. Hostile files end in an error: `object` reads the file, all offsets are checked, and what may be
//! linked in all is bounded.
//!
//! Differs: maps of global data have their section's name (libbpf puts the object's before it).

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use object::elf::{EM_BPF, ET_REL, SHF_EXECINSTR, SHT_NOBITS, SHT_PROGBITS};
use object::read::elf::ElfFile64;
use object::{
    LittleEndian, Object as _, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionFlags,
    SectionIndex, SymbolIndex, SymbolKind,
};
use percpu::Pcpu;

use crate::btf::{Btf, BtfMap, CoreRelo};
use crate::env::PlainEnv;
use crate::insn::*;
use crate::maps::{BPF_ANY, BPF_F_MMAPABLE, BPF_F_RDONLY_PROG, Map, MapAttr, MapType};
use crate::prog_type::ProgType;

/// Instructions that all programs of an object may have together.
const MAX_LINKED: usize = MAX_INSNS;
/// Bytes that the maps of an object may take together, each CPU's values counted once.
const MAX_MAP_BYTES: u64 = 1 << 30;
/// Bytes that a section of global data may take.
const MAX_DATA_BYTES: u64 = 64 << 20;

/// A 64-bit immediate. LLVM: llvm/BinaryFormat/ELFRelocs/BPF.def.
const R_BPF_64_64: u32 = 1;
/// A call.
const R_BPF_64_32: u32 = 10;

/// Why an object was refused, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElfError(String);

impl fmt::Display for ElfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ElfError {}

fn fail<T>(reason: impl Into<String>) -> Result<T, ElfError> {
    Err(ElfError(reason.into()))
}

/// What an object holds.
#[derive(Clone, Debug)]
pub struct Object {
    /// The programs, by section and place.
    pub programs: Vec<ObjectProgram>,
    /// The maps, in the order of the programs' map indices.
    pub maps: Vec<MapDef>,
    /// The license; empty if it gives none.
    pub license: String,
}

/// A program of an object, linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectProgram {
    /// The function's name.
    pub name: String,
    /// The section's name.
    pub section: String,
    /// The type that the section's name tells.
    pub prog_type: ProgType,
    /// The instructions; maps by index.
    pub insns: Vec<BpfInsn>,
}

/// A map to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapDef {
    /// What it is made from.
    pub attr: MapAttr,
    /// What its one value holds at first, if not zeroes.
    pub data: Option<Vec<u8>>,
}

impl Object {
    /// Reads and links an object.
    ///
    /// # Errors
    /// [`ElfError`]: what is wrong with the file, or not supported.
    pub fn parse(data: &[u8]) -> Result<Self, ElfError> {
        check_header(data)?;
        let file =
            ElfFile64::<LittleEndian>::parse(data).map_err(|e| ElfError(format!("damaged ELF file: {e}")))?;
        Linker::new(&file)?.link()
    }

    /// The program of this name, or the one in the section of this name.
    ///
    /// # Errors
    /// If there is none, or a section has several: the error names those there are.
    pub fn program(&self, name: &str) -> Result<&ObjectProgram, ElfError> {
        if let Some(p) = self.programs.iter().find(|p| p.name == name) {
            return Ok(p);
        }
        let in_section: Vec<_> = self.programs.iter().filter(|p| p.section == name).collect();
        let names = |of: &[&ObjectProgram]| of.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
        match in_section[..] {
            [p] => Ok(p),
            [] => {
                let there: Vec<_> =
                    self.programs.iter().map(|p| format!("{} in {}", p.name, p.section)).collect();
                let there = if there.is_empty() { "none".into() } else { there.join(", ") };
                fail(format!("no program or section '{name}'; there are: {there}"))
            }
            ref several => {
                fail(format!("section '{name}' has several programs, name one: {}", names(several)))
            }
        }
    }

    /// Makes the maps, with ids from `first_id`. The result is the `maps` to load the programs with.
    ///
    /// # Errors
    /// If a map cannot be made.
    pub fn create_maps(&self, first_id: u32, pcpu: &Pcpu) -> Result<Vec<Arc<Map>>, ElfError> {
        let env = PlainEnv::default();
        let create = |(id, def): (u32, &MapDef)| {
            let refuse = |e| ElfError(format!("map '{}': {e}", def.attr.name));
            let map = Map::create(id, def.attr.clone(), pcpu).map_err(refuse)?;
            if let Some(data) = &def.data {
                map.update_elem(&env, &0u32.to_ne_bytes(), data, BPF_ANY).map_err(refuse)?;
            }
            Ok(map)
        };
        (first_id..).zip(&self.maps).map(create).collect()
    }
}

/// The first bytes, so that a wrong kind of file is named in one sentence.
fn check_header(data: &[u8]) -> Result<(), ElfError> {
    if !data.starts_with(b"\x7fELF") {
        return fail("not an ELF file");
    }
    let Some(&[class, order]) = data.get(4..6).and_then(|b| b.first_chunk()) else {
        return fail("the ELF file ends in its header");
    };
    if class != 2 {
        return fail("a 32-bit ELF file: eBPF objects are 64-bit");
    }
    if order != 1 {
        return fail("a big-endian ELF file: only little-endian eBPF objects are supported");
    }
    let Some(&[kind, machine]) = data.get(16..20).map(|b| [[b[0], b[1]], [b[2], b[3]]]).as_ref() else {
        return fail("the ELF file ends in its header");
    };
    let machine = u16::from_le_bytes(machine);
    if machine != EM_BPF.0 {
        return fail(format!("an ELF file for machine {machine}, not for eBPF ({})", EM_BPF.0));
    }
    if u16::from_le_bytes(kind) != ET_REL.0 {
        return fail("not a relocatable object file");
    }
    Ok(())
}

/// A section as far as it matters.
struct Section<'d> {
    index: SectionIndex,
    name: &'d str,
    data: &'d [u8],
    size: u64,
    has_relocations: bool,
}

struct Symbol<'d> {
    name: &'d str,
    section: Option<SectionIndex>,
    address: u64,
    size: u64,
    kind: SymbolKind,
    is_global: bool,
}

/// A function: `len` instructions of a section.
struct Function {
    name: String,
    section: SectionIndex,
    start: usize,
    len: usize,
    is_global: bool,
}

/// What an instruction refers to.
#[derive(Clone, Copy)]
struct Reference {
    kind: u32,
    symbol: SymbolIndex,
}

struct Linker<'d> {
    sections: Vec<Section<'d>>,
    symbols: HashMap<SymbolIndex, Symbol<'d>>,
    section_names: HashMap<SectionIndex, &'d str>,
    /// Instructions of executable sections.
    code: HashMap<SectionIndex, Vec<BpfInsn>>,
    references: HashMap<(SectionIndex, usize), Reference>,
    functions: Vec<Function>,
    by_start: HashMap<(SectionIndex, usize), usize>,
    maps: Vec<MapDef>,
    /// Maps by the section and offset of their definition.
    map_at: HashMap<(SectionIndex, u64), usize>,
    /// Maps of global data.
    data_map: HashMap<SectionIndex, usize>,
    /// CO-RE relocations by section and byte.
    core: BTreeMap<(String, u64), CoreRelo>,
}

impl<'d> Linker<'d> {
    fn new(file: &ElfFile64<'d, LittleEndian>) -> Result<Self, ElfError> {
        let mut l = Self {
            sections: Vec::new(),
            symbols: HashMap::new(),
            section_names: HashMap::new(),
            code: HashMap::new(),
            references: HashMap::new(),
            functions: Vec::new(),
            by_start: HashMap::new(),
            maps: Vec::new(),
            map_at: HashMap::new(),
            data_map: HashMap::new(),
            core: BTreeMap::new(),
        };
        l.read_symbols(file)?;
        l.read_sections(file)?;
        l.read_functions()?;
        l.read_maps()?;
        Ok(l)
    }

    fn read_symbols(&mut self, file: &ElfFile64<'d, LittleEndian>) -> Result<(), ElfError> {
        for s in file.symbols() {
            let name = s.name().map_err(|e| ElfError(format!("damaged symbol table: {e}")))?;
            let symbol = Symbol {
                name,
                section: s.section_index(),
                address: s.address(),
                size: s.size(),
                kind: s.kind(),
                is_global: s.is_global(),
            };
            self.symbols.insert(s.index(), symbol);
        }
        Ok(())
    }

    fn read_sections(&mut self, file: &ElfFile64<'d, LittleEndian>) -> Result<(), ElfError> {
        for s in file.sections() {
            let damaged = |e| ElfError(format!("damaged section {}: {e}", s.index().0));
            let (name, data) = (s.name().map_err(damaged)?, s.data().map_err(damaged)?);
            self.section_names.insert(s.index(), name);
            let header = s.elf_section_header();
            let sh_type = header.sh_type.get(LittleEndian);
            let SectionFlags::Elf { sh_flags, .. } = s.flags() else { continue };
            let is_code = sh_type == SHT_PROGBITS && sh_flags.0 & SHF_EXECINSTR.0 != 0 && !data.is_empty();
            if is_code {
                let Some(insns) = from_bytes(data) else {
                    return fail(format!("section '{name}' is not a whole number of instructions"));
                };
                for (offset, r) in s.relocations() {
                    self.add_reference(name, s.index(), insns.len(), offset, &r)?;
                }
                self.code.insert(s.index(), insns);
            } else if sh_type == SHT_NOBITS || sh_type == SHT_PROGBITS {
                let has_relocations = s.relocations().next().is_some();
                self.sections.push(Section { index: s.index(), name, data, size: s.size(), has_relocations });
            }
        }
        Ok(())
    }

    fn add_reference(
        &mut self,
        name: &str,
        section: SectionIndex,
        insns: usize,
        offset: u64,
        r: &object::Relocation,
    ) -> Result<(), ElfError> {
        let RelocationFlags::Elf { r_type } = r.flags() else { return Ok(()) };
        let RelocationTarget::Symbol(symbol) = r.target() else {
            return fail(format!("section '{name}': the relocation at {offset:#x} is of no symbol"));
        };
        let at = usize::try_from(offset / 8).unwrap_or(usize::MAX);
        if !offset.is_multiple_of(8) || at >= insns {
            return fail(format!("section '{name}': the relocation at {offset:#x} is not of an instruction"));
        }
        self.references.insert((section, at), Reference { kind: r_type.0, symbol });
        Ok(())
    }

    fn read_functions(&mut self) -> Result<(), ElfError> {
        for s in self.symbols.values().filter(|s| s.kind == SymbolKind::Text) {
            let Some((section, code)) = s.section.and_then(|i| self.code.get_key_value(&i)) else { continue };
            let end = s.address.checked_add(s.size).filter(|end| end / 8 <= code.len() as u64);
            let (true, true, Some(end)) = (s.address.is_multiple_of(8), s.size.is_multiple_of(8), end) else {
                return fail(format!("function '{}' is out of its section", s.name));
            };
            // In bounds of the code, so these fit.
            let (start, len) = ((s.address / 8) as usize, ((end - s.address) / 8) as usize);
            if len > 0 {
                let function =
                    Function { name: s.name.into(), section: *section, start, len, is_global: s.is_global };
                self.functions.push(function);
            }
        }
        self.functions.sort_by(|a, b| {
            let key = |f: &Function| (f.section.0, f.start, f.len);
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        for pair in self.functions.windows(2) {
            if pair[0].section == pair[1].section && pair[0].start + pair[0].len > pair[1].start {
                return fail(format!("functions '{}' and '{}' overlap", pair[0].name, pair[1].name));
            }
        }
        self.by_start = self.functions.iter().enumerate().map(|(i, f)| ((f.section, f.start), i)).collect();
        Ok(())
    }

    fn read_maps(&mut self) -> Result<(), ElfError> {
        let section = |name: &str| self.sections.iter().find(|s| s.name == name);
        let btf = match section(".BTF") {
            Some(s) => Some(Btf::parse(s.data).map_err(|e| ElfError(e.to_string()))?),
            None => None,
        };
        if let (Some(btf), Some(ext)) = (&btf, section(".BTF.ext")) {
            let relos = btf.core_relos(ext.data).map_err(|e| ElfError(e.to_string()))?;
            self.core = relos.into_iter().map(|r| ((r.section.clone(), r.offset.into()), r)).collect();
        }
        let mut defs = Vec::new();
        for s in self.sections.iter().filter(|s| matches!(s.name, ".maps" | "maps")) {
            if s.has_relocations {
                return fail(format!("section '{}' has maps with initial contents: not supported", s.name));
            }
            let mut symbols: Vec<_> = self.symbols.values().filter(|y| y.section == Some(s.index)).collect();
            symbols
                .retain(|y| matches!(y.kind, SymbolKind::Data | SymbolKind::Unknown) && !y.name.is_empty());
            symbols.sort_by_key(|y| (y.address, y.name));
            for y in &symbols {
                let def = match (s.name, &btf) {
                    (".maps", Some(btf)) => btf
                        .map(y.name)
                        .map_err(|e| ElfError(e.to_string()))?
                        .ok_or_else(|| ElfError(format!("map '{}' is not in the BTF", y.name)))?,
                    (".maps", None) => return fail("section '.maps' without BTF: compile with -g"),
                    _ => legacy_map(s, y, s.data.len() / symbols.len())?,
                };
                defs.push((Some(y.address), s.index, map_def(y.name, def)?));
            }
        }
        for s in &self.sections {
            let is =
                |name: &str| s.name == name || s.name.strip_prefix(name).is_some_and(|r| r.starts_with('.'));
            if s.size > 0 && (is(".rodata") || is(".data") || is(".bss")) {
                defs.push((None, s.index, data_map(s, is(".rodata"))?));
            }
        }
        for (offset, section, def) in defs {
            match offset {
                Some(offset) => self.map_at.insert((section, offset), self.maps.len()),
                None => self.data_map.insert(section, self.maps.len()),
            };
            self.maps.push(def);
        }
        let total = self.maps.iter().fold(0, |sum: u64, m| sum.saturating_add(bytes_of(&m.attr)));
        if total > MAX_MAP_BYTES {
            return fail(format!("the maps would take {total} bytes, more than the {MAX_MAP_BYTES} allowed"));
        }
        Ok(())
    }

    fn link(self) -> Result<Object, ElfError> {
        let mut entries: Vec<_> =
            self.functions.iter().filter(|f| f.is_global && self.section_name(f) != ".text").collect();
        if entries.is_empty() {
            entries = self.functions.iter().filter(|f| f.is_global).collect();
        }
        if entries.is_empty() {
            return fail("the object has no programs");
        }
        let (mut programs, mut total) = (Vec::new(), 0);
        for f in entries {
            let insns = self.link_program(f, MAX_LINKED - total)?;
            total += insns.len();
            let section = self.section_name(f);
            let prog_type = ProgType::from_section(section);
            programs.push(ObjectProgram { name: f.name.clone(), section: section.into(), prog_type, insns });
        }
        let license = self.sections.iter().find(|s| s.name == "license").map_or(&[][..], |s| s.data);
        let license = license.split(|&b| b == 0).next().unwrap_or_default();
        Ok(Object { programs, license: String::from_utf8_lossy(license).into_owned(), maps: self.maps })
    }

    /// A program's function and those it calls, in one piece.
    fn link_program(&self, entry: &Function, room: usize) -> Result<Vec<BpfInsn>, ElfError> {
        let first = self.by_start[&(entry.section, entry.start)];
        let mut out: Vec<BpfInsn> = Vec::new();
        let (mut placed, mut order) = (HashMap::from([(first, 0)]), vec![first]);
        let mut calls = Vec::new();
        let mut next = 0;
        while let Some(&at) = order.get(next) {
            next += 1;
            let f = &self.functions[at];
            if f.len > room.saturating_sub(out.len()) {
                return fail(format!("the programs have more than {MAX_LINKED} instructions together"));
            }
            self.refuse_core(f)?;
            let base = out.len();
            placed.insert(at, base);
            out.extend(&self.code[&f.section][f.start..f.start + f.len]);
            let mut i = 0;
            while i < f.len {
                let insn = out[base + i];
                let reference = self.references.get(&(f.section, f.start + i));
                if insn.is_ld_imm64() {
                    if let Some(r) = reference {
                        self.fill_immediate(f, r, &mut out[base + i..])?;
                    }
                    i += 1;
                } else if is_call(insn) {
                    let callee = self.callee(f, i, insn, reference)?;
                    calls.push((base + i, callee));
                    if let Entry::Vacant(unplaced) = placed.entry(callee) {
                        // Its turn comes; until then the number does not matter.
                        unplaced.insert(0);
                        order.push(callee);
                    }
                } else if let Some(r) = reference {
                    let name = self.symbols.get(&r.symbol).map_or("", |s| s.name);
                    return fail(format!("function '{}' refers to '{name}' in an unknown way", f.name));
                }
                i += 1;
            }
        }
        for (at, callee) in calls {
            // Both are below MAX_INSNS.
            out[at].imm = placed[&callee] as i32 - at as i32 - 1;
        }
        Ok(out)
    }

    fn refuse_core(&self, f: &Function) -> Result<(), ElfError> {
        let at = |insn: usize| (self.section_name(f).to_string(), insn as u64 * 8);
        match self.core.range(at(f.start)..at(f.start + f.len)).next() {
            Some((_, r)) => fail(format!(
                "function '{}' needs a CO-RE relocation of '{}' (access {}), which is not supported",
                f.name, r.type_name, r.access
            )),
            None => Ok(()),
        }
    }

    /// The function that a call goes to.
    fn callee(
        &self,
        f: &Function,
        i: usize,
        insn: BpfInsn,
        r: Option<&Reference>,
    ) -> Result<usize, ElfError> {
        let (section, target, name) = match r {
            None => (f.section, (f.start + i) as i64 + 1 + i64::from(insn.imm), ""),
            Some(r) => {
                let s = self.symbol(f, r)?;
                if r.kind != R_BPF_64_32 {
                    return fail(format!("function '{}': relocation of kind {} is unknown", f.name, r.kind));
                }
                let Some(section) = s.section else {
                    let name = s.name;
                    return fail(format!(
                        "function '{}' calls '{name}', which the object does not have",
                        f.name
                    ));
                };
                (section, (s.address / 8) as i64 + i64::from(insn.imm) + 1, s.name)
            }
        };
        let found = usize::try_from(target).ok().and_then(|t| self.by_start.get(&(section, t)));
        found.copied().ok_or_else(|| {
            let at = f.start + i;
            ElfError(format!(
                "function '{}', instruction {at}: it calls no function's beginning ({name})",
                f.name
            ))
        })
    }

    /// Fills in a 64-bit immediate that refers to a map or to global data.
    fn fill_immediate(&self, f: &Function, r: &Reference, slots: &mut [BpfInsn]) -> Result<(), ElfError> {
        let s = self.symbol(f, r)?;
        let [first, second, ..] = slots else {
            return fail(format!("function '{}' ends in the middle of an instruction", f.name));
        };
        if r.kind != R_BPF_64_64 {
            return fail(format!("function '{}': relocation of kind {} is unknown", f.name, r.kind));
        }
        let Some(section) = s.section else {
            return fail(format!(
                "function '{}' refers to '{}', which the object does not have",
                f.name, s.name
            ));
        };
        let offset = s.address.wrapping_add(u64::from(first.imm as u32));
        let (map, src, off) = if let Some(&map) = self.map_at.get(&(section, offset)) {
            (map, BPF_PSEUDO_MAP_IDX, 0)
        } else if let Some(&map) = self.data_map.get(&section) {
            let Ok(off) = u32::try_from(offset) else {
                return fail(format!("function '{}' refers behind the data of '{}'", f.name, s.name));
            };
            (map, BPF_PSEUDO_MAP_IDX_VALUE, off as i32)
        } else if self.code.contains_key(&section) {
            return fail(format!("function '{}' takes the address of a function ('{}')", f.name, s.name));
        } else {
            return fail(format!(
                "function '{}' refers to '{}', which is neither map nor data",
                f.name, s.name
            ));
        };
        // There are fewer maps than symbols and sections, which 32 bits number.
        *first = BpfInsn::new(first.code, first.dst_reg(), src, first.off, map as i32);
        second.imm = off;
        Ok(())
    }

    fn section_name(&self, f: &Function) -> &'d str {
        self.section_names.get(&f.section).copied().unwrap_or_default()
    }

    fn symbol(&self, f: &Function, r: &Reference) -> Result<&Symbol<'d>, ElfError> {
        let found = self.symbols.get(&r.symbol);
        found.ok_or_else(|| ElfError(format!("function '{}' refers to a symbol that is not there", f.name)))
    }
}

fn is_call(i: BpfInsn) -> bool {
    i.code == BPF_JMP | BPF_CALL && i.src_reg() == BPF_PSEUDO_CALL
}

/// A map of the section `maps`: a struct whose first five words are known. Each takes as much as the others.
fn legacy_map(s: &Section<'_>, y: &Symbol<'_>, size: usize) -> Result<BtfMap, ElfError> {
    let at = usize::try_from(y.address).unwrap_or(usize::MAX);
    let Some(bytes) = s.data.get(at..at.saturating_add(size)).filter(|b| b.len() >= 20) else {
        return fail(format!("map '{}' is out of its section", y.name));
    };
    let (words, rest) = bytes.as_chunks::<4>();
    if words[5..].as_flattened().iter().chain(rest).any(|&b| b != 0) {
        return fail(format!("map '{}' uses fields beyond map_flags: not supported", y.name));
    }
    let word = |i: usize| u32::from_le_bytes(words[i]);
    Ok(BtfMap {
        map_type: word(0),
        key_size: word(1),
        value_size: word(2),
        max_entries: word(3),
        map_flags: word(4),
    })
}

fn map_def(name: &str, def: BtfMap) -> Result<MapDef, ElfError> {
    let BtfMap { map_type, key_size, value_size, max_entries, map_flags } = def;
    let Some(map_type) = MapType::from_number(map_type) else {
        return fail(format!("map '{name}' is of type {map_type}, which is not supported"));
    };
    let attr = MapAttr { map_type, key_size, value_size, max_entries, map_flags, name: name.into() };
    Ok(MapDef { attr, data: None })
}

/// About what a map takes: keys and values, and what a hash adds to each.
fn bytes_of(attr: &MapAttr) -> u64 {
    let each = match attr.map_type {
        MapType::Ringbuf => 3,
        MapType::Array | MapType::PercpuArray | MapType::ProgArray => u64::from(attr.value_size) + 8,
        MapType::Hash | MapType::PercpuHash => u64::from(attr.key_size) + u64::from(attr.value_size) + 40,
    };
    u64::from(attr.max_entries).saturating_mul(each)
}

fn data_map(s: &Section<'_>, read_only: bool) -> Result<MapDef, ElfError> {
    if s.has_relocations {
        return fail(format!("section '{}' holds addresses, which are not supported", s.name));
    }
    let size = u32::try_from(s.size).ok().filter(|&n| u64::from(n) <= MAX_DATA_BYTES);
    let Some(size) = size else {
        return fail(format!("section '{}' has more than {MAX_DATA_BYTES} bytes", s.name));
    };
    let flags = if read_only { BPF_F_RDONLY_PROG | BPF_F_MMAPABLE } else { BPF_F_MMAPABLE };
    // Without file contents (.bss) it is zeroes.
    let data = (!s.data.is_empty()).then(|| s.data.to_vec());
    Ok(MapDef { attr: MapAttr::array(s.name, size, 1).with_flags(flags), data })
}
