//! `lbr doctor` on simulated machines: CPUID from a preset, `/dev`, `/sys` and `/proc` from a
//! directory.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::lbr::{lbr, stdout};

/// A machine without problems: the msr driver loaded, all capabilities, no lockdown, recording off.
fn machine() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    put(&dir, "sys/devices/system/cpu/online", "0\n");
    put(&dir, "sys/devices/system/cpu/cpu0/online", "1\n");
    put(&dir, "sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL\n");
    put(&dir, "sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C6\n");
    put(&dir, "dev/cpu_dma_latency", "");
    put(&dir, "sys/module/msr/parameters/allow_writes", "default\n");
    put(&dir, "sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
    put(&dir, "proc/self/status", "Name:\tlbr\nCapEff:\t000001ffffffffff\n");
    put(&dir, "dev/cpu/0/msr", "");
    for register in [0x1C8, 0x1D9, 0x570] {
        set(&dir, register, 0);
    }
    dir
}

fn put(dir: &TempDir, path: &str, text: &str) {
    let path = dir.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Gives a register a value. Registers less than eight apart share bytes of the file that simulates
/// the device.
fn set(dir: &TempDir, register: u64, value: u64) {
    let node = fs::OpenOptions::new().write(true).open(dir.path().join("dev/cpu/0/msr")).unwrap();
    node.write_all_at(&value.to_le_bytes(), register).unwrap();
}

/// The checks by name, and the exit status.
fn doctor(root: &Path, cpu: &str) -> (Vec<Value>, i32) {
    let args = ["doctor", "--json", "--soft-cpu", cpu, "--msr-root", root.to_str().unwrap()];
    let output = lbr(&args);
    let text = stdout(&output);
    let checks = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (checks, output.status.code().unwrap())
}

#[track_caller]
fn check<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("no {name}"))
}

#[track_caller]
fn verdict(checks: &[Value], name: &str) -> String {
    check(checks, name)["verdict"].as_str().unwrap().to_owned()
}

/// Makes the kernel list counters with branch stacks, for ordinary users at this level.
fn give_perf(dir: &TempDir, level: &str) {
    put(dir, "sys/bus/event_source/devices/cpu/type", "4\n");
    put(dir, "sys/bus/event_source/devices/cpu/caps/branches", "32\n");
    put(dir, "proc/sys/kernel/perf_event_paranoid", level);
}

#[test]
fn everything_in_order() {
    let machine = machine();
    give_perf(&machine, "3\n");
    let (checks, status) = doctor(machine.path(), "skylake");
    assert_eq!(status, 0, "{checks:#?}");
    for check in &checks {
        assert_eq!(check["verdict"], "ok", "{check}");
    }
    assert_eq!(check(&checks, "backends")["finding"], "msr, perf, soft");
    let idle = check(&checks, "idle states")["finding"].as_str().unwrap();
    assert!(idle.contains("C6") && !idle.contains("POLL"), "{idle}");
}

