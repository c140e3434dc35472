//! Control flow: outcomes, blocks, cycles, mispredictions.

use std::io::Cursor;

use lbr_msr::BranchFilter;
use lbr_msr::record::{
    BranchEntry, BranchType, Event, Head, Integrity, Label, Lost, MoveKind, ThreadMove,
};
use profile::basic::{Bound, Cuts};
use profile::cycles::Cycles;
use profile::flow::{Flow, FlowCounter, FlowCounts, Site, share_of};
use profile::maps::{Function, Location};
use profile::note::{Moves, Source};
use profile::perf_data::Meta;
use profile::{Entries, EntryFlags, RawBranch, Recording, SampleHead, Stack};

use crate::hot::in_process;
use crate::recorded::{entry, exact, map, meta, sample, stream};
use crate::support::random::Random;

const BASE: u64 = 0x40_0000;

pub(crate) fn count_as(meta: Meta, events: &[Event]) -> Flow {
    // Marked as recorded on this machine.
    let bytes = stream(Meta { hostname: None, osrelease: None, ..meta }, events);
    let mut recording = Recording::from_stream(Box::new(Cursor::new(bytes))).unwrap();
    FlowCounter::default().count(&mut recording, |_, _| {}).unwrap()
}

pub(crate) fn count(events: &[Event]) -> Flow {
    count_as(meta(), events)
}

pub(crate) fn text(text: &str) -> Flow {
    let stream = Box::new(Cursor::new(text.as_bytes().to_vec()));
    FlowCounter::default().count(&mut Recording::from_stream(stream).unwrap(), |_, _| {}).unwrap()
}

/// An ELF file of one executable segment at [`BASE`], written by hand.
pub(crate) fn elf(code: &[u8]) -> (tempfile::TempDir, String) {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let mut put = |bytes: &[u8]| file.extend_from_slice(bytes);
    for half in [2u16, 62] {
        put(&half.to_le_bytes());
    }
    put(&1u32.to_le_bytes());
    for word in [BASE + 0x1000, 64, 0] {
        put(&word.to_le_bytes());
    }
    put(&0u32.to_le_bytes());
    for half in [64u16, 56, 1, 64, 0, 0] {
        put(&half.to_le_bytes());
    }
    // PT_LOAD, readable and executable.
    put(&1u32.to_le_bytes());
    put(&5u32.to_le_bytes());
    let len = code.len() as u64;
    for word in [0x1000, BASE + 0x1000, BASE + 0x1000, len, len, 0x1000] {
        put(&word.to_le_bytes());
    }
    file.resize(0x1000, 0);
    file.extend_from_slice(code);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    std::fs::write(&path, file).unwrap();
    (dir, path.to_str().unwrap().to_owned())
}

/// ```text
/// 0: jne 4    2: nop nop    4: je 8    6: nop nop    8: jmp 0    a: jmp *%rax
/// c: cmp %eax,%eax    e: jne 0
/// ```
pub(crate) const CODE: &[u8] = &[
    0x75, 0x02, 0x90, 0x90, 0x74, 0x02, 0x90, 0x90, 0xEB, 0xF6, 0xFF, 0xE0, 0x39, 0xC0, 0x75, 0xF0,
];
/// Its mapped address.
pub(crate) const AT: u64 = 0x7000_0000_0000;

pub(crate) fn at(offset: u64) -> u64 {
    AT + offset
}

/// Oldest first, as people write it.
pub(crate) fn ran(time: u64, branches: &[(u64, u64)]) -> Event {
    let entries = branches.iter().rev().map(|&(from, to)| entry(at(from), at(to))).collect();
    sample(time, entries, exact())
}

fn site(flow: &Flow, offset: u64) -> &Site {
    flow.sites.iter().find(|site| site.from == at(offset)).unwrap()
}

fn outcome(flow: &Flow, offset: u64) -> (u64, Option<u64>) {
    let site = site(flow, offset);
    (site.taken, site.not_taken)
}

#[test]
fn untaken_branches_are_found_in_the_code() {
    let (_dir, path) = elf(CODE);
    let mapped = map(&path, AT, 0x1000, 0x1000);
    // Both taken; neither taken; the first not taken and the second taken.
    let flow =
        count(&[mapped.clone(), ran(1, &[(8, 0), (0, 4), (4, 8), (8, 0), (8, 0), (4, 8), (8, 0)])]);
    assert_eq!(outcome(&flow, 0), (1, Some(2)));
    assert_eq!(outcome(&flow, 4), (2, Some(1)));
    // All in one stack.
    let outcomes = site(&flow, 0).outcomes();
    assert_eq!((outcomes.stacks, outcomes.xx, outcomes.xy, outcomes.yy), (1, 9, 3, 1));
    assert_eq!(outcome(&flow, 8), (4, Some(0)));
    assert_eq!(site(&flow, 0).conditional, Some(true));
    assert_eq!(site(&flow, 8).conditional, Some(false));
    assert_eq!(site(&flow, 0).branch_type, Some(BranchType::COND));
    assert!(flow.is_complete());

    // A branch that was never taken is included.
    let flow = count(&[mapped, ran(1, &[(8, 0), (8, 0)])]);
    assert_eq!((outcome(&flow, 0), outcome(&flow, 4)), ((0, Some(1)), (0, Some(1))));
    assert_eq!(flow.taken, 2);
}

