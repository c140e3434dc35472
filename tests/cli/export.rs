//! `lbr export`, compared with the output of llvm-profgen and perf2bolt for the same recordings.

use std::io::Read as _;
use std::path::Path;

use crate::support::corpus::corpus;
use crate::support::lbr::{lbr, sources};
use crate::support::programs::build;
use crate::support::skip::{run_tool, tool};
use crate::support::truth::{cases, unpacked};

/// Exports a recording; returns the text and the messages.
fn export(input: &Path, args: &[&str]) -> (String, String) {
    let out = lbr(&[&["export", "-i", input.to_str().unwrap()], args].concat());
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(0), "{said}");
    (String::from_utf8(out.stdout).unwrap(), said)
}

/// A case with known results, unpacked: its programs, with the kinds and expected output.
fn compare(name: &str, programs: &[&str], kinds: &[(&str, &str)]) {
    let Some(case) = cases().map(|cases| cases.join(name)) else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(recording) = unpacked(&case.join("perf.data")) else { return };
    let input = dir.path().join("perf.data");
    std::fs::write(&input, recording).unwrap();
    for program in programs {
        let binary = dir.path().join(program);
        std::fs::write(&binary, unpacked(&case.join(program)).unwrap()).unwrap();
        for (kind, file) in kinds {
            let file = match programs {
                [_] => (*file).to_owned(),
                _ => format!("{program}.{file}"),
            };
            let Some(expected) = unpacked(&case.join(&file)) else { continue };
            let expected = String::from_utf8(expected).unwrap();
            let mut args = vec!["--binary", binary.to_str().unwrap(), "--to"];
            args.extend(kind.split(' '));
            let (text, _) = export(&input, &args);
            if text != expected {
                let differs = text.lines().zip(expected.lines()).find(|(ours, of)| ours != of);
                panic!("{name}/{program}, {kind}: {differs:?} (ours, {file})");
            }
        }
    }
}

const KINDS: [(&str, &str); 5] = [
    ("llvm-raw", "llvm-profgen.unsymbolized"),
    ("llvm", "llvm-profgen.prof"),
    ("preagg", "bolt.preagg-BFf"),
    ("preagg:T", "bolt.preagg-TB"),
    ("llvm --join", "joined.prof"),
];

/// Byte for byte: with discriminators and without, by two compilers, with inlined functions in C++
/// and Rust, with DWARF 4 and 5.
#[test]
fn profiles_equal_those_of_llvms_converters() {
    let names = ["sort-pie", "sort-nopie", "sort-gcc", "virt-pie", "virt-nopie", "virt-lld"];
    for name in names.into_iter().chain(["inl-pie", "inl-nopie"]) {
        compare(name, &[name], &KINDS);
    }
}

/// Where the recordings of the ground truth found their programs.
const BUILT: &str = "build/interop/truth/programs";

/// The recordings are of short programs, of which the dynamic linker has most
/// branches: without `--dso` the profile is that of the program.
#[test]
fn the_recorded_program_is_the_default() {
    let Some(cases) = cases() else { return };
    let names =
        ["sort-pie", "sort-nopie", "sort-gcc", "virt-pie", "virt-nopie", "virt-lld", "inl-pie"];
    for case in names.into_iter().chain(["inl-nopie", "sort-lld", "shared"]) {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(BUILT);
        std::fs::create_dir_all(&folder).unwrap();
        let (recording, input) =
            (unpacked(&cases.join(case).join("perf.data")), dir.path().join("data"));
        let Some(recording) = recording else { return };
        std::fs::write(&input, recording).unwrap();
        let (program, kept) = match case {
            "shared" => ("shared-main", "shared-main.llvm-profgen.prof"),
            "sort-lld" => (case, "llvm-profgen.prof.after-fix"),
            _ => (case, "llvm-profgen.prof"),
        };
        let unpack = |name: &str| unpacked(&cases.join(case).join(name)).unwrap();
        std::fs::write(folder.join(program), unpack(program)).unwrap();
        let args = ["--symfs", dir.path().to_str().unwrap(), "--to", "llvm"];
        let (text, said) = export(&input, &args);
        assert!(said.contains(&format!("{program}: ")), "{said}");
        assert!(text.as_bytes() == unpack(kept), "{case}");
    }
}

