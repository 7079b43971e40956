//! Without any rights every question says in clear words why it cannot be asked, and nothing is half done.

use std::thread;

use host::caller::{self, Rights};
use host::expect::asked;
use host::facts::counting::{readings, survival};
use host::facts::enable::{Attr, enable_errno};
use host::facts::flip::{Path, flip_during_run};
use host::facts::misses::recursion;
use host::facts::sysctl_text::write;
use host::facts::toggle::{Step, toggle};
use host::facts::torn::samples;
use host::{Ask, CannotAsk, Host, ProgType, Release};

/// Asks as `nobody`; as the ordinary user that we are, if we are one.
fn as_nobody<T: Send>(ask: impl FnOnce() -> T + Send) -> T {
    if caller::is_privileged() {
        caller::with(Rights::Nobody, ask).expect("rights can be given up")
    } else {
        ask()
    }
}

/// One line that names what is missing and what to do.
fn is_clear(why: &CannotAsk) {
    let text = why.to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("CAP_") && text.contains("run as root"), "{text}");
}

#[test]
fn probe_says_why_not() {
    let host = as_nobody(Host::probe);
    assert!(!host.privileged);
    for ask in [Ask::TestRun(ProgType::RawTracepoint), Ask::EnableStats, Ask::SysctlWrite, Ask::ProgIds] {
        is_clear(&host.can(ask).expect_err("nobody may not"));
    }
    assert_eq!(host.can(Ask::SysctlRead), Ok(()));
    assert!(host.to_string().lines().count() == 1 + Ask::ALL.len(), "{host}");
}

#[test]
fn every_question_says_why_not() {
    let whys = as_nobody(|| {
        [
            enable_errno(Attr::Bytes(&[]), 4, Rights::All).map(drop),
            write(false, b"1").map(drop),
            toggle(&[Step::Open]).map(drop),
            flip_during_run(Path::ProgRun, &[true, false]).map(drop),
            recursion(false, 1).map(drop),
            samples(1, |_| false).map(drop),
            survival(ProgType::RawTracepoint, 1, &[true]).map(drop),
            readings(1).map(drop),
        ]
    });
    for why in whys {
        is_clear(&why.expect_err("nobody may not"));
    }
}

#[test]
fn privileged_can_ask_everything() {
    let host = Host::probe();
    print!("{host}");
    for (ask, answer) in host.answers {
        asked(Release(6, 6), answer.map_err(|why| CannotAsk(format!("{ask}: {why}"))));
    }
}

#[test]
fn what_must_be_askable_is_not_skipped() {
    let refused = || Err::<(), _>(CannotAsk("for this test".into()));
    let panics = |since| thread::spawn(move || asked(since, refused())).join().is_err();
    assert!(!panics(Release(999, 0)), "later kernels only");
    let told = std::env::var_os(host::expect::REFUSED).is_some();
    assert_eq!(panics(Release(0, 0)), caller::is_privileged() && !told);
}