/// A partial analysis has the same results as the whole.
#[test]
fn sites_and_blocks_are_the_same_when_counted_separately() {
    let (_dir, path) = elf(CODE);
    let timed = |from, to, cycles| BranchEntry {
        cycles: Some(cycles),
        mispredicted: Some(cycles == 9),
        ..entry(at(from), at(to))
    };
    let mapped = map(&path, AT, 0x1000, 0x1000);
    let first = [timed(8, 0, 9), timed(0, 4, 3), timed(4, 8, 0xFFFF), timed(8, 0, 5)];
    let second = [timed(8, 0, 4), timed(8, 0, 9), timed(4, 8, 0xFFFF), timed(8, 0, 5)];
    let mut events = vec![mapped];
    events.extend(
        [first, second].iter().zip(1..).map(|(branches, time)| {
            sample(time, branches.iter().rev().cloned().collect(), exact())
        }),
    );
    let bytes = stream(meta(), &events);
    let finished = |mut counter: FlowCounter| {
        let mut recording = Recording::from_stream(Box::new(Cursor::new(bytes.clone()))).unwrap();
        counter.recording(&mut recording, |_, _| {}).unwrap();
        counter.finish()
    };
    let whole = finished(FlowCounter::default());
    let (sites, blocks) = (
        finished(FlowCounter::of(FlowCounts::without_blocks())),
        finished(FlowCounter::of(FlowCounts::without_sites())),
    );
    assert_eq!(sites.sites, whole.sites);
    // Not taken in the block between the two stacks, in the next one, and (the first) on the way to
    // the last.
    assert_eq!(outcome(&sites, 0), (1, Some(3)));
    assert_eq!(outcome(&sites, 4), (2, Some(2)));
    assert_eq!(blocks.blocks, whole.blocks);
    assert!(sites.blocks.is_empty() && blocks.sites.is_empty());
    for flow in [&whole, &sites, &blocks] {
        assert_eq!((flow.taken, flow.distinct, flow.known, flow.mispredicted), (8, 3, 8, Some(2)));
        // One for each branch except the first.
        assert_eq!(flow.block_quality.blocks, 7);
    }
}

#[test]
fn without_code_outcomes_are_unknown() {
    let typed =
        |from, to| BranchEntry { branch_type: Some(BranchType::COND), ..entry(at(from), at(to)) };
    let flow = count(&[sample(1, vec![typed(8, 0), typed(8, 0)], exact())]);
    let site = site(&flow, 8);
    assert_eq!((site.taken, site.not_taken, site.conditional), (2, None, Some(true)));
    assert_eq!(flow.block_quality.without_code, 1);
    let [block] = &*flow.blocks else { panic!() };
    assert_eq!((block.entry, block.exit, block.count, block.decoded), (at(0), at(8), 1, false));
}

/// A branch from a `nop` contradicts the file. Three of them prove that it is another one if at
/// most half as many branches match, eight if at most three times as many do.
#[test]
fn few_contradictions_prove_nothing() {
    // 25 jumps to the next instruction, and nops.
    let code = [[0xEB, 0].repeat(25), vec![0x90; 14]].concat();
    let (_dir, path) = elf(&code);
    let is_other = |right: u64, wrong: u64, wrong_type: BranchType| {
        let jumps = (0..right).map(|n| (2 * n, 2 * n + 2, BranchType::UNCOND));
        let wrong = (0..wrong).map(|n| (50 + n, 0x100 + n, wrong_type));
        let typed = |(from, to, branch_type)| BranchEntry {
            branch_type: Some(branch_type),
            ..entry(at(from), at(to))
        };
        let entries: Vec<BranchEntry> = jumps.chain(wrong).map(typed).collect();
        let newest_first = entries.into_iter().rev().collect();
        let events = [map(&path, AT, 0x1000, 0x1000), sample(1, newest_first, exact())];
        count(&events).maps.failures().count() > 0
    };
    for (right, wrong, other) in [
        (0, 2, false),
        (0, 3, true),
        (1, 3, true),
        (2, 3, false),
        (24, 7, false),
        (24, 8, true),
        (25, 8, false),
    ] {
        assert_eq!(is_other(right, wrong, BranchType::UNCOND), other, "{right} {wrong}");
    }
    // Interrupts occur at any instruction.
    assert!(!is_other(0, 10, BranchType::IRQ) && !is_other(0, 10, BranchType::SERROR));
}

