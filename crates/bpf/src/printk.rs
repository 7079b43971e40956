//! Formatting for `bpf_trace_printk`. Mirrors `bpf_trace_printk` (kernel/trace/bpf_trace.c) and
//! `bpf_bprintf_prepare` (kernel/bpf/helpers.c), v6.6.
//!
//! Invariant: bounded; a line is cut to [`LINE_MAX`]. Differs: `%p` and its kin print the address itself in
//! hex (the kernel: hashed, or a symbol), and a line has at most 248 bytes (the kernel: 1024).

use sync::mem;

use crate::errno::Errno;
use crate::fault::FaultKind;
use crate::memory::Vm;
use crate::trace::LINE_MAX;

/// The longest format that is read, in bytes with its end.
const FMT_MAX: usize = 256;

/// A line that is being written: what does not fit is counted, not kept.
struct Line {
    buf: [u8; LINE_MAX],
    len: usize,
}

impl Line {
    fn push(&mut self, b: u8) {
        if let Some(slot) = self.buf.get_mut(self.len) {
            *slot = b;
        }
        self.len = self.len.saturating_add(1);
    }

    fn bytes(&self) -> &[u8] {
        &self.buf[..self.len.min(LINE_MAX)]
    }
}

/// Width and padding of one conversion.
#[derive(Clone, Copy, Default)]
struct Spec {
    width: usize,
    left: bool,
    zero: bool,
    plus: bool,
    space: bool,
}

/// Returns the number of bytes of the line, or a negative error number.
pub(crate) fn trace_printk(vm: &mut Vm<'_>, args: [u64; 5]) -> Result<u64, FaultKind> {
    let [fmt, size, args @ ..] = args;
    let size = u64::from(size as u32);
    let from = vm.reach_bytes(fmt, size, false)?;
    if size == 0 {
        return Ok(Errno::EINVAL.to_ret());
    }
    if size > FMT_MAX as u64 {
        return Ok(Errno::E2BIG.to_ret());
    }
    let mut buf = [0; FMT_MAX];
    let fmt = &mut buf[..size as usize];
    // SAFETY: in reach for reads of `size` bytes, which is the length of `fmt`.
    unsafe { mem::load_bytes(from, fmt) };
    let mut line = Line { buf: [0; LINE_MAX], len: 0 };
    match format(vm, fmt, args, &mut line) {
        Ok(()) => {
            vm.env.trace_printk(line.bytes());
            Ok(line.len as u64)
        }
        Err(e) => Ok(e.to_ret()),
    }
}

fn format(vm: &mut Vm<'_>, fmt: &[u8], args: [u64; 3], line: &mut Line) -> Result<(), Errno> {
    let [fmt @ .., 0] = fmt else { return Err(Errno::EINVAL) };
    let fmt = fmt.split(|&b| b == 0).next().unwrap_or(fmt);
    let mut args = args.into_iter();
    let mut i = 0;
    let at = |i: usize| fmt.get(i).copied().unwrap_or(0);
    while i < fmt.len() {
        let b = fmt[i];
        if !(b.is_ascii_graphic() || matches!(b, b' ' | 9..=13)) {
            return Err(Errno::EINVAL);
        }
        i += 1;
        if b != b'%' {
            line.push(b);
            continue;
        }
        if at(i) == b'%' {
            line.push(b'%');
            i += 1;
            continue;
        }
        let mut spec = Spec::default();
        loop {
            match at(i) {
                b'0' => spec.zero = true,
                b'+' => spec.plus = true,
                b'-' => spec.left = true,
                b' ' => spec.space = true,
                _ => break,
            }
            i += 1;
        }
        while at(i).is_ascii_digit() {
            spec.width = (spec.width * 10 + usize::from(at(i) - b'0')).min(LINE_MAX);
            i += 1;
        }
        let arg = args.next().ok_or(Errno::EINVAL)?;
        match at(i) {
            b's' => {
                i += 1;
                string(vm, arg, spec, line);
            }
            b'c' => {
                i += 1;
                pad(spec, &[arg as u8], line);
            }
            b'p' => {
                i += 1;
                // `%pK`, `%pB` and so on: a pointer, too.
                i += usize::from(matches!(at(i), b'K' | b'x' | b's' | b'S' | b'B'));
                number(Spec { width: 16, zero: true, ..Spec::default() }, arg, false, 16, false, line);
            }
            _ => {
                let mut longs = 0;
                while at(i) == b'l' && longs < 2 {
                    longs += 1;
                    i += 1;
                }
                let wide = longs > 0;
                let conversion = at(i);
                i += 1;
                match conversion {
                    b'd' | b'i' => {
                        let v = if wide { arg as i64 } else { i64::from(arg as i32) };
                        number(spec, v.unsigned_abs(), v < 0, 10, false, line);
                    }
                    b'u' | b'x' | b'X' => {
                        let v = if wide { arg } else { u64::from(arg as u32) };
                        let spec = Spec { plus: false, space: false, ..spec };
                        number(
                            spec,
                            v,
                            false,
                            if conversion == b'u' { 10 } else { 16 },
                            conversion == b'X',
                            line,
                        );
                    }
                    _ => return Err(Errno::EINVAL),
                }
            }
        }
    }
    Ok(())
}

fn number(spec: Spec, mut v: u64, negative: bool, base: u64, upper: bool, line: &mut Line) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        let d = (v % base) as u8;
        digits[at] = match d {
            0..=9 => b'0' + d,
            _ if upper => b'A' + d - 10,
            _ => b'a' + d - 10,
        };
        v /= base;
        if v == 0 {
            break;
        }
    }
    let sign = match (negative, spec.plus, spec.space) {
        (true, ..) => Some(b'-'),
        (_, true, _) => Some(b'+'),
        (.., true) => Some(b' '),
        _ => None,
    };
    let digits = &digits[at..];
    let fill = spec.width.saturating_sub(digits.len() + usize::from(sign.is_some()));
    let zero = spec.zero && !spec.left;
    if !zero && !spec.left {
        (0..fill).for_each(|_| line.push(b' '));
    }
    sign.into_iter().for_each(|b| line.push(b));
    if zero {
        (0..fill).for_each(|_| line.push(b'0'));
    }
    digits.iter().for_each(|&b| line.push(b));
    if spec.left {
        (0..fill).for_each(|_| line.push(b' '));
    }
}

fn pad(spec: Spec, text: &[u8], line: &mut Line) {
    let fill = spec.width.saturating_sub(text.len());
    if !spec.left {
        (0..fill).for_each(|_| line.push(b' '));
    }
    text.iter().for_each(|&b| line.push(b));
    if spec.left {
        (0..fill).for_each(|_| line.push(b' '));
    }
}

/// A string of the program's memory, up to its zero; nothing from where the program has no memory.
fn string(vm: &mut Vm<'_>, addr: u64, spec: Spec, line: &mut Line) {
    let mut text = [0; LINE_MAX];
    let mut len = 0;
    while len < text.len() {
        let Ok(p) = vm.reach_bytes(addr.wrapping_add(len as u64), 1, false) else {
            len = 0;
            break;
        };
        // SAFETY: in reach for a read of one byte.
        let b = unsafe { mem::load8(p) };
        if b == 0 {
            break;
        }
        text[len] = b;
        len += 1;
    }
    pad(spec, &text[..len], line);
}
