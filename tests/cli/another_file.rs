//! Another file at the recorded path: its names are never used, with a note in the report.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lbr_msr::insn::{Insn, decode};
use lbr_msr::record::{BranchEntry, BranchStack, Event, Head, Integrity, Label, Sample, Sink};
use object::{Object, ObjectSection, ObjectSymbol};
use profile::note::Source;
use profile::perf_data::{Meta, Writer};
use serde_json::Value;

use crate::drawn::meta;
use crate::support::lbr::{json_lines, lbr, stderr, stdout};
use crate::support::mapping::mapping;
use crate::support::programs::build;

/// The mapped address of the library.
const BASE: u64 = 0x7f31_4000_0000;

/// Builds the library; `None`, with a message, without a compiler.
fn library(out: &Path, flags: &[&str]) -> Option<()> {
    let shared = ["-O1", "-shared", "-fPIC", "-fcf-protection=none", "-Wl,-z,noseparate-code"];
    let built = build("library.c", &[&shared, flags].concat())?;
    std::fs::copy(&built.path, out).map(drop).ok()
}

/// The direct branches of a library's functions, as in `objdump`: source, target, and function.
/// File offsets equal addresses.
fn branches(library: &Path) -> Vec<(u64, u64, String)> {
    let bytes = std::fs::read(library).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let text = file.section_by_name(".text").unwrap();
    assert_eq!(text.file_range().unwrap().0, text.address());
    let code = text.data().unwrap();
    let mut found = Vec::new();
    for symbol in file.symbols() {
        let name = symbol.name().unwrap();
        if !["first", "collatz", "digits", "spread", "work"].contains(&name) {
            continue;
        }
        let mut ip = symbol.address();
        while ip < symbol.address() + symbol.size() {
            let here = &code[(ip - text.address()) as usize..];
            ip += match decode(here, ip) {
                Insn::Branch(branch) => {
                    found.extend(branch.target.map(|to| (ip, to, name.to_owned())));
                    u64::from(branch.len)
                }
                Insn::Straight { len } => u64::from(len),
                Insn::Invalid => panic!("{name}: no instruction at {ip:#x}"),
            };
        }
    }
    assert!(found.len() >= 12, "{found:x?}");
    found
}

/// Text of a recording with each branch in its own stack.
fn text(path: &Path, branches: &[(u64, u64, String)]) -> String {
    let map = "PERF_RECORD_MMAP2 7/7: [0x7f3140000000(0x10000) @ 0 08:01 1 0]: r-xp";
    let mut text = format!("{map} {}\n", path.display());
    for (from, to, _) in branches {
        writeln!(text, "7/7 1.000000: {:#x}/{:#x}/P/-/-/7", BASE + from, BASE + to).unwrap();
    }
    text
}

/// The symbols of all FROMs in a view.
fn names(input: &Path, args: &[&str]) -> BTreeSet<Option<String>> {
    let all = [&["report", "--json", "-i", input.to_str().unwrap()], args].concat();
    let rows = json_lines(&lbr(&all)).into_iter().filter(|row| row.get("from_symbol").is_some());
    rows.map(|row| row["from_symbol"].as_str().map(str::to_owned)).collect()
}

fn said(input: &Path, args: &[&str]) -> String {
    stderr(&lbr(&[&["report", "-i", input.to_str().unwrap()], args].concat()))
}

/// The verdict, and the finding about other files.
fn judged(input: &Path, args: &[&str]) -> (Value, Option<Value>) {
    let all = [&["lint", "--json", "-i", input.to_str().unwrap()], args].concat();
    let rows = json_lines(&lbr(&all));
    let find = |key: &str, value: &str| rows.iter().find(|row| row[key] == value).cloned();
    (find("view", "verdict").unwrap()["verdict"].clone(), find("id", "other_file"))
}

struct Builds {
    _dir: tempfile::TempDir,
    dir: PathBuf,
    /// The recorded file, at its path.
    first: PathBuf,
    second: PathBuf,
    branches: Vec<(u64, u64, String)>,
}

impl Builds {
    fn new(flags: &[&str]) -> Option<Builds> {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let (first, second) = (dir.join("libfirst.so"), dir.join("libsecond.so"));
        library(&first, flags)?;
        library(&second, &[flags, &["-DSECOND"]].concat())?;
        let branches = branches(&first);
        Some(Builds { _dir: temp, dir, first, second, branches })
    }

    fn functions(&self) -> BTreeSet<Option<String>> {
        self.branches.iter().map(|(_, _, name)| Some(name.clone())).collect()
    }
}

