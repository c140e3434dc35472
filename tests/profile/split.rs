//! Texts whose stacks are in several lines, and texts that are something else. Every expected stack
//! is written by hand.

use std::io::Cursor;

use profile::brstack::LineError;
use profile::names::Symbols;
use profile::perf_data::{Notes, ReadError};
use profile::{Item, Recording};

/// A loop of two branches, newest first: each starts where the next line's led.
const A: &str = "0x40101e/0x401000/P/-/-/7/COND/-";
const B: &str = "0x401008/0x401010/M/-/-/3/COND/-";
/// Code elsewhere.
const C: &str = "0x90202e/0x902000/P/-/-/2/COND/-";
const D: &str = "0x902008/0x902020/P/-/-/2/COND/-";

/// The source address of each branch, by stack; and the anomalies.
fn read(text: &str) -> Result<(Vec<Vec<u64>>, Notes), ReadError> {
    let mut recording = Recording::from_stream(Box::new(Cursor::new(text.to_owned())))?;
    let mut stacks = Vec::new();
    while let Some(item) = recording.next_item()? {
        if let Item::Stack(stack) = item {
            let weight = usize::try_from(stack.head.weight).unwrap();
            let of = stack.entries.iter().filter(|branch| !branch.is_empty());
            let of: Vec<u64> = of.map(|branch| branch.from).collect();
            stacks.extend(std::iter::repeat_n(of, weight));
        }
    }
    Ok((stacks, recording.notes()))
}

const OF_A: u64 = 0x40_101E;
const OF_B: u64 = 0x40_1008;
const OF_C: u64 = 0x90_202E;
const OF_D: u64 = 0x90_2008;

/// Two samples of two and three branches.
fn two() -> Vec<Vec<u64>> {
    vec![vec![OF_A, OF_B], vec![OF_C, OF_D, OF_A]]
}

