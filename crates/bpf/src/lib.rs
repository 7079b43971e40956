//! Loading and interpreting eBPF programs; maps and helpers.
//!
//! The engine does not know the machine it runs on: what a program may ask of its CPU and task is the trait
//! [`Env`]. Nothing here depends on how a program is timed, so the same program runs on every kind of
//! machine.
//!
//! | module | mirrors |
//! |---|---|
//! | [`insn`] | include/uapi/linux/bpf.h: opcodes, and builders |
//! | [`decode`] | kernel/bpf/verifier.c, as far as it looks at one instruction |
//! | [`prog`] | `struct bpf_prog` |
//! | [`interp`] | kernel/bpf/core.c: `___bpf_prog_run` |
//! | [`memory`] | `check_mem_access`, kernel/bpf/verifier.c: what a run may reach |
//! | [`fault`] | why a run was ended |
//! | [`helpers`] | kernel/bpf/helpers.c |
//! | [`maps`] | kernel/bpf/arraymap.c, hashtab.c, ringbuf.c, syscall.c |
//! | [`env`](mod@env) | what helpers read of the CPU and task |
//! | [`trace`] | kernel/trace/bpf_trace.c: where printed lines go |
//! | [`asm`], [`disasm`] | kernel/bpf/disasm.c: programs as text |
//! | [`elf`] | tools/lib/bpf/libbpf.c: objects from clang |
//! | [`prog_type`] | `enum bpf_prog_type`, and libbpf's table of sections |
//! | [`errno`] | the kernel's error numbers |
//! | [`syscall`] | kernel/bpf/syscall.c: bpf(2), its descriptors, and the sysctl |
//!
//! # Invariants
//! 1. A run is async-signal-safe and may be nested in another: it does not allocate, block, call the system,
//!    or panic.
//! 2. Each access is within memory that the program may touch, over its full width; a fault ends the run,
//!    never the process.
//! 3. Memory that programs share is accessed through `sync::mem` only.
//!
//! ```
//! use bpf::{PlainEnv, Program, insn::*};
//!
//! let insns = [ldx_mem(BPF_W, 0, 1, 0), alu64_imm(BPF_ADD, 0, 1), exit_insn()];
//! let prog = Program::load("answer", &insns, vec![])?;
//! assert_eq!(bpf::run(&prog, &mut 41u32.to_ne_bytes(), &PlainEnv::default())?, 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod asm;
mod btf;
pub mod decode;
pub mod disasm;
pub mod elf;
pub mod env;
pub mod errno;
pub mod fault;
pub mod helpers;
pub mod insn;
pub mod interp;
pub mod maps;
pub mod memory;
mod printk;
pub mod prog;
pub mod prog_type;
pub mod runtime;
pub mod syscall;
pub mod trace;

pub use decode::LoadError;
pub use env::{Env, PlainEnv};
pub use errno::Errno;
pub use fault::{Fault, FaultKind};
pub use insn::BpfInsn;
pub use interp::{RunOpts, run, run_with};
pub use maps::{Map, MapAttr, MapType};
pub use prog::Program;
pub use trace::TraceBuf;
