//! `lbr verify` on software CPUs.

use std::fs;

use serde_json::Value;

use crate::support::lbr::lbr;

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn lines(json: &str) -> Vec<Value> {
    json.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_sound_cpu_is_as_documented() {
    let output = lbr(&["verify", "--soft-cpu", "skylake", "--write"]);
    assert_eq!(output.status.code(), Some(0));
    let text = text(output.stdout);
    let head: Vec<&str> = text.lines().collect();
    assert_eq!(head[0], "46 as documented, none differs");
    assert!(head[1].starts_with("CPU 0: 06_5EH Skylake, stepping 0, intel_legacy, depth 32"));
    assert!(head[1].ends_with("(software LBR)") && head.len() == 2, "{text}");

    let output = lbr(&["verify", "--soft-cpu", "skylake", "--write", "-v"]);
    let text = self::text(output.stdout);
    let depth = text.lines().find(|line| line.contains(" depth  ")).unwrap();
    assert!(depth.starts_with("as documented") && depth.ends_with(": 32"), "{depth}");
    assert_eq!(text.lines().count(), 2 + 46 + 6, "every check is printed: {text}");
}

#[test]
fn differences_come_first_with_expected_and_found() {
    let args = ["verify", "--soft-cpu", "haswell", "--write", "--soft-lie", "tos-off-by-one"];
    let output = lbr(&args);
    assert_eq!(output.status.code(), Some(1));
    let text = text(output.stdout);
    let at: Vec<&str> = text.lines().collect();
    assert!(at[0].contains(" as documented, 1 differs: order; "), "{text}");
    assert_eq!(at[2], "injected faults: tos-off-by-one");
    assert!(at[3].starts_with("differs      order "), "{text}");
    assert!(at[4].contains("expected  TOS holds the index of the newest"), "{text}");
    assert!(at[4].contains("SDM 17.4.8"), "{text}");
    assert!(at[5].contains("found     the newest is at TOS - 1: TOS is one too high"), "{text}");
    let stack = at.iter().find(|line| line.contains("call_stack.nested")).unwrap();
    assert!(stack.ends_with("depends on order"), "{stack}");
    assert!(!text.contains("as documented  "), "{text}");
}

#[test]
fn json_holds_every_check_and_no_addresses_unless_asked() {
    let args =
        ["verify", "--soft-cpu", "06_8F", "--write", "--json", "--soft-lie", "order-reversed"];
    let output = lbr(&args);
    assert_eq!(output.status.code(), Some(1));
    let json = text(output.stdout);
    assert!(json.len() < 20_000, "small enough for a bug report: {}", json.len());
    let all = lines(&json);
    assert_eq!(all[0]["schema"], 1);
    let head = &all[1];
    assert_eq!((&head["model"], &head["facility"]), (&"06_8F".into(), &"intel_arch".into()));
    assert_eq!((&head["registers"], &head["written"]), (&"soft".into(), &true.into()));
    assert_eq!(head["soft_lies"], Value::from(vec!["order-reversed"]));
    let check = |id: &str| all.iter().find(|line| line["check"] == id).unwrap();
    assert_eq!(check("order")["verdict"], "differs");
    assert_eq!(check("order")["found"], "the first is the oldest: the order is reversed");
    assert_eq!(check("call_stack.leaf")["verdict"], "cannot_tell");
    assert_eq!(check("registers.tos")["verdict"], "not_applicable");
    assert_eq!(check("registers.tos")["expected"], Value::Null);
    // The address of the software's code.
    assert!(!json.contains("0x4000"), "{json}");
}

#[test]
fn reports_go_to_files_and_can_be_compared() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (sound, lying, markdown) = (path("a.json"), path("b.json"), path("b.md"));
    let base = ["verify", "--soft-cpu", "nehalem", "--write"];
    let output = lbr(&[&base[..], &["--json", &sound]].concat());
    assert_eq!(output.status.code(), Some(0));
    assert!(text(output.stdout).contains("none differs"), "the verdict is printed as well");
    let lie = ["--soft-lie", "ignores-ret", "--json", &lying, "--markdown", &markdown];
    assert_eq!(lbr(&[&base[..], &lie].concat()).status.code(), Some(1));

    let report = fs::read_to_string(markdown).unwrap();
    assert!(report.contains("## CPU 0: 06_1AH Nehalem"), "{report}");
    let row = report.lines().find(|line| line.starts_with("| `filter.ret`")).unwrap();
    assert!(row.contains("ret recorded although suppressed"), "{row}");
    assert!(row.ends_with("| **differs** |"), "{row}");
    assert!(report.len() < 16_000 && !report.contains("0x4000"), "{}", report.len());
    let columns = |line: &str| line.matches(" | ").count();
    let rows: Vec<&str> = report.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(rows.len() > 25 && rows.iter().all(|row| columns(row) == 3), "{report}");

    let output = lbr(&["verify", "--diff", &sound, &lying]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(output.stdout);
    let expected = "\
A  06_1AH Nehalem, soft (CPUs 0)
B  06_1AH Nehalem, soft (CPUs 0), faults: ignores-ret
filter.ret
  A  as documented: ret suppressed, all others recorded
  B  differs: ret recorded although suppressed
";
    assert_eq!(said, expected);
    let output = lbr(&["verify", "--diff", &sound, &sound]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(output.stdout).ends_with("no difference\n"));
    let output = lbr(&["verify", "--json", "--diff", &sound, &lying]);
    let json = lines(&text(output.stdout));
    assert_eq!(json.len(), 2, "{json:?}");
    assert_eq!(
        (&json[1]["a_verdict"], &json[1]["b_verdict"]),
        (&"as_documented".into(), &"differs".into())
    );
}

#[test]
fn without_write_only_read_checks_are_made() {
    let output = lbr(&["verify", "--soft-cpu", "zen4"]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(output.stdout);
    assert!(said.lines().next().unwrap().contains(" as documented, none differs; "), "{said}");
    let added = said.lines().last().unwrap();
    assert!(added.starts_with("--write adds ") && added.contains(" depth, order"), "{said}");
    assert_eq!(said.lines().count(), 3, "{said}");
    let said = text(lbr(&["verify", "--soft-cpu", "zen4", "-v"]).stdout);
    assert!(said.contains("as documented   registers.from"), "{said}");
    let depth = said.lines().find(|line| line.contains(" depth  ")).unwrap();
    assert!(depth.starts_with("cannot tell") && depth.ends_with("needs --write"), "{depth}");
}

#[test]
fn an_unknown_cpu_without_assumption_is_no_lbr() {
    let dir = tempfile::tempdir().unwrap();
    // An Intel CPU of an unknown family.
    let cpuid = "\
CPU:
   0x00000000 0x00: eax=0x00000001 ebx=0x756e6547 ecx=0x6c65746e edx=0x49656e69
   0x00000001 0x00: eax=0x000fffff ebx=0x00000000 ecx=0x00000000 edx=0x00000000
";
    fs::write(dir.path().join("cpuid"), cpuid).unwrap();
    let root = dir.path().to_str().unwrap();
    let output = lbr(&["verify", "--msr-root", root, "--assume", "nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    let output = lbr(&["verify", "--msr-root", root]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(output.stdout.is_empty());
}

#[test]
fn bad_usage_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let no_report = dir.path().join("x");
    fs::write(&no_report, "{\"a\":1}\n").unwrap();
    let no_report = no_report.to_str().unwrap();
    for (args, word) in [
        (
            &["--soft-cpu", "skylake", "--soft-lie", "x"][..],
            "unknown fault `x`; --soft-lie list lists them",
        ),
        (&["--soft-lie", "no-info"], "--soft-cpu"),
        (&["--backend", "soft"], "--soft-cpu skylake"),
        (&["--soft-cpu", "skylake", "--backend", "msr"], "omit --backend"),
        (&["--soft-cpu", "skylake", "--perf-capabilities", "5"], "lbr probe"),
        (&["--soft-cpu", "skylake", "-C", "7"], "CPU 7"),
        (&["--diff", no_report, no_report], "is not a report"),
        (&["--diff", "/nonexistent/a", no_report], "cannot read /nonexistent/a"),
    ] {
        let output = lbr(&[&["verify"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let said = text(output.stderr);
        assert!(said.contains(word), "{args:?}: {said}");
    }
}

/// Penryn has no filter, no call-stack mode and no transactions. By hand from the SDM's
/// chapter on Core 2: four records and the last-exception pair.
#[test]
fn faults_without_effect_are_refused() {
    let of = |lie: &str| {
        let out = lbr(&["verify", "--soft-cpu", "penryn", "--write", "--soft-lie", lie]);
        (out.status.code(), text(out.stdout), text(out.stderr))
    };
    for lie in ["tsx-never", "ignores-ret", "pushes-zero-length-calls", "types-swapped"] {
        let (code, shown, said) = of(lie);
        assert_eq!(code, Some(2), "{lie}: {shown}");
        assert!(said.contains("this fault has no effect on this CPU"), "{lie}: {said}");
    }
    let (code, _, said) = of("tos-off-by-one,tsx-never,types-swapped");
    assert_eq!(code, Some(2));
    assert!(said.contains("--soft-lie tsx-never,types-swapped: these faults have"), "{said}");
    let (code, shown, _) = of("tos-off-by-one");
    assert_eq!(code, Some(1), "{shown}");

    for cpu in [&["--soft-cpu", "penryn"][..], &["--soft-cpu=06_17"]] {
        let out = lbr(&[&["verify", "--soft-lie", "list"], cpu].concat());
        assert_eq!(out.status.code(), Some(0), "{}", text(out.stderr));
        let list = text(out.stdout);
        let has =
            |name: &str| list.lines().any(|line| line.split_whitespace().next() == Some(name));
        assert!(has("tos-off-by-one") && has("order-reversed"), "{list}");
        assert!(!has("tsx-never") && !has("ignores-ret") && !has("types-swapped"), "{list}");
    }
    let out = lbr(&["verify", "--soft-lie", "list", "--soft-cpu", "none-such"]);
    assert_eq!(out.status.code(), Some(2), "{}", text(out.stdout));
}

#[test]
fn reports_name_the_kernel_and_the_day() {
    let out = lbr(&["verify", "--soft-cpu", "skylake", "--json"]);
    let head: Value = lines(&text(out.stdout)).swap_remove(1);
    // A made-up host may have no /proc.
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let kernel = &head["kernel"];
    assert!(kernel.is_null() || kernel == release.trim(), "{kernel}");
    let date = head["date"].as_str().unwrap();
    assert!(date.len() == 10 && date.starts_with("20"), "{date}");
    // The software LBR has no microcode.
    assert!(head.as_object().unwrap().contains_key("microcode") && head["microcode"].is_null());
    let out = lbr(&["verify", "--soft-cpu", "skylake", "--markdown", "-"]);
    let page = text(out.stdout);
    let origin = page.lines().find(|line| line.starts_with("Found with ")).unwrap();
    assert!(origin.ends_with(&format!("{date}.")), "{origin}");
}

/// Every check of the list can be explained, in the words of its report and with the source that
/// its report cites.
#[test]
fn each_check_is_explained() {
    let list = lbr(&["verify", "--explain", "list"]);
    assert_eq!(list.status.code(), Some(0), "{list:?}");
    let list = text(list.stdout);
    let report = lbr(&["verify", "--soft-cpu", "06_8F", "--write", "--json"]);
    let checks: Vec<Value> =
        lines(&text(report.stdout)).into_iter().filter(|line| !line["check"].is_null()).collect();
    assert_eq!(list.lines().count(), checks.len(), "{list}");
    for (line, check) in list.lines().zip(&checks) {
        let id = check["check"].as_str().unwrap();
        assert!(line.trim_start().starts_with(id), "{line}: {id}");
        let output = lbr(&["verify", "--explain", id, "--soft-cpu", "06_8F", "--json"]);
        let explained = lines(&text(output.stdout)).remove(0);
        assert_eq!(explained["what"], check["what"], "{id}");
        assert_eq!(explained["documented"][0]["source"], check["source"], "{id}");
        for key in ["run", "why", "falsified_by"] {
            assert!(explained[key].as_str().is_some_and(|text| text.ends_with('.')), "{id} {key}");
        }
    }

    let order = text(lbr(&["verify", "--explain", "order"]).stdout);
    assert!(order.starts_with("order: the slots of the newest record"), "{order}");
    for word in ["falsified by", "index 0 is the newest", "Linux amd/brs.c", "depends on", "depth"]
    {
        assert!(order.contains(word), "{word}: {order}");
    }
    let unknown = lbr(&["verify", "--explain", "orders"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(unknown.stderr).contains("lbr verify --explain list"));
}
