//! What stands for patching on other hosts: each test loads the key's word.

use crate::{PatchError, StaticKeyFalse};

/// Whether the key is on; laid out for off. Kernel: `static_branch_unlikely`, without `CONFIG_JUMP_LABEL`.
#[macro_export]
macro_rules! static_branch_unlikely {
    ($key:path) => {
        $key.enabled()
    };
}

/// A site. There are none on this host.
#[derive(Debug)]
pub enum Site {}

/// Whether keys can be patched here.
///
/// # Errors
/// Always: not on this host.
pub fn support() -> Result<(), PatchError> {
    Err(PatchError::Host)
}

/// How often a flip was met in the middle: never on this host.
pub fn traps() -> u64 {
    0
}

pub(crate) fn sites_of(_: &'static StaticKeyFalse) -> impl Iterator<Item = &'static Site> {
    std::iter::empty()
}

/// Nothing to patch: the word is all there is.
pub(crate) fn jump_label_update(_: &'static StaticKeyFalse, _: bool) -> Result<(), PatchError> {
    Ok(())
}

/// No signal to handle.
pub(crate) struct Handler(());

impl Handler {
    pub(crate) fn install() -> Result<Self, PatchError> {
        Err(PatchError::Host)
    }

    pub(crate) fn keep() -> Result<(), PatchError> {
        Ok(())
    }
}
