//! progstats.
fn main() {}