/// Two data mappings of its recording are marked as code.
#[test]
fn a_mapping_without_code_changes_nothing() {
    let kinds = [
        ("llvm-raw", "llvm-profgen.unsymbolized.after-fix"),
        ("llvm", "llvm-profgen.prof.after-fix"),
    ];
    compare("sort-lld", &["sort-lld"], &kinds);
}

#[test]
fn a_library_has_its_own_profile() {
    compare("shared", &["shared-main", "libshlib.so"], &KINDS);
}

/// The collatz loop ran 8,392 times; 8,121 of them are visible within single stacks.
#[test]
fn joined_stacks_show_the_code_between_them() {
    let Some(cases) = cases() else { return };
    let joined = std::fs::read_to_string(cases.join("sort-gcc/joined.prof")).unwrap();
    assert!(joined.contains(": 8392"));
    compare("sort-gcc", &["sort-gcc"], &[("llvm --join", "joined.prof")]);
}

/// AutoFDO's own results for its own test: 357 ranges, run 134,622 times, 5,383,657 bytes.
#[test]
fn autofdo_counts() {
    let Some(corpus) = corpus() else { return };
    let (text, _) = export(&corpus.join("autofdo/perfdata/test.lbr"), &["--to", "autofdo"]);
    let mut lines = text.lines();
    let ranges: usize = lines.next().unwrap().parse().unwrap();
    let (mut runs, mut bytes) = (0, 0);
    for line in lines.take(ranges) {
        let (range, count) = line.split_once(':').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let at = |text| u64::from_str_radix(text, 16).unwrap();
        let count: u64 = count.parse().unwrap();
        runs += count;
        bytes += count * (at(end) - at(start) + 1);
    }
    assert_eq!((ranges, runs, bytes), (357, 134_622, 5_383_657));
}

/// This needs BOLT's control flow.
#[test]
fn fdata_names_what_to_use_instead() {
    let out = lbr(&["export", "--to", "fdata", "-i", "/dev/null"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2));
    assert!(said.contains("--to preagg"), "{said}");
}

/// Two samples of one stack in call-stack mode need a separate recording; for plain branches a
/// context is the function around them.
#[test]
fn contexts_and_branches_for_viewers() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("branches.txt");
    std::fs::write(&input, "0x401010/0x401020/P/-/-/0 0x401008/0x401000/M/-/-/0\n").unwrap();
    let (text, _) = export(&input, &["--to", "speedscope"]);
    let made: serde_json::Value = serde_json::from_str(&text).unwrap();
    let profile = &made["profiles"][0];
    let weights = profile["weights"].as_array().unwrap();
    let sum: u64 = weights.iter().map(|weight| weight.as_u64().unwrap()).sum();
    assert_eq!((sum, profile["endValue"].as_u64()), (2, Some(2)));
    assert_eq!(weights.len(), profile["samples"].as_array().unwrap().len());
    let report = ["report", "--view", "callgraph", "--folded", input.to_str().unwrap()];
    let folded = String::from_utf8(lbr(&report).stdout).unwrap();
    let last = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    assert_eq!(folded.lines().map(last).sum::<u64>(), 2);

    let out = dir.path().join("pprof.gz");
    let (nothing, _) = export(&input, &["--to", "pprof", "-o", out.to_str().unwrap()]);
    assert_eq!(nothing, "");
    let mut bytes = Vec::new();
    let packed = std::fs::File::open(&out).unwrap();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    // A sample (field 2, 9 bytes): location 1, then one branch, mispredicted of one known.
    let sample = [0x12, 8, 0x0a, 1, 1, 0x12, 3, 1, 1, 1];
    assert!(bytes.windows(sample.len()).any(|part| part == sample), "{bytes:x?}");
}

