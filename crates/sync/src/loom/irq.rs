//! Interrupts as nested calls: before the operation that the model names ([`super::model::interrupt_at`], `nmi_at`).

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;

/// What an interrupt finds: first field of what its functions expect. They are called with the address of this line.
#[repr(C)]
pub struct Line {
    /// An interrupt came.
    pub on_interrupt: unsafe fn(*const Line),
    /// An NMI came.
    pub on_nmi: unsafe fn(*const Line),
}

thread_local! {
    /// The "one thread-local word" of each of the model's threads.
    static CURRENT: RefCell<HashMap<loom::thread::ThreadId, *const Line>> = RefCell::default();
}

/// Makes `line` what interrupts of the calling thread find.
///
/// # Safety
/// As in the other half.
pub unsafe fn attach(line: *const Line) {
    CURRENT.with_borrow_mut(|c| c.insert(loom::thread::current().id(), line));
}

/// Makes interrupts of the calling thread find nothing.
pub fn detach() {
    CURRENT.with_borrow_mut(|c| c.remove(&loom::thread::current().id()));
}

/// What interrupts of the calling thread find; null if nothing.
pub fn current() -> *const Line {
    CURRENT.with_borrow(|c| c.get(&loom::thread::current().id()).copied()).unwrap_or(std::ptr::null())
}

/// Forgets every line: an execution may have ended in a panic.
pub(super) fn forget() {
    CURRENT.with_borrow_mut(HashMap::clear);
}

/// Any thread: nobody is signalled.
pub fn self_id() -> i32 {
    1
}

/// Nothing: the model says when an interrupt comes.
pub fn kick(_: i32) {}

/// Nothing: the model says when an NMI comes.
pub fn kick_nmi(_: i32) {}

/// Nothing holds interrupts off here.
pub struct Enabled(());

impl Drop for Enabled {
    /// Nothing to put back; the other half has something.
    fn drop(&mut self) {}
}

/// Nothing to let through.
pub fn enable() -> Enabled {
    Enabled(())
}

/// Cannot happen here.
#[derive(Debug)]
pub enum SignalInUse {}

impl fmt::Display for SignalInUse {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl std::error::Error for SignalInUse {}

/// Nothing to install.
#[derive(Debug)]
pub struct Handlers(());

impl Handlers {
    /// Nothing to install.
    ///
    /// # Errors
    /// Never.
    pub fn install() -> Result<Self, SignalInUse> {
        Ok(Self(()))
    }
}
