//! Branches as code: off is a no-op of five bytes, on a jump of five, and a flip writes one over the other while threads
//! execute them.
//!
//! The protocol is `text_poke_bp_batch`'s (arch/x86/kernel/alternative.c). For all sites of the key at once: an int3
//! over the
//! first byte; the other four bytes; the first byte. After each of the three steps every thread of the process executes
//! something that makes its processor forget what it fetched (membarrier's SYNC_CORE). So whoever comes by executes the
//! old instruction, an int3, or the new instruction, and never a mixture. Who meets an int3 is sent where the site leads by
//! the handler of SIGTRAP ([`trap`]).
//!
//! # Rules
//! 1. The key's word is the state, and it is written **before** the first int3. So a trap finds the state that its int3 was
//!    written for, as in the kernel: a site goes from old to new when its int3 appears. (On x86 a store is seen before
//!    a later
//!    one, and the int3 is a later one; a fetch is before a later load.) Sites flip one by one, so between two of them a
//!    thread may see new and then old.
//! 2. A trap may come late: a thread is preempted between its int3 and the handler, and further flips pass. The handler asks
//!    nothing of a flip that is under way. It looks the address up in the table, which never changes, and goes by the state
//!    of now, which is right for who executes the site now.
//! 3. The count is above 0 only while the text is on, so the fast paths of `slow_inc` and `slow_dec` need no lock.
//! 4. Nothing of the table is written after its one construction, and the handler is set after that.
//! 5. A flip that fails before any new first byte is written is taken back. What cannot be taken back, or is written no
//!    further, keeps its int3, which is slow and right; the next flip refuses, since the site does not hold what it should.
//!
//! A difference to the kernel: its handler goes by a description of the flip under way, counted in and out, since its
//! keys may be in the middle of another change; ours by the key, since there the state is all.

mod table;
mod text_poke;
mod trap;

use std::sync::Mutex;

use crate::{KeyError, PatchError, StaticKeyFalse};

pub use table::Site;
pub(crate) use table::sites_of;
pub(crate) use trap::Handler;
pub use trap::traps;

/// Whether a key is on; laid out for off: the expression is a no-op there. Kernel: `static_branch_unlikely`.
///
/// The key is a path to a `static` of type [`StaticKeyFalse`].
///
/// ```
/// # jump_label::define_static_key_false!(static KEY);
/// fn get() -> u32 {
///     if jump_label::static_branch_unlikely!(KEY) { 1 } else { 0 }
/// }
/// assert_eq!(get(), 0);
/// ```
#[macro_export]
macro_rules! static_branch_unlikely {
    ($key:path) => {
        'branch: {
            const _: &$crate::StaticKeyFalse = &$key;
            // SAFETY: the instruction is a no-op, and what replaces it jumps to the label; neither touches anything. The
            // entry says where the instruction is, where the label, and which key: a static of the right type, as above.
            #[allow(unused_unsafe)]
            unsafe {
                ::core::arch::asm!(
                    "2: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
                    ".pushsection __jump_table, \"aR\", @progbits",
                    ".balign 8",
                    ".long 2b - .",
                    ".long {on} - .",
                    ".quad {key} - .",
                    ".popsection",
                    on = label { break 'branch true },
                    key = sym $key,
                    options(nomem, nostack, preserves_flags),
                );
            }
            false
        }
    };
}

/// Whether keys can be patched here: flips one of its own and looks whether its branch follows.
///
/// Takes some 50 us, and the first time in a process with threads some 10 ms. The answer may change: rights can be lost.
///
/// Context: task; may sleep.
///
/// # Errors
/// [`PatchError`] says in one line what is missing.
pub fn support() -> Result<(), PatchError> {
    static PROBING: Mutex<()> = Mutex::new(());
    crate::define_static_key_false!(static PROBE);
    #[inline(never)]
    fn probe() -> bool {
        static_branch_unlikely!(PROBE)
    }

    let _one = PROBING.lock().unwrap_or_else(|e| e.into_inner());
    let _handler = Handler::install()?;
    let change = |done| match done {
        Err(KeyError::Patch(e)) => Err(e),
        // One user comes and goes.
        _ => Ok(()),
    };
    let before = probe();
    change(PROBE.inc())?;
    let on = probe();
    change(PROBE.dec())?;
    if (before, on, probe()) == (false, true, false) { Ok(()) } else { Err(PatchError::Stale) }
}

/// Makes the sites of `key` on or off; its state says so already. One caller at a time. Kernel: `jump_label_update`.
///
/// # Errors
/// What failed; the sites do what they did before.
pub(crate) fn jump_label_update(key: &'static StaticKeyFalse, on: bool) -> Result<(), PatchError> {
    let sites: Vec<&Site> = sites_of(key).collect();
    trap::come_first()?;
    text_poke::text_poke_bp_batch(&sites, on)
}
