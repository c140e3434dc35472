//! Texts with symbols instead of addresses (`perf script -F brstacksym`).

use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;
use std::path::Path;

use profile::EntryFlags;
use profile::brstack::{EntryError, LineError, Printed, parse_line};
use profile::flow::{Flow, FlowCounter};
use profile::hot::{Counter, HotTable};
use profile::maps::{Location, Maps, Named};
use profile::names::{Names, Symbols};
use profile::place::{LocationSpec, PlaceError};
use profile::{Item, RawBranch, Recording};
use proptest::prelude::*;

use crate::recorded::{each_stack, events, meta, stream};

fn open(text: &str) -> Recording {
    Recording::from_stream(Box::new(Cursor::new(text.as_bytes().to_vec()))).unwrap()
}

/// A parsed end of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    At(u64),
    In(String, u64, Option<String>),
    Unknown(Option<String>),
}

fn end(symbols: &Symbols, number: u64) -> End {
    match symbols.find(number) {
        None => End::At(number),
        Some((symbol, offset)) => {
            let file = symbol.file.map(str::to_owned);
            match symbol.name {
                Some(name) => End::In(name.to_string(), offset, file),
                None => End::Unknown(file),
            }
        }
    }
}

/// The content of a text, by sample: its process, its address, its branches.
type Sample = (Option<u32>, Option<u64>, Vec<(End, End, RawBranch)>);

/// Samples, and the first rejected line.
type Everything = (Vec<Sample>, Vec<(u64, LineError)>);

fn read(text: &str) -> Everything {
    try_read(text).unwrap()
}

/// The same; `None` for a text without branches.
fn try_read(text: &str) -> Option<Everything> {
    let mut recording = open(text);
    let (mut found, mut symbols) = (Vec::new(), Symbols::default());
    while let Some(item) = recording.next_item().ok()? {
        match item {
            Item::Symbol(symbol) => symbols.add(symbol),
            Item::Stack(stack) => {
                let ends = |b: RawBranch| (end(&symbols, b.from), end(&symbols, b.to), b);
                let branches = stack.entries.iter().map(ends).collect();
                found.push((stack.head.pid.or(stack.head.tid), stack.head.ip, branches));
            }
            Item::Event(_) | Item::Straight(_) | Item::LeftOut => {}
        }
    }
    let refused = recording.refused().map(|refused| (refused.first, refused.error));
    Some((found, refused.into_iter().collect()))
}

/// The ends of the first sample's branches.
fn ends(line: &str) -> Vec<(End, End)> {
    let (found, refused) = read(&format!("{line}\n"));
    assert_eq!((found.len(), &refused[..]), (1, &[][..]), "{line}");
    found[0].2.iter().map(|(from, to, _)| (from.clone(), to.clone())).collect()
}

fn named(name: &str, offset: u64) -> End {
    End::In(name.to_owned(), offset, None)
}

fn in_file(name: &str, offset: u64, file: &str) -> End {
    End::In(name.to_owned(), offset, Some(file.to_owned()))
}

