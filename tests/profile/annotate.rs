//! Annotated functions, with counts computed by hand.

use std::io::Cursor;

use lbr_msr::record::{BranchEntry, BranchType, Integrity};
use profile::annotate::{
    Annotated, EdgeKind, FindError, Node, Stretch, Syntax, annotate, find, hottest, hottest_one,
};
use profile::flow::FlowCounter;
use profile::maps::LocationFilter;
use profile::note::Source;
use profile::perf_data::Meta;
use profile::{Flow, Recording};

use crate::compiled::{compile, extent, mapped, symbol};
use crate::recorded::{entry, exact, here, jit, map, meta, sample, stream};
use crate::support::random::Random;
use crate::views::{AT, CODE, at, count, count_as, elf, ran, text};

/// Annotates `len` bytes of code at [`AT`].
fn all(flow: &mut Flow, len: usize) -> Annotated {
    let range = format!("{AT:#x}..{:#x}", at(len as u64));
    let stretch = find(flow, &range).unwrap();
    assert_eq!((stretch.address, stretch.len), (AT, len as u64));
    annotate(flow, &stretch, Syntax::Intel).unwrap()
}

fn counts(annotated: &Annotated) -> Vec<(u64, Option<u64>)> {
    annotated.instructions.iter().map(|insn| (insn.address - AT, insn.count)).collect()
}

/// The code of `views.rs`: both branches taken; neither taken; the first not taken and the second
/// taken.
#[test]
fn each_instruction_has_its_count() {
    let (_dir, path) = elf(CODE);
    let mapped = map(&path, AT, 0x1000, 0x1000);
    let branches = [(8, 0), (0, 4), (4, 8), (8, 0), (8, 0), (4, 8), (8, 0)];
    let mut flow = count(&[mapped, ran(1, &branches)]);
    let annotated = all(&mut flow, CODE.len());
    assert!(annotated.exact);
    // The jump at 8 was taken four times, first before any block.
    let wanted =
        [(0, 3), (2, 2), (3, 2), (4, 3), (6, 1), (7, 1), (8, 4), (10, 0), (12, 0), (14, 0)];
    let wanted_counts = wanted.map(|(offset, n)| (offset, Some(n)));
    assert_eq!(counts(&annotated), wanted_counts);
    assert_eq!((annotated.peak(), annotated.executed()), (4, 16));
    let branch = |at: usize| annotated.instructions[at].branch.as_ref().unwrap();
    let (jne, je, jmp) = (branch(0), branch(3), branch(6));
    assert_eq!((jne.taken, jne.not_taken, jne.taken_share), (1, 2, Some(1.0 / 3.0)));
    assert_eq!((je.taken, je.not_taken, je.taken_share), (2, 1, Some(2.0 / 3.0)));
    // An unconditional branch has no taken share.
    assert_eq!((jmp.branch_type, jmp.taken, jmp.taken_share), (BranchType::UNCOND, 4, None));
    let inside = |at: usize| branch(at).target.as_ref().unwrap().inside;
    assert_eq!([inside(0), inside(3), inside(6), inside(9)], [Some(3), Some(6), Some(0), Some(0)]);
    // The last jump never ran.
    assert_eq!((branch(9).taken, branch(9).not_taken, branch(9).known), (0, 0, 0));
    assert!(jne.taken_interval.is_none() && jne.mispredicted.is_none());
    let blocks: Vec<_> =
        annotated.basic_blocks().iter().map(|b| (b.first, b.end, b.count)).collect();
    let wanted = [(0, 1, 3), (1, 3, 2), (3, 4, 3), (4, 6, 1), (6, 7, 4), (7, 8, 0), (8, 10, 0)];
    assert_eq!(blocks, wanted.map(|(first, end, n)| (first, end, Some(n))));
    // The first seven bytes alone: blocks that end after them ran there too.
    let annotated = all(&mut flow, 7);
    assert_eq!(counts(&annotated), wanted_counts[..5]);
    let blocks = annotated.blocks.iter().map(|block| (block.entry - AT, block.exit - AT));
    assert_eq!(blocks.collect::<Vec<_>>(), [(0, 0), (0, 4), (4, 4)]);
}

