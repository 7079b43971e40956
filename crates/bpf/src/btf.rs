//! As much of BTF as loading needs: sizes of types, and map definitions. Mirrors `struct btf_header`, `struct btf_type`
//! (include/uapi/linux/btf.h, v6.6) and libbpf's `parse_btf_map_def`.
//!
//! Hostile input ends in an error: every offset is checked, every chain of types is followed to a bounded depth.

use std::fmt;

/// Chains of types (typedef of const of array of ...) are followed this far. Kernel: `MAX_RESOLVE_DEPTH`.
const MAX_DEPTH: usize = 32;

const MAGIC: u16 = 0xeb9f;
const KIND_INT: u32 = 1;
const KIND_PTR: u32 = 2;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_RESTRICT: u32 = 11;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_FLOAT: u32 = 16;
const KIND_DECL_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// What is wrong with some BTF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BtfError(pub(crate) String);

impl fmt::Display for BtfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BTF: {}", self.0)
    }
}

fn fail<T>(reason: impl Into<String>) -> Result<T, BtfError> {
    Err(BtfError(reason.into()))
}

/// A type's fixed part, and where the rest of it begins.
#[derive(Clone, Copy, Debug)]
struct Type {
    name: u32,
    kind: u32,
    vlen: u32,
    /// The size in bytes, or another type's number.
    size_or_type: u32,
    rest: usize,
}

/// The types of an object, by number; number 0 is void.
#[derive(Debug)]
pub(crate) struct Btf<'d> {
    data: &'d [u8],
    strings: &'d [u8],
    types: Vec<Type>,
}

/// A map's definition: the fields that were there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BtfMap {
    pub(crate) map_type: u32,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    pub(crate) map_flags: u32,
}

/// A CO-RE relocation: which section and byte, and what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CoreRelo {
    pub(crate) section: String,
    pub(crate) offset: u32,
    pub(crate) type_name: String,
    pub(crate) access: String,
}

