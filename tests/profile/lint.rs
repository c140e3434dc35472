//! Findings.

use std::io::Cursor;
use std::sync::Arc;

use lbr_msr::record::{
    BranchEntry, BranchType, Event, Head, Integrity, Label, Lost, Mmap, Sample, Task,
};
use profile::lint::{DEFAULT_STRIDE, Finding, Lint, Severity, Verdict};
use profile::note::Source;
use profile::perf_data::Meta;
use profile::select::Times;
use profile::symbols::{Module, Sources, build_id};
use profile::{Recording, Selection};

use crate::compiled::{compile, mapped, symbol};
use crate::reader::Crafted;
use crate::recorded::{entry, exact, here, map, meta, sample, stream};
use crate::support::corpus::corpus;
use crate::views::{AT, CODE, at, elf};

fn lint(recording: &mut Recording, stride: u64) -> Lint {
    Lint::check(recording, stride, Sources::default(), |_, _| {}).unwrap()
}

fn text(text: &str) -> Lint {
    let stream = Box::new(Cursor::new(text.as_bytes().to_vec()));
    lint(&mut Recording::from_stream(stream).unwrap(), DEFAULT_STRIDE)
}

fn events_as(meta: Meta, events: &[Event]) -> Lint {
    let bytes = stream(meta, events);
    lint(&mut Recording::from_stream(Box::new(Cursor::new(bytes))).unwrap(), DEFAULT_STRIDE)
}

fn events(events: &[Event]) -> Lint {
    events_as(meta(), events)
}

/// As a CPU's registers are recorded.
fn hardware() -> Meta {
    Meta { source: Source::Hardware, ..meta() }
}

fn find<'a>(lint: &'a Lint, id: &str) -> Option<&'a Finding> {
    lint.findings.iter().find(|finding| finding.id == id)
}

fn part(finding: &Finding, name: &str) -> u64 {
    finding.parts.iter().find(|(what, _)| what == name).unwrap().1
}

/// AutoFDO's own test counts duplicates of the program in this file with a stride limit of 0x50;
/// nine more are in its C library, and with AutoFDO's usual limit, beyond which the reports drop,
/// there is none.
#[test]
fn test_lbr_has_55_duplicates() {
    let Some(corpus) = corpus() else { return };
    let mut recording = Recording::open(&corpus.join("autofdo/perfdata/test.lbr")).unwrap();
    let lint = lint(&mut recording, 0x50);
    let quality = &lint.flow.quality;
    assert_eq!((quality.samples, quality.entries), (9232, 147_712));
    let finding = find(&lint, "duplicated_newest").unwrap();
    assert_eq!((finding.count, finding.of, finding.severity), (55, 9232, Severity::Note));
    assert_eq!(part(finding, "more outside the program"), 9);
    assert_eq!(part(finding, "dropped by report"), 0);
    assert_eq!(lint.flow.taken, 147_712);
}

/// Pairs counted in its golden entries: 966 repeated newest ones, 733 of them forward branches.
#[test]
fn skylake_has_many_duplicates() {
    let Some(corpus) = corpus() else { return };
    let file = corpus.join("autofdo/perfdata/propeller_sample_1.perfdata1");
    let lint = lint(&mut Recording::open(&file).unwrap(), 0x50);
    let finding = find(&lint, "duplicated_newest").unwrap();
    assert_eq!((finding.count, finding.severity), (966, Severity::Warning));
    assert_eq!(part(finding, "dropped by report"), 733);
    assert_eq!(find(&lint, "empty_stacks").unwrap().count, 8);
    assert_eq!(lint.flow.taken, 119_424 - 733);
    // Blocks between duplicates would have run backwards: none remains.
    assert_eq!(find(&lint, "impossible_fall_through"), None);
}

#[test]
fn a_sound_recording() {
    let known = |from, to| BranchEntry {
        mispredicted: Some(false),
        cycles: Some(from as u32),
        ..entry(from, to)
    };
    let lint = events(&[sample(1, vec![known(0x20, 0x10), known(0x18, 0x10)], exact())]);
    assert_eq!((lint.verdict(), &*lint.findings), (Verdict::Sound, &[][..]));
}