#[test]
fn stacks_in_several_lines() {
    let perf = format!(" {A}  {B} \n {C}  {D}  {A} \n");
    let columns =
        |ip: &str| format!("prog 100/101 [001] 1.000000: 1 cycles:u: {ip} main (/bin/prog)");
    let (first, second) = (columns("401002"), columns("902001"));
    for text in [
        // perf script -F brstack | tr ' ' '\n'
        perf.replace(' ', "\n"),
        perf.replace(' ', "\r\n"),
        perf.replace("  ", "\n"),
        format!("{A}\n{B}\n\n{C}\n{D}\n{A}\n"),
        // After the sampled address.
        format!("          401002\n{A}\n{B}\n          902001\n{C}\n{D}\n{A}\n"),
        format!("          401002 \n\t{A}\n\t{B}\n\n          902001 \n\t{C}\n\t{D}\n\t{A}\n"),
        format!("          401002  {A}  {B} \n          902001  {C}  {D}  {A} \n")
            .replace(' ', "\n"),
        // After other columns, alone or with the first branch.
        format!("{first}\n{A}\n{B}\n{second}\n{C}\n{D}\n{A}\n"),
        format!("{first} \n  {A} \n  {B} \n\n{second} \n  {C} \n  {D} \n  {A} \n"),
        format!("{first}  {A}\n{B}\n{second}  {C}\n{D}\n{A}\n"),
        format!("12/13 40100a\n{A}\n{B}\n12/13 90200a\n{C}\n{D}\n{A}\n"),
        // Columns before the first stack only: each other line is a stack.
        format!("{first}\n {A}  {B} \n {C}  {D}  {A} \n"),
        // After frames, and below a heading.
        format!("{first}\n\t  401002 main\n{A}\n{B}\n{second}\n\t  902001 f\n{C}\n{D}\n{A}\n"),
        format!("branches\n          401002\n{A}\n{B}\n          902001\n{C}\n{D}\n{A}\n"),
    ] {
        let (stacks, _) = read(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(stacks, two(), "{text}");
    }
    // A number of stacks.
    let text = format!("3\n{first}\n{A}\n{B}\n{second}\n{C}\n{D}\n{A}\n");
    let [near, far] = two().try_into().unwrap();
    assert_eq!(read(&text).unwrap().0, [near.clone(), near.clone(), near, far]);
    // Not an address near those of the branches, although it would be one in hexadecimal.
    let low = format!(" {A}  {B} \n").replace("0x40", "0x10");
    let (stacks, _) = read(&format!("100100\n{low}1\n{low}")).unwrap();
    assert_eq!((stacks.len(), &stacks[0]), (100_101, &vec![0x10_101E, 0x10_1008]));
}

/// One empty line between branches separates nothing. A stack has up to 64 branches.
#[test]
fn one_stack_in_several_lines() {
    let expected = vec![vec![OF_A, OF_B, OF_A]];
    assert_eq!(read(&format!("{A}\n\n{B}\n\n{A}\n")).unwrap().0, expected);
    let lines = |count: usize| {
        let lines: String = [A, B].iter().cycle().take(count).map(|e| format!("{e}\n")).collect();
        lines + "next\n"
    };
    assert_eq!(read(&lines(64)).unwrap().0.len(), 1);
    // More than the first lines that are examined.
    let many = lines(64).repeat(40);
    assert_eq!(read(&many).unwrap().0.len(), 40);
    assert!(read(&(many + &lines(65))).is_err());
}

/// The oldest branch first, as a book prints it; the same text in the other order.
#[test]
fn either_order_is_read() {
    // 0x40 to 0x4e, from there to 0x60, from 0x68 to 0x70, from 0x79 to 0x20.
    let oldest_first =
        ["0x40104e/0x401060/P/-/-/1", "0x401068/0x401070/M/-/-/2", "0x401079/0x401020/P/-/-/3"];
    let expected = vec![vec![0x40_1079, 0x40_1068, 0x40_104E]];
    let mut lines = oldest_first.to_vec();
    let printed = ["\n", "\n  "].map(|indent| format!("...{indent}{}\n...\n", lines.join(indent)));
    lines.reverse();
    for text in printed.into_iter().chain([lines.join("\n")]) {
        let (stacks, notes) = read(&text).unwrap();
        assert_eq!((stacks, notes.guessed), (expected.clone(), true), "{text}");
    }
}

/// Lines of several branches have the newest first, even if more of the lines join in the other order:
/// code elsewhere leads to 0x401000.
#[test]
fn lines_of_several_branches_are_in_the_order_of_perf() {
    let elsewhere = "0x902036/0x401000/P/-/-/2";
    let columns = "prog 100/101 [001] 1.000000: 1 cycles:u: 401002 main (/bin/prog)";
    let text = format!("{columns}\n{A}  {B}\n{A}  {elsewhere}\n{A}  {B}\n");
    assert_eq!(read(&text).unwrap().0, [[OF_A, OF_B, OF_A, 0x90_2036, OF_A, OF_B]]);
}

/// Where stacks start is unknown: the text is refused, and the error tells how to print it.
#[test]
fn unknown_starts_are_refused() {
    let long: Vec<&str> = std::iter::repeat_n([A, B], 40).flatten().collect();
    let columns = "prog\n100/101\n1.000000:\n1\ncycles:u:\n401002\n";
    for text in [
        // More than any LBR holds.
        long.join("\n"),
        // Most branches join, but not all, and not at equal distances.
        format!("{A}\n{B}\n{A}\n{B}\n{A}\n{C}\n{D}\n{C}\n{D}\n"),
        // Two empty lines after each branch.
        format!("{A}\n\n\n{B}\n\n\n{A}\n"),
        // Words of columns.
        format!("prog\n401002\n{A}\n{B}\nprog\n902002\n{C}\n{D}\n"),
        format!("{columns}{A}\n{B}\n{columns}{C}\n{D}\n"),
        format!("{columns}{A}\n{B}\n{}{C}\n{D}\n", columns.replace("401002", "902002")),
        // Numbers of stacks, threads or anything else.
        format!("17\n{A}\n{B}\n4194305\n{A}\n{B}\n"),
        format!("401002\n{A}\n{B}\n401002\n{C}\n{D}\n"),
        format!("501000\n{A}\n{B}\n501000\n{A}\n{B}\n"),
        // Wrapped where two spaces and the next entry would not fit.
        format!(" {A}  {B}\n{}\n{B}  {A}\n", A.replace("/7/", "/170/")),
        format!(" {A}  {B}\n{A}  {B}\n{A}  {B}\n"),
        format!(" {A}  {B}\n{A}  {B}\n {C}  {D}\n{C}  {D}\n"),
        format!(" {A}  {B}\n{}  {B}\n{A}  {B}\n", A.replace("/COND/-", "")),
    ] {
        let error = read(&text).expect_err(&text).to_string();
        assert!(error.contains("perf script -F ip,brstack"), "{error}: {text}");
    }
    // A number of stacks, although empty lines separate them.
    let error = read(&format!("3\n{A}\n{B}\n\n{C}\n{D}\n{A}\n")).unwrap_err();
    assert!(matches!(error, ReadError::Line { number: 1, error: LineError::Split }), "{error}");
}

/// The output of perf for stacks of one branch.
#[test]
fn stacks_of_one_branch_stay_apart() {
    for text in [
        format!(" {A} \n {B} \n {A} \n"),
        format!("          401002  {A} \n          401012  {B} \n          401002  {A} \n"),
        format!(" {C} \n {A} \n {C} \n"),
        format!("{C}\n{A}\n{C}\n"),
        format!("{A}\n{B}\n{C}\n"),
    ] {
        let (stacks, notes) = read(&text).unwrap();
        assert!(stacks.len() == 3 && stacks.iter().all(|stack| stack.len() == 1), "{text}");
        assert!(!notes.guessed);
    }
    // The second of these lines would fit after the first: they are not wrapped.
    let text = format!(" {A}  {B}\n{}\n{B}  {A}\n", A.replace("/7/", "/17/"));
    assert_eq!(read(&text).unwrap().0, [vec![OF_A, OF_B], vec![OF_A], vec![OF_B, OF_A]]);
    // A thread's name is in the line of a sample.
    let text: String =
        [A, B].iter().cycle().take(9).map(|e| format!("{:>16}  {e} \n", "prog")).collect();
    assert_eq!(read(&text).unwrap().0.len(), 9);
    // Eight pairs that join are not chance.
    for (lines, stacks) in [(8, 8), (9, 1)] {
        let text: String = [A, B].iter().cycle().take(lines).map(|e| format!(" {e} \n")).collect();
        assert_eq!(read(&text).unwrap().0.len(), stacks, "{lines}");
    }
}

/// Stacks of 4, one after the other: they join within, and not between them.
#[test]
fn stacks_of_equal_length_are_read() {
    let (near, far) = ([A, B, A, B].join("\n"), [C, D, C, D].join("\n"));
    let text = [near.clone(), far, near].join("\n");
    let (near, far) = (vec![OF_A, OF_B, OF_A, OF_B], vec![OF_C, OF_D, OF_C, OF_D]);
    // Also below a heading.
    for text in [format!("Three stacks\n{text}"), text] {
        let (stacks, notes) = read(&text).unwrap();
        assert_eq!(stacks, [near.clone(), far.clone(), near.clone()]);
        assert!(notes.guessed);
    }
}

/// A text of which most is something else: 12 lines of prose, 1 sample.
#[test]
fn prose_is_refused() {
    let words = "Some words about branches.\n".repeat(12);
    let text = format!("# Chapter\n\n{words}```\n {A}  {B} \n```\n");
    let error = read(&text).unwrap_err();
    assert!(matches!(error, ReadError::Prose { lines: 14, of: 15 }), "{error}");
    // Eight lines of it, and more than half of all.
    for (lines, samples, is_refused) in [(8, 7, true), (8, 8, false), (7, 6, false)] {
        let words = "Some words about branches.\n".repeat(lines);
        let text = words + &format!(" {A}  {B} \n").repeat(samples);
        assert_eq!(read(&text).is_err(), is_refused, "{lines} {samples}");
    }
    // A reading that was stopped there has not seen the samples.
    let words = "Some words about branches.\n".repeat(12);
    let text = format!("{words} {A}  {B} \n");
    let mut recording = Recording::from_stream(Box::new(Cursor::new(text))).unwrap();
    recording.stop_at(words.len() as u64);
    assert!(recording.next_item().unwrap().is_none());
    // Other events of perf are not prose.
    let event = "prog 100 [000] 1.000000: sched:sched_switch: prev_comm=prog\n".repeat(12);
    assert_eq!(read(&format!("{event} {A}  {B} \n")).unwrap().0, [[OF_A, OF_B]]);
}

/// A dumped stack that announces 4 branches and has 2; and one whose third branch is missing.
#[test]
fn announced_branches_are_counted() {
    let head = "0 5 0x10 [0x58]: PERF_RECORD_SAMPLE(IP, 0x2): 1/2: 0x5 period: 1 addr: 0\n";
    let line = |at: usize, from: u64| {
        format!(".....  {at}: {from:016x} -> {:016x} 0 cycles  P   0x0\n", from - 8)
    };
    let dump = |count: usize| {
        format!("{head}... branch stack: nr:{count}\n{}{}", line(0, 0x40), line(1, 0x60))
    };
    let (stacks, notes) = read(&dump(2)).unwrap();
    assert_eq!((stacks, notes.short), (vec![vec![0x40, 0x60]], 0));
    let (stacks, notes) = read(&(dump(2) + &dump(4))).unwrap();
    assert_eq!(stacks.len(), 2);
    assert_eq!((notes.short, notes.first_short), (1, Some(6)));
    let (stacks, notes) = read(&(dump(4) + &line(3, 0x80))).unwrap();
    assert_eq!((stacks, notes.short), (vec![vec![0x40, 0x60]], 1));
}

/// No branch starts where the previous one led.
#[test]
fn stacks_that_join_nowhere_are_noted() {
    let apart = " 0x40101e/0x701000/P/-/-/7  0x501008/0x601010/P/-/-/3 \n";
    assert_eq!(read(&apart.repeat(9)).unwrap().1.unjoined, 9);
    // 1 MiB is longer than any block.
    assert_eq!(read(&apart.replace("0x601010", "0x30101e").repeat(9)).unwrap().1.unjoined, 9);
    // The older target is unknown.
    assert_eq!(read(&apart.replace("0x601010", "0x0").repeat(9)).unwrap().1.unjoined, 0);
    assert_eq!(read(&format!("{} {A}  {B} \n", apart.repeat(9))).unwrap().1.unjoined, 0);
}

/// The symbol of each branch's source, by stack.
fn symbols(text: &str) -> Vec<Vec<String>> {
    let mut recording = Recording::from_stream(Box::new(Cursor::new(text.to_owned()))).unwrap();
    let (mut stacks, mut symbols) = (Vec::new(), Symbols::default());
    while let Some(item) = recording.next_item().unwrap() {
        match item {
            Item::Symbol(symbol) => symbols.add(symbol),
            Item::Stack(stack) => {
                let of = stack.entries.iter().filter(|branch| !branch.is_empty());
                let name = |from| symbols.find(from).and_then(|(symbol, _)| symbol.name);
                stacks.push(of.map(|branch| name(branch.from).unwrap_or("?").to_owned()).collect());
            }
            _ => {}
        }
    }
    stacks
}

/// `-F sym` before the branches.
#[test]
fn a_symbol_before_the_stack_is_not_of_its_first_branch() {
    let text = "main main+0x1e/work+0x0/P/-/-/7  work+0x8/main+0x10/P/-/-/3 \n";
    assert_eq!(symbols(text), [["main", "work"]]);
    assert_eq!(symbols(&text.replace("main main", "work+0x4 main")), [["main", "work"]]);
    assert_eq!(symbols(&text.replace("main main", "not_called main")), [["main", "work"]]);
    // Names of C++ have spaces.
    let text = "operator new+0x1e/work+0x0/P/-/-/7  work+0x8/operator new+0x10/P/-/-/3 \n";
    assert_eq!(symbols(text), [["operator new", "work"]]);
    assert_eq!(symbols(&format!("work {text}")), [["operator new", "work"]]);
}

/// Symbols, one branch a line.
#[test]
fn symbols_in_several_lines() {
    let text = "main+0x1e/main+0x0/P/-/-/7\nmain+0x8/main+0x10/P/-/-/3\n";
    assert_eq!(symbols(&format!("{text}\n{text}")), [["main", "main"], ["main", "main"]]);
    // After an event, each is a sample.
    assert_eq!(
        symbols(
            &text.replace("main+0x1e", "cycles: main+0x1e").replace("main+0x8", "cycles: main+0x8")
        ),
        [["main"], ["main"]]
    );
}

/// A partly filled LBR: perf prints its empty records like unknown places. The oldest branch has no
/// cycles either.
#[test]
fn empty_records_among_symbols() {
    let empty = "[unknown]/[unknown]/P/-/-/0";
    let unknown = "[unknown]/[unknown]/P/-/-/4";
    assert_eq!(
        symbols(&format!(" a+0x1/a+0x0/P/-/-/0  {empty}  {empty} \n a+0x1/a+0x0/P/-/-/3 \n")),
        [vec!["a", "?", "?"], vec!["a"]]
    );
    assert_eq!(
        symbols(&format!(" a+0x1/a+0x0/P/-/-/3  a+0x1/a+0x0/P/-/-/0  {empty}  {empty} \n")),
        [["a", "a"]]
    );
    assert_eq!(
        symbols(&format!(" a+0x1/a+0x0/P/-/-/3  {unknown}  {empty}  {empty} \n")),
        [["a", "?", "?"]]
    );
    // An entry with one cycle, or with a known target, is not empty.
    assert_eq!(symbols(&format!(" a+0x1/a+0x0/P/-/-/1  {empty}  {empty} \n")), [["a", "?"]]);
    let to_a = "[unknown]/a+0x0/P/-/-/0";
    assert_eq!(
        symbols(&format!(" a+0x1/a+0x0/P/-/-/3  a+0x1/a+0x0/P/-/-/0  {to_a} \n")),
        [["a", "a", "?"]]
    );
    // Without a prediction among branches that have one, no branch is meant.
    let none = "[unknown]/[unknown]/-/-/-/0";
    assert_eq!(symbols(&format!(" a+0x1/a+0x0/P/-/-/3  {none}  {none} \n")), [["a"]]);
    assert_eq!(symbols(&format!(" a+0x1/a+0x0/M/-/-/0  {none} \n")), [["a"]]);
    assert_eq!(symbols(&format!(" a+0x1/a+0x0/-/-/-/0  {none} \n")), [["a", "?"]]);
}
