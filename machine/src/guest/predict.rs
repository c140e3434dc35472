//! Which branches count as mispredicted: a small predictor, written here, not
//! that of any CPU.
//!
//! - A conditional branch is predicted by a two-bit counter of its own that
//!   starts at "not taken, weakly" and moves by one step each time.
//! - An indirect jump or call is predicted to go where it went last; the first
//!   time it is mispredicted.
//! - A near return is predicted to go behind its call, for the last sixteen
//!   calls. One whose call was not seen counts as predicted.
//! - Direct jumps and calls, far branches, interrupts and exceptions are never
//!   mispredicted.
//!
//! Counters and targets are kept while recording is off, like a real
//! predictor's, but nothing is learned then.

use std::collections::HashMap;

use lbr_msr::insn::BranchInsn;
use lbr_msr::record::HwBranchType;

/// Branches that are remembered; beyond that all are forgotten at once.
const REMEMBERED: usize = 1 << 16;
/// Calls whose return addresses are remembered.
const RETURNS: usize = 16;

/// A counter's states: 0 and 1 predict not taken, 2 and 3 taken.
const WEAKLY_NOT_TAKEN: u8 = 1;
const TAKEN: u8 = 2;
const STRONGLY_TAKEN: u8 = 3;

/// What a virtual CPU remembers of its branches.
#[derive(Clone, Debug, Default)]
pub(super) struct Predictor {
    counters: HashMap<u64, u8>,
    targets: HashMap<u64, u64>,
    returns: Vec<u64>,
}

impl Predictor {
    /// Recording starts: what was called before is not known.
    pub(super) fn start(&mut self) {
        self.returns.clear();
    }

    /// `branch` has been executed and gone on at `to`. Whether that was
    /// mispredicted.
    pub(super) fn executed(&mut self, branch: &BranchInsn, to: u64, taken: bool) -> bool {
        match branch.class {
            HwBranchType::Cond => self.conditional(branch.ip, taken),
            HwBranchType::IndJmp => self.indirect(branch.ip, to),
            HwBranchType::IndCall => {
                self.call(branch.next());
                self.indirect(branch.ip, to)
            }
            HwBranchType::RelCall => {
                self.call(branch.next());
                false
            }
            HwBranchType::Ret => self.returns.pop().is_some_and(|expected| expected != to),
            _ => false,
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

    fn call(&mut self, back: u64) {
        if self.returns.len() == RETURNS {
            self.returns.remove(0);
        }
        self.returns.push(back);
    }
}

#[cfg(test)]
mod tests {
    use lbr_msr::insn;

    use super::*;

    const JNZ_BACK_2: [u8; 2] = [0x75, 0xFE];
    const JMP_RAX: [u8; 2] = [0xFF, 0xE0];
    const CALL: [u8; 5] = [0xE8, 0, 1, 0, 0];
    const RET: [u8; 1] = [0xC3];
    const JMP_BACK_2: [u8; 2] = [0xEB, 0xFE];

    fn branch(bytes: &[u8], ip: u64) -> BranchInsn {
        insn::branch_kind(bytes, ip).expect("a branch")
    }

    #[test]
    fn a_loop_is_mispredicted_at_its_first_round_and_at_its_end() {
        let mut predictor = Predictor::default();
        let jnz = branch(&JNZ_BACK_2, 0x1000);
        let mut run = |taken| predictor.executed(&jnz, 0x1000, taken);
        assert_eq!([true, true, true, false].map(&mut run), [true, false, false, true]);
        // The counter is still on the side of taken.
        assert_eq!([true, true, true, false].map(&mut run), [false, false, false, true]);
    }

    #[test]
    fn an_alternating_branch_is_always_mispredicted() {
        let mut predictor = Predictor::default();
        let jnz = branch(&JNZ_BACK_2, 0x1000);
        let mut run = |taken| predictor.executed(&jnz, 0x1000, taken);
        assert_eq!([true, false, true, false].map(&mut run), [true; 4]);
    }

    #[test]
    fn indirect_branches_go_where_they_went_last() {
        let mut predictor = Predictor::default();
        let jmp = branch(&JMP_RAX, 0x1000);
        let mut run = |to| predictor.executed(&jmp, to, true);
        assert_eq!([1, 1, 2, 2, 1].map(&mut run), [true, false, true, false, true]);
    }

    #[test]
    fn returns_go_behind_their_calls() {
        let mut predictor = Predictor::default();
        let (outer, inner) = (branch(&CALL, 0x1000), branch(&CALL, 0x2000));
        let ret = branch(&RET, 0x3000);
        assert!(!predictor.executed(&outer, 0x1105, true));
        assert!(!predictor.executed(&inner, 0x2105, true));
        assert!(!predictor.executed(&ret, 0x2005, true));
        assert!(predictor.executed(&ret, 0x9000, true), "not behind its call");
        assert!(!predictor.executed(&ret, 0x9000, true), "no call was seen");
        assert!(!predictor.executed(&branch(&JMP_BACK_2, 0x4000), 0x4000, true));
    }
}
