//! Compact results of debug information: each function, file and chain of frames is stored once.

use lbr_msr::text::AsText;
use std::collections::HashMap;
use std::sync::Arc;

use gimli::Reader as _;

use super::load::Reader;
use super::{Frame, SourceLine};
use crate::code::demangle::demangle;

/// A frame: indices from 1; 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Stored {
    function: u32,
    file: u32,
    line: u32,
    /// The frame it was inlined into.
    outer: u32,
}

/// The results of a joint look-up.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Sorted addresses with their innermost frames.
    addrs: Vec<(u64, u32)>,
    frames: Vec<Stored>,
    functions: Vec<Arc<str>>,
    files: Vec<Arc<str>>,
}

/// The indices of stored items, while addresses are looked up.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    functions: HashMap<Arc<str>, u32>,
    files: HashMap<Arc<str>, u32>,
    /// For one chunk of debug information, by the address of the name.
    function_at: HashMap<u64, u32>,
    file_at: HashMap<usize, u32>,
    frames: HashMap<Stored, u32>,
}

impl Numbers {
    /// Starts another chunk, with other addresses.
    pub(super) fn next_piece(&mut self) {
        self.function_at.clear();
        self.file_at.clear();
        self.frames.clear();
    }
}

impl Known {
    /// The innermost frame of an address: `None` if not looked up, 0 if there is none.
    fn innermost(&self, addr: u64) -> Option<u32> {
        let at = self.addrs.binary_search_by_key(&addr, |(addr, _)| *addr).ok()?;
        self.addrs.get(at).map(|(_, frame)| *frame)
    }

    /// Whether an address was looked up.
    pub(super) fn has(&self, addr: u64) -> bool {
        self.innermost(addr).is_some()
    }

    /// The frames of an address, innermost first; `None` if not looked up.
    pub(super) fn frames(&self, addr: u64) -> Option<Vec<Frame>> {
        let mut next = self.innermost(addr)?;
        let mut found = Vec::new();
        while let Some(stored) = item(&self.frames, next) {
            let function = item(&self.functions, stored.function).cloned();
            let source = self.source_of(stored);
            if function.is_some() || source.is_some() {
                found.push(Frame { function, source });
            }
            next = stored.outer;
        }
        Some(found)
    }

    /// The line of an address.
    pub(super) fn source(&self, addr: u64) -> Option<Option<SourceLine>> {
        let innermost = self.innermost(addr)?;
        Some(item(&self.frames, innermost).and_then(|stored| self.source_of(stored)))
    }

    fn source_of(&self, stored: &Stored) -> Option<SourceLine> {
        let file = item(&self.files, stored.file)?;
        (stored.line > 0).then(|| SourceLine { file: Arc::clone(file), line: stored.line })
    }

    /// Adds addresses with their frames from [`frame`](Self::frame).
    pub(super) fn extend(&mut self, addrs: Vec<(u64, u32)>) {
        if self.addrs.is_empty() {
            self.addrs = addrs;
        } else {
            self.addrs.extend(addrs);
        }
        self.addrs.sort_unstable();
        self.addrs.dedup_by_key(|(addr, _)| *addr);
        self.frames.shrink_to_fit();
    }

    /// The index of a frame inside the one it was inlined into (0: none).
    pub(super) fn frame(
        &mut self,
        numbers: &mut Numbers,
        function: Option<&Reader>,
        source: Option<(&str, u32)>,
        outer: u32,
    ) -> u32 {
        let function = function.map_or(0, |name| {
            *numbers.function_at.entry(name.offset_id().0).or_insert_with(|| {
                let name = name.to_slice().unwrap_or_default();
                number(&mut self.functions, &mut numbers.functions, &demangle(&name.as_text()))
            })
        });
        let (file, line) = source.map_or((0, 0), |(name, line)| {
            let file = numbers
                .file_at
                .entry(name.as_ptr().addr())
                .or_insert_with(|| number(&mut self.files, &mut numbers.files, name));
            (*file, line)
        });
        let stored = Stored { function, file, line, outer };
        *numbers.frames.entry(stored).or_insert_with(|| push(&mut self.frames, stored))
    }
}

/// The index of a name, which is added if new.
fn number(names: &mut Vec<Arc<str>>, numbers: &mut HashMap<Arc<str>, u32>, name: &str) -> u32 {
    if let Some(known) = numbers.get(name) {
        return *known;
    }
    let name: Arc<str> = name.into();
    let number = push(names, Arc::clone(&name));
    numbers.insert(name, number);
    number
}

/// Adds an item; returns its index from 1.
fn push<T>(items: &mut Vec<T>, item: T) -> u32 {
    items.push(item);
    // More than any debug information has; further items are ignored.
    u32::try_from(items.len()).unwrap_or(0)
}

fn item<T>(items: &[T], number: u32) -> Option<&T> {
    items.get((number as usize).checked_sub(1)?)
}