#[test]
fn names_may_hold_anything() {
    for name in [
        "main",
        "my::V<long>::operator/",
        "my::V<long>::operator+",
        "operator++",
        "my::V<long>::operator/(my::V<long> const&) const",
        "void foo<int, std::pair<int, int> >(int (*)(int), unsigned long)",
        "main::{lambda(int, int)#1}::operator()(int, int) const",
        "(anonymous namespace)::Distance::operator()",
        "<alloc::vec::Vec<T> as core::ops::Deref>::deref",
        "core::ptr::drop_in_place::<[u8; 32]>",
        "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
        "do_syscall_64.part.0",
        "foo.cold",
        "non-virtual thunk to A::b() const",
        "__x86_indirect_thunk_rax",
        "memcpy@plt",
        "free@@GLIBC_2.2.5",
        "a+0xb",
        "überläufer",
        "abc",
        "[k]odd",
    ] {
        let line = format!(
            "{name}+0x1c/{name}+0x0/P/-/-/0/COND/-  main+0x4/{name}+0x1c/M/-/-/12 {name}+0xffff/main+0x5/-/X/A/0/RET"
        );
        let wanted = [
            (named(name, 0x1C), named(name, 0)),
            (named("main", 4), named(name, 0x1C)),
            (named(name, 0xFFFF), named("main", 5)),
        ];
        assert_eq!(ends(&line), wanted, "{name}");
        // With files, whose paths contain special characters.
        for file in ["/usr/bin/x", "[kernel.kallsyms]", "/a b/c (deleted)", "/x(y)/z+0x", "[xfs]"] {
            let line = format!(
                "{name}+0x1c({file})/{name}+0x0({file})/P/-/-/0 {name}+0x2(/b)/{name}+0x3({file}+0x1136)/P/-/-/0"
            );
            let wanted = [
                (in_file(name, 0x1C, file), in_file(name, 0, file)),
                (in_file(name, 2, "/b"), in_file(name, 3, file)),
            ];
            assert_eq!(ends(&line), wanted, "{name} in {file}");
        }
    }
}

#[test]
fn code_without_a_symbol_is_unknown_or_an_address() {
    let unknown = || End::Unknown(None);
    assert_eq!(
        ends("[unknown]/main+0x0/P/-/-/0 main+0x8/[unknown]/P/-/-/0 [unknown]/[unknown]/P/-/-/0"),
        [(unknown(), named("main", 0)), (named("main", 8), unknown()), (unknown(), unknown()),]
    );
    let file = |file: &str| End::Unknown(Some(file.to_owned()));
    assert_eq!(
        ends("[unknown]([unknown])/[unknown](/usr/bin/x)/P/-/-/0"),
        [(file("[unknown]"), file("/usr/bin/x"))]
    );
    assert_eq!(
        ends("0x401000/0x401001/P/-/-/0 [unknown]/0x401002/P/-/-/0"),
        [(End::At(0x40_1000), End::At(0x40_1001)), (unknown(), End::At(0x40_1002))]
    );
    let (found, _) = read("   12 0x401000/f+0x1/P/-/-/0\n");
    assert_eq!((found[0].0, &found[0].2[0].0), (Some(12), &End::At(0x40_1000)));
    assert_eq!(
        ends("0x401000/main+0x1/P/-/-/0 main+0x2/0x401002/P/-/-/0 0x401003/0x401004/P/-/-/0"),
        [
            (End::At(0x40_1000), named("main", 1)),
            (named("main", 2), End::At(0x40_1002)),
            (End::At(0x40_1003), End::At(0x40_1004)),
        ]
    );
}

