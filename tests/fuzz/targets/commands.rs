//! Files that commands read line by line: `lbr decode`, `lbr verify --diff`.
//! The commands are those of the program; their output is discarded.
#![no_main]

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static FILES: LazyLock<[PathBuf; 2]> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join(format!("lbr-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a private directory");
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
    let write = |path, bytes: &[u8]| std::fs::write(path, bytes).expect("a private file");
    let mut words = vec!["lbr"];
    if option & 2 == 0 {
        write(one, bytes);
        words.extend(["decode", one.to_str().expect("UTF-8")]);
        words.extend(LAYOUTS[usize::from(option >> 4)]);
    } else {
        // Two reports with a form feed between them.
        let mut reports = bytes.splitn(2, |byte| *byte == 0x0C);
        write(one, reports.next().unwrap_or_default());
        write(other, reports.next().unwrap_or(bytes));
        words.extend(["verify", "--diff"]);
        words.extend([one, other].map(|path| path.to_str().expect("UTF-8")));
    }
    words.extend(json.then_some("--json"));
    let _ = lbr_commands::run(words.into_iter().map(OsString::from));
});
