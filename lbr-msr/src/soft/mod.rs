//! The software LBR: a register file with the rules of a chosen CPU.
//!
//! It is written from documented facts, independently of the decoder, which is tested against it. A
//! source records [`Retired`] branches in it; readers access it through [`MsrRead`](crate::MsrRead)
//! and [`MsrWrite`](crate::MsrWrite) by address, like hardware registers.

pub mod fault;
pub mod machine;
pub mod preset;

pub use fault::{Fault, Faults};
pub use model::{Model, Modelled, PENALTY, Predictor};
pub use preset::SoftCpu;
mod control;
mod depart;
mod encode;
mod events;
mod filter;
mod model;
mod registers;
mod ring;

pub use ring::SoftLbr;

use crate::record::HwBranchType;

/// One retired taken branch, as a source reports it: everything a CPU knows, even what its records
/// omit. ([`BranchEntry`](crate::record::BranchEntry) holds `None` for fields that a record omits.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Retired {
    /// Source address.
    pub from: u64,
    /// Target address.
    pub to: u64,
    /// The class that filters test.
    pub class: HwBranchType,
    /// A call to the next instruction (the position-independent code idiom): not pushed in
    /// call-stack mode. SDM 17.9.
    pub zero_length_call: bool,
    /// Privilege level at the source.
    pub cpl_before: u8,
    /// Privilege level at the target, which filters test.
    pub cpl_after: u8,
    /// Whether it was mispredicted; recorded as 0 if unknown.
    pub mispredicted: Option<bool>,
    /// Core cycles since the previous branch; recorded as 0 if unknown.
    pub cycles: Option<u32>,
    /// Whether it retired inside a transaction.
    pub in_tx: bool,
    /// Whether it is a transaction abort.
    pub abort: bool,
}

impl Retired {
    /// A branch in user code with only addresses and class known.
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