/// perf prints the first name directly after the preceding field.
#[test]
fn the_first_name_is_separated_from_the_preceding_fields() {
    let entry = "dead_end+0x8/f+0x0/P/-/-/0 g+0x1/dead_end+0x2/P/-/-/0";
    let wanted = [(named("dead_end", 8), named("f", 0)), (named("g", 1), named("dead_end", 2))];
    for (head, pid, ip) in [
        ("", None, None),
        // 16 columns, followed by a name of hexadecimal digits.
        ("     55555588286e", None, Some(0x5555_5588_286E)),
        (" ffffffff81234567", None, Some(0xFFFF_FFFF_8123_4567)),
        ("     555555882860", None, Some(0x5555_5588_2860)),
        ("   12      555555882860", Some(12), Some(0x5555_5588_2860)),
        // The symbol of the address, with and without its file.
        ("     55555588286e f", None, Some(0x5555_5588_286E)),
        ("     55555588286e f+0x0", None, Some(0x5555_5588_286E)),
        ("     55555588286e dead_end", None, Some(0x5555_5588_286E)),
        ("     55555588286e f (/usr/bin/x)", None, Some(0x5555_5588_286E)),
        ("     55555588286e f+0x0 (/a (b)/c)", None, Some(0x5555_5588_286E)),
        ("     55555588286e [unknown] ([kernel.kallsyms])", None, Some(0x5555_5588_286E)),
        ("     55555588286e f(int) (/usr/bin/x)", None, Some(0x5555_5588_286E)),
        // As `lbr script -F ip,quality,brstack` prints it.
        ("     55555588286e {stream,joined,whole}  ", None, Some(0x5555_5588_286E)),
        ("     55555588286e {-}  ", None, Some(0x5555_5588_286E)),
        ("   12 ", Some(12), None),
        ("12345 ", Some(12345), None),
        ("   12/13    ", Some(12), None),
        ("prog 12/13 2.5: 4005dc ", Some(12), Some(0x40_05DC)),
        ("            prog ", None, None),
        ("     my prog x07 ", None, None),
        ("            prog 12/13    [001] ", Some(12), None),
        ("            prog 12/13 2505.292041: ", Some(12), None),
        ("            prog 12/13 2505.292041:    7 cycles:u: ", Some(12), None),
        (
            "            prog 12/13 2505.292041:    7 cycles:u:      55555588286e",
            Some(12),
            Some(0x5555_5588_286E),
        ),
        (
            "            prog 12/13 [001] 2.5:  7 cycles:u:      55555588286e f (/usr/bin/x y)",
            Some(12),
            Some(0x5555_5588_286E),
        ),
    ] {
        let (found, refused) = read(&format!("{head}{entry}\n"));
        assert_eq!(refused, [], "{head}");
        let ends: Vec<_> = found[0].2.iter().map(|(a, b, _)| (a.clone(), b.clone())).collect();
        assert_eq!(ends, wanted, "{head}");
        assert_eq!((found[0].0, found[0].1), (pid, ip), "{head}");
    }
    // The end of `other` is ambiguous: it is not guessed.
    let glued = format!("     55555588286e other{entry}\n");
    let (found, _) = read(&glued);
    assert_eq!(found[0].2[0].0, End::Unknown(None));
    assert_eq!(found[0].2[1].0, named("g", 1));
    // After the name has occurred, it is recognized.
    let (found, _) = read(&format!("other+0x1/g+0x0/P/-/-/0\n{glued}"));
    assert_eq!(found[1].2[0].0, named("dead_end", 8));
    // `foo` and `domain`: the function of the previous branch is only the end of the name.
    let glued = "     55555588286e foodomain+0x8/f+0x0/P/-/-/0 g+0x1/main+0x2/P/-/-/0\n";
    let (found, _) = read(&format!("foo+0x1/domain+0x0/P/-/-/0\n{glued}"));
    assert_eq!(found[1].2[0].0, named("domain", 8));
}

/// A template's name may contain a space and another function's name.
#[test]
fn a_known_name_may_end_another() {
    let (found, _) = read("g<x>(int)+0x1/f+0x0/P/-/-/0\nunsigned g<x>(int)+0x8/f+0x0/P/-/-/0\n");
    assert_eq!(found[0].2[0].0, named("g<x>(int)", 1));
    assert_eq!(found[1].2[0].0, named("unsigned g<x>(int)", 8));
}

/// Most lines show that the text has no column of events.
#[test]
fn a_name_with_a_colon_is_not_an_event() {
    let line = |name: &str| format!("   12 {name}+0x1/f+0x0/P/-/-/0\n");
    let (found, _) = read(&(line("main").repeat(3) + &line("Stub: call")));
    assert_eq!((found[3].0, &found[3].2[0].0), (Some(12), &named("Stub: call", 1)));
}

