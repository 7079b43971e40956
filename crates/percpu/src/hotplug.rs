//! CPUs that come and go. Kernel: kernel/cpu.c (`cpu_down`, `cpu_up`, `cpu_hotplug_lock`), v6.6, in spirit.
//!
//! To take a CPU down is to hold its baton: its own thread waits for it like any other, and then does nothing with it. So
//! tasks that may move find other CPUs, and those that may not go on first: the CPU stays until nobody is bound to it.
//!
//! A CPU that is down keeps its per-CPU memory, and what was counted there still counts. Differs: what is raised there,
//! its timers too, waits until it is up again; the kernel moves timers and interrupt lines to other CPUs.

use std::fmt;
use std::time::Duration;

use sync::host::Ordering::SeqCst;
use sync::thread;

use crate::Kconfig;
use crate::cpu::Cpu;
use crate::sched;
use crate::smp::{Machine, Smp};

/// A CPU cannot come or go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HotplugError {
    /// It is the last one. Kernel: `EBUSY`.
    Last(usize),
    /// The machine did not boot with such a CPU. Kernel: `EINVAL`.
    NotPresent(usize),
    /// It is down, or up, already.
    Already(usize),
}

impl fmt::Display for HotplugError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last(cpu) => write!(f, "CPU {cpu} is the last one online: it stays"),
            Self::NotPresent(cpu) => write!(f, "the machine has booted without a CPU {cpu}"),
            Self::Already(cpu) => write!(f, "CPU {cpu} is so already"),
        }
    }
}

impl std::error::Error for HotplugError {}

impl<K: Kconfig> Machine<K> {
    /// Whether CPU `cpu` is up. Kernel: `cpu_online`.
    pub fn cpu_online(&self, cpu: usize) -> bool {
        // ORDERING (host): SeqCst; pairs with `cpu_down`, `cpu_up`, `bring_up` and `drop` of `Down`.
        cpu < self.topology().possible() && self.slot(cpu).online.load(SeqCst)
    }

    /// How many CPUs are up. Kernel: `num_online_cpus`.
    pub fn num_online_cpus(&self) -> usize {
        (0..self.topology().online()).filter(|&cpu| self.cpu_online(cpu)).count()
    }
}

impl<'env, K: Kconfig> Smp<'_, 'env, K> {
    /// Takes CPU `id` down, and waits until it is: until the work put there is done, and no task is bound to it.
    /// Kernel: `remove_cpu`.
    ///
    /// Context: off every CPU (the caller of [`Machine::boot`], [`Smp::spawn_outside`]).
    ///
    /// # Errors
    /// If it is down, the last one, or was never up.
    ///
    /// # Panics
    /// If the caller is on a CPU: it could wait for itself.
    pub fn cpu_down(&self, id: usize) -> Result<(), HotplugError> {
        assert!(sync::irq::current().is_null(), "cpu_down on a CPU, which could wait for itself");
        let machine = self.machine();
        let wake = {
            let mut down = self.hotplug.write().unwrap_or_else(|e| e.into_inner());
            self.present(id)?;
            if !machine.cpu_online(id) {
                return Err(HotplugError::Already(id));
            }
            if machine.num_online_cpus() == 1 {
                return Err(HotplugError::Last(id));
            }
            // ORDERING (host): SeqCst; pairs with `cpu_online`.
            machine.slot(id).online.store(false, SeqCst);
            let (promise, wake) = thread::promise();
            down.insert(id, promise);
            wake
        };
        let (promise, is_down) = thread::promise();
        self.worker(id).submit(Box::new(move |cpu| play_dead(cpu, || promise.keep(()), || _ = wake.wait())));
        let mut is_down = is_down;
        while let Err(waiting) = is_down.wait_for(Duration::from_millis(1)) {
            is_down = waiting;
            // Whoever is there gives it away as soon as preemption is on.
            machine.resched(id);
        }
        Ok(())
    }

    /// Brings CPU `id` up again. Kernel: `add_cpu`.
    ///
    /// # Errors
    /// If it is up, or the machine has booted without it.
    pub fn cpu_up(&self, id: usize) -> Result<(), HotplugError> {
        let mut down = self.hotplug.write().unwrap_or_else(|e| e.into_inner());
        self.present(id)?;
        let promise = down.remove(&id).ok_or(HotplugError::Already(id))?;
        // ORDERING (host): SeqCst; pairs with `cpu_online`.
        self.machine().slot(id).online.store(true, SeqCst);
        promise.keep(());
        Ok(())
    }

    fn present(&self, id: usize) -> Result<(), HotplugError> {
        if id < self.machine().topology().online() { Ok(()) } else { Err(HotplugError::NotPresent(id)) }
    }
}

/// Keeps this CPU from everybody, once nobody is bound to it, while `wait` does. Kernel: `play_dead`.
fn play_dead<K: Kconfig>(cpu: &Cpu<K>, dead: impl FnOnce(), wait: impl FnOnce()) {
    let id = cpu.smp_processor_id();
    let slot = cpu.machine().slot(id);
    // ORDERING (host): SeqCst; pairs with `Bound::to` and `drop` of `Bound`: who is bound said so before it left the
    // CPU, or was put there while it was online.
    while slot.bound.load(SeqCst) != 0 {
        sched::leave(cpu);
        thread::yield_now();
        sched::take(cpu, id);
    }
    sched::close(cpu, slot);
    dead();
    wait();
    sched::open(cpu, id, slot);
}
