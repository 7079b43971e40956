//! A loaded program. Mirrors `struct bpf_prog` (include/linux/bpf.h) and `bpf_prog_load`
//! (kernel/bpf/syscall.c), v6.6.
//!
//! Invariant: immutable once loaded, and it keeps its maps alive, so any number of CPUs and interrupts may
//! run it at once.

use std::fmt;
use std::sync::Arc;

use sync::host::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::decode::{self, LoadError, Op};
use crate::insn::BpfInsn;
use crate::maps::Map;
use crate::trace::TraceBuf;

/// A program that passed the check at load.
pub struct Program {
    id: u32,
    name: String,
    insns: Box<[BpfInsn]>,
    maps: Vec<Arc<Map>>,
    pub(crate) ops: Box<[Op]>,
    pub(crate) uses_stack: bool,
    /// Where `bpf_trace_printk` goes on a machine.
    pub(crate) trace: Option<Arc<TraceBuf>>,
    /// The state of `bpf_get_prandom_u32` on a machine.
    pub(crate) random: AtomicU64,
    /// The process. Asked for once: a run makes no system call.
    pub(crate) tgid: u32,
}

impl Program {
    /// Checks and decodes a program. Its instructions refer to `maps` by position, also where they say
    /// "descriptor".
    /// Kernel: `bpf_prog_load`, `bpf_check`.
    ///
    /// Context: task; allocates.
    ///
    /// # Errors
    /// [`LoadError`] names the first instruction that the kernel would refuse by its form, and why.
    pub fn load(name: &str, insns: &[BpfInsn], maps: Vec<Arc<Map>>) -> Result<Self, LoadError> {
        static NEXT_ID: AtomicU32 = AtomicU32::new(1);
        let d = decode::decode(insns, &maps)?;
        // ORDERING: Relaxed; only that no two programs get one number matters.
        let id = NEXT_ID.fetch_add(1, Relaxed);
        let (ops, uses_stack) = (d.ops, d.uses_stack);
        Ok(Self {
            id,
            name: name.into(),
            insns: insns.into(),
            maps,
            ops,
            uses_stack,
            trace: None,
            random: AtomicU64::new(u64::from(id)),
            tgid: std::process::id(),
        })
    }

    /// The same, and what it prints on a machine goes to `trace` (else it is dropped).
    pub fn with_trace(self, trace: Arc<TraceBuf>) -> Self {
        Self { trace: Some(trace), ..self }
    }

    /// A number that no other program of this process has. Kernel: `bpf_prog_aux.id`.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The instructions as they were loaded.
    pub fn insns(&self) -> &[BpfInsn] {
        &self.insns
    }

    /// The maps it holds.
    pub fn maps(&self) -> &[Arc<Map>] {
        &self.maps
    }

    /// The map at the address that a program got as a map's ([`Map::addr`]).
    pub(crate) fn map_at(&self, addr: u64) -> Option<&Map> {
        self.maps.iter().find(|m| m.addr() == addr).map(|m| &**m)
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, name, insns, .. } = self;
        write!(f, "Program {{ id: {id}, name: {name:?}, insns: {} }}", insns.len())
    }
}
