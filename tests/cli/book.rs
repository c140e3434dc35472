//! README and the book: every command line in them does what they say.
//!
//! `console` blocks are run, and their output compared; `sh` blocks are run, those marked
//! `hardware` only parsed; so are commands in sentences, and in output that depends on the machine
//! (`text`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::error::ErrorKind;

use crate::support::lbr::{alone, text, wrapper};
use crate::support::skip::skipped;

/// The repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// README, SECURITY.md and the pages of the book, by their paths from the root.
fn pages() -> Vec<(String, String)> {
    let mut paths = vec![PathBuf::from("README.md"), PathBuf::from("SECURITY.md")];
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
pub(crate) struct Reader {
    folder: tempfile::TempDir,
    path: OsString,
}

impl Reader {
    pub(crate) fn new() -> Reader {
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

    pub(crate) fn run(&self, command: &str) -> Output {
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
pub(crate) fn out_of_reach(out: &Output) -> bool {
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
fn documented_output_matches() {
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
fn documented_commands_run() {
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
    match lbr_commands::command().try_get_matches_from(["lbr"].iter().chain(words)) {
        Ok(_) => true,
        Err(error) => {
            matches!(error.kind(), ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelp)
        }
    }
}

/// The arguments of each `lbr` in a line of a shell.
fn arguments(line: &str) -> impl Iterator<Item = Vec<&str>> {
    let line = line.split(" #").next().unwrap();
    line.split(" | ").flat_map(|part| part.split(" && ")).filter_map(|part| {
        let part = part.trim_start_matches("$ ").trim_start_matches("sudo ");
        let inside = part.starts_with("scripts/").then(|| part.split_once(" -- ")).flatten();
        let part = inside.map_or(part, |(_, command)| command);
        let rest = part.strip_prefix("lbr ").or_else(|| part.strip_prefix("cargo run -- "))?;
        Some(rest.split_whitespace().collect())
    })
}

#[test]
fn commands_named_in_prose_exist() {
    let mut commands = 0;
    for (name, page) in pages() {
        let fenced = blocks(&page).flat_map(|(kind, block)| {
            let known = ["console", "sh", "sh hardware", "text", "sql", "python", "rust"];
            assert!(known.contains(&kind), "{name}: ```{kind}");
            block.lines().filter(move |line| kind.starts_with("sh") || line.starts_with("$ "))
        });
        let spoken = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        for line in fenced.chain(spoken) {
            for words in arguments(line) {
                assert!(is_usage(&words), "{name}: {line}");
                commands += 1;
            }
        }
        for script in page.split("scripts/").skip(1) {
            let end = script.find(|c: char| !c.is_ascii_lowercase() && c != '-');
            let script = &script[..end.unwrap_or(script.len())];
            assert!(root().join("scripts").join(script).is_file(), "{name}: scripts/{script}");
        }
    }
    assert!(commands > 150, "{commands}");
}

/// Every key that a command prints as JSON is in the reference.
#[test]
fn the_keys_of_json_are_documented() {
    let reference = std::fs::read_to_string(root().join("docs/reference/json.md")).unwrap();
    let reader = Reader::new();
    let build = "cc -nostdlib -static -no-pie -o textbook tests/programs/textbook.S";
    let record = "lbr record --model --source ptrace -o perf.data -- ./textbook";
    for command in [build, record, "cp perf.data old.data"] {
        let out = reader.run(command);
        if !out.status.success() {
            assert!(out_of_reach(&out), "{command}\n{}", text(&out.stderr));
            return;
        }
    }
    let views = ["hot", "mispredict", "outcomes", "blocks", "loops", "paths", "types", "callgraph"];
    let views = views.map(|view| format!("report --view {view}"));
    let others = [
        "hist",
        "annotate loop",
        "diff old.data perf.data",
        "lint",
        "script",
        "decode --format 6 raw",
        "explain",
        "explain DEBUGCTL 1",
        "probe --soft-cpu skylake",
        "doctor",
        "dump --soft-cpu skylake",
        "verify --soft-cpu skylake --write",
        "time --hex 90 --repeat 3",
    ];
    std::fs::write(reader.folder.path().join("raw"), "8000555555554444 0019555555554450").unwrap();
    for command in views.iter().map(String::as_str).chain(others) {
        let out = reader.run(&format!("lbr {command} --json"));
        // `doctor` and `verify` report by their status.
        if out.stdout.is_empty() {
            assert!(out_of_reach(&out), "{command}: {}", text(&out.stderr));
            continue;
        }
        let mut keys = 0;
        for object in text(&out.stdout).lines() {
            let object: serde_json::Value = serde_json::from_str(object).unwrap();
            for key in object.as_object().unwrap().keys() {
                let of_place = ["from", "to", "entry", "exit", "head", "start", "end"]
                    .iter()
                    .find_map(|place| key.strip_prefix(place)?.strip_prefix('_'))
                    .is_some_and(|rest| reference.contains(&format!("`X_{rest}`")));
                let of_side = ["_before", "_after", "_p", "_p_holm"]
                    .iter()
                    .any(|end| command.starts_with("diff") && key.ends_with(end));
                let is_documented = reference.contains(&format!("`{key}`"));
                assert!(is_documented || of_place || of_side, "{command}: {key}");
                keys += 1;
            }
        }
        assert!(keys > 0, "{command}");
    }
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(line: &str) -> Option<String> {
    let heading = line.strip_prefix('#')?.trim_start_matches('#').trim();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    Some(kept.collect::<String>().to_lowercase().replace(' ', "-"))
}

/// Every page of the book is in its table of contents and its index, and every link has a target.
#[test]
fn links_have_targets() {
    for (name, page) in pages() {
        if let Some(chapter) = name.strip_prefix("docs/").filter(|name| name.contains('/')) {
            for contents in ["docs/SUMMARY.md", "docs/README.md"] {
                let contents = std::fs::read_to_string(root().join(contents)).unwrap();
                assert!(contents.contains(&format!("({chapter})")), "{name}");
            }
        }
        let folder = root().join(&name).parent().unwrap().to_owned();
        for link in page.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if link.contains("://") {
                continue;
            }
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            let file = if file.is_empty() { root().join(&name) } else { folder.join(file) };
            assert!(file.exists(), "{name}: {link}");
            let has = |page: String| page.lines().filter_map(anchor).any(|it| it == section);
            assert!(section.is_empty() || has(std::fs::read_to_string(file).unwrap()), "{link}");
        }
    }
}

/// The page on troubleshooting quotes the messages of `doctor`.
#[test]
fn troubleshooting_quotes_doctor() {
    let sources = ["cli/src/commands/doctor", "sampler/src/source/perf"];
    let files = sources.iter().flat_map(|dir| std::fs::read_dir(root().join(dir)).unwrap());
    let code: String =
        files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    // Without the line ends in literals.
    let code: String = code.split("\\\n").map(str::trim_start).collect();
    let page = std::fs::read_to_string(root().join("docs/start/troubleshooting.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let mut quotes = 0;
    for quote in rows.flat_map(|cell| cell.split('`').step_by(2)).filter(|it| !it.is_empty()) {
        assert!(code.contains(quote), "{quote}");
        quotes += 1;
    }
    assert!(quotes > 12, "{quotes}");
}

/// The first page fits on a few screens.
#[test]
fn the_front_page_is_short() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.lines().count() < 150);
}

/// The recipe for cargo projects, on a new one.
#[test]
fn the_recipe_for_cargo_builds_with_a_profile() {
    let page = std::fs::read_to_string(root().join("docs/guides/export.md")).unwrap();
    let mut all = blocks(&page);
    let (_, recipe) = all.find(|(_, block)| block.contains("cargo build --release")).unwrap();
    let reader = Reader::new();
    let source = "fn main() {\n    let mut x = std::env::args().count() as u32;\n    for i in 0..999 {\n        \
                  x = if x % 3 == 0 { x / 3 } else { x.wrapping_mul(7) ^ i };\n    }\n    \
                  std::process::exit(i32::from(x == 7));\n}\n";
    std::fs::create_dir_all(reader.folder.path().join("hot/src")).unwrap();
    std::fs::write(reader.folder.path().join("hot/src/main.rs"), source).unwrap();
    let manifest = "[package]\nname = \"hot\"\nedition = \"2024\"\n";
    std::fs::write(reader.folder.path().join("hot/Cargo.toml"), manifest).unwrap();
    let out = reader.run(&format!("set -e; cd hot; {}", recipe.replace("NAME", "hot")));
    if out_of_reach(&out) {
        return;
    }
    assert!(out.status.success(), "{}", text(&out.stderr));
    let profile = std::fs::read_to_string(reader.folder.path().join("hot/perf.prof")).unwrap();
    assert!(profile.contains("main"), "{profile}");
}
