//! `lbr probe`.

use serde_json::{Value, json};

use crate::support::lbr::{command, lbr};

/// The objects in the output.
#[track_caller]
fn objects(args: &[&str]) -> Vec<Value> {
    let output = lbr(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

const SKYLAKE: &str = "\
CPU:
   0x00000000 0x00: eax=0x00000016 ebx=0x756e6547 ecx=0x6c65746e edx=0x49656e69
   0x00000001 0x00: eax=0x000506e3 ebx=0x00100800 ecx=0x7ffafbbf edx=0xbfebfbff
   0x00000007 0x00: eax=0x00000000 ebx=0x029c6fbb ecx=0x00000000 edx=0x00000000
   0x0000000a 0x00: eax=0x07300404 ebx=0x00000000 ecx=0x00000000 edx=0x00000603
   0x80000000 0x00: eax=0x80000008 ebx=0x00000000 ecx=0x00000000 edx=0x00000000
";

const HYBRID: &str = "\
CPUID 00000000: 00000020-756E6547-6C65746E-49656E69 [GenuineIntel]
";

#[test]
fn a_recorded_skylake() {
    let file = file(SKYLAKE);
    let path = file.path().to_str().unwrap();
    let objects = objects(&["probe", "--cpuid", path, "--perf-capabilities", "33C5", "--json"]);
    assert_eq!(objects.len(), 1);
    let expected = json!({
        "cpus": "0", "vendor": "GenuineIntel", "family": 6, "model": 0x5E, "stepping": 3,
        "uarch": "Skylake", "facility": "intel_legacy", "depth": 32, "format": 5,
        "from_base": "0x680", "to_base": "0x6c0", "info_base": "0xdc0", "tos": "0x1c9",
        "select": "0x1c8", "mispredict": true, "tsx": true, "cycles": true, "call_stack": true,
        "types": false, "hypervisor": null, "why": null,
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&objects[0][key], value, "{key}");
    }
}

#[test]
fn unread_registers_are_null() {
    let file = file(SKYLAKE);
    let path = file.path().to_str().unwrap();
    let objects = objects(&["probe", "--cpuid", path, "--json"]);
    assert_eq!(objects[0]["format"], Value::Null);
    assert_eq!(objects[0]["format_expected"], 5);
    assert_eq!(objects[0]["depth"], 32);
    let text = String::from_utf8(lbr(&["probe", "--cpuid", path]).stdout).unwrap();
    assert!(text.contains("0x5 INFO expected of this model"), "{text}");
}

#[test]
fn core_types_are_distinguished() {
    let mut text = String::new();
    for cpu in 0..6 {
        let (leaf_1a, leaf_1c) =
            if cpu < 4 { ("40000001", "4000000B") } else { ("20000001", "C000000B") };
        text.push_str(&format!("------[ Logical CPU #{cpu} ]------\n{HYBRID}"));
        text.push_str("CPUID 00000001: 00090672-00800800-7FFAFBFF-BFEBFBFF\n");
        text.push_str("CPUID 00000007: 00000002-239C27EB-98C027BC-FC1CC410 [SL 00]\n");
        text.push_str("CPUID 0000000A: 07300605-00000000-00000007-00008603\n");
        text.push_str(&format!("CPUID 0000001A: {leaf_1a}-00000000-00000000-00000000\n"));
        text.push_str(&format!("CPUID 0000001C: {leaf_1c}-00000007-00000007-00000000\n"));
    }
    let file = file(&text);
    let objects = objects(&["probe", "--cpuid", file.path().to_str().unwrap(), "--json"]);
    let cpus: Vec<&str> = objects.iter().map(|o| o["cpus"].as_str().unwrap()).collect();
    assert_eq!(cpus, ["0-3", "4-5"]);
    let cores: Vec<&str> = objects.iter().map(|o| o["core_type"].as_str().unwrap()).collect();
    assert_eq!(cores, ["Core", "Atom"]);
    for object in &objects {
        assert_eq!(object["facility"], "intel_arch");
        assert_eq!((&object["depth"], &object["tos"]), (&json!(32), &Value::Null));
        assert_eq!((&object["types"], &object["tsx"]), (&json!(true), &json!(false)));
    }
}

#[test]
fn a_guest_without_branch_records_is_not_an_error() {
    let text = SKYLAKE.replace("ecx=0x7ffafbbf", "ecx=0xfffa7bbf");
    let file = file(&text);
    let objects = objects(&["probe", "--cpuid", file.path().to_str().unwrap(), "--json"]);
    assert_eq!((&objects[0]["facility"], &objects[0]["depth"]), (&json!("none"), &Value::Null));
    assert_eq!(objects[0]["hypervisor"], "unknown");
    let why = objects[0]["why"].as_str().unwrap();
    assert!(why.contains("hypervisor") && why.contains("PDCM"), "{why}");
}

#[test]
fn presets_and_assumptions() {
    let zen4 = objects(&["probe", "--soft-cpu", "zen4", "--json"]);
    assert_eq!((&zen4[0]["facility"], &zen4[0]["depth"]), (&json!("amd_lbr_v2"), &json!(16)));
    assert_eq!((&zen4[0]["from_base"], &zen4[0]["format"]), (&json!("0xc0010300"), &Value::Null));

    let unknown = SKYLAKE.replace("0x000506e3", "0x000e06e3");
    let file = file(&unknown);
    let path = file.path().to_str().unwrap();
    let why = &objects(&["probe", "--cpuid", path, "--json"])[0]["why"];
    assert!(why.as_str().unwrap().contains("06_EE"));
    let assume = |what| objects(&["probe", "--cpuid", path, "--assume", what, "--json"]);
    let like = &assume("06_5E")[0];
    assert_eq!(
        (&like["depth"], &like["assumed"], &like["model"]),
        (&json!(32), &json!(true), &json!(0xEE))
    );
    let told = &assume("depth=8,from=680,to=6C0,tos=1C9,format=3")[0];
    assert_eq!((&told["depth"], &told["from_base"]), (&json!(8), &json!("0x680")));
}

#[test]
fn bad_input_is_status_2_with_a_sentence() {
    let broken = file("CPUID 00000000: 00000016-756E6547\n");
    let empty = file("nothing\n");
    let skylake = file(SKYLAKE);
    let without = file(&SKYLAKE.replace("0x00000007 ", "0x00000008 "));
    for (args, word) in [
        (&["probe", "--cpuid", "/no/such/file"][..], "/no/such/file"),
        (&["probe", "--cpuid", broken.path().to_str().unwrap()], "line 1"),
        (&["probe", "--cpuid", empty.path().to_str().unwrap()], "no CPUID leaf"),
        (&["probe", "--cpuid", without.path().to_str().unwrap()], "leaf 0x7 "),
        (&["probe", "--soft-cpu", "zen9"], "zen9"),
        (&["probe", "--perf-capabilities", "xyz"], "xyz"),
        (&["probe", "--assume", "nonsense"], "nonsense"),
        (
            &["probe", "--cpuid", skylake.path().to_str().unwrap(), "--assume", "06_EE"],
            "no such model",
        ),
    ] {
        let output = lbr(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(word), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

/// There is an answer on every machine.
#[cfg(target_arch = "x86_64")]
#[test]
fn this_machine() {
    let objects = objects(&["probe", "--json"]);
    assert!(!objects.is_empty());
    for object in objects {
        assert_eq!(object["facility"] == "none", object["why"].is_string());
    }
}

/// A recording of CPUID ends. One that does not end is abandoned at the maximum length, and one
/// that never starts can be interrupted.
#[test]
fn a_recording_without_an_end_is_refused_and_one_without_a_beginning_left() {
    let output = lbr(&["probe", "--cpuid", "/dev/zero"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("/dev/zero") && stderr.contains("longer than"), "{stderr}");

    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("cpuid");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR)
        .unwrap();
    let mut waiting = command(&["probe", "--cpuid"]).arg(&fifo).spawn().unwrap();
    // Until it waits for the FIFO, which is then open.
    let open = format!("/proc/{}/fd", waiting.id());
    let is_open = || {
        let mut files = std::fs::read_dir(&open).unwrap().flatten();
        files.any(|file| std::fs::read_link(file.path()).is_ok_and(|file| file == fifo))
    };
    while !is_open() {
        assert!(waiting.try_wait().unwrap().is_none(), "nothing has been written");
        std::thread::yield_now();
    }
    let pid = nix::unistd::Pid::from_raw(i32::try_from(waiting.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let status = waiting.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
}

/// A dump of a Zen 3 that lacks only the leaf that announces Branch Sampling.
#[test]
fn branch_sampling_is_unknown_without_its_leaf() {
    let file = file(
        "CPUID 00000000: 00000010-68747541-444D4163-69746E65\n\
         CPUID 00000001: 00A20F10-00000000-00000000-00000000\n\
         CPUID 80000000: 80000023-68747541-444D4163-69746E65\n\
         CPUID 80000022: 00000000-00000000-00000000-00000000\n",
    );
    let path = file.path().to_str().unwrap();
    let rows = objects(&["probe", "--cpuid", path, "--json"]);
    assert_eq!((&rows[0]["family"], &rows[0]["facility"]), (&json!(0x19), &json!("unknown")));
    let text = String::from_utf8(lbr(&["probe", "--cpuid", path]).stdout).unwrap();
    assert!(text.contains("facility   unknown"), "{text}");
    assert!(text.contains("lacks leaf 80000008H"), "{text}");
}