/// A recording without data is not sound.
#[test]
fn no_branches_at_all() {
    for nothing in [&[][..], &[sample(1, vec![], exact())]] {
        let lint = events(nothing);
        assert_eq!(lint.verdict(), Verdict::Poor);
        let finding = find(&lint, "no_branches").unwrap();
        assert_eq!((finding.count, finding.of, finding.severity), (1, 1, Severity::Error));
    }
}

/// In call-stack mode, an empty stack is execution in the outermost function.
#[test]
fn empty_call_stacks_are_not_missing() {
    for (label, count) in [(Label::Stream, Some(1)), (Label::Snapshot, None)] {
        let integrity = Integrity { label, ..exact() };
        let lint = events(&[
            sample(1, vec![entry(0x20, 0x10)], integrity),
            sample(2, Vec::new(), integrity),
        ]);
        assert_eq!(find(&lint, "empty_stacks").map(|finding| finding.count), count, "{label:?}");
    }
}

/// Two stacks of a library and none of the program.
#[test]
fn duplicates_outside_the_program() {
    let twice = vec![entry(0x7000_2000, 0x7000_0000); 2];
    let lint = events_as(
        hardware(),
        &[
            map("/bin/program", 0x40_0000, 0x1000, 0),
            map("/lib/library", 0x7000_0000, 0x10_0000, 0),
            sample(1, twice.clone(), exact()),
            sample(2, twice, exact()),
        ],
    );
    let finding = find(&lint, "duplicated_newest").unwrap();
    assert_eq!((finding.count, part(finding, "outside the program")), (2, 2));
    assert_eq!((part(finding, "dropped by report"), lint.flow.taken), (2, 2));
    assert_eq!(finding.severity, Severity::Error);
}

#[test]
fn what_is_missing() {
    let lost = Lost { time: 9, pid: 1, tid: 1, cpu: 0, stacks: 3, label: Some(Label::Torn) };
    let lint = events(&[
        sample(1, vec![entry(0x20, 0x10)], exact()),
        sample(2, vec![], exact()),
        Event::Lost(lost),
    ]);
    let finding = find(&lint, "lost").unwrap();
    assert_eq!((finding.count, finding.of), (3, 5));
    assert_eq!((part(finding, "torn"), finding.severity), (3, Severity::Error));
    assert_eq!(find(&lint, "empty_stacks").unwrap().share(), Some(0.5));
    assert_eq!(lint.verdict(), Verdict::Poor);
}

/// In call-stack mode, a stack without a call is one of the outermost function.
#[test]
fn no_open_call_is_no_missing_branch() {
    let calls = Integrity { label: Label::Snapshot, ..exact() };
    let lint = events(&[sample(1, vec![entry(0x20, 0x10)], calls), sample(2, vec![], calls)]);
    assert_eq!(find(&lint, "empty_stacks"), None);
}

/// A tenth is an error, a thousandth a warning.
#[test]
fn severity_depends_on_the_share() {
    let lost = Lost { time: 9, pid: 1, tid: 1, cpu: 0, stacks: 1, label: None };
    for (stacks, severity) in [
        (9, Severity::Error),
        (10, Severity::Warning),
        (999, Severity::Warning),
        (1000, Severity::Note),
    ] {
        let mut all = vec![sample(1, vec![entry(0x20, 0x10)], exact()); stacks];
        all.push(Event::Lost(lost));
        assert_eq!(find(&events(&all), "lost").unwrap().severity, severity, "1 of {stacks} + 1");
    }
}

/// One bad stack, line or pair among good ones: a warning from 1% on; an error where numbers would be
/// wrong or missing.
#[test]
fn one_percent_is_a_warning() {
    use Severity::{Error, Note, Warning};
    // Backwards from 0x40; and 0x10 back to 0x20, a duplicate that is dropped.
    let impossible = (" 0x10/0x20 0x30/0x40\n", " 0x20/0x8 0x30/0x10\n");
    let duplicate = (" 0x10/0x20 0x10/0x20\n", " 0x18/0x8 0x30/0x8\n");
    let refused = ("0x1/0x2/Q/-/-/0\n", " 0x20/0x8 0x30/0x10\n");
    // A sample of no branch, in a format with counts.
    let empty = ("S 401000 1\n", "B 401010 401000 1 0\n");
    for (id, (bad, good), severities) in [
        ("impossible_fall_through", impossible, [(9, Error), (10, Warning)]),
        ("duplicated_newest", duplicate, [(1, Error), (2, Warning)]),
        ("refused_lines", refused, [(1, Warning), (2, Warning)]),
        ("empty_stacks", empty, [(1, Error), (2, Warning)]),
    ] {
        for (stacks, severity) in severities.into_iter().chain([(99, Warning), (100, Note)]) {
            let lint = text(&(good.repeat(stacks) + bad));
            let finding = find(&lint, id).unwrap();
            assert_eq!((finding.count, finding.severity), (1, severity), "{id}, 1 + {stacks}");
        }
    }
}

