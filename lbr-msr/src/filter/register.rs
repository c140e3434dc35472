//! Converts filters to register values and back: each facility's polarity and bit order.

use super::{BranchClasses, BranchFilter, FilterError};
use crate::{
    caps::FilterRegister,
    record::HwBranchType,
    register::{LbrCtl, LbrSelect, brbe::BrbFcr},
};

/// Each class with its suppress bit in MSR_LBR_SELECT and AMD LBR_SELECT, its capture bit in
/// IA32_LBR_CTL, and that in BRBFCR_EL1, which has none for exceptions: they are BRBCR_EL1's
/// (source: BRBE). The registers order jumps differently.
pub(crate) const CLASSES: [(HwBranchType, LbrSelect, LbrCtl, BrbFcr); 7] = {
    use {BrbFcr as B, HwBranchType as H, LbrCtl as C, LbrSelect as S};
    [
        (H::Cond, S::JCC, C::COND, B::CONDDIR),
        (H::RelCall, S::NEAR_REL_CALL, C::NEAR_REL_CALL, B::DIRCALL),
        (H::IndCall, S::NEAR_IND_CALL, C::NEAR_IND_CALL, B::INDCALL),
        (H::Ret, S::NEAR_RET, C::NEAR_RET, B::RTN),
        (H::IndJmp, S::NEAR_IND_JMP, C::NEAR_IND_JMP, B::INDIRECT),
        (H::RelJmp, S::NEAR_REL_JMP, C::NEAR_REL_JMP, B::DIRECT),
        (H::Other, S::FAR_BRANCH, C::OTHER_BRANCH, B::empty()),
    ]
};

/// The classes for whose bits `records` holds.
fn classes(records: impl Fn(LbrSelect, LbrCtl, BrbFcr) -> bool) -> BranchClasses {
    let recorded = CLASSES.iter().filter(|(_, s, c, b)| records(*s, *c, *b));
    recorded.fold(BranchClasses::empty(), |all, (class, ..)| all | BranchClasses::of(*class))
}

/// The branches that a register value records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Captured {
    /// Branches that end in user mode.
    pub user: bool,
    /// Branches that end in the kernel.
    pub kernel: bool,
    /// The branch classes. In call-stack mode, those that push or pop.
    pub classes: BranchClasses,
    /// Call-stack mode.
    pub call_stack: bool,
}

impl Captured {
    /// The equivalent filter, or `None` if perf's names cannot express it (relative jumps alone,
    /// far branches alone, no ring, nothing).
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
        // perf's names include far branches only in any_call and any_ret.
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

/// The filter register's value for `filter`.
///
/// For Architectural LBR, whose filter and enable share IA32_LBR_CTL, the value includes LBREn (bit
/// 0): writing it arms. [`to_register_disarmed`] omits LBREn. Other facilities enable in another
/// register. Without a filter register, only the filter for everything succeeds, with value 0.
///
/// Without a type the filter means `any`; without a ring it means both, as in perf. `save_type`
/// affects no register.
///
/// If calls need the jump bits open (Nehalem, Westmere, Silvermont), the value also records jumps;
/// [`software_filter`] tells which branches to keep.
///
/// # Errors
/// [`FilterError`] if the facility cannot do it.
pub fn to_register(filter: BranchFilter, register: FilterRegister) -> Result<u64, FilterError> {
    let shared = matches!(register, FilterRegister::LbrCtl { .. });
    let enable = if shared { LbrCtl::LBR_EN.bits() } else { 0 };
    Ok(to_register_disarmed(filter, register)? | enable)
}

/// As [`to_register`], with LBREn of IA32_LBR_CTL clear.
///
/// # Errors
/// As [`to_register`].
pub fn to_register_disarmed(
    filter: BranchFilter,
    register: FilterRegister,
) -> Result<u64, FilterError> {
    to_register_including(filter, BranchClasses::empty(), register)
}

/// As [`to_register_disarmed`], and also records the classes in `included`, which perf's names may not
/// express (relative jumps).
///
/// # Errors
/// As [`to_register`].
pub fn to_register_including(
    filter: BranchFilter,
    included: BranchClasses,
    register: FilterRegister,
) -> Result<u64, FilterError> {
    let asked = filter;
    let filter = filter.normalized();
    let classes = filter.classes() | included;
    if filter.contains(BranchFilter::STACK) && register != FilterRegister::None {
        if !register.call_stack() {
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
                return Ok((suppress(filter, classes) | LbrSelect::EN_CALLSTACK).bits());
            }
            Ok(suppress(filter, opened(classes, jumps_swallow_calls)).bits())
        }
        FilterRegister::AmdSelect => Ok(suppress(filter, classes).bits()),
        FilterRegister::Brbfcr if filter.contains(BranchFilter::KERNEL) => {
            Err(FilterError::NoRingFilter { asked })
        }
        FilterRegister::Brbfcr => {
            let captured = CLASSES.iter().filter(|(class, ..)| classes.keeps(*class));
            Ok(captured.fold(BrbFcr::empty(), |value, (.., bit)| value | *bit).bits())
        }
        FilterRegister::LbrCtl { cpl, branch, .. } => {
            let mut value = LbrCtl::empty();
            if cpl {
                value.set(LbrCtl::OS, filter.contains(BranchFilter::KERNEL));
                value.set(LbrCtl::USR, filter.contains(BranchFilter::USER));
            } else if !filter.contains(BranchFilter::RINGS) {
                return Err(FilterError::NoRingFilter { asked });
            }
            if branch {
                for (class, _, capture, _) in CLASSES {
                    value.set(capture, classes.keeps(class));
                }
            } else if !classes.is_all() {
                return Err(FilterError::NoTypeFilter { asked });
            }
            value.set(LbrCtl::CALL_STACK, filter.contains(BranchFilter::STACK));
            Ok(value.bits())
        }
    }
}