/// A text of three branches of one process, one of them mispredicted.
const BRANCHES: &str = "0x401010/0x401020/P/-/-/7 0x401008/0x401000/M/-/-/0\n\
                        0x401010/0x401020/P/-/-/3\n";

fn branches(dir: &Path) -> std::path::PathBuf {
    let input = dir.join("branches.txt");
    std::fs::write(&input, BRANCHES).unwrap();
    input
}

/// By hand: two of three branches are 66.67 %; the only mispredicted one is all.
#[test]
fn columns_of_uprof() {
    let dir = tempfile::tempdir().unwrap();
    let (table, _) = export(&branches(dir.path()), &["--to", "csv:uprof"]);
    let lines: Vec<&str> = table.lines().collect();
    let heading = "OVERHEAD (%),SAMPLES,MISPREDICT (%),MISPREDICT COUNT,SOURCE FUNCTION,\
                   TARGET FUNCTION,SOURCE LINE,TARGET LINE,SOURCE MODULE,TARGET MODULE,PROCESS";
    assert_eq!(lines[0], heading);
    let numbers = |line: &str| -> Vec<f64> {
        line.split(',').take(4).map(|field| field.parse().unwrap()).collect()
    };
    assert_eq!(lines.len(), 3);
    let of = numbers(lines[1]);
    assert!((of[0] - 66.67).abs() < 0.01, "{of:?}");
    assert_eq!(of[1..], [2.0, 0.0, 0.0]);
    let of = numbers(lines[2]);
    assert!((of[0] - 33.33).abs() < 0.01, "{of:?}");
    assert_eq!(of[1..], [1.0, 100.0, 1.0]);
}

/// The format's rules for tables: columns of equal length, valid indices, and a stack after the one
/// that it extends.
#[test]
fn the_firefox_profile_is_consistent() {
    let dir = tempfile::tempdir().unwrap();
    let (text, _) = export(&branches(dir.path()), &["--to", "firefox"]);
    let made: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(made["meta"]["preprocessedProfileVersion"], 55);
    let thread = &made["threads"][0];
    let length = |table: &str| thread[table]["length"].as_u64().unwrap();
    let tables = ["samples", "stackTable", "frameTable", "funcTable", "resourceTable", "markers"];
    for table in tables {
        for (name, column) in thread[table].as_object().unwrap() {
            let rows = column.as_array().map(|rows| rows.len() as u64);
            assert!(rows.is_none_or(|rows| rows == length(table)), "{table}.{name}");
        }
    }
    let below = |table: &str, column: &str, end: u64| {
        let rows = thread[table][column].as_array().unwrap();
        assert!(
            rows.iter().filter_map(|row| row.as_u64()).all(|row| row < end),
            "{table}.{column}"
        );
    };
    below("samples", "stack", length("stackTable"));
    below("stackTable", "frame", length("frameTable"));
    below("frameTable", "func", length("funcTable"));
    below("funcTable", "name", thread["stringArray"].as_array().unwrap().len() as u64);
    let prefixes = thread["stackTable"]["prefix"].as_array().unwrap();
    assert!((0..).zip(prefixes).all(|(at, row)| row.as_u64().is_none_or(|prefix| prefix < at)));
    let weights = thread["samples"]["weight"].as_array().unwrap();
    assert_eq!(weights.iter().map(|weight| weight.as_u64().unwrap()).sum::<u64>(), 3);
}