/// The edges of the same code.
#[test]
fn edges_of_a_graph() {
    let (_dir, path) = elf(CODE);
    let mapped = map(&path, AT, 0x1000, 0x1000);
    let branches = [(8, 0), (0, 4), (4, 8), (8, 0), (8, 0), (4, 8), (8, 0)];
    let graph = all(&mut count(&[mapped, ran(1, &branches)]), CODE.len()).graph();
    let edges =
        graph.edges.iter().map(|edge| (edge.from, edge.to, edge.kind, edge.count, edge.back));
    let wanted = [
        (0, 2, EdgeKind::Taken, Some(1), false),
        (0, 1, EdgeKind::FallThrough, Some(2), false),
        (1, 2, EdgeKind::FallThrough, Some(2), false),
        (2, 4, EdgeKind::Taken, Some(2), false),
        (2, 3, EdgeKind::FallThrough, Some(1), false),
        (3, 4, EdgeKind::FallThrough, Some(1), false),
        (4, 0, EdgeKind::Taken, Some(4), true),
    ];
    assert_eq!(edges.collect::<Vec<_>>(), wanted);
    // The last two blocks never ran.
    assert_eq!((graph.nodes.len(), graph.cold), (5, 2));
}

/// A loop of three rounds around a call, entered once.
#[test]
fn a_call_in_a_loop_has_edges_to_its_target_and_to_the_next_instruction() {
    // 0: nop    1: call 20    6: jne 1    8: ret    20: ret
    let mut code = vec![0x90, 0xE8, 0x1A, 0, 0, 0, 0x75, 0xF9, 0xC3];
    code.resize(0x20, 0xCC);
    code.push(0xC3);
    let (_dir, path) = elf(&code);
    let missed =
        |mispredicted| BranchEntry { mispredicted: Some(mispredicted), ..entry(at(6), at(1)) };
    let (call, back) = (entry(at(1), at(0x20)), entry(at(0x20), at(6)));
    let oldest_first = [
        entry(at(0x40), at(0)),
        call,
        back,
        missed(true),
        call,
        back,
        missed(false),
        call,
        back,
        entry(at(8), at(0x40)),
    ];
    let newest_first = oldest_first.into_iter().rev().collect();
    let events = [map(&path, AT, 0x1000, 0x1000), sample(1, newest_first, exact())];
    let graph = all(&mut count(&events), 9).graph();
    let edges = graph.edges.iter().map(|edge| (edge.from, edge.to, edge.kind, edge.count));
    let wanted = [
        (0, 1, EdgeKind::FallThrough, Some(1)),
        (1, 4, EdgeKind::Call, Some(3)),
        (1, 2, EdgeKind::AfterCall, None),
        (2, 1, EdgeKind::Taken, Some(2)),
        (2, 3, EdgeKind::FallThrough, Some(1)),
    ];
    assert_eq!(edges.collect::<Vec<_>>(), wanted);
    assert!(matches!(&graph.nodes[4], Node::Outside(target) if target.address == at(0x20)));
    let back = &graph.edges[3];
    assert_eq!((back.back, back.trips, back.mispredicted), (true, Some(3.0), Some(0.5)));
    assert!(graph.edges.iter().all(|edge| edge.back == edge.trips.is_some()));
}

/// Two blocks after a branch that was never taken are one node; the first continues in the second,
/// also after a call.
#[test]
fn connected_blocks_that_never_ran_are_one_node() {
    // 0: je 4    2: jmp 0    4: jne 0    6: nop    7: jmp 0
    let falls = [0x74, 0x02, 0xEB, 0xFC, 0x75, 0xFA, 0x90, 0xEB, 0xF7];
    // 0: je 4    2: jmp 0    4: call 20    9: jmp 0
    let calls = [0x74, 0x02, 0xEB, 0xFC, 0xE8, 0x17, 0x00, 0x00, 0x00, 0xEB, 0xF5];
    for code in [&falls[..], &calls[..]] {
        let (_dir, path) = elf(code);
        let mapped = map(&path, AT, 0x1000, 0x1000);
        let graph = all(&mut count(&[mapped, ran(1, &[(2, 0), (2, 0)])]), code.len()).graph();
        let edges = graph.edges.iter().map(|edge| (edge.from, edge.to, edge.kind, edge.count));
        let wanted = [
            (0, 2, EdgeKind::Taken, Some(0)),
            (0, 1, EdgeKind::FallThrough, Some(1)),
            (1, 0, EdgeKind::Taken, Some(2)),
        ];
        assert_eq!(edges.collect::<Vec<_>>(), wanted);
        assert_eq!((&graph.nodes[2..], graph.cold), (&[Node::Folded { blocks: 2 }][..], 2));
    }
}

