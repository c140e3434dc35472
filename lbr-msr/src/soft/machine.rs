//! Registers that the test machine has and no CPU: by them a guest tells the
//! machine what to do with its software LBRs.
//!
//! The machine (`machine/`, feature `guest`) is a virtual machine whose CPU
//! has a software LBR. Nothing outside it answers to these addresses; whoever
//! looks for them asks CPUID for the emulator's name first.

use crate::address::Msr;

/// Reads as [`IDENTITY`].
pub const IDENT: Msr = Msr(0x4C42_5200);

/// What [`IDENT`] reads as: `LBRTM`, and version 1.
pub const IDENTITY: u64 = u64::from_le_bytes(*b"LBRTM\0\0\x01");

/// Takes the names of [`Fault`](super::Fault)s, separated by commas, as text
/// of which each write brings eight bytes; a zero byte ends it, further ones do
/// nothing. All software LBRs of the machine are then as after a reset, and
/// have these faults and no others; [`NONE`] stands for no fault. A name that
/// is none raises #GP.
///
/// Linux's driver writes a register once for every eight bytes of a `write`,
/// so that one call sets them: `printf tos-off-by-one | dd bs=512 conv=sync
/// oflag=seek_bytes seek=$((0x4C425201)) of=/dev/cpu/0/msr`.
pub const FAULTS: Msr = Msr(0x4C42_5201);

/// What is written to [`FAULTS`] for sound CPUs.
pub const NONE: &str = "none";

/// Takes the code of an [`Event`], which happens to the CPU that writes it.
pub const EVENT: Msr = Msr(0x4C42_5202);

/// What a guest cannot bring about by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Event {
    /// A performance-monitoring interrupt, as far as it changes registers: no
    /// counter overflows and no handler runs.
    Pmi = 1,
    /// A system-management interrupt and its RSM.
    Smi = 2,
    /// A stay in a C-state deeper than C1.
    DeepCState = 3,
}

impl Event {
    /// The event of a code; `None` for any other value.
    #[must_use]
    pub const fn from_code(code: u64) -> Option<Event> {
        match code {
            1 => Some(Event::Pmi),
            2 => Some(Event::Smi),
            3 => Some(Event::DeepCState),
            _ => None,
        }
    }
}
