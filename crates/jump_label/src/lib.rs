//! Static keys: branches that are tested all the time and changed hardly ever.
//!
//! Mirrors `include/linux/jump_label.h`, kernel/jump_label.c and x86's `text_poke_bp_batch`, Linux 6.6. A key is counted:
//! it is on while at least one user has it on. There are two kinds, and a trait over both:
//!
//! | kind | a test, off, costs | a flip costs | whose |
//! |---|---|---|---|
//! | [`StaticKeyFalse`], [`static_branch_unlikely!`] | one no-op | 10 to 100 us | the program's, a `static` |
//! | the same, claimed through a type: [`define_claimed_key!`] | the same | the same | one owner's at a time |
//! | [`AtomicKey`] | a load, a compare and a branch | a few ns | whoever has it |
//!
//! ```
//! jump_label::define_static_key_false!(static TRACING);
//!
//! fn work(n: u32) -> u32 {
//!     if jump_label::static_branch_unlikely!(TRACING) {
//!         eprintln!("working on {n}");
//!     }
//!     n + 1
//! }
//!
//! # if jump_label::support().is_ok() {
//! TRACING.slow_inc()?; // every `work`, on every thread, says so from here on
//! assert_eq!(work(1), 2);
//! TRACING.slow_dec()?;
//! # }
//! # Ok::<(), jump_label::KeyError>(())
//! ```
//!
//! # What patching needs, and who it meets
//! - **x86-64 Linux**, a `/proc` that lets the process write its own text, and membarrier(2). [`support`] tries all of it;
//!   its error is one line to print before falling back to [`AtomicKey`]. On other hosts [`StaticKeyFalse`] still works,
//!   and tests a word.
//! - **SIGTRAP.** During a flip the sites hold int3, and whoever meets one is sent on by a handler. Other traps go on to the
//!   handler that was there before; who installs one later should pass on what is not his, as ever. A debugger should pass
//!   the signal: `handle SIGTRAP nostop noprint pass` in gdb. Its breakpoints do not belong on a site: a flip that finds
//!   one there is refused.
//! - **A thread that blocks SIGTRAP** and meets a site during a flip is killed with its process by the kernel, as at any
//!   int3. So threads and signal handlers that block all signals must leave SIGTRAP out.
//! - **fork.** A child has keys, text and handler of its own, and may flip them if the process had one thread; else it may
//!   flip none before exec, since another thread may have held the lock. Sites work in any child, even one forked in the
//!   middle of a flip. After vfork text and keys are the parent's.
//! - **Valgrind** sees a flip only with `--smc-check=all`; without it [`support`] says no.
//! - Sites are found in the program or library that this crate is linked into, once: there is nothing like the kernel's
//!   modules, and nothing like its CPU hotplug lock, for threads that start during a flip only ever see whole instructions.
//!   A library that has been flipped must not be unloaded.

mod atomic;
mod key;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod patched;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
#[path = "word.rs"]
mod patched;

use std::fmt;

pub use atomic::AtomicKey;
#[doc(hidden)]
pub use key::Claim;
pub use key::StaticKeyFalse;
pub use patched::{Site, support, traps};

/// A counted key. Kernel: `struct static_key_false`.
pub trait StaticKey: Send + Sync {
    /// A key that is off, and nobody else's until it is dropped.
    ///
    /// Context: task.
    ///
    /// # Errors
    /// [`KeyError::Claimed`] and [`KeyError::Patch`], for kinds that are patched.
    fn claim() -> Result<Self, KeyError>
    where
        Self: Sized;

    /// Whether the key is on; laid out for off. Kernel: `static_branch_unlikely`.
    ///
    /// Context: any; async-signal-safe. Callers may see a change at different moments.
    fn unlikely(&self) -> bool;

    /// Adds a user. Kernel: `static_key_slow_inc`.
    ///
    /// Context: task; may sleep.
    ///
    /// # Errors
    /// [`KeyError::Overflow`]: the count is at its limit. [`KeyError::Patch`]: the text cannot be changed. Either way
    /// nothing changed.
    fn slow_inc(&self) -> Result<(), KeyError>;

    /// Takes a user away. Kernel: `static_key_slow_dec`.
    ///
    /// Context: task; may sleep.
    ///
    /// # Errors
    /// [`KeyError::Negative`]: there was none. [`KeyError::Patch`]: the text cannot be changed. Either way nothing changed.
    fn slow_dec(&self) -> Result<(), KeyError>;

    /// How many users there are, never negative. Kernel: `static_key_count`.
    fn count(&self) -> i32;
}

