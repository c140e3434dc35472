//! The retired branches that a filter register records, as a bitmap that is computed when the
//! register is written and looked up for each branch.

use crate::caps::FilterRegister;
use crate::filter::{BranchFilter, CLASSES, recorded_by};
use crate::record::HwBranchType;
use crate::register::{LbrCtl, LbrSelect};

use super::{Fault, Faults, Retired};

/// The faults that disable the filter of a class, in the order of [`CLASSES`].
const IGNORED: [Fault; 7] = [
    Fault::IgnoresCond,
    Fault::IgnoresRelCall,
    Fault::IgnoresIndCall,
    Fault::IgnoresRet,
    Fault::IgnoresIndJmp,
    Fault::IgnoresRelJmp,
    Fault::IgnoresFar,
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
    /// The effect of `value` in the filter register, with injected faults.
    pub(super) fn of(register: FilterRegister, value: u64, faults: Faults) -> Filter {
        let mut filter = Filter::documented(register, value);
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
            let classes = CLASSES.iter().zip(IGNORED);
            let classes = classes.map(|((_, suppress, capture, _), f)| (f, *suppress, *capture));
            let rings = [
                (Fault::IgnoresRing0, LbrSelect::CPL_EQ_0, LbrCtl::OS),
                (Fault::IgnoresUser, LbrSelect::CPL_NEQ_0, LbrCtl::USR),
            ];
            for (fault, suppress, capture) in classes.chain(rings) {
                if faults.has(fault) && captures {
                    value |= capture.bits();
                } else if faults.has(fault) {
                    value &= !suppress.bits();
                }
            }
            filter = Filter::documented(register, value);
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
    fn documented(register: FilterRegister, value: u64) -> Filter {
        let recorded = recorded_by(value, register);
        let captures = matches!(register, FilterRegister::LbrCtl { .. });
        let filters_types = !matches!(register, FilterRegister::LbrCtl { branch: false, .. });
        let (call_stack, stack) = (recorded.call_stack, BranchFilter::STACK.classes());
        // SDM 17.9 defines one combination of the branch bits: with another, nothing is recorded.
        if call_stack && filters_types && recorded.classes != stack {
            return Filter { pass: 0, call_stack, hide: 0 };
        }
        let classes = if call_stack { recorded.classes & stack } else { recorded.classes };
        let mut pass = 0;
        for (class, ..) in CLASSES {
            // SDM24 Table 20-2: NEAR_REL_CALL is "not to the next IP". Call-stack mode does not
            // push such a call.
            let uncounted = match class {
                HwBranchType::RelCall => captures || call_stack,
                HwBranchType::IndCall => call_stack,
                _ => false,
            };
            for (user, ring) in [(false, recorded.kernel), (true, recorded.user)] {
                let passes = ring && classes.keeps(class);
                pass |= u32::from(passes) << selector(class, false, user);
                pass |= u32::from(passes && !uncounted) << selector(class, true, user);
            }
        }
        let hide = if captures { [!recorded.kernel, !recorded.user] } else { [false; 2] };
        Filter { pass, call_stack, hide: u8::from(hide[0]) | u8::from(hide[1]) << 1 }
    }
}
