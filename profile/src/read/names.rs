//! Places that were recorded by name: a symbol and the offset in it, or a file
//! and the offset in that, and no address (`perf script -F brstacksym`,
//! `brstackoff`).
//!
//! Everything that counts branches knows places by number. Each name gets a
//! stretch of numbers that no CPU has for addresses, wide enough that code of
//! two names never seems to lie together: neither is canonical, with 48 bits
//! nor with 57. Which recording they came from says what they mean, see
//! [`Maps`](crate::code::maps::Maps): the number alone says nothing.

use crate::index::{Index, hash};
use crate::texts::Texts;
use lbr_msr::text::AsText;

/// Offsets in a name that have numbers of their own. What lies farther in has
/// another stretch.
pub(crate) const REACH: u64 = 1 << 23;
/// Distance of two stretches. From the end of one to the next is farther than
/// any straight code is believed to run.
pub(crate) const STRIDE: u64 = 1 << STRIDE_BITS;
const STRIDE_BITS: u32 = 24;
/// The highest byte of what has a name, and of what has none either. The
/// topmost bit is free: the kernel's places have it, as its addresses do.
const NAMED: u64 = 0x5A << 56;
const UNKNOWN: u64 = 0x5B << 56;
const MARK: u64 = 0x7F << 56;
const KERNEL: u64 = crate::read::address::KERNEL;
/// A branch from an unknown place and one to it do not meet: no code is known
/// to run between them. But a return belongs to a call, at most an instruction
/// before it.
const UNKNOWN_TARGET: u64 = 8;

const _: () = assert!(STRIDE - REACH > crate::read::address::LONGEST_BLOCK);

/// Whether a number is of those that stand for names.
#[inline]
pub(crate) const fn is_name(number: u64) -> bool {
    // The two marks differ in their lowest bit.
    (number & MARK) >> 57 == NAMED >> 57
}

/// Whether it stands for a place that nobody knows. Two of them may be any
/// two places.
pub(crate) const fn is_unknown(number: u64) -> bool {
    number & MARK == UNKNOWN
}

/// A name as a text has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// The symbol; `None` for `[unknown]`, and where the file itself stands in
    /// its place.
    pub name: Option<&'a str>,
    /// The file, where it was printed.
    pub file: Option<&'a str>,
    /// Offsets are those of the file.
    pub is_file: bool,
    /// Offset in the symbol that `base` stands for, bytes.
    pub(crate) start: u64,
    /// The first of its numbers.
    pub(crate) base: u64,
}

impl Symbol<'_> {
    /// How far into the symbol a number lies that an entry has for an address;
    /// `None` for numbers of other symbols.
    #[must_use]
    pub fn offset_of(&self, number: u64) -> Option<u64> {
        let within = number.checked_sub(self.base).filter(|within| *within < REACH)?;
        Some(self.start.saturating_add(within))
    }

    /// Its place in the order in which the symbols of a text came.
    pub(crate) const fn slot(&self) -> usize {
        slot(self.base)
    }
}

/// The stretch that a number lies in.
pub(crate) const fn slot(number: u64) -> usize {
    ((number & !(MARK | KERNEL)) >> STRIDE_BITS) as usize
}

/// What a symbol without a name, or without a file, has for its number, and what
/// a file has for its name.
const NONE: u32 = u32::MAX;
const FILE: u32 = u32::MAX - 1;

/// Symbols in the order in which they came: numbers of their names and files,
/// and where in the symbol the part begins.
#[derive(Debug, Default)]
pub(crate) struct SymbolList {
    texts: Texts,
    list: Vec<(u32, u32, u64)>,
    index: Index,
}

