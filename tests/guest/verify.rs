//! `lbr verify` on the test machine: real code, with registers accessed through a real kernel's msr
//! driver. A correct CPU passes, each lie is found as the only cause, and every register is
//! restored, however the run ends.
//!
//! Runs if LBR_TEST_MACHINE names the folder of the test machine; otherwise prints a message and
//! passes. LBR_TEST_EVERY_LIE=1 tries every lie on every CPU.

use std::path::Path;
use std::process::Command;

use lbr_msr::soft::{Fault, SoftCpu};
use serde_json::Value;

use super::guest_record::top;
use crate::support::faults;

use crate::support::skip::{skipped, tool};

/// The check that finds a lie on real code, and words of its message.
fn root(lie: Fault) -> (&'static str, &'static str) {
    match lie {
        // The kernel's branches leave nothing else in the ring.
        Fault::IgnoresRing0 => ("recording", "into ring 0 recorded although suppressed"),
        other => faults::root(other),
    }
}

/// The lies that a guest of this CPU can show.
fn lies(cpu: &SoftCpu) -> Vec<Fault> {
    Fault::all()
        .filter(|lie| faults::applies(*lie, &cpu.caps, cpu.perf_capabilities.is_some()))
        .collect()
}

/// Runs tests/guest/verify.sh. `false`, with a message, if the machine is not available.
fn run(cpu: &str, lies: &[Fault], kills: u32, out: &Path) -> bool {
    if std::env::var_os("LBR_TEST_MACHINE").is_none() {
        skipped(
            "LBR_TEST_MACHINE names no folder of the test machine; \
             scripts/test-machine fetch makes one",
        );
        return false;
    }
    let registers = out.join("registers");
    let compiled = tool("cc")
        .args(["-static", "-O1", "-o"])
        .args([&registers, &top().join("tests/guest/registers.c")])
        .status();
    match compiled {
        Ok(status) => assert!(status.success(), "registers.c"),
        Err(error) => {
            skipped(format_args!("no C compiler: {error}"));
            return false;
        }
    }
    let names: Vec<&str> = lies.iter().map(|lie| lie.name()).collect();
    let run = Command::new(top().join("scripts/test-machine"))
        .args(["run", "--cpu", cpu, "--threads", "2", "--timeout", "600", "--out"])
        .arg(out.join("results"))
        .arg("--file")
        .arg(&registers)
        .arg("--file")
        .arg(top().join("tests/guest/lib.sh"))
        .args(["--env", &format!("CPU={cpu}"), "--env", &format!("KILLS={kills}")])
        .args(["--env", &format!("LIES={}", names.join(" ")), "--script"])
        .arg(top().join("tests/guest/verify.sh"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    if run.status.code() == Some(3) {
        skipped(said);
        return false;
    }
    let printed = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.status.success(), "{cpu}: {printed}{said}");
    true
}

/// The exit status of a verification, and its checks.
fn outcome(out: &Path, name: &str) -> (i32, Vec<Value>) {
    let read = |ending: &str| {
        let path = out.join("results").join(format!("{name}.{ending}"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let lines: Vec<Value> =
        read("json").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let status = read("status").trim().parse().unwrap();
    assert!(!lines.is_empty(), "{name}: {}", read("err"));
    (status, lines.into_iter().filter(|line| line.get("check").is_some()).collect())
}

/// `check: found` of those with a verdict.
fn with_verdict(checks: &[Value], verdict: &str) -> Vec<String> {
    let found = checks.iter().filter(|check| check["verdict"] == verdict);
    found
        .map(|check| {
            let said = if check["found"].is_null() { &check["why"] } else { &check["found"] };
            format!("{}: {}", check["check"].as_str().unwrap(), said.as_str().unwrap_or("-"))
        })
        .collect()
}

/// A sound CPU, then each of these lies.
fn verify(name: &str, wanted: &[Fault], kills: u32) {
    let cpu = SoftCpu::preset(name).unwrap();
    let applying = lies(&cpu);
    let every = std::env::var_os("LBR_TEST_EVERY_LIE").is_some();
    let wanted = if every || wanted.is_empty() { &applying[..] } else { wanted };
    for lie in wanted {
        assert!(applying.contains(lie), "{lie} on {name}");
    }
    let out = tempfile::tempdir().unwrap();
    if !run(name, wanted, kills, out.path()) {
        return;
    }
    let (status, checks) = outcome(out.path(), "none");
    assert_eq!(with_verdict(&checks, "differs"), Vec::<String>::new(), "a sound {name}");
    assert_eq!(with_verdict(&checks, "cannot_tell"), Vec::<String>::new(), "a sound {name}");
    assert!(with_verdict(&checks, "as_documented").len() >= 25, "{name}");
    assert_eq!(status, 0, "a sound {name}");
    let (status, checks) = outcome(out.path(), "reads");
    assert_eq!(with_verdict(&checks, "differs"), Vec::<String>::new(), "{name} by reading");
    assert_eq!(status, 0, "{name} by reading");
    for lie in wanted {
        let (status, checks) = outcome(out.path(), lie.name());
        let found = with_verdict(&checks, "differs");
        let (check, words) = root(*lie);
        assert_eq!(found.len(), 1, "{lie} on {name}: {found:?}");
        assert!(found[0].starts_with(&format!("{check}: ")), "{lie} on {name}: {found:?}");
        assert!(found[0].contains(words), "{lie} on {name}: {found:?}");
        assert_eq!(status, 1, "{lie} on {name}");
    }
}

#[test]
fn guest_verify_finds_every_fault_of_a_legacy_lbr() {
    verify("06_5E", &[], 24);
}

#[test]
fn guest_verify_finds_every_fault_of_architectural_lbr() {
    verify("06_8F", &[], 12);
}

#[test]
fn guest_verify_finds_every_fault_of_lbrextv2() {
    verify("19_11", &[], 12);
}

#[test]
fn guest_verify_finds_faults_of_other_generations() {
    verify(
        "06_1A",
        &[Fault::SelectSharing, Fault::MispredictNever, Fault::HalfDepth, Fault::CStateWipe],
        6,
    );
    verify(
        "06_3C",
        &[
            Fault::DoubleAbort,
            Fault::TsxNever,
            Fault::LerToUnsigned,
            Fault::FromWriteChecksFlags,
            Fault::PushesZeroLengthCalls,
        ],
        6,
    );
    verify("06_5C", &[Fault::CyclesConstant, Fault::CyclesWrap, Fault::NoSignExtension], 6);
    verify("06_7A", &[Fault::NoInfo, Fault::FormatCode, Fault::TosOffByOne], 6);
}
