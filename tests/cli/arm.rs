//! `lbr dump --arm` and `lbr disarm` if nothing can be armed: their messages and exit status.
//! Arming itself is tested in tests/guest.

use std::fs;

use crate::support::lbr::lbr;

fn refused(args: &[&str], status: i32, word: &str) {
    let output = lbr(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {stderr}");
    assert!(stderr.contains(word), "{args:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{args:?}");
}

#[test]
fn bad_usage_is_refused() {
    refused(&["dump", "--for", "5"], 2, "--arm");
    refused(&["dump", "--", "true"], 2, "--arm");
    refused(&["dump", "--arm", "everything"], 2, "everything");
    refused(&["dump", "--arm", "any", "--soft-cpu", "zen4"], 2, "give a program");
    refused(&["disarm", "--soft-cpu", "zen4"], 2, "software LBR");
    refused(&["disarm", "-C", "1-"], 2, "0-3,6");
}

/// A tree with msr-safe instead of the msr driver, and a Haswell's CPUID.
#[test]
fn missing_lines_of_the_msr_safe_allowlist_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let cpu = dir.path().join("dev/cpu");
    fs::create_dir_all(cpu.join("0")).unwrap();
    fs::create_dir_all(dir.path().join("sys/devices/system/cpu/cpu0")).unwrap();
    for node in ["0/msr_safe", "msr_batch"] {
        fs::write(cpu.join(node), [0; 0x2000]).unwrap();
    }
    let cpuid = dir.path().join("cpuid.txt");
    fs::write(
        &cpuid,
        "CPU:\n\
         0x00000000 0x00: eax=0x00000006 ebx=0x756e6547 ecx=0x6c65746e edx=0x49656e69\n\
         0x00000001 0x00: eax=0x000306c3 ebx=0x00000000 ecx=0x00008000 edx=0x00000000\n",
    )
    .unwrap();
    let (root, cpuid) = (dir.path().to_str().unwrap(), cpuid.to_str().unwrap());
    let place = ["--backend", "msr-safe", "--msr-root", root, "--cpuid", cpuid];
    let dump = |more: &[&'static str]| [&["dump"][..], &place[..], more].concat();

    fs::write(cpu.join("msr_allowlist"), "").unwrap();
    refused(&dump(&[]), 4, "0x00000345 0x0000000000000000");
    // As shipped: read-only. Reading works, arming reports what is missing.
    let listed = [0x345, 0x1C8, 0x1C9, 0x1D9].into_iter().chain(0x680..0x690).chain(0x6C0..0x6D0);
    let list: String = listed.map(|msr| format!("{msr:#x} 0x0\n")).collect();
    fs::write(cpu.join("msr_allowlist"), list).unwrap();
    let arm = dump(&["--arm", "any,u", "--perf-capabilities", "4"]);
    refused(&arm, 4, "\n0x000001d9 0x0000000000000001\n");
    refused(&arm, 4, "\n0x000006cf 0xffffffffffffffff");
    let disarm = [&["disarm", "-C", "0"][..], &place[..]].concat();
    let output = lbr(&disarm);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "CPU 0: recording was off (0x1d9 = 0x0, filter 0x1c8 = 0x0): nothing to do\n"
    );
}

/// A tree with contents in registers 174H and up, and an unknown CPU: treating these as a ring
/// would clear SYSENTER's registers.
#[test]
fn registers_other_than_branch_records_are_never_written() {
    let dir = tempfile::tempdir().unwrap();
    let cpu = dir.path().join("dev/cpu/0");
    fs::create_dir_all(&cpu).unwrap();
    fs::create_dir_all(dir.path().join("sys/devices/system/cpu/cpu0")).unwrap();
    let mut registers = vec![0_u8; 1 << 16];
    registers[0x174..0x188].fill(0xAA);
    fs::write(cpu.join("msr"), &registers).unwrap();
    let cpuid = dir.path().join("cpuid.txt");
    fs::write(
        &cpuid,
        "CPU:\n\
         0x00000000 0x00: eax=0x00000006 ebx=0x756e6547 ecx=0x6c65746e edx=0x49656e69\n\
         0x00000001 0x00: eax=0x000a06f3 ebx=0x00000000 ecx=0x00008000 edx=0x00000000\n",
    )
    .unwrap();
    let (root, cpuid) = (dir.path().to_str().unwrap(), cpuid.to_str().unwrap());
    let place = ["--backend", "msr", "--msr-root", root, "--cpuid", cpuid];
    let place = [&place[..], &["--perf-capabilities", "5"]].concat();
    for assume in [
        "depth=4,from=174,to=c00,info=0,tos=1c9,select=1c8,format=5",
        "depth=4,from=680,to=174,info=dc0,tos=1c9,select=1c8,format=5",
        "depth=4,from=680,to=6c0,info=174,tos=1c9,select=1c8,format=5",
        "depth=4,from=680,to=6c0,info=dc0,tos=1c9,select=174,format=5",
        "depth=64,from=680,to=6c0,info=dc0,tos=1c9,select=1c8,format=5",
    ] {
        let given = [&place[..], &["--assume", assume]].concat();
        refused(
            &[&["dump", "--arm", "any,u", "--for", "5"], &given[..]].concat(),
            2,
            "is not a known branch-record register",
        );
        refused(&[&["disarm", "-C", "0"], &given[..]].concat(), 2, "never writes it");
        assert_eq!(fs::read(cpu.join("msr")).unwrap(), registers, "{assume}");
    }
    // Reading is permitted.
    let assume = "depth=4,from=174,to=178,info=17c,tos=1c9";
    let dump = [&["dump"], &place[..], &["--assume", assume]].concat();
    let output = lbr(&dump);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}
