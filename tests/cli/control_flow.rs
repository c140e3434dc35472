//! `lbr annotate --graph`: the edges of the picture are those of the recording.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::lbr::{done, lbr, text};
use crate::support::programs::{BARE, build};
use crate::support::skip::skipped;

/// An edge as drawn: its class, the blocks at its ends by their offsets, its count.
type Drawn = (String, String, String, Option<u64>);

fn attribute<'a>(of: &'a str, name: &str) -> Option<&'a str> {
    let from = of.split_once(&format!("{name}=\""))?.1;
    Some(from.split_once('"')?.0)
}

fn edges(svg: &str) -> Vec<Drawn> {
    let edge = |part: &str| {
        let part = format!("edge{part}");
        let title = part.split_once("<title>").unwrap().1.split_once(':').unwrap().0;
        let (from, to) = title.split_once(" → ").unwrap();
        let offset = |name: &str| name.split(' ').next().unwrap().to_owned();
        let count = attribute(&part, "data-count").map(|count| count.parse().unwrap());
        (part.split('"').next().unwrap().to_owned(), offset(from), offset(to), count)
    };
    svg.split("<g class=\"edge").skip(1).map(edge).collect()
}

/// The taken edges inside the function, of the JSON of the same command.
fn recorded(rows: &[Value]) -> Vec<(String, String, u64)> {
    let insns: Vec<&Value> = rows.iter().filter(|row| row["kind"] == "instruction").collect();
    let offset = |index: usize| format!("+{:#x}", insns[index]["offset"].as_u64().unwrap());
    let mut edges = Vec::new();
    for (at, insn) in insns.iter().enumerate() {
        let block = (0..=at).rev().find(|at| insns[*at]["leads"] == true).unwrap();
        for target in insn["branch"]["targets"].as_array().into_iter().flatten() {
            if let Some(index) = target["index"].as_u64() {
                let count = target["count"].as_u64().unwrap();
                edges.push((offset(block), offset(index as usize), count));
            }
        }
    }
    edges
}

#[test]
fn every_edge_of_the_recording_is_drawn_once() {
    let Some(program) = build("outcomes.S", BARE) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, svg, dot) = (path("perf.data"), path("a.svg"), path("a.dot"));
    let out =
        lbr(&["record", "--backend", "soft", "--source", "ptrace", "-o", &file, program.name()]);
    if out.status.code() == Some(4) {
        return skipped(text(&out.stderr));
    }
    let place = "top..f0";
    let rows = done(&["annotate", "--json", place, "-i", &file]);
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(done(&["annotate", place, "-i", &file, "--graph", &svg]), "");
    assert_eq!(done(&["annotate", place, "-i", &file, "--graph", &dot]), "");
    let picture = std::fs::read_to_string(&svg).unwrap();
    assert!(picture.starts_with("<svg ") && picture.contains("complete: counts are exact"));
    assert!(picture.contains("predictions not recorded"));
    let drawn = edges(&picture);
    let is_taken = |kind: &str| kind == "edge" || kind == "edge call";
    let mut inside: Vec<(String, String, u64)> = drawn
        .iter()
        .filter(|(kind, _, to, count)| is_taken(kind) && to.starts_with('+') && *count != Some(0))
        .map(|(_, from, to, count)| (from.clone(), to.clone(), count.unwrap()))
        .collect();
    let mut expected = recorded(&rows);
    inside.sort();
    expected.sort();
    assert!(expected.len() >= 6, "{expected:?}");
    assert_eq!(inside, expected);
    // 1,000 rounds by the program's source: its loop closes 999 times.
    assert!(drawn.iter().any(|(.., count)| *count == Some(999)), "{drawn:?}");
    assert!(picture.contains("999 (loop: 1000.0 trips)"));
    // The branch on a bit of the generator: what is not taken falls through.
    let bit = rows.iter().find(|row| row["branch"]["not_taken"].as_u64().is_some_and(|n| n > 0));
    let not_taken = bit.unwrap()["branch"]["not_taken"].as_u64();
    assert!(drawn.iter().any(|(kind, .., count)| kind == "edge falls" && *count == not_taken));
    let dot = std::fs::read_to_string(Path::new(&dot)).unwrap();
    assert_eq!(dot.matches(" -> ").count(), drawn.len());
    let wrong = lbr(&["annotate", place, "-i", &file, "--graph", &path("a.png")]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("neither .svg nor .dot"));
}

/// A branch has one share, in its block, however many edges leave it.
#[test]
fn a_share_of_mispredictions_is_printed_once() {
    let Some(program) = build("kinds/computed_goto.c", &["-O1"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, svg) = (path("perf.data"), path("a.svg"));
    let out = lbr(&["record", "--model", "-o", &file, program.name()]);
    if out.status.code() == Some(4) {
        return skipped(text(&out.stderr));
    }
    let rows = done(&["annotate", "--json", "main", "-i", &file]);
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    done(&["annotate", "main", "-i", &file, "--graph", &svg]);
    let picture = std::fs::read_to_string(&svg).unwrap();
    let mut shared = 0;
    for branch in rows.iter().map(|row| &row["branch"]).filter(|branch| branch["type"] != "RET") {
        let Some(rate) = branch["mispredict_rate"].as_f64().filter(|rate| *rate > 0.0) else {
            continue;
        };
        let text = format!(">{:.2}% mispredicted<", rate * 100.0);
        let alike = rows.iter().filter(|row| row["branch"]["mispredict_rate"] == json!(rate));
        assert_eq!(picture.matches(&text).count(), alike.count(), "{text}");
        shared += usize::from(branch["targets"].as_array().unwrap().len() > 2);
    }
    assert!(shared > 0, "no branch with several targets: {rows:?}");
}