/// By hand, for a call of `a` by main and of `b` by `a`: a branch counts in the function that it
/// leaves.
#[test]
fn viewers_show_the_functions_of_each_context() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("calls.txt");
    let text = "main+0x20/main+0x8/P/-/-/0/COND a+0x20/main+0x18/P/-/-/0/RET \
                b+0x20/a+0x18/P/-/-/0/RET b+0x10/b+0x18/P/-/-/0/COND b+0x4/b+0x8/P/-/-/0/COND \
                a+0x14/b+0x0/P/-/-/0/CALL main+0x14/a+0x0/P/-/-/0/CALL \
                main+0x4/main+0x10/P/-/-/0/COND main+0x20/main+0x0/P/-/-/0/COND\n";
    std::fs::write(&input, text).unwrap();
    let expected = ["main 4", "main;a 2", "main;a;b 3"].map(|of| format!("[callers missing];{of}"));

    let (text, _) = export(&input, &["--to", "speedscope"]);
    let made: serde_json::Value = serde_json::from_str(&text).unwrap();
    let row = |list: &serde_json::Value| list.as_array().unwrap().clone();
    let index = |value: &serde_json::Value| value.as_u64().unwrap() as usize;
    let names = |functions: Vec<String>, weight: &serde_json::Value| {
        format!("{} {weight}", functions.join(";"))
    };
    let profile = &made["profiles"][0];
    let name = |frame: &serde_json::Value| {
        made["shared"]["frames"][index(frame)]["name"].as_str().unwrap().to_owned()
    };
    let found = row(&profile["samples"]).into_iter().zip(row(&profile["weights"]));
    let mut found: Vec<String> = found
        .map(|(sample, weight)| names(row(&sample).iter().map(name).collect(), &weight))
        .collect();
    found.sort();
    assert_eq!(found, expected);

    let (text, _) = export(&input, &["--to", "firefox"]);
    let made: serde_json::Value = serde_json::from_str(&text).unwrap();
    let of = |table: &str, column: &str, at: usize| made["threads"][0][table][column][at].clone();
    let samples = row(&made["threads"][0]["samples"]["stack"]);
    let context = |(at, stack): (usize, &serde_json::Value)| {
        let mut functions = Vec::new();
        let mut next = stack.as_u64();
        while let Some(stack) = next.map(|stack| stack as usize) {
            let function =
                index(&of("frameTable", "func", index(&of("stackTable", "frame", stack))));
            let text = index(&of("funcTable", "name", function));
            let name = made["threads"][0]["stringArray"][text].as_str().unwrap().to_owned();
            functions.insert(0, name);
            next = of("stackTable", "prefix", stack).as_u64();
        }
        names(functions, &of("samples", "weight", at))
    };
    let mut found: Vec<String> = samples.iter().enumerate().map(context).collect();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_flame_graph_is_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let (svg, _) = export(&branches(dir.path()), &["--to", "flamegraph"]);
    assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(svg.contains("branches.txt: branches"), "{svg}");
    assert!(svg.contains("(3 branches, 100%)"), "{svg}");
}

/// Counts, and the columns that distinguish hosts, days and events. Every branch is in one row.
#[test]
fn rows_for_databases() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--to", "jsonl:edges", "--host", "web-1", "--date", "2026-01-31"];
    let (text, _) = export(&branches(dir.path()), &args);
    let rows: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let first = serde_json::json!({
        "host": "web-1", "date": "2026-01-31", "event": null,
        "from_build_id": null, "from_file": null, "from_offset": 0x401010, "from_symbol": null,
        "from_line": null, "to_build_id": null, "to_file": null, "to_offset": 0x401020,
        "to_symbol": null, "to_line": null, "count": 2, "mispredicted": 0,
        "predictions_known": 2, "cycles_sum": 10, "cycles_count": 2,
        "events_a": null, "events_b": null, "events_c": null, "events_d": null,
    });
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0], first);
    assert_eq!((&rows[1]["count"], &rows[1]["mispredicted"]), (&1.into(), &1.into()));
    assert_eq!((&rows[1]["cycles_sum"], &rows[1]["cycles_count"]), (&().into(), &0.into()));
    let input = dir.path().join("branches.txt");
    let wrong =
        lbr(&["export", "--to", "jsonl:edges", "--date", "tuesday", input.to_str().unwrap()]);
    assert_eq!(wrong.status.code(), Some(2));
}

/// Recordings from other people, by perf 3.4 and 4.14, and ours.
fn recordings() -> Vec<std::path::PathBuf> {
    let Some(corpus) = corpus() else { return Vec::new() };
    let folder = corpus.join("perf-data-converter/perfdata");
    let names = ["perf.data.branch-4.14", "perf.data.callgraph_and_branch-3.4"];
    names
        .iter()
        .map(|name| folder.join(name))
        .chain([corpus.join("autofdo/perfdata/test.lbr")])
        .collect()
}

