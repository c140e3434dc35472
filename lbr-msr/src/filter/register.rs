//! Filters to register values and back: polarity and bit order of each
//! facility, once.

use super::{BranchClasses, BranchFilter, FilterError};
use crate::caps::FilterRegister;

/// IA32_LBR_CTL: LBREn.
const LBR_CTL_ENABLE: u64 = 1 << 0;
/// IA32_LBR_CTL: OS.
const LBR_CTL_OS: u64 = 1 << 1;
/// IA32_LBR_CTL: USR.
const LBR_CTL_USR: u64 = 1 << 2;
/// IA32_LBR_CTL: CALL_STACK.
const LBR_CTL_CALL_STACK: u64 = 1 << 3;

/// MSR_LBR_SELECT and AMD LBR_SELECT: CPL_EQ_0, suppresses records that end in ring 0.
const SELECT_CPL_EQ_0: u64 = 1 << 0;
/// The same: CPL_NEQ_0, suppresses records that end in another ring.
const SELECT_CPL_NEQ_0: u64 = 1 << 1;
/// MSR_LBR_SELECT: EN_CALLSTACK, the one bit that enables.
const SELECT_EN_CALLSTACK: u64 = 1 << 9;

/// The classes, with their suppress bit in MSR_LBR_SELECT and AMD LBR_SELECT
/// (SDM Tables 17-11 to 17-13, Linux amd/lbr.c) and their capture bit in
/// IA32_LBR_CTL (SDM24 Table 20-3). The two registers order jumps differently.
const CLASSES: [(BranchClasses, u64, u64); 7] = [
    (BranchClasses::COND, 1 << 2, 1 << 16),
    (BranchClasses::REL_CALL, 1 << 3, 1 << 19),
    (BranchClasses::IND_CALL, 1 << 4, 1 << 20),
    (BranchClasses::RET, 1 << 5, 1 << 21),
    (BranchClasses::IND_JMP, 1 << 6, 1 << 18),
    (BranchClasses::REL_JMP, 1 << 7, 1 << 17),
    (BranchClasses::OTHER, 1 << 8, 1 << 22),
];

/// What a register value makes the hardware record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Captured {
    /// Branches that end in user mode.
    pub user: bool,
    /// Branches that end in the kernel.
    pub kernel: bool,
    /// The classes of branches. In call-stack mode, what moves the stack.
    pub classes: BranchClasses,
    /// Call-stack mode.
    pub call_stack: bool,
    /// IA32_LBR_CTL: LBREn. `None` where recording is enabled in another
    /// register.
    pub enabled: Option<bool>,
}

impl Captured {
    /// The filter that says exactly this, or `None` where perf's names cannot
    /// say it (relative jumps alone, far branches alone, no ring, nothing).
    #[must_use]
    pub fn filter(self) -> Option<BranchFilter> {
        let mut filter = BranchFilter::empty();
        filter.set(BranchFilter::USER, self.user);
        filter.set(BranchFilter::KERNEL, self.kernel);
        if filter.is_empty() || self.classes.is_empty() {
            return None;
        }
        if self.call_stack {
            return Some(filter | BranchFilter::STACK);
        }
        let far = self.classes.contains(BranchClasses::OTHER);
        let near = self.classes - BranchClasses::OTHER;
        if near == BranchClasses::all() - BranchClasses::OTHER {
            let far = if far { BranchFilter::empty() } else { BranchFilter::NO_FAR };
            return Some(filter | BranchFilter::ANY | far);
        }
        if near.contains(BranchClasses::REL_JMP) {
            return None;
        }
        filter.set(BranchFilter::COND, near.contains(BranchClasses::COND));
        filter.set(BranchFilter::IND_JMP, near.contains(BranchClasses::IND_JMP));
        // perf's names carry far branches only as a part of any_call and any_ret.
        if near.contains(BranchClasses::CALLS) && far {
            filter |= BranchFilter::ANY_CALL;
        } else {
            filter.set(BranchFilter::IND_CALL, near.contains(BranchClasses::IND_CALL));
            filter.set(BranchFilter::CALL, near.contains(BranchClasses::REL_CALL));
        }
        if near.contains(BranchClasses::RET) {
            filter |= BranchFilter::ANY_RET;
        }
        if far {
            filter.intersects(BranchFilter::ANY_CALL | BranchFilter::ANY_RET).then_some(filter)
        } else if filter.contains(BranchFilter::ANY_RET) {
            Some(filter | BranchFilter::NO_FAR)
        } else {
            Some(filter)
        }
    }
}