/// The branches that a filter register's value records for certain: before Sandy Bridge, returns
/// only if both jump bits are clear, as Linux has it.
///
/// # Errors
/// [`FilterError::Reserved`] for bits that raise #GP here, [`FilterError::UndefinedCallStack`] for
/// a call-stack mode with undefined records (SDM 17.9).
pub fn from_register(value: u64, register: FilterRegister) -> Result<Captured, FilterError> {
    let reserved = value & !register.writable();
    if reserved != 0 && register != FilterRegister::None {
        return Err(FilterError::Reserved { value, reserved, register: register.name() });
    }
    let mut captured = recorded_by(value, register);
    if !captured.call_stack
        && matches!(register, FilterRegister::LbrSelect { jumps_swallow_calls: true, .. })
    {
        captured.classes = reached(captured.classes, SWALLOWED_IN_LINUX);
    }
    let stack_classes = BranchFilter::STACK.classes();
    if captured.call_stack
        && (captured.classes != stack_classes || !(captured.user || captured.kernel))
    {
        return Err(FilterError::UndefinedCallStack { value, register: register.name() });
    }
    Ok(captured)
}

/// The branches that a filter register's value records by the manuals. Ignores reserved bits, and
/// does not ask whether call-stack mode is defined.
///
/// [`FilterRegister::None`] records everything, for any value.
pub fn recorded_by(value: u64, register: FilterRegister) -> Captured {
    match register {
        FilterRegister::None => unsuppressed(LbrSelect::empty()),
        FilterRegister::LbrSelect { jumps_swallow_calls, .. } => {
            let mut captured = unsuppressed(LbrSelect::from_bits_retain(value));
            // Call-stack mode always has the jump bits set.
            if jumps_swallow_calls && !captured.call_stack {
                captured.classes = reached(captured.classes, SWALLOWED_BY);
            }
            captured
        }
        FilterRegister::AmdSelect => unsuppressed(LbrSelect::from_bits_retain(value)),
        FilterRegister::Brbfcr => {
            let value = BrbFcr::from_bits_retain(value);
            let excludes = value.contains(BrbFcr::EN_I);
            let classes = classes(|_, _, bit| !bit.is_empty() && value.contains(bit) != excludes);
            Captured { user: true, kernel: false, classes, call_stack: false }
        }
        FilterRegister::LbrCtl { cpl, branch, .. } => {
            let value = LbrCtl::from_bits_retain(value);
            Captured {
                user: !cpl || value.contains(LbrCtl::USR),
                kernel: !cpl || value.contains(LbrCtl::OS),
                classes: classes(|_, capture, _| !branch || value.contains(capture)),
                call_stack: value.contains(LbrCtl::CALL_STACK),
            }
        }
    }
}

