//! What `BPF_ENABLE_STATS` answers, whatever it is given. Kernel: `__sys_bpf`, `bpf_enable_stats`.

use anyhow::Result;
use bpf::syscall::BPF_ENABLE_STATS;
use host::caller::Rights;
use host::facts::enable::{Attr, Descriptor, descriptor, enable_errno};
use host::{Errno, Release};

use super::Fact;
use super::sim::{self, Sim};

const BY_ROOT: &str = "BPF_ENABLE_STATS";
const WITHOUT_RIGHT: &str = "BPF_ENABLE_STATS without CAP_SYS_ADMIN";
const BY_NOBODY: &str = "BPF_ENABLE_STATS by nobody";
const SINCE: Release = Release(5, 8);

/// The last byte of a page, which no kernel knows.
const BEYOND: [u8; 4096] = {
    let mut bytes = [0; 4096];
    bytes[4095] = 1;
    bytes
};

/// What is given: a name, the attribute, its size.
type Case = (&'static str, Attr<'static>, u32);

const CASES: [Case; 17] = [
    ("type 0", Attr::Bytes(&[0; 4]), 4),
    ("type 1", Attr::Bytes(&[1, 0, 0, 0]), 4),
    ("type -1", Attr::Bytes(&[0xff; 4]), 4),
    ("size 8, zero after type", Attr::Bytes(&[]), 8),
    ("size 8, first byte after type", Attr::Bytes(&[0, 0, 0, 0, 1]), 8),
    ("size 8, last byte", Attr::Bytes(&[0, 0, 0, 0, 0, 0, 0, 1]), 8),
    ("size 4, a byte out of sight", Attr::Bytes(&[0, 0, 0, 0, 1]), 4),
    ("size 0", Attr::Bytes(&[]), 0),
    ("size 0, type 1 out of sight", Attr::Bytes(&[1]), 0),
    ("size 2", Attr::Bytes(&[]), 2),
    ("size 2, type 1", Attr::Bytes(&[1]), 2),
    ("size 4096, all zero", Attr::Bytes(&[]), 4096),
    ("size 4096, last byte", Attr::Bytes(&BEYOND), 4096),
    ("size 4097", Attr::Bytes(&[]), 4097),
    ("bad address", Attr::BadAddress, 4),
    ("bad address, size 0", Attr::BadAddress, 0),
    ("bad address, size 4097", Attr::BadAddress, 4097),
];

/// Each has the faults that come after its own check too: so the order is tail, capability, type.
const REFUSED: [Case; 4] = [
    ("type 0", Attr::Bytes(&[0; 4]), 4),
    ("type 1", Attr::Bytes(&[1, 0, 0, 0]), 4),
    ("type 1, byte after it", Attr::Bytes(&[1, 0, 0, 0, 1]), 8),
    ("type 1, byte beyond the attribute", Attr::Bytes(&BEYOND), 4096),
];

pub(super) fn facts() -> Vec<Fact> {
    let cases = CASES.into_iter().map(|case| fact(BY_ROOT, case, Rights::All));
    let admin = REFUSED.into_iter().map(|case| fact(WITHOUT_RIGHT, case, Rights::WithoutSysAdmin));
    let nobody = REFUSED.into_iter().map(|case| fact(BY_NOBODY, case, Rights::Nobody));
    let name = |d: Descriptor| format!("{}{}", d.name, if d.close_on_exec { ", CLOEXEC" } else { "" });
    let descriptor = Fact::new(
        BY_ROOT,
        "the descriptor",
        SINCE,
        move |sim| sim_descriptor(sim).map(name),
        move || descriptor().map(name),
    );
    cases.chain([descriptor]).chain(admin).chain(nobody).collect()
}

fn fact(family: &'static str, (what, attr, size): Case, rights: Rights) -> Fact {
    Fact::new(
        family,
        what,
        SINCE,
        move |sim| Ok(answer(sim_errno(sim, attr, size, rights))),
        move || {
            let errno = enable_errno(attr, size, rights)?;
            Ok(answer((errno != 0).then(|| Errno(errno).name().to_string())))
        },
    )
}

fn answer(errno: Option<String>) -> String {
    errno.unwrap_or_else(|| "a descriptor".into())
}

fn sim_errno(sim: &Sim, attr: Attr<'_>, size: u32, rights: Rights) -> Option<String> {
    let mut process = sim.process(rights);
    let at = match attr {
        Attr::Bytes(given) => {
            let mut bytes = given.to_vec();
            bytes.resize(8192, 0);
            process.mem.map(&bytes)
        }
        Attr::BadAddress => 8,
    };
    process.bpf(BPF_ENABLE_STATS, at, size).err().map(sim::name)
}

fn sim_descriptor(sim: &Sim) -> Result<Descriptor> {
    let mut process = sim.process(Rights::All);
    let fd = sim::enable(&mut process, &[0; 4])?;
    let name = process.files.get(fd).map(|file| file.name().to_string()).unwrap_or_default();
    process.files.exec();
    Ok(Descriptor { name, close_on_exec: process.files.get(fd).is_none() })
}
