//! The meaning of a name or address on a given CPU.

use core::{fmt, str::FromStr};

use super::catalogue::{AMD_BRS, AMD_ONE, AMD_V2};
use crate::table;

/// Display family and display model, written as in the SDM: `06_5EH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CpuKey {
    /// Display family.
    pub family: u32,
    /// Display model.
    pub model: u32,
}

/// A text that does not name a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a CPU is a name such as skylake or zen4, or FF_MMH: display family and display model in hexadecimal, such as 06_5EH"
)]
pub struct BadCpuKey;

impl FromStr for CpuKey {
    type Err = BadCpuKey;

    fn from_str(text: &str) -> Result<CpuKey, BadCpuKey> {
        let (family, model) = table::parse_cpu(text).ok_or(BadCpuKey)?;
        Ok(CpuKey { family, model })
    }
}

impl fmt::Display for CpuKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02X}_{:02X}H", self.family, self.model)
    }
}

impl CpuKey {
    /// Its generation; `None` for an unknown CPU. The table does not hold AMD's families, because
    /// CPUID tells more than a model number (probing asks it). Without a CPU at hand, the family
    /// decides.
    pub(super) fn generation(self) -> Option<&'static str> {
        if let Some(model) = table::lookup(self.family, self.model) {
            return Some(model.generation.group);
        }
        Some(match (self.family, self.model) {
            (0x10 | 0x11 | 0x14..=0x17, _) => AMD_ONE,
            (0x19, 0x00..=0x0F | 0x20..=0x5F) => AMD_BRS,
            (0x19 | 0x1A, _) => AMD_V2,
            _ => return None,
        })
    }
}
