//! Generated programs, run in both worlds: the interpreter against the kernel, which compiles them.
//!
//! Each program has a seed of its own, the first one's and up, so that any can be run again alone. Compared are r0 (the low
//! 32 bits, which is what a test run gives) and all that is in the maps, where programs put their registers too.

mod opcodes;
mod program;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use bpf::disasm::Listing;
use bpf::insn::jmp_a;
use bpf::interp::{RunOpts, run_with};
use bpf::{BpfInsn, Map, MapAttr, MapType, PlainEnv, Program};
use fastrand::Rng;
use filter::clock::OtherClock;
use host::sysctl::Exclusive;
use host::{CannotAsk, Host, ProgType, Release};
use jump_label::AtomicKey;
use percpu::{NoSteps, Topology};
use serde::Serialize;
use stats::Bits64;

use super::expected;
use super::report::{Asked, Verdict, WIDTH};
use crate::out;
use crate::twin::{load_with, twin_maps};
use opcodes::Tally;
use program::{ARRAY_ENTRIES, DATA_SIZE, HASH_ENTRIES, KEYS, VALUE_SIZE};

pub(super) const FAMILY: &str = "generated programs";
const NAME: &str = "r0, and what maps hold";
/// All of the opcodes are there since then.
const SINCE: Release = Release(6, 6);

pub(super) fn full_name() -> String {
    format!("{FAMILY}: {NAME}")
}

/// What a packet has in front of what a socket filter sees of it, in bytes. Kernel: `ETH_HLEN`.
const ETH_HLEN: usize = 14;
/// Bytes of a packet.
const PACKET: usize = 64;
/// Instructions that one run may take: far more than any program here.
const BUDGET: u64 = 1 << 20;

/// What came of them.
#[derive(Debug, Serialize)]
pub(super) struct Generated {
    pub(super) first_seed: u64,
    /// Programs that were run in both.
    pub(super) accepted: u64,
    /// Programs that this kernel's verifier refused, by its words.
    pub(super) refused: BTreeMap<String, u64>,
    pub(super) differences: Vec<Difference>,
    /// How often accepted programs have each opcode, the rarest first.
    pub(super) opcodes: Vec<(String, u64)>,
}

/// A program that did not do the same.
#[derive(Debug, Serialize)]
pub(super) struct Difference {
    pub(super) seed: u64,
    pub(super) simulation: String,
    pub(super) kernel: String,
    /// Its instructions, but for those that do not matter.
    pub(super) program: String,
}

/// Differences that are kept at most.
const KEPT: usize = 5;

/// Runs programs until `programs` were accepted: as a fact, and in numbers if they could be run.
///
/// # Errors
/// If something fails that has nothing to do with this kernel's answers.
pub(super) fn ask(first_seed: u64, programs: u64) -> Result<(Asked, Option<Generated>)> {
    let (simulation, family, name) = (format!("{programs} do the same"), FAMILY, NAME.into());
    let asked = |verdict, host, why: Option<String>| Asked {
        family,
        name,
        since: SINCE.to_string(),
        verdict,
        simulation,
        host,
        lost: why.is_some() && expected::must_be_asked(&full_name()),
        why,
    };
    let generated = match run(first_seed, programs)? {
        Err(CannotAsk(why)) => return Ok((asked(Verdict::CannotAsk, None, Some(why)), None)),
        Ok(generated) => generated,
    };
    let (accepted, differ) = (generated.accepted, generated.differences.len() as u64);
    let host = format!("{} do the same", accepted - differ);
    let verdict = if accepted == programs && differ == 0 { Verdict::Same } else { Verdict::Differs };
    Ok((asked(verdict, Some(host), None), Some(generated)))
}

impl Generated {
    /// What was run, and what differed.
    pub(super) fn text(&self) -> String {
        let refused: u64 = self.refused.values().sum();
        let mut t =
            format!("seeds from {}; this kernel's verifier refused {refused} others", self.first_seed);
        if let Some((rarest, n)) = self.opcodes.first() {
            t += &format!("; {} opcodes, the rarest {n} times: {rarest}", self.opcodes.len());
        }
        let mut t = fold_right(&t);
        for Difference { seed, simulation, kernel, program } in &self.differences {
            let again = format!("progstats oracle generated --seed {seed} --programs 1");
            t += &fold_right(&format!("simulation: {simulation}"));
            t += &fold_right(&format!("this kernel: {kernel}"));
            t += &fold_right(&again);
            t += program;
        }
        t
    }
}

