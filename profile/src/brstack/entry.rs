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
    /// An address has symbols instead of a number.
    #[error("symbols in place of addresses (brstacksym); print it with -F brstack")]
    Symbolic,
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
#[inline]
pub fn parse_entry(text: &[u8]) -> Result<(RawBranch, &[u8]), EntryError> {
    match common(text) {
        Some(parsed) => Ok(parsed),
        None => general(text),
    }
}

/// Any entry.
#[inline(never)]
fn general(text: &[u8]) -> Result<(RawBranch, &[u8]), EntryError> {
    let (from, rest) = address(text)?;
    let rest = rest.strip_prefix(b"/").ok_or(EntryError::NoTarget)?;
    let (to, rest) = address(rest)?;
    let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
    let (fields, rest) = rest.split_at_checked(end).unwrap_or((rest, &[]));
    let flags = parse_flags(fields)?;
    Ok((RawBranch { from, to, flags }, rest))
}

/// Nearly every entry: no paths, no transactions, at most seven digits of
/// cycles. `None` for any other, which [`general`] reads; what both read is
/// the same.
#[inline(always)]
pub(super) fn common(text: &[u8]) -> Option<(RawBranch, &[u8])> {
    let (from, rest) = common_address(text)?;
    let (to, rest) = common_address(rest.strip_prefix(b"/")?)?;
    let (flags, rest) = common_flags(rest)?;
    Some((RawBranch { from, to, flags }, rest))
}

/// `0x` and up to 16 digits.
#[inline(always)]
fn common_address(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.strip_prefix(b"0x")?;
    let (value, count) = digits::hex(digits);
    if !(1..=16).contains(&count) {
        return None;
    }
    Some((value, digits.get(count..)?))
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

/// The flags of nearly every entry.
#[inline(always)]
fn common_flags(text: &[u8]) -> Option<(EntryFlags, &[u8])> {
    /// All but the prediction and what follows.
    const MASK: u64 = u64::from_le_bytes([0xFF, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0]);
    const SHAPE: u64 = u64::from_le_bytes([b'/', 0, b'/', b'-', b'/', b'-', b'/', 0]);
    let first = u64::from_le_bytes(*text.first_chunk::<8>()?);
    if first & MASK != SHAPE {
        return None;
    }
    let word = match (first >> 8) as u8 {
        b'P' => EntryFlags::PREDICTED,
        b'M' => EntryFlags::MISPREDICTED,
        b'-' => 0,
        _ => return None,
    };
    let rest = text.get(7..)?;
    let (cycles, count) = digits::decimal_7(digits::word(rest)).filter(|(_, count)| *count > 0)?;
    let flags = EntryFlags(word).with_cycles(cycles);
    let rest = rest.get(count..)?;
    let Some(rest) = rest.strip_prefix(b"/") else { return ended(flags, rest) };
    let (branch_type, len) = common_type(digits::word(rest))?;
    let flags = flags.with_type(branch_type);
    let rest = rest.get(len..)?;
    match *rest {
        [b'/', b'-', ref rest @ ..] => ended(flags, rest),
        _ => ended(flags, rest),
    }
}

/// The type that a word of text begins with, and the length of its name: 0
/// where the field is empty. `None` for the rarer names.
#[inline(always)]
fn common_type(word: u64) -> Option<(Option<BranchType>, usize)> {
    const fn name<const N: usize>(name: &[u8; N]) -> u64 {
        let mut bytes = [0; 8];
        let (to, _) = bytes.split_at_mut(N);
        to.copy_from_slice(name);
        u64::from_le_bytes(bytes)
    }
    const COND: u64 = name(b"COND");
    const UNCOND: u64 = name(b"UNCOND");
    const CALL: u64 = name(b"CALL");
    const RET: u64 = name(b"RET");
    const IND: u64 = name(b"IND");
    let first = |len: u32| word & (u64::MAX >> (64 - 8 * len));
    if matches!(word as u8, b'/' | b' ') {
        return Some((None, 0));
    }
    let (branch_type, len) = if first(4) == COND {
        (BranchType::COND, 4)
    } else if first(3) == RET {
        (BranchType::RET, 3)
    } else if first(4) == CALL {
        (BranchType::CALL, 4)
    } else if first(6) == UNCOND {
        (BranchType::UNCOND, 6)
    } else if first(3) == IND {
        (BranchType::IND, 3)
    } else {
        return None;
    };
    Some((Some(branch_type), len))
}

/// The flags, if the entry ends here.
#[inline(always)]
fn ended(flags: EntryFlags, rest: &[u8]) -> Option<(EntryFlags, &[u8])> {
    rest.first().is_none_or(u8::is_ascii_whitespace).then_some((flags, rest))
}

fn parse_flags(fields: &[u8]) -> Result<EntryFlags, EntryError> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{common, general};

    /// Parts of entries, sound and broken, in any order.
    fn parts() -> impl Strategy<Value = String> {
        let field = prop_oneof![
            "0x[0-9a-fA-F]{0,18}",
            "/[MP-]?N?/[X-]/[A-]/",
            Just("/P/-/-/".to_owned()),
            "[0-9]{0,10}",
            Just("/".to_owned()),
            Just("/-".to_owned()),
            Just(" ".to_owned()),
            Just("\t".to_owned()),
            "(COND|UNCOND|IND|CALL|IND_CALL|RET|SYSCALL|TYPE_[0-9]{1,2}|COND_RET|X)",
            "(NON_SPEC_CORRECT_PATH|SPEC_WRONG_PATH)",
            "\\(/[a-z() ]{0,6}\\)",
            "[ -~]{0,3}",
        ];
        proptest::collection::vec(field, 0..10).prop_map(|parts| parts.concat())
    }

    /// Entries that perf prints, and what follows them.
    fn printed() -> impl Strategy<Value = String> {
        let address = "0x[0-9a-f]{1,16}";
        let flags = "/[MP-]/-/-/[0-9]{1,7}(/(COND|UNCOND|IND|CALL|IND_CALL|RET|)(/-)?)?";
        (address, address, flags, "[ ]{0,2}[!-~]{0,20}")
            .prop_map(|(from, to, flags, rest)| format!("{from}/{to}{flags}{rest}"))
    }

    proptest! {
        /// The fast way reads what the general way reads, or leaves it to it.
        #[test]
        fn common_entries_are_read_the_same(text in prop_oneof![parts(), printed()], cut in 0usize..60) {
            let text = text.as_bytes();
            for text in [text, text.get(..cut).unwrap_or(text)] {
                if let Some(parsed) = common(text) {
                    prop_assert_eq!(Ok(parsed), general(text));
                }
            }
        }

        /// Bytes changed at random change nothing about that.
        #[test]
        fn damaged_entries_are_read_the_same(
            text in printed(),
            at in any::<proptest::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut text = text.into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            if let Some(parsed) = common(&text) {
                prop_assert_eq!(Ok(parsed), general(&text));
            }
        }
    }

    /// The fast way is taken by what perf prints on most machines.
    #[test]
    fn what_perf_prints_is_common() {
        for text in [
            "0x55555588229a/0x55555588286e/P/-/-/3/COND/-",
            "0xffffffff9c00ab1f/0x7ffe0001/M/-/-/0//-  0x1/0x2/P/-/-/0",
            "0x401000/0x401010/-/-/-/65535  ",
            "0x401000/0x401010/P/-/-/1/RET",
        ] {
            assert!(common(text.as_bytes()).is_some(), "{text}");
        }
    }
}