/// The file has the code at 0x401000.
#[test]
fn code_at_its_addresses_in_the_file() {
    const IN_FILE: u64 = 0x40_1000;
    let (_dir, path) = elf(CODE);
    let mut flow = count(&[map(&path, AT, 0x1000, 0x1000), ran(1, &[(8, 0), (8, 0)])]);
    let annotated = all(&mut flow, CODE.len()).at_file_addresses(Syntax::Intel);
    let addresses = annotated.instructions.iter().map(|insn| insn.address - IN_FILE);
    assert_eq!(addresses.collect::<Vec<_>>(), [0, 2, 3, 4, 6, 7, 8, 10, 12, 14]);
    let blocks = annotated.blocks.iter().map(|block| (block.entry, block.exit));
    assert_eq!(blocks.collect::<Vec<_>>(), [(IN_FILE, IN_FILE + 8)]);
    let jump = &annotated.instructions[6];
    assert_eq!(jump.text.as_ref().unwrap().operands, "0x401000");
    let branch = jump.branch.as_ref().unwrap();
    assert_eq!(branch.target.as_ref().unwrap().address, IN_FILE);
    assert_eq!(branch.went[0].target.address, IN_FILE);
    assert_eq!(annotated.function.address, IN_FILE);
}

/// Two files at one address in the file, mapped at different distances from it.
#[test]
fn each_file_has_its_own_distance_to_memory() {
    const OTHER: u64 = 0x10_0000;
    let ((_dir, path), (_other_dir, other)) = (elf(CODE), elf(CODE));
    let mut flow = count(&[
        map(&path, AT, 0x1000, 0x1000),
        map(&other, at(OTHER), 0x1000, 0x1000),
        ran(1, &[(8, 0), (8, 0)]),
        ran(2, &[(OTHER + 8, OTHER), (OTHER + 8, OTHER)]),
    ]);
    for start in [AT, at(OTHER)] {
        let found = find(&mut flow, &format!("{start:#x}..{:#x}", start + 8)).unwrap();
        assert_eq!((found.address, found.file_address), (start, 0x40_1000));
    }
}

/// b.ne 8; nop; cbz w0, 0; b 0: the words as the GNU assembler encodes them.
#[test]
fn code_of_aarch64() {
    let words: [u32; 4] = [0x5400_0041, 0xD503_201F, 0x34FF_FFC0, 0x17FF_FFFD];
    let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let (_dir, path) = elf(&code);
    let mut file = std::fs::read(&path).unwrap();
    // e_machine.
    file[18..20].copy_from_slice(&183u16.to_le_bytes());
    std::fs::write(&path, file).unwrap();
    let mapped = map(&path, AT, 0x1000, 0x1000);
    let mut flow = count(&[mapped, ran(1, &[(12, 0), (0, 8), (8, 0), (12, 0)])]);
    for block in &mut flow.blocks {
        block.counters = Some(Box::new([Some(7), None, None, None]));
    }
    let annotated = all(&mut flow, code.len());
    assert!(annotated.exact);
    let wanted = [(0, 2), (4, 1), (8, 2), (12, 2)];
    assert_eq!(counts(&annotated), wanted.map(|(offset, n)| (offset, Some(n))));
    let texts = annotated.instructions.iter().map(|insn| insn.text.as_ref().unwrap());
    let texts: Vec<_> = texts.map(|text| format!("{} {}", text.mnemonic, text.operands)).collect();
    let (start, second) = (AT, at(8));
    let wanted = [format!("b.ne {second:#x}"), "nop ".into(), format!("cbz w0, {start:#x}")];
    assert_eq!((&texts[..3], &texts[3]), (&wanted[..], &format!("b {start:#x}")));
    for branch in [0, 2].map(|at| annotated.instructions[at].branch.as_ref().unwrap()) {
        assert_eq!((branch.taken, branch.not_taken, branch.branch_type), (1, 1, BranchType::COND));
    }
    // The events that were counted with a block's branch.
    assert_eq!(annotated.blocks.len(), 3);
    assert!(annotated.blocks.iter().all(|block| block.counters.as_ref().unwrap()[0] == Some(7)));
}