#[test]
fn odd_entries() {
    let lint = text(
        " 0x10/0x20/P/-/-/0 0x0/0x0/P/-/-/0 0x18/0x8/P/-/-/0\n 0x10/0x20/P/-/-/0 0x30/0x40/P/-/-/0\n 0x10/0x20/P/-/-/0 0x10/0x20/P/-/A/0\n 0x40/0x8/P/-/-/0 0x10/0x20/P/-/-/0 0x10/0x20/P/-/-/0\n",
    );
    let count = |id| find(&lint, id).map(|finding| (finding.count, finding.of));
    assert_eq!(count("zero_entries"), Some((1, 10)));
    // 0x40 back to 0x10; and from 0x20 back to 0x10 in the oldest pair.
    assert_eq!(count("impossible_fall_through"), Some((2, 3)));
    assert_eq!(count("double_aborts"), Some((1, 10)));
    assert_eq!(count("repeated_last_pair"), Some((1, 4)));
    assert_eq!(count("joins_unknown"), Some((4, 4)));
    // The most severe comes first.
    assert!(lint.findings.is_sorted_by(|a, b| a.severity >= b.severity));
    assert_ne!(lint.findings[0].severity, Severity::Note);
    // Of three equal entries, the newest is dropped: the others are the oldest pair.
    let thrice = text(" 0x10/0x20 0x10/0x20 0x10/0x20\n");
    assert_eq!(find(&thrice, "repeated_last_pair").map(|finding| finding.count), Some(1));
}

/// A stack that counts three times, and one without a symbol.
#[test]
fn symbols_instead_of_addresses() {
    let lint = text(
        "3\n f+0x8/f+0x0/P/-/-/0 f+0x8/[unknown]/P/-/-/0\n 0x20/0x10/P/-/-/0 0x30/0x10/P/-/-/0\n",
    );
    let finding = find(&lint, "no_addresses").unwrap();
    assert_eq!((finding.count, finding.of, part(finding, "from or to unknown")), (6, 8, 3));
}

/// A block of the stride itself is not suspicious. A stack of one entry has no pair.
#[test]
fn duplicates_longer_than_the_stride() {
    let suspected = |from: u64| {
        let lint = text(&format!(" {from:#x}/0x10 {from:#x}/0x10\n 0x8/0x10\n"));
        find(&lint, "duplicated_newest").map(|finding| (finding.count, finding.of))
    };
    assert_eq!((suspected(0x10 + 0x50), suspected(0x11 + 0x50)), (None, Some((1, 1))));
}

#[test]
fn fields_that_are_never_set() {
    let stacks = " 0x20/0x10/P/-/-/7  0x20/0x10/P/-/-/7  0x20/0x10/P/-/-/7\n".repeat(600);
    let lint = text(&stacks);
    let count = |id| find(&lint, id).map(|finding| (finding.count, finding.of));
    assert_eq!(count("mispredict_never_set"), Some((1800, 1800)));
    // Cycles of a stack's oldest entry have an unknown start.
    assert_eq!(count("cycles_constant"), Some((1200, 1200)));
    assert_eq!(lint.verdict(), Verdict::Doubtful);
    // A thousand are enough to judge.
    for (stacks, count) in [(999, None), (1000, Some(1000))] {
        let lint = text(&" 0x20/0x10/P/-/-/7 0x20/0x10/-/-/-/7\n".repeat(stacks));
        let count_of = |id| find(&lint, id).map(|finding| finding.count);
        let found = ["mispredict_never_set", "cycles_constant"].map(count_of);
        assert_eq!(found, [count, count], "{stacks}");
    }
    let lint = text(&stacks.replacen("P/-/-/7", "M/-/-/65535", 1));
    assert_eq!(find(&lint, "mispredict_never_set"), None);
    assert_eq!(find(&lint, "cycles_constant"), None);
    assert_eq!(find(&lint, "cycles_saturated").unwrap().count, 1);
    let lint = text(&stacks.replace("/7", "/0").replace("/P/", "/-/"));
    assert_eq!(find(&lint, "cycles_zero").unwrap().severity, Severity::Note);
    assert_eq!(find(&lint, "predictions_unknown").unwrap().count, 1800);
    // Of a recording with cycles, some entries have none.
    let lint = text(" 0x20/0x10/P/-/-/0 0x20/0x10/P/-/-/7 0x20/0x10/P/-/-/7\n");
    let finding = find(&lint, "cycles_zero").unwrap();
    assert_eq!((finding.count, finding.of, finding.severity), (1, 2, Severity::Warning));
}