impl<'d> Btf<'d> {
    /// Reads the section `.BTF`.
    pub(crate) fn parse(data: &'d [u8]) -> Result<Self, BtfError> {
        if u16_at(data, 0)? != MAGIC {
            return fail("the magic number is wrong");
        }
        let header = u32_at(data, 4)?;
        let part = |off: usize| -> Result<&'d [u8], BtfError> {
            let from = u64::from(header) + u64::from(u32_at(data, off)?);
            let to = from + u64::from(u32_at(data, off + 4)?);
            let found = usize::try_from(from).ok().zip(usize::try_from(to).ok());
            found
                .and_then(|(from, to)| data.get(from..to))
                .ok_or(BtfError("a part is out of the section".into()))
        };
        let (data, strings) = (part(8)?, part(16)?);
        let void = Type { name: 0, kind: 0, vlen: 0, size_or_type: 0, rest: 0 };
        let mut btf = Self { data, strings, types: vec![void] };
        let mut at = 0;
        while at < data.len() {
            let info = u32_at(data, at + 4)?;
            let t = Type {
                name: u32_at(data, at)?,
                kind: (info >> 24) & 0x1f,
                vlen: info & 0xffff,
                size_or_type: u32_at(data, at + 8)?,
                rest: at + 12,
            };
            let each = t.vlen as usize;
            at = t.rest
                + match t.kind {
                    KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
                    KIND_ARRAY => 12,
                    KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => 12 * each,
                    KIND_ENUM | KIND_FUNC_PROTO => 8 * each,
                    kind if (1..=KIND_ENUM64).contains(&kind) => 0,
                    kind => return fail(format!("type {} is of unknown kind {kind}", btf.types.len())),
                };
            btf.types.push(t);
        }
        Ok(btf)
    }

    /// The definition of the map called `name`, if the types have one.
    pub(crate) fn map(&self, name: &str) -> Result<Option<BtfMap>, BtfError> {
        for &t in self.types.iter().filter(|t| t.kind == KIND_VAR) {
            if self.string(t.name)? == name {
                return self.map_def(name, t.size_or_type).map(Some);
            }
        }
        Ok(None)
    }

    fn map_def(&self, map: &str, id: u32) -> Result<BtfMap, BtfError> {
        let t = self.resolve(id)?;
        if t.kind != KIND_STRUCT {
            return fail(format!("map '{map}' is not a struct"));
        }
        let mut def = BtfMap::default();
        for i in 0..t.vlen as usize {
            let at = t.rest + 12 * i;
            let field = self.string(u32_at(self.data, at)?)?;
            let id = u32_at(self.data, at + 4)?;
            // Numbers are the lengths of arrays, types are pointed to: see libbpf's `__uint` and `__type`.
            match field {
                "type" => def.map_type = self.number(id)?,
                "key_size" => def.key_size = self.number(id)?,
                "value_size" => def.value_size = self.number(id)?,
                "max_entries" => def.max_entries = self.number(id)?,
                "map_flags" => def.map_flags = self.number(id)?,
                "key" => def.key_size = self.size_of(self.pointee(id)?)?,
                "value" => def.value_size = self.size_of(self.pointee(id)?)?,
                // Where a map is pinned, and on which node it lives, does not matter here.
                "pinning" | "numa_node" => {}
                other => return fail(format!("map '{map}' has field '{other}', which is not supported")),
            }
        }
        Ok(def)
    }

    /// The number that a pointer to an array stands for by the array's length.
    fn number(&self, id: u32) -> Result<u32, BtfError> {
        let t = self.resolve(self.pointee(id)?)?;
        if t.kind == KIND_ARRAY {
            u32_at(self.data, t.rest + 8)
        } else {
            fail("a map's field is not a number")
        }
    }

    fn pointee(&self, id: u32) -> Result<u32, BtfError> {
        let t = self.resolve(id)?;
        if t.kind == KIND_PTR { Ok(t.size_or_type) } else { fail("a map's field is not a pointer") }
    }

    /// The size of a type in bytes.
    fn size_of(&self, id: u32) -> Result<u32, BtfError> {
        let (mut id, mut count) = (id, 1u32);
        for _ in 0..MAX_DEPTH {
            let t = self.resolve(id)?;
            let size = match t.kind {
                KIND_INT | KIND_STRUCT | KIND_UNION | KIND_ENUM | KIND_ENUM64 | KIND_FLOAT => t.size_or_type,
                KIND_PTR => 8,
                KIND_ARRAY => {
                    id = u32_at(self.data, t.rest)?;
                    let len = u32_at(self.data, t.rest + 8)?;
                    count = count.checked_mul(len).ok_or(BtfError("a type is too large".into()))?;
                    continue;
                }
                _ => return fail(format!("type {id} has no size")),
            };
            return size.checked_mul(count).ok_or(BtfError("a type is too large".into()));
        }
        fail("types are nested too deeply")
    }

    /// A type without typedefs and qualifiers.
    fn resolve(&self, mut id: u32) -> Result<Type, BtfError> {
        for _ in 0..MAX_DEPTH {
            let &t = self.types.get(id as usize).ok_or_else(|| BtfError(format!("there is no type {id}")))?;
            match t.kind {
                KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => {
                    id = t.size_or_type
                }
                _ => return Ok(t),
            }
        }
        fail("types are nested too deeply")
    }

    fn string(&self, off: u32) -> Result<&'d str, BtfError> {
        let rest = self.strings.get(off as usize..).unwrap_or_default();
        let len = rest.iter().position(|&b| b == 0);
        let text = len.and_then(|len| std::str::from_utf8(&rest[..len]).ok());
        text.ok_or_else(|| BtfError(format!("there is no string at {off}")))
    }

    /// The CO-RE relocations of the section `.BTF.ext`.
    pub(crate) fn core_relos(&self, ext: &[u8]) -> Result<Vec<CoreRelo>, BtfError> {
        if u16_at(ext, 0)? != MAGIC {
            return fail("the magic number of .BTF.ext is wrong");
        }
        let header = u32_at(ext, 4)? as usize;
        // Older headers end before the relocations' place.
        if header < 32 {
            return Ok(Vec::new());
        }
        let (off, len) = (u32_at(ext, 24)? as usize, u32_at(ext, 28)? as usize);
        if len == 0 {
            return Ok(Vec::new());
        }
        let from = header.saturating_add(off);
        let Some(part) = ext.get(from..from.saturating_add(len)) else {
            return fail("the CO-RE relocations are out of .BTF.ext");
        };
        let record = u32_at(part, 0)? as usize;
        if record < 16 {
            return fail("CO-RE relocations are too short");
        }
        let (mut relos, mut at) = (Vec::new(), 4);
        while at < part.len() {
            let section = self.string(u32_at(part, at)?)?;
            let count = u32_at(part, at + 4)?;
            at += 8;
            for _ in 0..count {
                let id = u32_at(part, at + 4)?;
                let t =
                    self.types.get(id as usize).ok_or_else(|| BtfError(format!("there is no type {id}")))?;
                relos.push(CoreRelo {
                    section: section.into(),
                    offset: u32_at(part, at)?,
                    type_name: self.string(t.name)?.into(),
                    access: self.string(u32_at(part, at + 8)?)?.into(),
                });
                at = at.saturating_add(record);
            }
        }
        Ok(relos)
    }
}

fn u16_at(data: &[u8], at: usize) -> Result<u16, BtfError> {
    let bytes = data.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map(|b| u16::from_le_bytes(*b)).ok_or(BtfError("it ends too early".into()))
}

fn u32_at(data: &[u8], at: usize) -> Result<u32, BtfError> {
    let bytes = data.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map(|b| u32::from_le_bytes(*b)).ok_or(BtfError("it ends too early".into()))
}
