//! Sequence counters and u64 statistics: one writer a CPU, many readers.
