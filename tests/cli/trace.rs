//! `lbr diff --trace`: planted divergences of made-up recordings, and leaks of code whose control
//! flow depends on a secret.

use std::path::{Path, PathBuf};
use std::process::Output;

use lbr_msr::record::{
    BranchEntry, BranchStack, BranchType, Event, Head, Integrity, Label, Mmap, Sample, Sink,
};
use profile::perf_data::{Meta, Rate, Writer};
use serde_json::Value;

use crate::support::lbr::{lbr, stderr, text};
use crate::support::skip::{run_tool, tool};

/// A reproducible random number.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

type Branch = (u64, u64, BranchType);

/// Writes threads of branches, offsets of a made-up program at `base`, as a recording.
fn write(path: &Path, base: u64, threads: &[Vec<Branch>]) {
    write_of(path, ("/made/up", None), base, threads);
}

/// The same for a program with a path and a build ID.
fn write_of(
    path: &Path,
    (program, build_id): (&str, Option<u8>),
    base: u64,
    threads: &[Vec<Branch>],
) {
    let source = profile::note::Source::Software;
    let meta = Meta { source, rate: Rate::Period(31), ..Meta::of_this_machine() };
    let mut writer = Writer::new(std::fs::File::create(path).unwrap(), meta).unwrap();
    let map = Mmap {
        time: 0,
        pid: 7,
        tid: 7,
        addr: base,
        len: 1 << 30,
        pgoff: 0,
        dev: (8, 1),
        ino: 1,
        ino_generation: 0,
        build_id: build_id.map(|byte| vec![byte; 20]),
        prot: 5,
        flags: 2,
        path: program.to_owned(),
    };
    writer.event(&Event::Mmap(Box::new(map))).unwrap();
    let integrity =
        Integrity { head: Head::Joined, cut: false, label: Label::Stream, ..Integrity::UNKNOWN };
    for (at, thread) in threads.iter().enumerate() {
        for (time, stack) in thread.chunks(31).enumerate() {
            let entry = |&(from, to, kind): &Branch| BranchEntry {
                from: base + from,
                to: base + to,
                branch_type: Some(kind),
                ..BranchEntry::default()
            };
            let entries: Vec<_> = stack.iter().rev().map(entry).collect();
            let sample = Sample {
                time: time as u64,
                pid: 7,
                tid: 7 + at as u32,
                cpu: 0,
                ip: entries[0].to,
                period: 31,
                arguments: None,
                stack: BranchStack { entries, integrity, moves: Vec::new() },
            };
            writer.event(&Event::Sample(sample)).unwrap();
        }
    }
    writer.finish_file().unwrap();
}

/// A walk through a program of jumps between blocks of 64 bytes.
fn walk(state: &mut u64, length: usize) -> Vec<Branch> {
    let mut at = 0;
    let step = |_| {
        let from = at + 16 + random(state) % 32;
        at = random(state) % 512 * 64;
        (from, at, BranchType::COND)
    };
    (0..length).map(step).collect()
}

fn compare(a: &Path, b: &Path, options: &[&str]) -> (Output, Vec<Value>) {
    let files = [a.to_str().unwrap(), b.to_str().unwrap()];
    let out = lbr(&[&["diff", "--trace", "--json"], options, &files].concat());
    let rows = text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (out, rows)
}

#[test]
fn a_planted_divergence_is_found_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let state = &mut 0x9e37_79b9_7f4a_7c15;
    for pair in 0..50 {
        let threads: Vec<_> = (0..1 + pair % 3).map(|_| walk(state, 2000)).collect();
        write(&a, 0x5555_5555_4000, &threads);
        // Loaded elsewhere.
        let base = 0x5600_0000_0000 + (random(state) % 1000) * 4096;
        write(&b, base, &threads);
        let (out, rows) = compare(&a, &b, &[]);
        assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
        assert_eq!(rows.len(), 1, "no parting, only the end");
        assert_eq!(rows[0]["agreed"], 2000 * threads.len());

        let mut other = threads;
        let thread = random(state) as usize % other.len();
        let at = random(state) as usize % 1990;
        let (from, to, kind) = other[thread][at];
        // A detour of one to three branches through code that nothing else executes, back to the
        // same target.
        let extra = 1 + random(state) % 3;
        let mut detour = vec![(from - 1, 1 << 20, kind)];
        detour.extend((1..extra).map(|n| ((n - 1) * 64 + (1 << 20) + 8, n * 64 + (1 << 20), kind)));
        detour.push(((extra - 1) * 64 + (1 << 20) + 8, to, kind));
        other[thread].splice(at..=at, detour);
        write(&b, base, &other);
        let (out, rows) = compare(&a, &b, &[]);
        assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
        let [parting, end] = rows.as_slice() else { panic!("pair {pair}: {rows:?}") };
        assert_eq!(parting["thread"], thread + 1, "pair {pair}");
        assert_eq!(parting["after"], at, "pair {pair}");
        assert_eq!(parting["times"], 1, "pair {pair}");
        assert_eq!(parting["at_offset"], from - 1, "the detour starts first: pair {pair}");
        assert_eq!(
            (&parting["first_takes"], &parting["second_takes"]),
            (&false.into(), &true.into())
        );
        assert_eq!(parting["meet_offset"], to, "pair {pair}");
        assert_eq!(
            (&parting["first_branches"], &parting["second_branches"]),
            (&1.into(), &(extra + 1).into())
        );
        assert_eq!(end["agreed"], 2000 * other.len() - 1, "pair {pair}");
    }
}