#[test]
fn each_obstacle_has_its_status_and_remedy() {
    type Change = fn(&TempDir);
    let cases: [(&str, i32, &str, Change); 8] = [
        ("msr module", 3, "modprobe msr", |m| {
            fs::remove_dir_all(m.path().join("sys/module")).unwrap();
            fs::remove_file(m.path().join("dev/cpu/0/msr")).unwrap();
        }),
        ("msr node", 3, "", |m| {
            fs::remove_file(m.path().join("dev/cpu/0/msr")).unwrap();
        }),
        ("CAP_SYS_RAWIO", 4, "setcap cap_sys_rawio+ep", |m| {
            put(m, "proc/self/status", "CapEff:\t000001fffffdffff\n");
        }),
        ("lockdown", 4, "msr-safe", |m| {
            put(m, "sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        }),
        ("allow_writes", 4, "echo on", |m| {
            put(m, "sys/module/msr/parameters/allow_writes", "off\n");
        }),
        ("other users", 0, "end perf sessions", |m| set(m, 0x1D9, 1)),
        ("other users", 0, "end perf sessions", |m| set(m, 0x1D9, 1 << 11)),
        ("other users", 0, "end perf sessions", |m| set(m, 0x1C8, 1)),
    ];
    for (name, expected, remedy, change) in cases {
        let machine = machine();
        change(&machine);
        let (checks, status) = doctor(machine.path(), "skylake");
        assert_eq!(status, expected, "{name}: {checks:#?}");
        assert_eq!(verdict(&checks, name), "bad");
        let told = check(&checks, name)["remedy"].as_str().unwrap_or_default();
        assert!(told.contains(remedy), "{name}: {told}");
        // It always ends with what still works.
        assert_eq!(checks.last().unwrap()["check"], "software LBR");
        let backends = check(&checks, "backends")["finding"].as_str().unwrap();
        assert_eq!(backends == "msr, soft", expected == 0, "{name}: {backends}");
    }
}

#[test]
fn no_lbr_comes_before_no_permission() {
    let machine = machine();
    put(&machine, "proc/self/status", "CapEff:\t0000000000000000\n");
    let (checks, status) = doctor(machine.path(), "core2");
    assert_eq!(status, 3);
    assert_eq!(verdict(&checks, "recording"), "bad");
    assert_eq!(verdict(&checks, "CAP_SYS_RAWIO"), "bad");
    for cpu in ["zen3", "prescott", "pentium-pro"] {
        assert_eq!(doctor(machine.path(), cpu).1, 3, "{cpu}");
    }
    assert_eq!(doctor(machine.path(), "haswell").1, 4);
}

/// Without information from the kernel, nothing is claimed.
#[test]
fn unknown_checks_are_not_ok() {
    let machine = machine();
    fs::remove_dir_all(machine.path().join("proc")).unwrap();
    fs::remove_dir_all(machine.path().join("sys/kernel")).unwrap();
    fs::remove_dir_all(machine.path().join("sys/module")).unwrap();
    fs::remove_dir_all(machine.path().join("sys/devices/system/cpu/cpu0/cpuidle")).unwrap();
    let (checks, status) = doctor(machine.path(), "skylake");
    assert_eq!(status, 0);
    for name in ["CAP_SYS_RAWIO", "lockdown", "allow_writes", "idle states", "perf"] {
        assert_eq!(verdict(&checks, name), "unknown");
    }
}

/// A fix never names a command that this program lacks.
#[test]
fn remedies_name_commands_that_exist() {
    let machine = machine();
    set(&machine, 0x1C8, 0x101);
    let (mut checks, _) = doctor(machine.path(), "skylake");
    assert_eq!(verdict(&checks, "other users"), "bad");
    fs::remove_dir_all(machine.path().join("dev")).unwrap();
    checks.extend(doctor(machine.path(), "skylake").0);
    let mut named = 0;
    for remedy in checks.iter().filter_map(|check| check["remedy"].as_str()) {
        let words: Vec<&str> = remedy.split_whitespace().collect();
        for pair in words.windows(2).filter(|pair| pair[0] == "lbr") {
            assert!(lbr(&[pair[1], "--help"]).status.success(), "{remedy}");
            named += 1;
        }
    }
    assert!(named > 0);
}

/// msr-safe needs neither the driver nor its rights, but a list that allows it.
#[test]
fn msr_safe_makes_up_for_the_driver() {
    let machine = machine();
    put(&machine, "proc/self/status", "CapEff:\t0000000000000000\n");
    put(&machine, "dev/cpu/0/msr_safe", "");
    put(&machine, "dev/cpu/msr_allowlist", "0x000001d9 0x0000000000000000\n0x00000680 0x0\n");
    let (checks, status) = doctor(machine.path(), "skylake");
    assert_eq!((status, verdict(&checks, "msr-safe").as_str()), (4, "bad"));
    put(
        &machine,
        "dev/cpu/msr_allowlist",
        "# LBR\n0x000001d9 0x0000000000000001 # control\n0x00000680 0x0\n",
    );
    let (checks, status) = doctor(machine.path(), "skylake");
    assert_eq!((status, verdict(&checks, "msr-safe").as_str()), (0, "ok"));
    assert_eq!(check(&checks, "backends")["finding"], "msr-safe, soft");
}

/// Through perf events an ordinary user records without the driver, under lockdown, if the level
/// permits it.
#[test]
fn perf_makes_up_for_the_registers() {
    let machine = machine();
    put(&machine, "sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
    fs::remove_dir_all(machine.path().join("sys/module")).unwrap();
    fs::remove_dir_all(machine.path().join("dev")).unwrap();
    let user = |level: &str, capabilities: &str| {
        give_perf(&machine, level);
        put(&machine, "proc/self/status", &format!("CapEff:\t{capabilities}\n"));
        doctor(machine.path(), "skylake")
    };
    let none = "0000000000000000";
    for (level, capabilities, found) in [
        ("2\n", none, "branch stacks of 32: own programs, without the kernel"),
        ("1\n", none, "branch stacks of 32: own programs, with the kernel"),
        ("-1\n", none, "branch stacks of 32: any program, the kernel, whole CPUs"),
        // CAP_PERFMON, then CAP_SYS_ADMIN.
        ("4\n", "0000004000000000", "branch stacks of 32: any program, the kernel, whole CPUs"),
        ("3\n", "0000000000200000", "branch stacks of 32: any program, the kernel, whole CPUs"),
    ] {
        let (checks, status) = user(level, capabilities);
        let told = check(&checks, "perf")["finding"].as_str().unwrap();
        assert!(told.starts_with(found), "{told}");
        assert_eq!((status, verdict(&checks, "perf").as_str()), (0, "ok"), "{checks:#?}");
        assert_eq!(check(&checks, "backends")["finding"], "perf, soft");
    }
    let (checks, status) = user("3\n", none);
    assert_eq!((status, verdict(&checks, "perf").as_str()), (3, "bad"));
    assert_eq!(check(&checks, "backends")["finding"], "soft");
    let remedy = check(&checks, "perf")["remedy"].as_str().unwrap();
    assert!(remedy.contains("kernel.perf_event_paranoid=2"), "{remedy}");
    // Core 2's ring has no filter, and Linux stops it at the interrupt.
    user("2\n", none);
    let (checks, status) = doctor(machine.path(), "core2");
    assert_eq!((status, verdict(&checks, "recording").as_str()), (0, "bad"));
    assert_eq!(check(&checks, "recording")["remedy"], "lbr record --backend perf");
}

#[test]
fn counters_without_branch_stacks_and_none_at_all() {
    let machine = machine();
    let sources = "sys/bus/event_source/devices";
    for (file, found, told) in [
        ("software/type", "bad", "no performance counters"),
        // An old kernel, which does not list the counters' features.
        ("cpu/type", "unknown", "nothing says"),
        ("cpu/caps/pmu_name", "bad", "no branch records"),
        ("cpu/caps/branches", "ok", "branch stacks of 32"),
    ] {
        put(&machine, &format!("{sources}/{file}"), "32\n");
        let (checks, status) = doctor(machine.path(), "skylake");
        let finding = check(&checks, "perf")["finding"].as_str().unwrap();
        assert!(finding.contains(told), "{file}: {finding}");
        assert_eq!((status, verdict(&checks, "perf").as_str()), (0, found), "{file}");
    }
}

/// A guest on AMD: its model has a pair of registers without a CPUID bit, and a single record is
/// not enough to record from. No advice suggests it.
#[test]
fn features_hidden_by_a_hypervisor_are_not_claimed() {
    let machine = tempfile::tempdir().unwrap();
    let cpuid = "CPU:\n\
         0x00000000 0x00: eax=0x00000010 ebx=0x68747541 ecx=0x444d4163 edx=0x69746e65\n\
         0x00000001 0x00: eax=0x00830f10 ebx=0x00000000 ecx=0x80000000 edx=0x00000000\n\
         0x40000000 0x00: eax=0x40000001 ebx=0x4b4d564b ecx=0x564b4d56 edx=0x0000004d\n\
         0x80000000 0x00: eax=0x8000001f ebx=0x00000000 ecx=0x00000000 edx=0x00000000\n";
    put(&machine, "cpuid", cpuid);
    put(&machine, "proc/self/status", "CapEff:\t0000000000000000\n");
    let root = machine.path().to_str().unwrap();
    let output = lbr(&["doctor", "--json", "--msr-root", root]);
    let text = stdout(&output);
    let checks: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert_eq!(verdict(&checks, "hypervisor"), "unknown", "{text}");
    for name in ["msr module", "CAP_SYS_RAWIO"] {
        assert_eq!(verdict(&checks, name), "bad");
        assert!(check(&checks, name)["remedy"].is_null(), "{text}");
    }
}

#[test]
fn the_verdict_comes_first_and_the_checks_with_v() {
    let machine = machine();
    let root = machine.path().to_str().unwrap();
    let text = |more: &[&str]| {
        let args = [&["doctor", "--soft-cpu", "06_5E", "--msr-root", root], more].concat();
        stdout(&lbr(&args))
    };
    let verdict = "Hardware LBR: yes. Skylake, 32 records.\n\
         Recording: through msr, soft\n\
         Reading perf.data from elsewhere: yes\n";
    assert_eq!(text(&[]), verdict);
    let all = text(&["-v"]);
    assert!(all.starts_with(verdict), "{all}");
    assert!(all.contains("\nok  branch records  intel_legacy, depth 32\n"), "{all}");

    set(&machine, 0x1D9, 1);
    assert!(text(&[]).contains("warning: another tool uses the LBR (CPUs 0): "), "{}", text(&[]));

    fs::remove_dir_all(machine.path().join("sys/module")).unwrap();
    fs::remove_file(machine.path().join("dev/cpu/0/msr")).unwrap();
    let blocked = text(&[]);
    let lines: Vec<&str> = blocked.lines().collect();
    assert_eq!(lines[0], "Hardware LBR: not reachable. The msr module is not loaded.");
    assert_eq!(lines[1], "  fix: modprobe msr");
    assert_eq!(lines[2], "Recording: software LBR (no cycles, no mispredicts)");
}

/// A guest of KVM that sees a Skylake without PDCM.
#[test]
fn a_hypervisor_that_hides_the_lbr_is_the_cause() {
    let machine = tempfile::tempdir().unwrap();
    let cpuid = "CPU:\n\
         0x00000000 0x00: eax=0x00000006 ebx=0x756e6547 ecx=0x6c65746e edx=0x49656e69\n\
         0x00000001 0x00: eax=0x000506e3 ebx=0x00000000 ecx=0x80000000 edx=0x00000000\n\
         0x40000000 0x00: eax=0x40000001 ebx=0x4b4d564b ecx=0x564b4d56 edx=0x0000004d\n\
         0x80000000 0x00: eax=0x80000000 ebx=0x00000000 ecx=0x00000000 edx=0x00000000\n";
    put(&machine, "cpuid", cpuid);
    let output = lbr(&["doctor", "--msr-root", machine.path().to_str().unwrap()]);
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(lines[0], "Hardware LBR: no. KVM hides the LBR of this CPU (Skylake).");
    assert!(lines[1].starts_with("  fix: bare metal, or a guest with vPMU and LBR"), "{text}");
}

/// Skylake's LBR is off while Intel PT traces; no source states it for Coffee Lake, where Linux
/// excludes the two; Rocket Lake's works.
#[test]
fn intel_pt() {
    let machine = machine();
    for (trace, signature, expected, found) in [
        (0, "0x000506e3", 0, "ok"),
        (1, "0x000506e3", 3, "bad"),
        (0, "0x000906ea", 0, "ok"),
        (1, "0x000906ea", 3, "bad"),
        (1, "0x000a0671", 0, "ok"),
    ] {
        set(&machine, 0x570, trace);
        let cpuid = format!(
            "CPU:\n\
             0x00000000 0x00: eax=0x00000016 ebx=0x756e6547 ecx=0x6c65746e edx=0x49656e69\n\
             0x00000001 0x00: eax={signature} ebx=0x00000000 ecx=0x00008000 edx=0x00000000\n\
             0x00000007 0x00: eax=0x00000000 ebx=0x02000000 ecx=0x00000000 edx=0x00000000\n\
             0x0000000a 0x00: eax=0x07300404 ebx=0x00000000 ecx=0x00000000 edx=0x00000000\n"
        );
        put(&machine, "cpuid.txt", &cpuid);
        let root = machine.path().to_str().unwrap();
        let cpuid = format!("{root}/cpuid.txt");
        let given = ["--perf-capabilities", "33C5", "--cpuid", &cpuid, "--msr-root", root];
        let output = lbr(&[&["doctor", "--json"][..], &given].concat());
        let text = stdout(&output);
        let checks: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(output.status.code(), Some(expected), "{text}");
        assert_eq!(verdict(&checks, "Intel PT"), found);
    }
}