/// Zen 4 records the compare of a fused pair: the jump after it ran too. Contradicted blocks are
/// not counted, and the counts are no longer exact.
#[test]
fn fused_pairs_and_contradictions() {
    let (_dir, path) = elf(CODE);
    let mapped = map(&path, AT, 0x1000, 0x1000);
    let branches = [(10, 12), (12, 0), (8, 12), (12, 0), (10, 12)];
    let hardware = Meta { source: Source::Hardware, ..meta() };
    let mut flow = count_as(hardware, &[mapped, ran(1, &branches)]);
    let annotated = all(&mut flow, CODE.len());
    assert_eq!((annotated.exact, annotated.contradicted), (false, 1));
    let of = |offset: u64| {
        let insn = annotated.instructions.iter().find(|insn| insn.address == at(offset));
        insn.unwrap().count
    };
    assert_eq!([of(0), of(8), of(10), of(12), of(14)], [Some(1), Some(1), None, Some(2), Some(2)]);
    let pair = annotated.blocks.iter().find(|block| block.entry == at(12)).unwrap();
    assert_eq!((pair.instructions, pair.count, pair.last), (Some(2), 2, 9));
}

/// Blocks over the jump at 8, which cannot have run: one that starts where the listing ends, and
/// one of another file.
#[test]
fn contradictions_elsewhere_leave_counts_exact() {
    const OTHER: u64 = 0x10_0000;
    let ((_dir, path), (_other_dir, other)) = (elf(CODE), elf(CODE));
    let mut flow = count(&[
        map(&path, AT, 0x1000, 0x1000),
        map(&other, at(OTHER), 0x1000, 0x1000),
        ran(1, &[(10, 6), (10, 0), (8, 0)]),
        ran(2, &[(OTHER + 8, OTHER), (OTHER + 10, OTHER)]),
    ]);
    for (len, contradicted) in [(6, 0), (7, 1)] {
        let annotated = all(&mut flow, len);
        assert_eq!((annotated.contradicted, annotated.exact), (contradicted, contradicted == 0));
    }
}

/// The code jumps out of its file, to a function that the JIT compiler has listed.
#[test]
fn a_target_in_another_file_has_its_name() {
    // 0: nop    1: jmp 2000
    let (_dir, path) = elf(&[0x90, 0xE9, 0xFA, 0x1F, 0, 0]);
    let target = at(0x2000);
    let (_names, sources) = jit(&format!("{target:x} 40 compiled\n"));
    let events = [
        map(&path, AT, 0x1000, 0x1000),
        map("//anon", target, 0x1000, 0),
        ran(1, &[(0x2010, 0), (1, 0x2000)]),
    ];
    let bytes = stream(here(), &events);
    let mut counter = FlowCounter::default();
    counter.maps().set_sources(sources);
    let mut recording = Recording::from_stream(Box::new(Cursor::new(bytes))).unwrap();
    let annotated = all(&mut counter.count(&mut recording, |_, _| {}).unwrap(), 6);
    let jump = annotated.instructions[1].branch.as_ref().unwrap().target.as_ref().unwrap();
    assert_eq!((jump.address, &jump.name), (target, &Some(("compiled".to_owned(), 0))));
}

/// An interrupt out of [`CODE`].
fn interrupt(from: u64) -> BranchEntry {
    BranchEntry { branch_type: Some(BranchType::IRQ), ..entry(at(from), at(0x50)) }
}

/// The code from 0 ran three times. An interrupt ended the last one before the branch at 4: a
/// software LBR records no compare in place of a branch.
#[test]
fn a_branch_after_an_interrupt_did_not_run() {
    let (_dir, path) = elf(CODE);
    let jump = |from| entry(at(from), at(0));
    let stack = sample(1, vec![interrupt(3), jump(8), jump(8), jump(5)], exact());
    let annotated = all(&mut count(&[map(&path, AT, 0x1000, 0x1000), stack]), 10);
    let wanted = [(0, 3), (2, 3), (3, 3), (4, 2), (6, 2), (7, 2), (8, 2)];
    assert_eq!(counts(&annotated), wanted.map(|(offset, n)| (offset, Some(n))));
}

/// A CPU fuses no compare with an unconditional jump: an interrupt at 7 came before the jump at 8.
#[test]
fn a_jump_after_an_interrupt_did_not_run() {
    let (_dir, path) = elf(CODE);
    let stack = vec![interrupt(7), entry(at(8), at(0)), entry(at(0x40), at(0))];
    let events = [map(&path, AT, 0x1000, 0x1000), sample(1, stack, exact())];
    let hardware = Meta { source: Source::Hardware, ..meta() };
    let annotated = all(&mut count_as(hardware, &events), 10);
    let wanted = [(0, 2), (2, 2), (3, 2), (4, 2), (6, 2), (7, 2), (8, 1)];
    assert_eq!(counts(&annotated), wanted.map(|(offset, n)| (offset, Some(n))));
}

