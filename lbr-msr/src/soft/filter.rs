//! The retired branches that a filter register records, as a bitmap that is computed when the
//! register is written and looked up for each branch.

use crate::caps::FilterRegister;
use crate::record::HwBranchType;
use crate::register::{LbrCtl, LbrSelect};

use super::{Fault, Faults, Retired};

/// The faults that disable a filter, with the suppress and the capture bit.
const IGNORED: [(Fault, u64, u64); 9] = [
    (Fault::IgnoresRing0, LbrSelect::CPL_EQ_0.bits(), LbrCtl::OS.bits()),
    (Fault::IgnoresUser, LbrSelect::CPL_NEQ_0.bits(), LbrCtl::USR.bits()),
    (Fault::IgnoresCond, LbrSelect::JCC.bits(), LbrCtl::COND.bits()),
    (Fault::IgnoresRelCall, LbrSelect::NEAR_REL_CALL.bits(), LbrCtl::NEAR_REL_CALL.bits()),
    (Fault::IgnoresIndCall, LbrSelect::NEAR_IND_CALL.bits(), LbrCtl::NEAR_IND_CALL.bits()),
    (Fault::IgnoresRet, LbrSelect::NEAR_RET.bits(), LbrCtl::NEAR_RET.bits()),
    (Fault::IgnoresIndJmp, LbrSelect::NEAR_IND_JMP.bits(), LbrCtl::NEAR_IND_JMP.bits()),
    (Fault::IgnoresRelJmp, LbrSelect::NEAR_REL_JMP.bits(), LbrCtl::NEAR_REL_JMP.bits()),
    (Fault::IgnoresFar, LbrSelect::FAR_BRANCH.bits(), LbrCtl::OTHER_BRANCH.bits()),
];

const CLASSES: [HwBranchType; 7] = [
    HwBranchType::Cond,
    HwBranchType::IndJmp,
    HwBranchType::RelJmp,
    HwBranchType::IndCall,
    HwBranchType::RelCall,
    HwBranchType::Ret,
    HwBranchType::Other,
];

/// The bit of a pass bitmap for a branch: bits 2:0 its class, bit 3 whether it is a zero-length
/// call, bit 4 whether it lands outside ring 0.
#[inline]
pub(super) const fn selector(class: HwBranchType, zero_length: bool, user: bool) -> u32 {
    class as u32 | (zero_length as u32) << 3 | (user as u32) << 4
}

/// [`selector`] for a branch. Filters test the ring of its target.
#[inline]
pub(super) const fn selector_of(branch: &Retired) -> u32 {
    selector(branch.class, branch.zero_length_call, branch.cpl_after != 0)
}

/// The effect of a filter register's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    /// Bit [`selector`] is set if such a branch is recorded.
    pub(super) pass: u32,
    /// Calls push, near returns pop.
    pub(super) call_stack: bool,
    /// Bit 0: hide the FROM of branches that start in ring 0. Bit 1: of those that start outside.
    pub(super) hide: u8,
}

impl Filter {
    const EVERYTHING: Filter = Filter { pass: !0, call_stack: false, hide: 0 };
    /// The manual does not define the records: nothing is recorded.
    const UNDEFINED: Filter = Filter { pass: 0, call_stack: true, hide: 0 };

    /// The effect of `value` in the filter register, with injected faults.
    pub(super) fn faulty(register: FilterRegister, value: u64, faults: Faults) -> Filter {
        let mut filter = Filter::of(register, value);
        let swallows = faults.has(Fault::JumpsSwallowCalls);
        let register = match register {
            FilterRegister::AmdSelect if swallows => {
                FilterRegister::LbrSelect { jumps_swallow_calls: true, call_stack: false }
            }
            FilterRegister::LbrSelect { call_stack, .. } if swallows => {
                FilterRegister::LbrSelect { jumps_swallow_calls: true, call_stack }
            }
            other => other,
        };
        let captures = matches!(register, FilterRegister::LbrCtl { .. });
        if !filter.call_stack {
            let bits = if captures {
                LbrCtl::RINGS.union(LbrCtl::BRANCHES).bits()
            } else {
                LbrSelect::SUPPRESS.bits()
            };
            let mut value = if faults.has(Fault::FilterPolarity) { value ^ bits } else { value };
            for (fault, suppress, capture) in IGNORED {
                if faults.has(fault) && captures {
                    value |= capture;
                } else if faults.has(fault) {
                    value &= !suppress;
                }
            }
            filter = Filter::of(register, value);
        }
        // The selector bit of a zero-length call.
        let zero = |class| selector(class, true, false) | selector(class, true, true) << 16;
        let calls = match (filter.call_stack, faults) {
            (true, faults) if faults.has(Fault::PushesZeroLengthCalls) => {
                [zero(HwBranchType::RelCall), zero(HwBranchType::IndCall)]
            }
            (false, faults) if captures && faults.has(Fault::RecordsZeroLengthCalls) => {
                [zero(HwBranchType::RelCall); 2]
            }
            _ => return filter.unhidden(faults),
        };
        for zero in calls.into_iter().flat_map(|pair| [pair & 0xFFFF, pair >> 16]) {
            // Passes if a call of another length passes.
            let other = zero & !(1 << 3);
            filter.pass |= (filter.pass >> other & 1) << zero;
        }
        filter.unhidden(faults)
    }

    const fn unhidden(mut self, faults: Faults) -> Filter {
        if faults.has(Fault::FromNotHidden) {
            self.hide = 0;
        }
        self
    }

