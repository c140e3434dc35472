//! One entry of a stack as text.

use lbr_msr::record::{BranchSpec, BranchType};

use super::digits;
use crate::stack::{EntryFlags, RawBranch};

/// The type of a name, `None` for a name that is not known.
#[must_use]
pub fn type_of_name(name: &str) -> Option<BranchType> {
    type_of(name.as_bytes())
}

/// One comparison, where asking every type for its name would take twenty.
pub(super) fn type_of(name: &[u8]) -> Option<BranchType> {
    let code = match name {
        b"COND" => 1,
        b"UNCOND" => 2,
        b"IND" => 3,
        b"CALL" => 4,
        b"IND_CALL" => 5,
        b"RET" => 6,
        b"SYSCALL" => 7,
        b"SYSRET" => 8,
        b"COND_CALL" => 9,
        b"COND_RET" => 10,
        b"ERET" => 11,
        b"IRQ" => 12,
        b"SERROR" => 13,
        b"NO_TX" => 14,
        b"FAULT_ALGN" => 16,
        b"FAULT_DATA" => 17,
        b"FAULT_INST" => 18,
        b"ARCH_1" => 19,
        b"ARCH_2" => 20,
        b"ARCH_3" => 21,
        b"ARCH_4" => 22,
        b"ARCH_5" => 23,
        _ => {
            let code = digits::decimal(name.strip_prefix(b"TYPE_")?)?;
            u8::try_from(code).ok().filter(|code| *code < 32)?
        }
    };
    Some(BranchType(code))
}

/// What is wrong with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// An address is no hexadecimal number of at most 64 bits.
    #[error("an address is not 0x and up to 16 hexadecimal digits")]
    Address,
    /// An end of a branch is no place, in an entry that has symbols.
    #[error("neither an address nor a symbol with its offset (main+0x1c) nor [unknown]")]
    NoPlace,
    /// An address that no CPU has, among symbols.
    #[error("an address that no CPU has")]
    Impossible,
    /// There is no second address.
    #[error("the second address is missing")]
    NoTarget,
    /// The prediction is not one of M, P, - with or without N.
    #[error("the prediction is none of M, P, -, MN, PN")]
    Prediction,
    /// The transaction field is not X or -.
    #[error("the transaction field is neither X nor -")]
    Transaction,
    /// The abort field is not A or -.
    #[error("the abort field is neither A nor -")]
    Abort,
    /// The cycles are no number.
    #[error("the cycles are not a decimal number")]
    Cycles,
    /// There are more fields than any perf prints, or a field count that none has.
    #[error("it has {0} fields; perf prints 2, 6, 7 or 8")]
    Fields(usize),
}

/// Reads the entry at the start of `text` and gives the rest behind it.
///
/// # Errors
/// What is wrong with it.
pub fn parse_entry(text: &[u8]) -> Result<(RawBranch, &[u8]), EntryError> {
    let (from, rest) = address(text)?;
    let rest = rest.strip_prefix(b"/").ok_or(EntryError::NoTarget)?;
    let (to, rest) = address(rest)?;
    let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
    let (fields, rest) = rest.split_at_checked(end).unwrap_or((rest, &[]));
    let flags = parse_flags(fields)?;
    Ok((RawBranch { from, to, flags }, rest))
}

/// A hexadecimal address and the path in parentheses that may follow it.
fn address(text: &[u8]) -> Result<(u64, &[u8]), EntryError> {
    let digits = text.strip_prefix(b"0x").ok_or(EntryError::Address)?;
    let (value, count) = digits::hex(digits);
    if !(1..=16).contains(&count) {
        return Err(EntryError::Address);
    }
    let rest = digits.get(count..).unwrap_or_default();
    match rest.strip_prefix(b"(") {
        None => Ok((value, rest)),
        Some(path) => Ok((value, behind_path(path)?)),
    }
}

/// What follows a path in parentheses: a path may hold pairs of them itself,
/// as `/usr/lib/x(deleted)` does.
fn behind_path(path: &[u8]) -> Result<&[u8], EntryError> {
    let mut open = 1;
    for (at, byte) in path.iter().enumerate() {
        match byte {
            b'(' => open += 1,
            b')' => open -= 1,
            _ => continue,
        }
        if open == 0 {
            return Ok(path.get(at + 1..).unwrap_or_default());
        }
    }
    Err(EntryError::Address)
}

pub(super) fn parse_flags(fields: &[u8]) -> Result<EntryFlags, EntryError> {
    let Some(fields) = fields.strip_prefix(b"/") else {
        return if fields.is_empty() { Ok(EntryFlags(0)) } else { Err(EntryError::Address) };
    };
    let mut parts = fields.split(|&b| b == b'/');
    let mut next = || parts.next();
    let count = || 2 + fields.split(|&b| b == b'/').count();
    let short = || EntryError::Fields(count());
    let mut word = match next().ok_or_else(short)? {
        b"P" => EntryFlags::PREDICTED,
        b"M" => EntryFlags::MISPREDICTED,
        b"-" => 0,
        b"PN" => EntryFlags::PREDICTED | EntryFlags::NOT_TAKEN,
        b"MN" => EntryFlags::MISPREDICTED | EntryFlags::NOT_TAKEN,
        b"N" | b"-N" => EntryFlags::NOT_TAKEN,
        _ => return Err(EntryError::Prediction),
    };
    match next().ok_or_else(short)? {
        b"X" => word |= EntryFlags::IN_TX,
        b"-" => {}
        _ => return Err(EntryError::Transaction),
    }
    match next().ok_or_else(short)? {
        b"A" => word |= EntryFlags::ABORT,
        b"-" => {}
        _ => return Err(EntryError::Abort),
    }
    let cycles = digits::decimal(next().ok_or_else(short)?).ok_or(EntryError::Cycles)?;
    let mut flags = EntryFlags(word).with_cycles(u32::try_from(cycles).unwrap_or(u32::MAX));
    if let Some(name) = next().filter(|name| !matches!(*name, b"" | b"-")) {
        // A name that we do not know is no type that we know.
        flags = flags.with_type(type_of(name));
    }
    if let Some(name) = next().filter(|name| !matches!(*name, b"" | b"-")) {
        let spec = (1..=3).filter_map(BranchSpec::from_code);
        flags = flags.with_spec(spec.into_iter().find(|s| s.name().as_bytes() == name));
    }
    if next().is_some() {
        return Err(EntryError::Fields(count()));
    }
    Ok(flags)
}
