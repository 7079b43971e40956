//! Where printed lines go: a bounded queue that interrupts can write to. Stands for the trace ring buffer
//! behind `bpf_trace_printk` (kernel/trace/bpf_trace.c, v6.6).
//!
//! 1. A writer claims the next slot by moving `tail`, if the slot is free.
//! 2. It fills the slot and publishes it by its sequence number.
//! 3. A reader takes slots in order, and stops at one that is claimed and not yet published.
//!
//! A writer that is interrupted between 1 and 2 blocks nobody: the interrupt's line goes to the next slot.
//! When the queue is full, lines are dropped and counted.

use sync::host::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// The longest line kept, in bytes; longer ones are cut.
pub const LINE_MAX: usize = 248;

const WORDS: usize = LINE_MAX / 8;

/// A bounded queue of lines with many writers.
#[derive(Debug)]
pub struct TraceBuf {
    slots: Box<[Slot]>,
    tail: AtomicU64,
    /// Held by the one reader.
    head: std::sync::Mutex<u64>,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Slot {
    /// `position`: free for the writer of that position; `position + 1`: published.
    seq: AtomicU64,
    len: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl TraceBuf {
    /// A queue of `lines` lines, rounded up to a power of two.
    pub fn new(lines: usize) -> Self {
        let slots: Box<[Slot]> = (0..lines.max(1).next_power_of_two() as u64)
            .map(|at| Slot { seq: AtomicU64::new(at), ..Slot::default() })
            .collect();
        Self { slots, tail: AtomicU64::new(0), head: Default::default(), dropped: AtomicU64::new(0) }
    }

    /// Appends a line, cut to [`LINE_MAX`]; drops it if there is no room. Context: any.
    pub fn push(&self, line: &[u8]) {
        let mut at = self.tail.load(Relaxed);
        let slot = loop {
            let slot = self.slot(at);
            // ORDERING: Acquire; pairs with the Release in `drain`: its reads of the old line come before our
            // writes.
            let seq = slot.seq.load(Acquire);
            if seq == at {
                // ORDERING: Relaxed; the slot's sequence carries the order, the tail only hands out
                // positions.
                match self.tail.compare_exchange(at, at + 1, Relaxed, Relaxed) {
                    Ok(_) => break slot,
                    Err(now) => at = now,
                }
            } else if seq < at {
                self.dropped.fetch_add(1, Relaxed);
                return;
            } else {
                at = self.tail.load(Relaxed);
            }
        };
        let line = &line[..line.len().min(LINE_MAX)];
        for (word, bytes) in slot.words.iter().zip(line.chunks(8)) {
            let mut b = [0; 8];
            b[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(b), Relaxed);
        }
        slot.len.store(line.len() as u64, Relaxed);
        // ORDERING: Release; pairs with the Acquire in `drain`: the line is there before it is published.
        slot.seq.store(at + 1, Release);
    }

    /// Takes the lines that are there. Context: task.
    pub fn drain(&self) -> Vec<Vec<u8>> {
        let mut head = self.head.lock().unwrap_or_else(|e| e.into_inner());
        let mut lines = Vec::new();
        loop {
            let slot = self.slot(*head);
            // ORDERING: Acquire; pairs with the Release in `push`.
            if slot.seq.load(Acquire) != *head + 1 {
                return lines;
            }
            let mut line: Vec<u8> = slot.words.iter().flat_map(|w| w.load(Relaxed).to_ne_bytes()).collect();
            line.truncate(slot.len.load(Relaxed) as usize);
            lines.push(line);
            // ORDERING: Release; pairs with the Acquire in `push`.
            slot.seq.store(*head + self.slots.len() as u64, Release);
            *head += 1;
        }
    }

    /// Lines dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    fn slot(&self, at: u64) -> &Slot {
        &self.slots[at as usize & (self.slots.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_in_order_and_a_full_queue_drops() {
        let t = TraceBuf::new(4);
        for round in 0..3 {
            for i in 0..6 {
                t.push(format!("line {round} {i}").as_bytes());
            }
            let lines = t.drain();
            let want: Vec<_> = (0..4).map(|i| format!("line {round} {i}").into_bytes()).collect();
            assert_eq!(lines, want);
            assert_eq!(t.dropped(), 2 * (round + 1));
        }
        t.push(&[b'x'; 1000]);
        assert_eq!(t.drain(), [vec![b'x'; LINE_MAX]]);
    }

    #[test]
    fn writers_on_two_threads_lose_nothing() {
        let t = TraceBuf::new(1 << 12);
        std::thread::scope(|s| {
            for id in 0..2 {
                let t = &t;
                s.spawn(move || (0..2000).for_each(|i| t.push(format!("{id} {i}").as_bytes())));
            }
        });
        let mut lines = t.drain();
        assert_eq!((lines.len(), t.dropped()), (4000, 0));
        lines.sort();
        lines.dedup();
        assert_eq!(lines.len(), 4000);
    }
}
