//! The function at a location, its code bytes and source lines, and the functions with a name.

use std::ops::Range;

use lbr_msr::insn::{BranchInsn, CodeBytes, Isa};

use super::files::{FileKind, State};
use super::{Location, Mapping, Maps, Space};
use crate::code::demangle::{Called, Nearest, demangle};
use crate::code::lines::{Frame, SourceLine};
use crate::code::straight;
use crate::code::symbols::{Module, SymbolExtent};
use crate::read::LONGEST_BLOCK;
use crate::read::names::REACH;

/// A symbol and an offset in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Demangled name.
    pub name: String,
    /// Bytes from its start.
    pub offset: u64,
}

/// A function: its name and its code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Demangled name.
    pub name: String,
    /// Index of its file; `usize::MAX` for a function of the kernel without a mapping.
    pub file: usize,
    /// Its bytes in that file, as offsets of [`Location::File`].
    pub offsets: Range<u64>,
    /// Its first address in the file's symbol table, as disassemblers print it; without a file, as
    /// recorded. 0 if recorded only by name.
    pub address: u64,
}

impl Function {
    /// Whether the function contains a location.
    pub fn contains(&self, location: Location) -> bool {
        location.in_file(self.file).is_some_and(|offset| self.offsets.contains(&offset))
    }
}

impl Maps {
    /// The function that covers a location.
    fn covering(&mut self, location: Location) -> Option<Function> {
        let (index, offset) = match location {
            Location::File { file, offset } => (file, offset),
            Location::Address(addr) => return self.in_given_list(addr),
        };
        self.open(index);
        let file = self.files.get(index)?;
        if let FileKind::Whole { len, .. } = file.kind {
            let name = file.path.clone();
            return Some(Function { name, file: index, offsets: 0..len, address: 0 });
        }
        if file.kind == FileKind::Named {
            return self.named_at(index, offset);
        }
        let (name, offsets, address) = match &file.state {
            State::Open(module) => {
                let addr = module.address_of_offset(offset)?;
                let (name, range) = module.function_at(addr)?;
                let start = offset.wrapping_sub(addr - range.start);
                let end = start.wrapping_add(range.end - range.start);
                (file.demangled(name, &range), start..end, range.start)
            }
            State::Listed(listed) => listed.covering(offset)?,
            State::Vmlinux(vmlinux, listed) => match vmlinux.function_at(offset) {
                Some((name, offsets, addr)) => (demangle(name).into_owned(), offsets, addr),
                None => listed.as_ref()?.covering(offset)?,
            },
            State::NotTried | State::Failed(_) | State::Silent => return None,
        };
        Some(Function { name, file: index, offsets, address })
    }

    /// The symbol at a location.
    pub fn name(&mut self, location: Location) -> Option<Named> {
        let Function { name, offsets, .. } = self.covering(location)?;
        Some(Named { name, offset: location.position().wrapping_sub(offsets.start) })
    }

    /// The function at a location, with all its code. `None` if no symbol covers it, or it is
    /// outside of files.
    pub fn function(&mut self, location: Location) -> Option<Function> {
        self.covering(location).filter(|function| function.file != usize::MAX)
    }

    /// The functions that match a name, in all mapped files or those whose path ends with `file`.
    pub(crate) fn functions_called(&mut self, file: Option<&str>, name: &str) -> Vec<Function> {
        let wanted = Called::new(name);
        let mut nearest = Nearest::default();
        self.each_function(file, |symbol, file, offsets, address| {
            if file == usize::MAX {
                return;
            }
            nearest.add(wanted.fit(symbol), || {
                let (name, offsets) = (demangle(symbol).into_owned(), offsets.clone());
                Function { name, file, offsets, address }
            });
        });
        let mut found = nearest.found;
        for function in &mut found {
            let Function { file, offsets, .. } = function;
            let at = Location::File { file: *file, offset: offsets.start };
            // Of several symbols at one address, the one that views print.
            let shown = self.function(at).filter(|shown| shown.offsets.start == offsets.start);
            function.name = shown.map_or_else(|| function.name.clone(), |shown| shown.name);
        }
        found.dedup_by(|a, b| (a.file, &a.offsets) == (b.file, &b.offsets));
        found
    }

    /// Suggestions for an unknown function name.
    pub fn instead_of(&mut self, name: &str) -> String {
        let mut names: Vec<String> = Vec::new();
        self.each_function(None, |symbol, _, _, _| names.push(symbol.to_owned()));
        Called::new(name).instead(names.iter().map(String::as_str))
    }

