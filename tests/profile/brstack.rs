//! Parsing of entries and lines as text.

use std::io::{Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lbr_msr::record::{BranchSpec, BranchType, Comm, Event, Task};
use profile::brstack::{
    BranchCounters, EntryError, Line, LineError, Printed, event_text, parse_entry, parse_line,
};
use profile::maps::Location;
use profile::names::Names;
use profile::perf_data::ReadError;
use profile::{EntryFlags, Item, RawBranch, Recording};
use proptest::prelude::*;

use crate::recorded::{Broken, Pieces, each_stack};

fn parsed(text: &str) -> RawBranch {
    let (branch, rest) = parse_entry(text.as_bytes()).unwrap();
    assert!(rest.is_empty());
    branch
}

#[test]
fn every_published_shape() {
    for (text, printed) in [
        ("0x1/0xa0", "0x1/0xa0/-/-/-/0//-"),
        ("0x1/0xa0/P/-/-/29", "0x1/0xa0/P/-/-/29//-"),
        ("0x1/0xa0/M/X/A/65535", "0x1/0xa0/M/X/A/65535//-"),
        ("0x1/0xa0/P/-/-/7/COND", "0x1/0xa0/P/-/-/7/COND/-"),
        ("0x1/0xa0/P/-/-/7/", "0x1/0xa0/P/-/-/7//-"),
        ("0x1/0xa0/P/-/-/7/-/-", "0x1/0xa0/P/-/-/7//-"),
        ("0x1/0xa0/P/-/-/0//N/A", "refused"),
        ("0x1/0xa0/-/-/-/0/IND_CALL/NON_SPEC_CORRECT_PATH", "same"),
        ("0xffffffff93c001c8/0x7f12a2b1d647/P/-/-/16959/SYSRET/-", "same"),
        ("0x1/0xa0/MN/-/-/7/COND/-", "same"),
        ("0x1/0xa0/PN/-/-/7/FAULT_ALGN/SPEC_WRONG_PATH", "same"),
        ("0x1/0xa0/P/-/-/7/ARM64_DEBUG_DATA/-", "0x1/0xa0/P/-/-/7/ARCH_5/-"),
        ("0x1(/usr/bin/a b)/0xa0([kernel])/P/-/-/7/ARCH_5/-", "0x1/0xa0/P/-/-/7/ARCH_5/-"),
    ] {
        match printed {
            "refused" => assert_eq!(parse_entry(text.as_bytes()), Err(EntryError::Fields(9))),
            "same" => assert_eq!(Printed(parsed(text)).to_string(), text),
            _ => assert_eq!(Printed(parsed(text)).to_string(), printed),
        }
    }
}

#[test]
fn fields_mean_what_they_say() {
    let branch = parsed("0xffffffff93c001c8/0x7f12a2b1d647/M/X/-/16959/SYSRET/SPEC_CORRECT_PATH");
    assert_eq!((branch.from, branch.to), (0xffff_ffff_93c0_01c8, 0x7f12_a2b1_d647));
    let entry = branch.decode(false);
    assert_eq!((entry.mispredicted, entry.cycles), (Some(true), Some(16959)));
    assert_eq!((entry.in_tx, entry.abort), (Some(true), None));
    assert_eq!(entry.branch_type, Some(BranchType::SYSRET));
    assert_eq!(entry.spec, Some(BranchSpec::SpecCorrectPath));
    let typed = |name: &str| {
        let entry = format!("0x1/0x2/P/-/-/0/{name}/-");
        parse_entry(entry.as_bytes()).map(|(branch, _)| branch.decode(false).branch_type)
    };
    // New types are numbered from 16 to 31.
    assert_eq!(typed("TYPE_31"), Ok(Some(BranchType(31))));
    assert_eq!(typed("TYPE_32"), typed("NO_TYPE_OF_PERF"));
    let unknown = parsed("0x1/0x2/-/-/-/0").decode(false);
    assert_eq!((unknown.mispredicted, unknown.cycles, unknown.branch_type), (None, None, None));
}

#[test]
fn wrong_entries_are_named() {
    for (text, error) in [
        ("", EntryError::Address),
        ("0x", EntryError::Address),
        ("0xzz/0x1/P/-/-/0", EntryError::Address),
        ("0x11111111111111111/0x1", EntryError::Address),
        ("0x1", EntryError::NoTarget),
        ("0x1/", EntryError::Address),
        ("0x1/0x2/Q/-/-/0", EntryError::Prediction),
        ("0x1/0x2/P/Y/-/0", EntryError::Transaction),
        ("0x1/0x2/P/-/B/0", EntryError::Abort),
        ("0x1/0x2/P/-/-/x", EntryError::Cycles),
        ("0x1/0x2/P/-", EntryError::Fields(4)),
        ("0x1/0x2/P/-/-/0/a/b/c", EntryError::Fields(9)),
        ("0x/0x20/P/-/-/0/COND/-", EntryError::Address),
    ] {
        assert_eq!(parse_entry(text.as_bytes()), Err(error), "{text}");
    }
}

#[test]
fn lines() {
    let mut entries = Vec::new();
    let mut line = |text: &str| parse_line(text.as_bytes(), &mut entries, &mut Names::default());
    let Ok(Line::Sample(head)) =
        line("25532  ffffffff8032d7e0 0x1/0x2/P/-/-/0/  0x3/0x4/M/-/-/0/ \n")
    else {
        panic!()
    };
    assert_eq!((head.tid, head.ip), (Some(25532), Some(0xffff_ffff_8032_d7e0)));
    let full = "my prog  6540/6541  [001]  2505.292041:  2944213 branches:u:  4005dc 0x1/0x2";
    let Ok(Line::Sample(head)) = line(full) else { panic!() };
    assert_eq!((head.pid, head.tid, head.cpu), (Some(6540), Some(6541), Some(1)));
    assert_eq!((head.time, head.ip), (Some(2_505_292_041_000), Some(0x4005dc)));
    assert_eq!(head.period, Some(2_944_213));
    // Arm SPE, perf 6.15.
    let flagged = "  prog  6540 [001]  2505.292041: branch:   jcc/miss,not_taken/           4005dc 0x1/0x2/MN/-/-/0";
    let Ok(Line::Sample(head)) = line(flagged) else { panic!() };
    assert_eq!((head.tid, head.ip), (Some(6540), Some(0x4005dc)));
    let untimed = "prog 25532 branches:u:  4005dc 0x1/0x2";
    let Ok(Line::Sample(head)) = line(untimed) else { panic!() };
    assert_eq!((head.tid, head.period, head.ip), (Some(25532), None, Some(0x4005dc)));
    // After both numbers of a task, another one is the period, whatever its width.
    let Ok(Line::Sample(head)) = line("12/13 31 7f06d6a21e00 0x1/0x2") else { panic!() };
    assert_eq!((head.tid, head.period, head.ip), (Some(13), Some(31), Some(0x7F06_D6A2_1E00)));
    assert!(matches!(line("  5595      7f06d6a21e00\n"), Ok(Line::Sample(_))));
    let named = "  many branches 4242 [003]     1.000001:          7 branches:u:      55555588286e main+0x10 (/bin/x y)\n";
    let Ok(Line::Sample(head)) = line(named) else { panic!() };
    assert_eq!((head.tid, head.cpu, head.period), (Some(4242), Some(3), Some(7)));
    assert_eq!((head.ip, head.time), (Some(0x5555_5588_286E), Some(1_000_001_000)));
    assert_eq!(line("17\n"), Ok(Line::Count(17)));
    assert_eq!(line("\t          4005dc\n"), Ok(Line::Frame));
    assert_eq!(line("\n"), Ok(Line::Other));
    assert_eq!(line("// comment"), Ok(Line::Other));
    let comm = "prog 12/12 [000] 1.5: PERF_RECORD_COMM exec: a:b/c:12/13";
    let named = Comm { time: 0, pid: 12, tid: 13, comm: "a:b/c".to_owned(), exec: true };
    assert_eq!(line(comm), Ok(Line::Event(Event::Comm(named))));
    assert_eq!(line("..... 11: 0033 -> 0041 no cycles  P   0"), Err(LineError::Unknown));
    assert_eq!(line("what is this"), Err(LineError::Unknown));
    assert_eq!(
        line("0x1/0x2/P/-/-/0 0x3/0xg"),
        Err(LineError::Entry { index: 2, error: EntryError::Address })
    );
    let map = "PERF_RECORD_MMAP2 12/13: [0x201000(0x1000) @ 0x1000 00:1d 224 9]: r-xp /a b/c\n";
    let Ok(Line::Event(Event::Mmap(map))) = line(map) else { panic!() };
    assert_eq!((map.pid, map.tid, map.addr, map.len, map.pgoff), (12, 13, 0x201000, 4096, 4096));
    assert_eq!((map.dev, map.ino, map.ino_generation, map.prot), ((0, 0x1d), 224, 9, 5));
    assert_eq!(map.path, "/a b/c");
    assert_eq!(line("PERF_RECORD_MMAP2 12/13: [0x201000("), Err(LineError::Mmap));
    let old = "PERF_RECORD_MMAP 12/13: [0x201000(0x1000) @ 0x1000]: x /a b/c\n";
    let Ok(Line::Event(Event::Mmap(map))) = line(old) else { panic!() };
    assert_eq!((map.addr, map.len, map.pgoff, map.prot), (0x201000, 4096, 4096, 4));
    assert_eq!((map.dev, map.ino, map.ino_generation), ((0, 0), 0, 0));
}

/// The process, thread, time and address of a sample with these columns; it has no period.
fn columns(text: &str) -> (Option<u32>, Option<u32>, Option<u64>, Option<u64>) {
    let line = format!("{text}0x1/0x2 ");
    match parse_line(line.as_bytes(), &mut Vec::new(), &mut Names::default()) {
        Ok(Line::Sample(head)) => {
            assert_eq!(head.period, None, "{line}");
            (head.pid, head.tid, head.time, head.ip)
        }
        other => panic!("{line}: {other:?}"),
    }
}

/// The columns of perf (`%5d/%-5d pid/tid`, 7 columns from 6.4 on; ` %16x ip`), also with numbers
/// longer than their column, and those of `lbr script`.
#[test]
fn columns_before_branches_are_read() {
    let ip = Some(0x40_10AE);
    let column = format!("{:>17} ", "4010ae");
    for width in [5, 7] {
        let task = format!("{:width$}/{:<width$} {column}", 100, 101);
        assert_eq!(columns(&task), (Some(100), Some(101), None, ip), "{task}");
    }
    let long = format!("{:>16} {:>5} {column}", "prog", 123_456);
    assert_eq!(columns(&long), (None, Some(123_456), None, ip));
    let flags = format!("  {:<21} {column}", "jcc");
    assert_eq!(columns(&flags), (None, None, None, ip));
    let timeless = format!("{:>12}: {column}", "-");
    assert_eq!(columns(&timeless), (None, None, None, ip));
    assert_eq!(columns(&format!("[-] {column}")), (None, None, None, ip));
    let time = Some(2_500_000_000);
    assert_eq!(columns("prog 123 2.5: 4010ae "), (None, Some(123), time, ip));
    assert_eq!(columns("prog [001] 2.5: 4010ae "), (None, None, time, ip));
    // Names of hexadecimal letters only, and of 16 characters.
    for name in ["deadbeef", "kworker/R-rcu_gp"] {
        let found = columns(&format!("{name} 12/13 2.5: 4010ae "));
        assert_eq!(found, (Some(12), Some(13), time, ip), "{name}");
    }
    let address = format!("{:>16} {:>17} ", "prog", "ffffffff8032d7e0");
    assert_eq!(columns(&address), (None, None, None, Some(0xFFFF_FFFF_8032_D7E0)));
    let none = format!("  100 {:>17} main (/a: b) ", "-");
    assert_eq!(columns(&none), (None, Some(100), None, None));
    // A path with a colon after the address; an address after a build ID; one without its columns.
    assert_eq!(columns(&format!("{column}main (/a: b) ")), (None, None, None, ip));
    assert_eq!(columns(" aabb1122:00004010ae "), (None, None, None, ip));
    assert_eq!(columns("4010ae "), (None, None, None, ip));
    assert_eq!(columns("0x4010ae 0x1(/a)/0x2(/a)/P/-/-/0 "), (None, None, None, ip));
}

/// `-F +data_src` prints a number in 16 columns and its description, padded to the longest so far.
/// The last part, `BLK` from perf 5.12 on, has two spaces.
#[test]
fn descriptions_of_data_end_before_the_address() {
    for last in ["|LCK No", "|LCK No|BLK  N/A", "|LCK No|BLK  Data Addr   ", "|LCK Yes     "] {
        for ip in [0x40_10AE, 0xFFFF_FFFF_8032_D7E0] {
            let of =
                format!("{:>16x} |OP LOAD|LVL L1 hit{last}{:>17}", 0x10_0142, format!("{ip:x}"));
            let text = format!("prog 12/13 2.5: mem: {of} main (/a) ");
            assert_eq!(
                columns(&text),
                (Some(12), Some(13), Some(2_500_000_000), Some(ip)),
                "{text}"
            );
        }
    }
}

/// perf prints a period in 10 columns.
#[test]
fn an_address_of_decimal_digits_is_not_a_period() {
    let ip = Some(0x40_1000);
    for (before, pid, tid, time) in [
        ("  100/101   ", Some(100), Some(101), None),
        ("  100 ", None, Some(100), None),
        ("    2.500000: ", None, None, Some(2_500_000_000)),
    ] {
        let text = format!("{before}{:>17} ", "401000");
        assert_eq!(columns(&text), (pid, tid, time, ip), "{text}");
    }
}

/// The thread's columns are padded like the process's only if a space follows them.
#[test]
fn a_task_without_padding_is_read() {
    let found = columns("work  7952/7953 [001] 2.500000: 4010ae ");
    assert_eq!(found, (Some(7952), Some(7953), Some(2_500_000_000), Some(0x40_10AE)));
}

#[test]
fn text_other_than_columns_is_unknown() {
    let line = |text: &str| parse_line(text.as_bytes(), &mut Vec::new(), &mut Names::default());
    let misc = "12/13 KUHGME";
    for text in ["prog 12/13  more words", "12/13 40100a", "12/13 : 40100a", "more :0x1/0x2", misc]
    {
        assert_eq!(line(text), Err(LineError::Unknown), "{text}");
    }
    // Too short for a build ID, and no digits: neither starts an entry.
    for text in ["more fade:0x1/0x2", "more 0x (a)/0x2"] {
        assert_eq!(line(text), Err(LineError::Unknown), "{text}");
    }
    // A thread or a period.
    for text in ["31 7f06d6a21e00 0x1/0x2", "prog 31 7f06d6a21e00 0x1/0x2"] {
        assert_eq!(line(text), Err(LineError::Ambiguous), "{text}");
    }
}

/// `-F insnlen,insn`, page sizes, `-F ipc`, and counters as `lbr script` prints them.
#[test]
fn fields_after_branches_are_accepted() {
    let mut entries = Vec::new();
    let mut line = |after: &str| {
        let text = format!("0x1/0x2/P/-/-/0  {after}");
        parse_line(text.as_bytes(), &mut entries, &mut Names::default()).map(|_| ())
    };
    let counted = ["IPC: 0.53 (8/15)", "br_cntr: 2,0,-,-"];
    for after in
        ["ilen: 2", "ilen: 2 insn: eb 04", "insn: eb 04", "4K 2M", "N/A"].into_iter().chain(counted)
    {
        assert_eq!(line(after), Ok(()), "{after}");
    }
    let refused = Err(LineError::Entry { index: 2, error: EntryError::Address });
    for after in ["ilen: x", "ilen: 2 code: eb", "ilen: 2 insn: eb jmp", "insn: jmp", "4K 2X"] {
        assert_eq!(line(after), refused, "{after}");
    }
}

/// Entries followed by enough text are parsed several bytes at a time, with the same grammar.
#[test]
fn entries_far_from_the_end_of_a_text_are_checked() {
    let good = " 0x10/0x20/P/-/-/7/COND\n".repeat(8);
    assert_eq!(read(&good).0.len(), 8);
    let line = |entry: &str| read(&format!(" {entry}  {entry}\n{good}"));
    for entry in [
        "0x/0x20/P/-/-/7",
        "0x10/0x/P/-/-/7",
        "0x1g/0x20/P/-/-/7",
        "0x10/0x2g/P/-/-/7",
        "0x10/0x20/P/-/-/x",
        "0x10/0x20/P/-/-/1:",
        "0x10/0x20/P/-/-/7/COND/N/A",
    ] {
        let (found, refused) = line(entry);
        assert_eq!((found.len(), refused), (8, Some((1, 1))), "{entry}");
    }
    // An unknown name of speculation.
    let (found, refused) = line("0x10/0x20/P/-/-/7/COND/NEW");
    assert_eq!((found.len(), found[0].1.len(), refused), (9, 2, None));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Everything that can be printed parses back to the same value.
    #[test]
    fn printed_entries_read_back(
        from: u64,
        to: u64,
        word in any::<u64>(),
    ) {
        // Privilege and bits beyond the word's fields are not printed; with both prediction bits
        // set, M is printed; a new type needs the code for it.
        let mut word = word & 0x2_03FF_FFFF;
        if word & 3 == 3 {
            word &= !2;
        }
        if word >> 20 & 0xF == 15 {
            word |= word >> 4 << 26 & 0x3C00_0000;
        }
        let branch = RawBranch { from, to, flags: EntryFlags(word) };
        let text = Printed(branch).to_string();
        prop_assert_eq!(parse_entry(text.as_bytes()), Ok((branch, &b""[..])));
    }

    #[test]
    fn any_line_is_accepted_or_refused(line in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_line(&line, &mut Vec::new(), &mut Names::default());
    }

    /// Lines similar to valid ones.
    #[test]
    fn damaged_lines_are_accepted_or_refused(at in 0usize..79, byte: u8) {
        let mut line = *b"PERF_RECORD_MMAP2 1/1: [0x1(0x2) @ 0 00:1d 2 9]: r-xp /x 0x1/0x2(a)/P/-/-/0/C/-";
        line[at] = byte;
        let _ = parse_line(&line, &mut Vec::new(), &mut Names::default());
        let _ = parse_line(&line[57..], &mut Vec::new(), &mut Names::default());
    }
}

/// The process of a sample, and its branches.
type Sample = (Option<u32>, Vec<RawBranch>);

/// The items of a text; the number of rejected lines, and the first one.
fn read(text: &str) -> (Vec<Sample>, Option<(u64, u64)>) {
    let stream = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
    let mut recording = profile::Recording::from_stream(stream).unwrap();
    let mut found = Vec::new();
    while let Some(item) = recording.next_item().unwrap() {
        if let profile::Item::Stack(stack) = item {
            found.push((stack.head.pid, stack.entries.iter().collect()));
        }
    }
    (found, recording.refused().map(|refused| (refused.lines, refused.first)))
}

/// Lines as perf prints them for AMD Zen 4; the numbers are made up.
const DUMP: &str = "\
0x40b178@/tmp/a/perf.data [0x1b0]: event: 9
.
. ... raw event: size 432 bytes
.  0000:  09 00 00 00 02 00 50 03 42 42 00 00 00 00 00 00  ......P.BB......
1 8380958377610 0x40b178 [0x1b0]: PERF_RECORD_SAMPLE(IP, 0x2): 7952/7953: 0x4f851a period: 48973 addr: 0
... branch stack: nr:3
.....  0: 00000000004b52fd -> 00000000004f82c0 0 cycles  P   0  NON_SPEC_CORRECT_PATH
.....  1: ffffffff8220137c -> 00000000004b52f0 17 cycles M    0 RET SPEC_CORRECT_PATH
.....  2: 000000000041d1c4 -> 00000000004b52f0 0 cycles   AT 0
 ... thread: work:7953
 ...... dso: /usr/bin/work
";

#[test]
fn dumped_samples_are_read() {
    let spec = |s| EntryFlags(0).with_spec(Some(s)).0;
    let ret = EntryFlags(0).with_type(Some(BranchType::RET)).with_cycles(17).0;
    let branch = |from, to, word| RawBranch { from, to, flags: EntryFlags(word) };
    let expected = vec![
        branch(0x4B_52FD, 0x4F_82C0, 2 | spec(BranchSpec::NonSpecCorrectPath)),
        branch(0xFFFF_FFFF_8220_137C, 0x4B_52F0, 1 | ret | spec(BranchSpec::SpecCorrectPath)),
        branch(0x41_D1C4, 0x4B_52F0, 4 | 8),
    ];
    let sample = (Some(7952), expected);
    assert_eq!(read(DUMP), (vec![sample.clone()], None));
    let head = said(DUMP.as_bytes(), usize::MAX).0[0].0;
    assert_eq!((head.cpu, head.time, head.tid), (Some(1), Some(8_380_958_377_610), Some(7953)));
    assert_eq!((head.ip, head.period), (Some(0x4F_851A), Some(48_973)));
    assert_eq!(read(&DUMP.repeat(2)), (vec![sample.clone(), sample.clone()], None));
    // The sample that perf script prints after its dump is the same sample.
    let without =
        "work  7952/7953 [001] 8380.958377:      48973 cycles:u:            4f851a work\n";
    assert_eq!(read(&format!("{DUMP}{without}{DUMP}")).0.len(), 2);
    // Another thread's is not.
    let (found, refused) = read(&format!("{DUMP}{}", without.replace("/7953", "/7954 ")));
    assert_eq!((found, refused), (vec![sample.clone(), (Some(7952), vec![])], None));
    let with = " 0x4b52fd/0x4f82c0/P/-/-/0  0xffffffff8220137c/0x4b52f0/M/-/-/17  0x41d1c4/0x4b52f0/-/X/A/0 \n";
    assert_eq!(read(&format!("{DUMP}{with}")), (vec![sample.clone()], None));
    // Different branches are another sample, which follows it.
    let (found, refused) = read(&format!("{DUMP} 0x10/0x20/P/-/-/0 \n{with}"));
    assert_eq!((found.len(), refused), (3, None));
    assert_eq!(found[0], sample);
    assert_eq!((found[1].1[0].from, found[2].1.len()), (0x10, 3));
    // So do they after the line that repeats the sample, and so does a second such line.
    let (found, refused) = read(&format!("{DUMP}{without} 0x10/0x20/P/-/-/0 \n"));
    assert_eq!((found.len(), refused, &found[0]), (2, None, &sample));
    assert_eq!(found[1].1[0].from, 0x10);
    let (found, refused) = read(&format!("{DUMP}{without}{without}"));
    assert_eq!((found, refused), (vec![sample.clone(), (Some(7952), vec![])], None));
    // An invalid branch is reported with its line.
    let (found, refused) = read(&DUMP.replace("41d1c4 ->", "41d1cg ->"));
    assert_eq!((found[0].1.len(), refused), (2, Some((1, 9))));
    let (found, refused) = read(&DUMP.replace("0 cycles   AT", "0 turns   AT"));
    assert_eq!((found[0].1.len(), refused), (2, Some((1, 9))));
}

#[test]
fn symbols_next_to_addresses_are_accepted() {
    let line = " 0x10/0x20/P/-/-/1  0x30/0x40/M/-/-/2  main+0x10/f+0x0/P/-/-/1  f+0x3/main+0x15/M/-/-/2 \n";
    let (found, refused) = read(line);
    let flags = |word, cycles| EntryFlags(word).with_cycles(cycles);
    let expected = vec![
        RawBranch { from: 0x10, to: 0x20, flags: flags(2, 1) },
        RawBranch { from: 0x30, to: 0x40, flags: flags(1, 2) },
    ];
    assert_eq!((found, refused), (vec![(None, expected)], None));
}

#[test]
fn paths_in_parentheses_may_hold_anything() {
    let line = " 0x10(/a/b c)/0x20(/lib/x (deleted))/P/X/A/65535/COND/- \n";
    let flags = EntryFlags(2 | 4 | 8).with_cycles(65_535).with_type(Some(BranchType::COND));
    let expected = RawBranch { from: 0x10, to: 0x20, flags };
    // perf 6.3 and later print a space before each.
    for line in [line, &line.replace("0(", "0 (")] {
        let (found, refused) = read(line);
        assert_eq!((found, refused), (vec![(None, vec![expected])], None), "{line}");
    }
}

/// Text that only looks like samples without branches: output of perf2bolt and other converters,
/// and prose that ends in numbers.
#[test]
fn other_texts_are_refused() {
    let texts = [
        "1 main 24 1 main 30 0 5\n1 main 3a 1 main 4c 0 1\n",
        "there were 17 of 42\nand then 3 of 5\n",
        "no_lbr\n",
    ];
    for text in texts {
        let stream = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
        let mut recording = profile::Recording::from_stream(stream).unwrap();
        let error = loop {
            match recording.next_item() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{text}"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, profile::perf_data::ReadError::NoBranches), "{text}: {error}");
        // Next to branches, such lines are reported.
        let (found, refused) = read(&format!(" 0x10/0x20/P/-/-/0 \n{text}"));
        assert_eq!((found.len(), refused.map(|(_, first)| first)), (1, Some(2)), "{text}");
    }
    // Samples without branches among others, as perf prints them.
    let text = "\
            4f851a  0x10/0x20/P/-/-/0 
  7952           4f851a 
work  7952           4f851a 
work  7952/7953 [001] 8380.958377:           4f851a 
 7952 ffffffff8220137c 
";
    let (found, refused) = read(text);
    assert_eq!((found.len(), refused), (5, None));
    assert_eq!(found[1], (None, vec![]));
}

/// Samples with other fields of `perf script -F`, with an unknown symbol, and without a branch.
#[test]
fn samples_without_branches_show_the_task() {
    let head = |line: &str| {
        let mut entries = Vec::new();
        match parse_line(line.as_bytes(), &mut entries, &mut Names::default()) {
            Ok(Line::Sample(head)) => {
                (head.pid, head.tid, head.time, head.ip, head.period, entries.len())
            }
            other => panic!("{line}: {other:?}"),
        }
    };
    let (task, time, ip) = (Some(5595), Some(914_937_301_029_000), Some(0x7F06_D6A2_1E00));
    let full = " perf  5595/5595  914937.301029:          1 cycles:u:      7f06d6a21e00 [unknown] (/a/ld-2.19.so)";
    for (behind, many) in [("", 0), (" 0x10/0x20/P/-/-/0 ", 1)] {
        let line = format!("{full}{behind}");
        assert_eq!(head(&line), (task, task, time, ip, Some(1), many), "{line}");
        let misc = format!(" perf  5595 U          7f06d6a21e00 {behind}");
        assert_eq!(head(&misc), (None, task, None, ip, None, many), "{misc}");
    }
    assert_eq!(head(" 5595/5595  "), (task, task, None, None, None, 0));
    assert_eq!(head("914937.301029: "), (None, None, time, None, None, 0));
}

/// Every rejected line is reported with its number.
#[test]
fn refused_lines_are_numbered() {
    let good = " 0x10/0x20/P/-/-/0 \n";
    let bad = |many: usize| "0x1/0x2/Q/-/-/0\n".repeat(many);
    let text = [good, &bad(3), good, &bad(1), good, good, &bad(2)].concat();
    let stream = Box::new(std::io::Cursor::new(text.into_bytes()));
    let mut recording = profile::Recording::from_stream(stream).unwrap();
    while recording.next_item().unwrap().is_some() {}
    let refused = recording.refused().unwrap();
    assert_eq!((refused.lines, refused.first), (6, 2));
    assert_eq!(refused.runs, [(2, 4), (6, 6), (9, 10)]);
    // The first eight runs, and every line.
    let (found, refused) = said([good, &bad(1)].concat().repeat(9).as_bytes(), usize::MAX);
    let refused = refused.unwrap();
    assert_eq!((found.len(), refused.lines), (9, 9));
    assert_eq!(refused.runs, [2, 4, 6, 8, 10, 12, 14, 16].map(|line| (line, line)));
}

/// `perf script -F +srcline` prints two spaces and a line of source code below a frame; anywhere else,
/// and without the spaces, such a line is unknown.
#[test]
fn source_lines_are_accepted_below_frames() {
    let head = "work 7953 1.000000: \n";
    let frame = "\t  4f82c0 main+0x10 (/usr/bin/work)\n";
    let branches = " 0x10/0x20/P/-/-/0 \n\n";
    let refused = |text: &str| {
        let (found, refused) = read(&[text, head, frame, branches].concat());
        (found.last().map(|(_, entries)| entries.len()), refused)
    };
    let (source, spaceless) = ("  }\n", "}\n");
    assert_eq!(refused(&[head, frame, source, branches].concat()), (Some(1), None));
    assert_eq!(refused(&[head, frame, spaceless, branches].concat()), (Some(1), Some((1, 3))));
    assert_eq!(refused(&[head, frame, branches, source].concat()), (Some(1), Some((1, 5))));
    // Without columns, frames are the first lines of a sample.
    assert_eq!(refused(&[frame, source, branches].concat()), (Some(1), None));
}

/// `-F comm` before the frames of call chains: a name of any width.
#[test]
fn names_of_threads_before_frames_are_samples() {
    let sample = |name: &str| format!("{name}\n\t  4f82c0 main\n 0x10/0x20/P/-/-/0 \n\n");
    let (found, refused) = read(&(sample("my prog") + &sample("prog")));
    assert_eq!((found.len(), refused), (2, None));
}

/// `-F brstackinsn` without `brstack` prints no branches.
#[test]
fn instructions_alone_are_refused() {
    let instructions = "\t0000000000401774\tinsn: eb 04\n\t0000000000401776\tinsn: 90\n";
    for (columns, number) in [("", 1), ("prog 12/13 2.5: 40177a\n", 2)] {
        let text = format!("{columns}{instructions}");
        let mut recording = Recording::from_stream(Box::new(Cursor::new(text))).unwrap();
        let error = recording.next_item().unwrap_err();
        let ReadError::Line { number: line, error } = error else { panic!("{error}") };
        assert_eq!((line, error), (number, LineError::Instructions));
    }
}

/// The content of a text: its samples, and the rejected lines.
type Said = (Vec<(profile::SampleHead, Vec<RawBranch>)>, Option<profile::recording::Refused>);

fn said(text: &[u8], most: usize) -> Said {
    let pieces = Pieces::new(text.to_vec(), most);
    said_by(Recording::from_stream(Box::new(pieces)).unwrap())
}

/// The same with a text that is read ahead in a number of threads.
fn said_ahead(text: &[u8], threads: usize) -> Said {
    let mut recording = Recording::from_stream(Box::new(Cursor::new(text.to_vec()))).unwrap();
    recording.read_ahead(threads);
    said_by(recording)
}

fn said_by(mut recording: Recording) -> Said {
    let mut samples = Vec::new();
    // A text without branches is an error, reported at the end.
    while let Ok(Some(item)) = recording.next_item() {
        if let Item::Stack(stack) = item {
            samples.push((stack.head, stack.entries.iter().collect()));
        }
    }
    (samples, recording.refused().cloned())
}

/// The same text with an empty path after the first address of each entry, which only the general
/// grammar accepts.
fn with_paths(text: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        if index > 0 {
            all.push(b'\n');
        }
        for word in line.split_inclusive(u8::is_ascii_whitespace) {
            let digits = word.strip_prefix(b"0x").unwrap_or_default();
            let len = digits.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
            let is_entry = (1..=16).contains(&len) && digits.get(len) == Some(&b'/');
            let end = if is_entry { 2 + len } else { 0 };
            all.extend_from_slice(&word[..end]);
            all.extend_from_slice(if is_entry { b"()" } else { b"" });
            all.extend_from_slice(&word[end..]);
        }
    }
    all
}

/// Lines that occur in such texts, and some that do not.
fn any_line() -> impl Strategy<Value = String> {
    let address = "0x([0-9a-f]{1,16}|7f[0-9a-f]{10}|ffffffff[0-9a-f]{8}|[0-9A-F]{0,18})";
    let flags = "/([MP-]|MN|-N|Q)/[-X]/[-A]/([0-9]{1,2}|[0-9]{1,9}|x)\
                 (/(COND|IND_CALL|RET|COND_CALL|TYPE_30|WHAT|)(/(-|NON_SPEC_CORRECT_PATH|N)?)?)?";
    let common = "/[MP]/-/-/[0-9]{1,3}/(COND|CALL|RET|UNCOND)/-";
    let flags = prop_oneof![8 => common, 1 => flags, 1 => ""];
    let entry =
        (address, address, flags).prop_map(|(from, to, flags)| format!("{from}/{to}{flags}"));
    let blank = prop_oneof![8 => Just("  "), 1 => Just(" "), 1 => Just("\t "), 1 => Just("   ")];
    let entries = proptest::collection::vec((entry, blank), 0..40);
    let head = prop_oneof![
        4 => " ?",
        1 => "    perf  123/456   \\[001\\]  12.345678:  10 cycles:  401000 ",
        1 => "ffffffff8032d7e0 ",
        1 => "0x12@perf.data 5: ",
        1 => "[ -~]{0,12}",
    ];
    let end = prop_oneof![8 => "", 1 => " ", 1 => "\r", 1 => "  \r", 1 => " # [ -~]{0,5}"];
    let entries = (head, entries, end).prop_map(|(head, entries, end)| {
        let entries: String = entries.iter().map(|(e, b)| e.clone() + b).collect();
        format!("{head}{}{end}", entries.trim_end())
    });
    let other = prop_oneof![
        "[0-9]{1,3}",
        "#[ -~]{0,8}",
        "\t +[0-9a-f]{8}",
        "[ -~]{0,20}",
        Just(
            " perf 1/1: PERF_RECORD_MMAP2 1/1: [0x400000(0x1000) @ 0 0:0 0 0]: r-xp /a".to_owned()
        ),
        Just("0 5 0x10 [0x58]: PERF_RECORD_SAMPLE(IP, 0x2): 1/2: 0x5 period: 1 addr: 0".to_owned()),
        Just("... branch stack: nr:1".to_owned()),
        Just(".....  0: 0000000000000001 -> 0000000000000002 0 cycles  P   0x0".to_owned()),
    ];
    prop_oneof![4 => entries, 1 => other]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// However a text arrives, and with either parser: the same samples, and the same lines
    /// rejected for the same reasons.
    #[test]
    fn both_parsers_agree(
        lines in proptest::collection::vec(any_line(), 1..12),
        ended: bool,
        damage in proptest::option::of((any::<proptest::sample::Index>(), any::<u8>())),
        most in prop_oneof![1usize..200, Just(usize::MAX)],
    ) {
        let mut text = lines.join("\n").into_bytes();
        if ended {
            text.push(b'\n');
        }
        // Compressed files start with other bytes.
        if let Some((at, byte)) = damage.filter(|_| text.len() > 8) {
            let at = 8 + at.index(text.len() - 8);
            text[at] = byte;
        }
        let whole = said(&text, usize::MAX);
        prop_assert_eq!(&said(&text, most), &whole);
        prop_assert_eq!(said(&with_paths(&text), usize::MAX), whole);
    }
}

/// A text longer than several buffers, with an invalid line here and there.
#[test]
fn long_texts_are_read_the_same() {
    let entry = |n: u64| {
        let (from, to) = ((n + 0x20_0000) << (n % 40), n + 0x20_0007);
        format!(" 0x{from:x}/0x{to:x}/P/-/-/{}/COND/- ", n % 100)
    };
    let mut text = String::new();
    let mut bad = Vec::new();
    for line in 0..4000u64 {
        let mut entries: String = (0..line % 50).map(|n| entry(line * 64 + n + 1)).collect();
        if line % 997 == 996 {
            entries = entries.replace("/-/-/", "/-/+/");
            bad.push(line + 1);
        }
        text += &entries;
        text += if line % 3 == 0 { "\r\n" } else { "\n" };
    }
    let whole = said(text.as_bytes(), usize::MAX);
    let refused = whole.1.as_ref().unwrap();
    assert_eq!((refused.first, refused.lines), (bad[0], bad.len() as u64));
    assert_eq!(refused.error, LineError::Entry { index: 1, error: EntryError::Abort });
    let expected: u64 = (0..4000).filter(|line| line % 997 != 996).map(|line| line % 50).sum();
    let found: usize = whole.0.iter().map(|(_, entries)| entries.len()).sum();
    assert_eq!(found as u64, expected);
    for most in [1000, 4096, 65_537] {
        assert_eq!(said(text.as_bytes(), most), whole);
    }
    for threads in [1, 3] {
        assert_eq!(said_ahead(text.as_bytes(), threads), whole, "{threads} threads");
    }
    assert_eq!(said(&with_paths(text.as_bytes()), usize::MAX), whole);
}

/// A line may be much longer than one read.
#[test]
fn a_long_line_is_one_sample() {
    let entry = |n: u64| format!("0x{n:x}/0x{:x}/M/-/-/{}/RET/-  ", n + 1, n % 100);
    let text: String = (1..=20_000).map(entry).collect();
    let (samples, refused) = said(text.as_bytes(), usize::MAX);
    assert_eq!((samples.len(), refused), (1, None));
    assert!(
        samples[0].1.iter().zip(1u64..).all(|(branch, n)| (branch.from, branch.to) == (n, n + 1))
    );
    assert_eq!(samples[0].1.len(), 20_000);
}

/// Entries of 32 bytes: a buffer whose size is a power of two ends between two of them.
#[test]
fn lines_of_several_buffers_are_read_ahead() {
    let entries = |count: usize| "0x100010/0x100020/P/-/-/10/RET  ".repeat(count);
    let line = |count| entries(count).trim_end().to_owned() + "\n";
    let text: String = [1500, 30, 9000, 1, 1].map(line).concat();
    let (samples, refused) = said_ahead(text.as_bytes(), 2);
    let lengths: Vec<usize> = samples.iter().map(|(_, entries)| entries.len()).collect();
    assert_eq!((lengths, refused), (vec![1500, 30, 9000, 1, 1], None));
}

#[test]
fn samples_come_before_the_error_of_a_stream() {
    let text = " 0x10/0x20/P/-/-/0 \n".repeat(5000) + " 0x10/0x";
    for threads in [0, 1, 2] {
        let stream = Cursor::new(text.clone()).chain(Broken);
        let mut recording = Recording::from_stream(Box::new(stream)).unwrap();
        if threads > 0 {
            recording.read_ahead(threads);
        }
        let mut samples = 0;
        let error = loop {
            match recording.next_item() {
                Ok(Some(_)) => samples += 1,
                Ok(None) => panic!("{threads}: no error"),
                Err(error) => break error,
            }
        };
        let is_io = matches!(error, ReadError::Io { offset, .. } if offset == text.len() as u64);
        assert!(is_io && samples == 5000, "{threads} threads: {samples}, {error}");
    }
}

/// A damaged compressed file ends where its decompression fails.
#[test]
fn a_damaged_text_ends_there() {
    struct Damage(bool);
    impl Read for Damage {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            match std::mem::take(&mut self.0) {
                true => Err(std::io::ErrorKind::InvalidData.into()),
                false => Ok(0),
            }
        }
    }
    let good = " 0x10/0x20/P/-/-/0 \n";
    let before = format!("{good}{good} 0x10/0x");
    let after = format!("\n{good}");
    let stream = Cursor::new(before.clone()).chain(Damage(true)).chain(Cursor::new(after));
    let mut recording = Recording::from_stream(Box::new(stream)).unwrap();
    let mut samples = 0;
    each_stack(&mut recording, |_| samples += 1).unwrap();
    assert_eq!((samples, recording.notes().cut_at), (2, Some(before.len() as u64)));
}

