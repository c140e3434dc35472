//! Effects of injected faults on the LBR, except on the bits of a record.

use crate::caps::Order;
use crate::record::HwBranchType;

use super::encode::{Encoding, Slot};
use super::ring::{Mode, SoftLbr};
use super::{Fault, Retired};

/// Where SMM starts executing unless firmware moved it. SDM 34.4.
const SMBASE_ENTRY: u64 = 0x3_8000;

impl SoftLbr {
    /// Applies faults after a branch was recorded.
    pub(super) fn after(&mut self, branch: &Retired) {
        if branch.abort && self.faults.has(Fault::DoubleAbort) && self.mode == Mode::Ring {
            self.push(&Retired { abort: false, cycles: Some(0), ..*branch });
        }
        if self.faults.has(Fault::LastExceptionEqual) {
            self.ler = self.last_exception();
        }
    }

    /// Records the newest record again, when recording stops.
    pub(super) fn repeat_newest(&mut self) {
        let newest = self.newest();
        if newest != Slot::default() && matches!(self.caps.order, Order::Tos | Order::NewestFirst) {
            self.advance();
            self.set_newest(newest);
        }
    }

    /// Removes the newest record.
    pub(super) fn take_back(&mut self) {
        self.set_newest(self.overwritten);
        self.top = if self.top == 0 { self.ring_depth() - 1 } else { self.top - 1 };
    }

    /// Replaces the newest record with one that no branch made.
    pub(super) fn spoil_newest(&mut self) {
        let spoilt = Encoding::record(
            self.encoding,
            &Retired::user(SMBASE_ENTRY, SMBASE_ENTRY, HwBranchType::Other),
            SMBASE_ENTRY,
            None,
        );
        self.set_newest(spoilt);
    }

    /// [`physical`](Self::physical) for renamed registers with the faults that halve the depth or
    /// reverse the order.
    pub(super) fn faulty_physical(&self, index: usize) -> usize {
        let ring = self.ring_depth();
        if index >= ring {
            return index;
        }
        let age = if self.faults.has(Fault::OrderReversed) { ring - 1 - index } else { index };
        (self.top + ring - age) % ring
    }
}