#[test]
fn invalid_entries_are_refused() {
    let mut entries = Vec::new();
    for (line, index, error) in [
        ("main/f+0x0/P/-/-/0", 1, EntryError::NoPlace),
        ("main+0x1/P/-/-/0", 1, EntryError::NoPlace),
        ("+0x1/f+0x0/P/-/-/0", 1, EntryError::NoPlace),
        ("   12 +0x1/f+0x0/P/-/-/0", 1, EntryError::NoPlace),
        ("main+0x1/+0x2/P/-/-/0", 1, EntryError::NoPlace),
        ("main+0x1/f+0x/P/-/-/0", 1, EntryError::NoPlace),
        ("main+0x1/f+0x00000000000000001/P/-/-/0", 1, EntryError::NoPlace),
        ("main+0x1/f+0x0/P/-/-/0 main", 2, EntryError::NoPlace),
        ("main+0x1/f+0x0/P/-/-/0 main/f+0x2/P/-/-/0", 2, EntryError::NoPlace),
        ("main+0x1/f+0x0/P/-/-/0 x0x12/f+0x2/P/-/-/0", 2, EntryError::NoPlace),
        ("main+0x1/f+0x0/P/-/-/0/COND/-/-/-", 1, EntryError::Fields(10)),
        ("main+0x1/f+0x0/P/-/-/0x", 1, EntryError::Cycles),
        ("main+0x1/0x5a00000000000010/P/-/-/0", 1, EntryError::Impossible),
        ("main+0x1/f+0x0/P/-/-/0 0x5a00000000000010/f+0x0/P/-/-/0", 2, EntryError::Impossible),
    ] {
        let found = parse_line(line.as_bytes(), &mut entries, &mut Names::default());
        assert_eq!(found, Err(LineError::Entry { index, error }), "{line}");
        assert!(entries.is_empty());
    }
}

/// With both formats, every branch occurs twice.
#[test]
fn symbols_with_addresses_are_accepted() {
    let addresses = " 0x10/0x20/P/-/-/1  0x30/0x40/M/-/-/2 ";
    let symbols = "operator new+0x10/f<a, b>+0x0/P/-/-/1 f<a, b>+0x3/[unknown]/M/-/-/2";
    let at = |from, to| (End::At(from), End::At(to));
    assert_eq!(ends(&format!("{addresses} {symbols}")), [at(0x10, 0x20), at(0x30, 0x40)]);
    // Other fields, or other numbers in them, are other branches.
    let other = symbols.replace("/P/-/-/1", "/P/-/-/3");
    assert_eq!(ends(&format!("{addresses} {other}")).len(), 4);
    assert_eq!(ends(&format!("{addresses} {symbols} a+0x1/b+0x1/P/-/-/0")).len(), 5);
}

#[test]
fn forms_of_recordings() {
    for (bytes, is_perf_data, has_names) in [
        (&stream(meta(), &events())[..], true, false),
        (b" 0x10/0x20/P/-/-/0 \n", false, false),
        (b" main+0x10/main+0x1c/P/-/-/0 \n", false, true),
    ] {
        let mut recording = Recording::from_stream(Box::new(Cursor::new(bytes.to_vec()))).unwrap();
        each_stack(&mut recording, |_| {}).unwrap();
        let found = (recording.is_perf_data(), recording.has_names());
        assert_eq!(found, (is_perf_data, has_names));
    }
}