#[test]
fn a_text_stops_at_a_position() {
    let line = " 0x10/0x20/P/-/-/0 \n";
    let mut recording = Recording::from_stream(Box::new(Cursor::new(line.repeat(20)))).unwrap();
    recording.stop_at(2 * line.len() as u64);
    let mut samples = 0;
    each_stack(&mut recording, |_| samples += 1).unwrap();
    assert_eq!((samples, recording.notes().stopped), (2, true));
}

/// Without an end, a text is read ahead until enough waits. Its threads end with the recording, and
/// close the stream.
#[test]
fn a_limited_part_of_an_endless_text_is_read_ahead() {
    /// A stream, and the number of bytes read.
    struct Counted<R>(R, Arc<AtomicUsize>);
    impl<R: Read> Read for Counted<R> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(buffer).inspect(|read| {
                self.1.fetch_add(*read, Ordering::Relaxed);
            })
        }
    }
    let until = |is: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is() && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(is());
    };
    let bytes = Arc::new(AtomicUsize::new(0));
    let text = " 0x10/0x20/P/-/-/0 \n".as_bytes().chain(std::io::repeat(b'\n'));
    let stream = Counted(text, Arc::clone(&bytes));
    let mut recording = Recording::from_stream(Box::new(stream)).unwrap();
    recording.read_ahead(2);
    assert!(recording.next_item().unwrap().is_some());
    // Four pieces of at least 32 KiB for each thread.
    until(&|| bytes.load(Ordering::Relaxed) >= 8 << 15);
    std::thread::sleep(Duration::from_millis(20));
    let read = bytes.load(Ordering::Relaxed);
    assert!(read < 4 << 20, "{read}");
    drop(recording);
    until(&|| Arc::strong_count(&bytes) == 1);
}