/// An interrupt at 12 came before the jump at 14, which the CPU fuses with the compare at 12 if both
/// run.
#[test]
fn an_interrupted_compare_is_not_fused() {
    let (_dir, path) = elf(CODE);
    let stack = vec![interrupt(12), entry(at(10), at(12))];
    let events = [map(&path, AT, 0x1000, 0x1000), sample(1, stack, exact())];
    let hardware = Meta { source: Source::Hardware, ..meta() };
    let annotated = all(&mut count_as(hardware, &events), 16);
    assert_eq!(counts(&annotated)[8..], [(12, Some(1)), (14, Some(0))]);
}

/// The code after a jump to 0: up to an interrupt at 3, before a branch; up to the jump at 8, where a
/// branch was recorded at 5 too, in the middle of an instruction that ran.
#[test]
fn counts_end_where_the_code_was_left() {
    let (_dir, path) = elf(CODE);
    let jump = |from| entry(at(from), at(0));
    for (newest_first, later) in [([interrupt(3), jump(8)], 0), ([jump(8), jump(5)], 1)] {
        let stack = sample(1, newest_first.to_vec(), exact());
        let annotated = all(&mut count(&[map(&path, AT, 0x1000, 0x1000), stack]), 10);
        let wanted = [(0, 1), (2, 1), (3, 1), (4, later), (6, later), (7, later), (8, 1)];
        assert_eq!(counts(&annotated), wanted.map(|(offset, n)| (offset, Some(n))));
    }
}

/// A data byte that looks like the start of the next instruction: executed code determines where
/// instructions start.
#[test]
fn data_among_code() {
    // 0: jmp 3    2: the first byte of a call    3: nop    4: jmp 0
    let code = [0xEB, 0x01, 0xE8, 0x90, 0xEB, 0xFA, 0xCC, 0xCC];
    let (_dir, path) = elf(&code);
    let mapped = map(&path, AT, 0x1000, 0x1000);
    let mut flow = count(&[mapped.clone(), ran(1, &[(4, 0), (0, 3), (4, 0), (0, 3)])]);
    let annotated = all(&mut flow, 6);
    assert_eq!(counts(&annotated), [(0, Some(2)), (2, Some(0)), (3, Some(1)), (4, Some(2))]);
    let data = &annotated.instructions[1];
    assert_eq!((data.bytes.as_slice(), &data.text), (&[0xE8][..], &None));
    // Nothing ran here: the bytes decode as one call.
    let annotated = all(&mut count(&[mapped, ran(1, &[(7, 0)])]), 6);
    assert_eq!(counts(&annotated).len(), 2);
}

/// A recording of calls alone has no blocks: nothing is known of the code between them.
#[test]
fn filtered_recordings_count_no_instructions() {
    let (_dir, path) = elf(CODE);
    let mapped = map(&path, AT, 0x1000, 0x1000);
    let meta = profile::perf_data::Meta { filter: "any_call,u".parse().unwrap(), ..meta() };
    let mut flow = count_as(meta, &[mapped, ran(1, &[(8, 0), (8, 0)])]);
    let annotated = all(&mut flow, CODE.len());
    assert_eq!((annotated.exact, annotated.filtered), (false, 1));
    assert!(annotated.instructions.iter().all(|insn| insn.count.is_none()));
    assert_eq!(annotated.instructions[6].branch.as_ref().unwrap().taken, 2);
    // Its graph is shown whole.
    let graph = annotated.graph();
    assert_eq!((graph.nodes.len(), graph.cold), (annotated.basic_blocks().len(), 0));
}