/// `text` in the column of the answers that have a line of their own.
fn fold_right(text: &str) -> String {
    let folded = out::fold(text, WIDTH - 19);
    folded.lines().map(|line| format!("{:19}{line}\n", "")).collect()
}

/// Runs programs until `programs` were accepted.
///
/// # Errors
/// In the outer result if something fails that has nothing to do with this kernel's answers.
pub(super) fn run(first_seed: u64, programs: u64) -> Result<Result<Generated, CannotAsk>> {
    let _lock = match Exclusive::lock() {
        Ok(lock) => lock,
        Err(e) => return Ok(Err(e.into())),
    };
    let both = match Both::new()? {
        Ok(both) => both,
        Err(why) => return Ok(Err(why)),
    };
    let mut generated =
        Generated { first_seed, accepted: 0, refused: BTreeMap::new(), differences: vec![], opcodes: vec![] };
    let mut tally = Tally::default();
    // A generator that is mostly refused must come to an end too.
    for seed in (0..2 * programs).map(|n| first_seed.wrapping_add(n)) {
        if generated.accepted == programs || generated.differences.len() == KEPT {
            break;
        }
        let insns = program::program(seed, Host::release());
        match both.run(seed, &insns)? {
            Err(refused) => {
                // Without numbers: they tell one program from another.
                let words = refused.replace(|c: char| c.is_ascii_digit(), "");
                *generated.refused.entry(words).or_default() += 1;
            }
            Ok(outcome) => {
                generated.accepted += 1;
                tally.count(&insns);
                let [simulation, kernel] = outcome;
                if simulation != kernel {
                    generated.differences.push(both.difference(seed, insns)?);
                }
            }
        }
    }
    generated.opcodes = tally.counts().into_iter().map(|(opcode, n)| (opcode.text(), n)).collect();
    Ok(Ok(generated))
}

/// How a program ended: its result, and what the maps hold, each under its name.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    r0: String,
    maps: Vec<(String, Option<Vec<u8>>)>,
}

impl Outcome {
    /// What differs, in both's words.
    fn told_apart_from(&self, other: &Outcome) -> [String; 2] {
        let mut words = [format!("r0 {}", self.r0), format!("r0 {}", other.r0)];
        for ((name, ours), (_, theirs)) in self.maps.iter().zip(&other.maps) {
            if ours != theirs {
                words[0] += &format!("; {name}: {}", hex(ours.as_deref()));
                words[1] += &format!("; {name}: {}", hex(theirs.as_deref()));
            }
        }
        words
    }
}

fn hex(value: Option<&[u8]>) -> String {
    match value {
        Some(bytes) => bytes.iter().map(|b| format!("{b:02x}")).collect(),
        None => "none".into(),
    }
}

/// The maps of both worlds.
struct Both {
    ours: Vec<Arc<Map>>,
    theirs: Vec<host::Map>,
}

impl Both {
    fn new() -> Result<Result<Self, CannotAsk>> {
        let machine =
            filter::machine::<Bits64, _, AtomicKey, _>(Topology::smp(1), NoSteps, OtherClock::os())?;
        let create = |(id, attr)| Map::create(id, attr, machine.pcpu());
        let attrs = [
            MapAttr::array("progstats_data", DATA_SIZE, 1),
            MapAttr::array("progstats_hash", VALUE_SIZE, HASH_ENTRIES).of_type(MapType::Hash),
            MapAttr::array("progstats_arr", VALUE_SIZE, ARRAY_ENTRIES),
        ];
        let ours = (1..).zip(attrs).map(create).collect::<Result<Vec<_>, _>>()?;
        match twin_maps(&ours) {
            Ok(theirs) => Ok(Ok(Self { ours, theirs })),
            Err(e) => Ok(Err(CannotAsk(format!("{e:#}")))),
        }
    }

