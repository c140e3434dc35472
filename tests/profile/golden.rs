//! Recordings by other tools, compared entry by entry with three independent readers.

use std::path::Path;

use profile::brstack::Printed;
use profile::perf_data::ReadError;
use profile::{Item, Recording};

use crate::recorded::each_stack;
use crate::support::corpus::corpus;
use crate::support::skip::{skipped, tool};

/// Decompresses a file with the command `xz`; `None`, with a message, if it is missing.
fn unxz(path: &Path) -> Option<String> {
    match tool("xz").arg("-dc").arg(path).output() {
        Ok(out) => {
            assert!(out.status.success(), "xz: {}", String::from_utf8_lossy(&out.stderr));
            Some(String::from_utf8(out.stdout).unwrap())
        }
        Err(_) => {
            skipped("no xz here");
            None
        }
    }
}

/// The columns of the golden files, computed here from the bits without the library's accessors.
fn row(sample: usize, ip: u64, index: usize, from: u64, to: u64, word: u64) -> String {
    let bits = |at: u32, width: u32| word >> at & ((1 << width) - 1);
    format!(
        "{sample},{ip:#x},,{index},{from:#x},{to:#x},{},{},{},{},{},{},{},{},{}",
        bits(0, 1),
        bits(1, 1),
        bits(2, 1),
        bits(3, 1),
        bits(4, 16),
        bits(20, 4),
        bits(24, 2),
        bits(26, 4),
        bits(30, 3)
    )
}

#[test]
fn every_entry_of_every_file() {
    let Some(corpus) = corpus() else { return };
    let index = std::fs::read_to_string(corpus.join("golden-entries/INDEX.csv")).unwrap();
    let mut files = 0;
    for line in index.lines().skip(1) {
        let file = line.split(',').next().unwrap();
        let (folder, name) = (file.split('/').next().unwrap(), file.rsplit('/').next().unwrap());
        let golden = corpus.join(format!("golden-entries/{folder}.{name}.entries.csv.xz"));
        let Some(golden) = unxz(&golden) else { return };
        let mut expected = golden.lines().skip(1);
        let mut reader = Recording::open(&corpus.join(file)).unwrap();
        let mut sample = 0;
        each_stack(&mut reader, |stack| {
            let mut entry = 0;
            stack.entries.for_each(|branch| {
                let ip = stack.head.ip.unwrap();
                let flags = branch.flags.0;
                let found = row(sample, ip, entry, branch.from, branch.to, flags);
                assert_eq!(Some(found.as_str()), expected.next(), "{file}");
                entry += 1;
            });
            sample += 1;
        })
        .unwrap();
        assert_eq!(expected.next(), None, "{file}: entries are missing");
        assert_eq!(reader.notes(), Default::default(), "{file}");
        files += 1;
    }
    assert_eq!(files, 5);
}

/// The totals of the index and other tools.
#[test]
fn totals() {
    let Some(corpus) = corpus() else { return };
    let count = |file: &str| {
        let mut recording = Recording::open(&corpus.join(file)).unwrap();
        profile::HotTable::count(&mut recording, |_, _| {}).unwrap()
    };
    let table = count("autofdo/perfdata/test.lbr");
    assert_eq!((table.quality.samples, table.total), (9232, 147_712));
    assert_eq!((table.mispredicted, table.known), (Some(9319), 147_712));
    assert!(table.branches.iter().all(|branch| branch.cycles.is_none()));
    let table = count("autofdo/perfdata/propeller_sample_1.perfdata1");
    assert_eq!((table.quality.samples, table.quality.empty_stacks), (3740, 8));
    // 733 of its stacks have a forward branch twice at the top: dropped and reported.
    assert_eq!((table.quality.entries, table.quality.duplicated_newest), (119_424, 733));
    assert_eq!((table.total, table.mispredicted), (119_424 - 733, Some(5)));
    let table = count("perf-data-converter/perfdata/perf.data.branch-4.14");
    assert_eq!((table.quality.entries, table.quality.zero_entries), (416, 29));
    assert_eq!((table.total, table.mispredicted), (387, Some(21)));
}

/// perf 6.12 prints the same lines.
#[test]
fn lines_as_perf_prints_them() {
    let Some(corpus) = corpus() else { return };
    for name in ["test.lbr", "propeller_sample_1.perfdata1"] {
        let expected = corpus.join(format!("autofdo/expected/{name}.perf6.12.head200.txt"));
        let expected = std::fs::read_to_string(expected).unwrap();
        let mut reader = Recording::open(&corpus.join("autofdo/perfdata").join(name)).unwrap();
        let mut lines = Vec::new();
        each_stack(&mut reader, |stack| {
            let pid = stack.head.pid.unwrap();
            let mut line = format!("{pid:>7}  {:>16x}", stack.head.ip.unwrap());
            for branch in stack.entries.iter() {
                line += &format!(" {} ", Printed(branch));
            }
            lines.push(line);
        })
        .unwrap();
        let expected: Vec<&str> = expected.lines().collect();
        assert_eq!(expected.len(), 200);
        assert_eq!(lines[..200], expected, "{name}");
    }
}

