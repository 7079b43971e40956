//! Where a program comes from: built in, an object of clang, assembly, or hex.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use bpf::elf::Object;
use bpf::{BpfInsn, Map, Program, asm, insn};
use percpu::Pcpu;

use crate::cli::SourceArgs;
use crate::programs;

/// The type of what has none of its own: what the seed's author measured.
const TRACEPOINT: &str = "raw_tracepoint";

/// A program's text, ready to be loaded any number of times, each with maps of its own.
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) insns: Vec<BpfInsn>,
    /// The program type, in bpftool's word.
    pub(crate) kind: &'static str,
    maps: Maps,
}

enum Maps {
    None,
    /// The built-in counter's.
    Counter,
    Of(Box<Object>),
}

impl Source {
    /// What the arguments name; the built-in counter if they name nothing.
    pub(crate) fn of(args: &SourceArgs) -> Result<Self> {
        match (&args.object, &args.asm, &args.hex) {
            (Some(path), _, _) => Self::object(path, args.section.as_deref()),
            (_, Some(path), _) => Self::asm(path),
            (_, _, Some(path)) => Self::hex(path),
            _ => Ok(Self::counter()),
        }
    }

    pub(crate) fn counter() -> Self {
        Self {
            name: "count_sys_enter".into(),
            insns: programs::count_sys_enter(),
            kind: TRACEPOINT,
            maps: Maps::Counter,
        }
    }

    pub(crate) fn empty() -> Self {
        Self { name: "empty".into(), insns: programs::empty(), kind: TRACEPOINT, maps: Maps::None }
    }

    fn object(path: &Path, section: Option<&str>) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("{}", path.display()))?;
        let object = Object::parse(&bytes).with_context(|| format!("{}", path.display()))?;
        let program = match (section, &object.programs[..]) {
            (Some(name), _) => object.program(name).with_context(|| format!("{}", path.display()))?,
            (None, [only]) => only,
            (None, all) => {
                let names: Vec<_> = all.iter().map(|p| format!("{} ({})", p.section, p.name)).collect();
                bail!("{}: choose one with --section: {}", path.display(), names.join(", "));
            }
        };
        Ok(Self {
            name: program.name.clone(),
            insns: program.insns.clone(),
            kind: program.prog_type.name(),
            maps: Maps::Of(Box::new(object)),
        })
    }

    fn asm(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
        let insns = asm::assemble(&text).map_err(|e| anyhow!("{}:{e}", path.display()))?;
        Ok(Self { name: stem(path), insns, kind: TRACEPOINT, maps: Maps::None })
    }

    fn hex(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
        let insns = insns_from_hex(&text).with_context(|| format!("{}", path.display()))?;
        Ok(Self { name: stem(path), insns, kind: TRACEPOINT, maps: Maps::None })
    }

    /// Loads the program with maps of its own, numbered from `first_map`.
    pub(crate) fn load(&self, pcpu: &Pcpu, first_map: u32) -> Result<Program> {
        let maps: Vec<Arc<Map>> = match &self.maps {
            Maps::None => Vec::new(),
            Maps::Counter => vec![programs::counter_map(pcpu, first_map)?],
            Maps::Of(object) => object.create_maps(first_map, pcpu)?,
        };
        Program::load(&self.name, &self.insns, maps).with_context(|| format!("{} is refused", self.name))
    }
}

/// A file's name without its ending, as a program's name: at most 15 bytes, as the kernel's.
fn stem(path: &Path) -> String {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    name.chars().filter(char::is_ascii).take(15).collect()
}

/// Instructions from hex digits, 16 an instruction; white space counts for nothing.
pub(crate) fn insns_from_hex(text: &str) -> Result<Vec<BpfInsn>> {
    let bytes = bytes_from_hex(text)?;
    if bytes.is_empty() {
        bail!("the program is empty: 8 bytes an instruction are needed, as hex");
    }
    insn::from_bytes(&bytes).with_context(|| {
        format!("{} bytes are no whole number of instructions, which have 8 bytes each", bytes.len())
    })
}

/// Bytes from hex digits; white space counts for nothing.
pub(crate) fn bytes_from_hex(text: &str) -> Result<Vec<u8>> {
    let mut digits = Vec::new();
    for (line, l) in text.lines().enumerate() {
        for (column, c) in l.chars().enumerate().filter(|(_, c)| !c.is_whitespace()) {
            let digit = c.to_digit(16);
            digits
                .push(digit.with_context(|| format!("{}:{}: {c:?} is no hex digit", line + 1, column + 1))?
                    as u8);
        }
    }
    if digits.len() % 2 != 0 {
        bail!("{} hex digits are no whole number of bytes", digits.len());
    }
    Ok(digits.chunks_exact(2).map(|d| d[0] << 4 | d[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_read_with_its_column() {
        assert_eq!(bytes_from_hex("b7 00\n0a").unwrap(), [0xb7, 0, 0x0a]);
        assert_eq!(bytes_from_hex("b7\n 0x").unwrap_err().to_string(), "2:3: 'x' is no hex digit");
        assert!(bytes_from_hex("abc").unwrap_err().to_string().contains("3 hex digits"));
        assert!(insns_from_hex("b700").unwrap_err().to_string().contains("8 bytes"));
        assert!(insns_from_hex(" \n").unwrap_err().to_string().contains("empty"));
    }
}
