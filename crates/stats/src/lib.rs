//! One writer a CPU, many readers: sequence counters and u64 statistics.
//!
//! Mirrors `include/linux/seqlock.h` ([`seqcount`]) and `include/linux/u64_stats_sync.h` ([`u64_stats`]), Linux 6.6. Older
//! forms stand in [`history`], newer ones in [`later`].
//!
//! # What holds, and what does not
//! 1. **Writers exclude each other.** Two at once lose an increment of the sequence, and readers spin for ever.
//! 2. On 32-bit, a reader that finds the same even sequence before and after has read what one moment held. On 64-bit
//!    there is no sequence: each counter is whole, **the pair is not**.
//! 3. What keeps a 64-bit update whole against interrupts of its own CPU is one instruction on memory
//!    ([`AtomicU64::add_own`](sync::atomic::AtomicU64::add_own)); on 32-bit it is the interrupt mask of the section.
//! 4. The add of the 32-bit form takes a C `unsigned long`: a duration of 2^32 ns or more loses its high half.
//!
//! The form is a type ([`Form`]), so a 64-bit machine runs and checks the 32-bit one as well.

pub mod history;
pub mod later;
pub mod seqcount;
pub mod u64_stats;
pub mod virt;

pub use seqcount::Seqcount;
pub use u64_stats::{
    Bits32, Bits32Rt, Bits64, Form, U64Stats, U64StatsSync, UpdateGuard, u64_stats_fetch_begin,
    u64_stats_fetch_retry, u64_stats_update_begin, u64_stats_update_begin_irqsave, u64_stats_update_end,
    u64_stats_update_end_irqrestore,
};

/// What this crate adds to the configuration: word size and synchronisation.
pub trait Kconfig: percpu::Kconfig {
    /// The form of the statistics.
    type Form: Form;
}
