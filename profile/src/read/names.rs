//! Locations that were recorded by name: a symbol or file and an offset instead of an address
//! (`perf script -F brstacksym`, `brstackoff`).
//!
//! All counting code identifies locations by number. Each name gets a range of numbers that no CPU
//! has as addresses (not canonical with 48 or 57 bits), wide enough that code of two names never
//! seems adjacent. The numbers have a meaning only together with their recording, see
//! [`Maps`](crate::code::maps::Maps).

use crate::index::{Index, hash};
use crate::texts::Texts;
use lbr_msr::text::AsText;

/// Number of offsets in one range. Higher offsets of a name get another range.
pub(crate) const REACH: u64 = 1 << 23;
/// Distance between two ranges. The gap is longer than any plausible fall-through range.
pub(crate) const STRIDE: u64 = 1 << STRIDE_BITS;
const STRIDE_BITS: u32 = 24;
/// The highest byte of numbers with a name, and without. The topmost bit is free: it is set for the
/// kernel, as in its addresses.
const NAMED: u64 = 0x5A << 56;
const UNKNOWN: u64 = 0x5B << 56;
const MARK: u64 = 0x7F << 56;
const KERNEL: u64 = crate::read::KERNEL;
/// An unknown source and an unknown target differ, because no code is known to run between them;
/// but by little, because a return must be near its call.
const UNKNOWN_TARGET: u64 = 8;

const _: () = assert!(STRIDE - REACH > crate::read::LONGEST_BLOCK);

/// Whether a number represents a name.
#[inline]
pub(crate) const fn is_name(number: u64) -> bool {
    // The two marks differ in their lowest bit.
    (number & MARK) >> 57 == NAMED >> 57
}

/// Whether it represents an unknown location. Two of them may be different locations.
pub(crate) const fn is_unknown(number: u64) -> bool {
    number & MARK == UNKNOWN
}

/// A name from a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// The symbol; `None` for `[unknown]`, and if the file replaces it.
    pub name: Option<&'a str>,
    /// The file, if printed.
    pub file: Option<&'a str>,
    /// Whether offsets are file offsets.
    pub is_file: bool,
    /// Offset in the symbol for `base`, bytes.
    pub(crate) start: u64,
    /// The first number of its range.
    pub(crate) base: u64,
}

impl Symbol<'_> {
    /// The offset in the symbol for a number that replaces an address; `None` for numbers of other
    /// symbols.
    pub fn offset_of(&self, number: u64) -> Option<u64> {
        let within = number.checked_sub(self.base).filter(|within| *within < REACH)?;
        Some(self.start.saturating_add(within))
    }

    /// Its index in order of first appearance.
    pub(crate) const fn slot(&self) -> usize {
        slot(self.base)
    }
}

/// The range that contains a number.
pub(crate) const fn slot(number: u64) -> usize {
    ((number & !(MARK | KERNEL)) >> STRIDE_BITS) as usize
}

/// Replaces the number of a missing name or file, and the name of a file.
const NONE: u32 = u32::MAX;
const FILE: u32 = u32::MAX - 1;

/// The symbols for numbers that replace addresses, in order of first appearance: the numbers of
/// their names and files, and the offset of their range.
#[derive(Debug, Default)]
pub struct Symbols {
    texts: Texts,
    list: Vec<(u32, u32, u64)>,
    /// For each text, the first symbol with this name, or `NONE`. Only the others are in `index`:
    /// few names have several.
    first: Vec<u32>,
    index: Index,
    /// Whether some symbols are not in `index`.
    is_unindexed: bool,
}

impl Symbols {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The symbol with an index.
    pub(crate) fn get(&self, at: usize) -> Option<Symbol<'_>> {
        let &(name, file, start) = self.list.get(at)?;
        let mark = if name == NONE { UNKNOWN } else { NAMED };
        let is_file = name == FILE;
        let (name, file) = (self.texts.get(name), self.texts.get(file));
        let side = if file.is_some_and(is_of_kernel) { KERNEL } else { 0 };
        let base = side | mark | (at as u64) << STRIDE_BITS;
        Some(Symbol { name, file, is_file, start, base })
    }

    fn find_key(&self, key: (u32, u32, u64)) -> Option<u32> {
        let is = |number: u32| self.list.get(number as usize) == Some(&key);
        let first = self.first.get(key.0 as usize).copied().filter(|first| is(*first));
        first.or_else(|| self.index.find(hash_of(key), is))
    }

    /// The index of a symbol, which is added if new; `None` if all numbers are in use.
    pub(crate) fn number(&mut self, symbol: Symbol<'_>) -> Option<usize> {
        if self.is_unindexed {
            let all = std::mem::take(self);
            for known in (0..).map_while(|at| all.get(at)) {
                self.number(known);
            }
        }
        let key = self.key(symbol, Texts::number)?;
        if let Some(known) = self.find_key(key) {
            return Some(known as usize);
        }
        let number = self.append(key)?;
        self.first.resize(self.texts.len(), NONE);
        match self.first.get_mut(key.0 as usize) {
            Some(first) if *first == NONE => *first = number,
            _ => self.index.insert(hash_of(key), number),
        }
        Some(number as usize)
    }

    /// Adds a symbol that differs from all others. A look-up for each of a million symbols would
    /// take longer than everything else that is done with them.
    pub(crate) fn push(&mut self, symbol: Symbol<'_>) -> Option<usize> {
        self.is_unindexed = true;
        let key = self.key(symbol, Texts::push)?;
        self.append(key).map(|number| number as usize)
    }

    /// The numbers of a symbol's texts; `name` adds its name.
    fn key(
        &mut self,
        symbol: Symbol<'_>,
        name: impl Fn(&mut Texts, &str) -> Option<u32>,
    ) -> Option<(u32, u32, u64)> {
        let texts = &mut self.texts;
        let none = if symbol.is_file { FILE } else { NONE };
        let name = symbol.name.map_or(Some(none), |text| name(texts, text).filter(|n| *n < FILE));
        let number = |text| texts.number(text).filter(|number| *number < FILE);
        Some((name?, symbol.file.map_or(Some(NONE), number)?, symbol.start))
    }

    fn append(&mut self, key: (u32, u32, u64)) -> Option<u32> {
        let number = u32::try_from(self.list.len()).ok().filter(|number| *number != NONE)?;
        self.list.push(key);
        Some(number)
    }
}

