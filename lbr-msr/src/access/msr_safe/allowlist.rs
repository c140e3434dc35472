//! The list of registers that msr-safe lets a user read and write.

use alloc::{collections::BTreeMap, format, string::String, vec::Vec};

use crate::{address::Msr, arm::Need};

/// The line that allows it: address and write mask.
#[must_use]
pub fn line(need: &Need) -> String {
    format!("{:#010x} {:#018x}", need.msr.0, need.write_mask)
}

/// What `/dev/cpu/msr_allowlist` says: a listed register is readable, the bits
/// of its mask are writable. msr-safe README.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowlist(BTreeMap<Msr, u64>);

impl Allowlist {
    /// Reads the list's text: in each line an address and a write mask in
    /// hexadecimal, then perhaps a comment behind `#`. A line of another form
    /// allows nothing.
    #[must_use]
    pub fn parse(text: &str) -> Allowlist {
        let hex = |word: &str| {
            let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
            u64::from_str_radix(digits.unwrap_or(word), 16).ok()
        };
        let line = |line: &str| {
            let mut words = line.split('#').next()?.split_whitespace();
            let address = u32::try_from(hex(words.next()?)?).ok()?;
            Some((Msr(address), hex(words.next()?)?))
        };
        Allowlist(text.lines().filter_map(line).collect())
    }

    /// The write mask of a register; `None` where it is not listed.
    #[must_use]
    pub fn write_mask(&self, msr: Msr) -> Option<u64> {
        self.0.get(&msr).copied()
    }

    /// What the list lacks, each with the mask that its line must have: a bit
    /// that is allowed already stays so.
    #[must_use]
    pub fn missing(&self, needs: &[Need]) -> Vec<Need> {
        let lacks = |need: &Need| match self.write_mask(need.msr) {
            Some(mask) if need.write_mask & !mask == 0 => None,
            Some(mask) => Some(Need { msr: need.msr, write_mask: mask | need.write_mask }),
            None => Some(*need),
        };
        needs.iter().filter_map(lacks).collect()
    }
}