/// Another build at the recorded path, neither with a build ID: the bytes tell.
#[test]
fn code_bytes_that_contradict_the_recording_are_rejected() {
    let Some(builds) = Builds::new(&["-Wl,--build-id=none"]) else { return };
    let input = builds.dir.join("branches.txt");
    let none = BTreeSet::from([None]);
    let views: [&[&str]; 2] = [&[], &["--view", "mispredict"]];

    std::fs::write(&input, text(&builds.first, &builds.branches)).unwrap();
    for view in views {
        assert_eq!(names(&input, view), builds.functions(), "{view:?}");
    }
    assert_eq!(said(&input, &[]), "");
    assert_eq!(judged(&input, &[]).1, None);

    std::fs::write(&input, text(&builds.second, &builds.branches)).unwrap();
    for view in views {
        assert_eq!(names(&input, view), none, "{view:?}");
    }
    let why = said(&input, &[]);
    let path = builds.second.display().to_string();
    let all = builds.branches.len();
    assert!(why.contains(&path) && why.contains("is not the file that was recorded"), "{why}");
    assert!(why.contains("come from no branch instruction"), "{why}");
    assert!(why.contains("--symfs DIR"), "{why}");
    let (verdict, finding) = judged(&input, &[]);
    let finding = finding.unwrap();
    assert_ne!(verdict, "sound");
    assert_eq!((&finding["count"], &finding["of"]), (&all.into(), &all.into()));
    assert_eq!(finding["parts"][path], all);

    // The right one is elsewhere, under the same name.
    let elsewhere = builds.dir.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::copy(&builds.first, elsewhere.join("libsecond.so")).unwrap();
    for option in ["--symfs", "--debug-dir"] {
        let args = [option, elsewhere.to_str().unwrap()];
        assert_eq!(names(&input, &args), builds.functions(), "{option}");
        assert_eq!(said(&input, &args), "", "{option}");
        assert_eq!(judged(&input, &args).1, None, "{option}");
    }
}

/// Interrupts occur at any instruction: single branches are not evidence against a file, however
/// frequent.
#[test]
fn single_branches_are_not_evidence_against_a_file() {
    let Some(builds) = Builds::new(&["-Wl,--build-id=none"]) else { return };
    let input = builds.dir.join("branches.txt");
    let mut branches = builds.branches.clone();
    // Twenty instructions interrupted by a signal, whose handler is elsewhere.
    let handler = builds.branches[3].1 + 1;
    let struck = builds.branches.iter().flat_map(|(from, ..)| [from + 1, from + 2]).take(20);
    branches.extend(struck.map(|from| (from, handler, String::new())));
    std::fs::write(&input, text(&builds.first, &branches)).unwrap();
    assert!(names(&input, &[]).is_superset(&builds.functions()));
    assert_eq!(said(&input, &[]), "");
}

/// With its build ID, the file is found in perf's cache, and in a folder of debug files; another
/// file at its path is not used.
#[test]
fn a_program_by_its_build_id() {
    let id = "0123456789abcdef0123456789abcdef01234567";
    let Some(builds) = Builds::new(&[&format!("-Wl,--build-id=0x{id}")]) else { return };
    let missing = builds.dir.join("gone/libfirst.so");
    let input = builds.dir.join("branches.data");
    let mut recorded = meta(Source::Hardware);
    recorded.hostname = None;
    let map = |path: &Path| {
        let Event::Mmap(mut map) = mapping(7, BASE, 0x10000, 0, path.to_str().unwrap()) else {
            unreachable!()
        };
        map.build_id = profile::symbols::build_id(&builds.first);
        Event::Mmap(map)
    };
    write(&input, recorded, map(&missing), &builds.branches);
    assert_eq!(names(&input, &[]), BTreeSet::from([None]));
    let why = said(&input, &[]);
    for part in
        [missing.to_str().unwrap(), id, "/usr/lib/debug", "perf buildid-cache --add", "--symfs"]
    {
        assert!(why.contains(part), "{part} in {why}");
    }
    for name in [".build-id/01/23456789abcdef0123456789abcdef01234567", "libfirst.so"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(&builds.first, &path).unwrap();
        for option in ["--symfs", "--debug-dir"] {
            let args = [option, folder.path().to_str().unwrap()];
            assert_eq!(names(&input, &args), builds.functions(), "{option} {name}");
        }
        // Not by its name alone.
        let Some(()) = library(&path, &["-DSECOND", "-Wl,--build-id=0x1234"]) else { return };
        let args = ["--debug-dir", folder.path().to_str().unwrap()];
        assert_eq!(names(&input, &args), BTreeSet::from([None]), "{name}");
    }
}

