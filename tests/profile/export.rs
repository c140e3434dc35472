//! Profiles of a program that is created here byte by byte.

use std::fmt::Write as _;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use lbr_msr::record::Event;
use profile::export::{ProfileKind, ProgramChoice, Traces};
use profile::{Counter, Recording};

use crate::recorded::{entry, exact, meta, sample, stream};
use crate::support::mapping::mapping;

/// The address of its code in memory and in the file.
const CODE: u64 = 0x40_1000;
const OFFSET: u64 = 0x1000;

/// Code at [`CODE`], with a function at its start and one 16 bytes later.
const BYTES: [u8; 17] = [
    0x90, // 0: nop
    0x75, 0x05, // 1: jne 8
    0xe8, 0x08, 0x00, 0x00, 0x00, // 3: call 0x10
    0xeb, 0xf6, // 8: jmp 0
    0xff, 0xe0, // a: jmp *%rax
    0x90, 0x90, 0x90, 0x90, // c
    0xc3, // 10: ret
];

/// An ELF file of one segment, `.text` and two symbols.
fn program(dir: &Path) -> PathBuf {
    let words = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let strings = b"\0f\0g\0.text\0.symtab\0.strtab\0";
    let mut file = vec![0; OFFSET as usize];
    file.extend(BYTES);
    file.resize(0x1040, 0);
    let symbols = file.len() as u64;
    // name, info (function, global), section 1, address, size
    let symbol = |name: u64, addr: u64, size| words(&[name | 0x12 << 32 | 1 << 48, addr, size]);
    file.extend([0; 24]);
    file.extend(symbol(1, CODE, 16));
    file.extend(symbol(3, CODE + 16, 1));
    let names = file.len() as u64;
    file.extend(strings);
    file.resize(0x1100, 0);
    let sections = file.len() as u64;
    let section = |name: u64, kind: u64, rest: [u64; 7]| {
        let mut bytes = words(&[name | kind << 32]);
        bytes.extend(words(&rest));
        bytes
    };
    let len = BYTES.len() as u64;
    file.extend([0; 64]);
    // flags, address, offset, size, link and info, alignment, size of an entry
    file.extend(section(5, 1, [6, CODE, OFFSET, len, 0, 16, 0]));
    file.extend(section(11, 2, [0, 0, symbols, 72, 3 | 1 << 32, 8, 24]));
    file.extend(section(19, 3, [0, 0, names, strings.len() as u64, 0, 1, 0]));
    let mut head = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    head.extend(words(&[2 | 62 << 16 | 1 << 32, CODE, 64, sections]));
    // flags, sizes and numbers of headers
    head.extend(words(&[64 << 32 | 56 << 48, 1 | 64 << 16 | 4 << 32 | 3 << 48]));
    head.extend(words(&[1 | 5 << 32, OFFSET, CODE, CODE, len, len, 0x1000]));
    file.splice(0..head.len(), head);
    let path = dir.join("handmade");
    std::fs::write(&path, file).unwrap();
    path
}

fn made<const JOIN: bool>(bytes: Vec<u8>, kind: ProfileKind) -> (String, profile::export::Losses) {
    let dir = tempfile::tempdir().unwrap();
    let wanted = ProgramChoice::File(program(dir.path()));
    let mut counter = Counter::of(Traces::<JOIN>::of(kind));
    let mut recording = Recording::from_stream(Box::new(Cursor::new(bytes))).unwrap();
    counter.recording(&mut recording, |_, _| {}).unwrap();
    let made = counter.finish().profile(kind, &wanted).unwrap();
    (made.text, made.losses)
}

/// Stacks as perf's text, each oldest first, with the program mapped.
fn text(stacks: &[&[(u64, u64, char)]]) -> Vec<u8> {
    let mut text = String::from(
        "PERF_RECORD_MMAP2 7/7: [0x401000(0x1000) @ 0x1000 08:01 1 0]: r-xp /built/handmade\n",
    );
    for stack in stacks {
        for (from, to, flag) in stack.iter().rev() {
            let _ = write!(text, " {from:#x}/{to:#x}/{flag}/-/-/0");
        }
        text.push('\n');
    }
    text.into_bytes()
}

/// An address outside.
const OUT: u64 = 0x7f00_0000_1000;

/// From outside, through the conditional jump, around the loop, past the conditional jump into the
/// call, and back.
const RUN: [(u64, u64, char); 5] = [
    (OUT, CODE, 'P'),
    (CODE + 1, CODE + 8, 'P'),
    (CODE + 8, CODE, 'P'),
    (CODE + 3, CODE + 0x10, 'M'),
    (CODE + 0x10, CODE + 8, 'P'),
];

