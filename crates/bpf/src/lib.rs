//! Loading and interpreting eBPF programs; maps and helpers.
