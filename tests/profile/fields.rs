//! Text with any fields of `perf script`: it gives the same tables as the recording that perf
//! printed, or is rejected with a reason.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use profile::brstack::{LineError, Printed};
use profile::flow::{Flow, FlowCounter};
use profile::hot::{self, HotTable};
use profile::maps::{Location, Maps};
use profile::names::Symbols;
use profile::note::Moves;
use profile::perf_data::ReadError;
use profile::{Entries, Item, RawBranch, Recording, SampleHead, Stack};

use crate::recorded::each_stack;
use crate::support::corpus::corpus;
use crate::support::skip::{skipped, tool};

/// The value of `-F`, and whether it includes branch addresses.
const BY_ADDRESS: [&str; 40] = [
    "brstack",
    "ip,brstack",
    "pid,brstack",
    "tid,brstack",
    "pid,tid,brstack",
    "pid,ip,brstack",
    "pid,tid,ip,brstack",
    "comm,brstack",
    "comm,ip,brstack",
    "comm,tid,brstack",
    "comm,pid,tid,brstack",
    "comm,pid,tid,time,brstack",
    "comm,pid,tid,time,period,event,ip,brstack",
    "comm,tid,time,event,ip,sym,brstack",
    "comm,tid,time,event,ip,sym,symoff,dso,brstack",
    "time,brstack",
    "time,ip,brstack",
    "tid,time,brstack",
    "period,brstack",
    "period,ip,brstack",
    "pid,period,ip,brstack",
    "comm,period,ip,brstack",
    "comm,period,event,ip,brstack",
    "event,brstack",
    "event,ip,brstack",
    "event,ip,sym,brstack",
    "misc,ip,brstack",
    "comm,tid,misc,time,ip,brstack",
    "ip,brstack,dso",
    "ip,sym,dso,brstack",
    "ip,srcline,brstack",
    "flags,brstack",
    "flags,ip,brstack",
    "brstack,insnlen",
    "brstack,brstackinsn",
    "+brstack",
    "+brstack,+brstackinsn",
    "+brstack,+srcline",
    "+brstack,+pid",
    "+brstack,+misc",
];

/// Fields without addresses: only instructions.
const REFUSED: [&str; 2] = ["ip,brstackinsn", "+brstackinsn"];

/// Fields with file offsets instead of addresses: without any mark, and with the file names.
const OFFSETS: [&str; 4] =
    ["brstackoff", "ip,brstackoff", "comm,tid,time,ip,brstackoff", "pid,tid,brstackoff"];
const OFFSETS_IN_FILES: [&str; 3] = ["brstackoff,dso", "ip,brstackoff,dso", "+brstackoff"];

/// A sample: its period, process and thread, if printed, and its branches.
type Sample = (Option<u64>, (Option<u32>, Option<u32>), Vec<RawBranch>);

fn samples(mut recording: Recording) -> Result<Vec<Sample>, ReadError> {
    let mut found = Vec::new();
    while let Some(item) = recording.next_item()? {
        if let Item::Stack(Stack { head, entries, .. }) = item {
            found.push((head.period, (head.pid, head.tid), entries.iter().collect()));
        }
    }
    assert_eq!(recording.refused(), None);
    Ok(found)
}

fn printed_branches(branches: &[RawBranch]) -> Vec<String> {
    branches.iter().map(|branch| Printed(*branch).to_string()).collect()
}

fn text(text: &[u8]) -> Recording {
    Recording::from_stream(Box::new(Cursor::new(text.to_vec()))).unwrap()
}

fn of_text(bytes: &[u8]) -> Result<Vec<Sample>, ReadError> {
    samples(text(bytes))
}

/// The rows of the tables, by view.
type Rows = BTreeMap<&'static str, Vec<String>>;

fn rows<T: std::fmt::Debug>(list: &[T]) -> Vec<String> {
    let mut rows: Vec<String> = list.iter().map(|row| format!("{row:?}")).collect();
    rows.sort();
    rows
}

