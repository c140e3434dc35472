//! Lies and errata: how a software LBR departs from what is documented, on
//! request.
//!
//! Each is a [`Fault`] with a stable name. It changes what registers hold,
//! read as or take, and nothing else: nothing that looks at the LBR from
//! outside can tell but by the registers.
//!
//! Departures that need no switch, because the CPUs that have them have them
//! always: the jump filters of Nehalem that swallow calls, Knights Landing's
//! format code, a CPU that cannot freeze on PMI, DEBUGCTL.TR beside LBR (all
//! of them [`Quirks`](crate::caps::Quirks)); and an interrupt after the last
//! user address logging bits 63:48 as ones (BU8, W119), which a layout of 48
//! address bits cannot but do. Errata of BTS alone (W125, AR62) touch no
//! register here.

use alloc::{string::String, vec::Vec};
use core::{fmt, str::FromStr};

/// One departure from what is documented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Fault {
    /// IA32_PERF_CAPABILITIES\[5:0\] reports another format than records have.
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
    /// Suppress bits capture, capture bits suppress.
    FilterPolarity,
    /// The jump filters take calls and returns with them, as before Sandy
    /// Bridge.
    JumpsSwallowCalls,
    /// TOS reads as the index after the newest record.
    TosOffByOne,
    /// Records are written in the opposite order.
    OrderReversed,
    /// Addresses are recorded without copies of their sign bit.
    NoSignExtension,
    /// The ring wraps at half of the depth that is announced.
    HalfDepth,
    /// IA32_LBR_DEPTH can be written without clearing the records.
    DepthKeepsRecords,
    /// Every cycle count is the same.
    CyclesConstant,
    /// The cycle counter wraps instead of saturating.
    CyclesWrap,
    /// The mispredict flag is never set.
    MispredictNever,
    /// The mispredict flag is set where the prediction was right.
    MispredictInverted,
    /// Call-stack mode pushes calls to the next instruction.
    PushesZeroLengthCalls,
    /// Architectural LBR counts calls to the next instruction as near calls.
    RecordsZeroLengthCalls,
    /// The newest record is there twice once recording stops.
    DuplicateNewest,
    /// A transaction abort is recorded twice, the newer time without its flag.
    DoubleAbort,
    /// The transaction flags are never set.
    TsxNever,
    /// Branch types are numbered in the order of LBR_SELECT's bits.
    TypesSwapped,
    /// FROM of a branch that started in a ring that is not recorded is shown.
    FromNotHidden,
    /// FROM of a conditional branch is the instruction before it (macro fusion).
    FusedFrom,
    /// A deep C-state clears the records where nothing announces that.
    CStateWipe,
    /// A PMI does not freeze.
    NoFreezeOnPmi,
    /// A freeze on PMI comes one branch too early.
    FreezeEarly,
    /// The newest record is wrong after an SMI.
    SmmCorrupts,
    /// The last-exception pair is that of the exception itself.
    LastExceptionEqual,
    /// LER_TO reads with bits 63:61 that are no copies of its sign.
    LerToUnsigned,
    /// Writing FROM checks bits 62:61 as a part of the sign.
    FromWriteChecksFlags,
    /// The filter register is shared by hyperthreads where it should not be,
    /// or the other way round.
    SelectSharing,
}

/// Whether somebody has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// A published erratum, or a departure that Linux works around.
    Erratum,
    /// An invention, to see whether it would be noticed.
    Lie,
}

use Fault::*;
use FaultKind::*;

/// Name, kind and source of each, in the order of the enumeration.
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

/// A name that is no fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown lie `{name}`; known are {}", known())]
pub struct UnknownFault {
    /// As typed.
    pub name: String,
}

fn known() -> String {
    let names: Vec<&str> = FAULTS.iter().map(|row| row.1).collect();
    names.join(", ")
}

impl Fault {
    /// Every fault.
    pub fn all() -> impl Iterator<Item = Fault> {
        FAULTS.iter().map(|row| row.0)
    }

    fn row(self) -> &'static (Fault, &'static str, FaultKind, &'static str) {
        // The table stands in the order of the enumeration, which a test holds.
        FAULTS.get(self as usize).unwrap_or(&FAULTS[0])
    }

    /// The name by which it is switched on.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Whether it was seen on a CPU.
    #[must_use]
    pub fn kind(self) -> FaultKind {
        self.row().2
    }

    /// Where an erratum is written down; empty for a lie.
    #[must_use]
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
    /// None: a sound CPU.
    pub const NONE: Faults = Faults(0);

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this one is among them.
    #[must_use]
    pub const fn has(self, fault: Fault) -> bool {
        self.0 >> fault as u8 & 1 != 0
    }

    /// Those that are among them.
    pub fn iter(self) -> impl Iterator<Item = Fault> {
        Fault::all().filter(move |fault| self.has(*fault))
    }

    /// These and one more.
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

/// Reads names separated by commas.
impl FromStr for Faults {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Faults, UnknownFault> {
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::parse).collect()
    }
}
