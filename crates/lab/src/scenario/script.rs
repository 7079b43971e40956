//! Who goes when: a virtual machine's steps, its clock, and the cues that stage an interleaving.
//!
//! Each CPU or task that takes part has a lane of the timeline, and one of them has the **turn**; the others wait. Steps
//! take declared time and are recorded. At a **cue** (a lane comes to a step for the n-th time) something happens
//! ([`Act`]): an interrupt, an NMI, another's turn. So the same file gives the same timeline, byte for byte.
//!
//! A cue comes at the last moment before its step takes effect: before a store, after a load.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use filter::clock::SchedClock;
use filter::virt::{CALL, CLOCK, KEY};
use percpu::{
    Access, Cpu, Irq, Moment, Step, Steps, Task, in_hardirq, in_nmi, irqs_disabled, is_migration_disabled,
    preempt_count,
};
use timeline::{Source, Timeline, What};

/// What happens at a cue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// An interrupt comes to this CPU.
    Irq,
    /// An NMI comes to this CPU.
    Nmi,
    /// It is another's turn, by name, until that one is done or passes on. A task on this CPU preempts this one for it: as
    /// soon as that may be.
    Turn(&'static str),
    /// This task sleeps until that one, by name, is done or passes on.
    Sleep(&'static str),
    /// The scheduler moves this task to that CPU, if it may.
    Move(usize),
}

/// ns a step takes, unless the scenario says otherwise.
const COSTS: [(&str, u64); 9] = [
    ("key", 1),
    ("clock", 20),
    ("call", 100),
    ("section_begin", 3),
    ("section_end", 3),
    ("cnt", 1),
    ("nsecs", 1),
    ("misses", 1),
    ("this_cpu_ptr", 2),
];

/// Steps that timelines leave out: they are in every run, and no scenario turns on them.
const LEFT_OUT: [&str; 5] = ["this_cpu_ptr", "run_ctx", "rcu_read_lock", "rcu_read_unlock", "section_end"];

/// The stage: time, turns, cues, and what happened. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Script(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The turn has changed.
    turned: Condvar,
}