/// A recording from another machine without build IDs: a file here is used only if its code
/// matches.
#[test]
fn another_machine() {
    let Some(builds) = Builds::new(&["-Wl,--build-id=none"]) else { return };
    let input = builds.dir.join("branches.data");
    let at = |path: &Path| mapping(7, BASE, 0x10000, 0, path.to_str().unwrap());
    let mut elsewhere = meta(Source::Hardware);
    elsewhere.hostname = Some("another-machine".to_owned());
    let one = &builds.branches[..1];

    write(&input, elsewhere.clone(), at(&builds.first), &builds.branches);
    assert_eq!(names(&input, &[]), builds.functions());
    write(&input, elsewhere, at(&builds.first), one);
    assert_eq!(names(&input, &[]), BTreeSet::from([None]));
    let why = said(&input, &[]);
    assert!(why.contains("the machine another-machine was recorded"), "{why}");
    assert_ne!(judged(&input, &[]).0, "sound");
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(&builds.first, folder.path().join("libfirst.so")).unwrap();
    let folder = folder.path().to_str().unwrap();
    assert_eq!(names(&input, &["--symfs", folder]).len(), 1);
    assert_ne!(names(&input, &["--symfs", folder]), BTreeSet::from([None]));

    // A recording of this machine does not contradict the file.
    let mut here = meta(Source::Hardware);
    let said = |name: &str| std::fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).ok();
    here.hostname = said("hostname").map(|name| name.trim().to_owned());
    here.osrelease = said("osrelease").map(|name| name.trim().to_owned());
    write(&input, here, at(&builds.first), one);
    assert_ne!(names(&input, &[]), BTreeSet::from([None]));
}

/// Writes a recording with each branch in its own stack.
fn write(path: &Path, meta: Meta, map: Event, branches: &[(u64, u64, String)]) {
    let mut writer = Writer::new(std::fs::File::create(path).unwrap(), meta).unwrap();
    writer.event(&map).unwrap();
    let (head, label) = (Head::Unknown, Label::Stream);
    let integrity = Integrity { head, cut: true, label, truncated: false, underflow: false };
    for (time, (from, to, _)) in branches.iter().enumerate() {
        let entry = BranchEntry { from: BASE + from, to: BASE + to, ..BranchEntry::default() };
        let stack = BranchStack { entries: vec![entry], integrity, moves: Vec::new() };
        let time = 1000 + time as u64;
        let sample = Sample {
            time,
            pid: 7,
            tid: 7,
            cpu: 0,
            ip: BASE + to,
            period: 1,
            arguments: None,
            stack,
        };
        writer.event(&Event::Sample(sample)).unwrap();
    }
    writer.finish_file().unwrap();
    assert!(!stdout(&lbr(&["report", "-i", path.to_str().unwrap()])).is_empty());
}

/// Branches may match another build by chance, but the code between them does not: here it would
/// start inside instructions.
#[test]
fn blocks_that_are_not_code_are_evidence_against_a_file() {
    let Some(builds) = Builds::new(&["-Wl,--build-id=none"]) else { return };
    let input = builds.dir.join("branches.txt");
    let stacks = |before: &[u64]| {
        let mut text = text(&builds.first, &[]);
        for (from, to, _) in &builds.branches {
            for entry in before.iter().map(|bytes| from - bytes) {
                // Into the library from outside of any file, which could be anywhere.
                let (from, to, entry) = (BASE + from, BASE + to, BASE + entry);
                let stack = format!("{from:#x}/{to:#x}/P/-/-/7 0x10/{entry:#x}/P/-/-/7");
                writeln!(text, "7/7 1.000000: {stack}").unwrap();
            }
        }
        text
    };
    let view = ["--view", "mispredict"];
    let known = |names: BTreeSet<Option<String>>| names.iter().any(Option::is_some);
    std::fs::write(&input, stacks(&[0])).unwrap();
    assert!(known(names(&input, &view)));
    assert_eq!(said(&input, &view), "");
    std::fs::write(&input, stacks(&[1, 2, 3])).unwrap();
    assert!(!known(names(&input, &view)));
    assert!(
        said(&input, &view).contains(" blocks between them are not code (the first at byte 0x")
    );
    let (verdict, finding) = judged(&input, &[]);
    assert_ne!(verdict, "sound");
    assert!(finding.is_some());
}
