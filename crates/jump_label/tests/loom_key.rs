//! Models of the counted key: two closers and an opener.
//!
//! | pattern | result |
//! |---|---|
//! | one user there; two threads take one away, one adds one | the count is never negative; one closer may be refused |
#![cfg(loom)]

use jump_label::{AtomicKey, KeyError, StaticKey};
use sync::model::{Model, invariant, reach};
use sync::thread::scope;

#[test]
fn two_closers_and_an_opener_never_make_it_negative() {
    Model::holds("jump_label::two_closers_and_an_opener", &["both closed", "one was refused"]).check(|| {
        let key = AtomicKey::new();
        key.slow_inc().unwrap();
        let close = || match key.slow_dec() {
            Ok(()) => 1,
            Err(KeyError::Negative) => 0,
            Err(e) => panic!("{e}"),
        };
        let closed: i32 = scope(|s| {
            let closers = [s.spawn("closer0", close).unwrap(), s.spawn("closer1", close).unwrap()];
            s.spawn("opener", || key.slow_inc().unwrap()).unwrap();
            closers.into_iter().map(|c| c.join().unwrap()).sum()
        });
        invariant("count", key.count() == 2 - closed, || {
            format!("{} users after {closed} left of 2", key.count())
        });
        invariant("never-negative", closed <= 2, || "more left than there were".into());
        reach(if closed == 2 { "both closed" } else { "one was refused" });
    });
}
