//! What scenarios are staged with: a virtual machine, programs, and who takes part.

use std::cell::RefCell;

use filter::prog::BpfFunc;
use filter::virt::{AnnouncedKey, CALL};
use filter::{
    BpfCtx, BpfProg, BpfProgKstats, Config, Globals, Kconfig, ProgType, bpf_prog_get_stats, bpf_prog_run,
};
use jump_label::StaticKey;
use percpu::{Cpu, CpuJoin, CpuPanic, Irq, Machine, Smp, Task, TaskJoin, Topology, announce};
use stats::Form;
use stats::u64_stats::read_once;
use stats::virt::Announced;
use stats::{U64Stats, U64StatsSync};
use trampoline::invoke_bpf_prog;

use super::Take;
use super::script::{Act, Script, ScriptClock};

/// The 32-bit form, with each half of a counter a step.
pub(crate) type Bits32 = stats::Bits32<stats::virt::Word>;

/// A staged configuration of form `F`.
pub(crate) type K<F> = Config<Announced<F>, ScriptClock, AnnouncedKey, Script>;

/// A virtual machine and its script.
pub(crate) struct Lab<F: Form> {
    machine: Machine<K<F>>,
    pub(crate) script: Script,
}

/// A program that does nothing but take its time.
pub(crate) fn count<F: Form>(_: &Cpu<K<F>>) {}

/// A program with a name, which timelines show.
struct Named<G> {
    name: &'static str,
    body: G,
}

impl<F: Form, G: Fn(&Cpu<K<F>>) + Send + Sync> BpfFunc<K<F>> for Named<G> {
    fn call(&self, cpu: &Cpu<K<F>>, _: &mut BpfCtx<'_>) -> u32 {
        announce(cpu, &CALL);
        let script = cpu.machine().steps();
        script.say(cpu, format!("{} runs", self.name));
        script.point(cpu, CALL.name);
        (self.body)(cpu);
        0
    }
}

impl<F: Form> Lab<F> {
    /// A machine of so many CPUs, statistics on.
    pub(crate) fn new(cpus: usize) -> Self {
        let lab = Self::stats_off(cpus);
        lab.key().slow_inc().expect("far from its limit");
        lab
    }

    /// The same, statistics off.
    pub(crate) fn stats_off(cpus: usize) -> Self {
        let script = Script::new(cpus);
        let clock = ScriptClock(script.clone());
        let globals = |pcpu: &_| Globals::new(pcpu, clock, AnnouncedKey::default());
        let machine = Machine::new(Topology::smp(cpus), script.clone(), globals).expect("a virtual machine");
        Self { machine, script }
    }

    /// The machine.
    pub(crate) fn machine(&self) -> &Machine<K<F>> {
        &self.machine
    }

    /// The key that switches statistics.
    pub(crate) fn key(&self) -> &AnnouncedKey {
        &K::<F>::globals(self.machine.globals()).bpf_stats_enabled_key
    }

    /// When `lane` comes to `step`, this happens.
    pub(crate) fn at(&self, lane: &'static str, step: &'static str, act: Act) -> &Self {
        self.at_nth(lane, step, 1, act)
    }

    /// When it does for the n-th time.
    pub(crate) fn at_nth(&self, lane: &'static str, step: &'static str, nth: u64, act: Act) -> &Self {
        self.script.cue(lane, step, nth, act);
        self
    }

    /// A program of this kind.
    pub(crate) fn program(
        &self,
        name: &'static str,
        kind: ProgType,
        body: impl Fn(&Cpu<K<F>>) + Send + Sync + 'static,
    ) -> BpfProg<K<F>> {
        BpfProg::alloc(self.machine.pcpu(), kind, Named { name, body }).expect("a new machine has memory")
    }

    /// A program without statistics, as the placeholder of program arrays is.
    pub(crate) fn placeholder(&self) -> BpfProg<K<F>> {
        let placeholder = Named { name: "placeholder", body: count::<F> };
        BpfProg::alloc_no_stats(self.machine.pcpu(), ProgType::RawTracepoint, placeholder)
            .expect("a new machine has memory")
    }

    /// Boots the machine, lets all that `cast` names take their turns, first named first, and waits for them.
    ///
    /// # Errors
    /// The first panic.
    pub(crate) fn play<'env>(
        &'env self,
        cast: impl for<'p, 'scope> FnOnce(&Play<'p, 'scope, 'env, F>),
    ) -> Result<(), CpuPanic> {
        self.machine.boot(|smp| {
            let play =
                Play { smp, script: &self.script, joins: RefCell::default(), host: RefCell::default() };
            cast(&play);
            self.script.begin();
            if let Some((me, f)) = play.host.take() {
                self.script.enter_host(me);
                let _turn = Turn(&self.script);
                f(smp);
            }
            let results: Vec<_> = play.joins.into_inner().into_iter().map(Join::join).collect();
            results.into_iter().collect()
        })
    }