#[test]
fn a_program_is_identified_by_its_build_id_before_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let threads = [walk(&mut 5, 100)];
    for (one, other, code, why) in [
        (("/made/up", Some(1)), ("/moved/up", Some(1)), 0, ""),
        (("/made/up", Some(1)), ("/made/up", Some(2)), 2, "ran /made/up (another build)"),
        (("/made/up", None), ("/moved/up", None), 2, "ran /moved/up: only runs of one program"),
    ] {
        write_of(&a, one, 0x5555_5555_4000, &threads);
        write_of(&b, other, 0x5555_5555_4000, &threads);
        let (out, _) = compare(&a, &b, &[]);
        assert_eq!(out.status.code(), Some(code), "{}", stderr(&out));
        assert!(stderr(&out).contains(why), "{}", stderr(&out));
    }
}

/// Builds secret.c; `None` without a compiler.
fn secret(folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/programs/secret.c");
    let program = folder.join("secret");
    let options = ["-O1", "-g", "-nostdlib", "-static", "-fno-stack-protector", "-o"];
    let made = run_tool(tool("gcc").args(options).arg(&program).arg(source))?;
    assert!(made.status.success(), "{}", text(&made.stderr));
    Some(program)
}

/// The line with a comment.
fn line_of(comment: &str) -> String {
    let source = include_str!("../programs/secret.c");
    let line = source.lines().position(|line| line.contains(comment)).unwrap() + 1;
    format!(":{line}")
}

#[test]
fn leaks_are_found_at_their_lines_and_constant_time_code_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = secret(folder.path()) else { return };
    let program = program.to_str().unwrap();
    let known = b"bdfhjlnpcegikmoa";
    let state = &mut 0x2545_f491_4f6c_dd1d;
    for (way, leak) in
        [("c", Some("leak: compare")), ("C", None), ("p", Some("leak: power")), ("P", None)]
    {
        let record = |secret: &str, name: &str| {
            let file = folder.path().join(name);
            let to = file.to_str().unwrap();
            let options = ["record", "--backend", "soft", "--source", "ptrace", "-o", to, "--"];
            let out = lbr(&[&options[..], &[program, way, secret]].concat());
            (out.status.code() == Some(0)).then_some(file)
        };
        let first = std::str::from_utf8(known).unwrap();
        let Some(first) = record(first, "first") else { return };
        for _ in 0..100 {
            // Any number of leading bytes is right.
            let right = 2 * (random(state) as usize % 8);
            let letters: Vec<u8> = (0..16)
                .map(|at| if at < right { known[at] } else { b'a' + (random(state) % 16) as u8 })
                .collect();
            let letters = String::from_utf8(letters).unwrap();
            let other = record(&letters, "other").unwrap();
            let (out, rows) = compare(&first, &other, &[]);
            std::fs::remove_file(other).unwrap();
            let (end, partings) = rows.split_last().unwrap_or_else(|| panic!("{}", stderr(&out)));
            let leaks = leak.is_some() && letters.as_bytes() != known;
            assert_eq!(end["parted"], leaks, "{way} {letters}");
            assert_eq!(out.status.code(), Some(i32::from(leaks)));
            for parting in partings {
                let line = parting["at_line"].as_str().unwrap();
                let wanted = line_of(leak.unwrap());
                // The loop's own branch is on the line before.
                assert!(line.ends_with(&wanted), "{way} {letters}: {line}, not {wanted}");
            }
        }
    }
}

#[test]
fn two_commands_are_recorded_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = secret(folder.path()) else { return };
    let program = program.to_str().unwrap();
    let run = |options: &[&str], [one, other]: [&str; 2]| {
        let commands = ["--", program, "p", one, "--", program, "p", other];
        lbr(&[&["diff", "--trace"], options, &commands].concat())
    };
    let same = run(&[], ["bdfhjlnpcegikmoa"; 2]);
    if !same.status.success() {
        return;
    }
    assert!(text(&same.stdout).starts_with("the same control flow: "), "{}", text(&same.stdout));
    let secrets = ["bdfhjlnpcegikmoa", "bdfhjlnpcegikmob"];
    let out = run(&[], secrets);
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    let first = text(&out.stdout);
    assert!(first.starts_with("parted at leaky_power+0x"), "{first}");
    assert!(first.contains(&line_of("leak: power")), "{first}");
    // In other functions the branches are the same, except in those that are called more often.
    assert_eq!(run(&["--symbol", "run"], secrets).status.code(), Some(0));
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    write(&a, 0x5555_5555_4000, &[walk(&mut 5, 100)]);
    let sampled = "0x401020/0x401000/P/-/-/7  0x401008/0x401010/P/-/-/3\n";
    std::fs::write(&b, sampled).unwrap();
    for (options, other, why) in [
        (&[][..], &b, "it is not complete"),
        (&["--symbol", "nothing"], &a, "nothing that was recorded has the name nothing"),
    ] {
        let (out, rows) = compare(&a, other, options);
        assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
        assert!(rows.is_empty());
        assert!(stderr(&out).contains(why), "{}", stderr(&out));
    }
    let out = lbr(&["diff", "--trace", "--", "true"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(stderr(&out).contains("two commands are compared"), "{}", stderr(&out));
    let out = lbr(&["diff", "--trace", "--", "true", "--", "false"]);
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
    assert!(stderr(&out).contains("only runs of one program"), "{}", stderr(&out));
}
