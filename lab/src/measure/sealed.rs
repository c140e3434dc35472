//! The values that a bracket writes into the control register, where the code
//! inside of it cannot change them.
//!
//! They are in a page that is read-only before the code's process is forked.
//! Nothing is mapped below that page, so that a call that could change its
//! mapping is known by its address alone: the [filter](super::confine) refuses
//! those that start below its end, and lets the bracket write nothing but the
//! two values.

use std::io;

use nix::sys::mman::ProtFlags;

use super::bracket::SwitchWrites;
use crate::code::memory::{Mapping, PAGE};

/// Addresses for the page: from the default of vm.mmap_min_addr up to the start
/// of programs that are linked for fixed addresses.
const LOWEST: u64 = 0x1_0000;
const HIGHEST: u64 = 0x40_0000;

/// The two values, and the writes that they are for.
#[derive(Debug)]
pub(super) struct SealedSwitch {
    mapping: Mapping,
    pub(super) writes: SwitchWrites,
}

impl SealedSwitch {
    /// Maps the page; processes that are forked afterwards have it too.
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

    /// The end of the page, which is below 4 GiB.
    pub(super) fn end(&self) -> u32 {
        self.mapping.end() as u32
    }
}