    /// The effect of `value` in the filter register.
    pub(super) fn of(register: FilterRegister, value: u64) -> Filter {
        match register {
            FilterRegister::None => Filter::EVERYTHING,
            FilterRegister::AmdSelect => suppress(value, false),
            FilterRegister::LbrSelect { jumps_swallow_calls, call_stack } => {
                if call_stack && value & LbrSelect::EN_CALLSTACK.bits() != 0 {
                    call_stack_select(value)
                } else {
                    suppress(value, jumps_swallow_calls)
                }
            }
            FilterRegister::LbrCtl { cpl, branch, .. } => capture(value, cpl, branch),
        }
    }
}

/// A bitmap of the branches for which `pass(class, zero_length, user)` holds.
fn bitmap(pass: impl Fn(HwBranchType, bool, bool) -> bool) -> u32 {
    let mut map = 0;
    for class in CLASSES {
        for (zero_length, user) in [(false, false), (false, true), (true, false), (true, true)] {
            if pass(class, zero_length, user) {
                map |= 1 << selector(class, zero_length, user);
            }
        }
    }
    map
}

/// MSR_LBR_SELECT outside call-stack mode, and AMD's LBR_SELECT.
fn suppress(value: u64, jumps_swallow_calls: bool) -> Filter {
    let pass = bitmap(|class, _, user| {
        let ring = if user { LbrSelect::CPL_NEQ_0.bits() } else { LbrSelect::CPL_EQ_0.bits() };
        let kind = match class {
            HwBranchType::Cond => LbrSelect::JCC.bits(),
            HwBranchType::IndJmp => LbrSelect::NEAR_IND_JMP.bits(),
            HwBranchType::RelJmp => LbrSelect::NEAR_REL_JMP.bits(),
            HwBranchType::IndCall => LbrSelect::NEAR_IND_CALL.bits(),
            HwBranchType::RelCall => LbrSelect::NEAR_REL_CALL.bits(),
            HwBranchType::Ret => LbrSelect::NEAR_RET.bits(),
            HwBranchType::Other => LbrSelect::FAR_BRANCH.bits(),
        };
        // SDM Tables 17-11 and 17-12: before Sandy Bridge the jump bits do not exempt calls and
        // returns.
        let swallowed_by = match class {
            HwBranchType::IndCall | HwBranchType::Ret if jumps_swallow_calls => {
                LbrSelect::NEAR_IND_JMP.bits()
            }
            HwBranchType::RelCall if jumps_swallow_calls => LbrSelect::NEAR_REL_JMP.bits(),
            _ => 0,
        };
        value & (ring | kind | swallowed_by) == 0
    });
    Filter { pass, call_stack: false, hide: 0 }
}

/// MSR_LBR_SELECT with EN_CALLSTACK. SDM 17.9 defines one combination of the branch bits, and
/// allows at most one ring bit.
fn call_stack_select(value: u64) -> Filter {
    const ONE: u64 = LbrSelect::BRANCHES_OF_CALL_STACK.bits();
    const ZERO: u64 = LbrSelect::BRANCHES.bits() & !ONE;
    const RINGS: u64 = LbrSelect::RINGS.bits();
    if value & (ONE | ZERO) != ONE || value & RINGS == RINGS {
        return Filter::UNDEFINED;
    }
    let pass = bitmap(|class, zero_length, user| {
        let ring = if user { LbrSelect::CPL_NEQ_0.bits() } else { LbrSelect::CPL_EQ_0.bits() };
        value & ring == 0 && moves_call_stack(class, zero_length)
    });
    Filter { pass, call_stack: true, hide: 0 }
}

/// Near calls push, except to the next instruction, and near returns pop.
fn moves_call_stack(class: HwBranchType, zero_length: bool) -> bool {
    match class {
        HwBranchType::RelCall | HwBranchType::IndCall => !zero_length,
        HwBranchType::Ret => true,
        HwBranchType::Cond | HwBranchType::IndJmp | HwBranchType::RelJmp | HwBranchType::Other => {
            false
        }
    }
}

/// IA32_LBR_CTL. A filter that leaf 1CH does not offer records everything.
fn capture(value: u64, cpl: bool, branch: bool) -> Filter {
    const CALLS: u64 = LbrCtl::BRANCHES_OF_CALL_STACK.bits();
    let call_stack = value & LbrCtl::CALL_STACK.bits() != 0;
    // As in MSR_LBR_SELECT, only calls and returns.
    if call_stack && branch && value & LbrCtl::BRANCHES.bits() != CALLS {
        return Filter::UNDEFINED;
    }
    let lands =
        |user: bool| !cpl || value & if user { LbrCtl::USR.bits() } else { LbrCtl::OS.bits() } != 0;
    let pass = bitmap(|class, zero_length, user| {
        let kind = match class {
            HwBranchType::Cond => LbrCtl::COND.bits(),
            HwBranchType::IndJmp => LbrCtl::NEAR_IND_JMP.bits(),
            HwBranchType::RelJmp => LbrCtl::NEAR_REL_JMP.bits(),
            HwBranchType::IndCall => LbrCtl::NEAR_IND_CALL.bits(),
            HwBranchType::RelCall => LbrCtl::NEAR_REL_CALL.bits(),
            HwBranchType::Ret => LbrCtl::NEAR_RET.bits(),
            HwBranchType::Other => LbrCtl::OTHER_BRANCH.bits(),
        };
        // SDM24 Table 20-2: NEAR_REL_CALL is "not to the next IP".
        let uncounted = zero_length && class == HwBranchType::RelCall;
        lands(user)
            && !uncounted
            && (!branch || value & kind != 0)
            && (!call_stack || moves_call_stack(class, zero_length))
    });
    let hide = u8::from(!lands(false)) | u8::from(!lands(true)) << 1;
    Filter { pass, call_stack, hide }
}