#[test]
fn ranges_and_branches_count_from_the_first_page_of_code() {
    let (text, losses) = made::<false>(text(&[&RUN]), ProfileKind::LlvmRaw);
    // 1 - 0x401000 is a source outside.
    let expected = "4\n0-1:1\n0-3:1\n8-8:1\n10-10:1\n\
                    5\nffffffffffbff001->0:1\n1->8:1\n3->10:1\n8->0:1\n10->8:1\n";
    assert_eq!(text, expected);
    assert_eq!((losses.ranges, losses.branches, losses.recorded), ((4, 4), (5, 5), 5));
}

/// Text without mappings, of a program at its linked address.
#[test]
fn addresses_of_no_mapping_are_those_of_the_program() {
    let mapped = text(&[&RUN]);
    let behind = mapped.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for kind in [ProfileKind::LlvmRaw, ProfileKind::Preagg, ProfileKind::PreaggTraces] {
        let (unmapped, losses) = made::<false>(mapped[behind..].to_vec(), kind);
        assert_eq!(unmapped, made::<false>(mapped.clone(), kind).0);
        assert_eq!((losses.recorded, losses.outside), (5, 0));
    }
}

#[test]
fn bolt_format_marks_entries_from_outside_or_by_return() {
    let more = [(CODE + 0x10, CODE + 8, 'P'), (CODE + 8, CODE, 'P')];
    let (made, _) = made::<false>(text(&[&RUN, &more]), ProfileKind::Preagg);
    let expected = "B 0 401000 1 0\nB 401001 401008 1 0\nB 401003 401010 1 1\n\
                    B 401008 401000 2 0\nB 401010 401008 2 0\n\
                    F 401000 401003 1\nF 401008 401008 1\nF 401010 401010 1\n\
                    f 401000 401001 1\nf 401008 401008 1\n";
    assert_eq!(made, expected);
}

#[test]
fn traces_combine_branch_and_fall_through() {
    let (made, _) = made::<false>(text(&[&RUN]), ProfileKind::PreaggTraces);
    let expected = "T 0 401000 401001 1\nT 401001 401008 401008 1\nT 401003 401010 401010 1\n\
                    T 401008 401000 401003 1\nB 401010 401008 1 0\n";
    assert_eq!(made, expected);
}

/// LLVM omits ranges that run past a call or a jump that it can decode, backwards, or from inside
/// an instruction; it accepts a jump through a register. BOLT checks by itself.
#[test]
fn impossible_fall_through_ranges() {
    let past = |to: u64, from: u64| [(OUT, CODE + to, 'P'), (CODE + from, OUT, 'P')];
    let stacks = [past(0, 8), past(8, 10), past(10, 12), past(8, 1), past(2, 3), past(12, 15)];
    let stacks: Vec<&[_]> = stacks.iter().map(|stack| &stack[..]).collect();
    let (made_by_llvm, losses) = made::<false>(text(&stacks), ProfileKind::LlvmRaw);
    let ranges: Vec<&str> = made_by_llvm.lines().take(3).collect();
    assert_eq!(ranges, ["2", "a-c:1", "c-f:1"]);
    assert_eq!((losses.bogus, losses.ranges_outside), (3, 1));
    let (bolt, _) = made::<false>(text(&stacks), ProfileKind::Preagg);
    assert_eq!(bolt.lines().filter(|line| line.starts_with('f')).count(), 6);
}

/// An interrupt between two user branches: BOLT ignores it, llvm-profgen uses its two ends; both
/// ignore entries without an end in the program.
#[test]
fn pairing_of_neighbours() {
    const KERNEL: u64 = 0xffff_ffff_8100_0000;
    let stack = [
        (CODE + 8, CODE, 'P'),
        (CODE + 1, KERNEL, 'P'),
        (KERNEL + 8, KERNEL + 64, 'P'),
        (KERNEL + 70, CODE + 1, 'P'),
        (CODE + 3, CODE + 0x10, 'P'),
        (OUT, OUT + 8, 'P'),
        (CODE + 0x10, CODE + 8, 'P'),
    ];
    let ranges = |text: String, letters: &[char]| {
        let is = |line: &&str| line.starts_with(letters);
        text.lines().filter(is).map(str::to_owned).collect::<Vec<_>>()
    };
    let (llvm, _) = made::<false>(text(&[&stack]), ProfileKind::LlvmRaw);
    assert!(llvm.starts_with("3\n0-1:1\n1-3:1\n10-10:1\n"), "{llvm}");
    let (bolt, _) = made::<false>(text(&[&stack]), ProfileKind::Preagg);
    assert_eq!(ranges(bolt, &['F', 'f']), ["F 401000 401003 1"]);
}

