//! `scripts/verify-hardware`: one report about any machine.

use std::path::Path;
use std::process::Command;

use crate::support::lbr::{lbr, wrapper};

#[test]
fn it_writes_one_report_on_any_machine() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.md");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/verify-hardware");
    let run = Command::new(&script)
        .arg("-o")
        .arg(&report)
        .env("LBR", wrapper(folder.path()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    let text = std::fs::read_to_string(&report).unwrap_or_else(|error| panic!("{error}: {said}"));
    for part in ["## lbr probe", "## lbr doctor", "## lbr verify", "registers written: no"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    // It ends like `lbr verify`, and gives the reason if there is no LBR.
    let verify = lbr(&["verify"]);
    assert_eq!(run.status.code(), verify.status.code(), "{said}");
    if run.status.code() == Some(3) {
        assert!(said.contains("there are no branch records to verify here: "), "{said}");
    }
    let host = host_name();
    assert!(host.is_empty() || !text.contains(&host), "the machine's name is in {text}");
    let digits = text
        .split("0x")
        .skip(1)
        .map(|rest| rest.chars().take_while(char::is_ascii_hexdigit).count());
    assert!(digits.max().unwrap_or(0) <= 8, "an address is in {text}");
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // A name such as `linux` or `localhost` is not a secret, but a common word.
    Some(name.trim()).filter(|name| name.len() > 9).unwrap_or_default().to_owned()
}

#[test]
fn bad_usage_is_an_error() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/verify-hardware");
    let run = Command::new(&script).arg("--no-such").output().unwrap();
    assert_eq!(run.status.code(), Some(2));
    let help = Command::new(&script).arg("--help").output().unwrap();
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("scripts/verify-hardware [--write]"));
}
