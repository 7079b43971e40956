//! The key as a word that each test loads.

use sync::Ordering::Relaxed;
use sync::atomic::AtomicI32;

use crate::{KeyError, StaticKey};

/// The key as a word that each test loads. Kernel: `static_key` without `CONFIG_JUMP_LABEL`.
///
/// It is owned by whoever has it, so that two users of the type do not share one.
///
/// ```
/// use jump_label::{AtomicKey, StaticKey};
///
/// let key = AtomicKey::new();
/// assert!(!key.unlikely());
/// key.slow_inc()?;
/// key.slow_inc()?;
/// key.slow_dec()?;
/// assert!(key.unlikely(), "one user is left");
/// # Ok::<(), jump_label::KeyError>(())
/// ```
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
    fn claim() -> Result<Self, KeyError> {
        Ok(Self::new())
    }

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
