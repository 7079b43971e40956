//! Which facts a kernel of a release can be asked, so that none silently becomes one that cannot.
//!
//! `askable.txt` has headings in brackets, each with the names of facts below it: `[6.6]` can be asked of kernels since
//! that release, `[6.6 x86_64]` on that architecture, `[sometimes: why]` where the reason does not hold.

use host::{Host, Release};

const TEXT: &str = include_str!("askable.txt");

/// Where a fact can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Since(Release),
    Nowhere,
}

/// The names with their headings' meaning.
fn entries() -> impl Iterator<Item = (Where, &'static str)> {
    let mut heading = Where::Nowhere;
    TEXT.lines().filter(|l| !l.is_empty()).filter_map(move |line| {
        let Some(text) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) else {
            return Some((heading, line));
        };
        let (release, arch) = text.split_once(' ').unwrap_or((text, std::env::consts::ARCH));
        heading = match Release::parse(release) {
            Some(release) if arch == std::env::consts::ARCH => Where::Since(release),
            _ => Where::Nowhere,
        };
        None
    })
}

/// All names.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    entries().map(|(_, name)| name)
}

/// Whether the running kernel should answer it: it is listed for its release, this process is privileged, and nobody said
/// that this machine refuses ([`host::expect::REFUSED`]).
pub(super) fn must_be_asked(name: &str) -> bool {
    let listed = entries().any(|(at, n)| n == name && matches!(at, Where::Since(r) if r <= Host::release()));
    listed && host::caller::is_privileged() && std::env::var_os(host::expect::REFUSED).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_understood() {
        for line in TEXT.lines().filter(|l| l.starts_with('[')) {
            let text = line.trim_matches(['[', ']']);
            let release = text.split(' ').next().and_then(Release::parse);
            assert!(release.is_some() || text.starts_with("sometimes: "), "{line}");
        }
    }
}
