//! What lies and errata do to the ring beside the bits of a record.

use crate::caps::Order;
use crate::record::HwBranchType;

use super::encode::{Encoding, Slot};
use super::ring::{Mode, SoftLbr};
use super::{Fault, Retired};

/// Where SMM begins to execute unless firmware moved it. SDM 34.4.
const SMBASE_ENTRY: u64 = 0x3_8000;

impl SoftLbr {
    /// What faults add to a branch that was recorded.
    pub(super) fn after(&mut self, branch: &Retired) {
        if branch.abort && self.faults.has(Fault::DoubleAbort) && self.mode == Mode::Ring {
            self.push(&Retired { abort: false, cycles: Some(0), ..*branch });
        }
        if self.faults.has(Fault::LastExceptionEqual) {
            self.ler = self.last_exception();
        }
    }

    /// Recording ends: the newest record again.
    pub(super) fn repeat_newest(&mut self) {
        let newest = self.newest();
        if newest != Slot::default() && matches!(self.model.order, Order::Tos | Order::NewestFirst)
        {
            self.advance();
            if let Some(slot) = self.slots.get_mut(self.top) {
                *slot = newest;
            }
        }
    }

    /// Takes the newest record back.
    pub(super) fn take_back(&mut self) {
        let before = self.overwritten;
        if let Some(slot) = self.slots.get_mut(self.top) {
            *slot = before;
        }
        self.top = if self.top == 0 { self.ring_depth() - 1 } else { self.top - 1 };
    }

    /// Makes the newest record one that no branch made.
    pub(super) fn spoil_newest(&mut self) {
        let spoilt = Encoding::record(
            self.encoding,
            &Retired::user(SMBASE_ENTRY, SMBASE_ENTRY, HwBranchType::Other),
            SMBASE_ENTRY,
            None,
        );
        if let Some(slot) = self.slots.get_mut(self.top) {
            *slot = spoilt;
        }
    }

    /// [`physical`](Self::physical) of renamed registers in a ring that may be
    /// smaller than announced, or the wrong way round.
    pub(super) fn faulty_physical(&self, index: usize) -> usize {
        let ring = self.ring_depth();
        if index >= ring {
            return index;
        }
        let age = if self.faults.has(Fault::OrderReversed) { ring - 1 - index } else { index };
        (self.top + ring - age) % ring
    }
}