impl SymbolList {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The symbol of a number.
    pub(crate) fn get(&self, at: usize) -> Option<Symbol<'_>> {
        let &(name, file, start) = self.list.get(at)?;
        let mark = if name == NONE { UNKNOWN } else { NAMED };
        let is_file = name == FILE;
        let (name, file) = (self.texts.get(name), self.texts.get(file));
        let side = if file.is_some_and(is_of_kernel) { KERNEL } else { 0 };
        let base = side | mark | (at as u64) << STRIDE_BITS;
        Some(Symbol { name, file, is_file, start, base })
    }

    /// Whether there is a symbol, without a file.
    fn has(&self, name: &str) -> bool {
        self.texts.find(name).is_some_and(|name| self.find((name, NONE, 0)).is_some())
    }

    fn find(&self, key: (u32, u32, u64)) -> Option<u32> {
        self.index.find(hash_of(key), |number| self.list.get(number as usize) == Some(&key))
    }

    /// The number of a symbol, whatever its own numbers, which is kept from now
    /// on; `None` where there are more names than numbers.
    pub(crate) fn number(&mut self, symbol: Symbol<'_>) -> Option<usize> {
        let mut text = |text: Option<&str>, none| {
            text.map_or(Some(none), |text| self.texts.number(text).filter(|number| *number < FILE))
        };
        let none = if symbol.is_file { FILE } else { NONE };
        let key = (text(symbol.name, none)?, text(symbol.file, NONE)?, symbol.start);
        if let Some(known) = self.find(key) {
            return Some(known as usize);
        }
        let number = u32::try_from(self.list.len()).ok().filter(|number| *number != NONE)?;
        self.list.push(key);
        self.index.insert(hash_of(key), number);
        Some(number as usize)
    }
}

fn hash_of((name, file, start): (u32, u32, u64)) -> u32 {
    hash(u64::from(name), u64::from(file), start)
}

/// The symbols of a text, in the order in which they came.
#[derive(Debug, Default)]
pub struct Names {
    symbols: SymbolList,
    /// Of these, how many were taken out.
    taken: usize,
    /// A number was asked for.
    asked: bool,
    /// Some are more than files.
    has_symbols: bool,
}

/// What offsets are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What<'a> {
    Symbol(&'a [u8]),
    File,
    Unknown,
}

impl Names {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.symbols.len() == 0
    }

    /// Whether some of them are more than files.
    pub(crate) fn has_symbols(&self) -> bool {
        self.has_symbols
    }

    /// The number of a place; `None` where there are more names than numbers.
    pub(crate) fn number(&mut self, name: &[u8], file: Option<&[u8]>, offset: u64) -> Option<u64> {
        let (start, within) = (offset & !(REACH - 1), offset & (REACH - 1));
        Some(self.base(What::Symbol(name), file, start)? + within)
    }

    /// The number of a byte of a file.
    pub(crate) fn in_file(&mut self, file: &[u8], offset: u64) -> Option<u64> {
        let (start, within) = (offset & !(REACH - 1), offset & (REACH - 1));
        Some(self.base(What::File, Some(file), start)? + within)
    }

    /// The number of a place that has no name.
    pub(crate) fn unknown(&mut self, file: Option<&[u8]>, is_target: bool) -> Option<u64> {
        let within = if is_target { UNKNOWN_TARGET } else { 0 };
        Some(self.base(What::Unknown, file, 0)? + within)
    }

    /// Whether a name was seen before, without a file.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.symbols.has(&name.as_text())
    }

    fn base(&mut self, what: What<'_>, file: Option<&[u8]>, start: u64) -> Option<u64> {
        self.asked = true;
        let (name, is_file) = match what {
            What::Symbol(name) => (Some(name.as_text()), false),
            What::File => (None, true),
            What::Unknown => (None, false),
        };
        self.has_symbols |= !is_file;
        let file = file.map(AsText::as_text);
        let (name, file) = (name.as_deref(), file.as_deref());
        let number = self.symbols.number(Symbol { name, file, is_file, start, base: 0 })?;
        self.symbols.get(number).map(|symbol| symbol.base)
    }

    /// Whether numbers were asked for since this was called last.
    pub(crate) fn was_asked(&mut self) -> bool {
        std::mem::take(&mut self.asked)
    }

    /// Whether [`take`](Self::take) has one more.
    pub(crate) fn has_new(&self) -> bool {
        self.taken < self.symbols.len()
    }

    /// The next that was not taken yet.
    pub(crate) fn take(&mut self) -> Option<Symbol<'_>> {
        let symbol = self.symbols.get(self.taken)?;
        self.taken += 1;
        Some(symbol)
    }
}