#[test]
fn functions_without_code() {
    let (_dir, path) = elf(CODE);
    let mapped = map(&path, AT, 0x1000, 0x1000);
    let mut flow = count(&[mapped, ran(1, &[(8, 0), (8, 0)])]);
    let is_stripped =
        |error: &FindError| matches!(error, FindError::NoSymbol { stripped: true, .. });
    // Executed code is found by its address: here 10 bytes, up to the end of the last block.
    let executed = find(&mut flow, &format!("{AT:#x}")).unwrap();
    assert_eq!((executed.name, executed.len), (format!("{AT:#x}"), 10));
    // Of two blocks that overlap there, the longer one.
    let mapped = map(&path, AT, 0x1000, 0x1000);
    let mut overlapping = count(&[mapped, ran(1, &[(8, 0), (4, 8), (8, 0), (8, 4), (8, 0)])]);
    for inside in [2, 6] {
        let executed = find(&mut overlapping, &format!("{:#x}", at(inside))).unwrap();
        assert_eq!((executed.address, executed.len), (AT, 10));
    }
    // A byte that is not an instruction counts as one of length 1.
    let (_other_dir, other) = elf(&[0x90, 0x90, 0x06]);
    let mut invalid = count(&[map(&other, AT, 0x1000, 0x1000), ran(1, &[(2, 0), (2, 0)])]);
    assert_eq!(find(&mut invalid, &format!("{AT:#x}")).unwrap().len, 3);
    let error = find(&mut flow, &format!("{:#x}", at(0x20))).unwrap_err();
    assert!(is_stripped(&error), "{error}");
    assert_eq!(find(&mut flow, "0x10"), Err(FindError::Unmapped(0x10)));
    assert_eq!(
        find(&mut flow, "main").unwrap_err().to_string(),
        format!("no function main in the files of this recording ({path} is stripped)")
    );
    let all = LocationFilter::files(&flow.maps, &[]);
    assert!(matches!(hottest_one(&mut flow, &all), Err(FindError::Nothing(why)) if why.len() == 1));
    // After the last byte of the file.
    let range = format!("{:#x}..{:#x}", at(0x800), at(0x900));
    let error = find(&mut flow, &range).and_then(|s| annotate(&mut flow, &s, Syntax::Intel));
    assert!(error.is_err(), "{error:?}");
    let why = |found: Result<Stretch, FindError>| match found {
        Err(FindError::NoCode { why, .. }) => why,
        found => panic!("{found:?}"),
    };
    for address in ["0xffffffff81000000", "0x8000000000000000"] {
        assert!(why(find(&mut flow, address)).starts_with("it is in the kernel"));
    }
    let mut anonymous = count(&[ran(1, &[(8, 0), (8, 0)])]);
    assert!(matches!(find(&mut anonymous, "main"), Err(FindError::Unknown { .. })));
    assert!(why(find(&mut anonymous, &format!("{AT:#x}"))).starts_with("it is in no file"));
    let empty = format!("{AT:#x}..{AT:#x}");
    for wrong in ["..", "a..", "0x700000000008..0x700000000000", &empty, "", "\u{0}", "x..y..z"] {
        assert!(find(&mut flow, wrong).is_err(), "{wrong:?}");
    }
}

/// The file is missing, or it is the kernel.
#[test]
fn code_without_bytes() {
    let mut flow = count(&[map("/nowhere/prog", AT, 0x1000, 0), ran(1, &[(8, 0), (8, 0)])]);
    let file = flow.blocks[0].entry_location.file().unwrap();
    for (path, address, is_kernel) in [
        ("/nowhere/prog", AT, false),
        ("/nowhere/prog", 1 << 63, true),
        ("[kernel.kallsyms]", AT, true),
    ] {
        let (name, path) = ("f".to_owned(), path.to_owned());
        let stretch = Stretch { name, file, path, offset: 0, len: 8, address, file_address: 0 };
        let error = annotate(&mut flow, &stretch, Syntax::Intel).unwrap_err().to_string();
        assert_eq!(error.contains("it is in the kernel"), is_kernel, "{error}");
        assert_eq!(error.contains("it is in no file"), !is_kernel, "{error}");
    }
}

