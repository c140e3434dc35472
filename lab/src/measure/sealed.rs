//! The control register values that a bracket writes, sealed against changes by the code inside it.
//!
//! They are in a page that becomes read-only before the code's process is forked. Nothing is mapped
//! below that page, so a call that could change its mapping is recognised by its address alone. The
//! [filter](super::confine) refuses calls that start below its end, and lets the bracket write only
//! the two values.

use std::io;

use nix::sys::mman::ProtFlags;

use super::bracket::SwitchWrites;
use crate::code::memory::{Mapping, PAGE};

/// Candidate addresses of the page: from the default of vm.mmap_min_addr up to the usual start of
/// non-PIE programs.
const LOWEST: u64 = 0x1_0000;
const HIGHEST: u64 = 0x40_0000;

/// The two values, and the writes that use them.
#[derive(Debug)]
pub(super) struct SealedSwitch {
    mapping: Mapping,
    pub(super) writes: SwitchWrites,
}

impl SealedSwitch {
    /// Maps the page, to be inherited by processes forked later.
    pub(super) fn new(writes: SwitchWrites) -> io::Result<SealedSwitch> {
        let mut addresses = (LOWEST..HIGHEST).step_by(PAGE as usize);
        let mut mapping = addresses
            .find_map(|address| Mapping::at(address, PAGE).ok())
            .ok_or_else(|| io::Error::other("no address below 4 MiB can be mapped"))?;
        let values = [writes.on, writes.off].map(u64::to_le_bytes).concat();
        mapping.fill(0, PAGE, &values, ProtFlags::PROT_READ)?;
        Ok(SealedSwitch { mapping, writes })
    }

    /// The addresses of the two values.
    pub(super) fn values_at(&self) -> [u64; 2] {
        [self.mapping.address(), self.mapping.address() + 8]
    }

    /// The end of the page; below 4 GiB.
    pub(super) fn end(&self) -> u32 {
        self.mapping.end() as u32
    }
}
