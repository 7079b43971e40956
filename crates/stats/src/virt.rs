//! The parts of a virtual configuration: they wrap the real ones and announce each step ([`percpu::step`]).

use std::marker::PhantomData;

use percpu::{Access, Cpu, Step, announce, announce_current};
use sync::Ordering;
use sync::atomic::AtomicU32;

use crate::{Form, U64Stats, U64StatsSync};

/// An update section begins.
pub static SECTION_BEGIN: Step = Step::new("section_begin", "the update section begins");
/// An update section ends.
pub static SECTION_END: Step = Step::new("section_end", "the update section ends");
/// The run count is written.
pub static CNT: Step = Step::new("cnt", "the run count is written (the line's first touch)");
/// The run time is written.
pub static NSECS: Step = Step::new("nsecs", "the run time is written");
/// The misses are written.
pub static MISSES: Step = Step::new("misses", "the misses are written");

/// Form `F` with its sections, counters and words announced.
#[derive(Debug)]
pub struct Announced<F>(PhantomData<fn() -> F>);

impl<F: Form> Form for Announced<F> {
    type Sync = AnnouncedSync<F::Sync>;
    type U64 = AnnouncedU64<F::U64>;
}

/// A sync object whose sections are announced.
#[derive(Debug)]
pub struct AnnouncedSync<S>(S);

impl<S: U64StatsSync> U64StatsSync for AnnouncedSync<S> {
    type Flags = S::Flags;

    fn new() -> Self {
        Self(S::new())
    }

    #[track_caller]
    fn update_begin<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) {
        announce(cpu, &SECTION_BEGIN);
        self.0.update_begin(cpu);
    }

    #[track_caller]
    fn update_end<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) {
        self.0.update_end(cpu);
        announce(cpu, &SECTION_END);
    }

    #[track_caller]
    fn update_begin_irqsave<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) -> S::Flags {
        announce(cpu, &SECTION_BEGIN);
        self.0.update_begin_irqsave(cpu)
    }

    #[track_caller]
    fn update_end_irqrestore<K: percpu::Kconfig>(&self, cpu: &Cpu<K>, flags: S::Flags) {
        self.0.update_end_irqrestore(cpu, flags);
        announce(cpu, &SECTION_END);
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

/// A counter whose writes are announced.
#[derive(Debug)]
pub struct AnnouncedU64<U> {
    counter: U,
    written: &'static Step,
}

impl<U: U64Stats> U64Stats for AnnouncedU64<U> {
    fn new(name: &'static str, v: u64) -> Self {
        let written = [&NSECS, &MISSES].into_iter().find(|s| s.name == name).unwrap_or(&CNT);
        Self { counter: U::new(name, v), written }
    }

    #[track_caller]
    fn read(&self) -> u64 {
        let v = self.counter.read();
        announce_current(self.written, Access::Load(v));
        v
    }

    #[track_caller]
    fn add(&self, v: u64) {
        announce_current(self.written, Access::Add(v));
        self.counter.add(v);
    }

    #[track_caller]
    fn inc(&self) {
        announce_current(self.written, Access::Add(1));
        self.counter.inc();
    }

    #[track_caller]
    fn set(&self, v: u64) {
        announce_current(self.written, Access::Store(v));
        self.counter.set(v);
    }
}

/// The 32-bit word under a sequence or a half of a counter; each access but its owner's reads is announced, under the
/// word's name.
#[derive(Debug)]
pub struct Word {
    word: AtomicU32,
    stored: Step,
}

impl sync::atomic::Word for Word {
    fn new(name: &'static str, v: u32) -> Self {
        Self { word: AtomicU32::new(name, v), stored: Step::new(name, "a 32-bit word is stored") }
    }

    #[track_caller]
    fn load(&self, order: Ordering) -> u32 {
        let v = self.word.load(order);
        announce_current(&self.stored, Access::Load(v.into()));
        v
    }

    fn load_own(&self) -> u32 {
        self.word.load_own()
    }

    #[track_caller]
    fn store(&self, v: u32, order: Ordering) {
        announce_current(&self.stored, Access::Store(v.into()));
        self.word.store(v, order);
    }
}
