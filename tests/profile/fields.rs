//! Text of any field set of `perf script`: what perf prints of a recording has
//! the branches of that recording, or is refused with the reason.

use std::io::Cursor;
use std::path::Path;

use profile::brstack::{LineError, Printed};
use profile::perf_data::ReadError;
use profile::{Item, Recording};

use crate::support::corpus::corpus;
use crate::support::skip::{skipped, tool};

/// What `-F` is asked for, and whether it has addresses of branches.
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

/// Sets without them: instructions alone.
const REFUSED: [&str; 2] = ["ip,brstackinsn", "+brstackinsn"];

/// A sample: its period, if it is said, and its branches.
type Sample = (Option<u64>, Vec<String>);

fn samples(mut recording: Recording) -> Result<Vec<Sample>, ReadError> {
    let mut found = Vec::new();
    while let Some(item) = recording.next_item()? {
        if let Item::Stack(stack) = item {
            let branches = stack.entries.iter().map(|b| Printed(b).to_string()).collect();
            found.push((stack.head.period, branches));
        }
    }
    assert_eq!(recording.refused(), None);
    // perf sorts them by time, a file has them as they came.
    found.sort();
    Ok(found)
}

fn of_text(text: &[u8]) -> Result<Vec<Sample>, ReadError> {
    samples(Recording::from_stream(Box::new(Cursor::new(text.to_vec())))?)
}

/// perf, and another that `LBR_PERF` names.
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
            let mut read = 0;
            for fields in BY_ADDRESS {
                // Of what was not recorded it prints nothing.
                let Some(text) = printed(&perf, &file, fields) else { continue };
                let found =
                    of_text(&text).unwrap_or_else(|e| panic!("{perf} {name} {fields}: {e}"));
                let says_period = found.iter().any(|(period, _)| period.is_some());
                let mut wanted = wanted.clone();
                if !says_period {
                    wanted.iter_mut().for_each(|(period, _)| *period = None);
                    wanted.sort();
                }
                assert!(found == wanted, "{perf} {name} {fields}: other samples");
                let asked = fields.contains("period") || fields.starts_with('+');
                assert_eq!(says_period, asked, "{perf} {name} {fields}");
                read += 1;
            }
            assert!(read >= 38, "{perf} {name}: {read}");
            for fields in REFUSED {
                let Some(text) = printed(&perf, &file, fields) else { continue };
                let error =
                    of_text(&text).err().unwrap_or_else(|| panic!("{perf} {name} {fields}"));
                let is_said = matches!(
                    error,
                    ReadError::Line { error: LineError::Instructions, .. } | ReadError::NoBranches
                );
                assert!(is_said, "{perf} {name} {fields}: {error}");
            }
        }
    }
}

fn branches(text: &str) -> Vec<Vec<String>> {
    of_text(text.as_bytes()).unwrap().into_iter().map(|(_, branches)| branches).collect()
}

/// perf gives a period ten columns, a task five or seven; what nobody can tell
/// is refused.
#[test]
fn a_number_alone_is_what_its_columns_say() {
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
    let error = head("31 7f06d6a21e00 ").unwrap_err();
    assert!(error.starts_with("line 1: ") && error.contains("perf script -F"), "{error}");
}

/// Counts in the letters of BOLT, and addresses behind build ids.
#[test]
fn texts_of_other_tools() {
    let counts = "B 4010c0 4010d0 5 2\nT 401000 401010 401020 3\nF 401010 401020 7\nE cycles\n";
    let stream = Box::new(Cursor::new(counts));
    let mut table =
        profile::HotTable::count(&mut Recording::from_stream(stream).unwrap(), |_, _| {}).unwrap();
    table.branches.sort_by_key(|row| row.from);
    let rows: Vec<_> =
        table.branches.iter().map(|row| (row.from, row.to, row.count, row.mispredicted)).collect();
    assert_eq!(rows, [(0x40_1000, 0x40_1010, 3, None), (0x40_10C0, 0x40_10D0, 5, Some(2))]);
    let ids =
        " aabb1122:400630 aabb1122:0x40062f/aabb1122:0x4005b0/P/-/-/9  0x7f00/0x8000/P/-/-/1\n";
    assert_eq!(
        branches(ids),
        [["0x40062f/0x4005b0/P/-/-/9//-".to_owned(), "0x7f00/0x8000/P/-/-/1//-".to_owned()]]
    );
}

/// The line before the frames of a call chain, and its branches behind them, are
/// one sample.
#[test]
fn a_call_chain_stands_inside_its_sample() {
    let text = "\
perf  6520 [000]  2488.437657:    1495736 cycles: 
\tffffffff81068283 [unknown] ([kernel.kallsyms])
\t           d8630 [unknown] (/lib64/libc-2.15.so)
 0x400010/0x400020/P/-/-/0  0x400030/0x400040/P/-/-/0 

perf  6521 [000]  2488.437658:          7 cycles: 
\tffffffff81068283 [unknown] ([kernel.kallsyms])

";
    let found = of_text(text.as_bytes()).unwrap();
    let said: Vec<_> = found.iter().map(|(period, b)| (period.unwrap(), b.len())).collect();
    assert_eq!(said, [(7, 0), (1_495_736, 2)]);
}