/// Numbers that represent symbols do not, if a recording has them as addresses, whatever else is
/// read.
#[test]
fn addresses_are_not_mistaken_for_symbols() {
    const ODD: u64 = 0x5A00_0000_0000_001C;
    let odd = " 0x5a00000000000010/0x5a0000000000001c/P/-/-/0 \n";
    let by_name = "main+0x10/main+0x1c/P/-/-/0\n";
    let count = |texts: &[&str]| -> (HotTable, Vec<u64>) {
        let mut counter = Counter::default();
        let mut refused = Vec::new();
        for text in texts {
            let mut recording = open(text);
            counter.recording(&mut recording, |_, _| {}).unwrap();
            refused.push(recording.refused().map_or(0, |refused| refused.lines));
        }
        (counter.finish(), refused)
    };
    let places = |table: &HotTable| {
        let mut places: Vec<(bool, u64)> =
            table.branches.iter().map(|b| (table.maps.is_named(b.to_location), b.count)).collect();
        places.sort_unstable();
        places
    };
    // Alone, it is an address, however unusual.
    let (table, refused) = count(&[odd]);
    assert_eq!((table.branches[0].to_location, &refused[..]), (Location::Address(ODD), &[0][..]));
    // Before the first symbol it remains one; after it, it is rejected.
    for pid in ["", "  12 "] {
        let text = format!("{pid}{odd}{pid}{by_name}{pid}{odd}");
        let (table, refused) = count(&[&text]);
        assert_eq!((places(&table), refused), (vec![(false, 1), (true, 1)], vec![1]), "{pid}");
    }
    // So is an entry with one such end.
    for ends in ["0x5a00000000000010/0x20", "0x10/0x5a0000000000001c"] {
        let (_, refused) = count(&[&format!("{by_name} {ends}/P/-/-/0 \n")]);
        assert_eq!(refused, [1], "{ends}");
    }
    let second = format!("{by_name} 0x10/0x20/P/-/-/0  0x5a00000000000010/0x20/P/-/-/0 \n");
    let error = LineError::Entry { index: 2, error: EntryError::Impossible };
    assert_eq!(read(&second).1, [(2, error)]);
    // Another recording is independent of it.
    for texts in [[by_name, odd], [odd, by_name]] {
        let (table, refused) = count(&texts);
        assert_eq!((places(&table), refused), (vec![(false, 1), (true, 1)], vec![0, 0]));
    }
}

/// The same function of two recordings is one, whatever the order of its names; that of another
/// file is different.
#[test]
fn names_join_recordings() {
    let one = "f+0x8(/a)/f+0x0(/a)/P/-/-/0 g+0x8(/a)/f+0x0(/a)/P/-/-/0\n";
    let two =
        "g+0x8(/a)/f+0x0(/a)/M/-/-/0 f+0x8(/a)/f+0x0(/a)/P/-/-/0 f+0x8(/b)/f+0x0(/b)/P/-/-/0\n";
    let mut counter = Counter::default();
    for text in [one, two] {
        counter.recording(&mut open(text), |_, _| {}).unwrap();
    }
    let mut table = counter.finish();
    let HotTable { branches, maps, .. } = &mut table;
    let mut rows: Vec<_> = branches
        .iter()
        .map(|b| {
            assert_eq!(maps.address_of(b.from_location, b.from), None);
            let Location::File { file, .. } = b.from_location else { panic!() };
            let path = maps.path(file).unwrap().to_owned();
            (maps.name(b.from_location).unwrap().name, path, b.count)
        })
        .collect();
    rows.sort();
    let row = |name: &str, path: &str, count| (name.to_owned(), path.to_owned(), count);
    assert_eq!(rows, [row("f", "/a", 2), row("f", "/b", 1), row("g", "/a", 2)]);
}

/// Symbols with an unknown end: perf prints the last one before an address, however far away it is.
#[test]
fn offsets_may_be_huge() {
    let text = "_end+0xffffffff80000010/_end+0xffffffff80000000/P/-/-/0 _end+0x7fffff/_end+0x800000/P/-/-/0\n";
    let mut table = HotTable::count(&mut open(text), |_, _| {}).unwrap();
    let mut places: Vec<(u64, u64)> = Vec::new();
    for branch in std::mem::take(&mut table.branches) {
        let [from, to] = [branch.from_location, branch.to_location]
            .map(|location| name(&mut table.maps, location));
        assert_eq!((from.0.as_str(), to.0.as_str()), ("_end", "_end"));
        places.push((from.1, to.1));
    }
    places.sort_unstable();
    assert_eq!(places, [(0x7F_FFFF, 0x80_0000), (0xFFFF_FFFF_8000_0010, 0xFFFF_FFFF_8000_0000)]);
    assert_eq!(read(text).0[0].2[1].1, named("_end", 0x80_0000));
}

