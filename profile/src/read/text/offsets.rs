//! Whether the numbers of a text's branches are offsets in files
//! (`-F brstackoff`), which look like addresses.

use std::collections::BTreeSet;

use crate::read::brstack::{self, Context, Line};
use crate::read::names;

/// What the numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    /// Addresses, as far as one can tell.
    Addresses,
    /// Lower than code of a process is; nothing else speaks against them.
    Low,
    /// Offsets in files, as a line shows.
    Offsets {
        /// Its number, counted from 1.
        line: u64,
    },
}

/// Linux maps nothing below this, unless asked to.
const LOWEST: u64 = 0x1_0000;
/// Places below it by which numbers are called low.
const MANY_LOW: usize = 16;
/// Samples whose branches are all far from where they stood, and libraries
/// below where they are mapped, by which offsets are known.
const MANY_FAR: usize = 4;
/// Libraries are mapped above this.
const LOWEST_LIBRARY: u64 = 0x800_0000;
/// Places of the kernel, and as many of processes without one in the upper part
/// of their memory, where libraries are, likewise.
const MANY: usize = 16;
const FOUR_GIB: u64 = 1 << 32;
const KERNEL: u64 = 1 << 63;

/// What the numbers of a text are that begins so.
pub(super) fn find(head: &[u8], context: &mut Context) -> Numbers {
    let mut entries = Vec::new();
    let (mut user, mut kernel, mut libraries) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (mut far, mut samples, mut stood_high) = (0, 0, false);
    let mut first = None;
    for (line, number) in head.split_inclusive(|byte| *byte == b'\n').zip(1u64..) {
        entries.clear();
        let Ok(Line::Sample(head)) = brstack::parse(line, line.len(), 0, &mut entries, context)
        else {
            continue;
        };
        let ends = entries.iter().flat_map(|branch| [branch.from, branch.to]);
        let ends = ends.filter(|end| *end != 0 && !names::is_name(*end));
        let (above, below): (Vec<u64>, Vec<u64>) = ends.partition(|end| *end >= KERNEL);
        stood_high |= head.ip.is_some_and(|ip| ip >= FOUR_GIB);
        if head.ip.is_some_and(|ip| (FOUR_GIB..KERNEL).contains(&ip)) {
            samples += usize::from(!below.is_empty());
            if !below.is_empty() && below.iter().all(|end| *end < FOUR_GIB) {
                far += 1;
                first.get_or_insert(number);
            }
        }
        libraries.extend(in_libraries(line));
        if !libraries.is_empty() || below.iter().any(|end| *end < FOUR_GIB) {
            first.get_or_insert(number);
        }
        user.extend(below);
        kernel.extend(above);
    }
    let is_far = far >= MANY_FAR && far * 4 >= samples;
    let has_no_library = kernel.len() >= MANY
        && user.len() >= MANY
        && user.last().is_some_and(|highest| *highest < FOUR_GIB);
    let is_low = user.range(..LOWEST).count() >= MANY_LOW;
    if let Some(line) = first
        && (is_far || is_low && stood_high || has_no_library || libraries.len() >= MANY_FAR)
    {
        return Numbers::Offsets { line };
    }
    match is_low {
        true => Numbers::Low,
        false => Numbers::Addresses,
    }
}

/// Numbers of a line that lie in a library (`0x26000(/lib/libc.so.6)`), and
/// below any place where one is mapped.
fn in_libraries(line: &[u8]) -> impl Iterator<Item = u64> {
    memchr::memmem::find_iter(line, b"0x").filter_map(|at| {
        let is_start = line.get(..at)?.last().is_none_or(|byte| b" /".contains(byte));
        let rest = line.get(at + 2..).filter(|_| is_start)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digits, rest) = rest.split_at_checked(digits)?;
        let path = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(b"(")?;
        let path = path.get(..memchr::memchr(b')', path)?)?;
        let value = u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
        let is_library = memchr::memmem::find(path, b".so").is_some();
        (is_library && (1..LOWEST_LIBRARY).contains(&value)).then_some(value)
    })
}
