//! `lbr dump`.

use serde_json::{Value, json};

use crate::support::lbr::{command, done, lbr};
use crate::support::skip::{skipped, tool};

/// A software ring before anything was recorded: its registers, all empty.
#[test]
fn an_empty_lbr_stack() {
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

/// The pointer of BRS is one after its newest record (0: the last of 16).
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

/// An unknown model: the user gives the registers, 345H gives the format.
#[test]
fn the_register_completes_an_assumption() {
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
    // Unusable options are the user's error, not a CPU without records.
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
    // For a guest without LBR, that is reported before its missing driver.
    std::fs::write(&cpuid, text("0x80000000")).unwrap();
    refused(&from_file, 3, "hypervisor");
}

/// The ring of a program without any hardware: three branches, by hand.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn a_software_lbr_of_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("three.S");
    // Five bytes of call, five of mov, two of xor, two of syscall.
    let text = ".globl _start\n.text\n_start: jmp 1f\n.fill 14,1,0x90\n1: call 2f\nmov $60,%eax\n\
                xor %edi,%edi\nsyscall\n2: ret\n.section .note.GNU-stack,\"\",@progbits\n";
    std::fs::write(&source, text).unwrap();
    let program = folder.path().join("three");
    let built = tool("cc")
        .args(["-nostdlib", "-static", "-no-pie", "-Wl,-Ttext=0x401000", "-o"])
        .args([&program, &source])
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return skipped("no C compiler (cc)");
    }
    let wanted = [("0x40101e", "0x401015"), ("0x401010", "0x40101e"), ("0x401000", "0x401010")];
    let cpus = ["skylake", "core2", "zen4", "golden-cove", "nehalem"];
    let has_qemu = sampler::source::qemu::Qemu::find().is_ok();
    // Through QEMU where it is, and through ptrace, which needs no program from PATH.
    for (cpu, with_path) in cpus.map(|cpu| (cpu, true)).into_iter().chain([("skylake", false)]) {
        let args = ["dump", "--soft-cpu", cpu, "--arm", "any,u", "--json", "--"];
        let mut command = command(&[&args[..], &[program.to_str().unwrap()]].concat());
        if !with_path {
            command.env("PATH", folder.path());
        }
        let out = command.output().unwrap();
        if out.status.code() != Some(0) {
            return skipped(String::from_utf8_lossy(&out.stderr));
        }
        let said = String::from_utf8_lossy(&out.stderr);
        let through = if with_path && has_qemu { "QEMU running" } else { "single-stepping" };
        assert!(said.contains(&format!("a software LBR, fed by {through} the first")), "{said}");
        let text = String::from_utf8(out.stdout).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let ends = |line: &Value| (line["from"].clone(), line["to"].clone());
        let found: Vec<_> =
            lines[1..].iter().filter(|line| line["empty"] != true).map(ends).collect();
        assert_eq!(found, wanted.map(|(from, to)| (json!(from), json!(to))), "{cpu}");
        assert_eq!(lines[0]["recording"], false);
        // Single-stepping shows neither, and the registers hold 0.
        for line in &lines[1..4] {
            assert_eq!((&line["mispredicted"], &line["cycles"]), (&Value::Null, &Value::Null));
        }
    }
    for (args, code) in [
        (&["--soft-cpu", "skylake", "--arm", "any,u"][..], 2),
        (&["--soft-cpu", "skylake", "--arm", "any,k", "--", "true"], 2),
        (&["--soft-cpu", "nehalem", "--arm", "stack,u", "--", "true"], 3),
    ] {
        assert_eq!(lbr(&[&["dump"], args].concat()).status.code(), Some(code), "{args:?}");
    }
}

/// Every CPU and every lie, in every place of the options.
#[test]
fn software_cpus_are_listed() {
    let cpus = done(&["dump", "--soft-cpu", "list"]);
    for cpu in lbr_msr::soft::SoftCpu::all() {
        assert!(cpus.lines().any(|line| line.starts_with(&cpu.key)), "{}", cpu.key);
    }
    assert!(cpus.contains("golden-cove") && cpus.contains("zen4"));
    assert_eq!(done(&["verify", "--soft-cpu=list"]), cpus);
    let lies = done(&["verify", "--soft-lie", "list"]);
    for fault in lbr_msr::soft::Fault::all() {
        assert!(lies.lines().any(|line| line.starts_with(fault.name())), "{fault}");
    }
    assert_eq!(lbr(&["report", "--soft-cpu", "list"]).status.code(), Some(2));
}