fn flow(text: &str) -> Flow {
    let mut counter = FlowCounter::default();
    counter.recording(&mut open(text), |_, _| {}).unwrap();
    counter.finish()
}

fn name(maps: &mut Maps, location: Location) -> (String, u64) {
    let Named { name, offset } = maps.name(location).unwrap();
    (name, offset)
}

#[test]
fn fall_through_never_spans_two_names() {
    // Oldest last. f+0x10..f+0x20 ran, and g+0x0..g+0x7fffff would have, but is implausible; no
    // code ran from h to f, or from or to unknown locations.
    let text = "f+0x20/h+0x0/P/-/-/9 h+0x5/f+0x10/P/-/-/3 [unknown]/h+0x1/P/-/-/2 f+0x30/[unknown]/P/-/-/1 \
                [unknown]/f+0x28/P/-/-/1 g+0x7fffff/[unknown]/P/-/-/0 x+0x1/g+0x0/P/-/-/0\n";
    let mut flow = flow(text);
    let blocks: Vec<_> = flow.blocks.iter().map(|b| (b.entry_location, b.exit_location)).collect();
    let mut found: Vec<_> = blocks
        .iter()
        .map(|(entry, exit)| (name(&mut flow.maps, *entry), name(&mut flow.maps, *exit)))
        .collect();
    found.sort();
    let block = |name: &str, entry, exit| ((name.to_owned(), entry), (name.to_owned(), exit));
    assert_eq!(found, [block("f", 0x10, 0x20), block("f", 0x28, 0x30), block("h", 1, 5)]);
    let quality = &flow.block_quality;
    assert_eq!((quality.apart, quality.impossible(), quality.crossing), (3, 0, 0));
    // In the kernel or not, if the file shows it.
    let text = "f+0x20([kernel.kallsyms])/g+0x0(/usr/bin/x)/P/-/-/9 g+0x5(/usr/bin/x)/f+0x10([kernel.kallsyms])/P/-/-/3\n";
    assert_eq!(self::flow(text).blocks.len(), 1);
    // Two unknown locations are not the same.
    for ends in ["f+0x8/[unknown]", "[unknown]/f+0x0", "[unknown]/[unknown]"] {
        let twice = format!("{ends}/P/-/-/1 {ends}/P/-/-/1 f+0x8/[unknown]/P/-/-/1\n");
        let flow = self::flow(&twice);
        assert_eq!((flow.quality.duplicated_newest, flow.taken), (0, 3), "{ends}");
    }
    // Nor are they of one type.
    let twice = "[unknown]/[unknown]/P/-/-/1 [unknown]/[unknown]/P/-/-/1 f+0x8/[unknown]/P/-/-/1\n";
    let typed = twice.replace("P/-/-/1", "P/-/-/1/COND");
    let flow = self::flow(&typed);
    let types: Vec<_> = flow.sites.iter().map(|site| (site.taken, site.conditional)).collect();
    assert_eq!(types, [(2, None), (1, Some(true))]);
    let mut table = HotTable::count(&mut open(&typed), |_, _| {}).unwrap();
    let rows = std::mem::take(&mut table.branches);
    let types: Vec<bool> = rows.iter().map(|row| row.type_in(&mut table.maps).is_some()).collect();
    assert_eq!(types, [false, true]);
    let twice = "f+0x8/g+0x0/P/-/-/1 f+0x8/g+0x0/P/-/-/1 h+0x8/f+0x0/P/-/-/1\n";
    assert_eq!(self::flow(twice).quality.duplicated_newest, 1);
}

