//! One fence dropped or one ordering weakened, by source line, while the program runs: how the audit asks what is needed.
//!
//! `LOOM_WEAKEN=seqcount.rs:45` drops the fence there, `LOOM_WEAKEN=x.rs:9=Relaxed` weakens the operation there, and
//! `LOOM_WEAKEN=none` weakens nothing (the code itself was changed). In each case pins and recordings mean nothing.

use std::cell::{Cell, RefCell};
use std::panic::Location;

use super::atomic::Ordering;

thread_local! {
    static SITE: RefCell<Option<(String, Option<Ordering>)>> = const { RefCell::new(None) };
    static MET: Cell<bool> = const { Cell::new(false) };
}

/// Whether this run explores a changed program.
pub(super) fn is_changed() -> bool {
    std::env::var_os("LOOM_WEAKEN").is_some()
}

/// Reads the environment, for a model that begins.
pub(super) fn begin() {
    MET.set(false);
    SITE.set(std::env::var("LOOM_WEAKEN").ok().map(|spec| match spec.split_once('=') {
        Some((site, _)) => (site.to_owned(), Some(Ordering::Relaxed)),
        None => (spec, None),
    }));
}

/// Whether the model came to the site.
pub(super) fn met() -> bool {
    MET.get()
}

/// The ordering that an operation is done with: its own, or a weaker one if this site is the one that is weakened.
pub(super) fn ordering(order: Ordering, at: &Location<'_>) -> Ordering {
    weakened(at).flatten().unwrap_or(order)
}

/// The ordering of a fence; `None` if this site is the one that is dropped.
pub(super) fn fence(order: Ordering, at: &Location<'_>) -> Option<Ordering> {
    weakened(at).unwrap_or(Some(order))
}

fn weakened(at: &Location<'_>) -> Option<Option<Ordering>> {
    let found = SITE.with_borrow(|s| s.as_ref().filter(|(site, _)| is_at(at, site)).map(|(_, order)| *order));
    if found.is_some() {
        MET.set(true);
    }
    found
}

/// Whether `at` is `site`: the end of a file's path, a colon, a line.
fn is_at(at: &Location<'_>, site: &str) -> bool {
    site.rsplit_once(':')
        .is_some_and(|(file, line)| at.file().ends_with(file) && line == at.line().to_string())
}
