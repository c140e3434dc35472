//! Files that commands read line by line: `lbr decode`, `lbr verify --diff`.
//! The commands are the program's own; what they print is thrown away.
#![no_main]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::{Args, Command, FromArgMatches};
use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "what other commands print with is there too")]
#[path = "../../../cli/src/commands/decode.rs"]
mod decode;
#[path = "../../../cli/src/commands/verify/diff.rs"]
mod diff;
#[allow(dead_code, reason = "not every command is here")]
#[path = "../../../cli/src/exit.rs"]
mod exit;
#[path = "../../../cli/src/present/json.rs"]
mod json;
#[path = "../../../cli/src/commands/number.rs"]
mod number;
mod present {
    pub(crate) use crate::json;
}

/// What `lbr verify` has for its reports: here there is standard output alone.
fn to_file(
    _: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), exit::Failure> {
    Ok(write(&mut std::io::stdout().lock())?)
}

static FILES: LazyLock<[PathBuf; 2]> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join(format!("lbr-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder of our own");
    [dir.join("one"), dir.join("other")]
});

const LAYOUTS: [&[&str]; 16] = [
    &["--format", "0"],
    &["--format", "1"],
    &["--format", "2"],
    &["--format", "3"],
    &["--format", "4"],
    &["--format", "5"],
    &["--format", "6"],
    &["--format", "7", "--no-tsx"],
    &["--facility", "arch"],
    &["--facility", "arch", "--caps", "4000ff,7,3"],
    &["--facility", "amd_v2", "--virt-bits", "57"],
    &["--facility", "amd_brs"],
    &["--facility", "amd_single"],
    &["--facility", "brbe"],
    &["--facility", "pm"],
    &["--facility", "netburst"],
];

fuzz_target!(|bytes: &[u8]| {
    let Some((&option, bytes)) = bytes.split_first() else { return };
    let json = option & 1 == 1;
    let [one, other] = &*FILES;
    let write = |path, bytes: &[u8]| std::fs::write(path, bytes).expect("a file of our own");
    if option & 2 == 0 {
        write(one, bytes);
        let mut words = vec!["decode", one.to_str().expect("UTF-8")];
        words.extend(LAYOUTS[usize::from(option >> 4)]);
        words.extend(json.then_some("--json"));
        let command = decode::DecodeArgs::augment_args(Command::new("decode"));
        let matches = command.try_get_matches_from(words).expect("arguments of our own");
        let args = decode::DecodeArgs::from_arg_matches(&matches).expect("all of them");
        let _ = decode::run(args);
        return;
    }
    // Two reports with a form feed between them.
    let mut reports = bytes.splitn(2, |byte| *byte == 0x0C);
    write(one, reports.next().unwrap_or_default());
    write(other, reports.next().unwrap_or(bytes));
    let _ = diff::run(one, other, json.then_some(Path::new("-")));
});
