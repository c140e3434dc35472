//! Injected faults: invented ones and real errata, which make a software LBR deviate from its
//! documentation.
//!
//! Each [`Fault`] has a stable name. It changes only register behaviour, so that a reader can
//! detect it only through the registers.
//!
//! Some deviations need no switch because the CPUs concerned always have them: Nehalem's jump
//! filters that also suppress calls, Knights Landing's format code, a CPU that cannot freeze on
//! PMI, DEBUGCTL.TR together with LBR (all of them [`Quirks`](crate::caps::Quirks)); and an
//! interrupt after the last user address that logs bits 63:48 as ones (BU8, W119), which follows
//! from a layout with 48 address bits. Errata of BTS alone (W125, AR62) change no register here.

use alloc::string::String;
use core::{fmt, str::FromStr};

/// One deviation from the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Fault {
    /// IA32_PERF_CAPABILITIES\[5:0\] reports a format other than the records'.
    FormatCode,
    /// The INFO registers do not exist.
    NoInfo,
    /// The filter for ring 0 has no effect.
    IgnoresRing0,
    /// The filter for the other rings has no effect.
    IgnoresUser,
    /// The filter for conditional branches has no effect.
    IgnoresCond,
    /// The filter for near relative calls has no effect.
    IgnoresRelCall,
    /// The filter for near indirect calls has no effect.
    IgnoresIndCall,
    /// The filter for near returns has no effect.
    IgnoresRet,
    /// The filter for near indirect jumps has no effect.
    IgnoresIndJmp,
    /// The filter for near relative jumps has no effect.
    IgnoresRelJmp,
    /// The filter for far branches has no effect.
    IgnoresFar,
    /// Suppress bits capture, and capture bits suppress.
    FilterPolarity,
    /// The jump filters also suppress calls and returns, as before Sandy Bridge.
    JumpsSwallowCalls,
    /// TOS reads as the index after the newest record.
    TosOffByOne,
    /// Records are written in the opposite order.
    OrderReversed,
    /// Addresses are recorded without copies of their sign bit.
    NoSignExtension,
    /// The LBR wraps at half of the announced depth.
    HalfDepth,
    /// IA32_LBR_DEPTH can be written without clearing the records.
    DepthKeepsRecords,
    /// Every cycle count is the same.
    CyclesConstant,
    /// The cycle counter wraps instead of saturating.
    CyclesWrap,
    /// The mispredict flag is never set.
    MispredictNever,
    /// The mispredict flag is inverted.
    MispredictInverted,
    /// Call-stack mode pushes calls to the next instruction.
    PushesZeroLengthCalls,
    /// Architectural LBR counts calls to the next instruction as near calls.
    RecordsZeroLengthCalls,
    /// When recording stops, the newest record is duplicated.
    DuplicateNewest,
    /// A transaction abort is recorded twice, the second time without its flag.
    DoubleAbort,
    /// The transaction flags are never set.
    TsxNever,
    /// Branch types are numbered in the order of LBR_SELECT's bits.
    TypesSwapped,
    /// FROM of a branch from a ring that is not recorded is visible.
    FromNotHidden,
    /// FROM of a conditional branch is the previous instruction (macro fusion).
    FusedFrom,
    /// A deep C-state clears the records although that is not announced.
    CStateWipe,
    /// A PMI does not freeze.
    NoFreezeOnPmi,
    /// A freeze on PMI comes one branch too early.
    FreezeEarly,
    /// The newest record is wrong after an SMI.
    SmmCorrupts,
    /// The last-exception pair holds the exception itself.
    LastExceptionEqual,
    /// Bits 63:61 of LER_TO are not copies of its sign.
    LerToUnsigned,
    /// Writing FROM checks bits 62:61 as part of the sign.
    FromWriteChecksFlags,
    /// Inverts whether hyperthreads share the filter register.
    SelectSharing,
}

/// Whether the fault was observed on real CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// A published erratum, or a deviation that Linux works around.
    Erratum,
    /// An invention, to test whether it is detected.
    Lie,
}

use Fault::*;
use FaultKind::*;