/// A line above the maximum length is one line, and is rejected.
#[test]
fn lines_longer_than_any() {
    let good = " 0x10/0x20/P/-/-/0 \n";
    for long in ["0x10/0x20/P/-/-/0  ".repeat(200_000), "x".repeat(3_000_000)] {
        let text = format!("{good}{long}\nwhat is this\n{good}");
        let (found, refused) = read(&text);
        assert_eq!((found.len(), refused), (2, Some((2, 2))));
        let (found, refused) = read(&format!("{good}{long}"));
        assert_eq!((found.len(), refused), (1, Some((1, 2))));
    }
}

/// If no line is valid, the first one that resembles a sample is reported.
#[test]
fn the_bad_line_is_named() {
    let said = |text: &str| {
        let stream = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
        let mut recording = profile::Recording::from_stream(stream).unwrap();
        recording.next_item().unwrap_err().to_string()
    };
    assert_eq!(
        said("# a comment\nwhat is this\n 0x10/0x20/Q/-/-/0\n0x1/0x2/P\n"),
        "holds no branches: line 3: branch 1: the prediction is not one of M, P, -, MN, PN"
    );
    assert!(
        said("\nmain+0x10/foo/P/-/-/0\n")
            .contains("line 2: branch 1: neither an address nor a symbol")
    );
    assert!(said("what is this\n").contains("neither perf.data nor perf script"));
}

