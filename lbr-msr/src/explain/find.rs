//! Looks registers up by name or address.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};

use super::{CpuKey, ENTRIES, Entry, Location, Register, Variant, near};
use crate::{Msr, text::hex};

/// Why a register was not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// Unknown name.
    #[error("no register is called {name:?}{}", near::suggestion(.near))]
    NoSuchName {
        /// The name as given.
        name: String,
        /// Similar names, or names with the same words.
        near: Vec<String>,
    },
    /// Unknown name, but exactly one register has nearly all of its words in its names, CPUs or
    /// summary.
    #[error("no register is called {name:?}; did you mean {other}?")]
    OtherWords {
        /// The name as given.
        name: String,
        /// The manual's name.
        other: String,
    },
    /// The register exists, but its index is too high.
    #[error("there is no {name}; the highest index is {highest}")]
    NoSuchIndex {
        /// The name as given.
        name: String,
        /// The highest index on any CPU.
        highest: u32,
    },
    /// No branch-record register has this address.
    #[error("{address} is not the address of a branch-record register")]
    NoSuchAddress {
        /// The address.
        address: Msr,
    },
    /// The register exists, but not on this CPU.
    #[error("CPU {cpu} has no {name}; there is one for: {has}")]
    NotOnCpu {
        /// The name as given.
        name: String,
        /// The CPU.
        cpu: CpuKey,
        /// Which CPUs have it.
        has: String,
    },
    /// Unknown family and model.
    #[error(
        "nothing is known about the branch records of CPU {cpu}; omit the CPU for the layout of current ones"
    )]
    UnknownCpu {
        /// The CPU.
        cpu: CpuKey,
    },
}

/// Looks up a register on `cpu` by name (SDM, AMD or Arm; case, `MSR_` and `IA32_` do not matter)
/// or by address (hexadecimal, `0x` optional).
///
/// # Errors
/// [`FindError`]: unknown name, with suggestions; unknown address; not on this CPU; unknown CPU.
pub fn find(name_or_address: &str, cpu: Option<CpuKey>) -> Result<Register, FindError> {
    let asked = name_or_address.trim();
    let generation = match cpu {
        None => None,
        Some(cpu) => Some((cpu, cpu.generation().ok_or(FindError::UnknownCpu { cpu })?)),
    };
    let mut matches: Vec<Match> = named(asked).collect();
    if matches.is_empty() {
        let address = hex(asked).and_then(|value| u32::try_from(value).ok()).map(Msr);
        // A word such as "bad" is both hexadecimal and a possible typo: it is an address only with
        // `0x`, a leading digit, or a register at that address.
        let is_address = asked.starts_with("0x") || asked.starts_with(|c: char| c.is_ascii_digit());
        matches = address.into_iter().flat_map(addressed).collect();
        if let (true, true, Some(address)) = (matches.is_empty(), is_address, address) {
            return Err(FindError::NoSuchAddress { address });
        }
    }
    if let (true, Some(highest)) = (matches.is_empty(), highest_index(asked)) {
        return Err(FindError::NoSuchIndex { name: asked.to_string(), highest });
    }
    let chosen = matches.len() == 1 || generation.is_some();
    let found = matches.iter().find(|(_, variant, _)| match generation {
        Some((_, generation)) => variant.on.contains(&generation),
        None => true,
    });
    match (found, generation) {
        (Some((entry, on, index)), _) => Ok(Register { entry, on, index: *index, chosen }),
        (None, Some((cpu, _))) if !matches.is_empty() => {
            let mut has: Vec<&str> = matches.iter().map(|(_, variant, _)| variant.cpus).collect();
            has.dedup();
            Err(FindError::NotOnCpu { name: asked.to_string(), cpu, has: has.join("; ") })
        }
        _ => {
            let name = asked.to_string();
            let near = near::names(asked, ENTRIES.iter().flat_map(Entry::names));
            if !near.is_empty() {
                return Err(FindError::NoSuchName { name, near });
            }
            Err(match near::by_words(asked, everywhere()) {
                Ok(other) => FindError::OtherWords { name, other },
                Err(near) => FindError::NoSuchName { name, near },
            })
        }
    }
}

/// A register on some CPUs, and its index if it has one.
type Match = (&'static Entry, &'static Variant, Option<u32>);

/// All registers of all CPUs.
pub(super) fn everywhere() -> impl Iterator<Item = (&'static Entry, &'static Variant)> {
    ENTRIES.iter().flat_map(|entry| entry.variants.iter().map(move |variant| (entry, variant)))
}

/// The registers that match a name, with the index it gives.
fn named(name: &str) -> impl Iterator<Item = Match> {
    with_any_index(name).filter(|(_, variant, index)| match (variant.count(), index) {
        (Some(count), Some(index)) => *index < count,
        (count, index) => count.is_none() && index.is_none(),
    })
}

/// As [`named`], without checking the index.
fn with_any_index(name: &str) -> impl Iterator<Item = Match> {
    let asked = near::bare(&name.to_ascii_uppercase()).to_string();
    everywhere().filter_map(move |(entry, variant)| {
        let index = entry.names().find_map(|template| near::index_in(template, &asked))?;
        Some((entry, variant, index))
    })
}

/// The highest index of the registers that match a name except for its index.
fn highest_index(name: &str) -> Option<u32> {
    with_any_index(name).filter_map(|(_, variant, _)| variant.count()?.checked_sub(1)).max()
}

/// The registers at an address, with their index.
fn addressed(address: Msr) -> impl Iterator<Item = Match> {
    everywhere().filter_map(move |(entry, variant)| match variant.location {
        Location::At(msr) => (msr == address).then_some((entry, variant, None)),
        Location::Each { first, stride, count } => {
            let distance = address.0.checked_sub(first.0)?;
            let index = distance.checked_div(stride)?;
            (distance % stride == 0 && index < count).then_some((entry, variant, Some(index)))
        }
        Location::System(_) | Location::SystemEach { .. } => None,
    })
}
