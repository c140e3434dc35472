//! Which meaning a name or address has on a CPU.

use core::{fmt, str::FromStr};

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
        let (family, model) = text.split_once('_').ok_or(BadCpuKey)?;
        let model = model.strip_suffix(['H', 'h']).unwrap_or(model);
        let part = |digits: &str| match digits.len() {
            1..=4 => super::near::hex(digits).and_then(|value| u32::try_from(value).ok()),
            _ => None,
        };
        Ok(CpuKey { family: part(family).ok_or(BadCpuKey)?, model: part(model).ok_or(BadCpuKey)? })
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
    pub(super) const fn group(self) -> Option<Group> {
        Some(match (self.family, self.model) {
            (0x06, 0x01 | 0x03 | 0x05..=0x08 | 0x0A | 0x0B) => Group::P6,
            (0x06, 0x09 | 0x0D) => Group::PentiumM,
            (0x06, 0x0E) => Group::Yonah,
            (0x06, 0x0F | 0x16 | 0x17 | 0x1D) => Group::Core2,
            (0x06, 0x1C | 0x26 | 0x27 | 0x35 | 0x36) => Group::Bonnell,
            (0x06, 0x37 | 0x4A | 0x4C | 0x4D | 0x5A | 0x5D | 0x75) => Group::Silvermont,
            (0x06, 0x57 | 0x85) => Group::KnightsLanding,
            (0x06, 0x1A | 0x1E | 0x1F | 0x25 | 0x2C | 0x2E | 0x2F) => Group::Nehalem,
            (0x06, 0x2A | 0x2D | 0x3A | 0x3E) => Group::SandyBridge,
            (0x06, 0x3C | 0x3D | 0x3F | 0x45 | 0x46 | 0x47 | 0x4F | 0x56) => Group::Haswell,
            (
                0x06,
                0x4E | 0x55 | 0x5E | 0x66 | 0x6A | 0x6C | 0x7D | 0x7E | 0x8A | 0x8C | 0x8D | 0x8E
                | 0x9D | 0x9E | 0xA5 | 0xA6 | 0xA7,
            ) => Group::Skylake,
            (0x06, 0x5C | 0x5F) => Group::Goldmont,
            (0x06, 0x7A) => Group::GoldmontPlus,
            (0x06, 0x86 | 0x96 | 0x9C) => Group::Tremont,
            (
                0x06,
                0x8F | 0x97 | 0x9A | 0xAA | 0xAC | 0xAD | 0xAE | 0xAF | 0xB5 | 0xB6 | 0xB7 | 0xBA
                | 0xBD | 0xBE | 0xBF | 0xC5 | 0xC6 | 0xCC | 0xCF | 0xD5 | 0xD7 | 0xDD | 0xE5,
            )
            | (0x12, 0x01 | 0x03)
            | (0x13, 0x01) => Group::Arch,
            (0x0F, 0x00..=0x02) => Group::NetBurst0,
            (0x0F, 0x03 | 0x04 | 0x06) => Group::NetBurst3,
            (0x10 | 0x11 | 0x14..=0x17, _) => Group::AmdSingle,
            (0x19, 0x00..=0x0F | 0x20..=0x5F) => Group::AmdBrs,
            (0x19 | 0x1A, _) => Group::AmdV2,
            _ => return None,
        })
    }
}