/// Branches, outcomes and blocks of samples without mappings.
fn counted(samples: &[Sample]) -> Rows {
    let (mut hot, mut flow) = (hot::Counter::default(), FlowCounter::default());
    for (_, (pid, tid), branches) in samples {
        let head = SampleHead { pid: *pid, tid: *tid, ..SampleHead::default() };
        let stack = Stack {
            head,
            entries: Entries::Parsed(branches),
            counters: None,
            registers: None,
            moves: Moves::default(),
        };
        hot.stack(&stack);
        flow.stack(&stack);
    }
    let (hot, flow) = (hot.finish(), flow.finish());
    of_tables(&hot, &flow)
}

fn of_tables(hot: &HotTable, flow: &Flow) -> Rows {
    [("hot", rows(&hot.branches)), ("outcomes", rows(&flow.sites)), ("blocks", rows(&flow.blocks))]
        .into()
}

/// The same for a text, and what follows branches through it.
fn read(bytes: &[u8], follow: bool) -> Rows {
    let open = || text(bytes);
    let hot = HotTable::count(&mut open(), |_, _| {}).unwrap();
    let flow = FlowCounter::default().count(&mut open(), |_, _| {}).unwrap();
    let mut tables = of_tables(&hot, &flow);
    if follow {
        let loops = profile::loops::counter().count(&mut open(), |_, _| {}).unwrap().unwrap();
        let paths = profile::paths::counter().count(&mut open(), |_, _| {}).unwrap().unwrap();
        let graph = profile::callgraph::counter(false).count(&mut open(), |_, _| {}).unwrap();
        tables.insert("loops", rows(&loops.loops));
        tables.insert("paths", rows(&paths.paths));
        tables.insert("functions", rows(&graph.functions));
        tables.insert("callgraph", rows(&graph.nodes));
    }
    tables
}

/// A text with the samples of another one, in its order.
fn plain(samples: &[Sample]) -> Vec<u8> {
    let line = |(_, (pid, tid), branches): &Sample| {
        let task = match (pid, tid) {
            (Some(pid), Some(tid)) => format!("{pid:5}/{tid:<5} "),
            (_, Some(tid)) => format!("{tid:5} "),
            _ => String::new(),
        };
        task + &printed_branches(branches).join("  ") + "\n"
    };
    samples.iter().map(line).collect::<String>().into_bytes()
}

/// The subject of a row: file and offset if both are known.
fn place(maps: &Maps, location: Location, addr: u64) -> String {
    match (location, maps.file_offset(location)) {
        (Location::File { file, .. }, Some(offset)) => {
            format!("{}+{offset:#x}", maps.path(file).unwrap_or_default())
        }
        _ => format!("{addr:#x}"),
    }
}

/// Branches and blocks by file and offset.
fn by_file(open: impl Fn() -> Recording) -> Rows {
    let hot = HotTable::count(&mut open(), |_, _| {}).unwrap();
    let flow = FlowCounter::default().count(&mut open(), |_, _| {}).unwrap();
    let of_branches = hot.branches.iter().map(|row| {
        let from = place(&hot.maps, row.from_location, row.from);
        let to = place(&hot.maps, row.to_location, row.to);
        format!("{from} {to} {} {} {:?} {:?}", row.count, row.known, row.mispredicted, row.cycles)
    });
    let of_blocks = flow.blocks.iter().map(|row| {
        let entry = place(&flow.maps, row.entry_location, row.entry);
        let exit = place(&flow.maps, row.exit_location, row.exit);
        format!("{entry} {exit} {} {:?}", row.count, row.cycles)
    });
    let mut tables = Rows::new();
    tables.insert("hot", of_branches.collect());
    tables.insert("blocks", of_blocks.collect());
    tables.values_mut().for_each(|rows| rows.sort());
    tables
}

fn assert_same(found: &Rows, wanted: &Rows, of: &str) {
    for (view, wanted) in wanted {
        let found = &found[view];
        if found != wanted {
            let more = found.iter().find(|row| !wanted.contains(row));
            let less = wanted.iter().find(|row| !found.contains(row));
            panic!("{of}: {view}: {} rows, not {}: {more:?}, {less:?}", found.len(), wanted.len());
        }
    }
}

