//! Static keys: branches that are tested all the time and changed hardly ever.
//!
//! Mirrors `include/linux/jump_label.h` and kernel/jump_label.c, Linux 6.6. A key is counted: it is on while at least one
//! user has it on. [`AtomicKey`] is what the kernel builds without `CONFIG_JUMP_LABEL`: a word that each test loads. It is
//! owned by whoever has it, so that two machines do not share one.
//!
//! ```
//! use jump_label::{AtomicKey, StaticKey};
//!
//! let key = AtomicKey::new();
//! assert!(!key.unlikely());
//! key.slow_inc()?;
//! key.slow_inc()?;
//! key.slow_dec()?;
//! assert!(key.unlikely(), "one user is left");
//! # Ok::<(), jump_label::KeyError>(())
//! ```

use std::fmt;

use sync::Ordering::Relaxed;
use sync::atomic::AtomicI32;

/// A counted key. Kernel: `struct static_key_false`.
pub trait StaticKey: Send + Sync {
    /// Whether the key is on; laid out for off. Kernel: `static_branch_unlikely`.
    ///
    /// Context: any; async-signal-safe. Callers may see a change at different moments.
    fn unlikely(&self) -> bool;

    /// Adds a user. Kernel: `static_key_slow_inc`.
    ///
    /// Context: task; may sleep.
    ///
    /// # Errors
    /// [`KeyError::Overflow`]: the count is at its limit; nothing changed.
    fn slow_inc(&self) -> Result<(), KeyError>;

    /// Takes a user away. Kernel: `static_key_slow_dec`.
    ///
    /// Context: task; may sleep.
    ///
    /// # Errors
    /// [`KeyError::Negative`]: there was none; nothing changed.
    fn slow_dec(&self) -> Result<(), KeyError>;

    /// How many users there are, never negative. Kernel: `static_key_count`.
    fn count(&self) -> i32;
}

/// A key's count cannot be changed as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// One more user than the count can hold.
    Overflow,
    /// One less user than none.
    Negative,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overflow => "the key has too many users",
            Self::Negative => "the key has no user to take away",
        })
    }
}

impl std::error::Error for KeyError {}

/// The key as a word that each test loads. Kernel: `static_key` without `CONFIG_JUMP_LABEL`.
#[derive(Debug)]
pub struct AtomicKey {
    enabled: AtomicI32,
}

impl Default for AtomicKey {
    fn default() -> Self {
        Self::new()
    }
}

impl AtomicKey {
    /// A key that is off. Kernel: `DEFINE_STATIC_KEY_FALSE`.
    pub fn new() -> Self {
        Self { enabled: AtomicI32::new("key", 0) }
    }

    /// Changes the count by `by` unless `refuse` says no to the count found.
    fn change(&self, by: i32, refuse: impl Fn(i32) -> Option<KeyError>) -> Result<(), KeyError> {
        // ORDERING: Relaxed throughout; the key publishes nothing: a test that sees it late runs as it was before.
        let mut found = self.enabled.load(Relaxed);
        loop {
            if let Some(e) = refuse(found) {
                return Err(e);
            }
            match self.enabled.compare_exchange(found, found + by, Relaxed, Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => found = now,
            }
        }
    }
}

impl StaticKey for AtomicKey {
    #[inline(always)]
    fn unlikely(&self) -> bool {
        self.enabled.load(Relaxed) > 0
    }

    fn slow_inc(&self) -> Result<(), KeyError> {
        self.change(1, |n| (n == i32::MAX).then_some(KeyError::Overflow))
    }

    fn slow_dec(&self) -> Result<(), KeyError> {
        self.change(-1, |n| (n <= 0).then_some(KeyError::Negative))
    }

    fn count(&self) -> i32 {
        self.enabled.load(Relaxed).max(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_never_passes_below_none_or_its_limit() {
        let key = AtomicKey::new();
        assert_eq!(key.slow_dec(), Err(KeyError::Negative));
        assert_eq!(key.count(), 0);
        let full = AtomicKey { enabled: AtomicI32::new("key", i32::MAX) };
        assert_eq!(full.slow_inc(), Err(KeyError::Overflow));
        assert!(full.unlikely());
    }

    #[test]
    fn users_on_many_threads_leave_it_off() {
        let key = AtomicKey::new();
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..10_000 {
                        key.slow_inc().unwrap();
                        assert!(key.unlikely());
                        key.slow_dec().unwrap();
                    }
                });
            }
        });
        assert_eq!(key.count(), 0);
    }
}
