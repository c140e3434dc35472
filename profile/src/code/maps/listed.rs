//! Symbols of the kernel: from a list, or from its ELF file.

use std::ops::Range;
use std::sync::Arc;

use crate::code::lines::{Frame, SourceLine};
use crate::code::symbols::{KernelSymbols, Module, SymbolExtent};

/// The functions of the kernel, or of one of its modules.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) symbols: Arc<KernelSymbols>,
    /// "" is the kernel.
    pub(super) module: String,
    /// Add this to offsets to get addresses in the list.
    pub(super) base: u64,
}

impl Listed {
    pub(super) fn at(&self, offset: u64) -> Option<SymbolExtent<'_>> {
        self.symbols.at(&self.module, self.base.wrapping_add(offset))
    }

    /// The function at an offset: its name, its offsets, its address.
    pub(super) fn covering(
        &self,
        file: usize,
        offset: u64,
    ) -> Option<(String, usize, Range<u64>, u64)> {
        let SymbolExtent { name, addr, end } = self.at(offset)?;
        // The last has no end: assume that it covers the requested offset.
        let end = end.map_or(offset.wrapping_add(1), |end| end.wrapping_sub(self.base));
        Some((name.to_owned(), file, addr.wrapping_sub(self.base)..end, addr))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = SymbolExtent<'_>> {
        self.symbols.of_module(&self.module)
    }
}

/// A kernel's ELF file.
#[derive(Debug)]
pub(super) struct Vmlinux {
    pub(super) module: Box<Module>,
    /// Add this to offsets to get addresses in the file: the address of its reference symbol, so
    /// the load address does not matter.
    pub(super) base: u64,
}

impl Vmlinux {
    /// The function at an offset: its name as in the file, its offsets, its address in the file.
    pub(super) fn function_at(&self, offset: u64) -> Option<(&str, Range<u64>, u64)> {
        let (name, range) = self.module.function_at(self.base.wrapping_add(offset))?;
        Some((name, self.offsets(&range), range.start))
    }

    /// Every function: its name as in the file, its offsets, its address in the file.
    pub(super) fn functions(&self) -> impl Iterator<Item = (&str, Range<u64>, u64)> {
        self.module.functions().map(|(name, range)| (name, self.offsets(&range), range.start))
    }

    fn offsets(&self, range: &Range<u64>) -> Range<u64> {
        range.start.wrapping_sub(self.base)..range.end.wrapping_sub(self.base)
    }

    pub(super) fn source(&self, offset: u64) -> Option<SourceLine> {
        self.module.source(self.base.wrapping_add(offset))
    }

    pub(super) fn frames(&self, offset: u64) -> Vec<Frame> {
        self.module.frames(self.base.wrapping_add(offset))
    }
}
