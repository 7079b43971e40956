//! Writing the text of the running process. Kernel: arch/x86/kernel/alternative.c.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use super::table::Site;
use crate::PatchError;

const INT3: u8 = 0xcc;

/// Flips `sites`, which are the other way now, while other threads execute them. Kernel: `text_poke_bp_batch`.
///
/// # Errors
/// What failed; the sites do what they did before (rule 5 of `patched`).
pub(super) fn text_poke_bp_batch(sites: &[&Site], on: bool) -> Result<(), PatchError> {
    if sites.is_empty() {
        return Ok(());
    }
    if let Some(site) = sites.iter().find(|site| site.bytes() != site.instruction(!on)) {
        return Err(PatchError::Text(site.code()));
    }
    let text = Text::open()?;
    let trapped =
        sites.iter().try_for_each(|site| text.poke(site.code(), &[INT3])).and_then(|()| text.sync());
    if let Err(e) = trapped {
        text.first_bytes(sites, !on);
        return Err(e);
    }
    if let Err(e) = text.tails(sites, on) {
        // Each site has its int3, so this can be done, and fail, as slowly as it likes.
        if text.tails(sites, !on).is_ok() {
            text.first_bytes(sites, !on);
        }
        return Err(e);
    }
    text.first_bytes(sites, on);
    Ok(())
}

/// The text of this process, open for writing.
///
/// Opened for each flip: a descriptor that is kept would be the parent's text in a child of fork, and another file where
/// somebody closes what he does not know.
struct Text(File);

impl Text {
    fn open() -> Result<Self, PatchError> {
        membarrier(REGISTER_PRIVATE_EXPEDITED_SYNC_CORE)?;
        // The thread's, since `self` is gone once the main thread has ended.
        let mem = OpenOptions::new().read(true).write(true).open("/proc/thread-self/mem");
        mem.map(Self).map_err(|e| PatchError::Memory(errno(&e)))
    }

    /// Writes what is not writable: the kernel gives the process a copy of the page. Kernel: `text_poke`.
    fn poke(&self, address: usize, bytes: &[u8]) -> Result<(), PatchError> {
        self.0.write_all_at(bytes, address as u64).map_err(|e| PatchError::Memory(errno(&e)))
    }

    /// Makes each thread's processor forget what it has fetched. Kernel: `text_poke_sync`.
    fn sync(&self) -> Result<(), PatchError> {
        membarrier(PRIVATE_EXPEDITED_SYNC_CORE)
    }

    /// Writes all but the first bytes of sites that trap.
    fn tails(&self, sites: &[&Site], on: bool) -> Result<(), PatchError> {
        let poke = |site: &&Site| self.poke(site.code() + 1, &site.instruction(on)[1..]);
        sites.iter().try_for_each(poke).and_then(|()| self.sync())
    }

    /// Writes the first bytes of sites whose others are there. A site where this fails traps, which is as good.
    fn first_bytes(&self, sites: &[&Site], on: bool) {
        for site in sites {
            let _ = self.poke(site.code(), &site.instruction(on)[..1]);
        }
        // Without this, who has fetched the int3 traps.
        let _ = self.sync();
    }
}

// linux/membarrier.h
const PRIVATE_EXPEDITED_SYNC_CORE: i32 = 1 << 5;
const REGISTER_PRIVATE_EXPEDITED_SYNC_CORE: i32 = 1 << 6;

fn membarrier(command: i32) -> Result<(), PatchError> {
    // SAFETY: takes numbers, touches no memory of ours.
    match unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } {
        0 => Ok(()),
        _ => Err(PatchError::Membarrier(errno(&io::Error::last_os_error()))),
    }
}

/// The number of an error; those that the library makes up itself are a failed transfer.
fn errno(e: &io::Error) -> i32 {
    e.raw_os_error().unwrap_or(libc::EIO)
}
