//! Registers that exist only in the test machine: a guest uses them to control the machine's
//! software LBRs.
//!
//! The machine (`machine/`, feature `guest`) is a virtual machine whose CPU has a software LBR.
//! Nothing else has these addresses; check CPUID for the emulator's name before access.

use crate::address::Msr;

/// Reads as [`IDENTITY`].
pub const IDENT: Msr = Msr(0x4C42_5200);

/// The value of [`IDENT`]: `LBRTM`, and version 1.
pub const IDENTITY: u64 = u64::from_le_bytes(*b"LBRTM\0\0\x01");

/// Receives names of [`Fault`](super::Fault)s, separated by commas, as text in eight-byte writes. A
/// zero byte ends the text; later ones have no effect. All software LBRs of the machine are then
/// reset and have exactly these faults; [`NONE`] means no fault. An unknown name raises #GP.
///
/// Linux's driver writes the register once for every eight bytes of a `write`, so one call is
/// enough: `printf tos-off-by-one | dd bs=512 conv=sync oflag=seek_bytes seek=$((0x4C425201))
/// of=/dev/cpu/0/msr`.
pub const FAULTS: Msr = Msr(0x4C42_5201);

/// The text written to [`FAULTS`] for CPUs without faults.
pub const NONE: &str = "none";

/// Receives the code of an [`Event`], which then happens on the writing CPU.
pub const EVENT: Msr = Msr(0x4C42_5202);

/// An event that a guest cannot cause alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Event {
    /// The register effects of a performance-monitoring interrupt, without counter overflow or
    /// handler.
    Pmi = 1,
    /// A system-management interrupt and its RSM.
    Smi = 2,
    /// Time in a C-state deeper than C1.
    DeepCState = 3,
}

impl Event {
    /// The event of a code; `None` for any other value.
    pub fn from_code(code: u64) -> Option<Event> {
        [Event::Pmi, Event::Smi, Event::DeepCState].into_iter().find(|event| *event as u64 == code)
    }
}