#[test]
fn names_are_locations() {
    let mut flow = flow(
        "f+0x20(/usr/bin/x)/f+0x0(/usr/bin/x)/P/-/-/9 f+0x20(/usr/bin/x)/f+0x0(/usr/bin/x)/P/-/-/9 g+0x20(/a)/g+0x0(/b)/P/-/-/9\n",
    );
    let block = flow.blocks[0].clone();
    let spans = |flow: &mut Flow, text: &str| flow.maps.resolve(&text.parse().unwrap(), &|_| 0.0);
    let found = spans(&mut flow, "f+0x20").unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].contains(block.exit_location) && !found[0].contains(block.entry_location));
    assert!(spans(&mut flow, "x:f").unwrap()[0].contains(block.entry_location));
    assert!(matches!(spans(&mut flow, "nope"), Err(PlaceError::NoSymbol { .. })));
    let Err(PlaceError::Ambiguous { candidates, .. }) = spans(&mut flow, "g") else { panic!() };
    let names: Vec<&str> = candidates.iter().map(|candidate| &*candidate.name).collect();
    assert_eq!(names, ["a:g", "b:g"]);
    assert!(candidates.iter().all(|candidate| candidate.address.is_none()));
    // The numbers inside are not addresses.
    let number = LocationSpec::Address(block.entry);
    assert_eq!(
        flow.maps.resolve(&number, &|_| 0.0).unwrap()[0].start,
        Location::Address(block.entry)
    );
}

/// Texts of perf 6.1 for one recording. Addresses and printed names differ by constant distances,
/// so the addresses show whether names and offsets were parsed correctly.
#[test]
fn perfs_own_texts_agree_with_its_addresses() {
    let texts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/texts");
    let text = |name: &str| std::fs::read_to_string(texts.join(name)).unwrap();
    let (numbers, refused) = read(&text("perf-6.1-brstack.txt"));
    assert_eq!((numbers.len(), &refused[..]), (24, &[][..]));
    for (name, is_symbolic) in [("perf-6.1-brstack.txt", false), ("perf-6.1-brstacksym.txt", true)]
    {
        let mut recording = open(&text(name));
        assert!(!recording.has_names(), "{name}: nothing is read yet");
        while recording.next_item().unwrap().is_some() {}
        assert_eq!(recording.has_names(), is_symbolic, "{name}");
    }
    for (name, files) in [
        ("perf-6.1-brstacksym.txt", false),
        ("perf-6.1-full-brstacksym.txt", true),
        ("perf-6.1-ip-sym-brstacksym.txt", false),
    ] {
        let (found, refused) = read(&text(name));
        assert_eq!(refused, [], "{name}");
        assert_eq!(found.len(), numbers.len(), "{name}");
        // By base and file; equal names are overloads.
        let mut bases: HashMap<(String, Option<String>), BTreeMap<u64, u64>> = HashMap::new();
        let mut unknown = 0;
        for ((_, _, found), (_, _, numbers)) in found.iter().zip(&numbers) {
            assert_eq!(found.len(), numbers.len(), "{name}");
            for ((from, to, branch), (_, _, number)) in found.iter().zip(numbers) {
                assert_eq!(branch.flags, number.flags);
                for (end, address) in [(from, number.from), (to, number.to)] {
                    match end {
                        End::In(name, offset, file) => {
                            assert_eq!(file.is_some(), files);
                            let bases = bases.entry((name.clone(), file.clone())).or_default();
                            *bases.entry(address - offset).or_default() += 1;
                        }
                        End::Unknown(_) => unknown += 1,
                        End::At(_) => panic!("{name}: {address:#x}"),
                    }
                }
            }
        }
        for ((name, _), bases) in &bases {
            let several = files && bases.len() > 1;
            assert!(!several || name.contains("::") || name == "_init", "{name}: {bases:x?}");
        }
        let names = |name: &str| bases.keys().any(|(known, _)| known == name);
        assert!(names("shapes::Vec<long>::operator/") && names("shapes::Vec<long>::operator+"));
        assert!(names("(anonymous namespace)::Distance::operator()") && names("main"));
        let said = text("perf-6.1-brstacksym.txt").matches("[unknown]").count();
        assert_eq!(unknown, said, "{name}");
    }
}

