//! Predictions and cycles, as simple as they can be: nothing here was measured.

use std::collections::HashMap;

use lbr_msr::insn::BranchInsn;
use lbr_msr::record::HwBranchType;

/// What a wrong prediction costs, in cycles of the model.
pub const PENALTY: u32 = 15;

/// A predictor that expects of each branch what it did last time, and a clock
/// of one instruction a cycle.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// Where each branch went last time.
    last: HashMap<u64, u64>,
    /// Cycles since the last branch that was taken.
    cycles: u32,
}

impl Model {
    /// An instruction was executed.
    pub(super) fn tick(&mut self) {
        self.cycles = self.cycles.saturating_add(1);
    }

    /// A branch went to `next`: whether that was a surprise. Direct branches and
    /// returns never are. A branch that is new is expected to fall through, which
    /// an indirect one cannot.
    pub(super) fn surprises(&mut self, branch: &BranchInsn, next: u64) -> bool {
        let learns = matches!(
            branch.class,
            HwBranchType::Cond | HwBranchType::IndJmp | HwBranchType::IndCall
        );
        let expected = self.last.insert(branch.ip, next).unwrap_or(branch.next());
        learns && expected != next
    }

    /// The cycles up to a branch that is taken; the count starts again behind it.
    pub(super) fn taken(&mut self, surprise: bool) -> u32 {
        let cycles = std::mem::take(&mut self.cycles);
        self.fell_through(surprise);
        cycles
    }

    /// What a wrong prediction costs comes after the branch.
    pub(super) fn fell_through(&mut self, surprise: bool) {
        self.cycles += if surprise { PENALTY } else { 0 };
    }
}