/// Redirected by PowerShell.
#[test]
fn text_in_utf16_is_named() {
    let text = "\u{feff} 0x10/0x20/P/-/-/0\r\n";
    let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    for bytes in [little, big] {
        let error = profile::Recording::from_stream(Box::new(std::io::Cursor::new(bytes)));
        let said = error.err().unwrap().to_string();
        assert!(said.starts_with("is text in UTF-16") && said.contains("iconv"), "{said}");
    }
}

/// PROT_READ 1, PROT_WRITE 2, PROT_EXEC 4; MAP_SHARED 1, MAP_PRIVATE 2.
#[test]
fn mappings_are_printed_as_they_are_read() {
    for (access, prot, flags) in
        [("r--p", 1, 2), ("-w-s", 2, 1), ("--xp", 4, 2), ("rwxs", 7, 1), ("---p", 0, 2)]
    {
        let text = format!(
            "PERF_RECORD_MMAP2 12/13: [0x201000(0x1000) @ 0x2000 00:1d 224 9]: {access} /a b/c"
        );
        let Ok(Line::Event(event)) =
            parse_line(text.as_bytes(), &mut Vec::new(), &mut Names::default())
        else {
            panic!("{text}")
        };
        let Event::Mmap(map) = &event else { panic!("{event:?}") };
        assert_eq!((map.prot, map.flags), (prot, flags), "{text}");
        assert_eq!(event_text(&event), Some(text));
    }
}

