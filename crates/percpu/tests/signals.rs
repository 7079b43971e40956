//! The signals that a machine takes from the host program, and what it leaves to it. One test: signals are the process's.

use percpu::{Irq, Machine, Native, Topology};
use sync::host::{AtomicU64, Ordering::Relaxed};

const OURS: [(i32, &str, &str); 2] =
    [(libc::SIGURG, "SIGURG", "interrupts"), (libc::SIGSTKFLT, "SIGSTKFLT", "NMIs")];

/// How often the host program's own handler ran.
static HOST: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_host_signal(_: i32) {
    HOST.fetch_add(1, Relaxed);
}

/// What the process does on `signal`.
fn action(signal: i32) -> usize {
    // SAFETY: plain data; all-zero is valid, and only the old action is asked for.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, std::ptr::null(), &mut old), 0);
        old.sa_sigaction
    }
}

fn set_action(signal: i32, handler: usize) {
    // SAFETY: plain data; the handler is async-signal-safe, or none.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = handler;
        assert_eq!(libc::sigaction(signal, &new, std::ptr::null_mut()), 0);
    }
}

fn host_handler() -> usize {
    on_host_signal as extern "C" fn(i32) as usize
}

fn errno() -> *mut i32 {
    // SAFETY: always callable.
    unsafe { libc::__errno_location() }
}

fn machine() -> Result<Machine<Native>, percpu::MachineError> {
    Machine::new(Topology::smp(1), Default::default(), |_| ())
}

#[test]
fn signals_are_taken_if_they_are_free_used_beside_the_programs_own_and_given_back() {
    a_signal_in_use_is_refused_and_the_other_is_left_alone();
    what_was_ignored_is_ignored_again();
    the_programs_own_handlers_and_its_calls_go_on();
    errno_of_what_is_interrupted_is_kept();
    one_that_comes_late_is_gone_with_the_machine();
}

fn a_signal_in_use_is_refused_and_the_other_is_left_alone() {
    for (signal, name, stands_for) in OURS {
        set_action(signal, host_handler());
        let message = machine().err().expect("it is in use").to_string();
        let expected = format!(
            "this program already handles {name}, which simulated {stands_for} need: remove that handler first"
        );
        assert_eq!(message, expected);
        for (other, name, _) in OURS {
            let left = if other == signal { host_handler() } else { libc::SIG_DFL };
            assert_eq!(action(other), left, "{name}");
        }
        set_action(signal, libc::SIG_DFL);
    }
}

fn what_was_ignored_is_ignored_again() {
    for (signal, name, _) in OURS {
        set_action(signal, libc::SIG_IGN);
        let (first, second) = (machine().unwrap(), machine().unwrap());
        drop(first);
        assert_ne!(action(signal), libc::SIG_IGN, "{name}: the second machine needs it");
        second.boot(|_| ());
        drop(second);
        assert_eq!(action(signal), libc::SIG_IGN, "{name}");
        set_action(signal, libc::SIG_DFL);
    }
}

/// A CPU that reads a pipe, in the middle of interrupts and NMIs, and of the program's own signal.
fn the_programs_own_handlers_and_its_calls_go_on() {
    set_action(libc::SIGUSR1, host_handler());
    let m = machine().unwrap();
    let mut pipe = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    m.boot(|smp| {
        let reading = smp.on(0, |_| {
            // SAFETY: to this thread; it has a handler.
            unsafe { libc::raise(libc::SIGUSR1) };
            let mut byte = 0u8;
            // SAFETY: room for one byte.
            let n = unsafe { libc::read(pipe[0], (&raw mut byte).cast(), 1) };
            (n, byte)
        });
        while HOST.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        for i in 1..=1000 {
            m.raise(0, Irq(0));
            m.raise_nmi(0);
            while (m.interrupts(0).0, m.nmis(0)) != (i, i) {
                std::thread::yield_now();
            }
        }
        // SAFETY: one byte is there.
        assert_eq!(unsafe { libc::write(pipe[1], [7u8].as_ptr().cast(), 1) }, 1);
        assert_eq!(reading.join().unwrap(), (1, 7), "no EINTR");
    });
    drop(m);
    assert_eq!((HOST.load(Relaxed), action(libc::SIGUSR1)), (1, host_handler()));
    for fd in pipe {
        // SAFETY: our descriptor.
        assert_eq!(unsafe { libc::close(fd) }, 0);
    }
}

fn errno_of_what_is_interrupted_is_kept() {
    let m = machine().unwrap();
    // SAFETY: fails with EBADF.
    let fail = || assert_eq!(unsafe { libc::close(-1) }, -1);
    m.boot(|smp| {
        smp.request_irq(Irq(0), |_| fail()).unwrap();
        smp.request_nmi(|_| fail()).unwrap();
        smp.run(0, |_| {
            for raise in [|m: &Machine<Native>| m.raise(0, Irq(0)), |m: &Machine<Native>| m.raise_nmi(0)] {
                // SAFETY: this thread's errno.
                unsafe { errno().write(libc::ENOTTY) };
                raise(&m);
                // SAFETY: as above.
                assert_eq!(unsafe { errno().read() }, libc::ENOTTY);
            }
            assert_eq!((m.interrupts(0).0, m.nmis(0)), (1, 1));
        })
        .unwrap();
    });
}

/// An NMI's signal that is still pending somewhere when the last machine goes does not end the process.
fn one_that_comes_late_is_gone_with_the_machine() {
    let m = machine().unwrap();
    // SAFETY: valid sets and signals, to this thread.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGSTKFLT);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        libc::raise(libc::SIGSTKFLT);
        drop(m);
        assert_eq!(action(libc::SIGSTKFLT), libc::SIG_DFL, "whose default ends the process");
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}
