//! The counted key whose branches are patched, and the claim to one. Kernel: kernel/jump_label.c, 6.6.

use std::fmt;
use std::sync::{Mutex, MutexGuard};

use sync::host::{AtomicBool, AtomicI32, Ordering};

use crate::patched::{self, Handler, Site};
use crate::{KeyError, PatchError};

/// One flip at a time. Kernel: `jump_label_mutex`.
static JUMP_LABEL_MUTEX: Mutex<()> = Mutex::new(());

fn jump_label_lock() -> MutexGuard<'static, ()> {
    JUMP_LABEL_MUTEX.lock().unwrap_or_else(|e| e.into_inner())
}

/// A key that is off until somebody has it on; for a `static`. Kernel: `struct static_key_false`.
///
/// Made by [`crate::define_static_key_false!`], tested by [`crate::static_branch_unlikely!`].
pub struct StaticKeyFalse {
    /// Users; -1 while the first one's flip is under way. Not 0: the sites are on, or about to be.
    enabled: AtomicI32,
    claimed: AtomicBool,
}

impl fmt::Debug for StaticKeyFalse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticKeyFalse").field("count", &self.count()).finish_non_exhaustive()
    }
}

impl Default for StaticKeyFalse {
    fn default() -> Self {
        Self::new()
    }
}

impl StaticKeyFalse {
    /// A key that is off. Kernel: `STATIC_KEY_FALSE_INIT`.
    pub const fn new() -> Self {
        Self { enabled: AtomicI32::new(0), claimed: AtomicBool::new(false) }
    }

    /// How many users there are, never negative; 1 while the first one's flip is under way. Kernel: `static_key_count`.
    ///
    /// Context: any; async-signal-safe.
    pub fn count(&self) -> i32 {
        match self.enabled.load(Ordering::Relaxed) {
            n if n < 0 => 1,
            n => n,
        }
    }

    /// Whether it is on or about to be; what a trap goes by. Kernel: `static_key_enabled`.
    ///
    /// Context: any; async-signal-safe. For a hot path [`crate::static_branch_unlikely!`] is the test.
    pub fn enabled(&self) -> bool {
        // ORDERING (host): Acquire; rule 1 of `patched`: who has met an int3 finds the state that it was written for.
        self.enabled.load(Ordering::Acquire) != 0
    }