/// The classes to keep by inspecting the code, if the register records more than `filter` asks for;
/// else `None`.
pub fn software_filter(filter: BranchFilter, register: FilterRegister) -> Option<BranchClasses> {
    let wanted = filter.classes();
    let FilterRegister::LbrSelect { jumps_swallow_calls: true, .. } = register else {
        return None;
    };
    let stack = filter.contains(BranchFilter::STACK);
    (!stack && opened(wanted, true) != wanted).then_some(wanted)
}

impl FilterRegister {
    /// Whether call-stack mode exists.
    pub const fn call_stack(self) -> bool {
        match self {
            FilterRegister::LbrSelect { call_stack, .. } => call_stack,
            // Linux asks for all three before it offers call stacks.
            FilterRegister::LbrCtl { cpl, branch, call_stack } => cpl && branch && call_stack,
            FilterRegister::None | FilterRegister::AmdSelect | FilterRegister::Brbfcr => false,
        }
    }

    /// The bits of the register that may be set; 0 if there is none.
    pub const fn writable(self) -> u64 {
        match self {
            FilterRegister::None => 0,
            FilterRegister::Brbfcr => BrbFcr::TYPES.bits(),
            FilterRegister::AmdSelect | FilterRegister::LbrSelect { call_stack: false, .. } => {
                LbrSelect::SUPPRESS.bits()
            }
            FilterRegister::LbrSelect { call_stack: true, .. } => {
                LbrSelect::SUPPRESS.union(LbrSelect::EN_CALLSTACK).bits()
            }
            FilterRegister::LbrCtl { cpl, branch, call_stack } => {
                LbrCtl::offered(cpl, branch, call_stack).bits()
            }
        }
    }
}

/// Converts a filter to suppress bits.
fn suppress(filter: BranchFilter, classes: BranchClasses) -> LbrSelect {
    let mut value = LbrSelect::empty();
    value.set(LbrSelect::CPL_EQ_0, !filter.contains(BranchFilter::KERNEL));
    value.set(LbrSelect::CPL_NEQ_0, !filter.contains(BranchFilter::USER));
    for (class, suppressed, ..) in CLASSES {
        value.set(suppressed, !classes.keeps(class));
    }
    value
}

/// Converts suppress bits to the captured branches.
fn unsuppressed(value: LbrSelect) -> Captured {
    Captured {
        user: !value.contains(LbrSelect::CPL_NEQ_0),
        kernel: !value.contains(LbrSelect::CPL_EQ_0),
        classes: classes(|suppressed, _, _| !value.contains(suppressed)),
        call_stack: value.contains(LbrSelect::EN_CALLSTACK),
    }
}

/// The jump class whose suppression also suppresses another class on Nehalem, Westmere and
/// Silvermont. SDM Tables 17-11 and 17-12: the jump bits do not exempt calls and returns.
const SWALLOWED_BY: [(BranchClasses, BranchClasses); 3] = [
    (BranchClasses::IND_CALL, BranchClasses::IND_JMP),
    (BranchClasses::REL_CALL, BranchClasses::REL_JMP),
    (BranchClasses::RET, BranchClasses::IND_JMP),
];

/// The same, except that Linux keeps both jump classes open for returns.
const SWALLOWED_IN_LINUX: [(BranchClasses, BranchClasses); 3] = [
    SWALLOWED_BY[0],
    SWALLOWED_BY[1],
    (BranchClasses::RET, BranchClasses::IND_JMP.union(BranchClasses::REL_JMP)),
];

/// The classes that are recorded with `open` unsuppressed, without the swallowed ones.
fn reached(open: BranchClasses, swallowed: [(BranchClasses, BranchClasses); 3]) -> BranchClasses {
    let lost = swallowed.into_iter().filter(|(_, jumps)| !open.contains(*jumps));
    lost.fold(open, |classes, (class, _)| classes - class)
}

/// The classes that the hardware must record so that `wanted` is recorded.
fn opened(wanted: BranchClasses, jumps_swallow_calls: bool) -> BranchClasses {
    let mut open = wanted;
    if jumps_swallow_calls {
        for (class, jumps) in SWALLOWED_IN_LINUX {
            if wanted.contains(class) {
                open |= jumps;
            }
        }
    }
    open
}
