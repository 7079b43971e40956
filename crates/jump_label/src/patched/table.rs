//! The table of sites: the linker gathers an entry of each, and it is copied once, sorted. Kernel: `jump_label_init`,
//! `jump_label_sort_entries`.

use std::sync::OnceLock;

use crate::StaticKeyFalse;

/// The size of a site: a no-op or a jump. Kernel: `JUMP_LABEL_NOP_SIZE`.
pub(super) const SIZE: usize = 5;
/// Off. Kernel: `BYTES_NOP5`.
const NOP: [u8; SIZE] = [0x0f, 0x1f, 0x44, 0x00, 0x00];
/// On: this, and how far from the end of the jump.
const JMP: u8 = 0xe9;

/// A place in the text where a key is tested.
#[derive(Debug)]
pub struct Site {
    code: usize,
    target: usize,
    key: &'static StaticKeyFalse,
}

impl Site {
    /// The address of the site's instruction.
    pub fn code(&self) -> usize {
        self.code
    }

    /// The address of what is executed if the key is on.
    pub fn target(&self) -> usize {
        self.target
    }

    /// The site's instruction as it is now: a no-op, a jump, or, in the middle of a flip, anything behind an int3.
    pub fn bytes(&self) -> [u8; SIZE] {
        // SAFETY: the text at a site is mapped and readable for as long as the program, and these are bytes. They may change
        // at any time, by no thread of Rust's machine: hence volatile.
        std::array::from_fn(|i| unsafe {
            std::ptr::with_exposed_provenance::<u8>(self.code + i).read_volatile()
        })
    }

    /// The site's instruction if its key is `on`.
    pub(super) fn instruction(&self, on: bool) -> [u8; SIZE] {
        if !on {
            return NOP;
        }
        let distance = self.target.wrapping_sub(self.code + SIZE) as u32;
        let [a, b, c, d] = distance.to_le_bytes();
        [JMP, a, b, c, d]
    }

    /// Where who comes by goes on.
    pub(super) fn next(&self) -> usize {
        if self.key.enabled() { self.target } else { self.code + SIZE }
    }
}

/// What [`crate::static_branch_unlikely!`] leaves of a site: distances from each field. Kernel: `struct jump_entry`.
#[repr(C)]
struct JumpEntry {
    code: i32,
    target: i32,
    key: i64,
}

impl JumpEntry {
    /// The site.
    ///
    /// # Safety
    /// It is an entry in its place.
    unsafe fn site(&self) -> Site {
        let at = |field: usize, distance: i64| field.wrapping_add_signed(distance as isize);
        let key = at((&raw const self.key).addr(), self.key);
        Site {
            code: at((&raw const self.code).addr(), self.code.into()),
            target: at((&raw const self.target).addr(), self.target.into()),
            // SAFETY: the macro makes entries of statics of this type alone.
            key: unsafe { &*std::ptr::with_exposed_provenance(key) },
        }
    }
}

static TABLE: OnceLock<Box<[Site]>> = OnceLock::new();

/// The sites of the program, by address; made by the first call.
fn table() -> &'static [Site] {
    TABLE.get_or_init(|| {
        // SAFETY: these are entries, in their places.
        let mut sites: Vec<Site> = entries().iter().map(|entry| unsafe { entry.site() }).collect();
        sites.sort_unstable_by_key(|site| site.code);
        sites.into()
    })
}

/// Makes the table: what may not allocate finds it from here on.
pub(super) fn init() {
    table();
}

/// The site at an address.
///
/// Context: any; async-signal-safe, since it only looks at what [`init`] has made.
pub(super) fn site_at(code: usize) -> Option<&'static Site> {
    let table = TABLE.get()?;
    table.binary_search_by_key(&code, |site| site.code).ok().map(|i| &table[i])
}

/// The sites of `key`, by address.
pub(crate) fn sites_of(key: &'static StaticKeyFalse) -> impl Iterator<Item = &'static Site> {
    table().iter().filter(move |site| std::ptr::eq(site.key, key))
}

/// The entries as the linker has gathered them.
fn entries() -> &'static [JumpEntry] {
    crate::define_static_key_false!(static NEVER);
    // So that there is an entry, and with it the section, whatever else the program has.
    let _ = crate::static_branch_unlikely!(NEVER);
    let (start, stop): (*const JumpEntry, *const JumpEntry);
    // SAFETY: takes two addresses, which the linker gives to a section of this name.
    unsafe {
        std::arch::asm!(
            ".hidden __start___jump_table",
            ".hidden __stop___jump_table",
            "lea {start}, [rip + __start___jump_table]",
            "lea {stop}, [rip + __stop___jump_table]",
            start = out(reg) start,
            stop = out(reg) stop,
            options(nomem, nostack, pure, preserves_flags),
        );
        // SAFETY: the section holds entries and nothing else, and lives as long as the program.
        std::slice::from_raw_parts(start, stop.offset_from(start) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_finds_each_site() {
        let table = table();
        assert!(!table.is_empty());
        assert!(table.is_sorted_by(|a, b| a.code < b.code), "sorted, and no site twice");
        for site in table {
            assert!(std::ptr::eq(site_at(site.code).unwrap(), site));
            assert!((1..SIZE).all(|i| site_at(site.code + i).is_none()), "only the first byte is a site");
        }
        assert!(site_at(0).is_none() && site_at(usize::MAX).is_none());
    }

    #[test]
    fn instructions() {
        static KEY: StaticKeyFalse = StaticKeyFalse::new();
        let site = |code, target| Site { code, target, key: &KEY };
        assert_eq!(site(0x1000, 0x1234).instruction(false), [0x0f, 0x1f, 0x44, 0, 0]);
        assert_eq!(site(0x1000, 0x1234).instruction(true), [0xe9, 0x2f, 0x02, 0, 0]);
        assert_eq!(site(0x1000, 0x1000).instruction(true), [0xe9, 0xfb, 0xff, 0xff, 0xff], "back");
        assert_eq!(site(0x1000, 0x2000).next(), 0x1005);
    }
}