/// A counter has two bits: 3 means three or more.
#[test]
fn counts_of_a_branch_stop_at_three() {
    for (letters, word) in
        [("AAAAB", 0b0111), ("BBBBC", 0b01_1100), ("DDC-", 0b1001_0000), ("-", 0)]
    {
        let line = format!("\t0000000000401774\tinsn: eb 04 \tbr_cntr: {letters}\t# PRED");
        let found = parse_line(line.as_bytes(), &mut Vec::new(), &mut Names::default());
        let counted = BranchCounters { at: 0x40_1774, word };
        assert_eq!(found, Ok(Line::Instruction(Some(counted))), "{letters}");
    }
    // There are four counters, A to D.
    let line = b"\t0000000000401774\tinsn: eb 04 \tbr_cntr: AE\t# PRED";
    let found = parse_line(line, &mut Vec::new(), &mut Names::default());
    assert_eq!(found, Ok(Line::Instruction(None)));
}

/// perf's default columns have only the thread. Records tell its process; a process has the number
/// of its first thread.
#[test]
fn processes_of_threads() {
    let sample = |tid: u32| format!("prog {tid:5} [000] 1.500000: 0x10/0x18/P/-/-/0 \n");
    let map = "PERF_RECORD_MMAP2 7/8: [0x400000(0x1000) @ 0 08:01 5 0]: r-xp /a";
    for (record, threads, processes, is_unsaid) in [
        ("#", [55, 55, 55], [None; 3], false),
        ("#", [55, 55, 56], [None; 3], true),
        ("PERF_RECORD_COMM: prog:7/8", [7, 8, 9], [Some(7), Some(7), None], false),
        ("PERF_RECORD_FORK(9:10):(7:8)", [9, 10, 8], [Some(9), Some(9), Some(7)], false),
        (map, [8, 8, 7], [Some(7); 3], false),
    ] {
        let text = format!("{record}\n{}", threads.map(sample).concat());
        let stream = std::io::Cursor::new(text.into_bytes());
        let mut recording = Recording::from_stream(Box::new(stream)).unwrap();
        let mut found = Vec::new();
        while let Some(item) = recording.next_item().unwrap() {
            if let Item::Stack(stack) = item {
                assert_eq!(stack.head.tid, Some(threads[found.len()]));
                found.push(stack.head.pid);
            }
        }
        assert_eq!(found, processes, "{record}");
        assert_eq!(recording.notes().processes_unsaid, is_unsaid, "{record} {threads:?}");
    }
}

