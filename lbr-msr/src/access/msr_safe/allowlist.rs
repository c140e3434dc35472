//! The list of registers that msr-safe lets users read and write.

use alloc::{collections::BTreeMap, format, string::String, vec::Vec};

use crate::{address::Msr, arm::Need, text::hex};

/// The line of the list that allows `need`: address and write mask.
pub fn line(need: &Need) -> String {
    format!("{:#010x} {:#018x}", need.msr.0, need.write_mask)
}

/// The contents of `/dev/cpu/msr_allowlist`: a listed register is readable, and the bits in its
/// mask are writable. msr-safe README.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowlist(BTreeMap<Msr, u64>);

impl Allowlist {
    /// Parses the list: per line an address and a write mask in hexadecimal, then an optional
    /// comment after `#`. Lines of any other form are ignored.
    pub fn parse(text: &str) -> Allowlist {
        let line = |line: &str| {
            let mut words = line.split('#').next()?.split_whitespace();
            let address = u32::try_from(hex(words.next()?)?).ok()?;
            Some((Msr(address), hex(words.next()?)?))
        };
        Allowlist(text.lines().filter_map(line).collect())
    }

    /// A register's write mask; `None` if it is not listed.
    pub fn write_mask(&self, msr: Msr) -> Option<u64> {
        self.0.get(&msr).copied()
    }

    /// The needs that the list does not cover, each with the mask its line must have: the bits
    /// already allowed and the missing ones.
    pub fn missing(&self, needs: &[Need]) -> Vec<Need> {
        let lacks = |need: &Need| match self.write_mask(need.msr) {
            Some(mask) if need.write_mask & !mask == 0 => None,
            Some(mask) => Some(Need { msr: need.msr, write_mask: mask | need.write_mask }),
            None => Some(*need),
        };
        needs.iter().filter_map(lacks).collect()
    }
}
