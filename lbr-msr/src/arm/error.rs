//! Why a ring cannot be armed.

use crate::access::MsrError;
use crate::address::Msr;
use crate::caps::Facility;

/// Why a ring cannot be armed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArmError {
    /// One record, or records that cannot be written.
    #[error("{} cannot be armed for recording: {why}; lbr probe, dump and decode work on it",
        facility.name())]
    NoRing {
        /// The facility.
        facility: Facility,
        /// What it lacks.
        why: &'static str,
    },
    /// A register that would be written is none that the CPU table has.
    #[error(
        "{msr} is not known as a branch-record register of any CPU with {}: it is read, and never written, so nothing is armed there",
        facility.name()
    )]
    Unlisted {
        /// The facility.
        facility: Facility,
        /// The register.
        msr: Msr,
    },
    /// The filter register does not exist.
    #[error("{} has no filter register on this CPU: value {value:#x} cannot be set, it records every branch", facility.name())]
    NoFilter {
        /// The facility.
        facility: Facility,
        /// The value that was asked for.
        value: u64,
    },
    /// The filter register lacks some of the bits.
    #[error(
        "{msr} of {} takes the bits {valid:#x} on this CPU: value {value:#x} would raise #GP",
        facility.name()
    )]
    FilterBits {
        /// The facility.
        facility: Facility,
        /// The filter register.
        msr: Msr,
        /// The value that was asked for.
        value: u64,
        /// The bits it has.
        valid: u64,
    },
    /// A combination that leaves the records undefined.
    #[error(
        "call-stack mode of {} takes near calls and near returns of one ring or both and nothing else: value {value:#x} leaves the records undefined",
        facility.name()
    )]
    UndefinedCallStack {
        /// The facility.
        facility: Facility,
        /// The value that was asked for.
        value: u64,
    },
    /// Call-stack mode and a freeze on PMI.
    #[error(
        "call-stack mode cannot be combined with FREEZE_LBRS_ON_PMI: a call or return around the interrupt may move the stack; leave one of them out"
    )]
    CallStackWithFreeze,
    /// DEBUGCTL has no such bit here.
    #[error("{} cannot be frozen on a performance-monitoring interrupt: {why}", facility.name())]
    NoFreeze {
        /// The facility.
        facility: Facility,
        /// What it lacks.
        why: &'static str,
    },
    /// A depth that is not offered.
    #[error(
        "{} does not keep {asked} records on this CPU; it keeps {}",
        facility.name(),
        Depths { depth: *depth, mask: *mask }
    )]
    Depth {
        /// The facility.
        facility: Facility,
        /// What was asked for.
        asked: u32,
        /// The most that there are.
        depth: u32,
        /// CPUID leaf 1CH EAX\[7:0\]; 0 where there is one depth only.
        mask: u8,
    },
    /// Intel PT is tracing and takes the LBR away.
    #[error(
        "Intel PT is tracing on CPU {cpu} (IA32_RTIT_CTL.TraceEn is 1): on this CPU the LBR is of no use meanwhile; end the trace first"
    )]
    IntelPt {
        /// Logical CPU.
        cpu: u32,
    },
    /// Branch trace messages are on.
    #[error(
        "branch trace messages are on for CPU {cpu} (DEBUGCTL.TR is 1): the records are undefined meanwhile; end the branch trace first"
    )]
    BranchTrace {
        /// Logical CPU.
        cpu: u32,
    },
    /// A register could not be read or written.
    #[error(transparent)]
    Register(#[from] MsrError),
}

/// The depths of a facility, in words.
struct Depths {
    depth: u32,
    mask: u8,
}

impl core::fmt::Display for Depths {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut separator = "";
        for n in 0..8 {
            if self.mask >> n & 1 != 0 {
                write!(f, "{separator}{}", 8 * (n + 1))?;
                separator = ", ";
            }
        }
        if self.mask == 0 { write!(f, "{}", self.depth) } else { Ok(()) }
    }
}