/// Of three stacks, branches are missing before one and after another; of a filtered recording, all
/// between two calls.
#[test]
fn stacks_that_are_not_exact() {
    let stack = |time, integrity| sample(time, vec![entry(0x20, 0x10)], integrity);
    let (lost, cut) =
        (Integrity { head: Head::Lost, ..exact() }, Integrity { cut: true, ..exact() });
    let stacks = [stack(1, exact()), stack(2, lost), stack(3, cut)];
    let count = |lint: &Lint, id| find(lint, id).map(|finding| (finding.count, finding.of));
    let lint = events(&stacks);
    assert_eq!(count(&lint, "not_exact"), Some((2, 3)));
    assert_eq!((count(&lint, "joins_unknown"), count(&lint, "filtered")), (None, None));
    let lint = events_as(Meta { filter: "any_call,u".parse().unwrap(), ..meta() }, &stacks[..1]);
    assert_eq!((count(&lint, "not_exact"), count(&lint, "filtered")), (None, Some((1, 1))));
    let lint = events_as(Meta { source: Source::Unsaid, ..meta() }, &stacks);
    assert_eq!((count(&lint, "not_exact"), count(&lint, "joins_unknown")), (None, Some((3, 3))));
}

/// A file that ends inside its second sample, and one whose first sample announces two branches and
/// has one.
#[test]
fn damaged_recordings() {
    let mut file = Crafted::new(false);
    file.attr(128, 1 | 1 << 11, 0, 8, &[]);
    file.sample(&[0xa0, 1, 0x20, 0x10, 2]);
    let whole = file.bytes.len();
    file.sample(&[0xa0, 2, 0x20, 0x10, 2]);
    let found = |bytes: &[u8]| {
        let stream = Box::new(Cursor::new(bytes.to_vec()));
        let lint = lint(&mut Recording::from_stream(stream).unwrap(), DEFAULT_STRIDE);
        ["cut_off", "malformed"]
            .map(|id| find(&lint, id).map(|finding| (finding.count, finding.of, finding.severity)))
    };
    assert_eq!(found(&file.bytes[..whole]), [None, None]);
    assert_eq!(found(&file.bytes), [None, Some((1, 2, Severity::Warning))]);
    assert_eq!(found(&file.bytes[..whole + 9]), [Some((1, 0, Severity::Warning)), None]);
}

/// The verdict on a program of [`CODE`], mapped at [`AT`], that was recorded on this machine.
fn with_code(stacks: &[Event]) -> Lint {
    let (_dir, path) = elf(CODE);
    let events = [&[map(&path, AT, 0x1000, 0x1000)][..], stacks].concat();
    events_as(here(), &events)
}

/// A branch from the middle of an instruction, after rounds of the loop from 0 to the jump at 8. A
/// hundred entries with code are enough to judge.
#[test]
fn branches_that_contradict_the_code() {
    for (rounds, severity) in [(98, Severity::Note), (99, Severity::Warning)] {
        let mut newest_first = vec![entry(at(5), at(0))];
        newest_first.extend(vec![entry(at(8), at(0)); rounds]);
        let lint = with_code(&[sample(1, newest_first, exact())]);
        let of = |id| {
            let finding = find(&lint, id).unwrap();
            (finding.count, finding.of, finding.severity)
        };
        let rounds = rounds as u64;
        assert_eq!(of("from_no_branch"), (1, rounds + 1, severity));
        assert_eq!(of("contradicted_blocks"), (1, rounds, severity));
    }
}

