//! Which texts `kernel.bpf_stats_enabled` takes, from whom, and as what. Kernel: `bpf_stats_handler`, `do_proc_dointvec`.

use anyhow::Result;
use host::caller::Rights;
use host::facts::sysctl_text::{self, write_errno_as};
use host::{Errno, Release};

use super::Fact;
use super::sim::{self, Sim};

const FAMILY: &str = "kernel.bpf_stats_enabled";
const SINCE: Release = Release(5, 8);

const TEXTS: [&[u8]; 27] = [
    b"1",
    b"0",
    b"1\n",
    b"01",
    b"0x1",
    b"0X1",
    b" 1",
    b"1 ",
    b"1 1",
    b"1\tx",
    b"-0",
    b"00000000000000000001",
    b"",
    b"2",
    b"-1",
    b"abc",
    b"+1",
    b"1abc",
    b"1\0",
    b" ",
    b"\n",
    b"08",
    b"0x",
    b"--1",
    b"4294967296",
    b"99999999999999999999",
    b"000000000000000000001",
];

pub(super) fn facts() -> Vec<Fact> {
    let texts = TEXTS.into_iter().map(|text| {
        let name = match text {
            b"" => "nothing".into(),
            _ => format!("\"{}\"", text.escape_ascii()),
        };
        Fact::new(
            FAMILY,
            name,
            SINCE,
            move |sim| both(|before| sim_write(sim, before, text)),
            move || both(|before| host_write(before, text)),
        )
    });
    let rights = [
        (Rights::WithoutSysAdmin, "kernel.bpf_stats_enabled without CAP_SYS_ADMIN"),
        (Rights::Nobody, "kernel.bpf_stats_enabled by nobody"),
    ];
    let refused = rights.into_iter().flat_map(|(rights, family)| {
        ["1", "0", "2", ""].into_iter().map(move |text| {
            Fact::new(
                family,
                format!("{text:?}"),
                SINCE,
                move |sim| {
                    let written = sim.process(rights).write_bpf_stats_enabled(text.as_bytes());
                    Ok(written.err().map_or("taken".into(), sim::name))
                },
                move || match write_errno_as(rights, text.as_bytes())? {
                    0 => Ok("taken".into()),
                    errno => Ok(Errno(errno).name().into()),
                },
            )
        })
    });
    texts.chain(refused).collect()
}

/// The answers from 0 and from 1; in one where they are the same.
fn both<E>(ask: impl Fn(bool) -> Result<(String, String), E>) -> Result<String, E> {
    let ((from_0, now_0), (from_1, now_1)) = (ask(false)?, ask(true)?);
    let now = match (now_0.as_str(), now_1.as_str()) {
        (a, b) if a == b => format!("reads {a}"),
        ("0", "1") => "no change".into(),
        (a, b) => format!("reads {a} after 0, {b} after 1"),
    };
    Ok(if from_0 == from_1 { format!("{from_0}, {now}") } else { format!("{from_0} or {from_1}, {now}") })
}

fn taken(n: usize) -> String {
    format!("takes {n}")
}

fn host_write(before: bool, text: &[u8]) -> Result<(String, String), host::CannotAsk> {
    let written = sysctl_text::write(before, text)?;
    Ok((written.taken.map_or_else(|e| e.name().to_string(), taken), written.reads))
}

fn sim_write(sim: &Sim, before: bool, text: &[u8]) -> Result<(String, String)> {
    let process = sim.process(Rights::All);
    process.write_bpf_stats_enabled(if before { b"1" } else { b"0" })?;
    let written = process.write_bpf_stats_enabled(text).map_or_else(sim::name, taken);
    let reads = String::from_utf8_lossy(&process.read_bpf_stats_enabled()).trim_end().to_string();
    process.write_bpf_stats_enabled(b"0")?;
    Ok((written, reads))
}