/// perf, and the one that `LBR_PERF` names.
fn perfs() -> Vec<String> {
    let others = std::env::var("LBR_PERF").ok();
    std::iter::once("perf".to_owned()).chain(others).collect()
}

fn printed(perf: &str, file: &Path, fields: &str) -> Option<Vec<u8>> {
    let out = tool(perf).args(["script", "-f", "-F", fields, "-i"]).arg(file).output().ok()?;
    Some(out.stdout).filter(|text| out.status.success() && !text.is_empty())
}

#[test]
fn any_field_set_gives_the_branches_of_the_recording() {
    let Some(corpus) = corpus() else { return };
    let folder = corpus.join("perf-data-converter/perfdata");
    for perf in perfs() {
        if tool(&perf).arg("--version").output().is_err() {
            skipped(format!("no {perf} here"));
            continue;
        }
        for name in ["perf.data.branch-4.14", "perf.data.callgraph_and_branch-3.4"] {
            let file = folder.join(name);
            let wanted = samples(Recording::open(&file).unwrap()).unwrap();
            let mut count = 0;
            let mut expected = BTreeMap::new();
            for (number, fields) in BY_ADDRESS.into_iter().enumerate() {
                // It omits fields that were not recorded.
                let Some(bytes) = printed(&perf, &file, fields) else { continue };
                let of = format!("{perf} {name} {fields}");
                let found = of_text(&bytes).unwrap_or_else(|e| panic!("{of}: {e}"));
                let asked = fields.contains("period") || fields.starts_with('+');
                let says_tid = fields.contains("tid") || fields.starts_with('+');
                // A single number is parsed as the thread's.
                let task = |(pid, tid)| match (fields.contains("pid"), says_tid) {
                    (true, true) => (pid, tid),
                    (true, false) => (None, pid),
                    (false, true) => (None, tid),
                    (false, false) => (None, None),
                };
                let said = |(period, ids, branches): &Sample| {
                    (period.filter(|_| asked), task(*ids), branches.clone())
                };
                let wanted: Vec<Sample> = wanted.iter().map(said).collect();
                assert!(as_a_set(&found) == as_a_set(&wanted), "{of}: other samples");
                let follow = name.contains("4.14");
                count += 1;
                // Every set with the small file; the same samples give the same tables.
                if !follow && number % 8 != 0 {
                    continue;
                }
                let tables = read(&bytes, follow);
                // Those of all sets that contain the same process and thread fields.
                let same =
                    expected.entry((fields.contains("pid"), says_tid)).or_insert_with(|| {
                        let plain = read(&plain(&found), follow);
                        assert_same(&plain, &counted(&wanted), &of);
                        plain
                    });
                assert_same(&tables, same, &of);
            }
            assert!(count >= 38, "{perf} {name}: {count}");
            for fields in REFUSED.into_iter().chain(OFFSETS) {
                let Some(bytes) = printed(&perf, &file, fields) else { continue };
                let of = format!("{perf} {name} {fields}");
                let error = of_text(&bytes).err().unwrap_or_else(|| panic!("{of}"));
                let is_said = matches!(
                    error,
                    ReadError::Line { error: LineError::Instructions | LineError::Offsets, .. }
                        | ReadError::NoBranches
                );
                assert!(is_said, "{of}: {error}");
            }
        }
    }
}

fn as_a_set(samples: &[Sample]) -> Vec<String> {
    let mut all: Vec<String> = samples
        .iter()
        .map(|(period, ids, branches)| {
            format!("{period:?} {ids:?} {}", printed_branches(branches).join(" "))
        })
        .collect();
    all.sort();
    all
}