fn hash_of((name, file, start): (u32, u32, u64)) -> u32 {
    hash(u64::from(name), u64::from(file), start)
}

/// The symbols of a text, in order of first appearance.
#[derive(Debug, Default)]
pub struct Names {
    symbols: Symbols,
    /// Number of symbols already taken.
    taken: usize,
    /// Whether a number was requested.
    asked: bool,
    /// Whether any is a symbol rather than a file.
    pub(crate) has_symbols: bool,
}

impl Names {
    /// Whether there are no symbols.
    pub fn is_empty(&self) -> bool {
        self.symbols.len() == 0
    }

    /// The number of a location; `None` if all numbers are in use.
    pub(crate) fn number(&mut self, name: &[u8], file: Option<&[u8]>, offset: u64) -> Option<u64> {
        self.at(Some(name), false, file, offset)
    }

    /// The number of a file offset.
    pub(crate) fn in_file(&mut self, file: &[u8], offset: u64) -> Option<u64> {
        self.at(None, true, Some(file), offset)
    }

    /// The number of a location without a name.
    pub(crate) fn unknown(&mut self, file: Option<&[u8]>, is_target: bool) -> Option<u64> {
        self.at(None, false, file, if is_target { UNKNOWN_TARGET } else { 0 })
    }

    /// Whether a name occurred before, without a file.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        let name = self.symbols.texts.find(&name.as_text());
        name.is_some_and(|name| self.symbols.find_key((name, NONE, 0)).is_some())
    }

    fn at(
        &mut self,
        name: Option<&[u8]>,
        is_file: bool,
        file: Option<&[u8]>,
        offset: u64,
    ) -> Option<u64> {
        let (start, within) = (offset & !(REACH - 1), offset & (REACH - 1));
        self.asked = true;
        self.has_symbols |= !is_file;
        let (name, file) = (name.map(AsText::as_text), file.map(AsText::as_text));
        let (name, file) = (name.as_deref(), file.as_deref());
        let number = self.symbols.number(Symbol { name, file, is_file, start, base: 0 })?;
        Some(self.symbols.get(number)?.base + within)
    }

    /// Whether numbers were requested since the last call.
    pub(crate) fn was_asked(&mut self) -> bool {
        std::mem::take(&mut self.asked)
    }

    /// Whether [`take`](Self::take) will return a symbol.
    pub(crate) fn has_new(&self) -> bool {
        self.taken < self.symbols.len()
    }

    /// The next symbol not yet taken.
    pub(crate) fn take(&mut self) -> Option<Symbol<'_>> {
        let symbol = self.symbols.get(self.taken)?;
        self.taken += 1;
        Some(symbol)
    }
}

impl Symbols {
    /// Adds the recording's next symbol: they arrive in order of their numbers.
    pub fn add(&mut self, symbol: Symbol<'_>) {
        self.push(symbol);
    }

    /// The symbol and offset for a number of an entry; `None` if it is an address. Only for entries
    /// after their symbols.
    pub fn find(&self, number: u64) -> Option<(Symbol<'_>, u64)> {
        let symbol = Some(number).filter(|number| is_name(*number));
        let symbol = self.get(slot(symbol?))?;
        Some((symbol, symbol.offset_of(number)?))
    }
}

/// Whether a file name is perf's name for kernel code: the kernel, its modules and BPF code.
fn is_of_kernel(file: &str) -> bool {
    const OF_PROCESSES: [&str; 8] =
        ["[unknown]", "[vdso", "[vsyscall", "[uprobes", "[heap", "[stack", "[anon", "[JIT"];
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
#[path = "../../../tests/profile/unit/read/names.rs"]
mod tests;
