//! The software LBR: a register file with the rules of a chosen CPU.
//!
//! It is written from the documented facts, not from the decoder: the decoder
//! is tested against it. It is fed [`Retired`] branches and read and written
//! through [`MsrRead`](crate::MsrRead) and [`MsrWrite`](crate::MsrWrite), by
//! address, like the registers it stands in for.

pub mod fault;
pub mod machine;
pub mod preset;

pub use fault::{Fault, Faults};
pub use preset::SoftCpu;
mod control;
mod depart;
mod encode;
mod events;
mod filter;
mod registers;
mod ring;

pub use ring::SoftLbr;

use crate::record::HwBranchType;

/// One branch that retired, as a source of branches reports it: what a CPU knows
/// and its records may leave out (the [`BranchEntry`](crate::record::BranchEntry)
/// of it holds what they do not). A branch that was not taken is not retired
/// here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Retired {
    /// Address of the branch instruction.
    pub from: u64,
    /// Where it went.
    pub to: u64,
    /// The class that filters look at.
    pub class: HwBranchType,
    /// A call to the next sequential instruction (the position-independent
    /// code idiom): not pushed in call-stack mode. SDM 17.9.
    pub zero_length_call: bool,
    /// Privilege level before.
    pub cpl_before: u8,
    /// Privilege level after: the ring that filters test.
    pub cpl_after: u8,
    /// Whether it was mispredicted; recorded as 0 where not known.
    pub mispredicted: Option<bool>,
    /// Core cycles since the previous branch; recorded as 0 where not known.
    pub cycles: Option<u32>,
    /// It retired inside a transaction.
    pub in_tx: bool,
    /// It is a transaction abort.
    pub abort: bool,
}

impl Retired {
    /// A branch in user code of which nothing but its two ends and class is known.
    #[must_use]
    pub const fn user(from: u64, to: u64, class: HwBranchType) -> Retired {
        Retired {
            from,
            to,
            class,
            zero_length_call: false,
            cpl_before: 3,
            cpl_after: 3,
            mispredicted: None,
            cycles: None,
            in_tx: false,
            abort: false,
        }
    }
}
