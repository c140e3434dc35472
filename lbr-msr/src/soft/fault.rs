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

/// Defines each fault: its name and source.
macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident $name:literal $source:literal;)*) => {
        /// One deviation from the documentation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Fault {
            $($(#[$doc])* $fault,)*
        }

        /// Name and source of each fault, in order of the enumeration.
        const FAULTS: &[(Fault, &str, &str)] = &[$((Fault::$fault, $name, $source),)*];
    };
}

faults! {
    /// IA32_PERF_CAPABILITIES\[5:0\] reports a format other than the records'.
    FormatCode "format-code" "";
    /// The INFO registers do not exist.
    NoInfo "no-info" "";
    /// The filter for ring 0 has no effect.
    IgnoresRing0 "ignores-ring0" "";
    /// The filter for the other rings has no effect.
    IgnoresUser "ignores-user" "";
    /// The filter for conditional branches has no effect.
    IgnoresCond "ignores-cond" "";
    /// The filter for near relative calls has no effect.
    IgnoresRelCall "ignores-rel-call" "";
    /// The filter for near indirect calls has no effect.
    IgnoresIndCall "ignores-ind-call" "";
    /// The filter for near returns has no effect.
    IgnoresRet "ignores-ret" "";
    /// The filter for near indirect jumps has no effect.
    IgnoresIndJmp "ignores-ind-jmp" "";
    /// The filter for near relative jumps has no effect.
    IgnoresRelJmp "ignores-rel-jmp" "";
    /// The filter for far branches has no effect.
    IgnoresFar "ignores-far" "";
    /// Suppress bits capture, and capture bits suppress.
    FilterPolarity "filter-polarity" "";
    /// The jump filters also suppress calls and returns, as before Sandy Bridge.
    JumpsSwallowCalls "jumps-swallow-calls" "SDM 17.8; Linux lbr.c (nhm map)";
    /// TOS reads as the index after the newest record.
    TosOffByOne "tos-off-by-one" "";
    /// Records are written in the opposite order.
    OrderReversed "order-reversed" "";
    /// Addresses are recorded without copies of their sign bit.
    NoSignExtension "no-sign-extension" "";
    /// The LBR wraps at half of the announced depth.
    HalfDepth "half-depth" "";
    /// IA32_LBR_DEPTH can be written without clearing the records.
    DepthKeepsRecords "depth-keeps-records" "";
    /// Every cycle count is the same.
    CyclesConstant "cycles-constant" "";
    /// The cycle counter wraps instead of saturating.
    CyclesWrap "cycles-wrap" "";
    /// The mispredict flag is never set.
    MispredictNever "mispredict-never" "";
    /// The mispredict flag is inverted.
    MispredictInverted "mispredict-inverted" "SDM09 Table 16-6; SDM 43.5.2";
    /// Call-stack mode pushes calls to the next instruction.
    PushesZeroLengthCalls "pushes-zero-length-calls" "";
    /// Architectural LBR counts calls to the next instruction as near calls.
    RecordsZeroLengthCalls "records-zero-length-calls" "";
    /// When recording stops, the newest record is duplicated.
    DuplicateNewest "duplicate-newest" "";
    /// A transaction abort is recorded twice, the second time without its flag.
    DoubleAbort "double-abort" "Linux lbr.c (lbr_double_abort, Haswell)";
    /// The transaction flags are never set.
    TsxNever "tsx-never" "";
    /// Branch types are numbered in the order of LBR_SELECT's bits.
    TypesSwapped "types-swapped" "";
    /// FROM of a branch from a ring that is not recorded is visible.
    FromNotHidden "from-not-hidden" "";
    /// FROM of a conditional branch is the previous instruction (macro fusion).
    FusedFrom "fused-from" "Linux amd/lbr.c";
    /// A deep C-state clears the records although that is not announced.
    CStateWipe "c-state-wipe" "";
    /// A PMI does not freeze.
    NoFreezeOnPmi "no-freeze-on-pmi" "Linux lbr.c (Bonnell); AMD without EAX[2]";
    /// A freeze on PMI comes one branch too early.
    FreezeEarly "freeze-early" "AM94";
    /// The newest record is wrong after an SMI.
    SmmCorrupts "smm-corrupts" "BU10";
    /// The last-exception pair holds the exception itself.
    LastExceptionEqual "last-exception-equal" "C9";
    /// Bits 63:61 of LER_TO are not copies of its sign.
    LerToUnsigned "ler-to-unsigned" "BDM131, BDW120, BDF93, BDH80, BDX93";
    /// Writing FROM checks bits 62:61 as part of the sign.
    FromWriteChecksFlags "from-write-checks-flags"
        "HSM182, HSD172, HSE117, BDM127, BDD117, BDW117, BDF85, BDH75, BDX88, BDE105";
    /// Inverts whether hyperthreads share the filter register.
    SelectSharing "select-sharing" "";
}

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

    fn row(self) -> &'static (Fault, &'static str, &'static str) {
        &FAULTS[self as usize]
    }

    /// The name that enables it.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The source that documents an erratum, or a deviation that Linux works around; empty for an
    /// invention, which tests whether it is detected.
    pub fn source(self) -> &'static str {
        self.row().2
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
