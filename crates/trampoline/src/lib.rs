//! Entering and leaving programs from a traced function: start times, recursion, misses.