/// The rows of a view without the marks that a share is from a sample.
fn rows(input: &Path, args: &[&str]) -> Vec<serde_json::Value> {
    let input = input.to_str().unwrap();
    let out = lbr(&[&["report", input, "--json", "--no-source"], args].concat());
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let lines = out.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let rows = lines.map(|line| serde_json::from_slice(line).unwrap());
    rows.filter(|row: &serde_json::Value| row["view"] != "quality").collect()
}

/// perf text that we write parses to the same branches of the same files.
#[test]
fn text_export_has_the_same_branches() {
    let dir = tempfile::tempdir().unwrap();
    for input in recordings() {
        let text = dir.path().join("text");
        export(&input, &["--to", "brstack", "-o", text.to_str().unwrap()]);
        for view in ["hot", "blocks"] {
            let (before, after) = (rows(&input, &["--view", view]), rows(&text, &["--view", view]));
            assert!(!before.is_empty());
            assert_eq!(before.len(), after.len(), "{}: {view}", input.display());
            for (before, after) in before.iter().zip(&after) {
                let keys = match view {
                    "hot" => ["count", "from", "from_file", "to", "mispredicted"],
                    _ => ["count", "entry", "entry_file", "exit", "exit_file"],
                };
                for key in keys {
                    assert_eq!(before[key], after[key], "{}: {key}: {before}", input.display());
                }
            }
        }
    }
}

/// Task, time and branches of each sample, as perf prints them.
fn read_by_perf(input: &Path) -> Option<Vec<String>> {
    let fields = "pid,tid,time,brstack";
    let read = run_tool(tool("perf").args(["script", "-F", fields, "-i"]).arg(input))?;
    Some(String::from_utf8(read.stdout).unwrap().lines().map(str::to_owned).collect())
}

/// perf reads the part like those samples of the whole, also if the whole came through a pipe; and
/// output to a pipe is readable for us too.
#[test]
fn a_part_of_a_recording_is_a_recording() {
    let dir = tempfile::tempdir().unwrap();
    for input in recordings() {
        let Some(whole) = read_by_perf(&input) else { return };
        // The thread of the sample in the middle, and all of them.
        let tid_of = |line: &str| {
            let (_, behind) = line.split_once('/').unwrap();
            behind.split_ascii_whitespace().next().unwrap().to_owned()
        };
        let tid = tid_of(&whole[whole.len() / 2]);
        let of_tid = whole.iter().filter(|line| tid_of(line) == tid).cloned().collect();
        for (select, expected) in [(&["--tid", &tid][..], &of_tid), (&[], &whole)] {
            let piped = dir.path().join("piped");
            let to_pipe = [&["export", "-i", input.to_str().unwrap(), "--to", "perfdata"], select];
            std::fs::write(&piped, lbr(&to_pipe.concat()).stdout).unwrap();
            assert_eq!(rows(&piped, &[]), rows(&input, select), "{}", input.display());
            for (from, select) in [(&input, select), (&piped, &[])] {
                let part = dir.path().join("part");
                let to_part = ["--to", "perfdata", "-o", part.to_str().unwrap()];
                export(from, &[&to_part, select].concat());
                let read = read_by_perf(&part).unwrap();
                assert_eq!(read.len(), expected.len(), "{}", input.display());
                let differs = read.iter().zip(expected).find(|(read, whole)| read != whole);
                assert_eq!(differs, None, "{}", input.display());
                assert_eq!(rows(&part, &[]), rows(&piped, &[]), "{}", input.display());
            }
        }
    }
}

