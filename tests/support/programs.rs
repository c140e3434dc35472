//! Programs built from `tests/programs`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSymbol};
use sampler::source::Command;

use super::skip::{skipped, tool};

/// A program in a temporary folder.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    _folder: tempfile::TempDir,
    labels: HashMap<String, u64>,
}

/// Builds `tests/programs/NAME`; `None`, after a skip message, without a compiler.
pub(crate) fn build(name: &str, flags: &[&str]) -> Option<Program> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/programs").join(name);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("program");
    let compile =
        |flags: &[&str]| tool("cc").args(flags).arg("-o").arg(&path).arg(&source).status();
    let Ok(mut status) = compile(flags) else {
        skipped(format_args!("no C compiler (cc) to build {name}"));
        return None;
    };
    if !status.success() && flags.contains(&"-static") {
        // Not every system has a static libc; this is slower.
        let dynamic = flags.iter().map(|&flag| if flag == "-static" { "-no-pie" } else { flag });
        status = compile(&dynamic.collect::<Vec<_>>()).expect("it was there a moment ago");
    }
    assert!(status.success(), "cc {name}: {status}");
    let bytes = std::fs::read(&path).expect("the program");
    let file = object::File::parse(&*bytes).expect("ELF");
    let labels = file
        .symbols()
        .filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.address())))
        .collect();
    Some(Program { path, _folder: folder, labels })
}

/// For assembly without libc, at fixed addresses.
pub(crate) const BARE: &[&str] = &["-nostdlib", "-static", "-no-pie"];

impl Program {
    /// The address of a symbol in the file.
    #[track_caller]
    pub(crate) fn at(&self, label: &str) -> u64 {
        *self.labels.get(label).unwrap_or_else(|| panic!("no symbol {label}"))
    }

    /// The address of a symbol, if it exists.
    pub(crate) fn label(&self, label: &str) -> Option<u64> {
        self.labels.get(label).copied()
    }

    pub(crate) fn name(&self) -> &str {
        self.path.to_str().expect("UTF-8")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        Command {
            program: self.path.to_str().expect("UTF-8").to_owned(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            ..Command::default()
        }
    }
}