#[derive(Debug)]
struct State {
    now: u64,
    costs: Vec<(&'static str, u64)>,
    /// What CPU n's clock is ahead by, and its tick.
    skew: Vec<u64>,
    tick: u64,
    parts: Vec<Part>,
    /// Whose turn it is; none before it begins and when all are done.
    turn: Option<usize>,
    /// Who passed its turn on and waits for it to come back, last first.
    waiting: Vec<usize>,
    cues: Vec<Cue>,
    /// How often a lane came to a step.
    seen: Vec<(String, &'static str, u64)>,
    recording: bool,
    timeline: Timeline,
}

#[derive(Debug)]
struct Part {
    name: String,
    cpu: usize,
    begun: bool,
    done: bool,
}

#[derive(Debug)]
struct Cue {
    lane: &'static str,
    step: &'static str,
    nth: u64,
    act: Act,
    /// It was due and could not be, so it is as soon as it can be.
    late: bool,
}

impl Script {
    pub(crate) fn new(cpus: usize) -> Self {
        let state = State {
            now: 1000,
            costs: COSTS.to_vec(),
            skew: vec![0; cpus],
            tick: 1,
            parts: Vec::new(),
            turn: None,
            waiting: Vec::new(),
            cues: Vec::new(),
            seen: Vec::new(),
            recording: true,
            timeline: Timeline::default(),
        };
        Self(Arc::new(Shared { state: Mutex::new(state), turned: Condvar::new() }))
    }

    /// Never held while anything of the machine runs, so that an interrupt finds it free.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn cost(&self, step: &'static str, ns: u64) {
        self.state().costs.insert(0, (step, ns));
    }

    pub(crate) fn clock_starts_at(&self, ns: u64) {
        self.state().now = ns;
    }

    pub(crate) fn clock_ticks(&self, ns: u64) {
        self.state().tick = ns;
    }

    pub(crate) fn clock_skewed(&self, cpu: usize, ns: u64) {
        self.state().skew[cpu] = ns;
    }

    pub(crate) fn cue(&self, lane: &'static str, step: &'static str, nth: u64, act: Act) {
        self.state().cues.push(Cue { lane, step, nth, act, late: false });
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, ns: u64) {
        self.state().now += ns;
    }

    /// From here on nothing is recorded, or it is again.
    pub(crate) fn record(&self, on: bool) {
        self.state().recording = on;
    }

    /// A place of its own at which cues may come.
    pub(crate) fn point<K: percpu::Kconfig>(&self, task: &Task<K>, name: &'static str) {
        let cue = self.state().due(&lane(task.raw_cpu()), name);
        if let Some(cue) = cue {
            self.act(task.raw_cpu(), cue);
        }
    }

    /// A remark in the lane of `task`.
    pub(crate) fn say<K: percpu::Kconfig>(&self, task: &Task<K>, text: impl Into<String>) {
        let lane = lane(task.raw_cpu());
        self.state().push(&lane, What::Note { text: text.into() }, None);
    }

    pub(crate) fn timeline(&self) -> Timeline {
        let state = self.state();
        let mut timeline = state.timeline.clone();
        // In the order in which they were named, each CPU's interrupts behind who was there first.
        timeline.order_lanes(|name| {
            let of = |p: &Part| p.name == name || name.strip_prefix(&format!("cpu{} ", p.cpu)).is_some();
            (state.parts.iter().position(of), name.ends_with("irq"), name.ends_with("nmi"))
        });
        timeline
    }

    /// Somebody takes part, on CPU `cpu`; returns its number.
    pub(crate) fn takes_part(&self, name: &str, cpu: usize) -> usize {
        let mut state = self.state();
        state.timeline.lane(name);
        state.parts.push(Part { name: name.into(), cpu, begun: false, done: false });
        state.parts.len() - 1
    }

    /// All are there: the first one's turn.
    pub(crate) fn begin(&self) {
        self.turn(self.state(), Some(0));
    }

    /// Waits for its first turn; `shared`: gives its CPU to others meanwhile.
    pub(crate) fn enter<K: percpu::Kconfig>(&self, task: &Task<K>, me: usize, shared: bool) {
        let cpu = self.state().parts[me].cpu;
        self.wait(task, me, shared);
        while task.raw_cpu().smp_processor_id() != cpu {
            task.cond_resched();
        }
        self.state().parts[me].begun = true;
    }

    /// Waits for the first turn of somebody who is on no CPU.
    pub(crate) fn enter_host(&self, me: usize) {
        let not_mine = |state: &mut State| state.turn != Some(me);
        let mut state = self.0.turned.wait_while(self.state(), not_mine).unwrap_or_else(|e| e.into_inner());
        state.parts[me].begun = true;
    }

    /// A remark in the lane of `name`, who is on no CPU.
    pub(crate) fn note(&self, name: &str, text: &str) {
        self.state().push(name, What::Note { text: text.into() }, None);
    }

    /// It is done: back to who passed to it, else to the next that has not begun.
    pub(crate) fn leave(&self) {
        let mut state = self.state();
        let me = state.turn.expect("who leaves has the turn");
        state.parts[me].done = true;
        let to = state.waiting.pop().or_else(|| state.parts.iter().position(|p| !p.begun));
        self.turn(state, to);
    }

    /// Gives the turn back to who passed it, if anybody did, and waits for the next one: when it is passed again, or others
    /// have left. False if nobody did.
    pub(crate) fn stand_back<K: percpu::Kconfig>(&self, task: &Task<K>) -> bool {
        let mut state = self.state();
        let me = state.turn.expect("somebody has it");
        let Some(back) = state.waiting.pop() else { return false };
        state.waiting.insert(0, me);
        self.turn(state, Some(back));
        self.wait(task, me, false);
        true
    }

    /// Waits for its turn; `shared`: gives its CPU to others meanwhile.
    fn wait<K: percpu::Kconfig>(&self, task: &Task<K>, me: usize, shared: bool) {
        if shared {
            while self.state().turn != Some(me) {
                task.raw_cpu().machine().resched(task.raw_cpu().smp_processor_id());
            }
        } else {
            let not_mine = |state: &mut State| state.turn != Some(me);
            drop(self.0.turned.wait_while(self.state(), not_mine).unwrap_or_else(|e| e.into_inner()));
        }
    }

    /// It is `to`'s turn.
    fn turn(&self, mut state: MutexGuard<'_, State>, to: Option<usize>) {
        state.turn = to;
        drop(state);
        self.0.turned.notify_all();
    }

    /// Whether whoever is on `cpu` has come to its turn: what a machine does to come up is no part of the play.
    fn is_playing<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) -> bool {
        let (name, state) = (comm(cpu), self.state());
        state.parts.iter().any(|p| p.begun && p.name == name)
    }

