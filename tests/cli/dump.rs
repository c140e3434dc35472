//! `lbr dump` as a user runs it.

use serde_json::{Value, json};

use crate::support::lbr::lbr;

/// A software ring before anything was recorded: its registers, all empty.
#[test]
fn an_empty_ring() {
    for (cpu, depth) in [("skylake", 32), ("core2", 4), ("zen4", 16), ("06_8F", 32)] {
        let output = lbr(&["dump", "--soft-cpu", cpu, "--json"]);
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), depth + 1, "{cpu}");
        assert_eq!((&lines[0]["schema"], &lines[0]["torn"]), (&json!(1), &json!(false)));
        assert_eq!(lines[0]["depth"], depth);
        for line in &lines[1..] {
            assert_eq!((&line["empty"], &line["raw_from"]), (&json!(true), &json!("0x0")));
        }
    }
}

/// The pointer of BRS stands behind its newest record (0: the last of 16).
#[test]
fn the_newest_slot_is_named() {
    for (cpu, told) in
        [("zen3", "MSROFF = 0x0 (newest: slot 15)"), ("skylake", "TOS = 0x0 (newest: slot 0)")]
    {
        let output = lbr(&["dump", "--soft-cpu", cpu]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(told), "{text}");
    }
    let output = lbr(&["dump", "--soft-cpu", "zen3", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!((&header["tos"], &header["msroff"]), (&Value::Null, &json!(0)));
}

/// A model that nobody knows: the user names the registers, 345H the format.
#[test]
fn what_is_assumed_is_completed_by_the_register() {
    use std::os::unix::fs::FileExt as _;

    let dir = tempfile::tempdir().unwrap();
    let node = dir.path().join("dev/cpu/0/msr");
    std::fs::create_dir_all(node.parent().unwrap()).unwrap();
    let registers = std::fs::File::create(&node).unwrap();
    // PERF_CAPABILITIES: format 3; DEBUGCTL: off; one record.
    for (msr, value) in [
        (0x345, 3u64),
        (0x1D9, 0),
        (0x1000, 0x8000_0000_0040_1000),
        (0x1010, 0xFFFF_FFFF_8100_0000),
    ] {
        registers.write_all_at(&value.to_le_bytes(), msr).unwrap();
    }
    let cpuid = dir.path().join("cpuid.txt");
    let text = "CPU:\n\
        0x00000000 0x00: eax=0x00000006 ebx=0x756e6547 ecx=0x6c65746e edx=0x49656e69\n\
        0x00000001 0x00: eax=0x000f06f0 ebx=0x00000000 ecx=0x00008000 edx=0x00000000\n";
    std::fs::write(&cpuid, text).unwrap();
    let root = dir.path().to_str().unwrap();
    let dump = |assumed: &str| {
        let cpuid = cpuid.to_str().unwrap();
        lbr(&["dump", "--json", "--cpuid", cpuid, "--msr-root", root, "--assume", assumed])
    };
    let output = dump("depth=1,from=1000,to=1010");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    let record: Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
    assert_eq!((&record["from"], &record["mispredicted"]), (&json!("0x401000"), &json!(true)));
    assert_eq!(record["to"], "0xffffffff81000000");
    // What cannot be used is the user's slip, not a CPU without records.
    assert_eq!(dump("06_FF").status.code(), Some(2));
    registers.write_all_at(&5u64.to_le_bytes(), 0x345).unwrap();
    assert_eq!(dump("depth=1,from=1000,to=1010").status.code(), Some(2));
}

#[test]
fn refusals_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    let cpuid = dir.path().join("cpuid.txt");
    let text = |ecx: &str| {
        format!(
            "CPU:\n\
             0x00000000 0x00: eax=0x00000006 ebx=0x756e6547 ecx=0x6c65746e edx=0x49656e69\n\
             0x00000001 0x00: eax=0x000506e3 ebx=0x00000000 ecx={ecx} edx=0x00000000\n"
        )
    };
    let skylake = cpuid.to_str().unwrap();
    std::fs::write(&cpuid, text("0x00008000")).unwrap();
    let refused = |args: &[&str], status: i32, word: &str| {
        let output = lbr(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {stderr}");
        assert!(stderr.contains(word), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty());
    };
    refused(&["dump", "--backend", "soft"], 2, "--soft-cpu");
    refused(&["dump", "--backend", "msr", "--soft-cpu", "zen4"], 2, "--soft-cpu");
    refused(&["dump", "-C", "100000"], 2, "does not exist");
    let from_file = ["dump", "--cpuid", skylake, "--msr-root", root];
    refused(&from_file, 2, "does not exist");
    std::fs::create_dir_all(dir.path().join("sys/devices/system/cpu/cpu0")).unwrap();
    refused(&from_file, 3, "modprobe msr");
    // A guest without LBR is told before its missing driver.
    std::fs::write(&cpuid, text("0x80000000")).unwrap();
    refused(&from_file, 3, "hypervisor");
}
