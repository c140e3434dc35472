//! The text of an entry and of a line.

use lbr_msr::record::{BranchSpec, BranchType};
use profile::brstack::{EntryError, Line, LineError, Printed, parse_entry, parse_line};
use profile::{EntryFlags, RawBranch};
use proptest::prelude::*;

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
    ] {
        assert_eq!(parse_entry(text.as_bytes()), Err(error), "{text}");
    }
}

#[test]
fn lines() {
    let mut entries = Vec::new();
    let mut line = |text: &str| parse_line(text.as_bytes(), &mut entries);
    let Ok(Line::Sample(head)) =
        line("25532  ffffffff8032d7e0 0x1/0x2/P/-/-/0/  0x3/0x4/M/-/-/0/ \n")
    else {
        panic!()
    };
    assert_eq!((head.pid, head.ip), (Some(25532), Some(0xffff_ffff_8032_d7e0)));
    let full = "my prog  6540/6541  [001]  2505.292041:  2944213 branches:u:  4005dc 0x1/0x2";
    let Ok(Line::Sample(head)) = line(full) else { panic!() };
    assert_eq!((head.pid, head.tid, head.cpu), (Some(6540), Some(6541), Some(1)));
    assert_eq!((head.time, head.ip), (Some(2_505_292_041_000), Some(0x4005dc)));
    assert_eq!(head.period, Some(2_944_213));
    let untimed = "prog 25532 branches:u:  4005dc 0x1/0x2";
    let Ok(Line::Sample(head)) = line(untimed) else { panic!() };
    assert_eq!((head.pid, head.period, head.ip), (Some(25532), None, Some(0x4005dc)));
    assert!(matches!(line("  5595      7f06d6a21e00\n"), Ok(Line::Sample(_))));
    let named = "  many branches 4242 [003]     1.000001:          7 branches:u:      55555588286e main+0x10 (/bin/x y)\n";
    let Ok(Line::Sample(head)) = line(named) else { panic!() };
    assert_eq!((head.pid, head.cpu, head.period), (Some(4242), Some(3), Some(7)));
    assert_eq!((head.ip, head.time), (Some(0x5555_5588_286E), Some(1_000_001_000)));
    assert_eq!(line("17\n"), Ok(Line::Count(17)));
    assert_eq!(line("\t          4005dc\n"), Ok(Line::Other));
    assert_eq!(line("\n"), Ok(Line::Other));
    assert_eq!(line("// comment"), Ok(Line::Other));
    assert_eq!(line("prog 12/12 [000] 1.5: PERF_RECORD_COMM: prog:12/12"), Ok(Line::Other));
    assert_eq!(line("..... 11: 0033 -> 0041 no cycles  P   0"), Err(LineError::Unknown));
    assert_eq!(line("what is this"), Err(LineError::Unknown));
    assert_eq!(
        line("0x1/0x2/P/-/-/0 0x3/0xg"),
        Err(LineError::Entry { index: 2, error: EntryError::Address })
    );
    assert_eq!(
        line("a+0x1/b+0x2/P/-/-/0/"),
        Err(LineError::Entry { index: 1, error: EntryError::Symbolic })
    );
    let map = "PERF_RECORD_MMAP2 12/13: [0x201000(0x1000) @ 0x1000 00:1d 224 9]: r-xp /a b/c\n";
    let Ok(Line::Mmap(map)) = line(map) else { panic!() };
    assert_eq!((map.pid, map.tid, map.addr, map.len, map.pgoff), (12, 13, 0x201000, 4096, 4096));
    assert_eq!((map.dev, map.ino, map.ino_generation, map.prot), ((0, 0x1d), 224, 9, 5));
    assert_eq!(map.path, "/a b/c");
    assert_eq!(line("PERF_RECORD_MMAP2 12/13: [0x201000("), Err(LineError::Mmap));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever can be printed reads back the same.
    #[test]
    fn printed_entries_read_back(
        from: u64,
        to: u64,
        word in any::<u64>(),
    ) {
        // Privilege and what lies beyond the word's fields is not printed; of
        // both prediction bits M is; a new type needs the code that says so.
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
    fn any_line_is_answered(line in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_line(&line, &mut Vec::new());
    }

    /// Lines near to right ones.
    #[test]
    fn damaged_lines_are_answered(at in 0usize..79, byte: u8) {
        let mut line = *b"PERF_RECORD_MMAP2 1/1: [0x1(0x2) @ 0 00:1d 2 9]: r-xp /x 0x1/0x2(a)/P/-/-/0/C/-";
        line[at] = byte;
        let _ = parse_line(&line, &mut Vec::new());
        let _ = parse_line(&line[57..], &mut Vec::new());
    }
}

/// The process of a sample, and its branches.
type Sample = (Option<u32>, Vec<RawBranch>);

/// Everything that a text holds; how many lines were refused, and the first.
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
    assert_eq!(read(&DUMP.repeat(2)), (vec![sample.clone(), sample.clone()], None));
    // What perf script prints of the sample behind its dump is the same sample.
    let without =
        "work  7952/7953 [001] 8380.958377:      48973 cycles:u:            4f851a work\n";
    assert_eq!(read(&format!("{DUMP}{without}{DUMP}")).0.len(), 2);
    let with = " 0x4b52fd/0x4f82c0/P/-/-/0  0xffffffff8220137c/0x4b52f0/M/-/-/17  0x41d1c4/0x4b52f0/-/X/A/0 \n";
    assert_eq!(read(&format!("{DUMP}{with}")), (vec![sample.clone()], None));
    // Other branches are another sample, which comes behind it.
    let (found, refused) = read(&format!("{DUMP} 0x10/0x20/P/-/-/0 \n{with}"));
    assert_eq!((found.len(), refused), (3, None));
    assert_eq!(found[0], sample);
    assert_eq!((found[1].1[0].from, found[2].1.len()), (0x10, 3));
    // A branch that cannot be read is refused by its line.
    let (found, refused) = read(&DUMP.replace("41d1c4 ->", "41d1cg ->"));
    assert_eq!((found[0].1.len(), refused), (2, Some((1, 9))));
}

#[test]
fn symbols_beside_addresses_pass() {
    let line = " 0x10/0x20/P/-/-/1  0x30/0x40/M/-/-/2  main+0x10/f+0x0/P/-/-/1  f+0x3/main+0x15/M/-/-/2 \n";
    let (found, refused) = read(line);
    let flags = |word, cycles| EntryFlags(word).with_cycles(cycles);
    let expected = vec![
        RawBranch { from: 0x10, to: 0x20, flags: flags(2, 1) },
        RawBranch { from: 0x30, to: 0x40, flags: flags(1, 2) },
    ];
    assert_eq!((found, refused), (vec![(None, expected)], None));
    // Alone they name no addresses.
    let (found, refused) = read(&format!("main+0x10/f+0x0/P/-/-/1\n{line}"));
    assert_eq!((found.len(), refused), (1, Some((1, 1))));
}

#[test]
fn paths_in_parentheses_may_hold_anything() {
    let line = " 0x10(/a/b c)/0x20(/lib/x (deleted))/P/X/A/65535/COND/- \n";
    let (found, refused) = read(line);
    let flags = EntryFlags(2 | 4 | 8).with_cycles(65_535).with_type(Some(BranchType::COND));
    let expected = RawBranch { from: 0x10, to: 0x20, flags };
    assert_eq!((found, refused), (vec![(None, vec![expected])], None));
}
