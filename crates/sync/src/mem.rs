//! Raw accesses to memory that simulated programs share.