    /// Runs a program in both, on maps that begin with the same contents; the verifier's words if it is refused.
    fn run(&self, seed: u64, insns: &[BpfInsn]) -> Result<Result<[Outcome; 2], String>> {
        let prog = match load_with(insns, &self.theirs, ProgType::SocketFilter, "progstats_gen") {
            Ok(prog) => prog,
            Err(e) => return Ok(Err(e.to_string())),
        };
        let mut rng = Rng::with_seed(!seed);
        let mut packet = [0u8; PACKET];
        rng.fill(&mut packet);
        self.fill(&mut rng)?;
        let kernel = prog.test_run_on(&mut packet.clone())?;
        let program = Program::load("generated", insns, self.ours.clone())
            .map_err(|e| anyhow!("seed {seed}: the simulation refuses what this kernel takes: {e}"))?;
        let opts = RunOpts { budget: BUDGET, ..RunOpts::default() };
        let ran = run_with(&program, &mut packet[ETH_HLEN..], &PlainEnv::default(), opts);
        let simulation = ran.map_or_else(|fault| fault.to_string(), |r0| format!("{:#x}", r0 as u32));
        let theirs = |map: usize, key: &[u8]| self.theirs[map].lookup(key).ok();
        let ours = |map: usize, key: &[u8]| self.ours[map].lookup_elem(&PlainEnv::default(), key).ok();
        Ok(Ok([
            Outcome { r0: simulation, maps: contents(ours) },
            Outcome { r0: format!("{:#x}", kernel.retval), maps: contents(theirs) },
        ]))
    }

    /// A program that differs, without the instructions that have no part in it.
    fn difference(&self, seed: u64, mut insns: Vec<BpfInsn>) -> Result<Difference> {
        let nothing = jmp_a(0);
        // This kernel lets the privileged read what was never written, and mix addresses with numbers.
        let beginnings = program::beginnings(&insns);
        let differs = |insns: &[BpfInsn]| -> Result<_> {
            Ok(self.run(seed, insns)?.ok().filter(|[simulation, kernel]| simulation != kernel))
        };
        loop {
            let mut smaller = false;
            for at in 0..insns.len() {
                let insn = insns[at];
                let kept = beginnings.iter().any(|range| range.contains(&at));
                if insn != nothing && !insn.is_ld_imm64() && insn.code != 0 && !kept {
                    insns[at] = nothing;
                    match differs(&insns)? {
                        Some(_) => smaller = true,
                        None => insns[at] = insn,
                    }
                }
            }
            if !smaller {
                break;
            }
        }
        let [simulation, kernel] =
            differs(&insns)?.context("a program differed once, and does not any more")?;
        let [simulation, kernel] = simulation.told_apart_from(&kernel);
        let listing = Listing(&insns).to_string();
        let program =
            listing.lines().filter(|l| !l.ends_with("goto pc+0")).map(|l| format!("{l}\n")).collect();
        Ok(Difference { seed, simulation, kernel, program })
    }

    /// The same contents in both; some keys of the hash are there and some not.
    fn fill(&self, rng: &mut Rng) -> Result<()> {
        let env = PlainEnv::default();
        for (ours, theirs) in self.ours.iter().zip(&self.theirs) {
            let is_hash = ours.map_type() == MapType::Hash;
            let keys = if is_hash { KEYS } else { ours.max_entries() };
            for key in (0..keys).map(u32::to_ne_bytes) {
                if is_hash && theirs.lookup(&key).is_ok() {
                    theirs.delete(&key)?;
                    ours.delete_elem(&env, &key).context("both have the same keys")?;
                }
            }
            for key in (0..keys).map(u32::to_ne_bytes) {
                if is_hash && rng.bool() {
                    continue;
                }
                let mut value = vec![0; ours.value_size() as usize];
                rng.fill(&mut value);
                // More than the hash takes are refused by both.
                let taken =
                    (theirs.update(&key, &value).is_ok(), ours.update_elem(&env, &key, &value, 0).is_ok());
                anyhow::ensure!(taken.0 == taken.1, "filling the maps: {taken:?}");
            }
        }
        Ok(())
    }
}

fn contents(lookup: impl Fn(usize, &[u8]) -> Option<Vec<u8>>) -> Vec<(String, Option<Vec<u8>>)> {
    let keys = [("data", 0, 1), ("hash", 1, KEYS), ("array", 2, ARRAY_ENTRIES)];
    let all = keys.into_iter().flat_map(|(name, map, keys)| (0..keys).map(move |key| (name, map, key)));
    all.map(|(name, map, key)| (format!("{name}[{key}]"), lookup(map, &key.to_ne_bytes()))).collect()
}