/// The jump at 8 leads to 0, and a `nop` nowhere, except by an interrupt or into the kernel.
#[test]
fn branches_that_no_instruction_makes() {
    let stack = |from, to, branch_type| {
        let branch = BranchEntry { branch_type, ..entry(at(from), to) };
        sample(1, vec![branch], Integrity::UNKNOWN)
    };
    let lint = with_code(&[
        stack(8, at(4), None),
        stack(2, at(0x40), None),
        stack(3, at(0x50), Some(BranchType::IRQ)),
        stack(6, 1 << 63, None),
        stack(8, at(0), None),
    ]);
    let finding = find(&lint, "from_no_branch").unwrap();
    assert_eq!((finding.count, finding.of), (2, 3));
    assert_eq!((part(finding, "no branch"), part(finding, "other target")), (1, 1));
}

/// Branches from three `nop`s: the mapped file is another one.
#[test]
fn branches_of_another_file() {
    let branch = |from| vec![entry(at(from), at(from + 0x100))];
    let wrong = [2, 3, 6].map(|from| sample(1, branch(from), Integrity::UNKNOWN));
    let lint = with_code(&wrong);
    let finding = find(&lint, "other_file").unwrap();
    assert_eq!((finding.count, finding.of), (3, 3));
    assert_eq!(finding.parts.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [3]);
}

/// The default filter of the recorded file is user mode.
#[test]
fn kernel_entries() {
    let lint = events(&[sample(1, vec![entry(0x20, 0x10), entry(1 << 63, 0x10)], exact())]);
    let finding = find(&lint, "kernel_entries").unwrap();
    assert_eq!((finding.count, finding.of, part(finding, "from")), (1, 2, 1));
    let lint = events(&[sample(1, vec![entry(0x20, 1 << 63), entry(!0 >> 1, 0x10)], exact())]);
    let finding = find(&lint, "kernel_entries").unwrap();
    assert_eq!((part(finding, "from"), part(finding, "to")), (0, 1));
    assert_eq!(find(&text(" 0x20/0x10 0xffffffff80000000/0x10\n"), "kernel_entries"), None);
    // PERF_SAMPLE_BRANCH_ANY with _USER, _KERNEL and _HV.
    for (modes, count) in [(1, Some(1)), (1 | 2, None), (1 | 4, None)] {
        let mut file = Crafted::new(false);
        file.attr(128, 1 | 1 << 11, 0, 8 | modes, &[]);
        file.sample(&[0xa0, 2, 0x20, 0x10, 2, 1 << 63, 0x10, 2]);
        let mut recording = Recording::from_stream(Box::new(Cursor::new(file.bytes))).unwrap();
        let lint = self::lint(&mut recording, DEFAULT_STRIDE);
        assert_eq!(find(&lint, "kernel_entries").map(|finding| finding.count), count, "{modes}");
    }
}

/// One branch is newest in every stack and occurs nowhere else.
#[test]
fn bias() {
    let lint = text(&" 0x90/0x10 0x20/0x10 0x20/0x10 0x20/0x10\n".repeat(100));
    let finding = find(&lint, "top_of_stack_bias").unwrap();
    assert_eq!((finding.count, finding.of, finding.severity), (100, 100, Severity::Warning));
    let even = " 0x20/0x10 0x20/0x10 0x20/0x10 0x20/0x10\n".repeat(100);
    assert_eq!(find(&text(&even), "top_of_stack_bias"), None);
    // Half of all branches, and always the newest: twice as often as expected.
    let biased = |stack: &str, times| {
        find(&text(&stack.repeat(times)), "top_of_stack_bias").map(|finding| finding.count)
    };
    let twice = " 0x90/0x10 0x20/0x10\n";
    assert_eq!((biased(twice, 29), biased(twice, 30)), (None, Some(30)));
    assert_eq!(biased(" 0x90/0x10 0x90/0x10 0x20/0x10\n", 30), None);
    // Where every branch was recorded, the newest ones are not a sample.
    let newest = [0x90, 0x20, 0x20].map(|from| entry(from, 0x10)).to_vec();
    let complete: Vec<Event> = (0..100).map(|time| sample(time, newest.clone(), exact())).collect();
    assert_eq!(find(&events(&complete), "top_of_stack_bias"), None);
    // An empty stack has no newest branch.
    let sampled = (0..100).map(|time| sample(time, newest.clone(), Integrity::UNKNOWN));
    let sampled: Vec<Event> = sampled.chain([sample(100, vec![], Integrity::UNKNOWN)]).collect();
    let lint = events(&sampled);
    let finding = find(&lint, "top_of_stack_bias").unwrap();
    assert_eq!((finding.count, finding.of), (100, 100));
}

