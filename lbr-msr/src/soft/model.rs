//! The model of predictions and cycles: deterministic, simple, and not any CPU's. Nothing here is
//! measured.
//!
//! Predictions:
//!
//! - A conditional branch has a two-bit counter, which starts at "not taken, weakly" and moves by
//!   one step each time.
//! - An indirect jump or call is expected to go where it went last; its first execution is
//!   mispredicted.
//! - A near return is expected to return from the last call; the last sixteen calls are
//!   remembered. A return whose call was not seen counts as predicted.
//! - Direct jumps and calls, far branches, interrupts and exceptions are never mispredicted.
//!
//! Cycles: one for each instruction, and [`PENALTY`] for a misprediction, which appear in the next
//! record.

use alloc::collections::{BTreeMap, VecDeque};

use super::Retired;
use crate::record::HwBranchType;

/// Cycles that a misprediction costs.
pub const PENALTY: u32 = 15;

/// Maximum number of remembered branches; beyond that all are forgotten.
const REMEMBERED: usize = 1 << 16;
/// Number of remembered return addresses.
const RETURNS: usize = 16;

/// A counter's states: 0 and 1 predict not taken, 2 and 3 taken.
const WEAKLY_NOT_TAKEN: u8 = 1;
const TAKEN: u8 = 2;
const STRONGLY_TAKEN: u8 = 3;

/// The branch predictor of a thread or a virtual CPU.
#[derive(Clone, Debug, Default)]
pub struct Predictor {
    counters: BTreeMap<u64, u8>,
    targets: BTreeMap<u64, u64>,
    returns: VecDeque<u64>,
}

impl Predictor {
    /// Forgets earlier calls.
    pub fn forget_calls(&mut self) {
        self.returns.clear();
    }

    /// A branch at `from`, which the instruction at `next` follows, has executed and gone to `to`.
    /// Returns whether it was mispredicted.
    pub fn executed(
        &mut self,
        from: u64,
        next: u64,
        class: HwBranchType,
        to: u64,
        taken: bool,
    ) -> bool {
        match class {
            HwBranchType::Cond => self.conditional(from, taken),
            HwBranchType::IndJmp => self.indirect(from, to),
            HwBranchType::IndCall => {
                self.call(next, to);
                self.indirect(from, to)
            }
            HwBranchType::RelCall => {
                self.call(next, to);
                false
            }
            HwBranchType::Ret => self.returns.pop_back().is_some_and(|expected| expected != to),
            HwBranchType::RelJmp | HwBranchType::Other => false,
        }
    }

    fn conditional(&mut self, from: u64, taken: bool) -> bool {
        if self.counters.len() >= REMEMBERED {
            self.counters.clear();
        }
        let counter = self.counters.entry(from).or_insert(WEAKLY_NOT_TAKEN);
        let predicted = *counter >= TAKEN;
        *counter =
            if taken { (*counter + 1).min(STRONGLY_TAKEN) } else { counter.saturating_sub(1) };
        predicted != taken
    }

    fn indirect(&mut self, from: u64, to: u64) -> bool {
        if self.targets.len() >= REMEMBERED {
            self.targets.clear();
        }
        self.targets.insert(from, to) != Some(to)
    }

    /// A call of the next instruction, which reads its own address, is never returned from.
    fn call(&mut self, next: u64, to: u64) {
        if to == next {
            return;
        }
        if self.returns.len() == RETURNS {
            self.returns.pop_front();
        }
        self.returns.push_back(next);
    }
}

/// The prediction and cycles of a taken branch in the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modelled {
    /// Whether it was mispredicted.
    pub mispredicted: bool,
    /// Cycles since the previous taken branch.
    pub cycles: u32,
}

impl Modelled {
    /// The branch with these values.
    #[must_use]
    pub const fn of(self, branch: Retired) -> Retired {
        Retired { mispredicted: Some(self.mispredicted), cycles: Some(self.cycles), ..branch }
    }
}

/// Predictor and clock of one thread.
#[derive(Clone, Debug, Default)]
pub struct Model {
    predictor: Predictor,
    /// Cycles since the last taken branch.
    cycles: u32,
}

impl Model {
    /// Counts executed instructions, including branches.
    pub fn tick(&mut self, instructions: u32) {
        self.cycles = self.cycles.saturating_add(instructions);
    }

    /// A branch was taken. Its own instruction has [ticked](Self::tick) before.
    pub fn taken(&mut self, from: u64, next: u64, class: HwBranchType, to: u64) -> Modelled {
        let mispredicted = self.predictor.executed(from, next, class, to, true);
        let cycles = core::mem::take(&mut self.cycles);
        self.pay(mispredicted);
        Modelled { mispredicted, cycles }
    }

    /// A conditional branch was not taken. Returns whether it was mispredicted, which no record
    /// shows.
    pub fn not_taken(&mut self, from: u64, next: u64) -> bool {
        let mispredicted = self.predictor.executed(from, next, HwBranchType::Cond, next, false);
        self.pay(mispredicted);
        mispredicted
    }

    fn pay(&mut self, mispredicted: bool) {
        self.tick(if mispredicted { PENALTY } else { 0 });
    }
}