    /// Visits every function of the mapped files, or of those whose path ends with `file`: its name
    /// as in the file, the file, its bytes, its address.
    pub(super) fn each_function(
        &mut self,
        path: Option<&str>,
        mut look: impl FnMut(&str, usize, &Range<u64>, u64),
    ) {
        for index in self.files() {
            if path.is_some_and(|end| !self.path(index).is_some_and(|path| ends(path, end))) {
                continue;
            }
            self.open(index);
            let Some(file) = self.files.get(index) else { continue };
            if file.kind == FileKind::Named {
                for (called, start) in self.named.of_file(index) {
                    look(called, index, &(start..start + REACH), 0);
                }
                continue;
            }
            match &file.state {
                State::Open(module) => {
                    for (name, range) in module.functions() {
                        let Some(start) = module.offset_of_address(range.start) else { continue };
                        let end = start.saturating_add(range.end - range.start);
                        look(name, index, &(start..end), range.start);
                    }
                }
                State::Vmlinux(vmlinux, _) => {
                    for (name, offsets, address) in vmlinux.functions() {
                        look(name, index, &offsets, address);
                    }
                }
                State::Listed(listed) => {
                    for SymbolExtent { name, addr, end } in listed.iter() {
                        let end = end.unwrap_or_else(|| addr.saturating_add(1));
                        let offsets = addr.wrapping_sub(listed.base)..end.wrapping_sub(listed.base);
                        look(name, index, &offsets, addr);
                    }
                }
                State::NotTried | State::Failed(_) | State::Silent => {}
            }
        }
        for SymbolExtent { name, addr, end } in
            self.given_list().iter().flat_map(|list| list.iter())
        {
            look(name, usize::MAX, &(addr..end.unwrap_or_else(|| addr.saturating_add(1))), addr);
        }
    }

    /// A recorded address of a function: in the first mapping of its file.
    pub(crate) fn recorded_address(&self, function: &Function) -> Option<u64> {
        let start = function.offsets.start;
        let spaces = self.spaces.iter();
        let maps = spaces.flat_map(|space| space.mappings.values().map(move |map| (space, map)));
        // A space that is still in use comes before a replaced one.
        let address = |(space, map): (&Space, &Mapping)| {
            let within = start.checked_sub(map.pgoff).filter(|within| *within < map.len)?;
            let is_there = self.file_of(space, map) == function.file;
            is_there.then(|| (space.replaced, map.start.wrapping_add(within)))
        };
        maps.filter_map(address).min().map(|(_, address)| address)
    }

    /// The file that may have debug information for a location, and the address in it.
    fn debug_at(&mut self, location: Location) -> Option<(&Module, u64)> {
        let Location::File { file, offset } = location else { return None };
        if !self.sources.lines {
            return None;
        }
        self.open(file);
        match &self.files.get(file)?.state {
            State::Open(module) => Some((module, module.address_of_offset(offset)?)),
            State::Vmlinux(vmlinux, _) => {
                Some((&vmlinux.module, vmlinux.base.wrapping_add(offset)))
            }
            _ => None,
        }
    }

    /// The line of a location; for inlined code, the innermost. `None` if the file has no debug
    /// information, or was replaced.
    pub fn source(&mut self, location: Location) -> Option<SourceLine> {
        let (module, addr) = self.debug_at(location)?;
        module.source(addr)
    }

    /// The functions that contain a location, from debug information: inlined functions from the
    /// innermost on, then the enclosing one. Empty without debug information.
    pub fn frames(&mut self, location: Location) -> Vec<Frame> {
        self.debug_at(location).map(|(module, addr)| module.frames(addr)).unwrap_or_default()
    }

    /// The lines that have code in a function; none for the kernel.
    pub(crate) fn lines_within(&mut self, function: &Function) -> Vec<SourceLine> {
        if !self.sources.lines {
            return Vec::new();
        }
        let size = function.offsets.end.saturating_sub(function.offsets.start);
        let within = function.address..function.address.saturating_add(size);
        self.elf(function.file).map(|module| module.lines_within(within)).unwrap_or_default()
    }

    /// The branch instruction at a location, from the file's code. `ip` is its run-time address.
    pub fn branch(&mut self, location: Location, ip: u64) -> Option<BranchInsn> {
        self.code(location)?.branch(ip)
    }

    /// The number of instructions of straight-line code from `entry` to `exit`, inclusive, addresses
    /// of one space; `None` if the code bytes are unavailable or do not lead there.
    pub fn straight_line(&mut self, space: usize, entry: u64, exit: u64) -> Option<u64> {
        let location = self.locate(space, entry);
        let near = exit.checked_sub(entry).is_some_and(|length| length <= LONGEST_BLOCK);
        near.then(|| straight::instructions(self, location, entry, exit)).flatten()
    }

    /// The instruction set of a file.
    pub(crate) fn isa(&mut self, file: usize) -> Isa {
        self.elf(file).and_then(|module| module.isa).unwrap_or_default()
    }

    /// Code bytes at a location, enough for an instruction; `None` if its file has none.
    pub fn code(&mut self, location: Location) -> Option<CodeBytes> {
        let Location::File { file, offset } = location else { return None };
        let module = self.elf(file)?;
        let addr = module.address_of_offset(offset)?;
        Some(module.code_at(addr)).filter(|code| !code.bytes.is_empty())
    }
}

/// Whether a path ends with the given folders and name.
fn ends(path: &str, wanted: &str) -> bool {
    path.strip_suffix(wanted).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}
