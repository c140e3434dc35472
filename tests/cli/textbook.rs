//! The figures of the text book (Bakhvalov, Performance Analysis and Tuning on
//! Modern CPUs, the section on branch records), drawn from recordings.
//!
//! The history comes from a run on the software LBR. Predictions, cycles and the shares of the
//! tables come from machines that are not available here: they are written into recordings entry by
//! entry, with the book's numbers.

use std::path::Path;
use std::process::Command;

use lbr_msr::BranchFilter;
use lbr_msr::record::{
    BranchEntry, BranchStack, BranchType, Event, Head, Integrity, Label, Sample, Sink,
    SourceKnowledge,
};
use profile::note::Source;
use profile::perf_data::{Meta, Rate, Writer};
use serde_json::Value;

use crate::support::lbr::{PROGRAM, alone, done, rows, traced};
use crate::support::mapping::mapping;
use crate::support::programs::{BARE, Program, build};
use crate::support::skip::skipped;

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// `4eda10: mov edi,DWORD PTR [rbx]` to `4eda2d: jne 4eda10`, and "what we
/// expect to see at the moment we executed the CALL": JNS taken in one round
/// and absent from the next.
#[test]
fn branch_history_of_the_loop() {
    let flags = [BARE, &["-Wl,-Ttext=0x4ed000", "-DELEMENTS=3,9,-4"]].concat();
    let Some(program) = build("textbook.S", &flags) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data").to_str().unwrap().to_owned();
    // The jump to the loop, four branches of each round, the call of the third.
    let record = ["record", "--backend", "soft", "--source", "ptrace", "-c", "10", "-o", &file];
    if traced(&[&record[..], &["--", program.name()]].concat()).is_none() {
        return;
    }
    let printed = done(&["script", "-i", &file]);
    let newest: Vec<(&str, &str)> = words(printed.lines().next().unwrap())
        .into_iter()
        .map(|entry| {
            let mut fields = entry.split('/');
            (fields.next().unwrap(), fields.next().unwrap())
        })
        .collect();
    // Its list from the bottom up. The book's callee returns from 4b01cd, which is outside of the
    // function that it calls; ours returns from inside.
    let wanted = [
        ("0x4eda1e", "0x4edb26"), // (3) latest branch
        ("0x4eda2d", "0x4eda10"), // (1) next iteration
        ("0x4edb29", "0x4eda23"), // (4) return from a function
        ("0x4eda1e", "0x4edb26"), // (3) call a function
        ("0x4eda14", "0x4eda1e"), // (2) jns taken
        ("0x4eda2d", "0x4eda10"), // (1) next iteration
    ];
    assert_eq!(newest[..6], wanted);
}

fn figures() -> Option<Program> {
    build("figures.S", &[BARE, &["-Wl,-Ttext=0x400600"]].concat())
}

/// Stacks as a recording of the program, each newest first.
fn write(
    path: &Path,
    program: &Program,
    filter: &str,
    label: Label,
    stacks: impl Iterator<Item = Vec<BranchEntry>>,
) {
    let meta = Meta {
        hostname: None,
        osrelease: None,
        version: "written by hand".to_owned(),
        arch: "x86_64".to_owned(),
        nrcpus: None,
        cpudesc: None,
        cpuid: None,
        cmdline: vec![],
        event: "cycles".to_owned(),
        filter: filter.parse::<BranchFilter>().unwrap(),
        rate: Rate::Period(32),
        knowledge: SourceKnowledge::HARDWARE,
        source: Source::Hardware,
        types: true,
        arguments: false,
        compression: None,
    };
    let mut writer = Writer::new(std::fs::File::create(path).unwrap(), meta).unwrap();
    let pgoff = text_offset(program) & !0xFFF;
    writer.event(&mapping(100, 0x40_0000, 0x1000, pgoff, program.name())).unwrap();
    let integrity =
        Integrity { head: Head::Unknown, cut: true, label, truncated: false, underflow: false };
    for (time, entries) in (2..).zip(stacks) {
        let sample = Sample {
            arguments: None,
            time,
            pid: 100,
            tid: 100,
            cpu: 0,
            ip: entries.first().map_or(0, |entry| entry.to),
            period: 32,
            stack: BranchStack { entries, integrity, moves: Vec::new() },
        };
        writer.event(&Event::Sample(sample)).unwrap();
    }
    writer.finish_file().unwrap();
}

/// The file has the byte of 0x400600 there.
fn text_offset(program: &Program) -> u64 {
    use object::{Object, ObjectSection};
    let bytes = std::fs::read(program.name()).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    file.section_by_name(".text").unwrap().file_range().unwrap().0
}