/// With mappings, a text gives the same tables as the recording, file by file; so does one with
/// offsets instead of addresses.
#[test]
fn with_its_mappings_a_text_gives_the_same_rows() {
    let Some(corpus) = corpus() else { return };
    let folder = corpus.join("perf-data-converter/perfdata");
    for perf in perfs() {
        for name in ["perf.data.branch-4.14", "perf.data.callgraph_and_branch-3.4"] {
            let file = folder.join(name);
            let wanted = by_file(|| Recording::open(&file).unwrap());
            for fields in [
                "pid,tid,time,brstack",
                "+brstack,+pid",
                "comm,pid,tid,time,ip,brstack",
                "+brstack",
            ] {
                let mut command = tool(&perf);
                command.args([
                    "script",
                    "-f",
                    "--show-mmap-events",
                    "--show-task-events",
                    "-F",
                    fields,
                ]);
                let Ok(out) = command.arg("-i").arg(&file).output() else { continue };
                if out.status.success() {
                    let found = by_file(|| text(&out.stdout));
                    assert_same(&found, &wanted, &format!("{perf} {name} {fields}"));
                }
            }
        }
        let file = folder.join("perf.data.branch-4.14");
        let wanted = by_file(|| Recording::open(&file).unwrap());
        for fields in OFFSETS_IN_FILES {
            let Some(bytes) = printed(&perf, &file, fields) else { continue };
            assert_same(&by_file(|| text(&bytes)), &wanted, &format!("{perf} {fields}"));
        }
        // For a program this large it is ambiguous.
        let file = folder.join("perf.data.callgraph_and_branch-3.4");
        for fields in OFFSETS_IN_FILES {
            let Some(bytes) = printed(&perf, &file, fields) else { continue };
            let error = of_text(&bytes).unwrap_err();
            assert!(matches!(error, ReadError::Line { error: LineError::Offsets, .. }), "{error}");
        }
    }
}

fn branches(text: &str) -> Vec<Vec<String>> {
    let samples = of_text(text.as_bytes()).unwrap();
    samples.iter().map(|(_, _, branches)| printed_branches(branches)).collect()
}

/// perf pads a period to ten columns, a task to five or seven; ambiguous numbers are rejected.
#[test]
fn a_plain_number_is_interpreted_by_its_column() {
    let head = |line: &str| {
        let stream = Box::new(Cursor::new(format!("{line}0x400010/0x400020/P/-/-/0 \n")));
        let mut recording = Recording::from_stream(stream).unwrap();
        match recording.next_item() {
            Ok(Some(Item::Stack(stack))) => Ok((stack.head.tid, stack.head.period, stack.head.ip)),
            Ok(_) => panic!("{line}"),
            Err(error) => Err(error.to_string()),
        }
    };
    let ip = Some(0x7F06_D6A2_1E00);
    assert_eq!(head("        31      7f06d6a21e00 "), Ok((None, Some(31), ip)));
    assert_eq!(head("   31      7f06d6a21e00 "), Ok((Some(31), None, ip)));
    assert_eq!(head("     31      7f06d6a21e00 "), Ok((Some(31), None, ip)));
    assert_eq!(head("   1234567890      7f06d6a21e00 "), Ok((None, Some(1_234_567_890), ip)));
    // Another line shows which of them it is: no thread has so high a number (PID_MAX_LIMIT).
    let lines = "31 7f06d6a21e00 0x400010/0x400020/P/-/-/0\n\
                 4194304 7f06d6a21e00 0x400010/0x400020/P/-/-/0\n";
    let periods: Vec<_> = of_text(lines.as_bytes()).unwrap().iter().map(|of| of.0).collect();
    assert_eq!(periods, [Some(31), Some(4_194_304)]);
    // Also where the branches are in further lines.
    let lines = "12/13 12345 cycles:\n0x400010/0x400020\n0x400008/0x400010\n\
                 12/13 5000000 cycles:\n0x400010/0x400020\n0x400008/0x400010\n";
    let periods: Vec<_> = of_text(lines.as_bytes()).unwrap().iter().map(|of| of.0).collect();
    assert_eq!(periods, [Some(12_345), Some(5_000_000)]);
    let error = head("31 7f06d6a21e00 ").unwrap_err();
    assert!(error.starts_with("line 1: ") && error.contains("perf script -F"), "{error}");
}

