//! All the ways to read a program's statistics. Kernel: `bpf_prog_get_info_by_fd`, `bpf_prog_show_fdinfo`.

use super::Fact;

pub(super) fn facts() -> Vec<Fact> {
    Vec::new()
}