/// Its header has an empty string.
#[test]
fn an_empty_string_is_unknown() {
    let Some(corpus) = corpus() else { return };
    let file = corpus.join("perf-data-converter/perfdata/perf.data.branch-4.14");
    let reader = Recording::open(&file).unwrap();
    assert_eq!(reader.info().unwrap().version, None);
    assert_eq!(reader.info().unwrap().osrelease.as_deref(), Some("4.14.18"));
}

#[test]
fn files_without_branches_get_a_sentence() {
    let Some(corpus) = corpus() else { return };
    for (name, events) in [
        ("perf.data.hybrid_topology", "cpu_core/cycles:ppp/"),
        ("perf.data.piped.target-3.8", "6 unnamed"),
        ("perf.data.singleprocess-3.8", "cycles"),
    ] {
        let path = corpus.join("perf-data-converter/nobranch").join(name);
        let error = Recording::open(&path).and_then(|mut reader| each_stack(&mut reader, |_| {}));
        let Err(ReadError::NoBranchStacks(named)) = error else { panic!("{name}: {error:?}") };
        assert!(named.starts_with(events), "{name}: {named}");
    }
}

/// Stacks and entries counted by other means: lines and words with `/` in them.
#[test]
fn texts_of_llvm_profgen() {
    let Some(corpus) = corpus() else { return };
    let folder = std::fs::read_dir(corpus.join("llvm-profgen/perfscript")).unwrap();
    let mut read = 0;
    for path in folder.map(|entry| entry.unwrap().path()) {
        let text = std::fs::read_to_string(&path).unwrap();
        let has_branches = |line: &&str| line.contains("/0x") && !line.starts_with("//");
        let stacks = text.lines().filter(has_branches).count();
        let entries: usize =
            text.lines().filter(has_branches).map(|line| line.matches("/0x").count()).sum();
        let mut recording = Recording::open(&path).unwrap();
        let mut found = (0, 0);
        let outcome = loop {
            match recording.next_item() {
                Ok(Some(Item::Stack(stack))) => {
                    found = (found.0 + 1, found.1 + stack.entries.len());
                }
                Ok(Some(Item::Event(_) | Item::Straight(_) | Item::LeftOut)) => {}
                Ok(Some(Item::Symbol(symbol))) => panic!("{symbol:?}"),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        assert_eq!(found, (stacks, entries), "{}", path.display());
        if stacks == 0 {
            assert!(matches!(outcome, Err(ReadError::NoBranches)), "{}", path.display());
        } else {
            outcome.unwrap();
            assert_eq!(recording.refused(), None, "{}", path.display());
        }
        read += 1;
    }
    assert_eq!(read, 17);
}

/// Addresses, symbols instead of them, and a dump.
#[test]
fn texts_of_other_cpus() {
    let Some(corpus) = corpus() else { return };
    let path = corpus.join("perf-text/amd-zen4-brstack-samples.txt");
    let mut recording = Recording::open(&path).unwrap();
    let (mut stacks, mut names) = (Vec::new(), Vec::new());
    while let Some(item) = recording.next_item().unwrap() {
        match item {
            Item::Stack(stack) => {
                stacks
                    .push(stack.entries.iter().map(|b| Printed(b).to_string()).collect::<Vec<_>>());
            }
            Item::Symbol(symbol) => names.extend(symbol.name.map(str::to_owned)),
            Item::Event(_) | Item::Straight(_) | Item::LeftOut => {}
        }
    }
    assert_eq!((stacks.len(), recording.refused()), (15, None));
    // Ten lines of one branch each, with the names of seven functions.
    let by_name = stacks.drain(1..11);
    assert!(by_name.into_iter().all(|stack| stack.len() == 1 && stack[0].starts_with("0x5a")));
    let functions = ["bench", "foo", "bar"].map(|name| format!("brstack_{name}"));
    let functions = functions
        .into_iter()
        .chain(["brstack", "check_match", "strcmp", "do_lookup_x"].map(str::to_owned));
    assert_eq!(names, functions.collect::<Vec<_>>());
    // A -D dump of 16 branches, the last five without speculation.
    let dumped = stacks.remove(0);
    assert_eq!(dumped.len(), 16);
    assert_eq!(dumped[0], "0x4b52fd/0x4f82c0/P/-/-/0//NON_SPEC_CORRECT_PATH");
    assert_eq!(dumped[6], "0x4e7e52/0x4e7e98/M/-/-/0//SPEC_CORRECT_PATH");
    assert_eq!(dumped[14], "0xffffffff8220137c/0x41e490/M/-/-/0//-");
    assert_eq!(stacks[0], ["0xffffc0fadaaebb2c/0xffffc0fadaaebb30/MN/-/-/7/COND/-"]);
    assert_eq!(stacks[1], ["0xffffc0fadaaea5ec/0xffffc0fadaaea358/P/-/-/5//-"]);
    assert_eq!(stacks[2], ["0xffffc0fadaae6490/0xffffc0fadaae6494/PN/-/-/11/COND/-"]);
    assert_eq!(stacks[3].len(), 8);
    assert_eq!(stacks[3][3], "0x4edadd/0x4edb00/M/-/-/4//-");
}
