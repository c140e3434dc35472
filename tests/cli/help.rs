//! The help of each command: one screen, one order of groups, examples that run.

use std::collections::HashMap;
use std::process::Command;

use clap::error::ErrorKind;

use crate::book::{Reader, out_of_reach, root};
use crate::support::lbr::{PROGRAM, alone, text};

/// Lines of a screen.
const SCREEN: usize = 45;

/// Groups of options, in the order of every help.
const GROUPS: [&str; 11] = [
    "Arguments",
    "Code",
    "Runs",
    "Recording",
    "Machine",
    "Input files",
    "Selection",
    "Symbols",
    "View",
    "Output",
    "Global options",
];

/// clap checks them only if it was built with its debug assertions.
#[test]
fn clap_checks_the_declared_options() {
    lbr_commands::command().debug_assert();
    let twice = || {
        let same = ["a", "b"].map(|id| clap::Arg::new(id).long("same"));
        clap::Command::new("lbr").args(same).debug_assert();
    };
    assert!(std::panic::catch_unwind(twice).is_err());
}

fn commands() -> Vec<String> {
    let all = lbr_commands::command();
    let names: Vec<String> = all.get_subcommands().map(|of| of.get_name().to_owned()).collect();
    assert!(names.len() >= 17, "{names:?}");
    names
}

fn help(words: &[&str], columns: &str) -> String {
    let mut command = alone(Command::new(PROGRAM));
    let out = command.args(words).env("COLUMNS", columns).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{words:?}");
    text(&out.stdout)
}

#[test]
fn the_short_help_fits_on_a_screen() {
    for name in commands() {
        for columns in ["80", "100"] {
            let help = help(&[&name, "-h"], columns);
            let lines = help.lines().count();
            assert!(lines <= SCREEN, "{name} at {columns}: {lines} lines\n{help}");
            let groups: Vec<&str> = help
                .lines()
                .filter(|line| !line.starts_with(' ') && !line.starts_with("Usage:"))
                .filter_map(|line| line.strip_suffix(':'))
                .collect();
            let at = |group: &&str| {
                GROUPS.iter().position(|known| known == group).unwrap_or_else(|| {
                    panic!("{name}: a group without a place in the order: {group}\n{help}")
                })
            };
            assert!(groups.iter().is_sorted_by_key(at), "{name}: {groups:?}");
            let (_, global) = help.split_once("\nGlobal options:\n").unwrap();
            for option in ["--help", "--color <WHEN>", "--wide", "--no-pager"] {
                let lines = |text: &str| {
                    let is_its = |line: &&str| line[..line.len().min(30)].contains(option);
                    text.lines().filter(|line| line.starts_with(' ')).filter(is_its).count()
                };
                assert_eq!((lines(global), lines(&help)), (1, 1), "{name}: {option}");
            }
        }
    }
}

/// The command lines under `Examples:`.
fn examples(help: &str) -> Vec<String> {
    let (_, after) = help.split_once("Examples:\n").unwrap_or_default();
    let lines = after.lines().take_while(|line| !line.is_empty());
    let line = |line: &str| line.trim_start().split("   ").next().unwrap_or_default().to_owned();
    lines.map(line).collect()
}

/// The words of a command line, as a shell splits it.
fn words(line: &str) -> Vec<String> {
    let out = Command::new("sh").args(["-c", &format!("printf '%s\\n' {line}")]).output().unwrap();
    text(&out.stdout).lines().map(str::to_owned).collect()
}

/// Exit statuses of an example, besides 0: these look at a machine that may have no LBR.
fn allowed(line: &str) -> &'static [i32] {
    let looks = ["doctor", "disarm", "dump", "verify"];
    if looks.iter().any(|name| line.starts_with(&format!("lbr {name}"))) { &[3, 4] } else { &[] }
}

/// A folder with the files that examples name: a program, two recordings of it, and a CPU.
fn folder() -> Option<Reader> {
    let reader = Reader::new();
    let host = root().join("tests/hosts/skylake/cpuid");
    let prepared = format!(
        "cc -O1 -g -o prog prog.c && lbr record --model -o old.data ./prog 40 && \
         lbr record --model ./prog 40 && cp old.data perf.data.old && cp '{}' cpuid.txt",
        host.display()
    );
    let out = reader.run(&prepared);
    if !out.status.success() {
        assert!(out_of_reach(&out), "{}", text(&out.stderr));
        return None;
    }
    Some(reader)
}

#[test]
fn examples_in_the_help_run() {
    let Some(reader) = folder() else { return };
    let mut ran: HashMap<String, usize> = HashMap::new();
    // Its examples write a recording without cycles.
    let (record, others): (Vec<_>, Vec<_>) =
        commands().into_iter().partition(|name| name == "record");
    for name in others.into_iter().chain(record) {
        let help = help(&[&name, "--help"], "100");
        let all = examples(&help);
        assert!(all.len() >= 3, "{name}: {all:?}\n{help}");
        for line in all {
            let (_, ours) = line.split_once("lbr ").unwrap();
            let parsed = lbr_commands::command()
                .try_get_matches_from(["lbr".to_owned()].into_iter().chain(words(ours)));
            if let Err(error) = parsed {
                assert_eq!(error.kind(), ErrorKind::DisplayHelp, "{name}: {line}: {error}");
            }
            // A course is played on a terminal, and so is the browser.
            let played = !line.contains("--transcript") && !line.contains("--html");
            let interactive = name == "browse" || name == "learn" && played;
            // The made-up host of the tests has no CPU 2.
            if interactive || line.contains("-C ") {
                continue;
            }
            let out = reader.run(&line);
            let status = out.status.code().unwrap();
            if status != 0 && !allowed(&line).contains(&status) {
                assert!(out_of_reach(&out), "{line}: {status}: {}", text(&out.stderr));
                continue;
            }
            *ran.entry(name.clone()).or_default() += 1;
        }
    }
    for name in ["report", "hist", "annotate", "diff", "lint", "script", "export", "explain"] {
        assert!(ran.get(name).is_some_and(|count| *count >= 3), "{name}: {ran:?}");
    }
}
