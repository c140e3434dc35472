//! Which function a place belongs to, and where the functions of a name lie.

use std::ops::Range;

use super::files::{FileKind, State};
use super::{Location, Maps};
use crate::code::demangle::{demangle, is_called};
use crate::code::symbols::Found;
use crate::read::names::REACH;

/// A symbol and the place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Name, demangled.
    pub name: String,
    /// Bytes from its start.
    pub offset: u64,
}

/// A function: its name, and where its code lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name, demangled.
    pub name: String,
    /// Index of the file that it lies in.
    pub file: usize,
    /// Its bytes in that file, as [`Location::File`] counts them.
    pub offsets: Range<u64>,
    /// Its first address as the file's symbol table counts, which is what a
    /// disassembler prints; where there is no file, as it was recorded. 0 where
    /// it was recorded by its name alone.
    pub address: u64,
}

impl Function {
    /// Whether a place lies in it.
    #[must_use]
    pub fn contains(&self, location: Location) -> bool {
        matches!(location, Location::File { file, offset }
            if file == self.file && self.offsets.contains(&offset))
    }
}

impl Maps {
    /// The symbol that covers a place: its name as the file has it, its bytes,
    /// its address.
    fn covering(&mut self, location: Location) -> Option<(String, usize, Range<u64>, u64)> {
        let (index, offset) = match location {
            Location::File { file, offset } => (file, offset),
            Location::Address(addr) => return self.in_given_list(addr),
        };
        self.open(index);
        let file = self.files.get(index)?;
        if let FileKind::Whole { len, .. } = file.kind {
            return Some((file.path.clone(), index, 0..len, 0));
        }
        if file.kind == FileKind::Named {
            return self.named_at(index, offset);
        }
        match &file.state {
            State::Open(module) => {
                let addr = module.address_of_offset(offset)?;
                let (name, range) = module.function_at(addr)?;
                let start = offset.wrapping_sub(addr - range.start);
                let name = file.demangled(name, &range);
                Some((name, index, start..start.wrapping_add(range.end - range.start), range.start))
            }
            State::Jit(map) => {
                let Found { name, addr, end } = map.at(offset)?;
                Some((name.to_owned(), index, addr..end?, addr))
            }
            State::Listed(listed) => listed.covering(index, offset),
            State::Vmlinux(vmlinux, listed) => match vmlinux.function_at(offset) {
                Some((name, offsets, addr)) => {
                    Some((demangle(name).into_owned(), index, offsets, addr))
                }
                None => listed.as_ref()?.covering(index, offset),
            },
            State::NotTried | State::Failed(_) | State::Silent => None,
        }
    }

    /// The symbol at a place.
    pub fn name(&mut self, location: Location) -> Option<Named> {
        let at = match location {
            Location::File { offset, .. } => offset,
            Location::Address(addr) => addr,
        };
        let (name, _, range, _) = self.covering(location)?;
        Some(Named { name, offset: at.wrapping_sub(range.start) })
    }

    /// The function at a place, with all its code. `None` where no symbol
    /// covers it, or it lies in no file.
    pub fn function(&mut self, location: Location) -> Option<Function> {
        let (name, file, offsets, address) = self.covering(location)?;
        (file != usize::MAX).then_some(Function { name, file, offsets, address })
    }

    /// The functions of a name, in all that was mapped.
    pub(crate) fn functions_named(&mut self, name: &str) -> Vec<Function> {
        let mut found = Vec::new();
        for index in self.files() {
            self.open(index);
            let Some(file) = self.files.get(index) else { continue };
            if file.kind == FileKind::Named {
                for (called, start) in self.named.of_file(index) {
                    if is_called(called, name) {
                        let (name, offsets) = (called.to_owned(), start..start + REACH);
                        found.push(Function { name, file: index, offsets, address: 0 });
                    }
                }
                continue;
            }
            match &file.state {
                State::Open(module) => {
                    for range in module.named(name) {
                        let Some(start) = module.offset_of_address(range.start) else { continue };
                        let offsets = start..start.saturating_add(range.end - range.start);
                        let name = module.symbol_at(range.start).map_or(name, |(name, _)| name);
                        let name = demangle(name).into_owned();
                        found.push(Function { name, file: index, offsets, address: range.start });
                    }
                }
                State::Jit(map) => {
                    for Found { name, addr, end } in map.named(|symbol| is_called(symbol, name)) {
                        let Some(end) = end else { continue };
                        let name = name.to_owned();
                        found.push(Function {
                            name,
                            file: index,
                            offsets: addr..end,
                            address: addr,
                        });
                    }
                }
                State::Vmlinux(vmlinux, _) => {
                    for (offsets, address) in vmlinux.named(name) {
                        let name = name.to_owned();
                        found.push(Function { name, file: index, offsets, address });
                    }
                }
                State::Listed(listed) => {
                    for Found { name, addr, end } in listed.named(name) {
                        let end = end.unwrap_or_else(|| addr.saturating_add(1));
                        let offsets = addr.wrapping_sub(listed.base)..end.wrapping_sub(listed.base);
                        let name = name.to_owned();
                        found.push(Function { name, file: index, offsets, address: addr });
                    }
                }
                State::NotTried | State::Failed(_) | State::Silent => {}
            }
        }
        found
    }
}
