//! What the path costs, beside its peers. `cargo xtask bench` runs it; nothing here decides by time.

mod clocks;
mod counts;
mod growth;
mod harness;
mod keys;
mod machines;
mod run;
mod sites;
mod update;

use crate::harness::{Harness, Mode};
use anyhow::Result;
use std::time::Duration;

fn measure(harness: &mut Harness) -> Result<()> {
    run::measure(harness)?;
    update::measure(harness)?;
    clocks::measure(harness)?;
    keys::measure(harness)?;
    growth::measure(harness)
}

fn main() -> Result<()> {
    static_keys::global_init();
    if std::env::args().nth(1).as_deref() == Some("watched") {
        return counts::watched(&std::env::args().nth(2).unwrap());
    }
    let c = counts::count("")?;
    for (n, v) in &c {
        println!("{n} {v}")
    }
    if std::env::args().nth(1).is_some() {
        return Ok(());
    }
    let mut h = Harness::new(Mode::Time(Duration::from_secs(1)), "");
    measure(&mut h)?;
    counts::enter(&c, &mut h.groups);
    for g in &h.groups {
        println!("{} {}", g.title, g.rounds);
        for r in &g.rows {
            println!(
                "{:<40} {:>8.2} {:>8.2} ± {:.2} {:?}",
                r.name,
                r.ns.min,
                r.ns.median,
                r.ns.spread(),
                r.instructions
            )
        }
    }
    Ok(())
}