/// Ten stacks of a loop in thread 101, ten nanoseconds each, that join.
fn run(at: u64, begin: u64) -> Vec<Event> {
    let stack = |nth: u64| sample(begin + nth * 10, vec![entry(at + 0x20, at); 3], exact());
    (0..10).map(stack).collect()
}

/// The streams of two recorders in one file, with equal thread numbers.
#[test]
fn stacks_of_two_runs() {
    const ODD: [&str; 3] = ["time_runs_back", "stacks_do_not_join", "several_runs"];
    let (one, other) = (run(0x40_0000, 10), run(0x900_0000, 5));
    for alone in [&one, &other] {
        let lint = events(alone);
        assert!(ODD.iter().all(|id| find(&lint, id).is_none()), "{:?}", lint.findings);
        assert_eq!(lint.verdict(), Verdict::Sound, "{:?}", lint.findings);
    }
    let mixed: Vec<Event> =
        one.iter().zip(&other).flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
    let lint = events(&mixed);
    // Each stack of the other recorder follows a later one: 10 before 5, 20 before
    // 15.
    let finding = find(&lint, "time_runs_back").unwrap();
    assert_eq!((finding.count, finding.of, finding.severity), (10, 19, Severity::Error));
    let finding = find(&lint, "stacks_do_not_join").unwrap();
    assert_eq!((finding.count, finding.of, finding.severity), (19, 19, Severity::Error));
    assert_eq!(lint.verdict(), Verdict::Poor);

    // Sorted by time, they still do not join.
    let sorted: Vec<Event> =
        one.iter().zip(&other).flat_map(|(a, b)| [b.clone(), a.clone()]).collect();
    let lint = events(&sorted);
    assert_eq!(find(&lint, "time_runs_back"), None);
    assert_eq!(find(&lint, "stacks_do_not_join").unwrap().count, 19);
    assert_eq!(lint.verdict(), Verdict::Poor);

    // A thread at two addresses at the same time.
    let twice: Vec<Event> = one.into_iter().chain(run(0x900_0000, 100)).collect();
    let finding = find(&events(&twice), "time_runs_back").unwrap().clone();
    assert_eq!((finding.count, part(&finding, "two places at once")), (1, 1));
    // At one place at the same time, and another thread of the same number.
    let stack = |time| sample(time, vec![entry(0x20, 0x10)], exact());
    let exit = Event::Exit(Task { time: 9, pid: 100, tid: 101, ppid: 100, ptid: 100 });
    for sound in [vec![stack(5), stack(5)], vec![stack(9), exit, stack(5)]] {
        assert_eq!(find(&events(&sound), "time_runs_back"), None);
    }
}

/// One stack is earlier than the previous one of its thread. CPUs are drained one after the other,
/// so that of hardware a few may be.
#[test]
fn few_stacks_of_hardware_are_out_of_order() {
    use Severity::{Error, Note, Warning};
    let stack = |time| sample(time, vec![entry(0x20, 0x10)], exact());
    for (followed, of_hardware) in [(10, Error), (11, Warning), (1000, Warning), (1001, Note)] {
        let stacks: Vec<Event> = (10..10 + followed).chain([5]).map(stack).collect();
        for (meta, severity) in [(hardware(), of_hardware), (meta(), Error)] {
            let lint = events_as(meta, &stacks);
            let finding = find(&lint, "time_runs_back").unwrap();
            let found = (finding.count, finding.of, finding.severity);
            assert_eq!(found, (1, followed, severity));
        }
        // perf's buffers are of CPUs, not of threads.
        let lint = events_as(Meta { source: Source::Unsaid, ..meta() }, &stacks);
        assert_eq!(find(&lint, "time_runs_back"), None);
    }
}

