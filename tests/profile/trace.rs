//! Two complete recordings compared branch by branch.

use std::io::Cursor;
use std::sync::Arc;

use lbr_msr::record::{BranchEntry, BranchType, Event, Integrity};
use profile::perf_data::Meta;
use profile::trace::{Files, Follower, Parting, Survey, Traced, Unfit};
use profile::{Recording, Selection};

use crate::recorded::{BASE, entry, exact, map, meta, sample, stream};

type Branch = (u64, u64);

/// A thread's branches in a file mapped at `base`, two in each stack, between those of another
/// thread.
fn recorded(base: u64, branches: &[Branch]) -> Vec<u8> {
    let of = |&(from, to): &Branch| BranchEntry {
        branch_type: Some(BranchType::COND),
        ..entry(base + from, base + to)
    };
    let mut events = vec![map("/nowhere/prog", base, 0x1000, 0)];
    for stack in branches.chunks(2) {
        events.push(sample(2000, stack.iter().rev().map(of).collect(), exact()));
        let mut other = sample(2000, vec![of(&(0x900, 0x910))], exact());
        if let Event::Sample(sample) = &mut other {
            sample.tid = 102;
        }
        events.push(other);
    }
    stream(meta(), &events)
}

fn open(bytes: &[u8]) -> Recording {
    Recording::from_stream(Box::new(Cursor::new(bytes.to_vec()))).unwrap()
}

/// By hand. The first two rounds differ at the branch at 0x28: in the first, both go on to the
/// branch at 0x48, in the second to the code at 0x40. The third is the same. Then one ends.
#[test]
fn ways_part_and_meet() {
    const START: Branch = (0x10, 0x20);
    const TAKEN: Branch = (0x28, 0x40);
    const LATER: Branch = (0x34, 0x44);
    const DETOUR: [Branch; 2] = [(0x34, 0x80), (0x88, 0x40)];
    const BACK: Branch = (0x48, 0x10);
    let one = [[START, TAKEN, BACK]; 3].concat();
    let two =
        [&[START, LATER, BACK, START][..], &DETOUR, &[BACK, START, TAKEN, BACK, (0x14, 0x30)]]
            .concat();
    let bases = [BASE, BASE + 0x10_0000];
    let recordings = [recorded(bases[0], &one), recorded(bases[1], &two)];
    let [a, b] =
        recordings.each_ref().map(|bytes| Survey::read(&mut open(bytes)).unwrap().unwrap());
    let thread = (Some(100), Some(101));
    for survey in [&a, &b] {
        assert_eq!(survey.threads, [thread, (Some(100), Some(102))]);
        assert_eq!(survey.identity(0), "/nowhere/prog");
    }
    let files = Files::of([&a, &b]);
    let [mut a, mut b] =
        [0, 1].map(|side| Follower::new(open(&recordings[side]), thread, (&files, side), None));
    let traced = Traced::compare(&mut a, &mut b).unwrap();
    assert_eq!((traced.branches, traced.agreed), ([9, 11], 6));

    let way = |parting: &Parting, side: usize| {
        let way = parting.ways[side]?;
        Some((way.from.1 - bases[side], way.to.1 - bases[side]))
    };
    let [(parting, 2), (end, 1)] = &traced.partings[..] else { panic!("{traced:?}") };
    assert_eq!((parting.after, way(parting, 0), way(parting, 1)), (1, Some(TAKEN), Some(LATER)));
    assert_eq!(parting.site().map(|(side, branch)| (side, branch.from.1)), Some((0, BASE + 0x28)));
    assert_eq!([0, 1].map(|side| parting.takes(side)), [true, false]);
    let meet = parting.meet.unwrap();
    assert_eq!((meet.branches, meet.at.map(|at| at.1)), ([1, 1], bases.map(|base| base + 0x48)));
    assert_eq!((end.after, way(end, 0), way(end, 1)), (6, None, Some((0x14, 0x30))));
    assert_eq!(([0, 1].map(|side| end.takes(side)), end.meet), ([false, true], None));

    // The second round alone: the first way leads to the code, the second takes two branches.
    let recordings = [recorded(bases[0], &one[3..6]), recorded(bases[1], &two[3..7])];
    let [mut a, mut b] =
        [0, 1].map(|side| Follower::new(open(&recordings[side]), thread, (&files, side), None));
    let traced = Traced::compare(&mut a, &mut b).unwrap();
    let [(parting, 1)] = &traced.partings[..] else { panic!("{traced:?}") };
    let meet = parting.meet.unwrap();
    assert_eq!((meet.branches, meet.at.map(|at| at.1)), ([1, 2], bases.map(|base| base + 0x40)));
    assert_eq!((traced.branches, traced.agreed), ([3, 4], 2));
}

#[test]
fn only_complete_recordings_can_be_traced() {
    let stack = |integrity| sample(2000, vec![entry(BASE, BASE + 8)], integrity);
    let filtered = Meta { filter: "any_call,u".parse().unwrap(), ..meta() };
    for (bytes, unfit) in [
        (stream(meta(), &[sample(2000, vec![], exact())]), Unfit::Empty),
        (stream(filtered, &[stack(exact())]), Unfit::Filtered),
        (stream(meta(), &[stack(exact()), stack(Integrity::UNKNOWN)]), Unfit::Incomplete),
    ] {
        assert_eq!(Survey::read(&mut open(&bytes)).unwrap().err(), Some(unfit));
    }
    let mut selected = open(&recorded(BASE, &[(0, 8)]));
    selected.select(&Arc::new(Selection { tids: vec![101], ..Selection::default() })).unwrap();
    assert_eq!(Survey::read(&mut selected).unwrap().err(), Some(Unfit::Incomplete));
}
