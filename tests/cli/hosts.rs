//! Which machine a command looks at: the one it is given, and no other.

use std::path::Path;

use crate::support::lbr::{json_lines, lbr, stderr, stdout};

/// Every command that looks at a machine, as its user would type it.
const COMMANDS: [&[&str]; 7] = [
    &["probe"],
    &["doctor"],
    &["dump"],
    &["verify"],
    &["disarm", "-C", "0"],
    &["record", "--backend", "msr", "-o", "/nonexistent/perf.data", "--", "true"],
    &["time", "--backend", "msr", "--hex", "90"],
];

fn at(root: &str, command: &[&str]) -> std::process::Output {
    let (name, rest) = command.split_first().unwrap();
    lbr(&[&[*name, "--msr-root", root], rest].concat())
}

/// A root without CPUID is an error; this machine's CPUID does not replace it.
#[test]
fn a_root_without_cpuid_names_the_missing_file() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    std::fs::create_dir_all(dir.path().join("sys/devices/system/cpu")).unwrap();
    std::fs::write(dir.path().join("sys/devices/system/cpu/online"), "0-3\n").unwrap();
    for command in COMMANDS {
        let out = at(root, command);
        let said = stderr(&out);
        assert_eq!(out.status.code(), Some(3), "{command:?}: {said}");
        assert!(said.contains(&format!("{root}/cpuid")), "{command:?}: {said}");
        assert!(said.contains("--cpuid FILE"), "{command:?}: {said}");
        assert_eq!(stdout(&out), "", "{command:?}");
    }
    let disarm = lbr(&["disarm", "--msr-root", "/nonexistent"]);
    assert_eq!(disarm.status.code(), Some(3));
    assert!(stderr(&disarm).contains("/nonexistent/sys/devices/system/cpu/online"));
}

/// Text that is not a CPUID recording is bad input, reported with its path.
#[test]
fn a_root_with_bad_cpuid_is_bad_input() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("cpuid"), "Intel Inside\n").unwrap();
    for command in COMMANDS {
        let out = at(dir.path().to_str().unwrap(), command);
        assert_eq!(out.status.code(), Some(2), "{command:?}");
        assert!(stderr(&out).contains("/cpuid: no CPUID leaf found"), "{}", stderr(&out));
    }
}

/// Facility and CPUs of the made-up hosts that tests may run on, by hand from
/// their CPUID: leaf 1, 7.EDX\[19\], 80000008.EBX\[31\], 80000022.EAX\[1\].
#[test]
fn synthetic_hosts_match_their_names() {
    for (host, expected) in [
        ("skylake", &[("0-3", "intel_legacy")][..]),
        ("zen3", &[("0-3", "amd_single")]),
        ("zen4", &[("0-3", "amd_lbr_v2")]),
        ("hybrid", &[("0-1", "intel_arch"), ("2-3", "intel_arch")]),
        ("via", &[("0-3", "none")]),
    ] {
        let root = hosts().join(host);
        let rows = json_lines(&at(root.to_str().unwrap(), &["probe", "--json"]));
        let found: Vec<_> = rows
            .iter()
            .map(|row| (row["cpus"].as_str().unwrap(), row["facility"].as_str().unwrap()))
            .collect();
        assert_eq!(found, expected, "{host}");
    }
}

/// None of these hosts has a driver, so their LBR is unusable; commands that can do
/// without it still work.
#[test]
fn a_host_without_a_driver_has_no_lbr_to_use() {
    for host in ["skylake", "zen3", "zen4", "hybrid", "via"] {
        let root = hosts().join(host);
        for command in &COMMANDS[1..] {
            let out = at(root.to_str().unwrap(), command);
            assert_eq!(out.status.code(), Some(3), "{host}: {command:?}: {}", stderr(&out));
        }
        let time = ["time", "--repeat", "1", "--warm-up", "0", "--hex", "90"];
        let out = at(root.to_str().unwrap(), &time);
        assert_eq!(out.status.code(), Some(0), "{host}: {}", stderr(&out));
        assert!(
            String::from_utf8_lossy(&out.stdout).starts_with("core cycles: unknown, "),
            "{host}"
        );
    }
}

/// CPUs that the root does not have are no CPUs, whatever this machine has.
#[test]
fn only_cpus_of_the_root_exist() {
    let root = hosts().join("hybrid");
    let out = at(root.to_str().unwrap(), &["dump", "-C", "4"]);
    assert_eq!(out.status.code(), Some(2));
    assert_eq!(stderr(&out), "lbr: CPU 4 does not exist; online: 0-3\n");
}

fn hosts() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/hosts")
}