fn edge(program: &Program, from: &str, to: &str) -> BranchEntry {
    BranchEntry { from: program.at(from), to: program.at(to), ..BranchEntry::default() }
}

/// Each entry as often as its count, well mixed, 32 per sample.
fn mixed(of: &[(BranchEntry, usize)]) -> impl Iterator<Item = Vec<BranchEntry>> {
    let all: Vec<BranchEntry> =
        of.iter().flat_map(|(entry, n)| std::iter::repeat_n(*entry, *n)).collect();
    // A prime that divides none of the sums.
    let order = |i: usize| all[i * 400_009 % all.len()];
    let mixed: Vec<BranchEntry> = (0..all.len()).map(order).collect();
    assert!(mixed.len().is_multiple_of(32));
    let mut stacks: Vec<Vec<BranchEntry>> = mixed.chunks(32).map(<[BranchEntry]>::to_vec).collect();
    for stack in &mut stacks {
        // Two equal newest entries with a forward branch would count as a CPU defect.
        let ends = |entry: &BranchEntry| (entry.from, entry.to);
        let other = (1..32).find(|&at| ends(&stack[at]) != ends(&stack[0])).unwrap();
        stack.swap(1, other);
    }
    stacks.into_iter()
}

/// "51.65%  11074 bar bar", of 670 samples with 32 entries.
#[test]
fn hot_branches() {
    let Some(program) = figures() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let entries = [
        (edge(&program, "bar_j", "bar_t"), 11_074),
        (edge(&program, "foo_b", "bar"), 4_782),
        (edge(&program, "foo_z", "zoo"), 4_693),
        (edge(&program, "main_c", "foo"), 863),
        // The book truncates its table here.
        (edge(&program, "bar_r", "foo_r"), 28),
    ];
    write(&file, &program, "any,u", Label::Stream, mixed(&entries));
    let printed = done(&["report", "-i", file.to_str().unwrap()]);
    assert!(printed.contains("\n21,440 branches, 670 samples;"), "{printed}");
    let table: Vec<Vec<&str>> =
        printed.lines().skip_while(|line| !line.starts_with("rank")).skip(1).map(words).collect();
    let wanted = [
        // Within one function the target is its offset.
        (["1", "11,074", "51.65%"], "COND", "bar", ""),
        (["2", "4,782", "22.30%"], "CALL", "foo", "bar"),
        (["3", "4,693", "21.89%"], "CALL", "foo", "zoo"),
        (["4", "863", "4.03%"], "CALL", "main", "foo"),
    ];
    for (row, (numbers, kind, from, to)) in table.iter().zip(wanted) {
        assert_eq!(row[..3], numbers);
        let end = |at: usize| row[at].split(['+', ' ']).next().unwrap();
        assert_eq!((row[5], end(6), row[7], end(8)), (kind, from, "->", to), "{row:?}");
    }
}

/// "LzmaDec N 303391, Y 41665": 88% are predicted. "It could mean that there
/// are no LBR entries for that branch being mispredicted, but it doesn't
/// necessarily mean that the prediction rate equals to 100%."
#[test]
fn mispredictions() {
    let Some(program) = figures() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let predicted = |from, to, mispredicted| BranchEntry {
        mispredicted: Some(mispredicted),
        branch_type: Some(BranchType::COND),
        ..edge(&program, from, to)
    };
    let (dec, find, enc, rest) = (303_391, 146_900, 44_074, 121_858);
    let missed = 41_665;
    assert_eq!(dec + missed + find + enc + rest, 657_888);
    let entries = [
        (predicted("dec_j", "dec_t", false), dec),
        (predicted("find_j", "find_t", false), find),
        (predicted("enc_j", "enc_t", false), enc),
        (predicted("dec_j", "dec_t", true), missed),
        (predicted("bar_j", "bar_t", false), rest),
    ];
    write(&file, &program, "any,u", Label::Stream, mixed(&entries));
    let file = file.to_str().unwrap();
    let printed = done(&["report", "--view", "mispredict", "-i", file]);
    let table: Vec<Vec<&str>> =
        printed.lines().skip_while(|line| !line.starts_with("rank")).skip(1).map(words).collect();
    // 41,665 of 345,056.
    assert_eq!(table[0][..5], ["1", "41,665", "345,056", "345,056", "12.07%"]);
    assert!(table[0].last().unwrap().starts_with("LzmaDec+"), "{printed}");
    let find = table.iter().find(|row| row.last().unwrap().starts_with("LzmaFind+")).unwrap();
    assert_eq!(find[1..7], ["0", "146,900", "146,900", "0%", "up", "to"]);
    // The same numbers are next to the instruction.
    let printed = done(&["annotate", "LzmaDec", "-i", file]);
    let line = printed.lines().find(|line| line.contains("  je ")).unwrap();
    assert!(words(line).contains(&"12.07%"), "{line}");
    let printed = done(&["annotate", "LzmaFind", "-i", file]);
    let line = printed.lines().find(|line| line.contains("  je ")).unwrap();
    assert!(words(line).iter().any(|word| word.starts_with("<0.0")), "{line}");
}