/// What numbers stand for that entries of a recording have for addresses, for
/// those who read it item by item.
#[derive(Debug, Default)]
pub struct Symbols {
    symbols: SymbolList,
}

impl Symbols {
    /// Takes in a symbol that the recording gave out.
    pub fn add(&mut self, symbol: Symbol<'_>) {
        // They come in the order of their numbers.
        if symbol.slot() == self.symbols.len() {
            self.symbols.number(symbol);
        }
    }

    /// The symbol that a number of an entry stands for, and the offset in it;
    /// `None` where it is an address. Only for entries that came behind the
    /// symbols.
    #[must_use]
    pub fn find(&self, number: u64) -> Option<(Symbol<'_>, u64)> {
        let symbol = Some(number).filter(|number| is_name(*number));
        let symbol = self.symbols.get(slot(symbol?))?;
        Some((symbol, symbol.offset_of(number)?))
    }
}

/// Whether perf calls a file of the kernel's so: the kernel, its modules and
/// what it compiled itself.
fn is_of_kernel(file: &str) -> bool {
    const OF_PROCESSES: [&str; 7] =
        ["[unknown]", "[vdso", "[vsyscall", "[heap", "[stack", "[anon", "[JIT"];
    if file.starts_with('[') {
        return !OF_PROCESSES.iter().any(|start| file.starts_with(start));
    }
    let name = file.rsplit('/').next().unwrap_or(file);
    [".ko", ".ko.xz", ".ko.gz", ".ko.zst"].iter().any(|end| name.ends_with(end))
        || name.starts_with("vmlinux")
        || name.starts_with("bpf_prog_")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::{KERNEL, Names, REACH, STRIDE, is_name, is_unknown, slot};

    /// A place is found by its name again, and no two names lie together.
    #[test]
    fn numbers_are_of_one_name_each() {
        let mut names = Names::default();
        let main = names.number(b"main", None, 0x1C).unwrap();
        assert_eq!(names.number(b"main", None, 0x20).unwrap() - main, 4);
        let other = names.number(b"main", Some(b"/usr/bin/x"), 0x1C).unwrap();
        assert_eq!(other - main, STRIDE);
        let far = names.number(b"main", None, REACH).unwrap();
        assert_eq!((slot(main), slot(other), slot(far)), (0, 1, 2));
        let kernel = names.number(b"schedule", Some(b"[kernel.kallsyms]"), 0).unwrap();
        assert!(kernel >= KERNEL && other < KERNEL);
        for number in [main, other, far, kernel] {
            assert!(is_name(number) && !is_unknown(number));
            // Neither half of any address space of x86.
            assert!([47, 56].iter().all(|bit| !matches!((number as i64) >> bit, 0 | -1)));
        }
        let offsets: Vec<u64> = [main, other, far, kernel]
            .iter()
            .map(|number| names.take().unwrap().offset_of(*number).unwrap())
            .collect();
        assert_eq!(offsets, [0x1C, 0x1C, REACH, 0]);
        assert!(!names.has_new() && names.has(b"main") && !names.has(b"schedule"));
    }

    #[test]
    fn what_is_unknown_is_no_place() {
        let mut names = Names::default();
        let from = names.unknown(Some(b"[unknown]"), false).unwrap();
        let to = names.unknown(Some(b"[unknown]"), true).unwrap();
        assert!(from < to && is_unknown(from) && is_unknown(to) && is_name(to));
        assert_eq!(names.take().unwrap().name, None);
        assert!([0, 0x40_1000, u64::MAX, 0xFFFF_FFFF_8100_0000].iter().all(|a| !is_name(*a)));
    }
}