    fn act<K: percpu::Kconfig>(&self, cpu: &Cpu<K>, cue: Cue) {
        let (here, lane) = (cpu.smp_processor_id(), lane(cpu));
        let preemptible = preempt_count(cpu) == 0 && !irqs_disabled(cpu);
        let say = |text: String| self.state().push(&lane, What::Note { text }, None);
        let later = |why: &str| {
            if !cue.late {
                say(why.into());
            }
            self.state().cues.push(Cue { late: true, ..cue });
        };
        match cue.act {
            Act::Irq => {
                say(if irqs_disabled(cpu) { "interrupt: held" } else { "interrupt" }.into());
                cpu.machine().raise(here, Irq(0));
            }
            Act::Nmi => {
                say("NMI".into());
                cpu.machine().raise_nmi(here);
            }
            Act::Turn(name) | Act::Sleep(name) => {
                let (me, to, shared, done) = {
                    let state = self.state();
                    let to = state.parts.iter().position(|p| p.name == name);
                    let to = to.unwrap_or_else(|| panic!("nobody is called {name}"));
                    let part = &state.parts[to];
                    (state.turn.expect("somebody has it"), to, part.cpu == here, part.done)
                };
                if done {
                    return;
                }
                let sleeps = cue.act == Act::Sleep(name);
                if shared && !preemptible {
                    return later(&format!("{name} must wait: preemption is off"));
                }
                if sleeps {
                    say("sleeps".into());
                } else if shared {
                    say(format!("preempted by {name}"));
                }
                let mut state = self.state();
                state.waiting.retain(|&w| w != to);
                state.waiting.push(me);
                self.turn(state, Some(to));
                if sleeps {
                    cpu.wait_event(|| self.state().turn == Some(me));
                } else {
                    self.wait(cpu, me, shared);
                }
            }
            Act::Move(to) => {
                if !preemptible {
                    return later("the scheduler waits: preemption is off");
                }
                if is_migration_disabled(cpu) {
                    return say(format!("wanted on cpu{to}: pinned, it stays"));
                }
                while cpu.smp_processor_id() != to {
                    cpu.machine().resched(cpu.smp_processor_id());
                }
                say(format!("moved to cpu{to}"));
            }
        }
    }
}

impl State {
    fn push(&mut self, lane: &str, what: What, source: Option<Source>) {
        if self.recording {
            let at = self.timeline.lane(lane);
            let row = self.timeline.push(at, what);
            row.source = source;
            row.ns = Some(self.now);
        }
    }

    /// The cue that is due when `lane` comes to `step`, or that was due before.
    fn due(&mut self, lane: &str, step: &'static str) -> Option<Cue> {
        let seen = match self.seen.iter().position(|(l, s, _)| l == lane && *s == step) {
            Some(at) => at,
            None => {
                self.seen.push((lane.into(), step, 0));
                self.seen.len() - 1
            }
        };
        self.seen[seen].2 += 1;
        let nth = self.seen[seen].2;
        let due = |c: &Cue| c.lane == lane && (c.late || (c.step == step && c.nth == nth));
        self.cues.iter().position(due).map(|at| self.cues.remove(at))
    }
}