/// Signals part a few stacks from the previous ones. Two runs part more, and more than the branches
/// within stacks.
#[test]
fn many_stacks_that_do_not_join() {
    const HERE: [u64; 3] = [0x40_0000; 3];
    const THERE: [u64; 3] = [0x900_0000; 3];
    let found = |stacks: &[[u64; 3]]| {
        let stack = |(at, time): (&[u64; 3], u64)| {
            sample(time, at.iter().map(|at| entry(at + 0x20, *at)).collect(), exact())
        };
        let lint = events(&stacks.iter().zip(1..).map(stack).collect::<Vec<_>>());
        let finding = find(&lint, "stacks_do_not_join").unwrap();
        (finding.count, finding.of, finding.severity)
    };
    let stacks = |joined: usize, apart: usize| {
        let parted = [THERE, HERE].into_iter().cycle().take(apart);
        vec![HERE; joined + 1].into_iter().chain(parted).collect::<Vec<_>>()
    };
    assert_eq!(found(&stacks(2, 2)), (2, 4, Severity::Note));
    assert_eq!(found(&stacks(3, 3)), (3, 6, Severity::Error));
    // A hundredth, or less.
    assert_eq!(found(&stacks(297, 3)), (3, 300, Severity::Error));
    assert_eq!(found(&stacks(298, 3)), (3, 301, Severity::Note));
    // If one in ten within stacks does not join either, four times as many are normal.
    let within = |joined, apart| {
        let mut all = stacks(joined, apart);
        all[0] = [HERE[0], THERE[0], HERE[0]];
        found(&all)
    };
    assert_eq!(within(6, 3), (3, 9, Severity::Note));
    assert_eq!(within(5, 4), (4, 9, Severity::Error));
    // One in four, and all.
    assert_eq!(within(0, 3), (3, 3, Severity::Note));
}

/// A recorder starts one process; all others have a parent.
#[test]
fn processes_of_two_runs() {
    let of = |events: Vec<Event>, process: u32| {
        events.into_iter().map(move |event| match event {
            Event::Sample(sample) => Event::Sample(Sample { pid: process, tid: process, ..sample }),
            event => event,
        })
    };
    let both: Vec<Event> =
        run(0x40_0000, 10).into_iter().chain(of(run(0x40_0000, 15), 200)).collect();
    let lint = events(&both);
    let finding = find(&lint, "several_runs").unwrap();
    assert_eq!((finding.count, finding.of, lint.verdict()), (1, 2, Verdict::Poor));
    let born = |pid| [Event::Fork(Task { time: 1, pid, tid: 200, ppid: 100, ptid: 100 })];
    // Whenever it is recorded; that of a thread is not one of a process.
    for (events_of, found) in [
        ([&born(200)[..], &both].concat(), false),
        ([&both, &born(200)[..]].concat(), false),
        ([&born(100)[..], &both].concat(), true),
    ] {
        assert_eq!(find(&events(&events_of), "several_runs").is_some(), found);
    }
    // The registers of a CPU record every process.
    assert_eq!(find(&events_as(hardware(), &both), "several_runs"), None);
    // A selection may omit the parent.
    let bytes = stream(meta(), &both);
    let mut recording = Recording::from_stream(Box::new(Cursor::new(bytes))).unwrap();
    let times = Times::parse("0.000000011,").unwrap();
    recording.select(&Arc::new(Selection { times, ..Selection::default() })).unwrap();
    assert_eq!(find(&self::lint(&mut recording, DEFAULT_STRIDE), "several_runs"), None);
}

/// Good's estimate: the next branch is a new one as often as branches so far were seen once.
#[test]
fn coverage_of_a_file() {
    let path = std::env::current_exe().unwrap();
    let [often, once, new, outside] = [0x5000_2000, 0x5000_2100, 0x5000_2200, 0x300]
        .map(|from| (from, if from > 0x300 { 0x5000_1000 } else { 0x200 }));
    for (last, seen, unseen) in
        [(often, 0.75, (1, 4, Severity::Warning)), (new, 0.5, (2, 4, Severity::Error))]
    {
        let mut all = vec![map(path.to_str().unwrap(), 0x5000_0000, 0x10_0000, 0)];
        for (from, to) in [often, outside, often, once, outside, last] {
            let time = all.len() as u64;
            all.push(sample(time, vec![entry(from, to)], Integrity::UNKNOWN));
        }
        let mut found = events(&all);
        let coverage = found.check_binary(&mut Module::open(&path).unwrap());
        assert_eq!((coverage.inside, coverage.taken, coverage.seen), (4, 6, Some(seen)));
        let of = |id| find(&found, id).map(|finding| (finding.count, finding.of, finding.severity));
        assert_eq!(of("outside_binary"), Some((2, 6, Severity::Note)));
        assert_eq!(of("code_not_seen"), Some(unseen));
        assert_eq!(of("other_file"), None);
        // The same file under another name, and no build id: nothing is in it.
        let coverage = events(&all).check_binary(&mut Module::open("/bin/sh".as_ref()).unwrap());
        assert_eq!((coverage.inside, coverage.seen, coverage.same_build), (0, None, None));
    }
}

