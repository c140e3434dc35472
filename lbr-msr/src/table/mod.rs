//! The CPU table: the branch records of each Intel model.
//!
//! Only the model-specific facilities need it. CPUID announces Architectural LBR and AMD's stacks;
//! the table lists such Intel models only for their names. Models of one [`Generation`] share their
//! geometry and its sources.

mod generation;
mod listed;
mod models;
mod names;

pub use generation::GENERATIONS;
pub use listed::{unlisted, unlisted_tos};
pub use models::MODELS;
pub use names::NAMES;

use crate::{
    address::{MSR_LASTBRANCH_TOS_NETBURST, Msr},
    caps::Facility,
    format::LbrFormat,
};

/// The kind of record of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// P6: one FROM/TO pair of plain addresses.
    P6Single,
    /// One 64-bit register per record, FROM in the low half.
    Packed32,
    /// Adjacent FROM and TO registers, laid out by LBR_FMT.
    Legacy,
    /// Architectural LBR; CPUID describes it.
    Arch,
}

/// The LBR_FMT that IA32_PERF_CAPABILITIES should report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpectedFormat {
    /// The generation has no IA32_PERF_CAPABILITIES.
    NotApplicable,
    /// 0, if the register exists; not every part has it (Yonah).
    ZeroOrAbsent,
    /// This code.
    Exactly(LbrFormat),
    /// The register reports one code, but records have another layout.
    Lies {
        /// The code in IA32_PERF_CAPABILITIES.
        reported: LbrFormat,
        /// The layout of records.
        real: LbrFormat,
    },
    /// One of two codes that decode alike; the sources do not say which.
    Either(LbrFormat, LbrFormat),
}

impl ExpectedFormat {
    /// The layout to decode by if IA32_PERF_CAPABILITIES was not read; `None` if no format code
    /// describes the records.
    pub const fn layout(self) -> Option<LbrFormat> {
        match self {
            ExpectedFormat::NotApplicable => None,
            ExpectedFormat::ZeroOrAbsent => Some(LbrFormat::FORMAT_32),
            ExpectedFormat::Exactly(format)
            | ExpectedFormat::Lies { real: format, .. }
            | ExpectedFormat::Either(format, _) => Some(format),
        }
    }

    /// Whether LBR_FMT determines the record layout.
    pub const fn tells_layout(self) -> bool {
        !matches!(self, ExpectedFormat::NotApplicable)
    }

    /// Whether a CPU without IA32_PERF_CAPABILITIES contradicts the table.
    pub const fn needs_register(self) -> bool {
        !matches!(self, ExpectedFormat::NotApplicable | ExpectedFormat::ZeroOrAbsent)
    }

    /// The code that IA32_PERF_CAPABILITIES reports; the first of two.
    pub const fn reported(self) -> Option<LbrFormat> {
        match self {
            ExpectedFormat::Lies { reported, .. } => Some(reported),
            other => other.layout(),
        }
    }
}

/// Whether records have a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carries {
    /// No.
    No,
    /// Yes. Transaction flags also need HLE or RTM in CPUID.
    Yes,
    /// According to CPUID leaf 1CH (transaction flags: CPUID.07H:EBX).
    ByCpuid,
}

/// The CPUs that share MSR_LBR_SELECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SelectScope {
    /// Each logical CPU has its own.
    Thread,
    /// One per core without hyperthreads (Atom).
    Core,
    /// One per core, shared by its hyperthreads.
    CoreShared,
}

/// The LBR geometry that all models of a generation share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Short name.
    pub group: &'static str,
    /// The kind of record.
    pub kind: RecordKind,
    /// Number of records; `None` if CPUID leaf 1CH tells.
    pub depth: Option<u32>,
    /// FROM of record 0 (packed layouts: the only register).
    pub from: Msr,
    /// TO of record 0; `None` for packed kinds.
    pub to: Option<Msr>,
    /// INFO of record 0.
    pub info: Option<Msr>,
    /// Top of stack.
    pub tos: Option<Msr>,
    /// The filter register.
    pub select: Option<Msr>,
    /// The LBR_FMT that IA32_PERF_CAPABILITIES should report.
    pub format: ExpectedFormat,
    /// Whether there are transaction flags.
    pub tsx: Carries,
    /// Whether there is call-stack mode.
    pub call_stack: Carries,
    /// The CPUs that share the filter register; `None` without one.
    pub select_scope: Option<SelectScope>,
    /// The sources.
    pub sources: &'static str,
}

impl Generation {
    /// The kind of branch records that its CPUs have.
    pub const fn facility(&self) -> Facility {
        match (self.kind, self.tos) {
            (RecordKind::P6Single, _) => Facility::P6,
            (RecordKind::Arch, _) => Facility::IntelArch,
            (_, Some(MSR_LASTBRANCH_TOS_NETBURST)) => Facility::NetBurst,
            _ => Facility::IntelLegacy,
        }
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
    /// The LBR geometry.
    pub generation: &'static Generation,
}

impl Model {
    /// `FF_MM` in upper-case hexadecimal.
    pub fn key(&self) -> alloc::string::String {
        alloc::format!("{:02X}_{:02X}", self.family, self.model)
    }
}

/// The table's row for an Intel model.
pub fn lookup(family: u32, model: u32) -> Option<&'static Model> {
    MODELS.iter().find(|row| u32::from(row.family) == family && u32::from(row.model) == model)
}

/// Parses `FF_MM` (two hexadecimal numbers, with or without a trailing `H`) into display family and
/// display model.
///
/// `None` for any other form.
pub fn parse_key(text: &str) -> Option<(u32, u32)> {
    let (family, model) = text.split_once('_')?;
    let model = model.strip_suffix(['h', 'H']).unwrap_or(model);
    Some((hex_byte(family)?, hex_byte(model)?))
}

/// Parses a CPU given as `FF_MM` (see [`parse_key`]) or as one of [`NAMES`], such as `skylake`,
/// `sandy-bridge` (or `Sandy Bridge`), `zen4`, into display family and display model.
pub fn parse_cpu(text: &str) -> Option<(u32, u32)> {
    parse_key(text).or_else(|| names::named(text))
}

fn hex_byte(text: &str) -> Option<u32> {
    let text = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    let digits = text.bytes().all(|b| b.is_ascii_hexdigit());
    (digits && matches!(text.len(), 1 | 2)).then(|| u32::from_str_radix(text, 16).ok())?
}