/// AutoFDO drops one of two equal newest branches over more than 0x50 bytes; LLVM drops neither.
#[test]
fn autofdo_drops_the_newest_of_two() {
    let of = |kind, bytes| {
        let around = (CODE + 8 + bytes, CODE + 8, 'P');
        made::<false>(text(&[&[(OUT, CODE, 'P'), around, around]]), kind)
    };
    let (text, losses) = of(ProfileKind::AutoFdo, 0x51);
    assert_eq!(text, "1\n1000-1059:1\n0\n1\n1059->1008:1\n");
    assert_eq!(losses.recorded, 2);
    let (text, losses) = of(ProfileKind::AutoFdo, 0x50);
    assert_eq!(text, "2\n1000-1058:1\n1008-1058:1\n0\n1\n1058->1008:2\n");
    assert_eq!(losses.recorded, 3);
    assert_eq!(of(ProfileKind::LlvmRaw, 0x51).1.recorded, 3);
}

/// A source in the program's data is outside for LLVM, which decodes code, and leaves the file for
/// AutoFDO.
#[test]
fn branches_to_the_outside_are_counted_by_source() {
    let stacks = [
        &RUN[..],
        &[(CODE + 8, OUT, 'P')],
        &[(CODE + 0x100, OUT, 'P')],
        &[(CODE + 0x100, OUT, 'P')],
        &[(OUT, OUT + 8, 'P')],
    ];
    for (kind, expected) in [(ProfileKind::LlvmRaw, (1, 3)), (ProfileKind::AutoFdo, (3, 1))] {
        let (_, losses) = made::<false>(text(&stacks), kind);
        assert_eq!((losses.leaving, losses.outside), expected, "{kind:?}");
    }
}

/// Of a shell that ran, and of a program that it started.
#[test]
fn a_launcher_is_reported_if_it_is_alone() {
    let run = |pid: u32, name: &str| {
        let at = 0x40_0000 + u64::from(pid) * 0x1_0000;
        format!(
            "PERF_RECORD_MMAP2 {pid}/{pid}: [{at:#x}(0x1000) @ 0x1000 08:01 1 0]: r-xp /made/up/{name}\n\
             {name} {pid}/{pid} 1.000002: {:#x} {:#x}/{at:#x}/P/-/-/0\n",
            at + 8,
            at + 16
        )
    };
    let made = |text: String| {
        let mut counter = Counter::of(Traces::<false>::of(ProfileKind::AutoFdo));
        let mut recording = Recording::from_stream(Box::new(Cursor::new(text))).unwrap();
        counter.recording(&mut recording, |_, _| {}).unwrap();
        let made =
            counter.finish().profile(ProfileKind::AutoFdo, &ProgramChoice::Recorded).unwrap();
        (made.program, made.others, made.is_launcher)
    };
    let shell = "/made/up/dash".to_owned();
    assert_eq!(made(run(7, "dash")), (shell.clone(), vec![], true));
    let both = run(7, "dash") + "PERF_RECORD_FORK(8:8):(7:7)\n" + &run(8, "prog");
    assert_eq!(made(both), ("/made/up/prog".to_owned(), vec![shell], false));
}

/// The code between two stacks of a thread counts if they join.
#[test]
fn stacks_join() {
    let of = |time, branches: &[(u64, u64)]| {
        let newest_first = branches.iter().rev().map(|(from, to)| entry(*from, *to)).collect();
        sample(time, newest_first, exact())
    };
    let events: Vec<Event> = vec![
        mapping(100, CODE, 0x1000, OFFSET, "/built/handmade"),
        of(2, &[(CODE + 1, CODE + 8), (CODE + 8, CODE)]),
        of(3, &[(CODE + 1, CODE + 8), (CODE + 8, CODE)]),
    ];
    let bytes = stream(meta(), &events);
    let (apart, _) = made::<false>(bytes.clone(), ProfileKind::LlvmRaw);
    assert_eq!(apart, "1\n8-8:2\n2\n1->8:2\n8->0:2\n");
    let (joined, _) = made::<true>(bytes.clone(), ProfileKind::LlvmRaw);
    assert_eq!(joined, "2\n0-1:1\n8-8:2\n2\n1->8:2\n8->0:2\n");
    let (traces, _) = made::<true>(bytes, ProfileKind::PreaggTraces);
    let expected = "T 401001 401008 401008 2\nB 401008 401000 1 0\nT 401008 401000 401001 1\n";
    assert_eq!(traces, expected);
}
