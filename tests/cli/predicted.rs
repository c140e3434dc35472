//! `lbr time` next to a prediction, and at several addresses.

use serde_json::Value;

use crate::support::lbr::{command, lbr, stderr, text};
use crate::support::skip::{run_tool, tool};

const TIME: [&str; 6] = ["time", "--backend", "soft", "--repeat", "12", "--hex"];
/// `imul rax, rax`.
const IMUL: &str = "48 0f af c0";

fn lines(args: &[&str]) -> Vec<Value> {
    let out = lbr(&[&TIME, args, &["--json"]].concat());
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn has_mca() -> bool {
    run_tool(tool("llvm-mca").arg("--version")).is_some()
}

/// IMUL r64, r64 on Skylake: latency 3, one per cycle (Fog, Instruction tables).
#[test]
fn a_chain_is_predicted_by_its_latency() {
    if !has_mca() {
        return;
    }
    let whole = &lines(&[IMUL, "--mca=llvm-mca", "--mcpu", "skylake"])[0];
    let predicted = &whole["prediction"];
    let cycles = predicted["cycles"].as_f64().unwrap();
    assert!((2.99..3.05).contains(&cycles), "{predicted}");
    assert_eq!(predicted["throughput_bound"], 1.0);
    assert_eq!(predicted["bottleneck"], "register dependencies");
    assert_eq!((&predicted["cpu"], &predicted["instructions"]), (&"skylake".into(), &1.into()));
    assert!(whole["tsc_ticks_per_cycle"].as_f64() > Some(0.0), "{whole}");
    assert!(whole["cycles_per_iteration"].is_null(), "an estimate is not a measurement");

    let rows = lines(&["90", "--hex", IMUL, "--mca", "--mcpu", "skylake"]);
    let predicted: Vec<_> = rows.iter().map(|row| &row["predicted_cycles_per_iteration"]).collect();
    assert!(predicted[0].as_f64() < Some(0.5) && predicted[1].as_f64() > Some(2.9), "{rows:?}");
}

#[test]
fn other_work_is_named() {
    if !has_mca() {
        return;
    }
    // mov ecx, 3; dec ecx; jnz -4: 7 instructions.
    let out = lbr(&[&TIME[..], &["b9 03 00 00 00 ff c9 75 fc", "--mca"]].concat());
    let shown = text(&out.stdout);
    let named = "took 3 instructions once, 7.00 were executed";
    assert!(shown.contains("llvm-mca ") && shown.contains(named), "{shown}");
}

#[test]
fn a_prediction_that_cannot_be_made_is_refused() {
    let args = [&TIME[..], &["90", "--mca"]].concat();
    let out = command(&args).env("PATH", "/nonexistent").output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(stderr(&out).contains("install the package llvm"), "{}", stderr(&out));
    let out = lbr(&[&TIME[..], &["90", "--mca=/nonexistent"]].concat());
    assert_eq!((out.status.code(), stderr(&out).lines().count()), (Some(2), 1));
    if has_mca() {
        for (code, cpu, why) in [
            ("90 06", "skylake", "there is no instruction at +0x1"),
            ("90", "z80", "'z80' is not a recognized processor"),
        ] {
            let out = lbr(&[&TIME[..], &[code, "--mca", "--mcpu", cpu]].concat());
            assert_eq!(out.status.code(), Some(2));
            assert!(stderr(&out).contains(why), "{}", stderr(&out));
        }
    }
}

#[test]
fn code_is_timed_at_each_offset() {
    let rows = lines(&["90", "--layouts", "2"]);
    let offsets: Vec<_> = rows.iter().map(|row| &row["page_offset"]).collect();
    assert_eq!(offsets, ["0x0", "0x20", "0xfc0", "0xfe0"]);
    assert!(rows.iter().all(|row| row["unroll"] == 1 && row["loop"] == rows[0]["loop"]));
    assert!(rows.iter().all(|row| row["tsc_ticks_per_iteration"].is_number()), "{rows:?}");
    let out = lbr(&[&TIME[..], &["90", "--hex", IMUL, "--layouts", "1"]].concat());
    let shown = text(&out.stdout);
    // A busy host leaves too few turns for an answer, or an interval too wide for "slower".
    let answer = shown.strip_prefix("compared with `90`: `48 0f af c0` ");
    let answer = answer.unwrap_or_else(|| panic!("{shown}"));
    assert!(!answer.starts_with("is faster") && !answer.starts_with("takes as long"), "{shown}");
    assert_eq!(shown.lines().filter(|line| line.contains("  0xfc0  ")).count(), 2, "{shown}");
    let refused = lbr(&["time", "--object", "f.o", "--symbol", "f", "--layouts", "2"]);
    assert_eq!(refused.status.code(), Some(2));
}