/// In a recording of user code, the kernel returns from a system call, and from `int`, without a
/// record. Some CPUs do not record a call of the next instruction.
#[test]
fn blocks_span_calls_without_a_record() {
    for call in [&[0x0F, 0x05][..], &[0xCD, 0x80], &[0xE8, 0, 0, 0, 0]] {
        // nop    call    nop    jmp 0
        let exit = call.len() as u8 + 2;
        let back = 0u8.wrapping_sub(exit + 2);
        let (_dir, path) = elf(&[&[0x90], call, &[0x90, 0xEB, back]].concat());
        let exit = u64::from(exit);
        let flow = count(&[map(&path, AT, 0x1000, 0x1000), ran(1, &[(exit, 0), (exit, 0)])]);
        let blocks: Vec<_> =
            flow.blocks.iter().map(|b| (b.entry, b.exit, b.decoded, b.contradicted)).collect();
        assert_eq!(blocks, [(at(0), at(exit), true, false)], "{call:x?}");
    }
}

/// Later branches, from three `nop`s, show that the file is another one: what its code said of the
/// earlier ones is discarded.
#[test]
fn the_code_of_another_file_is_discarded() {
    let (_dir, path) = elf(CODE);
    let wrong = |from, to| sample(2, vec![entry(at(from), at(to))], Integrity::UNKNOWN);
    let events = [
        map(&path, AT, 0x1000, 0x1000),
        ran(1, &[(8, 0), (8, 0)]),
        wrong(2, 0x100),
        wrong(3, 0x101),
        wrong(6, 0x102),
    ];
    for (events, places, not_taken, decoded) in
        [(&events[..2], vec![8, 0, 4], Some(0), true), (&events, vec![8, 2, 3, 6], None, false)]
    {
        let flow = count(events);
        assert_eq!(flow.maps.failures().count(), usize::from(!decoded));
        let found: Vec<_> = flow.sites.iter().map(|site| site.from - AT).collect();
        assert_eq!((found, outcome(&flow, 8)), (places, (2, not_taken)));
        assert_eq!(site(&flow, 8).branch_type.is_some(), decoded);
        assert_eq!(flow.blocks.iter().map(|block| block.decoded).collect::<Vec<_>>(), [decoded]);
        assert_eq!(flow.block_quality.without_code, u64::from(!decoded));
    }
}

/// A block from 0x10 to a branch at 0x20 has a byte of a function that starts there, and none of one
/// that ends at its start.
#[test]
fn the_share_of_a_function() {
    let flow = count(&[map("/nowhere/prog", AT, 0x1000, 0), ran(1, &[(8, 0x10), (0x20, 0x40)])]);
    let file = flow.blocks[0].entry_location.file().unwrap();
    for (offsets, share) in [(0..0x10, 0.0), (0..0x11, 1.0), (0x20..0x30, 1.0), (0x21..0x30, 0.0)] {
        let function = Function { name: "f".to_owned(), file, offsets, address: 0 };
        assert_eq!(share_of(&flow.blocks, &function), share, "{function:?}");
    }
    let outside = count(&[ran(1, &[(8, 0x10), (0x20, 0x40)])]);
    let function = Function { name: "f".to_owned(), file, offsets: 0..0x1000, address: 0 };
    assert_eq!((outside.blocks.len(), share_of(&outside.blocks, &function)), (1, 0.0));
}

/// By hand, the instructions of [`CODE`] up to the jump at 8, which is the seventh.
#[test]
fn the_length_of_straight_line_code() {
    let (_dir, path) = elf(CODE);
    let mut maps = count(&[map(&path, AT, 0x1000, 0x1000), ran(1, &[(8, 0)])]).maps;
    let space = maps.space(Some(100));
    let mut length = |entry, exit| maps.straight_line(space, at(entry), at(exit));
    assert_eq!([length(0, 8), length(8, 8)], [Some(7), Some(1)]);
    // In an instruction; backwards.
    assert_eq!([length(0, 5), length(8, 0)], [None, None]);
    // Instructions of 8 bytes, up to the longest block, 1 MiB, and beyond.
    let nops = [0x0F, 0x1F, 0x84, 0, 0, 0, 0, 0].repeat((1 << 17) + 2);
    let (_dir, path) = elf(&nops);
    let mut maps = count(&[map(&path, AT, 0x20_0000, 0x1000), ran(1, &[(8, 0)])]).maps;
    let space = maps.space(Some(100));
    let lengths = [1 << 20, (1 << 20) + 8].map(|end| maps.straight_line(space, AT, AT + end));
    assert_eq!(lengths, [Some((1 << 17) + 1), None]);
}