/// A process starts with its parent's mappings, if the text names the parent; after its end, its
/// number may be used again.
#[test]
fn lines_of_tasks() {
    let task = |pid, ppid| Task { time: 0, pid, tid: pid, ppid, ptid: ppid };
    for (text, expected) in [
        ("m 7/7 30540.677482: PERF_RECORD_FORK(8:8):(7:7)", Some(Event::Fork(task(8, 7)))),
        ("PERF_RECORD_EXIT(8:8):(7:7)", Some(Event::Exit(task(8, 7)))),
        ("PERF_RECORD_FORK(8:8):(-1:-1)", Some(Event::Fork(task(8, u32::MAX)))),
        ("PERF_RECORD_FORK(8:8)", None),
        ("PERF_RECORD_FORK(8:8):(7:", None),
        ("PERF_RECORD_NAMESPACES 8/8 - nr_namespaces: 7 [0/net: 3/0xf0000098]", None),
    ] {
        let found = parse_line(text.as_bytes(), &mut Vec::new(), &mut Names::default());
        match expected {
            Some(expected) => assert_eq!(found, Ok(Line::Event(expected)), "{text}"),
            None => assert!(!matches!(found, Ok(Line::Event(_))), "{text}"),
        }
    }
    let text = "\
m 7/7 1.0: PERF_RECORD_MMAP2 7/7: [0x400000(0x1000) @ 0 08:01 5 0]: r-xp /nowhere/parent
m 7/7 1.1: PERF_RECORD_FORK(8:8):(7:7)
m 8/8 1.2:  0x400100/0x400200/P/-/-/0
m 8/8 1.3: PERF_RECORD_EXIT(8:8):(7:7)
";
    let stream = std::io::Cursor::new(text.as_bytes());
    let mut recording = Recording::from_stream(Box::new(stream)).unwrap();
    let table = profile::HotTable::count(&mut recording, |_, _| {}).unwrap();
    let Location::File { file, offset } = table.branches[0].from_location else { panic!() };
    assert_eq!((table.maps.path(file), offset), (Some("/nowhere/parent"), 0x100));
    assert_eq!(recording.refused(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Printing and parsing is the identity, for every entry that perf can have.
    #[test]
    fn a_printed_entry_is_read_as_it_was(
        from: u64,
        to: u64,
        prediction in 0u64..3,
        bits in 0u64..8,
        cycles in 0u32..=65_535,
        kind in prop_oneof![Just(0u8), 1u8..=14, 16u8..=31],
        spec in 0u8..4,
    ) {
        let [in_tx, abort, passed] = [EntryFlags::IN_TX, EntryFlags::ABORT, EntryFlags::NOT_TAKEN];
        let set = ((bits & 1) * in_tx) | ((bits >> 1 & 1) * abort) | ((bits >> 2) * passed);
        let flags = EntryFlags(prediction | set).with_cycles(cycles);
        let kind = (kind != 0).then_some(BranchType(kind));
        let flags = flags.with_type(kind).with_spec(BranchSpec::from_code(spec));
        let branch = RawBranch { from, to, flags };
        prop_assert_eq!(parsed(&Printed(branch).to_string()), branch);
    }
}