    /// What is counted of `prog`, when all are done.
    ///
    /// # Panics
    /// If a sequence is left odd, for which `bpf_prog_get_stats` would wait for ever.
    pub(crate) fn stats(&self, prog: &BpfProg<K<F>>) -> BpfProgKstats {
        for cpu in prog.stats.iter().flat_map(|stats| stats.iter_possible()) {
            assert!(cpu.syncp.try_fetch_begin().is_some(), "a sequence is left odd: readers wait for ever");
        }
        bpf_prog_get_stats(prog)
    }

    /// What came of it: whether `holds`, which `name` names, and in words.
    pub(crate) fn judge(&self, name: &'static str, holds: bool, says: impl Into<String>) -> Take {
        Take { timeline: self.script.timeline(), broke: (!holds).then_some(name), says: says.into() }
    }
}

/// Who takes part.
pub(crate) struct Play<'p, 'scope, 'env: 'scope, F: Form> {
    smp: &'p Smp<'scope, 'env, K<F>>,
    script: &'env Script,
    joins: RefCell<Vec<Join<'scope, 'env, F>>>,
    host: RefCell<Option<(usize, HostPart<'scope, 'env, F>)>>,
}

/// What somebody does who is on no CPU.
type HostPart<'scope, 'env, F> = Box<dyn FnOnce(&Smp<'scope, 'env, K<F>>) + 'env>;

enum Join<'scope, 'env, F: Form> {
    Cpu(CpuJoin<'env, (), K<F>>),
    Task(TaskJoin<'scope, ()>),
}

impl<F: Form> Join<'_, '_, F> {
    fn join(self) -> Result<(), CpuPanic> {
        match self {
            Self::Cpu(join) => join.join(),
            Self::Task(join) => join.join(),
        }
    }
}

/// A turn that ends, also by a panic.
struct Turn<'s>(&'s Script);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl<'scope, 'env, F: Form> Play<'_, 'scope, 'env, F> {
    /// CPU `id` does `f`.
    pub(crate) fn cpu(&self, id: usize, f: impl FnOnce(&Cpu<K<F>>) + Send + 'scope) {
        let (script, me) = (self.script, self.script.takes_part(&format!("cpu{id}"), id));
        let join = self.smp.on(id, move |cpu| {
            script.enter(cpu, me, false);
            let _turn = Turn(script);
            f(cpu);
        });
        self.joins.borrow_mut().push(Join::Cpu(join));
    }

    /// A task, which starts on CPU `cpu`, does `f`.
    pub(crate) fn task(&self, name: &str, cpu: usize, f: impl FnOnce(&Task<K<F>>) + Send + 'scope) {
        let (script, me) = (self.script, self.script.takes_part(name, cpu));
        let join = self.smp.spawn(name, cpu, move |task| {
            script.enter(task, me, true);
            let _turn = Turn(script);
            f(task);
        });
        self.joins.borrow_mut().push(Join::Task(join));
    }

    /// Somebody who is on no CPU, one at most, does `f`: who takes CPUs down, say.
    pub(crate) fn host(&self, name: &str, f: impl FnOnce(&Smp<'scope, 'env, K<F>>) + 'env) {
        let me = self.script.takes_part(name, usize::MAX);
        *self.host.borrow_mut() = Some((me, Box::new(f)));
    }

    /// What an interrupt does, on any CPU.
    pub(crate) fn irq(&self, f: impl Fn(&Cpu<K<F>>) + Send + Sync + 'env) {
        self.smp.request_irq(Irq(0), f).expect("the line is free");
    }

    /// What an NMI does, on any CPU.
    pub(crate) fn nmi(&self, f: impl Fn(&Cpu<K<F>>) + Send + Sync + 'env) {
        self.smp.request_nmi(f).expect("there is none yet");
    }
}

/// So many runs, in words.
pub(crate) fn runs(n: u64) -> String {
    format!("{n} run{}", if n == 1 { "" } else { "s" })
}

/// Runs `prog` today's way.
pub(crate) fn run<F: Form>(cpu: &Cpu<K<F>>, prog: &BpfProg<K<F>>) -> u32 {
    bpf_prog_run(cpu, prog, &mut BpfCtx::default())
}

/// Calls `prog` through a trampoline, today's way; `None` if it was skipped.
pub(crate) fn invoke<F: Form>(task: &Task<K<F>>, prog: &BpfProg<K<F>>) -> Option<u32> {
    invoke_bpf_prog(task, prog, 0, &mut BpfCtx::default())
}

/// Reads what CPU `cpu` counted of `prog` as readers do, in at most so many attempts: a reader may never succeed.
pub(crate) fn read<F: Form>(prog: &BpfProg<K<F>>, cpu: usize, attempts: usize) -> Option<BpfProgKstats> {
    let stats = prog.stats.as_ref()?.per_cpu_ptr(cpu);
    let counters = || (stats.nsecs.read(), stats.cnt.read());
    let (_, (nsecs, cnt)) = (0..attempts).find_map(|_| read_once(&stats.syncp, counters))?;
    Some(BpfProgKstats { nsecs, cnt, misses: 0 })
}
