//! The code bytes of a place, and its lines in the source.

use std::collections::BTreeMap;

use lbr_msr::insn::{self, BranchInsn};

use super::files::State;
use super::vmlinux::Vmlinux;
use super::{Location, Maps};
use crate::code::lines::{Frame, SourceLine};

impl Maps {
    /// The kernel's ELF file, where that is what an index stands for. Its code is
    /// not asked for: a kernel changes it while it runs.
    fn vmlinux_of(&mut self, index: usize) -> Option<&mut Vmlinux> {
        self.open(index);
        match &mut self.files.get_mut(index)?.state {
            State::Vmlinux(vmlinux, _) => Some(vmlinux),
            _ => None,
        }
    }

    /// Looks up the lines of many places at once. What
    /// [`source`](Self::source) and [`frames`](Self::frames) say is the same
    /// without; with it each piece of the debug information is read once and
    /// not kept.
    pub fn look_up_lines(&mut self, places: impl IntoIterator<Item = Location>) {
        if !self.sources.lines {
            return;
        }
        let mut offsets: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for place in places {
            if let Location::File { file, offset } = place {
                offsets.entry(file).or_default().push(offset);
            }
        }
        for (file, mut addrs) in offsets {
            if let Some(vmlinux) = self.vmlinux_of(file) {
                vmlinux.look_up_lines(&addrs);
                continue;
            }
            let Some(module) = self.elf(file) else { continue };
            addrs.retain_mut(|offset| {
                let addr = module.address_of_offset(*offset);
                *offset = addr.unwrap_or(*offset);
                addr.is_some()
            });
            module.look_up_lines(addrs);
        }
    }

    /// The line of a place; of inlined code, the innermost. `None` where the
    /// file has no debug information, or was replaced.
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

    /// The functions that a place belongs to, out of debug information: those
    /// inlined there from the innermost on, and at the end the one that stands
    /// for itself. Empty where there is none.
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

    /// The branch instruction at a place, out of the file's code bytes.
    /// `ip` is where it ran.
    pub fn branch(&mut self, location: Location, ip: u64) -> Option<BranchInsn> {
        insn::branch_kind(&self.code(location)?, ip)
    }

    /// Code bytes at a place, up to 15; `None` where its file has none there.
    pub fn code(&mut self, location: Location) -> Option<Vec<u8>> {
        let Location::File { file, offset } = location else { return None };
        let module = self.elf(file)?;
        let addr = module.address_of_offset(offset)?;
        Some(module.code_at(addr)).filter(|code| !code.is_empty())
    }
}