/// Columns that fit three of four lines are those of the text, which is refused if they are
/// ambiguous; otherwise only their lines are.
#[test]
fn columns_of_most_lines_are_those_of_the_text() {
    let read = |ambiguous: usize, others: usize| {
        let lines = |columns: &str, count| format!("{columns} 0x10/0x20/P/-/-/0\n").repeat(count);
        let bytes = lines("31 7f06d6a21e00", ambiguous) + &lines("?", others);
        let mut recording = text(bytes.as_bytes());
        let mut samples = 0;
        while let Some(item) = recording.next_item()? {
            samples += usize::from(matches!(item, Item::Stack(_)));
        }
        let refused = recording.refused().unwrap();
        Ok::<_, ReadError>((samples, refused.lines, refused.error))
    };
    let Err(ReadError::Line { number, error }) = read(3, 1) else { panic!() };
    assert_eq!((number, error), (1, LineError::Ambiguous));
    assert_eq!(read(2, 1).unwrap(), (1, 2, LineError::Ambiguous));
}

/// BOLT's format of counts, and addresses after build IDs.
#[test]
fn texts_of_other_tools() {
    let counts = "B 4010c0 4010d0 5 2\nT 401000 401010 401020 3\nF 401010 401020 7\n\
                  R 401070 401010 401020 4\nf 401010 401030 2\nr 401010 401020 1\nE cycles\nS 401010 9\n\
                  F 401010 401040 0\nF 401020 401010 6\n";
    let open = || text(counts.as_bytes());
    let mut table = HotTable::count(&mut open(), |_, _| {}).unwrap();
    // One for each execution of a branch, and samples without one.
    assert_eq!((table.quality.samples, table.quality.empty_stacks), (5 + 3 + 4 + 9, 9));
    assert_eq!(table.quality.entries, 5 + 3 + 4);
    let flow = FlowCounter::default().count(&mut open(), |_, _| {}).unwrap();
    let blocks: Vec<_> = flow.blocks.iter().map(|b| (b.entry, b.exit, b.count)).collect();
    assert_eq!(blocks, [(0x40_1010, 0x40_1020, 3 + 7 + 4 + 1), (0x40_1010, 0x40_1030, 2)]);
    // The last one runs backwards: it is neither a block nor a branch.
    assert_eq!((flow.block_quality.backwards, flow.taken, flow.distinct), (6, 5 + 3 + 4, 3));
    let ret = table.branches.iter().find(|row| row.from == 0x40_1070).unwrap();
    assert_eq!(ret.branch_type, Some(lbr_msr::record::BranchType::RET));
    table.branches.retain(|row| row.from != 0x40_1070);
    table.branches.sort_by_key(|row| row.from);
    let rows: Vec<_> =
        table.branches.iter().map(|row| (row.from, row.to, row.count, row.mispredicted)).collect();
    assert_eq!(rows, [(0x40_1000, 0x40_1010, 3, None), (0x40_10C0, 0x40_10D0, 5, Some(2))]);
    // Neither a build ID nor X.
    assert!(of_text(counts.replace("B 4010c0", "B prog:4010c0").as_bytes()).is_err());
    let ids =
        " aabb1122:400630 aabb1122:0x40062f/aabb1122:0x4005b0/P/-/-/9  0x7f00/0x8000/P/-/-/1\n";
    assert_eq!(
        branches(ids),
        [["0x40062f/0x4005b0/P/-/-/9//-".to_owned(), "0x7f00/0x8000/P/-/-/1//-".to_owned()]]
    );
}

/// A recorder without predictions writes 0 mispredictions, as a program without any would.
#[test]
fn counts_without_any_misprediction_have_no_predictions() {
    for (missed, stacks, expected) in [(0, 2, (0, None)), (1, 3, (9, Some(1)))] {
        let counts = format!("B 401000 401010 5 0\nB 401020 401030 4 {missed}\n");
        assert_eq!(of_text(counts.as_bytes()).unwrap().len(), stacks);
        let table = HotTable::count(&mut text(counts.as_bytes()), |_, _| {}).unwrap();
        assert_eq!((table.known, table.mispredicted), expected);
    }
}