/// By hand: of the second stack, only the branch at 4 is both taken and passed. Blocks without code
/// pass nothing.
#[test]
fn outcomes_of_one_stack_belong_together() {
    let (_dir, path) = elf(CODE);
    let beyond = [(8, 0x2000), (0x2010, 0x2020), (0x2030, 0x2040)];
    let once = [(0x2050, 4), (8, 0x2010), (0x2010, 4), (4, 8)];
    let flow = count(&[map(&path, AT, 0x1000, 0x1000), ran(1, &beyond), ran(2, &once)]);
    assert_eq!(outcome(&flow, 4), (1, Some(1)));
    let outcomes = site(&flow, 4).outcomes();
    assert_eq!((outcomes.stacks, outcomes.xx, outcomes.xy, outcomes.yy), (1, 4, 2, 1));
    // Without code, neither outcome is counted.
    assert_eq!(site(&flow, 0x2030).outcomes().ratio(), None);
}

/// By hand: after the last branch, the code from 0 on ran to the jump at 8 at most.
#[test]
fn branches_after_the_last_one_may_have_been_passed() {
    let (_dir, path) = elf(CODE);
    let flow = count(&[map(&path, AT, 0x1000, 0x1000), ran(1, &[(8, 0), (8, 0)])]);
    let unsure = [0, 4, 8].map(|offset| site(&flow, offset).unsure);
    assert_eq!(unsure, [1, 1, 0]);
}

/// Blocks that cannot have run do not count for their branches.
#[test]
fn contradictions_are_counted() {
    let (_dir, path) = elf(CODE);
    // From 6 to a: the jump at 8 is between. From 0 to 5: between two instructions.
    let flow = count(&[map(&path, AT, 0x1000, 0x1000), ran(1, &[(10, 6), (10, 0), (5, 0)])]);
    assert_eq!(flow.block_quality.contradicted, 2);
    assert_eq!((flow.block_quality.blocks, flow.blocks.len()), (0, 2));
    assert!(flow.blocks.iter().all(|block| block.contradicted && !block.decoded));
    // They would run through the code between.
    assert_eq!(Cuts::of(&flow.blocks).basic_blocks(), []);
    let mut flow = flow;
    flow.drop_contradicted();
    assert!(flow.blocks.is_empty());
    assert!(flow.sites.iter().all(|site| site.from != at(0)));
}

/// Zen 4 records the compare of a fused pair: it counts for the branch.
#[test]
fn fused_pairs_are_one_branch() {
    let (_dir, path) = elf(CODE);
    let flow = count(&[
        map(&path, AT, 0x1000, 0x1000),
        ran(1, &[(10, 12), (12, 0), (8, 12), (12, 0), (10, 12)]),
    ]);
    assert_eq!(outcome(&flow, 14), (2, Some(0)));
    assert!(flow.sites.iter().all(|site| site.from != at(12)));
}

#[test]
fn targets_of_indirect_jumps() {
    let (_dir, path) = elf(CODE);
    let flow = count(&[
        map(&path, AT, 0x1000, 0x1000),
        ran(1, &[(10, 10), (10, 8), (8, 0), (8, 10), (10, 10), (10, 4)]),
    ]);
    let jump = site(&flow, 10);
    assert_eq!(jump.branch_type, Some(BranchType::IND));
    let targets: Vec<_> = jump.targets.iter().map(|t| (t.to - AT, t.count)).collect();
    assert_eq!(targets, [(10, 2), (4, 1), (8, 1)]);
    let first = jump.to_target(&jump.targets[0]);
    assert_eq!((first.x, first.y), (4, 2));
}

/// The oldest entry ends a block with an unknown start, unless the stack joins.
#[test]
fn blocks_span_only_contiguous_stacks() {
    let timed = |from, to| BranchEntry { cycles: Some(7), ..entry(at(from), at(to)) };
    let stack = |time, integrity| sample(time, vec![timed(8, 0), timed(4, 8)], integrity);
    let counts = |second: &[Event]| {
        let mut events = vec![stack(1, exact())];
        events.extend_from_slice(second);
        let flow = count(&events);
        let find = |entry, exit| {
            let block = |b: &&profile::flow::Block| (b.entry, b.exit) == (at(entry), at(exit));
            flow.blocks.iter().find(block).map(|b| (b.count, b.cycles.n()))
        };
        // Inside the stacks; and from the newest of the first to the oldest of the second.
        (find(8, 8), find(0, 4))
    };
    assert_eq!(counts(&[stack(2, exact())]), (Some((2, 2)), Some((1, 0))));
    let lost = profile_integrity(Head::Lost, false, Label::Gap);
    assert_eq!(counts(&[stack(2, lost)]), (Some((2, 2)), None));
    let after_gap = profile_integrity(Head::Joined, false, Label::Gap);
    assert_eq!(counts(&[stack(2, after_gap)]), (Some((2, 2)), None));
    let unknown = profile_integrity(Head::Unknown, false, Label::Stream);
    assert_eq!(counts(&[stack(2, unknown)]), (Some((2, 2)), None));
    let gone = Lost { time: 2, pid: 100, tid: 101, cpu: 1, stacks: 1, label: Some(Label::Torn) };
    assert_eq!(counts(&[Event::Lost(gone), stack(2, exact())]), (Some((2, 2)), None));

    // Cut: code ran between freeze and thaw.
    let cut = profile_integrity(Head::Joined, true, Label::Stream);
    let flow = count(&[stack(1, cut), stack(2, exact())]);
    assert_eq!(flow.blocks.len(), 1);
    // Another thread's stack does not join.
    let mut other = stack(2, exact());
    if let Event::Sample(sample) = &mut other {
        sample.tid = 102;
    }
    assert_eq!(count(&[stack(1, exact()), other]).blocks.len(), 1);
}