    /// The key's sites. One test in the source may be none of them or many: what is inlined is copied.
    ///
    /// On hosts without patching there are none.
    pub fn sites(&'static self) -> impl Iterator<Item = &'static Site> {
        patched::sites_of(self)
    }

    /// Adds a user, and flips the sites for the first; others wait until it is done. Kernel: `static_key_slow_inc`.
    ///
    /// When it returns, each test that starts is taken, on any thread.
    ///
    /// Context: task; may sleep. From the first call on the process keeps this crate's SIGTRAP handler.
    ///
    /// # Errors
    /// [`KeyError::Overflow`]: the count is at its limit. [`KeyError::Patch`]: the text cannot be changed. Either way
    /// nothing changed.
    pub fn slow_inc(&'static self) -> Result<(), KeyError> {
        if self.fast_inc_not_disabled()? {
            return Ok(());
        }
        Handler::keep()?;
        self.inc()
    }

    /// Takes a user away, and flips the sites back for the last. Kernel: `static_key_slow_dec`.
    ///
    /// When the last one's call returns, no test that starts is taken.
    ///
    /// Context: task; may sleep.
    ///
    /// # Errors
    /// [`KeyError::Negative`]: there was none. [`KeyError::Patch`]: the text cannot be changed. Either way nothing changed.
    pub fn slow_dec(&'static self) -> Result<(), KeyError> {
        self.dec()
    }

    /// As [`StaticKeyFalse::slow_inc`], for who has the handler.
    pub(crate) fn inc(&'static self) -> Result<(), KeyError> {
        if self.fast_inc_not_disabled()? {
            return Ok(());
        }
        let _lock = jump_label_lock();
        // ORDERING (host): Release; rule 1 of `patched`: the state is there before the first int3.
        if self.enabled.compare_exchange(0, -1, Ordering::Release, Ordering::Relaxed).is_err() {
            // Somebody was faster. With the lock held the count is not -1, and does not become 0.
            return self.fast_inc_not_disabled().map(|counted| debug_assert!(counted));
        }
        let flipped = patched::jump_label_update(self, true);
        // ORDERING (host): Release; pairs with `change`: who sees the count sees the text.
        self.enabled.store(i32::from(flipped.is_ok()), Ordering::Release);
        Ok(flipped?)
    }

    pub(crate) fn dec(&'static self) -> Result<(), KeyError> {
        if self.dec_not_one()? {
            return Ok(());
        }
        let _lock = jump_label_lock();
        // ORDERING (host): Release; rule 1 of `patched`: the state is there before the first int3.
        while self.enabled.compare_exchange(1, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            if self.dec_not_one()? {
                return Ok(());
            }
        }
        let flipped = patched::jump_label_update(self, false);
        if flipped.is_err() {
            // ORDERING (host): Release; pairs with `change`: the text is on.
            self.enabled.store(1, Ordering::Release);
        }
        Ok(flipped?)
    }

    /// Adds a user to others; `false` if there is none. Kernel: `static_key_fast_inc_not_disabled`.
    fn fast_inc_not_disabled(&self) -> Result<bool, KeyError> {
        self.change(|n| match n {
            i32::MAX => Err(KeyError::Overflow),
            n if n <= 0 => Ok(None),
            n => Ok(Some(n + 1)),
        })
    }

    /// Takes away a user that is not the last; `false` if it is, or is about to be there. Kernel: `static_key_dec_not_one`.
    fn dec_not_one(&self) -> Result<bool, KeyError> {
        self.change(|n| match n {
            0 => Err(KeyError::Negative),
            n if n <= 1 => Ok(None),
            n => Ok(Some(n - 1)),
        })
    }

    /// Writes what `to` makes of the count; `false` if it makes nothing of it.
    fn change(&self, to: impl Fn(i32) -> Result<Option<i32>, KeyError>) -> Result<bool, KeyError> {
        // ORDERING (host): Acquire; pairs with `inc`, `dec`, `reset`: after a count above 0 the text is on.
        let mut found = self.enabled.load(Ordering::Acquire);
        loop {
            let Some(n) = to(found)? else { return Ok(false) };
            match self.enabled.compare_exchange(found, n, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Ok(true),
                Err(now) => found = now,
            }
        }
    }

    /// Takes all users away.
    fn reset(&'static self) -> Result<(), PatchError> {
        let _lock = jump_label_lock();
        // ORDERING (host): Release; rule 1 of `patched`: the state is there before the first int3.
        let users = self.enabled.swap(0, Ordering::Release);
        if users > 0
            && let Err(e) = patched::jump_label_update(self, false)
        {
            // ORDERING (host): Release; pairs with `change`: the text is on.
            self.enabled.store(users, Ordering::Release);
            return Err(e);
        }
        Ok(())
    }
}

/// A key that is somebody's alone, and the handler while it is.
#[doc(hidden)]
pub struct Claim {
    key: &'static StaticKeyFalse,
    handler: Option<Handler>,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

impl Claim {
    /// Claims `key`.
    ///
    /// # Safety
    /// The key's sites are executed only while the claim is borrowed, and only the claim changes the key: when it is dropped
    /// no thread is at a site, so that the handler can go.
    ///
    /// # Errors
    /// [`KeyError::Claimed`], or [`KeyError::Patch`] as [`crate::support`].
    pub unsafe fn of(key: &'static StaticKeyFalse) -> Result<Self, KeyError> {
        // ORDERING (host): Acquire; pairs with `drop`: the last owner is done with the key.
        if key.claimed.swap(true, Ordering::Acquire) {
            return Err(KeyError::Claimed);
        }
        // From here on a failure gives the key back.
        let mut claim = Self { key, handler: None };
        patched::support()?;
        claim.handler = Some(Handler::install()?);
        Ok(claim)
    }

    /// As [`StaticKeyFalse::slow_inc`], but the handler is kept no longer than the claim.
    ///
    /// # Errors
    /// The same.
    pub fn slow_inc(&self) -> Result<(), KeyError> {
        self.key.inc()
    }

    /// As [`StaticKeyFalse::slow_dec`].
    ///
    /// # Errors
    /// The same.
    pub fn slow_dec(&self) -> Result<(), KeyError> {
        self.key.dec()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.key.reset().is_err() {
            // Its sites are on and stay so: it is nobody's again, and the handler stays.
            std::mem::forget(self.handler.take());
            return;
        }
        // ORDERING (host): Release; pairs with `of`.
        self.key.claimed.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(users: i32) -> StaticKeyFalse {
        StaticKeyFalse { enabled: AtomicI32::new(users), claimed: AtomicBool::new(false) }
    }

    #[test]
    fn one_more_than_the_limit_is_refused() {
        let key: &'static StaticKeyFalse = Box::leak(Box::new(with(i32::MAX - 1)));
        key.slow_inc().unwrap();
        assert_eq!((key.slow_inc(), key.count()), (Err(KeyError::Overflow), i32::MAX));
        key.slow_dec().unwrap();
        assert_eq!(key.count(), i32::MAX - 1);
    }

    #[test]
    fn one_less_than_none_is_refused() {
        let key: &'static StaticKeyFalse = Box::leak(Box::new(with(0)));
        assert_eq!((key.slow_dec(), key.count()), (Err(KeyError::Negative), 0));
    }

    #[test]
    fn while_the_first_is_under_way_it_counts_as_one_and_others_wait() {
        let key: &'static StaticKeyFalse = Box::leak(Box::new(with(-1)));
        assert_eq!((key.count(), key.enabled()), (1, true));
        assert_eq!(key.fast_inc_not_disabled(), Ok(false), "not without the lock");
        assert_eq!(key.dec_not_one(), Ok(false), "not without the lock");
        // The first one's flip ends while another waits for the lock.
        let lock = jump_label_lock();
        std::thread::scope(|s| {
            let second = s.spawn(|| key.inc());
            key.enabled.store(1, Ordering::Release);
            drop(lock);
            second.join().unwrap().unwrap();
        });
        assert_eq!(key.count(), 2);
    }
}