/// BOLT's numbers for no branch: `BR_ONLY`, `FT_ONLY`, `FT_EXTERNAL_ORIGIN` and
/// `FT_EXTERNAL_RETURN` are -1 to -3.
#[test]
fn traces_without_a_branch() {
    for (from, taken) in [(-1i64, 0), (-2, 0), (-3, 0), (-4, 3)] {
        let counts = format!("T {from:x} 401010 401020 3\nB 401030 401040 1 0\n");
        let flow = FlowCounter::default().count(&mut text(counts.as_bytes()), |_, _| {}).unwrap();
        let blocks: Vec<_> = flow.blocks.iter().map(|b| (b.entry, b.exit, b.count)).collect();
        assert_eq!((flow.taken, blocks), (1 + taken, vec![(0x40_1010, 0x40_1020, 3)]), "{from}");
    }
}

/// The line before the frames of a call chain, and its branches after them, are one sample.
#[test]
fn a_call_chain_is_inside_its_sample() {
    let text = "\
perf  6520 [000]  2488.437657:    1495736 cycles: 
\tffffffff81068283 [unknown] ([kernel.kallsyms])
\t           d8630 [unknown] (/lib64/libc-2.15.so)
 0x400010/0x400020/P/-/-/0  0x400030/0x400040/P/-/-/0 

perf  6521 [000]  2488.437658:          7 cycles: 
\tffffffff81068283 [unknown] ([kernel.kallsyms])

";
    let found = of_text(text.as_bytes()).unwrap();
    let said: Vec<_> = found.iter().map(|(period, _, b)| (period.unwrap(), b.len())).collect();
    assert_eq!(said, [(1_495_736, 2), (7, 0)]);
}

/// A branch is one item, or two if a part of its executions was mispredicted. Samples without
/// branches are items between them. Addresses after a build ID are in another file.
#[test]
fn counts_of_branches_are_items_in_order() {
    let counts = "B 10 20 5 2\nS 30 9\nB aabb1122:30 X:40 4 4\nB 50 60 3 0\n";
    let mut recording = text(counts.as_bytes());
    let (mut found, mut symbols) = (Vec::new(), Symbols::default());
    while let Some(item) = recording.next_item().unwrap() {
        match item {
            Item::Symbol(symbol) => symbols.add(symbol),
            Item::Stack(stack) => found.push((
                stack.head.weight,
                stack.entries.get(0).map(|of| (of.from, of.to, of.decode(false).mispredicted)),
            )),
            other => panic!("{other:?}"),
        }
    }
    let elsewhere = found[3].1.unwrap().0;
    let (symbol, offset) = symbols.find(elsewhere).unwrap();
    assert_eq!((symbol.name, offset), (Some("aabb1122"), 0x30));
    assert_eq!(
        found,
        [
            (3, Some((0x10, 0x20, Some(false)))),
            (2, Some((0x10, 0x20, Some(true)))),
            (9, None),
            (4, Some((elsewhere, 0x40, Some(true)))),
            (3, Some((0x50, 0x60, Some(false)))),
        ]
    );
}