fn profile_integrity(head: Head, cut: bool, label: Label) -> lbr_msr::record::Integrity {
    lbr_msr::record::Integrity { head, cut, label, ..exact() }
}

/// A filter that omits some branches leaves no fall-through ranges.
#[test]
fn filtered_recordings_have_no_blocks() {
    let calls: BranchFilter = "any_call,u".parse().unwrap();
    let meta = Meta { filter: calls, ..meta() };
    let flow = count_as(meta, &[ran(1, &[(8, 0), (8, 0), (8, 0)])]);
    assert_eq!((flow.blocks.len(), flow.block_quality.filtered, flow.taken), (0, 1, 3));
    assert!(!flow.is_complete());
}

#[test]
fn inconsistent_neighbours_form_no_block() {
    // Newest first: a hole, the kernel's boundary, backwards, too far.
    let flow = text(
        " 0x10/0x20 0x0/0x0 0x10/0x18\n 0x30/0x40 0xffffffff80000000/0x28\n 0x10/0x20 0x30/0x40\n 0x200000/0x8 0x10/0x20\n 0x20/0x8 0x10/0x20\n",
    );
    let blocks: Vec<_> = flow.blocks.iter().map(|b| (b.entry, b.exit, b.count)).collect();
    assert_eq!(blocks, [(0x20, 0x20, 1), (0x28, 0x30, 1)]);
    let quality = &flow.block_quality;
    assert_eq!((quality.backwards, quality.too_long, quality.crossing), (1, 1, 0));
    let flow = text(" 0xffffffff80000000/0x28 0x10/0x20\n");
    assert_eq!((flow.block_quality.crossing, flow.blocks.len()), (1, 0));
    assert_eq!(flow.quality.zero_entries, 0);
}

/// Sites and blocks with equal counts are in the order of their addresses, whichever ran first.
#[test]
fn the_order_of_sites_and_blocks() {
    for stack in
        [" 0x30/0x8 0x20/0x10 0x28/0x10 0x4/0x18\n", " 0x28/0x8 0x20/0x18 0x30/0x10 0x4/0x10\n"]
    {
        let flow = text(stack);
        let blocks: Vec<_> = flow.blocks.iter().map(|block| (block.entry, block.exit)).collect();
        assert_eq!(blocks, [(0x10, 0x20), (0x10, 0x30), (0x18, 0x28)]);
        let sites: Vec<_> = flow.sites.iter().map(|site| site.from).collect();
        assert_eq!(sites, [0x4, 0x20, 0x28, 0x30]);
    }
}

/// Of different types at one address, the one with the lowest number counts.
#[test]
fn a_branch_has_one_type() {
    for types in [["COND", "UNCOND"], ["UNCOND", "COND"]] {
        let [newest, next] = types.map(|name| format!("0x20/0x10/P/-/-/0/{name}"));
        let flow = text(&format!(" {newest} {next} 0x30/0x10/P/-/-/0\n"));
        assert_eq!(flow.sites[0].branch_type, Some(BranchType::COND), "{types:?}");
    }
}

/// Overlapping blocks remain separate; their basic blocks have the summed counts.
#[test]
fn basic_blocks_cut_at_every_end() {
    let (_dir, path) = elf(CODE);
    // 0..8 once, 0..4 twice, 8..8 three times (twice after 4, once after 0..).
    let flow = count(&[
        map(&path, AT, 0x1000, 0x1000),
        ran(1, &[(8, 0), (8, 0), (4, 8), (8, 0), (4, 8), (8, 8), (8, 10)]),
    ]);
    let blocks: Vec<_> = flow.blocks.iter().map(|b| (b.entry - AT, b.exit - AT, b.count)).collect();
    assert_eq!(blocks, [(8, 8, 3), (0, 4, 2), (0, 8, 1)]);
    let mut basics: Vec<_> =
        Cuts::of(&flow.blocks).basic_blocks().iter().map(|b| (b.start, b.end, b.count)).collect();
    basics.sort_unstable();
    let a = |offset| Bound::At(at(offset));
    assert_eq!(
        basics,
        [(a(0), a(0), 3), (a(2), a(4), 3), (a(6), Bound::Before(at(8)), 1), (a(8), a(8), 4)]
    );
    // Without code bytes the start after a branch is unknown.
    let flow = count(&[ran(1, &[(8, 0), (8, 0), (4, 4), (4, 0)])]);
    let mut basics: Vec<_> =
        Cuts::of(&flow.blocks).basic_blocks().iter().map(|b| (b.start, b.end, b.count)).collect();
    basics.sort_unstable();
    assert_eq!(
        basics,
        [(a(0), Bound::Before(at(4)), 2), (a(4), a(4), 3), (Bound::After(at(4)), a(8), 1)]
    );
}