/// `main` calls `step` three times and returns from it never.
#[test]
fn coverage_of_functions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    if compile("inlined.c", &path, &["-no-pie", "-Wl,--build-id=sha1"]).is_none() {
        return;
    }
    let branch = entry(symbol(&path, "main") + 1, symbol(&path, "step"));
    let stack = sample(1, vec![branch; 3], Integrity::UNKNOWN);
    let mut found = events(&[mapped(100, &path, 0, build_id(&path)), stack.clone()]);
    let coverage = found.check_binary(&mut Module::open(&path).unwrap());
    assert_eq!((coverage.inside, coverage.functions, coverage.matching), (3, 1, Some(1)));
    assert_eq!(coverage.same_build, Some(true));
    let unseen = find(&found, "functions_without_samples").unwrap();
    assert_eq!((unseen.count, unseen.of), (3, 3));
    assert_eq!(unseen.parts, [("step".to_owned(), 3)]);
    // The recorded file is missing: a file of the same name may be of another build.
    for (recorded, same_build) in [(None, None), (Some(vec![1; 20]), Some(false))] {
        let Event::Mmap(mapped) = mapped(100, &path, 0, recorded) else { unreachable!() };
        let mapped = Event::Mmap(Box::new(Mmap { path: "/nowhere/program".to_owned(), ..*mapped }));
        let mut found = events(&[mapped, stack.clone()]);
        let coverage = found.check_binary(&mut Module::open(&path).unwrap());
        assert_eq!((coverage.inside, coverage.functions, coverage.matching), (3, 0, None));
        assert_eq!(coverage.same_build, same_build);
        let differ = find(&found, "functions_differ").map(|finding| (finding.count, finding.of));
        assert_eq!(differ, same_build.map(|_| (3, 3)));
    }
}

/// Two programs, without build IDs: branches between them count for the functions of the given one,
/// as the recorded file names them.
#[test]
fn coverage_of_one_of_two_programs() {
    const MOVED: u64 = 0x1000_0000;
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [first, second] = folders.each_ref().map(|folder| folder.path().join("program"));
    let other = folders[1].path().join("other");
    let nested = ["-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none"];
    if compile("nested.S", &first, &nested).is_none()
        || compile("inlined.c", &other, &["-no-pie", "-Wl,--build-id=none"]).is_none()
    {
        return;
    }
    std::fs::copy(&other, &second).unwrap();
    let [down, c] = ["down", "c"].map(|name| symbol(&first, name));
    let [main, step] = ["main", "step"].map(|name| symbol(&other, name) + MOVED);
    let branches = [entry(down, c), entry(down, step), entry(main, down)];
    let events = [
        mapped(100, &first, 0, None),
        mapped(100, &other, MOVED, None),
        sample(1, branches.to_vec(), Integrity::UNKNOWN),
    ];
    let mut found = events_as(here(), &events);
    let coverage = found.check_binary(&mut Module::open(&first).unwrap());
    assert_eq!((coverage.inside, coverage.functions, coverage.matching), (3, 1, Some(1)));
    let unseen = find(&found, "functions_without_samples").unwrap();
    // Two of them enter a function, `down` or `c`.
    assert_eq!((unseen.of, &unseen.parts[..]), (2, &[("c".to_owned(), 1)][..]));
    // The second file of this name has no function of the first.
    let mut found = events_as(here(), &events);
    let coverage = found.check_binary(&mut Module::open(&second).unwrap());
    assert_eq!((coverage.functions, coverage.matching), (1, Some(0)));
    assert_eq!(find(&found, "functions_differ").unwrap().parts, [("down".to_owned(), 2)]);
}