/// A key cannot be had, or its count cannot be changed as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// One more user than the count can hold.
    Overflow,
    /// One less user than none.
    Negative,
    /// Somebody else has claimed the key.
    Claimed,
    /// The text cannot be changed.
    Patch(PatchError),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overflow => f.write_str("the key has too many users"),
            Self::Negative => f.write_str("the key has no user to take away"),
            Self::Claimed => {
                f.write_str("the patched key is in use: there is one in a program, for one owner at a time")
            }
            Self::Patch(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for KeyError {}

impl From<PatchError> for KeyError {
    fn from(e: PatchError) -> Self {
        Self::Patch(e)
    }
}

/// Why the text of this process cannot be changed; numbers are errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchError {
    /// Not x86-64 Linux.
    Host,
    /// The process may not open or write its own text.
    Memory(i32),
    /// There is no membarrier(2) that makes other threads fetch the new text.
    Membarrier(i32),
    /// The handler of SIGTRAP cannot be set.
    Handler(i32),
    /// The site at this address does not hold what was put there.
    Text(usize),
    /// The text was changed and what is executed was not: an emulator that does not watch it.
    Stale,
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errno = |e: &i32| std::io::Error::from_raw_os_error(*e);
        f.write_str("static keys cannot be patched: ")?;
        match self {
            Self::Host => f.write_str("that needs x86-64 Linux"),
            Self::Memory(e) => {
                write!(f, "/proc/thread-self/mem does not let this process write its text: {}", errno(e))
            }
            Self::Membarrier(e) => write!(f, "membarrier(2) with SYNC_CORE is refused: {}", errno(e)),
            Self::Handler(e) => write!(f, "the handler of SIGTRAP cannot be set: {}", errno(e)),
            Self::Text(at) => write!(f, "the site at {at:#x} holds foreign bytes (a debugger's breakpoint?)"),
            Self::Stale => {
                f.write_str("changed text is not executed (an emulator; valgrind needs --smc-check=all)")
            }
        }
    }
}

impl std::error::Error for PatchError {}

/// Defines a key that is off, as a `static`. Kernel: `DEFINE_STATIC_KEY_FALSE`.
///
/// ```
/// jump_label::define_static_key_false!(
///     /// Whether requests are traced.
///     pub static TRACING
/// );
/// assert_eq!(TRACING.count(), 0);
/// ```
#[macro_export]
macro_rules! define_static_key_false {
    ($(#[$meta:meta])* $vis:vis static $name:ident $(;)?) => {
        $(#[$meta])*
        $vis static $name: $crate::StaticKeyFalse = $crate::StaticKeyFalse::new();
    };
}

/// Defines a type of key that is patched, and that one owner has at a time.
///
/// The key itself is a hidden `static`; a value of the type is the right to it, from [`StaticKey::claim`] until its drop,
/// which switches the key off. So generic code names the kind of its key by a type, and pays for the kind it names.
///
/// ```
/// use jump_label::{KeyError, StaticKey};
///
/// jump_label::define_claimed_key!(
///     /// Whether statistics are kept.
///     pub struct StatsKey;
/// );
///
/// # if jump_label::support().is_ok() {
/// let key = StatsKey::claim()?;
/// assert_eq!(StatsKey::claim().unwrap_err(), KeyError::Claimed);
/// key.slow_inc()?;
/// assert!(key.unlikely());
/// drop(key);
/// assert!(!StatsKey::claim()?.unlikely());
/// # }
/// # Ok::<(), KeyError>(())
/// ```
#[macro_export]
macro_rules! define_claimed_key {
    ($(#[$meta:meta])* $vis:vis struct $name:ident;) => {
        $(#[$meta])*
        #[derive(Debug)]
        $vis struct $name($crate::Claim);

        const _: () = {
            $crate::define_static_key_false!(static KEY);

            impl $crate::StaticKey for $name {
                fn claim() -> ::core::result::Result<Self, $crate::KeyError> {
                    // SAFETY: the key is named here only, and its one site stands in a method of the claim.
                    unsafe { $crate::Claim::of(&KEY) }.map(Self)
                }
                #[inline(always)]
                fn unlikely(&self) -> bool {
                    $crate::static_branch_unlikely!(KEY)
                }
                fn slow_inc(&self) -> ::core::result::Result<(), $crate::KeyError> {
                    self.0.slow_inc()
                }
                fn slow_dec(&self) -> ::core::result::Result<(), $crate::KeyError> {
                    self.0.slow_dec()
                }
                fn count(&self) -> i32 {
                    KEY.count()
                }
            }
        };
    };
}