/// The lane of whoever is on `cpu`: the task or CPU, and what it serves.
fn lane<K: percpu::Kconfig>(cpu: &Cpu<K>) -> String {
    match () {
        () if in_nmi(cpu) => format!("cpu{} nmi", cpu.smp_processor_id()),
        () if in_hardirq(cpu) => format!("cpu{} irq", cpu.smp_processor_id()),
        () => comm(cpu),
    }
}

fn comm<K: percpu::Kconfig>(task: &Task<K>) -> String {
    let comm = task.comm();
    String::from_utf8_lossy(comm.split(|b| *b == 0).next().unwrap_or_default()).into_owned()
}

impl Steps for Script {
    fn moment<K: percpu::Kconfig>(&self, cpu: &Cpu<K>, moment: &Moment<'_>) {
        if !self.is_playing(cpu) {
            return;
        }
        let (lane, step) = (lane(cpu), moment.step.name);
        let loaded = matches!(moment.access, Access::Load(_));
        // Announced twice, before and with what was read: the cue is for the second.
        let silent = !loaded && [KEY.name, CLOCK.name, CALL.name].contains(&step);
        let source = Source { file: moment.source.file().into(), line: moment.source.line() };
        // What stages is not the path.
        let source = Some(source).filter(|s| !s.file.ends_with("/virt.rs") && !s.file.contains("/scenario/"));
        let row = |state: &mut State| {
            if !silent && !LEFT_OUT.contains(&step) {
                state.push(&lane, what(moment), source.clone());
            }
        };
        if !loaded {
            let mut state = self.state();
            let ns = state.costs.iter().find(|(name, _)| *name == step).map_or(0, |c| c.1);
            state.now += ns;
        } else {
            row(&mut self.state());
        }
        let cue = if silent { None } else { self.state().due(&lane, step) };
        if let Some(cue) = cue {
            self.act(cpu, cue);
        }
        if !loaded {
            row(&mut self.state());
        }
    }
}

fn what(moment: &Moment<'_>) -> What {
    let object = moment.step.name.to_owned();
    match moment.access {
        Access::Load(ns) if object == CLOCK.name => What::Note { text: format!("clock -> {ns}") },
        Access::Load(value) => What::Load { object, value, order: None, newest: None },
        Access::Store(value) => What::Store { object, value, order: None },
        Access::Add(v) if v > u64::MAX / 2 => {
            What::Note { text: format!("{object} -= {}", v.wrapping_neg()) }
        }
        Access::Add(v) => What::Note { text: format!("{object} += {v}") },
        Access::None => What::Note { text: words(moment.step).into() },
    }
}

fn words(step: &Step) -> &'static str {
    match step.name {
        "this_cpu_inc_return" => "guard + 1",
        "this_cpu_dec" => "guard - 1",
        "irq_save" => "interrupts off",
        "irq_restore" => "interrupts on",
        "section_begin" => "update begins",
        "migrate_disable" => "pins itself",
        "migrate_enable" => "may move again",
        _ => step.what,
    }
}

/// The clock of a script: its time in ticks, and ahead on some CPUs.
#[derive(Debug)]
pub(crate) struct ScriptClock(pub(crate) Script);

impl SchedClock for ScriptClock {
    #[track_caller]
    fn sched_clock<K: percpu::Kconfig>(&self, cpu: &Cpu<K>) -> u64 {
        percpu::announce(cpu, &CLOCK);
        let now = {
            let state = self.0.state();
            (state.now + state.skew[cpu.smp_processor_id()]) / state.tick * state.tick
        };
        percpu::announce_current(&CLOCK, Access::Load(now));
        now
    }
}
