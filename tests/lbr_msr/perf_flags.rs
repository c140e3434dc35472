//! The flags of a branch as the kernel lays them out: `perf_branch_entry` of Linux's perf_event.h.

use lbr_msr::record::{
    BranchEntry, BranchSpec, BranchType, EntryFlags, HwBranchType, RawBranch, SourceKnowledge,
};

#[test]
fn a_branch_with_neither_bit_has_no_prediction() {
    let predictions = [0, 1, 2, 3].map(|word| EntryFlags(word).mispredicted());
    assert_eq!(predictions, [None, Some(true), Some(false), Some(true)]);
}

#[test]
fn what_a_source_does_not_know_is_absent() {
    let entry = BranchEntry {
        from: 1,
        mispredicted: Some(false),
        cycles: Some(0),
        cycles_saturated: Some(false),
        ..BranchEntry::default()
    };
    assert_eq!(SourceKnowledge::HARDWARE.mask(entry), entry);
    assert_eq!(SourceKnowledge::MODELLED.mask(entry), entry);
    let bare = BranchEntry { from: 1, ..BranchEntry::default() };
    assert_eq!(SourceKnowledge::USER_BRANCHES.mask(entry), bare);
}

#[test]
fn a_branch_that_was_not_taken_has_bit_33() {
    assert!(EntryFlags(1 << 33).not_taken() && !EntryFlags(!(1 << 33)).not_taken());
}

/// 16 bits of cycles from bit 4 up. 0 is unknown, and the maximum may have been more.
#[test]
fn cycles_saturate_and_leave_the_other_bits() {
    let all = EntryFlags(!0);
    assert_eq!(all.with_cycles(0).0, !0xF_FFF0);
    assert_eq!(all.with_cycles(0).cycles(), None);
    assert_eq!(EntryFlags(2).with_cycles(0x1_0001).0, 0xF_FFF2);
    let decoded = [0xFFFE, 0xFFFF].map(|cycles| {
        RawBranch { from: 1, to: 2, flags: EntryFlags(cycles << 4) }.decode(false).cycles_saturated
    });
    assert_eq!(decoded, [Some(false), Some(true)]);
}

/// Bits 2 and 3. A clear bit says something only if the CPU has transactions.
#[test]
fn transactions_are_known_by_their_bits_or_by_the_cpu() {
    let decode = |word, tsx_known| {
        let raw = RawBranch { from: 1, to: 2, flags: EntryFlags(word) };
        let entry = raw.decode(tsx_known);
        (entry.in_tx, entry.abort)
    };
    assert_eq!(decode(0, false), (None, None));
    assert_eq!(decode(0, true), (Some(false), Some(false)));
    for tsx_known in [false, true] {
        assert_eq!(decode(1 << 2 | 1 << 3, tsx_known), (Some(true), Some(true)));
    }
    let word = |in_tx, abort| {
        EntryFlags::of(&BranchEntry { in_tx, abort, ..BranchEntry::default() }, true).0
    };
    assert_eq!((word(Some(true), Some(false)), word(None, Some(true))), (1 << 2, 1 << 3));
}

/// Bits 23:20 are the type, 25:24 the speculation, 29:26 the type if bits 23:20 are 15.
#[test]
fn a_type_replaces_the_one_before() {
    let extended = EntryFlags(0).with_type(Some(BranchType(BranchType::NEW_BASE + 15)));
    assert_eq!(extended.0, 15 << 20 | 15 << 26);
    assert_eq!(extended.branch_type(), Some(BranchType(31)));
    assert_eq!(extended.with_type(Some(BranchType::IRQ)).0, 12 << 20);
    assert_eq!(EntryFlags(!0).with_type(None).0, !(0xF << 20 | 0xF << 26));
    assert_eq!(EntryFlags(!0).with_spec(Some(BranchSpec::WrongPath)).0, !(2 << 24));
}

/// PERF_BR_* and PERF_BR_NEW_* of Linux's perf_event.h, with the names that perf prints.
#[test]
fn types_have_the_kernels_numbers() {
    let types = [
        (BranchType::COND, 1, "COND"),
        (BranchType::UNCOND, 2, "UNCOND"),
        (BranchType::IND, 3, "IND"),
        (BranchType::CALL, 4, "CALL"),
        (BranchType::IND_CALL, 5, "IND_CALL"),
        (BranchType::RET, 6, "RET"),
        (BranchType::SYSCALL, 7, "SYSCALL"),
        (BranchType::SYSRET, 8, "SYSRET"),
        (BranchType::COND_CALL, 9, "COND_CALL"),
        (BranchType::COND_RET, 10, "COND_RET"),
        (BranchType::ERET, 11, "ERET"),
        (BranchType::IRQ, 12, "IRQ"),
        (BranchType::SERROR, 13, "SERROR"),
        (BranchType::NO_TX, 14, "NO_TX"),
    ];
    for (branch_type, number, name) in types {
        assert_eq!((branch_type.0, branch_type.name()), (number, Some(name)));
    }
    let new = ["FAULT_ALGN", "FAULT_DATA", "FAULT_INST", "ARCH_1"];
    for (number, name) in (16..).zip(new) {
        assert_eq!(BranchType(number).name(), Some(name));
    }
    assert_eq!([0, 15, 24].map(|number| BranchType(number).name()), [None; 3]);
}

/// A classified type is finer than the CPU's.
#[test]
fn a_classified_type_comes_before_the_cpus() {
    let entry = BranchEntry {
        mispredicted: Some(false),
        abort: Some(true),
        hw_type: Some(HwBranchType::Cond),
        branch_type: Some(BranchType::SYSCALL),
        ..BranchEntry::default()
    };
    assert_eq!(EntryFlags::of(&entry, true).0, 2 | 8 | 7 << 20);
    assert_eq!(EntryFlags::of(&entry, false).0, 2 | 8);
    let by_cpu = BranchEntry { branch_type: None, ..entry };
    assert_eq!(EntryFlags::of(&by_cpu, true).branch_type(), Some(BranchType::COND));
}

#[test]
fn an_entry_with_one_address_is_not_empty() {
    let empty = |from, to| RawBranch { from, to, flags: EntryFlags(0) }.is_empty();
    assert_eq!([empty(0, 0), empty(0, 1), empty(1, 0)], [true, false, false]);
}