/// A thread starts at the jump at a, and ends after the branch at 4, which was not taken: the code
/// between the three blocks did not run.
#[test]
fn code_that_did_not_run_is_no_basic_block() {
    let (_dir, path) = elf(CODE);
    let mut event = ran(1, &[(10, 14), (14, 0)]);
    let Event::Sample(sample) = &mut event else { unreachable!() };
    let moved = |newer, kind, from, to| ThreadMove { newer, kind, from: at(from), to: at(to) };
    sample.stack.moves = vec![moved(2, MoveKind::Start, 0, 10), moved(0, MoveKind::End, 6, 0)];
    let flow = count(&[map(&path, AT, 0x1000, 0x1000), event]);
    let basics = Cuts::of(&flow.blocks).basic_blocks();
    let basics: Vec<_> = basics.iter().map(|b| (b.start, b.end, b.count)).collect();
    let a = |offset| Bound::At(at(offset));
    assert_eq!(basics, [(a(0), a(0), 1), (a(2), a(4), 1), (a(10), a(10), 1), (a(14), a(14), 1)]);
    assert_eq!(outcome(&flow, 4), (0, Some(1)));
}

/// A file at two addresses: its blocks are cut as one, hottest first.
#[test]
fn basic_blocks_of_two_processes() {
    const MOVED: u64 = 0x10_0000;
    let (_dir, path) = elf(CODE);
    let other = |event| in_process(event, 200);
    // 0..8 in one process, 4..8 in the other.
    let flow = count(&[
        map(&path, AT, 0x1000, 0x1000),
        other(map(&path, AT + MOVED, 0x1000, 0x1000)),
        ran(1, &[(8, 0), (8, 0)]),
        other(ran(2, &[(MOVED + 8, MOVED + 4), (MOVED + 8, MOVED + 4)])),
    ]);
    let basics = Cuts::of(&flow.blocks).basic_blocks();
    let file = flow.blocks[0].entry_location.file().unwrap();
    let locations = [4, 6, 0, 2].map(|offset| Location::File { file, offset: 0x1000 + offset });
    assert_eq!(basics.iter().map(|basic| basic.location).collect::<Vec<_>>(), locations);
    let basics: Vec<_> = basics.iter().map(|b| (b.start, b.end, b.count)).collect();
    let a = |offset| Bound::At(at(offset));
    assert_eq!(
        basics,
        [(a(4), a(4), 2), (a(6), a(8), 2), (a(0), a(0), 1), (a(2), Bound::Before(at(4)), 1)]
    );
}

/// Equal counts are in the order of addresses, whichever file was mapped first.
#[test]
fn the_order_of_basic_blocks() {
    let twice = |at_file: u64| {
        let branch = entry(at(at_file + 0x20), at(at_file + 0x10));
        sample(1, vec![branch; 2], Integrity::UNKNOWN)
    };
    let flow = count(&[
        map("/nowhere/high", at(0x2000), 0x1000, 0),
        map("/nowhere/low", AT, 0x1000, 0),
        twice(0x2000),
        twice(0),
    ]);
    let basics = Cuts::of(&flow.blocks).basic_blocks();
    let starts: Vec<_> = basics.iter().map(|basic| (basic.start, basic.count)).collect();
    assert_eq!(starts, [(Bound::At(at(0x10)), 1), (Bound::At(at(0x2010)), 1)]);
}

#[test]
fn distributions() {
    let mut cycles = Cycles::default();
    for (value, n) in [(10, 50), (11, 20), (40, 29), (65_535, 1)] {
        cycles.add(value, n);
    }
    assert_eq!((cycles.n(), cycles.saturated()), (100, 1));
    assert_eq!((cycles.min(), cycles.max()), (Some(10), Some(65_535)));
    let quantiles = [0.0, 0.5, 0.51, 0.7, 0.71, 0.99, 1.0].map(|q| cycles.quantile(q).unwrap());
    assert_eq!(quantiles, [10, 10, 11, 11, 40, 40, 65_535]);
    // 11 is next to 10; one sample of a hundred is not a mode.
    assert_eq!(cycles.modes(), [10, 40]);
    assert_eq!(Cycles::default().quantile(0.5), None);
    assert!(Cycles::default().modes().is_empty());

    // 1,024 distinct values are exact.
    let of = |values: std::ops::Range<u32>| {
        let mut cycles = Cycles::default();
        values.for_each(|value| cycles.add(value, 1));
        cycles
    };
    let mut merged = of(0..512);
    merged.merge(&of(512..1024));
    assert_eq!([&of(0..1024), &merged].map(Cycles::is_rounded), [false; 2]);
    merged.merge(&of(1024..1025));
    assert_eq!([&of(0..1025), &merged].map(Cycles::is_rounded), [true; 2]);

    // Memory is bounded: beyond it, five bits remain.
    let mut wide = Cycles::default();
    for value in 1..=40_000 {
        wide.add(value, 1);
    }
    assert!(wide.is_rounded() && wide.iter().count() < 400);
    assert_eq!((wide.n(), wide.min(), wide.max()), (40_000, Some(1), Some(40_000)));
    assert_eq!(wide.quantile(0.5), Some(19_456)); // 20,000 is 0b10011… of 15 bits
}

