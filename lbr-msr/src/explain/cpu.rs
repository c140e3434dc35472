//! Which meaning a name or address has on a CPU.

use core::{fmt, str::FromStr};

use crate::table;

/// Display family and display model, as the SDM writes them: `06_5EH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CpuKey {
    /// Display family.
    pub family: u32,
    /// Display model.
    pub model: u32,
}

/// A text that is not a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a CPU is written FF_MMH: display family and display model in hexadecimal, such as 06_5EH")]
pub struct BadCpuKey;

impl FromStr for CpuKey {
    type Err = BadCpuKey;

    fn from_str(text: &str) -> Result<CpuKey, BadCpuKey> {
        let (family, model) = table::parse_key(text).ok_or(BadCpuKey)?;
        Ok(CpuKey { family, model })
    }
}

impl fmt::Display for CpuKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02X}_{:02X}H", self.family, self.model)
    }
}

/// CPUs whose branch-record registers mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    P6,
    PentiumM,
    Yonah,
    Core2,
    Bonnell,
    Silvermont,
    KnightsLanding,
    Nehalem,
    SandyBridge,
    Haswell,
    Skylake,
    Goldmont,
    GoldmontPlus,
    Tremont,
    Arch,
    /// NetBurst models 0 to 2.
    NetBurst0,
    /// NetBurst models 3 and later.
    NetBurst3,
    AmdSingle,
    AmdBrs,
    AmdV2,
}

impl CpuKey {
    /// The group; `None` for a CPU of which nothing is known.
    pub(super) fn group(self) -> Option<Group> {
        match table::lookup(self.family, self.model) {
            Some(model) => Group::of_generation(model.generation.group),
            None => self.amd_group(),
        }
    }

    /// AMD families, which the table of Intel models does not hold. CPUID
    /// tells more than a model number (probing asks it); without a CPU at hand
    /// this is what its number makes likely.
    const fn amd_group(self) -> Option<Group> {
        Some(match (self.family, self.model) {
            (0x10 | 0x11 | 0x14..=0x17, _) => Group::AmdSingle,
            (0x19, 0x00..=0x0F | 0x20..=0x5F) => Group::AmdBrs,
            (0x19 | 0x1A, _) => Group::AmdV2,
            _ => return None,
        })
    }
}

impl Group {
    /// The group of a generation of the CPU table.
    fn of_generation(name: &str) -> Option<Group> {
        Some(match name {
            "P6" => Group::P6,
            "PM" => Group::PentiumM,
            "YNH" => Group::Yonah,
            "C2" => Group::Core2,
            "BNL" => Group::Bonnell,
            "SLM" => Group::Silvermont,
            "KNL" => Group::KnightsLanding,
            "NHM" => Group::Nehalem,
            "SNB" => Group::SandyBridge,
            "HSW" => Group::Haswell,
            "SKL" => Group::Skylake,
            "GLM" => Group::Goldmont,
            "GLP" => Group::GoldmontPlus,
            "TNT" => Group::Tremont,
            "ARCH" => Group::Arch,
            "NB0" => Group::NetBurst0,
            "NB3" => Group::NetBurst3,
            _ => return None,
        })
    }
}
