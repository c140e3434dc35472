//! Why an LBR cannot be armed.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};

use crate::access::MsrError;
use crate::address::Msr;
use crate::caps::{Facility, depths_in};

/// Why an LBR cannot be armed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArmError {
    /// The facility holds one record, or its records cannot be written.
    #[error("{} cannot be armed for recording: {why}; lbr probe, dump and decode work on it",
        facility.name())]
    NoRing {
        /// The facility.
        facility: Facility,
        /// The reason.
        why: &'static str,
    },
    /// A register to be written is not in the CPU table.
    #[error(
        "{msr} is not a known branch-record register of any CPU with {}: lbr reads it but never writes it, so it cannot arm this CPU",
        facility.name()
    )]
    Unlisted {
        /// The facility.
        facility: Facility,
        /// The register.
        msr: Msr,
    },
    /// There is no filter register.
    #[error("{} has no filter register on this CPU: value {value:#x} cannot be set; it records every branch", facility.name())]
    NoFilter {
        /// The facility.
        facility: Facility,
        /// The requested value.
        value: u64,
    },
    /// The filter register lacks some of the requested bits.
    #[error(
        "{msr} of {} takes the bits {valid:#x} on this CPU: value {value:#x} would raise #GP",
        facility.name()
    )]
    FilterBits {
        /// The facility.
        facility: Facility,
        /// The filter register.
        msr: Msr,
        /// The requested value.
        value: u64,
        /// The bits that exist.
        valid: u64,
    },
    /// A combination whose records are undefined.
    #[error(
        "call-stack mode of {} accepts only near calls and near returns, of one ring or both: value {value:#x} leaves the records undefined",
        facility.name()
    )]
    UndefinedCallStack {
        /// The facility.
        facility: Facility,
        /// The requested value.
        value: u64,
    },
    /// Call-stack mode together with freeze on PMI.
    #[error(
        "call-stack mode cannot be combined with FREEZE_LBRS_ON_PMI: a call or return around the interrupt may move the stack; drop one of them"
    )]
    CallStackWithFreeze,
    /// DEBUGCTL lacks the freeze bit on this CPU.
    #[error("{} cannot be frozen on a performance-monitoring interrupt: {why}", facility.name())]
    NoFreeze {
        /// The facility.
        facility: Facility,
        /// The reason.
        why: &'static str,
    },
    /// An unsupported depth.
    #[error(
        "{} cannot keep {asked} records on this CPU; it can keep {}",
        facility.name(),
        depths(*depth, *mask)
    )]
    Depth {
        /// The facility.
        facility: Facility,
        /// The requested depth.
        asked: u32,
        /// The largest depth.
        depth: u32,
        /// CPUID leaf 1CH EAX\[7:0\]; 0 if there is only one depth.
        mask: u8,
    },
    /// Intel PT is tracing and disables the LBR.
    #[error(
        "Intel PT is tracing on CPU {cpu} (IA32_RTIT_CTL.TraceEn is 1): tracing disables the LBR of this CPU; end the trace first"
    )]
    IntelPt {
        /// Logical CPU.
        cpu: u32,
    },
    /// Branch trace messages are enabled.
    #[error(
        "branch trace messages are enabled on CPU {cpu} (DEBUGCTL.TR is 1), which makes the records undefined; end the branch trace first"
    )]
    BranchTrace {
        /// Logical CPU.
        cpu: u32,
    },
    /// A register could not be read or written.
    #[error(transparent)]
    Register(#[from] MsrError),
}

/// A facility's depths, as text.
fn depths(depth: u32, mask: u8) -> String {
    let depths: Vec<_> = depths_in(mask).map(|depth| depth.to_string()).collect();
    if mask == 0 { depth.to_string() } else { depths.join(", ") }
}