/// perf prints counter values of branches next to the executed instructions.
#[test]
fn counts_next_to_instructions_belong_to_their_branches() {
    let sample = "     tchain_edit  332203 3366329.405674:      53030 branch-instructions:ppp:            401781 f3+0x2c (/t) 0x401781/0x401766/P/-/-/1  0x401774/0x40177a/P/-/-/5 \n";
    let legend = "\
# Branch counter abbr list:
# branch-instructions:ppp = A
# branch-misses = B
# '-' No event occurs
# '+' Event occurrences may be lost due to branch counter saturated
";
    let instructions = "\
\tf3+31:
\t0000000000401774\tinsn: eb 04                     \tbr_cntr: AAAB+\t# PRED 5 cycles [5]
\t000000000040177a\tinsn: 81 7d fc 0f 27 00 00
\t0000000000401781\tinsn: 7e e3                     \tbr_cntr: A-\t# PRED 1 cycles [6] 2.00 IPC

";
    let elsewhere = &*instructions.replace("401774", "401770");
    let bare = " 0x401781/0x401766/P/-/-/1  0x401774/0x40177a/P/-/-/5 \n";
    for (sample, tid) in [(sample, Some(332_203)), (bare, None)] {
        let bytes = [
            [legend, sample, instructions].concat(),
            [sample, sample, instructions].concat(),
            [sample, elsewhere].concat(),
        ];
        let mut recording = text(bytes.concat().as_bytes());
        let mut counts = Vec::new();
        while let Some(item) = recording.next_item().unwrap() {
            if let Item::Stack(stack) = item {
                assert_eq!((stack.head.tid, stack.entries.len()), (tid, 2));
                counts.push(stack.counters.map(|of| [of.get(0).unwrap(), of.get(1).unwrap()]));
            }
        }
        let said = Some([[Some(1), Some(0), None, None], [Some(3), Some(1), None, None]]);
        // perf could not read the code of the second one; the last one has no counts of a branch.
        assert_eq!(counts, [said, None, said, None]);
    }
    // A sample without branches has no counts.
    let none = sample.split_once(" 0x").unwrap().0;
    let mut recording = text([sample, instructions, none, "\n"].concat().as_bytes());
    let mut counts = Vec::new();
    let count = |stack: &Stack<'_>| counts.push((stack.entries.len(), stack.counters.is_some()));
    each_stack(&mut recording, count).unwrap();
    assert_eq!(counts, [(2, true), (0, false)]);
}

/// Numbers at the sampled address or in a mapping are addresses, however low; without such evidence
/// they are ambiguous.
#[test]
fn low_numbers_are_addresses_if_code_is_known() {
    let some = |base: u64, count: u64| {
        let entry = |at: u64| format!("{:#x}/{:#x}/P/-/-/0  ", base + 16 * at, base + 16 * at + 8);
        (0..count).map(entry).collect::<String>()
    };
    let branches = |base: u64| some(base, 20);
    let read = |bytes: String| of_text(bytes.as_bytes()).map(|samples| samples.len());
    let error = read(branches(0x1100) + "\n").unwrap_err().to_string();
    assert!(
        error.starts_with("line 1: ") && error.contains("perf script -F ip,brstack"),
        "{error}"
    );
    // The first line with a low number is reported.
    let high = " 0x7f06d6a21e00/0x7f06d6a21e10/P/-/-/0 \n";
    let error = read(format!("{high}{}\n", branches(0x1100))).unwrap_err().to_string();
    assert!(error.starts_with("line 2: "), "{error}");
    assert_eq!(read(format!("             1130 {}\n", branches(0x1100))).unwrap(), 1);
    assert_eq!(read(branches(0x40_1100) + "\n").unwrap(), 1);
    let map = "x 1/1 1.0: PERF_RECORD_MMAP2 1/1: [0x1000(0x1000) @ 0 0:0 0 0]: r-xp /a\n";
    assert_eq!(read(format!("{map}{}\n", branches(0x1100))).unwrap(), 1);
    // All of them are far from the mappings: 16 addresses are enough, 14 are not.
    assert!(read(format!("{map}{}\n", some(0x40_1100, 8))).is_err());
    assert_eq!(read(format!("{map}{}\n", some(0x40_1100, 7))).unwrap(), 1);
    // The sample was in a library, and every branch is low: offsets in it.
    let far = format!("     7f06d6a21e00 {}\n", branches(0x2_1E00));
    assert!(read(far.repeat(4)).is_err());
    // So are four such samples without low numbers, or one with four. Libraries are above 4 GiB.
    let far = format!("        100000000 {}\n", branches(0x40_1100));
    assert!(read(far.repeat(4)).is_err());
    assert_eq!(read(far.repeat(3)).unwrap(), 3);
    let high = format!("     7f06d6a21e00 {}\n", some(0xFFFF_FF88, 8));
    assert_eq!(read(high.repeat(4)).unwrap(), 4);
    // As many samples are at most 1 MiB, the longest block, from one of their branches.
    let near = format!("           501238 {}\n", branches(0x40_1100));
    assert_eq!(read(far.repeat(4) + &near.repeat(4)).unwrap(), 8);
    let low =
        |end: &str| format!("     7f06d6a21e00 0x1100/0x1110/P/-/-/0  0x1120/{end}/P/-/-/0 \n");
    assert!(read(low("0x1130")).is_err());
    assert_eq!(read(low("0x401130")).unwrap(), 1);
    // A sample in the kernel is not near its program, wherever that is.
    let kernel = format!(" ffffffff81068283 {}\n", branches(0x40_1100));
    assert_eq!(read(kernel.repeat(4)).unwrap(), 4);
    // A program that calls the kernel has a library for that.
    let calls = some(0x40_1100, 8) + &some(0xFFFF_FFFF_8100_0000, 8);
    assert!(read(format!("{calls}\n")).is_err());
    // Up to 4 GiB.
    assert_eq!(read(format!("{calls}{}\n", some(0xFFFF_FF88, 8))).unwrap(), 1);
}

