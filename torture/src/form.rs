//! The forms of the path that are put under fire: today's, and older ones that must not stand it.

use clap::ValueEnum;
use filter::{BpfCtx, BpfProg, Kconfig, bpf_prog_run};
use percpu::{PreemptGuard, Task};
use trampoline::{history, invoke_bpf_prog};

use crate::tally::once_in;

/// Which form of the path runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// The code as it is.
    Today,
    /// 5.15: the update does not mask interrupts; on 32-bit it loses counts, and leaves readers stuck.
    #[value(name = "before_f941eadd8d6d")]
    BeforeF941eadd8d6d,
    /// 6.0: the guard is a load, an add and a store; two tasks get in, or it stays up.
    #[value(name = "before_c89e843a11f1")]
    BeforeC89e843a11f1,
}

/// How the two kinds of programs are called.
pub(crate) struct Calls<K: Kconfig> {
    /// By whoever has preemption off; counts the run.
    pub(crate) run: fn(&PreemptGuard<'_, K>, &BpfProg<K>),
    /// Through a trampoline; whether the program ran.
    pub(crate) invoke: fn(&Task<K>, &BpfProg<K>) -> bool,
}

impl Form {
    pub(crate) fn calls<K: Kconfig>(self) -> Calls<K> {
        let today = Calls {
            run: |cpu, prog| _ = bpf_prog_run(cpu, prog, &mut BpfCtx::default()),
            invoke: |task, prog| invoke_bpf_prog(task, prog, 0, &mut BpfCtx::default()).is_some(),
        };
        match self {
            Self::Today => today,
            Self::BeforeF941eadd8d6d => Calls {
                run: |cpu, prog| {
                    _ = filter::history::before_f941eadd8d6d::bpf_prog_run(cpu, prog, &mut BpfCtx::default());
                },
                ..today
            },
            Self::BeforeC89e843a11f1 => Calls { invoke: invoke_before_c89e843a11f1, ..today },
        }
    }
}

/// Enter, call and exit with the guard of 6.0; nothing is counted but misses.
fn invoke_before_c89e843a11f1<K: Kconfig>(task: &Task<K>, prog: &BpfProg<K>) -> bool {
    let cpu = task.migrate_disable();
    // Three steps of machine code; where a preemption falls between them once in a long while, here one often does.
    let between = || {
        if once_in(8) {
            cpu.cond_resched();
        }
    };
    let ran = history::before_c89e843a11f1::take_guard(&cpu, prog, between);
    if ran {
        prog.bpf_func.call(&cpu, &mut BpfCtx::default());
    } else {
        filter::bpf_prog_inc_misses_counter(&cpu, prog);
    }
    prog.active.as_ref().expect("a program that is entered has a guard").this_cpu_dec(&cpu);
    ran
}
