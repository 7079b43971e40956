//! Older forms, as whole types named after the commit that replaced them.

/// `44b0c2957adc` (6.1): PREEMPT_RT on 32-bit had preemption off in its sections, and interrupts on; a uniprocessor
/// 32-bit kernel had no sequence at all, and readers that turned preemption off.
pub mod before_44b0c2957adc {
    use std::marker::PhantomData;

    use percpu::{Cpu, preempt_disable, preempt_enable};
    use sync::atomic::{AtomicU32, Word};

    use crate::u64_stats::{Halves, SeqSync};
    use crate::{Form, U64StatsSync};

    /// 32-bit PREEMPT_RT of 6.0: the irqsave section masks nothing, since RT interrupts are threads. One that is not (a
    /// real hardirq) and updates the same counters loses counts and leaves readers spinning.
    #[derive(Debug)]
    pub struct Bits32Rt<W = AtomicU32>(PhantomData<W>);

    impl<W: Word + 'static> Form for Bits32Rt<W> {
        type Sync = PreemptSync<W>;
        type U64 = Halves<W>;
    }

    /// A sequence counter whose irqsave section only turns preemption off.
    #[derive(Debug)]
    pub struct PreemptSync<W = AtomicU32>(SeqSync<W, false>);

    impl<W: Word> U64StatsSync for PreemptSync<W> {
        type Flags = ();

        fn new() -> Self {
            Self(SeqSync::new())
        }

        fn update_begin<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) {
            preempt_disable(cpu);
            self.0.update_begin(cpu);
        }

        fn update_end<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) {
            self.0.update_end(cpu);
            preempt_enable(cpu);
        }

        fn update_begin_irqsave<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) {
            self.update_begin(cpu);
        }

        fn update_end_irqrestore<K: percpu::Kconfig>(&self, cpu: &Cpu<K>, _: ()) {
            self.update_end(cpu);
        }

        fn try_fetch_begin(&self) -> Option<u32> {
            self.0.try_fetch_begin()
        }

        fn fetch_begin(&self) -> u32 {
            self.0.fetch_begin()
        }

        fn fetch_retry(&self, start: u32) -> bool {
            self.0.fetch_retry(start)
        }
    }

    /// 32-bit uniprocessor of 6.0: no sequence; the readers' exclusion is that only one thing runs at a time, if they
    /// turn preemption off (plain readers) or interrupts (readers of counters that interrupts write).
    /// Off a uniprocessor the counters it protects tear.
    #[derive(Debug, Default)]
    pub struct Uniprocessor;

    impl Uniprocessor {
        /// Reads under exclusion instead of a sequence. Kernel: `u64_stats_fetch_begin` .. `retry`, v6.0, !SMP.
        pub fn fetch<K: percpu::Kconfig, R>(cpu: &Cpu<K>, read: impl FnOnce() -> R) -> R {
            let _off = cpu.preempt_disable();
            read()
        }
    }
}
