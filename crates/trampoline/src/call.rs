//! The call sequence around a program and around a traced function, which the kernel generates as machine code.
//!
//! Kernel: `invoke_bpf_prog`, `invoke_bpf`, `invoke_bpf_mod_ret`, `arch_prepare_bpf_trampoline`,
//! arch/x86/net/bpf_jit_comp.c, v6.6. Differs: it is called, not generated; a program's result is the low half of its r0.

use std::sync::Arc;

use filter::{BpfCtx, BpfProg, Kconfig};
use percpu::Task;

use crate::trampoline::{BpfTrampRunCtx, bpf_trampoline_enter, bpf_trampoline_exit};

/// A program attached to a traced function. Kernel: `struct bpf_tramp_link`.
pub struct BpfTrampLink<K: Kconfig> {
    /// The program.
    pub prog: Arc<BpfProg<K>>,
    /// What `bpf_get_attach_cookie` gives it.
    pub cookie: u64,
}

impl<K: Kconfig> Clone for BpfTrampLink<K> {
    fn clone(&self) -> Self {
        Self { prog: self.prog.clone(), cookie: self.cookie }
    }
}

/// Calls one program: cookie, enter, skip test, call, exit. `None` if it was skipped. Kernel: `invoke_bpf_prog`.
///
/// The start is kept **before** the skip test, so that exit gets 0 after a skip, not what an earlier program left.
///
/// Context: as the program's enter.
pub fn invoke_bpf_prog<K: Kconfig>(
    task: &Task<K>,
    prog: &BpfProg<K>,
    cookie: u64,
    ctx: &mut BpfCtx<'_>,
) -> Option<u32> {
    let mut run_ctx = BpfTrampRunCtx::new(cookie);
    let start = bpf_trampoline_enter(prog)(task, prog, &mut run_ctx);
    let ret = (start != 0).then(|| prog.bpf_func.call(task.cpu(), ctx));
    bpf_trampoline_exit(prog)(task, prog, start, &mut run_ctx);
    ret
}

/// The programs around one traced function. Kernel: `struct bpf_tramp_links`.
pub struct BpfTrampoline<K: Kconfig> {
    /// Run before the function.
    pub fentry: Vec<BpfTrampLink<K>>,
    /// Run before the function; the first that returns non-zero replaces it.
    pub fmod_ret: Vec<BpfTrampLink<K>>,
    /// Run after the function, also if it was replaced; they see its result.
    pub fexit: Vec<BpfTrampLink<K>>,
}

impl<K: Kconfig> Default for BpfTrampoline<K> {
    fn default() -> Self {
        Self { fentry: Vec::new(), fmod_ret: Vec::new(), fexit: Vec::new() }
    }
}

/// How many arguments a traced function may have. Kernel: `MAX_BPF_FUNC_ARGS`.
pub const MAX_BPF_FUNC_ARGS: usize = 12;

impl<K: Kconfig> BpfTrampoline<K> {
    /// Calls `original` with `args`, and the programs around it. Kernel: what `arch_prepare_bpf_trampoline` generates.
    ///
    /// Programs get the arguments, 8 bytes each, and behind them the result: 0 for the first fmod_ret program, then what
    /// the one before returned; fexit programs see the final one.
    ///
    /// Context: task or interrupt.
    ///
    /// # Panics
    /// If there are more than [`MAX_BPF_FUNC_ARGS`] arguments.
    pub fn call(&self, task: &Task<K>, args: &[u64], original: impl FnOnce(&[u64]) -> u64) -> u64 {
        assert!(
            args.len() <= MAX_BPF_FUNC_ARGS,
            "a traced function has at most {MAX_BPF_FUNC_ARGS} arguments"
        );
        let mut frame = Frame::new(args);
        for link in &self.fentry {
            frame.invoke(task, link);
        }
        let replaced = self.fmod_ret.iter().any(|link| {
            let ret = frame.invoke(task, link);
            frame.set_result(u64::from(ret));
            ret != 0
        });
        if !replaced {
            frame.set_result(original(args));
        }
        for link in &self.fexit {
            frame.invoke(task, link);
        }
        frame.result()
    }
}

/// The trampoline's stack as programs see it: arguments, then the result.
struct Frame {
    mem: [u8; (MAX_BPF_FUNC_ARGS + 1) * 8],
    nr_args: usize,
}

impl Frame {
    fn new(args: &[u64]) -> Self {
        let mut frame = Self { mem: [0; (MAX_BPF_FUNC_ARGS + 1) * 8], nr_args: args.len() };
        for (slot, arg) in frame.mem.chunks_exact_mut(8).zip(args) {
            slot.copy_from_slice(&arg.to_ne_bytes());
        }
        frame
    }

    /// Runs the program; a skipped one returned 0.
    fn invoke<K: Kconfig>(&mut self, task: &Task<K>, link: &BpfTrampLink<K>) -> u32 {
        let mut ctx = BpfCtx::new(&mut self.mem[..(self.nr_args + 1) * 8]);
        invoke_bpf_prog(task, &link.prog, link.cookie, &mut ctx).unwrap_or(0)
    }

    fn result_slot(&mut self) -> &mut [u8] {
        &mut self.mem[self.nr_args * 8..][..8]
    }

    fn set_result(&mut self, v: u64) {
        self.result_slot().copy_from_slice(&v.to_ne_bytes());
    }

    fn result(&mut self) -> u64 {
        let mut v = [0; 8];
        v.copy_from_slice(self.result_slot());
        u64::from_ne_bytes(v)
    }
}
