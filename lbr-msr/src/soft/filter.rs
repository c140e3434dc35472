//! The retired branches that a filter register records, as a bitmap that is computed when the
//! register is written and looked up for each branch.

use crate::caps::FilterRegister;
use crate::filter::CLASSES as BITS;
use crate::record::HwBranchType;
use crate::register::brbe::BrbFcr;
use crate::register::{LbrCtl, LbrSelect};

use super::{Fault, Faults, Retired};

/// The bits that filter a class of branches, or the branches that land in a ring.
struct Named {
    suppress: u64,
    capture: u64,
    /// The fault that disables this filter.
    ignored: Fault,
}

const fn named(suppress: LbrSelect, capture: LbrCtl, ignored: Fault) -> Named {
    Named { suppress: suppress.bits(), capture: capture.bits(), ignored }
}

/// The classes, and ring 0 and the others.
const FILTERS: ([(HwBranchType, Named); 7], [Named; 2]) = {
    use {Fault as F, LbrCtl as C, LbrSelect as S};
    let classes = [
        (HwBranchType::Cond, named(S::JCC, C::COND, F::IgnoresCond)),
        (HwBranchType::IndJmp, named(S::NEAR_IND_JMP, C::NEAR_IND_JMP, F::IgnoresIndJmp)),
        (HwBranchType::RelJmp, named(S::NEAR_REL_JMP, C::NEAR_REL_JMP, F::IgnoresRelJmp)),
        (HwBranchType::IndCall, named(S::NEAR_IND_CALL, C::NEAR_IND_CALL, F::IgnoresIndCall)),
        (HwBranchType::RelCall, named(S::NEAR_REL_CALL, C::NEAR_REL_CALL, F::IgnoresRelCall)),
        (HwBranchType::Ret, named(S::NEAR_RET, C::NEAR_RET, F::IgnoresRet)),
        (HwBranchType::Other, named(S::FAR_BRANCH, C::OTHER_BRANCH, F::IgnoresFar)),
    ];
    let ring_0 = named(S::CPL_EQ_0, C::OS, F::IgnoresRing0);
    (classes, [ring_0, named(S::CPL_NEQ_0, C::USR, F::IgnoresUser)])
};
const CLASSES: [(HwBranchType, Named); 7] = FILTERS.0;
const RINGS: [Named; 2] = FILTERS.1;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
            for named in CLASSES.iter().map(|(_, named)| named).chain(&RINGS) {
                if faults.has(named.ignored) && captures {
                    value |= named.capture;
                } else if faults.has(named.ignored) {
                    value &= !named.suppress;
                }
            }
            filter = Filter::of(register, value);
        }
        let (pushes, records) = (Fault::PushesZeroLengthCalls, Fault::RecordsZeroLengthCalls);
        let calls: &[HwBranchType] = if filter.call_stack && faults.has(pushes) {
            &[HwBranchType::RelCall, HwBranchType::IndCall]
        } else if !filter.call_stack && captures && faults.has(records) {
            &[HwBranchType::RelCall]
        } else {
            &[]
        };
        // Zero-length calls pass if calls of another length pass.
        for &call in calls {
            for user in [false, true] {
                let passes = filter.pass >> selector(call, false, user) & 1;
                filter.pass |= passes << selector(call, true, user);
            }
        }
        if faults.has(Fault::FromNotHidden) {
            filter.hide = 0;
        }
        filter
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
            FilterRegister::Brbfcr => brbe(value),
        }
    }
}

/// BRBFCR_EL1. Only EL0 is recorded, and no exceptions.
fn brbe(value: u64) -> Filter {
    let value = BrbFcr::from_bits_retain(value);
    let excludes = value.contains(BrbFcr::EN_I);
    let pass = bitmap(|class, _, [_, ring]| {
        let bit = BITS.iter().find(|(known, ..)| *known == class).map(|(.., bit)| *bit);
        let user = ring.capture == LbrCtl::USR.bits();
        user && bit.is_some_and(|bit| !bit.is_empty() && value.contains(bit) != excludes)
    });
    Filter { pass, call_stack: false, hide: 0 }
}

/// A bitmap of the branches for which `pass(class, zero_length, [named class, named ring])` holds.
fn bitmap(pass: impl Fn(HwBranchType, bool, [&Named; 2]) -> bool) -> u32 {
    let mut map = 0;
    for (class, kind) in &CLASSES {
        for (user, ring) in [false, true].into_iter().zip(&RINGS) {
            for zero_length in [false, true] {
                let passes = pass(*class, zero_length, [kind, ring]);
                map |= u32::from(passes) << selector(*class, zero_length, user);
            }
        }
    }
    map
}

/// MSR_LBR_SELECT outside call-stack mode, and AMD's LBR_SELECT.
fn suppress(value: u64, jumps_swallow_calls: bool) -> Filter {
    let pass = bitmap(|class, _, [kind, ring]| {
        // SDM Tables 17-11 and 17-12: before Sandy Bridge the jump bits do not exempt calls and
        // returns.
        let swallowed_by = match class {
            HwBranchType::IndCall | HwBranchType::Ret if jumps_swallow_calls => {
                LbrSelect::NEAR_IND_JMP.bits()
            }
            HwBranchType::RelCall if jumps_swallow_calls => LbrSelect::NEAR_REL_JMP.bits(),
            _ => 0,
        };
        value & (ring.suppress | kind.suppress | swallowed_by) == 0
    });
    Filter { pass, call_stack: false, hide: 0 }
}

/// MSR_LBR_SELECT with EN_CALLSTACK. SDM 17.9 defines one combination of the branch bits.
fn call_stack_select(value: u64) -> Filter {
    const ONE: u64 = LbrSelect::BRANCHES_OF_CALL_STACK.bits();
    const ZERO: u64 = LbrSelect::BRANCHES.bits() & !ONE;
    if value & (ONE | ZERO) != ONE {
        return Filter::UNDEFINED;
    }
    let pass = bitmap(|class, zero_length, [_, ring]| {
        value & ring.suppress == 0 && moves_call_stack(class, zero_length)
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
    let lands = |ring: &Named| !cpl || value & ring.capture != 0;
    let pass = bitmap(|class, zero_length, [kind, ring]| {
        // SDM24 Table 20-2: NEAR_REL_CALL is "not to the next IP".
        let uncounted = zero_length && class == HwBranchType::RelCall;
        lands(ring)
            && !uncounted
            && (!branch || value & kind.capture != 0)
            && (!call_stack || moves_call_stack(class, zero_length))
    });
    let [of_ring_0, of_others] = RINGS.map(|ring| u8::from(!lands(&ring)));
    Filter { pass, call_stack, hide: of_ring_0 | of_others << 1 }
}