/// Name, kind and source of each fault, in order of the enumeration.
const FAULTS: [(Fault, &str, FaultKind, &str); 38] = [
    (FormatCode, "format-code", Lie, ""),
    (NoInfo, "no-info", Lie, ""),
    (IgnoresRing0, "ignores-ring0", Lie, ""),
    (IgnoresUser, "ignores-user", Lie, ""),
    (IgnoresCond, "ignores-cond", Lie, ""),
    (IgnoresRelCall, "ignores-rel-call", Lie, ""),
    (IgnoresIndCall, "ignores-ind-call", Lie, ""),
    (IgnoresRet, "ignores-ret", Lie, ""),
    (IgnoresIndJmp, "ignores-ind-jmp", Lie, ""),
    (IgnoresRelJmp, "ignores-rel-jmp", Lie, ""),
    (IgnoresFar, "ignores-far", Lie, ""),
    (FilterPolarity, "filter-polarity", Lie, ""),
    (JumpsSwallowCalls, "jumps-swallow-calls", Erratum, "SDM 17.8; Linux lbr.c (nhm map)"),
    (TosOffByOne, "tos-off-by-one", Lie, ""),
    (OrderReversed, "order-reversed", Lie, ""),
    (NoSignExtension, "no-sign-extension", Lie, ""),
    (HalfDepth, "half-depth", Lie, ""),
    (DepthKeepsRecords, "depth-keeps-records", Lie, ""),
    (CyclesConstant, "cycles-constant", Lie, ""),
    (CyclesWrap, "cycles-wrap", Lie, ""),
    (MispredictNever, "mispredict-never", Lie, ""),
    (MispredictInverted, "mispredict-inverted", Erratum, "SDM09 Table 16-6; SDM 43.5.2"),
    (PushesZeroLengthCalls, "pushes-zero-length-calls", Lie, ""),
    (RecordsZeroLengthCalls, "records-zero-length-calls", Lie, ""),
    (DuplicateNewest, "duplicate-newest", Lie, ""),
    (DoubleAbort, "double-abort", Erratum, "Linux lbr.c (lbr_double_abort, Haswell)"),
    (TsxNever, "tsx-never", Lie, ""),
    (TypesSwapped, "types-swapped", Lie, ""),
    (FromNotHidden, "from-not-hidden", Lie, ""),
    (FusedFrom, "fused-from", Erratum, "Linux amd/lbr.c"),
    (CStateWipe, "c-state-wipe", Lie, ""),
    (NoFreezeOnPmi, "no-freeze-on-pmi", Erratum, "Linux lbr.c (Bonnell); AMD without EAX[2]"),
    (FreezeEarly, "freeze-early", Erratum, "AM94"),
    (SmmCorrupts, "smm-corrupts", Erratum, "BU10"),
    (LastExceptionEqual, "last-exception-equal", Erratum, "C9"),
    (LerToUnsigned, "ler-to-unsigned", Erratum, "BDM131, BDW120, BDF93, BDH80, BDX93"),
    (
        FromWriteChecksFlags,
        "from-write-checks-flags",
        Erratum,
        "HSM182, HSD172, HSE117, BDM127, BDD117, BDW117, BDF85, BDH75, BDX88, BDE105",
    ),
    (SelectSharing, "select-sharing", Lie, ""),
];

/// An unknown fault name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown fault `{name}`")]
pub struct UnknownFault {
    /// As typed.
    pub name: String,
}

impl Fault {
    /// Every fault.
    pub fn all() -> impl Iterator<Item = Fault> {
        FAULTS.iter().map(|row| row.0)
    }

    fn row(self) -> &'static (Fault, &'static str, FaultKind, &'static str) {
        // The table is in the order of the enumeration; a test checks that.
        FAULTS.get(self as usize).unwrap_or(&FAULTS[0])
    }

    /// The name that enables it.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Whether it was observed on a CPU.
    #[must_use]
    pub fn kind(self) -> FaultKind {
        self.row().2
    }

    /// The source that documents an erratum; empty for an invention.
    pub fn source(self) -> &'static str {
        self.row().3
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Fault, UnknownFault> {
        let row = FAULTS.iter().find(|row| row.1 == text);
        row.map(|row| row.0).ok_or_else(|| UnknownFault { name: text.into() })
    }
}

/// A set of faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults(u64);

impl Faults {
    /// The empty set: a CPU as documented.
    pub const NONE: Faults = Faults(0);

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set contains `fault`.
    pub const fn has(self, fault: Fault) -> bool {
        self.0 >> fault as u8 & 1 != 0
    }

    /// The faults in the set.
    pub fn iter(self) -> impl Iterator<Item = Fault> {
        Fault::all().filter(move |fault| self.has(*fault))
    }

    /// The set with one more fault.
    #[must_use]
    pub const fn and(self, fault: Fault) -> Faults {
        Faults(self.0 | 1 << fault as u8)
    }
}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Faults {
        Faults::NONE.and(fault)
    }
}

impl FromIterator<Fault> for Faults {
    fn from_iter<I: IntoIterator<Item = Fault>>(faults: I) -> Faults {
        faults.into_iter().fold(Faults::NONE, Faults::and)
    }
}

/// Parses names separated by commas.
impl FromStr for Faults {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Faults, UnknownFault> {
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::parse).collect()
    }
}