/// A recording with symbols instead of addresses: `f` is known, its code is not, even if a file is
/// mapped.
#[test]
fn functions_recorded_by_symbol_have_no_code() {
    const WHY: &str = "symbols instead of addresses";
    let branches = "f+0x20/f+0x0/P/-/-/0 f+0x20/f+0x0/P/-/-/0\n";
    let mut flow = text(branches);
    let found = find(&mut flow, "f").unwrap();
    assert_eq!((found.name.as_str(), found.address), ("f", found.file_address));
    let error = annotate(&mut flow, &found, Syntax::Intel).unwrap_err();
    assert!(matches!(error, FindError::NoCode { why, .. } if why.contains(WHY)), "{error}");
    let error = find(&mut flow, "g").unwrap_err();
    assert!(
        matches!(&error, FindError::Unknown { why, .. } if why.iter().any(|why| why.contains(WHY))),
        "{error}"
    );
    let (_dir, path) = elf(CODE);
    let mapping =
        format!("PERF_RECORD_MMAP2 7/7: [{AT:#x}(0x1000) @ 0x1000 08:01 5 0]: r-xp {path}");
    let mut flow = text(&format!("{mapping}\n{branches}"));
    let error = find(&mut flow, &format!("{AT:#x}..{:#x}", at(8))).unwrap_err();
    assert!(matches!(error, FindError::NoCode { why, .. } if why.contains(WHY)), "{error}");
    // Recorded addresses have code.
    let jump = format!("{:#x}/{AT:#x}/P/-/-/0", at(8));
    let mut flow =
        text(&format!("{mapping}\n{branches}prog 7 1.000000: 1 branch: 0 {jump} {jump}\n"));
    let found = find(&mut flow, &format!("{AT:#x}..{:#x}", at(8))).unwrap();
    assert_eq!((found.address, found.len), (AT, 8));
}

/// `inner` exists only as a part of `step`.
#[test]
fn an_inlined_function_is_in_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    if compile("inlined.c", &path, &["-O2", "-g", "-no-pie"]).is_none() {
        return;
    }
    let (start, size) = extent(&path, "step");
    let branches = vec![entry(start + size - 1, start), entry(start + size - 1, start)];
    let mut flow = count(&[mapped(100, &path, 0, None), sample(1, branches, exact())]);
    let inlined = FindError::Inlined { name: "inner".to_owned(), into: vec!["step".to_owned()] };
    assert_eq!(find(&mut flow, "inner"), Err(inlined));
    // The line of a loop with code before and after its body.
    assert_eq!(find(&mut flow, "inlined.c:29").unwrap().name, "main");
}

/// At most 4 MiB are shown, here mostly after the end of the file.
#[test]
fn a_range_that_is_too_long() {
    let (_dir, path) = elf(CODE);
    let mut flow = count(&[map(&path, AT, 0x1000, 0x1000), ran(1, &[(8, 0), (8, 0)])]);
    let stretch = find(&mut flow, &format!("{AT:#x}..{:#x}", at(10))).unwrap();
    let mut annotated = |len| {
        let stretch = profile::annotate::Stretch { len, ..stretch.clone() };
        annotate(&mut flow, &stretch, Syntax::Intel).map(|annotated| annotated.instructions.len())
    };
    assert!(annotated(4 << 20).is_ok());
    let too_long = annotated((4 << 20) + 1).unwrap_err();
    assert!(matches!(too_long, FindError::TooLong { len: 0x40_0001, .. }), "{too_long}");
}

/// A function has its name and addresses in it. A range over several functions names each where it
/// starts, but the first.
#[test]
fn functions_are_found_and_those_of_a_range_are_labelled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    let options = ["-O1", "-no-pie", "-fno-toplevel-reorder"];
    if compile("calls.c", &path, &options).is_none() {
        return;
    }
    let (first, second) = (extent(&path, "one"), extent(&path, "two"));
    let call = entry(first.0 + 1, second.0);
    let mut flow = count(&[mapped(100, &path, 0, None), sample(1, vec![call], exact())]);
    for what in ["one", "one+0x1", &format!("{:#x}", first.0 + 1)] {
        let found = find(&mut flow, what).unwrap();
        let (name, address, len) = (found.name.as_str(), found.address, found.len);
        assert_eq!((name, address, len), ("one", first.0, first.1), "{what}");
        let [last, end] = [len - 1, len].map(|distance| found.location(address + distance));
        assert_eq!([last, end].map(|at| found.distance(at)), [Some(len - 1), None]);
        assert_eq!(Stretch::at(&mut flow, last), Some(found));
    }
    let range = format!("{:#x}..{:#x}", first.0, second.0 + second.1);
    let stretch = find(&mut flow, &range).unwrap();
    let annotated = annotate(&mut flow, &stretch, Syntax::Intel).unwrap();
    let labels =
        annotated.instructions.iter().filter_map(|insn| Some((insn.address, insn.label.clone()?)));
    assert_eq!(labels.collect::<Vec<_>>(), [(second.0, "two".to_owned())]);
}

