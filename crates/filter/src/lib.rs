//! Programs, their statistics, the clock, and the timed run.
