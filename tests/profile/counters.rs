//! Branch counters, in both byte orders.

use std::io::Cursor;

use profile::export::{EdgeCounts, EdgeRow};
use profile::flow::FlowCounter;
use profile::{Counter, HotTable, Item, Recording};

use crate::reader::Crafted;
use crate::support::decoded::sample_of;

const BRANCH_STACK: u64 = 1 << 11;
const ANY: u64 = 8;
const COUNTERS: u64 = 1 << 19;

fn open(file: &Crafted) -> Recording {
    Recording::from_stream(Box::new(Cursor::new(file.bytes.clone()))).unwrap()
}

/// Two events are counted. The word of a branch has two bits for each, the lowest for the first;
/// the third counter has no event.
#[test]
fn counters_are_passed_on_and_summed() {
    for big in [false, true] {
        let mut file = Crafted::new(big);
        file.attr(128, 0x10000 | BRANCH_STACK, 0, ANY | COUNTERS, &[1]);
        file.attr(128, 0x10000 | BRANCH_STACK, 0, ANY | COUNTERS, &[2]);
        file.sample(&[1, 2, 0x10, 0x20, 0, 0x30, 0x40, 0, 0b1101, 0b10_0010]);
        file.sample(&[1, 1, 0x10, 0x20, 0, 0b0111]);
        let mut recording = open(&file);
        let Some(Item::Stack(stack)) = recording.next_item().unwrap() else { panic!() };
        let counters = stack.counters.unwrap();
        assert_eq!(counters.get(0), Some([Some(1), Some(3), None, None]));
        assert_eq!(counters.get(1), Some([Some(2), Some(0), None, None]));
        assert_eq!(counters.get(2), None);
        let entries = sample_of(&stack).stack.entries;
        assert_eq!(entries[1].counters, counters.get(1));
        let table = HotTable::count(&mut open(&file), |_, _| {}).unwrap();
        let of = |from: u64| table.branches.iter().find(|b| b.from == from).unwrap();
        assert_eq!(of(0x10).counters.as_deref(), Some(&[Some(4), Some(4), None, None]));
        assert_eq!(of(0x30).counters.as_deref(), Some(&[Some(2), Some(0), None, None]));
        let mut counter = Counter::of(EdgeCounts::default());
        let mut recording = open(&file);
        counter.recording(&mut recording, |_, _| {}).unwrap();
        let mut rows = Vec::new();
        let all = counter.finish().each(
            |_| EdgeRow::default(),
            |row| {
                rows.push((row.from_offset, row.events_a, row.events_b, row.events_c));
                Ok::<_, std::convert::Infallible>(())
            },
        );
        assert!(all.is_ok());
        let wanted = [(0x10, Some(4), Some(4)), (0x30, Some(2), Some(0))];
        assert_eq!(rows, wanted.map(|(from, a, b)| (Some(from), a, b, None)));
        // The block from 0x40 to the newer branch at 0x10 would run backwards: none counts.
        let flow = FlowCounter::default().count(&mut open(&file), |_, _| {}).unwrap();
        assert!(flow.blocks.is_empty());
    }
}

/// Counts belong to an entry's position in the stack, from which an empty entry is dropped.
#[test]
fn an_empty_entry_shifts_no_counts() {
    let mut file = Crafted::new(false);
    file.attr(128, 0x10000 | BRANCH_STACK, 0, ANY | COUNTERS, &[1]);
    file.sample(&[1, 3, 0x10, 0x20, 0, 0, 0, 0, 0x30, 0x40, 0, 1, 2, 3]);
    let table = HotTable::count(&mut open(&file), |_, _| {}).unwrap();
    let counts = table.branches.iter().map(|b| (b.from, b.counters.as_deref().copied()));
    let of = |count| Some([Some(count), None, None, None]);
    assert_eq!(counts.collect::<Vec<_>>(), [(0x10, of(1)), (0x30, of(3))]);
    // Nor those of a later stack without such an entry.
    file.sample(&[1, 2, 0x50, 0x60, 0, 0x70, 0x80, 0, 2, 1]);
    let table = HotTable::count(&mut open(&file), |_, _| {}).unwrap();
    let later = table.branches.iter().find(|branch| branch.from == 0x70).unwrap();
    assert_eq!(later.counters.as_deref().copied(), of(1));
}

/// The leader of a group can have counts although its attribute does not announce them, and an
/// announced count can be missing: the actual data decides.
#[test]
fn present_counters_decide() {
    let mut file = Crafted::new(false);
    file.attr(128, 0x10000 | BRANCH_STACK, 0, ANY, &[1]);
    file.attr(128, 0x10000 | BRANCH_STACK, 0, ANY | COUNTERS, &[2]);
    file.sample(&[1, 1, 0x10, 0x20, 0, 2]);
    file.sample(&[2, 1, 0x30, 0x40, 0]);
    // Two words are not the counts of one branch.
    file.sample(&[1, 1, 0x50, 0x60, 0, 2, 2]);
    let mut recording = open(&file);
    let Some(Item::Stack(stack)) = recording.next_item().unwrap() else { panic!() };
    assert_eq!(stack.counters.unwrap().get(0), Some([Some(2), None, None, None]));
    let Some(Item::Stack(stack)) = recording.next_item().unwrap() else { panic!() };
    assert!(stack.counters.is_none());
    let Some(Item::Stack(stack)) = recording.next_item().unwrap() else { panic!() };
    assert!(stack.counters.is_none());
    let table = HotTable::count(&mut open(&file), |_, _| {}).unwrap();
    let without = table.branches.iter().find(|branch| branch.from == 0x30).unwrap();
    assert_eq!(without.counters, None);
}

/// The counts of a branch are those of the straight-line code before it.
#[test]
fn blocks_have_the_counts_of_the_branch_at_their_end() {
    let mut file = Crafted::new(false);
    file.attr(128, 0x10000 | BRANCH_STACK, 0, ANY | COUNTERS, &[1]);
    for counts in [2, 3] {
        file.sample(&[1, 2, 0x50, 0x20, 0, 0x30, 0x40, 0, counts, 1]);
    }
    let flow = FlowCounter::default().count(&mut open(&file), |_, _| {}).unwrap();
    let [block] = &*flow.blocks else { panic!("{:?}", flow.blocks) };
    assert_eq!((block.entry, block.exit, block.count), (0x40, 0x50, 2));
    assert_eq!(block.counters.as_deref(), Some(&[Some(5), None, None, None]));
    let mut file = Crafted::new(false);
    file.attr(128, 0x10000 | BRANCH_STACK, 0, ANY, &[1]);
    file.sample(&[1, 2, 0x50, 0x20, 0, 0x30, 0x40, 0]);
    let flow = FlowCounter::default().count(&mut open(&file), |_, _| {}).unwrap();
    assert_eq!((flow.blocks.len(), &flow.blocks[0].counters), (1, &None));
}
