//! The CPU table: which Intel model has which branch records.
//!
//! Only the model-specific facilities need it. Architectural LBR and AMD's
//! stacks announce themselves in CPUID; their Intel models stand here for
//! their names alone. Models of one [`Generation`] share their geometry, so
//! it is written once per generation with its sources.

mod generation;
mod listed;
mod models;
mod names;

pub use generation::GENERATIONS;
pub use listed::{unlisted, unlisted_tos};
pub use models::MODELS;
pub use names::NAMES;

use crate::{address::Msr, format::LbrFormat};

/// What kind of record a generation keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// P6: one FROM/TO pair of plain addresses.
    P6Single,
    /// One 64-bit register a record, FROM in the low half.
    Packed32,
    /// FROM and TO registers beside each other, by LBR_FMT.
    Legacy,
    /// Architectural LBR; CPUID tells everything.
    Arch,
}

impl RecordKind {
    /// The word in the facts table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            RecordKind::P6Single => "p6-single",
            RecordKind::Packed32 => "packed32",
            RecordKind::Legacy => "legacy",
            RecordKind::Arch => "arch",
        }
    }
}

/// The LBR_FMT that IA32_PERF_CAPABILITIES is expected to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpectedFormat {
    /// The generation has no IA32_PERF_CAPABILITIES.
    NotApplicable,
    /// 0 where the register exists, which not every part has (Yonah).
    ZeroOrAbsent,
    /// This code.
    Exactly(LbrFormat),
    /// The register reports one code, but records are laid out as another.
    Lies {
        /// What IA32_PERF_CAPABILITIES says.
        reported: LbrFormat,
        /// How records are laid out.
        real: LbrFormat,
    },
    /// One of two codes that decode alike; no source says which.
    Either(LbrFormat, LbrFormat),
}

impl ExpectedFormat {
    /// The layout to decode by where IA32_PERF_CAPABILITIES was not read;
    /// `None` where records are not laid out by a format code.
    #[must_use]
    pub const fn layout(self) -> Option<LbrFormat> {
        match self {
            ExpectedFormat::NotApplicable => None,
            ExpectedFormat::ZeroOrAbsent => Some(LbrFormat::FORMAT_32),
            ExpectedFormat::Exactly(format)
            | ExpectedFormat::Lies { real: format, .. }
            | ExpectedFormat::Either(format, _) => Some(format),
        }
    }

    /// Whether LBR_FMT says how records are laid out.
    #[must_use]
    pub const fn tells_layout(self) -> bool {
        !matches!(self, ExpectedFormat::NotApplicable)
    }

    /// Whether a CPU without IA32_PERF_CAPABILITIES is not what the table says.
    #[must_use]
    pub const fn needs_register(self) -> bool {
        !matches!(self, ExpectedFormat::NotApplicable | ExpectedFormat::ZeroOrAbsent)
    }

    /// The code that IA32_PERF_CAPABILITIES reports; the first of two.
    #[must_use]
    pub const fn reported(self) -> Option<LbrFormat> {
        match self {
            ExpectedFormat::Lies { reported, .. } => Some(reported),
            other => other.layout(),
        }
    }
}

/// Whether the records of a generation carry something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carries {
    /// No.
    No,
    /// Yes. Transaction flags mean something only where CPUID also announces
    /// HLE or RTM.
    Yes,
    /// Yes, in the upper bits of TO (Goldmont).
    InTo,
    /// CPUID leaf 1CH tells (transaction flags: CPUID.07H:EBX).
    ByCpuid,
}

/// Among whom MSR_LBR_SELECT is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SelectScope {
    /// Each logical CPU has its own.
    Thread,
    /// One a core, without hyperthreads that could share it (Atom).
    Core,
    /// One a core, shared by its hyperthreads.
    CoreShared,
}

/// Whether Linux's perf uses the LBR of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Linux {
    /// Yes, by model number.
    Yes,
    /// Yes, because CPUID announces it.
    ByCpuid,
    /// Never did.
    No,
    /// Its neighbours yes, this model is absent from the kernel's switch.
    Absent,
    /// Not in the switch of a 2026 kernel.
    Dropped,
}

/// How well a row is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// Inference only.
    Low,
    /// One good source.
    Medium,
    /// Two independent sources, or code that runs on the hardware.
    High,
}

/// The geometry that all models of a generation share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Short name.
    pub group: &'static str,
    /// What kind of record.
    pub kind: RecordKind,
    /// Records the ring holds; `None` where CPUID leaf 1CH tells.
    pub depth: Option<u32>,
    /// FROM of record 0 (packed kinds: the one register).
    pub from: Msr,
    /// TO of record 0; `None` for packed kinds.
    pub to: Option<Msr>,
    /// INFO of record 0.
    pub info: Option<Msr>,
    /// Top of stack.
    pub tos: Option<Msr>,
    /// The filter register.
    pub select: Option<Msr>,
    /// What IA32_PERF_CAPABILITIES is expected to report.
    pub format: ExpectedFormat,
    /// A mispredict flag.
    pub mispredict: Carries,
    /// Transaction flags.
    pub tsx: Carries,
    /// Cycle counts.
    pub cycles: Carries,
    /// Call-stack mode.
    pub call_stack: Carries,
    /// Among whom the filter register is shared; `None` without one.
    pub select_scope: Option<SelectScope>,
    /// Where this comes from.
    pub sources: &'static str,
}

impl Generation {
    /// NetBurst, whose ring is read-only and whose TOS is elsewhere.
    #[must_use]
    pub const fn is_netburst(&self) -> bool {
        matches!(self.tos, Some(crate::address::MSR_LASTBRANCH_TOS_NETBURST))
    }
}

/// One model of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Display family.
    pub family: u8,
    /// Display model.
    pub model: u8,
    /// Name of the product or die.
    pub name: &'static str,
    /// Microarchitecture.
    pub uarch: &'static str,
    /// The geometry.
    pub generation: &'static Generation,
    /// Whether Linux's perf uses it.
    pub linux: Linux,
    /// How well the row is supported.
    pub confidence: Confidence,
}

impl Model {
    /// `FF_MM` in upper-case hexadecimal.
    #[must_use]
    pub fn key(&self) -> alloc::string::String {
        alloc::format!("{:02X}_{:02X}", self.family, self.model)
    }
}

/// The row of an Intel model, by display family and display model.
#[must_use]
pub fn lookup(family: u32, model: u32) -> Option<&'static Model> {
    MODELS.iter().find(|row| u32::from(row.family) == family && u32::from(row.model) == model)
}

/// Reads `FF_MM` (two hexadecimal numbers, with or without a trailing `H`)
/// into display family and display model.
///
/// `None` where it is not of that shape.
#[must_use]
pub fn parse_key(text: &str) -> Option<(u32, u32)> {
    let (family, model) = text.split_once('_')?;
    let model = model.strip_suffix(['h', 'H']).unwrap_or(model);
    Some((hex_byte(family)?, hex_byte(model)?))
}

/// Reads a CPU as people write it into display family and display model:
/// `FF_MM` as [`parse_key`] does, or one of [`NAMES`], such as `skylake`,
/// `sandy-bridge` (or `Sandy Bridge`), `zen4`.
#[must_use]
pub fn parse_cpu(text: &str) -> Option<(u32, u32)> {
    parse_key(text).or_else(|| names::named(text))
}

fn hex_byte(text: &str) -> Option<u32> {
    let text = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    let digits = text.bytes().all(|b| b.is_ascii_hexdigit());
    (digits && matches!(text.len(), 1 | 2)).then(|| u32::from_str_radix(text, 16).ok())?
}
