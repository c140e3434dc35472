//! The code bytes and source lines of a location.

use lbr_msr::insn::{self, BranchInsn};

use super::files::State;
use super::listed::Vmlinux;
use super::{Function, Location, Maps};
use crate::code::lines::{Frame, SourceLine};
use crate::code::straight;
use crate::read::address::LONGEST_BLOCK;

impl Maps {
    /// The kernel's ELF file, if the index is the kernel's. Only for symbols: a kernel changes its
    /// code at run time.
    fn vmlinux_of(&mut self, index: usize) -> Option<&mut Vmlinux> {
        self.open(index);
        match &mut self.files.get_mut(index)?.state {
            State::Vmlinux(vmlinux, _) => Some(vmlinux),
            _ => None,
        }
    }

    /// The line of a location; for inlined code, the innermost. `None` if the file has no debug
    /// information, or was replaced.
    pub fn source(&mut self, location: Location) -> Option<SourceLine> {
        let Location::File { file, offset } = location else { return None };
        if !self.sources.lines {
            return None;
        }
        if let Some(vmlinux) = self.vmlinux_of(file) {
            return vmlinux.source(offset);
        }
        let module = self.elf(file)?;
        module.source(module.address_of_offset(offset)?)
    }

    /// The functions that contain a location, from debug information: inlined functions from the
    /// innermost on, then the enclosing one. Empty without debug information.
    pub fn frames(&mut self, location: Location) -> Vec<Frame> {
        let Location::File { file, offset } = location else { return Vec::new() };
        if !self.sources.lines {
            return Vec::new();
        }
        if let Some(vmlinux) = self.vmlinux_of(file) {
            return vmlinux.frames(offset);
        }
        let Some(module) = self.elf(file) else { return Vec::new() };
        module.address_of_offset(offset).map(|addr| module.frames(addr)).unwrap_or_default()
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
        insn::branch_kind(&self.code(location)?, ip)
    }

    /// The number of instructions of straight-line code from `entry` to `exit`, inclusive, addresses
    /// of one space; `None` if the code bytes are unavailable or do not lead there.
    pub fn straight_line(&mut self, space: usize, entry: u64, exit: u64) -> Option<u64> {
        let location = self.locate(space, entry);
        let near = exit.checked_sub(entry).is_some_and(|length| length <= LONGEST_BLOCK);
        near.then(|| straight::instructions(self, location, entry, exit)).flatten()
    }

    /// Code bytes at a location, up to 15; `None` if its file has none.
    pub fn code(&mut self, location: Location) -> Option<Vec<u8>> {
        let Location::File { file, offset } = location else { return None };
        let module = self.elf(file)?;
        let addr = module.address_of_offset(offset)?;
        Some(module.code_at(addr)).filter(|code| !code.is_empty())
    }
}
