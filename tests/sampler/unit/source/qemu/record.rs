use super::*;

#[test]
fn records_survive_encoding() {
    let mut records = vec![
        Record::Start { tid: u32::MAX, parent: 7 },
        Record::End,
        Record::Mapped { addr: 0x7fff_ffff_f000, len: 1 << 40 },
        Record::Exec,
        Record::ExecFailed,
        Record::Named,
        Record::Newest { count: 32, total: u64::MAX },
    ];
    let moved = |kind| Record::Moved { kind, from: 0x7fff_ffff_ffff, to: u64::MAX };
    records.extend(MOVES.map(moved));
    for record in records {
        assert_eq!(record.encode().map(Record::decode), Some(Ok(record)));
    }
    for class in CLASSES {
        for zero_length_call in [false, true] {
            let from = 0x7fff_ffff_ffff;
            let word = branch_word(from, class, zero_length_call);
            assert_eq!(word.and_then(branch), Some((from, class, zero_length_call)));
        }
    }
}

#[test]
fn model_results_survive_encoding_too() {
    for (to, cycles) in [(0x7fff_ffff_f123, 0), (0xffff_ffff_ff60_0000, 7), (0, 0xFFFF)] {
        for mispredicted in [false, true] {
            let (from, class) = (0x7fff_ffff_ffff, HwBranchType::RelCall);
            let word = branch_word(from, class, true).expect("a user address");
            let modelled = Modelled { mispredicted, cycles };
            let words = with_model([word, to], modelled);
            assert_eq!(branch(words[0]), Some((from, class, true)));
            assert_eq!(model_of(words), (to, modelled));
        }
    }
    let much = with_model([0, 0], Modelled { mispredicted: false, cycles: 1 << 20 });
    assert_eq!(model_of(much).1.cycles, 0xFFFF);
}

/// Tags by hand: the classes from 1 to 6, with 16 added for calls of the next instruction.
#[test]
fn wanted_branches_are_bits_by_tag() {
    assert_eq!(tags(|_, _| true), 0x7E_007E);
    assert_eq!(tags(|class, _| class != HwBranchType::Cond), 0x7C_007C);
    assert_eq!(tags(|class, zero| class == HwBranchType::RelCall && !zero), 1 << 5);
    assert_eq!(tags(|class, zero| class == HwBranchType::Ret && zero), 1 << 22);
    assert_eq!(tags(|_, _| false), 0);
}

#[test]
fn invalid_records_are_refused() {
    assert_eq!(Record::decode([0, 0]), Err(Corrupt));
    assert_eq!(Record::decode([7 << ADDRESS_BITS, 0]), Err(Corrupt), "one past the classes");
    assert_eq!(Record::decode([u64::MAX, 0]), Err(Corrupt));
    assert_eq!(branch_word(1 << 56, HwBranchType::Cond, false), None, "no user address");
    assert_eq!(branch_word(0, HwBranchType::Other, false), None, "a far branch");
}