#[test]
fn mispredictions_by_stack() {
    let flow = text(
        " 0x30/0x10/M/-/-/0 0x30/0x10/P/-/-/0 0x30/0x10/M/-/-/0\n 0x30/0x10/P/-/-/0 0x30/0x20/-/-/-/0\n2\n 0x30/0x10/M/-/-/0\n",
    );
    let [site] = &*flow.sites else { panic!() };
    assert_eq!((site.taken, site.known, site.mispredicted), (7, 6, Some(4)));
    let misses = &site.misses();
    assert_eq!((misses.stacks, misses.x, misses.y), (4, 6, 4));
    assert_eq!((misses.xx, misses.xy, misses.yy), (9 + 1 + 2, 6 + 2, 4 + 2));
    let flow = text(" 0x30/0x10/-/-/-/0\n");
    assert_eq!((flow.sites[0].known, flow.sites[0].mispredicted), (0, None));
    assert_eq!((flow.known, flow.mispredicted), (0, None));
}

/// Two executions after 200 or 300 other branches are of one stack.
#[test]
fn a_repeated_branch_of_a_long_stack() {
    for others in [200, 300] {
        let others: String = (0..others)
            .map(|n| format!(" {:#x}/{:#x}/P/-/-/0", 0x40_1000 + 16 * n, 0x40_1008 + 16 * n))
            .collect();
        let twice = "0x500030/0x500010/M/-/-/0 0x500030/0x500010/P/-/-/0";
        let flow = text(&format!(" {twice}{others}\n"));
        let site = flow.sites.iter().find(|site| site.from == 0x50_0030).unwrap();
        let misses = site.misses();
        assert_eq!((misses.stacks, misses.x, misses.y), (1, 2, 1));
        assert_eq!((misses.xx, misses.xy, misses.yy), (4, 2, 1));
    }
}

/// Newest entries that no code can repeat are counted once.
#[test]
fn duplicates_are_dropped() {
    let flow =
        text(" 0x10/0x20 0x10/0x20 0x18/0x8\n 0x5000/0x10 0x5000/0x10\n 0x900/0x10 0x900/0x10\n");
    assert_eq!(flow.quality.duplicated_newest, 2);
    assert_eq!(flow.taken, 2 + 1 + 2);
    // The abort is logged twice, the second time without its bit.
    let flow = text(" 0x10/0x20/P/-/-/0 0x10/0x20/P/-/A/0 0x18/0x8/P/-/-/0\n");
    assert_eq!((flow.quality.double_aborts, flow.taken), (1, 2));
    // The entry without the bit is dropped, whichever comes first (Linux, `lbr_double_abort`).
    for twice in ["0x10/0x20/M/-/-/0 0x10/0x20/P/-/A/0", "0x10/0x20/P/-/A/0 0x10/0x20/M/-/-/0"] {
        let flow = text(&format!(" {twice} 0x18/0x8/P/-/-/0\n"));
        let site = flow.sites.iter().find(|site| site.from == 0x10).unwrap();
        assert_eq!((site.taken, site.known, site.mispredicted), (1, 1, Some(0)), "{twice}");
    }
}

