//! What a panic carried, in either half.

use std::any::Any;

/// What a panic carried.
pub type Payload = Box<dyn Any + Send + 'static>;

/// A panic's payload as text.
pub fn panic_message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
}
