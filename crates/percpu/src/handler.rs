//! Handlers: set once a boot, called on top of whatever a CPU does. Kernel: `struct irqaction`, in spirit.

use sync::host::AtomicPtr;
use sync::host::Ordering::{AcqRel, Acquire, Relaxed, Release};
use sync::thread;

use crate::Kconfig;
use crate::cpu::Cpu;

/// What a line runs, valid for `'env`.
pub(crate) type Handler<'env, K> = Box<dyn Fn(&Cpu<K>) + Send + Sync + 'env>;

/// Where a machine keeps one handler, until it is down.
pub(crate) struct HandlerSlot<K: Kconfig>(AtomicPtr<Handler<'static, K>>);

impl<K: Kconfig> Default for HandlerSlot<K> {
    fn default() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }
}

impl<K: Kconfig> HandlerSlot<K> {
    /// Makes `f` the handler; false if there is one already.
    ///
    /// # Safety
    /// [`HandlerSlot::clear`] is called before `'env` ends.
    pub(crate) unsafe fn set<'env>(&self, f: Handler<'env, K>) -> bool {
        // SAFETY: only the lifetime changes; the caller clears the slot within it.
        let f: Handler<'static, K> = unsafe { std::mem::transmute(f) };
        let f = Box::into_raw(Box::new(f));
        // ORDERING (host): Release; pairs with `HandlerSlot::call` and `HandlerSlot::clear`: they see it as it was made.
        let set = self.0.compare_exchange(std::ptr::null_mut(), f, Release, Relaxed).is_ok();
        if !set {
            // SAFETY: it was not published.
            drop(unsafe { Box::from_raw(f) });
        }
        set
    }

    /// Runs the handler, if there is one.
    pub(crate) fn call(&self, cpu: &Cpu<K>) {
        // ORDERING (host): Acquire; pairs with `HandlerSlot::set`.
        let handler = self.0.load(Acquire);
        // SAFETY: null, or a handler that stays until no thread of the machine is left.
        let Some(handler) = (unsafe { handler.as_ref() }) else { return };
        guarded(cpu, || handler(cpu));
    }

    /// Drops the handler. No thread of the machine may be left to call it.
    pub(crate) fn clear(&self) {
        // ORDERING (host): AcqRel; pairs with `HandlerSlot::set`.
        let handler = self.0.swap(std::ptr::null_mut(), AcqRel);
        if !handler.is_null() {
            // SAFETY: made by `Box::into_raw` in `set`, and nobody is left to call it.
            drop(unsafe { Box::from_raw(handler) });
        }
    }
}

/// Runs `f`, a handler. A panic in it is a bug, and may not unwind through a signal's frame: the machine carries it to its
/// caller.
pub(crate) fn guarded<K: Kconfig, R>(cpu: &Cpu<K>, f: impl FnOnce() -> R) -> Option<R> {
    match thread::catch(f) {
        Ok(r) => Some(r),
        Err(payload) => {
            cpu.machine().irq_panicked(cpu.smp_processor_id(), thread::panic_message(&*payload));
            None
        }
    }
}
