//! Which branches to record, in perf's names, converted to and from register values.
//!
//! A filter lists the branches to capture. The registers differ in polarity: MSR_LBR_SELECT and
//! AMD's LBR_SELECT suppress, IA32_LBR_CTL captures. [`register`] holds the conversions.

pub mod register;

pub use register::{
    Captured, from_register, recorded_by, software_filter, to_register, to_register_disarmed,
    to_register_including,
};

pub(crate) use register::CLASSES;

use alloc::string::String;
use core::{fmt, str::FromStr};

use crate::{caps::FilterRegister, record::HwBranchType};

bitflags::bitflags! {
    /// Branches to capture, as `perf record -j` names them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct BranchFilter: u32 {
        /// `u`: branches that end in user mode.
        const USER = 1 << 0;
        /// `k`: branches that end in the kernel.
        const KERNEL = 1 << 1;
        /// `any`: every branch type.
        const ANY = 1 << 2;
        /// `any_call`: direct, indirect and far calls.
        const ANY_CALL = 1 << 3;
        /// `any_ret`: near and far returns.
        const ANY_RET = 1 << 4;
        /// `ind_call`: indirect calls.
        const IND_CALL = 1 << 5;
        /// `ind_jmp`: indirect jumps.
        const IND_JMP = 1 << 6;
        /// `call`: direct calls.
        const CALL = 1 << 7;
        /// `cond`: conditional branches.
        const COND = 1 << 8;
        /// `stack`: call-stack mode.
        const STACK = 1 << 9;
        /// `no_far`: skip far branches (system calls and returns, interrupts, exceptions). Not a
        /// perf name: perf has none for it.
        const NO_FAR = 1 << 10;
        /// `save_type`: keep the branch type of each entry.
        const SAVE_TYPE = 1 << 11;
    }
}

impl BranchFilter {
    /// `any,u,no_far`: user branches that stay in user mode.
    pub const DEFAULT: BranchFilter =
        BranchFilter::ANY.union(BranchFilter::USER).union(BranchFilter::NO_FAR);
}

/// The names, in the order in which they are printed.
const NAMES: [(&str, BranchFilter); 12] = [
    ("any", BranchFilter::ANY),
    ("any_call", BranchFilter::ANY_CALL),
    ("any_ret", BranchFilter::ANY_RET),
    ("ind_call", BranchFilter::IND_CALL),
    ("ind_jmp", BranchFilter::IND_JMP),
    ("call", BranchFilter::CALL),
    ("cond", BranchFilter::COND),
    ("stack", BranchFilter::STACK),
    ("u", BranchFilter::USER),
    ("k", BranchFilter::KERNEL),
    ("no_far", BranchFilter::NO_FAR),
    ("save_type", BranchFilter::SAVE_TYPE),
];

/// The accepted names, for error messages.
const KNOWN: &str = "any, any_call, any_ret, ind_call, ind_jmp, call, cond, stack, u (user), \
                     k (kernel), no_far, save_type";

impl BranchFilter {
    /// The branch type bits.
    const TYPES: BranchFilter = BranchFilter::all()
        .difference(BranchFilter::RINGS)
        .difference(BranchFilter::NO_FAR)
        .difference(BranchFilter::SAVE_TYPE);

    /// The privilege level bits.
    const RINGS: BranchFilter = BranchFilter::USER.union(BranchFilter::KERNEL);

    /// The filter with perf's defaults made explicit: without a type `any`, without a privilege
    /// level both.
    #[must_use]
    pub const fn normalized(self) -> BranchFilter {
        let mut all = self;
        if !self.intersects(BranchFilter::TYPES) {
            all = all.union(BranchFilter::ANY);
        }
        if !self.intersects(BranchFilter::RINGS) {
            all = all.union(BranchFilter::RINGS);
        }
        all
    }

    /// The classes to capture. Call-stack mode records calls and returns.
    #[must_use]
    pub fn classes(self) -> BranchClasses {
        const CLASSES: [(BranchFilter, BranchClasses); 8] = [
            (BranchFilter::ANY, BranchClasses::all()),
            (BranchFilter::ANY_CALL, BranchClasses::CALLS.union(BranchClasses::OTHER)),
            (BranchFilter::ANY_RET, BranchClasses::RET.union(BranchClasses::OTHER)),
            (BranchFilter::IND_CALL, BranchClasses::IND_CALL),
            (BranchFilter::IND_JMP, BranchClasses::IND_JMP),
            (BranchFilter::CALL, BranchClasses::REL_CALL),
            (BranchFilter::COND, BranchClasses::COND),
            (BranchFilter::STACK, BranchClasses::CALLS.union(BranchClasses::RET)),
        ];
        let all = self.normalized();
        let named = CLASSES.iter().filter(|(name, _)| all.contains(*name));
        let mut classes = named.fold(BranchClasses::empty(), |sum, (_, classes)| sum | *classes);
        if all.contains(BranchFilter::NO_FAR) {
            classes -= BranchClasses::OTHER;
        }
        classes
    }

    /// Whether to capture branches that end in user mode.
    pub const fn user(self) -> bool {
        self.normalized().contains(BranchFilter::USER)
    }

    /// Whether to capture branches that end in the kernel.
    pub const fn kernel(self) -> bool {
        self.normalized().contains(BranchFilter::KERNEL)
    }
}

