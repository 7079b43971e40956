//! What a flip costs: `cargo bench -p jump_label`. Prints; decides nothing.
fn main() {}