/// Cycles of one basic block, 400618 to 400628, with the samples of the book's table; the entry
/// before it is from its example, 40060a -> 400618.
#[test]
fn latency_of_a_block() {
    let Some(program) = figures() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let timed = |from, to, cycles| BranchEntry {
        cycles: Some(cycles),
        mispredicted: Some(false),
        ..edge(&program, from, to)
    };
    // Cycles, samples, the book's rate.
    let table: [(u32, usize, &str); 7] = [
        (1, 10_484, "17.0"),
        (2, 16_728, "27.1"),
        (3, 4_563, "7.4"),
        (4, 15_815, "25.6"),
        (6, 4_770, "7.7"),
        (24, 3_804, "6.2"),
        (32, 5_567, "9.0"),
    ];
    let stack = |cycles| vec![timed("block_j", "behind", cycles), timed("before", "block", 10)];
    let stacks = table.iter().flat_map(|(cycles, n, _)| std::iter::repeat_n(stack(*cycles), *n));
    write(&file, &program, "any,u", Label::Stream, stacks);
    let file = file.to_str().unwrap();
    let block = ["report", "--view", "blocks", "--block", "0x400618..0x400628", "-i", file];
    let printed = done(&block);
    let lines: Vec<&str> = printed.lines().collect();
    let head = lines.iter().position(|line| line.trim_start().starts_with("Cycles")).unwrap();
    assert_eq!(lines[head].trim(), "Cycles  Number of samples  Occurrence rate");
    assert_eq!(lines.len() - head - 1, table.len());
    for (line, (cycles, samples, rate)) in lines[head + 1..].iter().zip(table) {
        let row = words(line);
        let grouped = row[1].replace(',', "");
        assert_eq!((row[0], grouped.as_str()), (&*cycles.to_string(), &*samples.to_string()));
        // The book has one decimal.
        let printed: f64 = row[2].trim_end_matches('%').parse().unwrap();
        assert_eq!(format!("{printed:.1}"), rate);
    }

    // Next to the code: of 61,731 runs the 30,866th had 3 cycles and the 55,558th 24; 4
    // instructions divided by a mean of 418,949 / 61,731.
    let printed = done(&["annotate", "block", "-i", file]);
    let lines: Vec<&str> = printed.lines().collect();
    let jump = words(lines.iter().find(|line| line.contains("400628  jne")).unwrap());
    assert_eq!(
        (jump[0], &jump[jump.len() - 7..jump.len() - 4]),
        ("61,731", &["3", "24", "0.59"][..])
    );
    assert!(lines.iter().any(|line| line.contains("40061d  add    rdx,0x1")), "{printed}");
    let rows = rows(&["annotate", "block", "--json", "-i", file]);
    let block = rows.iter().find(|row| row["kind"] == "block").unwrap();
    let numbers = ["instructions", "count", "n", "p50", "p90", "saturated"];
    assert_eq!(numbers.map(|key| block[key].as_u64().unwrap()), [4, 61_731, 61_731, 3, 24, 0]);
    let (mean, ipc) = (418_949.0 / 61_731.0, 4.0 * 61_731.0 / 418_949.0);
    assert!((block["mean"].as_f64().unwrap() - mean).abs() < 1e-9);
    assert!((block["ipc"].as_f64().unwrap() - ipc).abs() < 1e-9);
    assert_eq!(block["modelled"], false);
}

