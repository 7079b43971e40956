//! The running kernel, asked through bpf(2): the same program bytes in the real kernel, as an oracle.
//!
//! Knows nothing of the simulation; libc is all it uses. [`facts`] are questions that return what the kernel
//! answers, so that the simulation's answer can stand beside it. [`probe`](Host::probe) says what can be
//! asked here and, of the rest, why not.
//!
//! | module | is |
//! |---|---|
//! | [`errno`], [`error`] | what the kernel refused, and what to do about it |
//! | [`sys`] | bpf(2) itself |
//! | [`insn`] | the few instructions that our own programs are made of |
//! | [`prog`], [`map`], [`link`] | programs, maps, attachments |
//! | [`info`] | what the kernel tells about a program |
//! | [`stats`], [`sysctl`] | the two switches of the run-time statistics |
//! | [`btf`] | types of the kernel by name |
//! | [`caller`] | capabilities of the asking thread |
//! | [`probe`](mod@probe) | what can be asked here |
//! | [`facts`] | the questions |
//! | [`expect`] | for tests: what must be askable where, so that no question is lost unseen |
//!
//! # Invariants
//! 1. All that is made in the kernel hangs on a descriptor, close-on-exec and never pinned: it goes when the
//!    process goes, however it goes.
//! 2. The sysctl is the one thing that outlives a process. It is written only with a guardian process alive
//!    that puts it back ([`sysctl::Guard`]).

pub mod btf;
pub mod caller;
pub mod errno;
pub mod error;
pub mod expect;
pub mod facts;
pub mod info;
pub mod insn;
pub mod link;
pub mod map;
pub mod probe;
pub mod prog;
pub mod stats;
pub mod sys;
pub mod sysctl;

pub use errno::Errno;
pub use error::{CannotAsk, Error};
pub use info::{FdInfo, ProgInfo, Stats};
pub use insn::Insn;
pub use link::Link;
pub use map::{Map, MapType};
pub use probe::{Ask, Host, Release};
pub use prog::{Load, Prog, ProgType, TestRun};
pub use stats::StatsFd;