impl fmt::Display for BranchFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (name, flag) in NAMES {
            if self.contains(flag) {
                f.write_str(if first { "" } else { "," })?;
                f.write_str(name)?;
                first = false;
            }
        }
        Ok(())
    }
}

impl FromStr for BranchFilter {
    type Err = FilterError;

    /// Parses names separated by commas: perf's, `user` and `kernel` for `u` and `k`, and `no_far`.
    fn from_str(text: &str) -> Result<BranchFilter, FilterError> {
        let mut filter = BranchFilter::empty();
        for word in text.split(',') {
            let word = word.trim();
            let name = match word {
                "user" => "u",
                "kernel" => "k",
                other => other,
            };
            match NAMES.iter().find(|(known, _)| *known == name) {
                Some((_, flag)) => filter |= *flag,
                None => return Err(FilterError::Unknown { name: word.into() }),
            }
        }
        Ok(filter)
    }
}

bitflags::bitflags! {
    /// A set of the branch classes that hardware filters distinguish.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct BranchClasses: u8 {
        /// Conditional branches.
        const COND = 1 << HwBranchType::Cond as u8;
        /// Near indirect jumps.
        const IND_JMP = 1 << HwBranchType::IndJmp as u8;
        /// Near relative jumps.
        const REL_JMP = 1 << HwBranchType::RelJmp as u8;
        /// Near indirect calls.
        const IND_CALL = 1 << HwBranchType::IndCall as u8;
        /// Near relative calls.
        const REL_CALL = 1 << HwBranchType::RelCall as u8;
        /// Near returns.
        const RET = 1 << HwBranchType::Ret as u8;
        /// Far transfers, interrupts, exceptions.
        const OTHER = 1 << HwBranchType::Other as u8;
    }
}

impl BranchClasses {
    /// Near calls of both kinds.
    pub const CALLS: BranchClasses = BranchClasses::IND_CALL.union(BranchClasses::REL_CALL);

    /// The set that holds one class.
    pub const fn of(class: HwBranchType) -> BranchClasses {
        BranchClasses::from_bits_retain(1 << class as u8)
    }

    /// Whether a branch of this class is in the set.
    pub const fn keeps(self, class: HwBranchType) -> bool {
        self.contains(BranchClasses::of(class))
    }
}

/// Why a register cannot implement a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// An unknown name.
    #[error("unknown branch filter `{name}`; known are {known}", known = KNOWN)]
    Unknown {
        /// As typed.
        name: String,
    },
    /// There is no filter register.
    #[error(
        "this CPU cannot filter by `{asked}`: its branch records have no filter register and \
         hold every branch of every ring; use `any,u,k`"
    )]
    NoFilterRegister {
        /// The requested filter.
        asked: BranchFilter,
    },
    /// IA32_LBR_CTL cannot filter by ring here.
    #[error(
        "IA32_LBR_CTL on this CPU cannot do `{asked}`: it does not filter by ring \
         (CPUID.1CH:EBX[0] = 0); use both, `u,k`"
    )]
    NoRingFilter {
        /// The requested filter.
        asked: BranchFilter,
    },
    /// IA32_LBR_CTL cannot filter by branch type here.
    #[error(
        "IA32_LBR_CTL on this CPU cannot do `{asked}`: it does not filter by branch \
         type (CPUID.1CH:EBX[1] = 0); use `any`"
    )]
    NoTypeFilter {
        /// The requested filter.
        asked: BranchFilter,
    },
    /// There is no call-stack mode.
    #[error("{register} on this CPU cannot do `stack`: it has no call-stack mode")]
    NoCallStack {
        /// Name of the register.
        register: &'static str,
    },
    /// Call-stack mode combined with a branch type.
    #[error(
        "`{asked}`: in call-stack mode {register} records calls and returns only, so \
         `stack` can be combined only with `u`, `k`, `no_far` and `save_type`"
    )]
    StackAlone {
        /// The requested filter.
        asked: BranchFilter,
        /// Name of the register.
        register: &'static str,
    },
    /// A register value that would raise #GP.
    #[error("{value:#x} has bits set that are reserved in {register} on this CPU: {reserved:#x}")]
    Reserved {
        /// The value.
        value: u64,
        /// The reserved bits.
        reserved: u64,
        /// Name of the register.
        register: &'static str,
    },
    /// A call-stack value that breaks that mode's rules.
    #[error(
        "{value:#x} in {register} leaves the records undefined: call-stack mode needs \
         conditional branches, jumps and far branches suppressed, calls and returns recorded, \
         and at least one ring recorded"
    )]
    UndefinedCallStack {
        /// The value.
        value: u64,
        /// Name of the register.
        register: &'static str,
    },
}

impl FilterRegister {
    /// The register's name in its vendor's manual; `none` if there is none.
    pub const fn name(self) -> &'static str {
        match self {
            FilterRegister::None => "none",
            FilterRegister::LbrSelect { .. } => "MSR_LBR_SELECT",
            FilterRegister::LbrCtl { .. } => "IA32_LBR_CTL",
            FilterRegister::AmdSelect => "AMD LBR_SELECT",
            FilterRegister::Brbfcr => "BRBFCR_EL1",
        }
    }
}
