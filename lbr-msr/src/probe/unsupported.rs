//! Why a CPU has no usable branch records.

use alloc::{borrow::Cow, boxed::Box, string::String};

use crate::{caps::CpuIdentity, format::LbrFormat};

/// A CPU without usable branch records, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unsupported {
    /// The CPU.
    pub cpu: Box<CpuIdentity>,
    /// The reason.
    pub why: Why,
}

/// Why there are no usable branch records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// Neither Intel nor AMD.
    #[error("lbr knows branch records of Intel and AMD CPUs only")]
    Vendor,
    /// K7 and older.
    #[error("AMD CPUs before family 0FH have no documented last-branch registers")]
    AmdBefore64Bit,
    /// A recording of a Zen 3 lacks leaf 80000008H.
    #[error(
        "the recording lacks leaf 80000008H, whose EBX[31] announces Branch Sampling (BRS): \
         unknown whether this CPU has it"
    )]
    BrsUnknown,
    /// The model has Architectural LBR, but the hypervisor hides it.
    #[error(
        "{uarch} has Architectural LBR, but the hypervisor ({hypervisor}) hides it: \
         CPUID.07H:EDX[19] = 0, CPUID.1CH {leaf}, CPUID.01H:ECX[15] (PDCM) = {pdcm}",
        leaf = if *leaf_present { "is present but is not announced" } else { "is absent" },
        pdcm = u8::from(*pdcm)
    )]
    HiddenArch {
        /// Microarchitecture.
        uarch: Cow<'static, str>,
        /// Name of the hypervisor.
        hypervisor: String,
        /// CPUID.01H:ECX\[15\].
        pdcm: bool,
        /// The highest leaf is 1CH or above.
        leaf_present: bool,
    },
    /// The model has an LBR, but the hypervisor hides it.
    #[error(
        "{uarch} has a model-specific LBR, but the hypervisor ({hypervisor}) hides it: \
         CPUID.01H:ECX[15] (PDCM) = 0, so IA32_PERF_CAPABILITIES does not exist"
    )]
    HiddenLegacy {
        /// Microarchitecture.
        uarch: &'static str,
        /// Name of the hypervisor.
        hypervisor: String,
    },
    /// IA32_PERF_CAPABILITIES reports format 0 in a guest.
    #[error(
        "the hypervisor ({hypervisor}) gives this guest no LBR: IA32_PERF_CAPABILITIES[5:0] is \
         0 (QEMU: -cpu host,lbr-fmt=...)"
    )]
    HiddenFormatZero {
        /// Name of the hypervisor.
        hypervisor: String,
    },
    /// PDCM is 1, but the register raises #GP.
    #[error(
        "CPUID.01H:ECX[15] (PDCM) = 1, but reading IA32_PERF_CAPABILITIES raises #GP: the \
         hypervisor hides the register"
    )]
    CapabilitiesFault,
    /// On bare metal, a model with Architectural LBR does not announce it.
    #[error(
        "{uarch} has Architectural LBR, but CPUID.07H:EDX[19] = 0: firmware or a hypervisor \
         that hides its name has disabled it"
    )]
    ArchNotAnnounced {
        /// Microarchitecture.
        uarch: Cow<'static, str>,
    },
    /// Architectural LBR is announced with an empty depth mask.
    #[error("CPUID.07H:EDX[19] announces Architectural LBR, but CPUID.1CH:EAX[7:0] lists no depth")]
    ArchWithoutDepth,
    /// On bare metal, a model of the table lacks IA32_PERF_CAPABILITIES.
    #[error(
        "{uarch} has a model-specific LBR, but CPUID.01H:ECX[15] (PDCM) = 0, so its record \
         format is unknown; --assume FF_MMH overrides this"
    )]
    NoPdcm {
        /// Microarchitecture.
        uarch: &'static str,
    },
    /// LBR_FMT is 3FH and CPUID does not announce Architectural LBR.
    #[error(
        "IA32_PERF_CAPABILITIES[5:0] is 0x3f (no model-specific LBR), and CPUID does not announce \
         Architectural LBR"
    )]
    NoModelSpecificLbr,
    /// LBR_FMT is undocumented.
    #[error("IA32_PERF_CAPABILITIES[5:0] reports the undocumented record format {format}")]
    UnknownFormat {
        /// The reported format.
        format: LbrFormat,
    },
    /// An Intel model that the table does not know.
    #[error("{}", unknown_model(key, *format, *pdcm, hypervisor.as_deref()))]
    UnknownModel {
        /// `FF_MM`.
        key: String,
        /// The format that IA32_PERF_CAPABILITIES reports, if it was read.
        format: Option<LbrFormat>,
        /// CPUID.01H:ECX\[15\].
        pdcm: bool,
        /// Name of the hypervisor.
        hypervisor: Option<String>,
    },
    /// CPUID describes the facility, so nothing can be assumed.
    #[error("--assume cannot be used here: {0}")]
    CannotAssume(&'static str),
    /// The assumed model is not in the table.
    #[error("--assume {family:02X}_{model:02X}: no such model in the CPU table")]
    AssumedModelUnknown {
        /// Display family.
        family: u32,
        /// Display model.
        model: u32,
    },
    /// The format is neither given nor readable.
    #[error(
        "--assume: the record format cannot be read from IA32_PERF_CAPABILITIES here; add \
         format=N (0 to 7)"
    )]
    AssumedFormatMissing,
    /// The format has INFO registers, but none is given.
    #[error("--assume: records of format {format} have INFO registers; add info=ADDRESS")]
    AssumedInfoMissing {
        /// The format.
        format: LbrFormat,
    },
}

fn unknown_model(
    key: &str,
    format: Option<LbrFormat>,
    pdcm: bool,
    hypervisor: Option<&str>,
) -> String {
    let register = match (format, pdcm) {
        (Some(format), _) => alloc::format!("IA32_PERF_CAPABILITIES reports format {format}"),
        (None, true) => "IA32_PERF_CAPABILITIES was not read".into(),
        (None, false) => "CPUID.01H:ECX[15] (PDCM) = 0, so no LBR is announced".into(),
    };
    let guest = match hypervisor {
        Some(name) => alloc::format!(" (under the hypervisor {name})"),
        None => String::new(),
    };
    alloc::format!(
        "Intel model {key} is not in the CPU table{guest}; {register}; if it has a \
         model-specific LBR, give a similar model with --assume FF_MMH, or its registers with \
         --assume depth=,from=,to=,info=,tos=,select="
    )
}