/// `main -> foo -> bar` 90.86%, `main -> zoo -> bar` 9.08%, of 65,447 call
/// stacks.
#[test]
fn call_graph() {
    let Some(program) = figures() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let call = |from, to| edge(&program, from, to);
    let started = call("start_c", "main");
    let (foo, zoo, others) = (59_465, 5_943, 39);
    assert_eq!(foo + zoo + others, 65_447);
    let stacks = [
        (vec![call("foo_b", "bar"), call("main_c", "foo"), started], foo),
        // Here main calls zoo; in the table of hot branches foo does.
        (vec![call("zoo_b", "bar"), call("main_c", "zoo"), started], zoo),
        (vec![call("start_c", "idle")], others),
    ];
    let stacks = stacks.into_iter().flat_map(|(stack, n)| std::iter::repeat_n(stack, n));
    write(&file, &program, "stack,u", Label::Snapshot, stacks);
    let rows = rows(&["report", "--view", "callgraph", "--json", "-i", file.to_str().unwrap()]);
    let share = |function: &str, key: &str| {
        let row = rows.iter().find(|row| row["kind"] == "function" && row["function"] == function);
        let share = row.unwrap_or_else(|| panic!("{function}"))[key].as_f64().unwrap();
        format!("{:.2}", share * 100.0)
    };
    assert_eq!(
        (share("main", "total_share"), share("bar", "self_share")),
        ("99.94".into(), "99.94".into())
    );
    assert_eq!(
        (share("foo", "total_share"), share("zoo", "total_share")),
        ("90.86".into(), "9.08".into())
    );
    for (through, wanted) in [("foo", foo), ("zoo", zoo)] {
        let context = rows.iter().find(|row| {
            let path = row["path"].as_array().into_iter().flatten().filter_map(Value::as_str);
            row["kind"] == "context"
                && path.collect::<Vec<_>>().ends_with(&["main", through, "bar"])
        });
        assert_eq!(context.unwrap()["self"], wanted);
    }
}

/// Names longer than the space in a row lose their middle on a terminal, and nowhere else.
#[test]
fn long_names_on_a_terminal() {
    let long = format!("std_{}_end", "template_".repeat(30));
    let rename = format!("-Dbar={long}");
    let flags = [BARE, &["-Wl,-Ttext=0x400600", &rename]].concat();
    let Some(program) = build("figures.S", &flags) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let entries = [(edge(&program, "bar_j", "bar_t"), 30), (edge(&program, "main_c", "foo"), 2)];
    write(&file, &program, "any,u", Label::Stream, mixed(&entries));
    let file = file.to_str().unwrap();
    assert!(done(&["report", "-i", file]).contains(&format!("{long}+0x1 -> +0x")));

    let command = format!("stty rows 40 cols 120; {} report -i {file}", PROGRAM);
    let out = alone(Command::new("script"))
        .args(["-qec", &command, "/dev/null"])
        .env("NO_COLOR", "1")
        .output();
    let Ok(out) = out else {
        skipped("no script(1) to make a terminal");
        return;
    };
    let printed = String::from_utf8(out.stdout).unwrap();
    let row = printed.lines().find(|line| line.contains("std_")).unwrap();
    assert!((80..=120).contains(&row.chars().count()), "{row}");
    assert!(row.contains("std_template_te") && row.trim_end().contains("_end+0x1 -> +0x"), "{row}");
    assert!(printed.contains("main+0x1 -> foo+0x0"), "{printed}");
}

/// The page has the call graph too, from the same stacks.
#[test]
fn call_graph_on_the_page() {
    let Some(program) = figures() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let stack = |through: &[(&str, &str)]| -> Vec<BranchEntry> {
        through.iter().map(|(from, to)| edge(&program, from, to)).collect()
    };
    let foo = stack(&[("foo_b", "bar"), ("main_c", "foo"), ("start_c", "main")]);
    let idle = stack(&[("start_c", "idle")]);
    let stacks = std::iter::repeat_n(foo, 3).chain(std::iter::repeat_n(idle, 1));
    write(&file, &program, "stack,u", Label::Snapshot, stacks);
    let html = folder.path().join("page.html");
    done(&["report", "--html", html.to_str().unwrap(), "-i", file.to_str().unwrap()]);
    let page = std::fs::read_to_string(html).unwrap();
    let from = page.find("id=\"callgraph\"").unwrap();
    let section = &page[from..from + page[from..].find("</section>").unwrap()];
    assert!(
        section.contains("Call stacks: self and total count stacks; shares are of cycles."),
        "{section}"
    );
    // Of four stacks three are in bar, below foo.
    let cells = |name: &str| {
        let row = section.split("<tr>").find(|row| row.contains(&format!(">{name}</td>")));
        let row = row.unwrap_or_else(|| panic!("{name}: {section}")).split("</td>");
        row.map(|cell| cell.rsplit('>').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(cells("foo")[..5], ["3", "75.00%", "0", "0%", "-"]);
    assert_eq!(cells("bar")[..5], ["3", "75.00%", "3", "75.00%", "-"]);
    assert_eq!(cells("idle")[..4], ["1", "25.00%", "1", "25.00%"]);
    // In the picture, bar is below foo, below main and _start.
    let bar = page.split("<a class=\"frame ").find(|frame| frame.contains("title=\"bar\n"));
    assert!(bar.is_some_and(|bar| bar.contains("aria-level=\"5\"") && bar.contains("--w:0.75000")));
}
