//! One integer written to a file of /proc/sys. Kernel: `proc_dointvec_minmax`, `proc_get_long`, kernel/sysctl.c;
//! `_parse_integer`, lib/kstrtox.c, v6.6.

use std::ops::RangeInclusive;

use crate::errno::Errno;

/// What is kept of a number at most, with its closing zero. Kernel: `TMPBUFLEN`.
const TMPBUFLEN: usize = 22;

/// What a write says: the value, if it says any, and how many bytes were taken.
///
/// Nothing, or a write that does not begin at the file's start, changes nothing and succeeds. What follows the number's
/// first white space is left unread.
///
/// # Errors
/// `EINVAL` for anything that is no number (decimal, `0x` hexadecimal, `0` octal, `-` before it), for one that is followed
/// by anything but white space, and for one out of range.
pub(super) fn write_int_minmax(
    bytes: &[u8],
    pos: u64,
    range: RangeInclusive<i32>,
) -> Result<(Option<i32>, usize), Errno> {
    if bytes.is_empty() || pos != 0 {
        return Ok((None, bytes.len()));
    }
    let page = &bytes[..bytes.len().min(4095)];
    let rest = skip_spaces(page);
    let (val, rest) = get_long(rest).ok_or(Errno::EINVAL)?;
    let val = i32::try_from(val).ok().filter(|v| range.contains(v)).ok_or(Errno::EINVAL)?;
    Ok((Some(val), bytes.len() - skip_spaces(rest).len()))
}

fn skip_spaces(s: &[u8]) -> &[u8] {
    // The kernel's `isspace` knows the no-break space of Latin-1 too.
    let n = s.iter().take_while(|b| matches!(b, b'\t'..=b'\r' | b' ' | 0xA0)).count();
    &s[n..]
}

/// A number at the start of `s`, and what follows. Kernel: `proc_get_long`.
fn get_long(s: &[u8]) -> Option<(i128, &[u8])> {
    let kept = &s[..s.len().min(TMPBUFLEN - 1)];
    let (negative, digits) = match kept {
        [b'-', rest @ ..] if !rest.is_empty() => (true, rest),
        _ => (false, kept),
    };
    if !digits.first()?.is_ascii_digit() {
        return None;
    }
    let (radix, digits) = match digits {
        [b'0', b'x' | b'X', d, ..] if d.is_ascii_hexdigit() => (16, &digits[2..]),
        [b'0', ..] => (8, digits),
        _ => (10, digits),
    };
    let n = digits.iter().take_while(|&&b| char::from(b).is_digit(radix)).count();
    let value = u64::from_str_radix(std::str::from_utf8(&digits[..n]).ok()?, radix).ok()?;
    let len = kept.len() - digits.len() + n;
    // One that fills what is kept might go on behind it.
    let ends = s.get(len).is_none_or(|b| matches!(b, b' ' | b'\t' | b'\n'));
    let value = i128::from(value);
    (len < TMPBUFLEN - 1 && ends).then_some((if negative { -value } else { value }, &s[len..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_tells_the_radix_and_the_number_ends_at_the_first_digit_of_another() {
        let cases: [(&[u8], i128, &[u8]); 5] = [
            (b"10 x", 10, b" x"),
            (b"010", 8, b""),
            (b"0x10\n", 16, b"\n"),
            (b"-0X1f", -31, b""),
            (b"0", 0, b""),
        ];
        for (s, value, rest) in cases {
            assert_eq!(get_long(s), Some((value, rest)), "{s:?}");
        }
        for s in [&b""[..], b"-", b"08", b"0x", b"0xg", b"1_0", b"18446744073709551616"] {
            assert_eq!(get_long(s), None, "{s:?}");
        }
    }
}
