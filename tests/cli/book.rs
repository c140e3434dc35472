//! README and the book: every command line in them does what they say.
//!
//! `console` blocks are run, and their output compared; `sh` blocks are run, those marked
//! `hardware` only parsed; so are commands in sentences.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::error::ErrorKind;

use crate::support::lbr::{alone, text, wrapper};
use crate::support::skip::skipped;

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// README and the pages of the book, by their paths from the root.
fn pages() -> Vec<(String, String)> {
    let mut paths = vec![PathBuf::from("README.md")];
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let read = |path: PathBuf| {
        let page = std::fs::read_to_string(root().join(&path)).unwrap();
        (path.to_str().unwrap().to_owned(), page)
    };
    paths.into_iter().map(read).collect()
}

/// The fenced blocks of a page: the text after the fence, and the content.
fn blocks(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split("\n```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap())
}

/// A folder for running a page, with `lbr`, the test programs, and a program that stands for the
/// reader's.
struct Reader {
    folder: tempfile::TempDir,
    path: OsString,
}

impl Reader {
    fn new() -> Reader {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(root().join("tests"), folder.path().join("tests")).unwrap();
        std::fs::copy(root().join("tests/programs/calls.c"), folder.path().join("prog.c")).unwrap();
        wrapper(folder.path());
        let here = folder.path().to_owned();
        let before = std::env::var_os("PATH").unwrap();
        let path =
            std::env::join_paths([here].into_iter().chain(std::env::split_paths(&before))).unwrap();
        Reader { folder, path }
    }

    fn run(&self, command: &str) -> Output {
        alone(Command::new("sh"))
            .args(["-c", command])
            .current_dir(self.folder.path())
            .env("PATH", &self.path)
            .output()
            .unwrap()
    }

    /// The output as a reader sees it, whose folder has another name.
    fn seen(&self, out: &Output) -> String {
        let here = format!("{}/", self.folder.path().canonicalize().unwrap().display());
        text(&out.stdout).replace(&here, "/home/you/")
    }
}

/// Whether a command could not be tried here: tracing is not permitted, or a tool is missing.
fn out_of_reach(out: &Output) -> bool {
    let said = text(&out.stderr);
    // A shell that may not search a folder of PATH reports "permission denied".
    let unsearched = said.starts_with("sh: ") && said.contains("Permission denied");
    let missing = out.status.code() == Some(4)
        || said.contains("not found")
        || said.contains("install binutils")
        || unsearched;
    if missing {
        skipped(said);
    }
    missing
}

#[test]
fn what_the_pages_print_is_printed() {
    let mut commands = 0;
    'pages: for (name, page) in pages() {
        let reader = Reader::new();
        for (_, block) in blocks(&page).filter(|(kind, _)| *kind == "console") {
            for command in block.split("$ ").skip(1) {
                let (command, wanted) = command.split_once('\n').unwrap_or((command, ""));
                let out = reader.run(command);
                if !out.status.success() {
                    assert!(out_of_reach(&out), "{name}: $ {command}\n{}", text(&out.stderr));
                    continue 'pages;
                }
                assert_eq!(reader.seen(&out).trim_end(), wanted.trim_end(), "{name}: $ {command}");
                commands += 1;
            }
        }
    }
    assert!(commands >= 5, "{commands}");
}

#[test]
fn what_the_pages_say_to_type_runs() {
    for (name, page) in pages() {
        let reader = Reader::new();
        for (_, block) in blocks(&page).filter(|(kind, _)| *kind == "sh") {
            for line in block.lines().filter(|line| !line.starts_with("cargo ")) {
                let out = reader.run(line);
                if !out.status.success() {
                    assert!(out_of_reach(&out), "{name}: {line}\n{}", text(&out.stderr));
                    break;
                }
            }
        }
    }
}

/// Whether the program accepts these arguments, as far as a sentence has them. Nothing is run.
fn is_usage(words: &[&str]) -> bool {
    let is_list = words.windows(2).any(|pair| pair[0].starts_with("--soft-") && pair[1] == "list");
    match lbr_commands::command().try_get_matches_from(["lbr"].iter().chain(words)) {
        Ok(_) => true,
        Err(error) => is_list || error.kind() == ErrorKind::MissingRequiredArgument,
    }
}

#[test]
fn commands_on_hardware_and_in_sentences_exist() {
    let mut commands = 0;
    for (name, page) in pages() {
        let fenced = blocks(&page)
            .filter(|(kind, _)| *kind == "sh hardware")
            .flat_map(|(_, block)| block.lines());
        let spoken = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        for line in fenced.chain(spoken).filter(|line| line.starts_with("lbr ")) {
            let line = line.split(" #").next().unwrap();
            let words: Vec<&str> = line.split_whitespace().skip(1).collect();
            assert!(is_usage(&words), "{name}: {line}");
            commands += 1;
        }
    }
    assert!(commands > 20, "{commands}");
}

/// Every page of the book is in its table of contents and its index, and every link has a target.
#[test]
fn links_lead_somewhere() {
    for (name, page) in pages() {
        if let Some(chapter) = name.strip_prefix("docs/").filter(|name| name.contains('/')) {
            for contents in ["docs/SUMMARY.md", "docs/README.md"] {
                let contents = std::fs::read_to_string(root().join(contents)).unwrap();
                assert!(contents.contains(&format!("({chapter})")), "{name}");
            }
        }
        let folder = root().join(&name).parent().unwrap().to_owned();
        for link in page.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let file = link.split('#').next().unwrap();
            assert!(link.contains("://") || folder.join(file).exists(), "{name}: {link}");
        }
    }
}

/// The first page fits on a few screens.
#[test]
fn the_front_page_is_short() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.lines().count() < 150);
}