/// Samples as `lbr script` prints them.
fn printed(samples: &[Sample]) -> String {
    let place = |end: &End| {
        let (text, file) = match end {
            End::At(address) => (format!("{address:#x}"), &None),
            End::In(name, offset, file) => (format!("{name}+{offset:#x}"), file),
            End::Unknown(file) => ("[unknown]".to_owned(), file),
        };
        let file = file.as_ref().map_or_else(String::new, |file| format!("({file})"));
        text + &file
    };
    let line = |(_, _, branches): &Sample| {
        let entries = branches.iter().map(|(from, to, branch)| {
            let mut fields = Vec::new();
            Printed(*branch).append_fields(&mut fields);
            format!("{}/{}{}", place(from), place(to), String::from_utf8(fields).unwrap())
        });
        entries.collect::<Vec<_>>().join(" ") + "\n"
    };
    samples.iter().filter(|(_, _, branches)| !branches.is_empty()).map(line).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// With any damage: what is read prints as text that parses to the same.
    #[test]
    fn damaged_names_are_accepted_or_refused(
        line in any::<proptest::sample::Index>(),
        cuts in proptest::collection::vec((any::<proptest::sample::Index>(), 0usize..40), 0..6),
        parts in proptest::collection::vec((any::<proptest::sample::Index>(), part()), 0..6),
    ) {
        const TEXTS: &str = concat!(
            include_str!("../texts/perf-6.1-full-brstacksym.txt"),
            include_str!("../texts/perf-6.1-ip-sym-brstacksym.txt"),
        );
        let lines: Vec<&str> = TEXTS.lines().collect();
        let mut text: String = lines[line.index(lines.len())].chars().take(400).collect();
        // A second line, whose names are then known.
        text = format!("{}\n{text}", lines[0]);
        for (at, len) in cuts {
            let at = at.index(text.len());
            let end = (at + len).min(text.len());
            text.replace_range(at..end, "");
            if text.is_empty() {
                text.push('x');
            }
        }
        for (at, part) in parts {
            text.insert_str(at.index(text.len()), &part);
        }
        let Some((found, _)) = try_read(&format!("{text}\n")) else { return Ok(()) };
        let by_name = |sample: &&Sample| {
            let named = |end: &End| !matches!(end, End::At(_));
            // Spaces at the start of a name may be confused with the fields before branches.
            let sound = match &sample.2[..] {
                [(End::In(name, _, _), _, _), ..] => !name.contains([' ', '\t']),
                _ => true,
            };
            sound && sample.2.iter().any(|(from, to, _)| named(from) || named(to))
        };
        let found: Vec<Sample> = found.iter().filter(by_name).cloned().collect();
        let (again, refused) = if found.is_empty() { return Ok(()) } else { read(&printed(&found)) };
        prop_assert!(refused.is_empty(), "{:?} in {}", refused, printed(&found));
        let branches = |samples: &[Sample]| -> Vec<Vec<(End, End, EntryFlags)>> {
            let plain = |(from, to, branch): &(End, End, RawBranch)| {
                (from.clone(), to.clone(), branch.flags)
            };
            samples.iter().map(|(_, _, b)| b.iter().map(plain).collect()).collect()
        };
        prop_assert_eq!(branches(&again), branches(&found));
    }
}

/// Parts of entries, valid and invalid.
fn part() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z:<>(), ~/+]{0,6}",
        "\\+0x[0-9a-f]{0,17}",
        "0x[0-9a-f]{1,16}",
        "/[MP-]N?/[X-]/[A-]/[0-9]{1,6}",
        "\\(/?[a-z() \\[\\]]{0,8}\\)?",
        Just("[unknown]".to_owned()),
        Just(" ".to_owned()),
        Just("/".to_owned()),
        Just(": ".to_owned()),
        Just("main+0x1/f+0x0/P/-/-/0/COND/- ".to_owned()),
        Just("0x5a00000000000010".to_owned()),
        "[ -~]{0,4}",
    ]
}