/// The value of the filter register that asks for `filter`.
///
/// For Architectural LBR, whose filter and enable share IA32_LBR_CTL, the
/// value includes LBREn (bit 0): written whole, it arms.
/// [`to_register_disarmed`] is the same without it. Every other facility
/// enables in another register. Where there is no filter register the only
/// filter that can be asked for, everything, is 0.
///
/// A filter that names no type asks for `any`; one that names no ring asks for
/// both, as perf does. `save_type` concerns no register.
///
/// Where calls cannot be had without jumps (Nehalem, Westmere, Silvermont) the
/// value lets the jumps in, and [`software_filter`] tells what to keep.
///
/// # Errors
/// [`FilterError`] where the facility cannot do what is asked.
pub fn to_register(filter: BranchFilter, register: FilterRegister) -> Result<u64, FilterError> {
    let value = to_register_disarmed(filter, register)?;
    Ok(match register {
        FilterRegister::LbrCtl { .. } => value | LBR_CTL_ENABLE,
        FilterRegister::None | FilterRegister::LbrSelect { .. } | FilterRegister::AmdSelect => {
            value
        }
    })
}

/// As [`to_register`], with LBREn of IA32_LBR_CTL clear: the filter without
/// the enable.
///
/// # Errors
/// As [`to_register`].
pub fn to_register_disarmed(
    filter: BranchFilter,
    register: FilterRegister,
) -> Result<u64, FilterError> {
    to_register_beside(filter, BranchClasses::empty(), register)
}

/// As [`to_register_disarmed`], with these classes recorded as well, which
/// perf's names may not be able to ask for (relative jumps).
///
/// # Errors
/// As [`to_register`].
pub fn to_register_beside(
    filter: BranchFilter,
    beside: BranchClasses,
    register: FilterRegister,
) -> Result<u64, FilterError> {
    let asked = filter;
    let filter = filter.normalized();
    let classes = filter.classes() | beside;
    if filter.contains(BranchFilter::STACK) && register != FilterRegister::None {
        let has_mode = match register {
            FilterRegister::LbrSelect { call_stack, .. } => call_stack,
            FilterRegister::LbrCtl { cpl, branch, call_stack } => cpl && branch && call_stack,
            FilterRegister::None | FilterRegister::AmdSelect => false,
        };
        if !has_mode {
            return Err(FilterError::NoCallStack { register: register.name() });
        }
        if filter.intersects(BranchFilter::TYPES - BranchFilter::STACK) {
            return Err(FilterError::StackAlone { asked, register: register.name() });
        }
    }
    match register {
        FilterRegister::None => {
            let everything = classes.is_all()
                && filter.contains(BranchFilter::RINGS)
                && !filter.contains(BranchFilter::STACK);
            if everything { Ok(0) } else { Err(FilterError::NoFilterRegister { asked }) }
        }
        FilterRegister::LbrSelect { jumps_swallow_calls, .. } => {
            if filter.contains(BranchFilter::STACK) {
                return Ok(suppress(filter, classes) | SELECT_EN_CALLSTACK);
            }
            Ok(suppress(filter, opened(classes, jumps_swallow_calls)))
        }
        FilterRegister::AmdSelect => Ok(suppress(filter, classes)),
        FilterRegister::LbrCtl { cpl, branch, .. } => {
            let mut value = 0;
            if cpl {
                value |= if filter.contains(BranchFilter::KERNEL) { LBR_CTL_OS } else { 0 };
                value |= if filter.contains(BranchFilter::USER) { LBR_CTL_USR } else { 0 };
            } else if !filter.contains(BranchFilter::RINGS) {
                return Err(FilterError::NoRingFilter { asked });
            }
            if branch {
                for (class, _, capture) in CLASSES {
                    value |= if classes.contains(class) { capture } else { 0 };
                }
            } else if !classes.is_all() {
                return Err(FilterError::NoTypeFilter { asked });
            }
            if filter.contains(BranchFilter::STACK) {
                value |= LBR_CTL_CALL_STACK;
            }
            Ok(value)
        }
    }
}