/// By hand: 10 blocks of three instructions (dec, js, call), and 12 of two (nop, ret).
#[test]
fn the_hottest_function_executed_most_instructions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    if compile("nested.S", &path, &["-nostdlib", "-static", "-no-pie"]).is_none() {
        return;
    }
    let branch = |from, to| entry(symbol(&path, from), symbol(&path, to));
    let recursion = sample(1, vec![branch("down_c", "down"); 11], Integrity::UNKNOWN);
    let call = sample(2, vec![branch("c_r", "b_r1"), branch("b_c1", "c")], Integrity::UNKNOWN);
    let events = [vec![mapped(100, &path, 0, None), recursion], vec![call; 12]].concat();
    let found = hottest(&mut count(&events));
    let found = found.iter().map(|hot| (hot.function.name.as_str(), hot.heat));
    assert_eq!(found.collect::<Vec<_>>(), [("down", 30), ("c", 24)]);
    // Of a recording of calls, the branches.
    let meta = Meta { filter: "any_call,u".parse().unwrap(), ..meta() };
    let calls = [("c", "down"), ("down", "c"), ("c", "down")].map(|(from, to)| branch(from, to));
    let events = [mapped(100, &path, 0, None), sample(1, calls.to_vec(), Integrity::UNKNOWN)];
    let mut flow = count_as(meta, &events);
    let found = hottest(&mut flow);
    let found = found.iter().map(|hot| (hot.function.name.as_str(), hot.heat));
    assert_eq!(found.collect::<Vec<_>>(), [("c", 2), ("down", 1)]);
    // A file without a function gives the hottest of all.
    let nowhere = LocationFilter::files(&flow.maps, &["nowhere".to_owned()]);
    assert_eq!(hottest_one(&mut flow, &nowhere).unwrap().name, "c");
}

/// Of several blocks with one end, the listing shows the one with cycles, even if it ran less;
/// without cycles, the one that ran more.
#[test]
fn a_timed_block_is_shown_first() {
    let (_dir, path) = elf(CODE);
    let branch = |to| entry(at(8), at(to));
    // Newest first: 8..8 once, maybe in 7 cycles, and 0..8 five times.
    for (cycles, timed, shown) in [(Some(7), 1, 8), (None, 0, 0)] {
        let mut entries = vec![BranchEntry { cycles, ..branch(0) }, branch(8)];
        entries.extend(vec![branch(0); 5]);
        let events = [map(&path, AT, 0x1000, 0x1000), sample(1, entries, exact())];
        let annotated = all(&mut count(&events), CODE.len());
        let blocks = annotated.blocks.iter().map(|b| (b.entry, b.count, b.cycles.n()));
        assert_eq!(blocks.collect::<Vec<_>>(), [(at(0), 5, 0), (at(8), 1, timed)]);
        let ipc = cycles.map(|cycles| 1.0 / f64::from(cycles));
        assert_eq!([annotated.blocks[0].ipc(), annotated.blocks[1].ipc()], [None, ipc]);
        // The seventh instruction is the jump at 8.
        assert_eq!(annotated.blocks_by_end()[6].unwrap().entry, at(shown));
    }
}

/// Random bytes and branches: every byte is printed once, and no count exceeds the sum of all
/// blocks.
#[test]
fn invalid_code_is_shown_too() {
    let mut random = Random(6);
    for _ in 0..300 {
        let code: Vec<u8> = (0..64).map(|_| random.below(256) as u8).collect();
        let (_dir, path) = elf(&code);
        let mut events = vec![map(&path, AT, 0x1000, 0x1000)];
        for time in 1..20 {
            // Only two targets: more would look like a different file.
            let mut branch = || (random.below(70) as u64, 35 * random.below(2) as u64);
            let branches: Vec<(u64, u64)> = (0..7).map(|_| branch()).collect();
            events.push(ran(time, &branches));
        }
        let mut flow = count(&events);
        let annotated = all(&mut flow, code.len());
        let mut next = AT;
        for insn in &annotated.instructions {
            assert_eq!((insn.address, insn.bytes.is_empty()), (next, false));
            next += insn.bytes.len() as u64;
            assert!(insn.count.unwrap_or(0) <= flow.block_quality.blocks + flow.taken);
        }
        assert!(next >= at(64) && next < at(64 + 15));
        let covered: usize = annotated.basic_blocks().iter().map(|b| b.end - b.first).sum();
        assert_eq!(covered, annotated.instructions.len());
        assert!(annotated.blocks.iter().all(|block| block.last < annotated.instructions.len()));
    }
}
