//! Newer forms than the baseline's, as whole functions named after the commit that brought them.

/// `d0dd066a0fa2` (6.12): the reader's first load acquires, instead of a fence after it.
pub mod since_d0dd066a0fa2 {
    use sync::Ordering::Acquire;
    use sync::atomic::Word;

    use crate::Seqcount;

    /// One attempt to begin a read: the sequence, if no write is in progress.
    ///
    /// Kernel: `__read_seqcount_begin`, include/linux/seqlock.h, v6.12. The write side is unchanged.
    #[inline(always)]
    pub fn try_read_begin<W: Word>(seq: &Seqcount<W>) -> Option<u32> {
        // ORDERING: pairs with `write_end`: who sees the even sequence sees all data written under it.
        let seq = seq.sequence.load(Acquire);
        (seq & 1 == 0).then_some(seq)
    }
}