/// What a value of the filter register makes the hardware record.
///
/// [`FilterRegister::None`] records everything, whatever the value.
///
/// # Errors
/// [`FilterError::Reserved`] for bits that raise #GP here,
/// [`FilterError::UndefinedCallStack`] for a call-stack mode whose records are
/// undefined (SDM 17.9).
pub fn from_register(value: u64, register: FilterRegister) -> Result<Captured, FilterError> {
    let reserved = value & !writable(register);
    if reserved != 0 {
        return Err(FilterError::Reserved { value, reserved, register: register.name() });
    }
    let captured = match register {
        FilterRegister::None => Captured {
            user: true,
            kernel: true,
            classes: BranchClasses::all(),
            call_stack: false,
            enabled: None,
        },
        FilterRegister::LbrSelect { jumps_swallow_calls, .. } => {
            let mut captured = unsuppressed(value);
            if jumps_swallow_calls && !captured.call_stack {
                captured.classes = reached(captured.classes);
            }
            captured
        }
        FilterRegister::AmdSelect => unsuppressed(value),
        FilterRegister::LbrCtl { cpl, branch, .. } => {
            let mut classes = BranchClasses::all();
            if branch {
                for (class, _, capture) in CLASSES {
                    classes.set(class, value & capture != 0);
                }
            }
            Captured {
                user: !cpl || value & LBR_CTL_USR != 0,
                kernel: !cpl || value & LBR_CTL_OS != 0,
                classes,
                call_stack: value & LBR_CTL_CALL_STACK != 0,
                enabled: Some(value & LBR_CTL_ENABLE != 0),
            }
        }
    };
    let stack_classes = BranchFilter::STACK.classes();
    if captured.call_stack
        && (captured.classes != stack_classes || !(captured.user || captured.kernel))
    {
        return Err(FilterError::UndefinedCallStack { value, register: register.name() });
    }
    Ok(captured)
}

/// The classes to keep by looking at the code, where the register lets more
/// through than `filter` asks for; `None` where it does not.
#[must_use]
pub fn software_filter(filter: BranchFilter, register: FilterRegister) -> Option<BranchClasses> {
    let wanted = filter.classes();
    let FilterRegister::LbrSelect { jumps_swallow_calls: true, .. } = register else {
        return None;
    };
    let stack = filter.contains(BranchFilter::STACK);
    (!stack && opened(wanted, true) != wanted).then_some(wanted)
}

/// The bits of the register that may be set.
const fn writable(register: FilterRegister) -> u64 {
    match register {
        FilterRegister::None => u64::MAX,
        FilterRegister::AmdSelect | FilterRegister::LbrSelect { call_stack: false, .. } => 0x1FF,
        FilterRegister::LbrSelect { call_stack: true, .. } => 0x3FF,
        FilterRegister::LbrCtl { cpl, branch, call_stack } => {
            let mut mask = LBR_CTL_ENABLE;
            if cpl {
                mask |= LBR_CTL_OS | LBR_CTL_USR;
            }
            if branch {
                mask |= 0x7F_0000;
            }
            if call_stack {
                mask |= LBR_CTL_CALL_STACK;
            }
            mask
        }
    }
}

/// Intent to suppress bits: what is not wanted is suppressed.
fn suppress(filter: BranchFilter, classes: BranchClasses) -> u64 {
    let mut value = 0;
    value |= if filter.contains(BranchFilter::KERNEL) { 0 } else { SELECT_CPL_EQ_0 };
    value |= if filter.contains(BranchFilter::USER) { 0 } else { SELECT_CPL_NEQ_0 };
    for (class, suppressed, _) in CLASSES {
        value |= if classes.contains(class) { 0 } else { suppressed };
    }
    value
}

/// Suppress bits to intent.
fn unsuppressed(value: u64) -> Captured {
    let mut classes = BranchClasses::empty();
    for (class, suppressed, _) in CLASSES {
        classes.set(class, value & suppressed == 0);
    }
    Captured {
        user: value & SELECT_CPL_NEQ_0 == 0,
        kernel: value & SELECT_CPL_EQ_0 == 0,
        classes,
        call_stack: value & SELECT_EN_CALLSTACK != 0,
        enabled: None,
    }
}

/// The jumps without which Nehalem, Westmere and Silvermont do not record a
/// class: NEAR_IND_JMP also swallows indirect calls and returns, NEAR_REL_JMP
/// relative calls, and for returns Linux keeps both open.
const SWALLOWED_BY: [(BranchClasses, BranchClasses); 3] = [
    (BranchClasses::IND_CALL, BranchClasses::IND_JMP),
    (BranchClasses::REL_CALL, BranchClasses::REL_JMP),
    (BranchClasses::RET, BranchClasses::IND_JMP.union(BranchClasses::REL_JMP)),
];

/// The classes that the hardware must leave open so that `wanted` is recorded.
fn opened(wanted: BranchClasses, jumps_swallow_calls: bool) -> BranchClasses {
    let mut open = wanted;
    if jumps_swallow_calls {
        for (class, jumps) in SWALLOWED_BY {
            if wanted.contains(class) {
                open |= jumps;
            }
        }
    }
    open
}

/// The classes that are recorded where jumps swallow calls and `open` is left
/// open.
fn reached(open: BranchClasses) -> BranchClasses {
    let mut classes = open;
    for (class, jumps) in SWALLOWED_BY {
        if !open.contains(jumps) {
            classes -= class;
        }
    }
    classes
}
