//! Which retired branches a filter register lets through, as a bitmap that is
//! computed when the register is written and looked up at each branch.

use crate::caps::FilterRegister;
use crate::record::HwBranchType;

use super::{Fault, Faults, Retired};

/// MSR_LBR_SELECT and AMD's LBR_SELECT: suppress bits. SDM 17.7.2, Linux
/// amd/lbr.c.
pub(super) mod select {
    pub(in crate::soft) const CPL_EQ_0: u64 = 1 << 0;
    pub(in crate::soft) const CPL_NEQ_0: u64 = 1 << 1;
    pub(in crate::soft) const JCC: u64 = 1 << 2;
    pub(in crate::soft) const NEAR_REL_CALL: u64 = 1 << 3;
    pub(in crate::soft) const NEAR_IND_CALL: u64 = 1 << 4;
    pub(in crate::soft) const NEAR_RET: u64 = 1 << 5;
    pub(in crate::soft) const NEAR_IND_JMP: u64 = 1 << 6;
    pub(in crate::soft) const NEAR_REL_JMP: u64 = 1 << 7;
    pub(in crate::soft) const FAR_BRANCH: u64 = 1 << 8;
    /// All of them.
    pub(in crate::soft) const SUPPRESS: u64 = 0x1FF;
    /// The one that enables. SDM 17.9.
    pub(in crate::soft) const EN_CALLSTACK: u64 = 1 << 9;
}

/// IA32_LBR_CTL: capture bits. Linux msr-index.h.
pub(super) mod ctl {
    pub(in crate::soft) const LBR_EN: u64 = 1 << 0;
    pub(in crate::soft) const OS: u64 = 1 << 1;
    pub(in crate::soft) const USR: u64 = 1 << 2;
    pub(in crate::soft) const CALL_STACK: u64 = 1 << 3;
    pub(in crate::soft) const COND: u64 = 1 << 16;
    pub(in crate::soft) const NEAR_REL_JMP: u64 = 1 << 17;
    pub(in crate::soft) const NEAR_IND_JMP: u64 = 1 << 18;
    pub(in crate::soft) const NEAR_REL_CALL: u64 = 1 << 19;
    pub(in crate::soft) const NEAR_IND_CALL: u64 = 1 << 20;
    pub(in crate::soft) const NEAR_RET: u64 = 1 << 21;
    pub(in crate::soft) const OTHER_BRANCH: u64 = 1 << 22;
    pub(in crate::soft) const BRANCHES: u64 = 0x7F << 16;
    pub(in crate::soft) const ALL: u64 = BRANCHES | OS | USR;
}

/// The faults that make a filter ineffective: its suppress and capture bit.
const IGNORED: [(Fault, u64, u64); 9] = [
    (Fault::IgnoresRing0, select::CPL_EQ_0, ctl::OS),
    (Fault::IgnoresUser, select::CPL_NEQ_0, ctl::USR),
    (Fault::IgnoresCond, select::JCC, ctl::COND),
    (Fault::IgnoresRelCall, select::NEAR_REL_CALL, ctl::NEAR_REL_CALL),
    (Fault::IgnoresIndCall, select::NEAR_IND_CALL, ctl::NEAR_IND_CALL),
    (Fault::IgnoresRet, select::NEAR_RET, ctl::NEAR_RET),
    (Fault::IgnoresIndJmp, select::NEAR_IND_JMP, ctl::NEAR_IND_JMP),
    (Fault::IgnoresRelJmp, select::NEAR_REL_JMP, ctl::NEAR_REL_JMP),
    (Fault::IgnoresFar, select::FAR_BRANCH, ctl::OTHER_BRANCH),
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

/// The bit of a pass bitmap that decides on a branch: its class in bits 2:0,
/// whether it is a zero-length call in bit 3, whether it lands outside ring 0
/// in bit 4.
#[inline]
pub(super) const fn selector(class: HwBranchType, zero_length: bool, user: bool) -> u32 {
    class as u32 | (zero_length as u32) << 3 | (user as u32) << 4
}

/// [`selector`] of a branch. Filters test the ring it lands in.
#[inline]
pub(super) const fn selector_of(branch: &Retired) -> u32 {
    selector(branch.class, branch.zero_length_call, branch.cpl_after != 0)
}

/// What a filter register's value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    /// Bit [`selector`] is set where such a branch is recorded.
    pub(super) pass: u32,
    /// Calls push, near returns pop.
    pub(super) call_stack: bool,
    /// The manual leaves the contents of the records undefined.
    pub(super) undefined: bool,
    /// Bit 0: the FROM of a branch that starts in ring 0 is hidden. Bit 1: of
    /// one that starts outside.
    pub(super) hide: u8,
}