/// 1,000 subsamples of the stacks of one long run: the printed intervals cover the true value of
/// the whole run as often as they claim.
#[test]
fn subsamples_cover_the_truth() {
    // A branch at 0x100 with two targets. The run is in one of three phases for a while; each has
    // its own rate of mispredictions and targets.
    let mut random = Random(21);
    let phases = [(0.02, 0.8), (0.3, 0.5), (0.08, 0.1)];
    let mut phase = 0;
    let mut stacks: Vec<Vec<RawBranch>> = Vec::new();
    let (mut all, mut missed, mut there) = (0u64, 0u64, 0u64);
    for _ in 0..5000 {
        if random.below(4) == 0 {
            phase = random.below(3);
        }
        let (miss, first) = phases[phase];
        let mut stack = Vec::new();
        for _ in 0..4 + random.below(8) {
            let (is_missed, is_first) = (random.share() < miss, random.share() < first);
            (all, missed) = (all + 1, missed + u64::from(is_missed));
            there += u64::from(is_first);
            let flags = EntryFlags(if is_missed { 1 } else { 2 });
            stack.push(RawBranch { from: 0x100, to: if is_first { 0x80 } else { 0x90 }, flags });
        }
        stacks.push(stack);
    }
    let truth = [missed as f64 / all as f64, there as f64 / all as f64];
    let head = SampleHead { source: Source::Unsaid, ..SampleHead::default() };
    let mut covered = [0; 2];
    for _ in 0..1000 {
        let mut counter = FlowCounter::default();
        for _ in 0..60 {
            let entries = Entries::Parsed(&stacks[random.below(stacks.len())]);
            let moves = Moves::default();
            counter.stack(&Stack { head, entries, counters: None, registers: None, moves });
        }
        let flow = counter.finish();
        let [site] = &*flow.sites else { panic!() };
        let target = site.targets.iter().find(|target| target.to == 0x80).unwrap();
        for (i, sums) in [&site.misses(), &site.to_target(target)].into_iter().enumerate() {
            let interval = sums.interval().unwrap();
            covered[i] += u32::from(interval.low <= truth[i] && truth[i] <= interval.high);
        }
    }
    assert!(covered.iter().all(|n| (930..=970).contains(n)), "{covered:?} of 1000");
}

/// Arm SPE samples single branches of either outcome (perf: PN, MN), optionally with the target of
/// the branch before: both outcomes are seen alike, so no block is needed to compare them.
#[test]
fn recorded_outcomes_count_without_code() {
    let taken = "0x400100/0x400200/P/-/-/5/COND/-";
    let not = "0x400100/0x400104/PN/-/-/5/COND/-";
    let missed = "0x400300/0x400304/MN/-/-/9/COND/-";
    let before = "0x0/0x4000f0/-/-/-/0//-";
    let flow = text(&format!(
        "{taken}  {before}\n{not}\n{not}  {before}\n{not}\n{missed}\n0x400200/0x400300/P/-/-/5/UNCOND/-\n"
    ));
    let at = |from: u64| flow.sites.iter().find(|site| site.from == from).unwrap();
    let outcome = |site: &Site| (site.taken, site.not_taken, site.conditional);
    assert_eq!(outcome(at(0x40_0100)), (1, Some(3), Some(true)));
    assert_eq!(at(0x40_0100).outcomes().ratio(), Some(0.25));
    assert_eq!(outcome(at(0x40_0300)), (0, Some(1), Some(true)));
    assert_eq!((flow.quality.not_taken, flow.quality.entries), (4, 8));
    // The code from that target to the taken branch ran straight.
    let blocks: Vec<_> = flow.blocks.iter().map(|b| (b.entry, b.exit, b.count)).collect();
    assert_eq!(blocks, [(0x40_00F0, 0x40_0100, 1)]);
}

/// By hand: the code from 4 to 8 passes the branch at 4, which has no record.
#[test]
fn branches_without_a_record_are_dropped_if_outcomes_are_recorded() {
    let (_dir, path) = elf(CODE);
    let [zero, two, four, eight] = [0, 2, 4, 8].map(at);
    let head = "prog 100 1.000000: 1 branch: 0";
    let flow = text(&format!(
        "PERF_RECORD_MMAP2 100/100: [{AT:#x}(0x1000) @ 0x1000 08:01 77 3]: r-xp {path}\n\
         {head} {zero:#x}/{two:#x}/PN/-/-/0/COND/-\n\
         {head} {eight:#x}/{zero:#x}/P/-/-/0/UNCOND/-  0x0/{four:#x}/-/-/-/0//-\n"
    ));
    assert!(flow.blocks.iter().all(|block| block.decoded) && flow.blocks.len() == 1);
    assert!(flow.sites.iter().all(|site| site.from != at(4)), "{:?}", flow.sites);
    assert_eq!([0, 8].map(|offset| outcome(&flow, offset)), [(0, Some(1)), (1, Some(0))]);
}

/// BRBE records 0 for an address of a level that is not recorded.
#[test]
fn half_recorded_branches_make_no_impossible_blocks() {
    let flow = text(
        "0x400120/0x0/P/-/-/0/SYSCALL/-  0x400100/0x400110/P/-/-/0/COND/-  0x0/0x4000f0/-/-/-/0/ERET/-  \
         0x4000c0/0x0/P/-/-/0/SYSCALL/-\n",
    );
    let blocks: Vec<_> = flow.blocks.iter().map(|b| (b.entry, b.exit)).collect();
    assert_eq!(blocks, [(0x40_00F0, 0x40_0100), (0x40_0110, 0x40_0120)]);
    assert_eq!((flow.block_quality.impossible(), flow.block_quality.crossing), (0, 1));
}
