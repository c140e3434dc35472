use proptest::prelude::*;

use super::{WINDOW, common};
use crate::read::brstack::parse_entry;
use crate::read::stack::RawBranch;

/// Parses a text, with padding after it.
fn quickly(text: &[u8]) -> (usize, Vec<RawBranch>) {
    let mut padded = text.to_vec();
    // The padding must not matter: it looks like an entry.
    padded.extend_from_slice(b"\n");
    padded.extend(b"  0x1/0x2/P/-/-/3/COND/-".repeat(WINDOW / 10));
    let mut into = Vec::new();
    let len = common(&padded, &mut into);
    (len, into)
}

/// The same bytes parsed by the general parser.
fn generally(text: &[u8]) -> Option<Vec<RawBranch>> {
    let mut branches = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (branch, after) = parse_entry(rest).ok()?;
        branches.push(branch);
        rest = after.trim_ascii_start();
    }
    Some(branches)
}

/// Checks that it agrees with the general parser.
fn check(text: &[u8]) -> Result<(), TestCaseError> {
    let (len, branches) = quickly(text);
    prop_assert!(len <= text.len(), "read past the end of the line");
    let after = text.get(len).filter(|_| len > 0);
    prop_assert!(after.is_none_or(u8::is_ascii_whitespace));
    prop_assert_eq!(Some(branches), generally(&text[..len]));
    Ok(())
}

/// Parts of entries, valid and invalid, in any order.
fn parts() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        "0x[0-9a-fA-F]{0,18}",
        "/[MP-]?N?/[X-]/[A-]/",
        Just("/P/-/-/".to_owned()),
        "[0-9]{0,10}",
        Just("/".to_owned()),
        Just("/-".to_owned()),
        Just(" ".to_owned()),
        Just("  ".to_owned()),
        Just("\t".to_owned()),
        Just("\r".to_owned()),
        "(COND|UNCOND|IND|CALL|IND_CALL|RET|SYSCALL|TYPE_[0-9]{1,2}|COND_RET|X)",
        "(NON_SPEC_CORRECT_PATH|SPEC_WRONG_PATH|SPEC_CORRECT_PATH)",
        "\\(/[a-z() ]{0,6}\\)",
        "[ -~]{0,3}",
    ];
    proptest::collection::vec(field, 0..10).prop_map(|parts| parts.concat())
}

const TYPES: &str = "(COND|UNCOND|IND|CALL|IND_CALL|RET|SYSCALL|SYSRET|COND_CALL|COND_RET\
                     |ERET|IRQ|SERROR|NO_TX|FAULT_DATA|ARCH_[1-5]|)";

/// An entry as perf prints it.
fn printed() -> impl Strategy<Value = String> {
    let address = "0x([0-9a-f]{1,16}|7f[0-9a-f]{10}|ffffffff[0-9a-f]{8})";
    let types = format!("(/{TYPES}(/(-|NON_SPEC_CORRECT_PATH|SPEC_(WRONG|CORRECT)_PATH|))?)?");
    let flags = format!("/[MP-]/-/-/([0-9]{{1,2}}|[0-9]{{1,7}}|0){types}");
    let flags = proptest::string::string_regex(&flags).expect("an expression");
    (address, address, flags).prop_map(|(from, to, flags)| format!("{from}/{to}{flags}"))
}

/// Several of them, with spaces in between.
fn line() -> impl Strategy<Value = String> {
    let part = (prop_oneof![9 => printed(), 1 => parts()], "(  | |   |\t| \r)");
    proptest::collection::vec(part, 1..6)
        .prop_map(|parts| parts.into_iter().map(|(entry, blank)| entry + &blank).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The fast parser agrees with the general one, for any truncation.
    #[test]
    fn common_entries_are_read_the_same(text in prop_oneof![parts(), line()], cut in 0usize..200) {
        check(text.as_bytes())?;
        check(&text.as_bytes()[..cut.min(text.len())])?;
    }

    /// Also for randomly changed bytes.
    #[test]
    fn damaged_entries_are_read_the_same(
        text in line(),
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut text = text.into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        check(&text)?;
    }
}

/// Every byte value in every position of an entry, and before it.
#[test]
fn every_byte_everywhere_is_read_the_same() {
    for entry in [
        &b"0x55555588229a/0xffffffff9c00ab1f/P/-/-/31/IND_CALL/-  0x1/0x2/M/-/-/7"[..],
        b"0x1/0xfedcba9876543210/-/-/-/1234567//SPEC_WRONG_PATH 0x1/0x2/M/-/-/7/RET/-",
    ] {
        for at in 0..entry.len() {
            for byte in 0..=255 {
                let mut replaced = entry.to_vec();
                replaced[at] = byte;
                let mut inserted = entry.to_vec();
                inserted.insert(at, byte);
                for text in [replaced, inserted] {
                    if let Err(error) = check(&text) {
                        panic!("{}: {error}", text.escape_ascii());
                    }
                }
            }
        }
    }
}

/// The usual output of perf is parsed this way, to its end.
#[test]
fn what_perf_prints_is_common() {
    for (text, count) in [
        ("0x55555588229a/0x55555588286e/P/-/-/3/COND/-", 1),
        ("0xffffffff9c00ab1f/0x7ffe0001/M/-/-/0//-  0x1/0x2/P/-/-/0", 2),
        ("0x401000/0x401010/-/-/-/65535 0x1/0x2/P/-/-/0/ 0x1/0x2/P/-/-/0//", 3),
        ("0x401000/0x401010/P/-/-/1/RET", 1),
        ("0x1/0x2/P/-/-/0/CALL/NON_SPEC_CORRECT_PATH  0x3/0x4/P/-/-/0/SYSRET/SPEC_WRONG_PATH", 2),
        ("0xffffffffffffffff/0xffffffffffffffff/P/-/-/9999999/IND_CALL/SPEC_CORRECT_PATH", 1),
    ] {
        let (len, branches) = quickly(text.as_bytes());
        assert_eq!((len, branches.len()), (text.len(), count), "{text}");
    }
}