impl Filter {
    /// Everything is recorded.
    const EVERYTHING: Filter = Filter { pass: !0, call_stack: false, undefined: false, hide: 0 };
    /// The manual does not say what is recorded: nothing, here.
    const UNDEFINED: Filter = Filter { pass: 0, call_stack: true, undefined: true, hide: 0 };

    /// What `value` in the filter register means on a CPU that departs from
    /// what is documented.
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
            let bits = if captures { ctl::ALL } else { select::SUPPRESS };
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
        // The bit that a zero-length call has in a selector.
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
            // Where a call of another length passes, this one does too.
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

    /// What `value` in the filter register means.
    pub(super) fn of(register: FilterRegister, value: u64) -> Filter {
        match register {
            FilterRegister::None => Filter::EVERYTHING,
            FilterRegister::AmdSelect => suppress(value, false),
            FilterRegister::LbrSelect { jumps_swallow_calls, call_stack } => {
                if call_stack && value & select::EN_CALLSTACK != 0 {
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
        let ring = if user { select::CPL_NEQ_0 } else { select::CPL_EQ_0 };
        let kind = match class {
            HwBranchType::Cond => select::JCC,
            HwBranchType::IndJmp => select::NEAR_IND_JMP,
            HwBranchType::RelJmp => select::NEAR_REL_JMP,
            HwBranchType::IndCall => select::NEAR_IND_CALL,
            HwBranchType::RelCall => select::NEAR_REL_CALL,
            HwBranchType::Ret => select::NEAR_RET,
            HwBranchType::Other => select::FAR_BRANCH,
        };
        // SDM Table 17-11 against 17-12: before Sandy Bridge the jump bits do
        // not except calls and returns.
        let swallowed_by = match class {
            HwBranchType::IndCall | HwBranchType::Ret if jumps_swallow_calls => {
                select::NEAR_IND_JMP
            }
            HwBranchType::RelCall if jumps_swallow_calls => select::NEAR_REL_JMP,
            _ => 0,
        };
        value & (ring | kind | swallowed_by) == 0
    });
    Filter { pass, call_stack: false, undefined: false, hide: 0 }
}

/// MSR_LBR_SELECT with EN_CALLSTACK. SDM 17.9 names the one combination of
/// the branch bits that is defined, and allows at most one ring bit.
fn call_stack_select(value: u64) -> Filter {
    const ONE: u64 = select::JCC | select::NEAR_IND_JMP | select::NEAR_REL_JMP | select::FAR_BRANCH;
    const ZERO: u64 = select::NEAR_REL_CALL | select::NEAR_IND_CALL | select::NEAR_RET;
    const RINGS: u64 = select::CPL_EQ_0 | select::CPL_NEQ_0;
    if value & (ONE | ZERO) != ONE || value & RINGS == RINGS {
        return Filter::UNDEFINED;
    }
    let pass = bitmap(|class, zero_length, user| {
        let ring = if user { select::CPL_NEQ_0 } else { select::CPL_EQ_0 };
        value & ring == 0 && moves_call_stack(class, zero_length)
    });
    Filter { pass, call_stack: true, undefined: false, hide: 0 }
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

/// IA32_LBR_CTL. A filter that leaf 1CH does not offer lets everything through.
fn capture(value: u64, cpl: bool, branch: bool) -> Filter {
    const CALLS: u64 = ctl::NEAR_REL_CALL | ctl::NEAR_IND_CALL | ctl::NEAR_RET;
    let call_stack = value & ctl::CALL_STACK != 0;
    // As in MSR_LBR_SELECT, calls and returns and nothing else.
    if call_stack && branch && value & ctl::BRANCHES != CALLS {
        return Filter::UNDEFINED;
    }
    let lands = |user: bool| !cpl || value & if user { ctl::USR } else { ctl::OS } != 0;
    let pass = bitmap(|class, zero_length, user| {
        let kind = match class {
            HwBranchType::Cond => ctl::COND,
            HwBranchType::IndJmp => ctl::NEAR_IND_JMP,
            HwBranchType::RelJmp => ctl::NEAR_REL_JMP,
            HwBranchType::IndCall => ctl::NEAR_IND_CALL,
            HwBranchType::RelCall => ctl::NEAR_REL_CALL,
            HwBranchType::Ret => ctl::NEAR_RET,
            HwBranchType::Other => ctl::OTHER_BRANCH,
        };
        // SDM24 Table 20-2: NEAR_REL_CALL is "not to the next IP".
        let uncounted = zero_length && class == HwBranchType::RelCall;
        lands(user)
            && !uncounted
            && (!branch || value & kind != 0)
            && (!call_stack || moves_call_stack(class, zero_length))
    });
    let hide = u8::from(!lands(false)) | u8::from(!lands(true)) << 1;
    Filter { pass, call_stack, undefined: false, hide }
}
