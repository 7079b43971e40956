//! Types of the running kernel by name, from `/sys/kernel/btf/vmlinux`. Mirrors include/uapi/linux/btf.h.

use crate::errno::Errno;
use crate::error::Error;

/// Where the kernel shows its types.
pub const PATH: &str = "/sys/kernel/btf/vmlinux";

const BTF_MAGIC: u16 = 0xeb9f;

/// `BTF_KIND_STRUCT`
const STRUCT: u32 = 4;

/// `BTF_KIND_FUNC`
const FUNC: u32 = 12;

/// The id of the struct `name`, if the running kernel has it.
///
/// # Errors
/// If the file cannot be read, or is not BTF that we know.
pub fn struct_id(name: &str) -> Result<Option<u32>, Error> {
    id(STRUCT, name)
}

/// The id of the function `name`, if the running kernel has it.
///
/// # Errors
/// As [`struct_id`].
pub fn func_id(name: &str) -> Result<Option<u32>, Error> {
    id(FUNC, name)
}

fn id(kind: u32, name: &str) -> Result<Option<u32>, Error> {
    let bytes = std::fs::read(PATH).map_err(|e| Error::new(format!("read {PATH}"), e.into()))?;
    find(&bytes, kind, name)
        .ok_or_else(|| Error::new(format!("{PATH} has a form that is not known"), Errno::EINVAL))
}

/// The id of the type `name` of this kind in `btf`, if it is there; `None` if this is not BTF.
fn find(btf: &[u8], wanted: u32, name: &str) -> Option<Option<u32>> {
    let word = |at: usize| Some(u32::from_ne_bytes(*btf.get(at..)?.first_chunk()?));
    if u16::from_ne_bytes(*btf.first_chunk()?) != BTF_MAGIC {
        return None;
    }
    let at = |field: usize| Some(word(4)? as usize + word(field)? as usize);
    let (types, strings) = (at(8)?, at(16)?);
    let end = types + word(12)? as usize;
    let (mut at, mut id) = (types, 1);
    while at < end {
        let info = word(at + 4)?;
        let (kind, vlen) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        if kind == wanted {
            let start = btf.get(strings + word(at)? as usize..)?;
            if start.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0)) {
                return Some(Some(id));
            }
        }
        // What follows a type: by its kind, once or for each member.
        at += 12
            + match kind {
                // pointers, forwards, typedefs, qualifiers, functions, floats, type tags
                2 | 7..=12 | 16 | 18 => 0,
                // integers, variables, declaration tags
                1 | 14 | 17 => 4,
                // arrays
                3 => 12,
                // structs, unions, sections, 64-bit enums
                4 | 5 | 15 | 19 => 12 * vlen,
                // enums, prototypes
                6 | 13 => 8 * vlen,
                _ => return None,
            };
        id += 1;
    }
    Some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An int, a struct `ab` of one member and a struct `a`.
    fn small() -> Vec<u8> {
        let strings = b"\0ab\0a\0";
        let types =
            [[1, 1 << 24, 4, 0x20].as_slice(), &[1, 4 << 24 | 1, 4, 0, 1, 0], &[4, 4 << 24, 0]].concat();
        let len = types.len() as u32 * 4;
        let header = [u32::from(BTF_MAGIC) | 1 << 16, 24, 0, len, len, strings.len() as u32];
        let words = header.iter().chain(&types).flat_map(|w| w.to_ne_bytes());
        words.chain(*strings).collect()
    }

    #[test]
    fn structs_by_name() {
        let btf = small();
        assert_eq!(find(&btf, STRUCT, "ab"), Some(Some(2)));
        assert_eq!(find(&btf, STRUCT, "a"), Some(Some(3)));
        assert_eq!(find(&btf, STRUCT, "b"), Some(None));
    }

    #[test]
    fn damaged() {
        let btf = small();
        assert_eq!(find(b"", STRUCT, "a"), None);
        assert_eq!(find(&btf[..40], STRUCT, "a"), None);
        for at in 0..btf.len() {
            let mut btf = btf.clone();
            btf[at] ^= 0xff;
            find(&btf, STRUCT, "a"); // no panic
        }
    }
}