/// `-F brstackoff,dso` prints offsets in libraries and in programs without a fixed address, other
/// addresses as they are. A high number in a program can be either.
#[test]
fn offsets_in_files_are_distinguished_from_addresses() {
    /// Four offsets below any library's address.
    const LIBRARY: &str = " 0x29d90(/lib/a.so)/0x29e40(/lib/a.so)/P/-/-/0  \
                           0x2a010(/lib/a.so)/0x28a010(/lib/a.so)/P/-/-/0 \n";
    let read = |bytes: &str| {
        let open = || Ok::<_, ReadError>(text(bytes.as_bytes()));
        let table = HotTable::count(&mut open()?, |_, _| {})?;
        let ends = table.branches.iter().map(|row| {
            let from = place(&table.maps, row.from_location, row.from);
            [from, place(&table.maps, row.to_location, row.to)]
        });
        let of_library = |ends: &[String; 2]| ends[0].starts_with("/lib/a.so+");
        let (library, others): (Vec<_>, Vec<_>) = ends.partition(of_library);
        assert_eq!(library.len(), 2);
        Ok::<_, ReadError>(others)
    };
    let entry = |from: &str, to: &str| format!(" {from}/{to}/P/-/-/0 \n");
    let offsets = entry("0x1139(/bin/x)", "0x401150(/bin/x)");
    assert_eq!(
        read(&(LIBRARY.to_owned() + &offsets)).unwrap(),
        [["/bin/x+0x1139", "/bin/x+0x401150"]]
    );
    // perf 6.3 and later print a space before each file.
    let spaced = (LIBRARY.to_owned() + &offsets).replace('(', " (");
    assert_eq!(read(&spaced).unwrap(), [["/bin/x+0x1139", "/bin/x+0x401150"]]);
    let kept = entry("0xffffffff81000010([kernel.kallsyms])", "0x0(/bin/x)");
    assert_eq!(read(&(LIBRARY.to_owned() + &kept)).unwrap(), [["0xffffffff81000010", "0x0"]]);
    let either = entry("0x401139(/bin/y)", "0x401150(/bin/y)");
    // lld links programs at 0x200000.
    let lowest = entry("0x200000(/bin/y)", "0x0(/bin/y)");
    let far = format!("        100000000 {either}");
    let near = format!("           401139 {either}");
    for text in [&either, &lowest, &(far.clone() + &near), &near] {
        let error = read(&format!("{LIBRARY}{offsets}{text}")).unwrap_err();
        assert!(matches!(error, ReadError::Line { error: LineError::Offsets, .. }), "{error}");
    }
    // All samples were in code above 4 GiB, and none in a program at a fixed address.
    assert_eq!(
        read(&(LIBRARY.to_owned() + &far)).unwrap(),
        [["/bin/y+0x401139", "/bin/y+0x401150"]]
    );
    // The first lines do not show this program.
    let long = LIBRARY.repeat(2000);
    let late = entry("0x1139(/bin/z)", "0x1150(/bin/z)");
    assert_eq!(read(&(long.clone() + &late)).unwrap(), [["/bin/z+0x1139", "/bin/z+0x1150"]]);
    assert!(read(&(long + &either)).is_err());
}
