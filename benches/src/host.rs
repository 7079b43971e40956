//! The machine that the figures are of.

use std::fs;
use std::process::Command;

use serde::Serialize;

/// What one must know of it.
#[derive(Debug, Serialize)]
pub(crate) struct Host {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) rustc: String,
}

impl Host {
    /// This one; "unknown" where it does not tell.
    pub(crate) fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(": "));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let rustc = Command::new("rustc").arg("--version").output();
        let rustc = rustc.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
        Self {
            cpu: known(model.map_or("", |(_, name)| name)),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: known(&kernel),
            rustc: known(&rustc),
        }
    }

    /// In one line.
    pub(crate) fn line(&self) -> String {
        let Self { cpu, cores, kernel, rustc } = self;
        let rustc = rustc.split(" (").next().unwrap_or(rustc);
        format!("{cpu}, {cores} core(s), Linux {kernel}, {rustc}")
    }
}

fn known(text: &str) -> String {
    match text.trim() {
        "" => "unknown".into(),
        text => text.into(),
    }
}