/// In a complete recording without its first stacks, the next stack joins to none.
#[test]
fn a_part_is_not_joined_across_omitted_stacks() {
    let Some(case) = cases().map(|cases| cases.join("sort-pie")) else { return };
    let Some(recording) = unpacked(&case.join("perf.data")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let (whole, part) = (dir.path().join("perf.data"), dir.path().join("part"));
    std::fs::write(&whole, recording).unwrap();
    let select = ["--time", "50%-100%"];
    export(&whole, &[&["--to", "perfdata", "-o", part.to_str().unwrap()], &select[..]].concat());
    let heads = |input: &Path, args: &[&str]| -> Vec<String> {
        let input = input.to_str().unwrap();
        let out = lbr(&[&["script", input, "-F", "time,quality"], args].concat());
        String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect()
    };
    let (of_whole, of_part) = (heads(&whole, &select), heads(&part, &[]));
    assert!(of_part.len() > 100);
    assert_eq!(of_part, of_whole);
    assert!(of_part[0].contains("unknown") && of_part[1].contains("joined"), "{of_part:?}");
    let text = lbr(&["export", "--to", "perfdata", branches(dir.path()).to_str().unwrap()]);
    assert_eq!(text.status.code(), Some(2));
}

/// The same branches give the same bytes, though threads take turns and addresses differ. Without lazy
/// binding, whose branches depend on which thread calls first.
#[test]
fn joined_profiles_of_complete_recordings_are_canonical() {
    let Some(program) =
        build("threads.c", &["-O1", "-g", "-pie", "-fPIE", "-pthread", "-Wl,-z,now"])
    else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("perf.data");
    let file = input.to_str().unwrap();
    let mut profiles = Vec::new();
    for source in sources().into_iter().cycle().take(8) {
        let record = ["record", "--backend", "soft", "--source", source, "-o", file, "--"];
        let out = lbr(&[&record[..], &[program.name()]].concat());
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        let kinds = ["llvm-raw", "preagg", "autofdo"];
        profiles.push(kinds.map(|kind| export(&input, &["--to", kind, "--join"]).0));
    }
    let first = &profiles[0];
    assert!(first.iter().all(|profile| profile.lines().count() > 10), "{first:?}");
    assert!(profiles.iter().all(|other| other == first));
}

/// perf's text, our text of it and ours of that again have the same stacks of the same entries.
#[test]
fn text_is_exported_entry_for_entry() {
    const TYPES: [&str; 6] = ["COND", "UNCOND", "IND_CALL", "RET", "SYSCALL", "FAULT_DATA"];
    let mut state = 7u64;
    let mut random = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut input = String::new();
    let mut wanted = Vec::new();
    for sample in 0..300 {
        // Oldest first: each branch leads to code that runs up to the next one.
        let (mut entries, mut at) = (Vec::new(), 0x5555_5555_0000 + random(0x1_0000));
        for _ in 0..=random(31) {
            let (from, to) = (at, 0x5555_5555_0000 + random(0x1_0000));
            let field = |chance: u64, letter: &'static str| if chance == 0 { letter } else { "-" };
            let prediction = ["P", "M", "-"][random(3) as usize];
            let (tx, abort) = (field(random(9), "X"), field(random(9), "A"));
            let (cycles, kind) = (random(70_000).min(65_535), TYPES[random(6) as usize]);
            let spec = ["-", "SPEC_WRONG_PATH", "NON_SPEC_CORRECT_PATH"][random(3) as usize];
            entries.push(format!(
                "{from:#x}/{to:#x}/{prediction}/{tx}/{abort}/{cycles}/{kind}/{spec}"
            ));
            at = to + random(64);
        }
        entries.reverse();
        input += &format!(
            "prog    12/13    [001]    10.{sample:06}:  100 branches:u:  {at:x} {} \n",
            entries.join("  ")
        );
        wanted.push(entries);
    }
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
    std::fs::write(&first, input).unwrap();
    let (once, _) = export(&first, &["--to", "brstack"]);
    std::fs::write(&second, &once).unwrap();
    let (twice, _) = export(&second, &["--to", "brstack"]);
    let entries = |line: &str| -> Vec<String> {
        line.split_ascii_whitespace()
            .filter(|word| word.contains('/') && word.starts_with("0x"))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(once.lines().map(entries).collect::<Vec<_>>(), wanted);
    assert_eq!(once, twice);
}
