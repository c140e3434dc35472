//! `lbr report`.

use std::path::Path;
use std::process::Output;

use lbr_msr::BranchFilter;
use lbr_msr::record::{
    BranchEntry, BranchStack, Event, Head, Integrity, Label, Lost, Sample, Sink, SourceKnowledge,
};
use profile::note::Source;
use profile::perf_data::{Meta, Writer};
use serde_json::Value;

use crate::support::corpus::corpus;
use crate::support::lbr::{command, lbr, printed as stdout, rows, traced};
use crate::support::skip::{skipped, tool};

fn report(args: &[&str], file: &Path) -> Output {
    command(&["report"]).args(args).arg("-i").arg(file).output().unwrap()
}

/// Two stacks of a software LBR without predictions and cycles.
fn software(dir: &Path) -> std::path::PathBuf {
    let file = dir.join("perf.data");
    let meta = Meta {
        cpudesc: Some("software LBR (06_5E), not measured".to_owned()),
        version: "lbr 0.1.0".to_owned(),
        filter: BranchFilter::DEFAULT,
        knowledge: SourceKnowledge { mispredict: false, cycles: false, kernel: false },
        source: Source::Software,
        ..Meta::of_this_machine()
    };
    let entry = |from, to| BranchEntry { from, to, ..BranchEntry::default() };
    let exact = Integrity {
        head: Head::Joined,
        cut: false,
        label: Label::Stream,
        truncated: false,
        underflow: false,
    };
    let sample = |time, entries: Vec<BranchEntry>, integrity| {
        let stack = BranchStack { entries, integrity, moves: Vec::new() };
        Event::Sample(Sample {
            time,
            pid: 1,
            tid: 1,
            cpu: 0,
            ip: 0x20,
            period: 0,
            arguments: None,
            stack,
        })
    };
    let gap = Integrity { head: Head::Lost, label: Label::Gap, ..exact };
    let mut writer = Writer::new(std::fs::File::create(&file).unwrap(), meta).unwrap();
    for event in [
        sample(1, vec![entry(0x10, 0x20), entry(0x10, 0x20), entry(0x10, 0x20)], exact),
        sample(2, vec![entry(0x10, 0x30)], gap),
        Event::Lost(Lost { time: 3, pid: 1, tid: 1, cpu: 0, stacks: 4, label: Some(Label::Torn) }),
    ] {
        writer.event(&event).unwrap();
    }
    writer.finish_file().unwrap();
    file
}

#[test]
fn the_table_labels_modelled_and_unknown_values() {
    let dir = tempfile::tempdir().unwrap();
    let file = software(dir.path());
    let text = stdout(&report(&[], &file));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        format!("{}: software LBR (06_5E), not measured, branches:u", file.display())
    );
    assert_eq!(
        lines[1],
        "4 branches, 2 samples; predictions not recorded; too few stacks for intervals of shares"
    );
    assert_eq!(lines[2], "warning: 4 lost (torn) (see lbr lint)");
    assert_eq!(lines[3], "");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        words(lines[4]),
        ["rank", "count", "share", "mispredict", "cycles", "type", "from", "->", "to"]
    );
    assert_eq!(words(lines[5]), ["1", "3", "75.00%", "-", "-", "-", "0x10", "->", "0x20"]);
    assert_eq!(words(lines[6]), ["2", "1", "25.00%", "-", "-", "-", "0x10", "->", "0x30"]);
    assert_eq!(lines.len(), 7);
    let verbose = stdout(&report(&["-v"], &file));
    let quality = "\ndata quality: exact 50.00% of stacks, stream 1, gap 1, lost 4 (torn)\n";
    assert!(verbose.contains(quality), "{verbose}");
    assert!(
        verbose.contains("recorded by lbr 0.1.0") && verbose.contains("2 distinct"),
        "{verbose}"
    );
    let one = stdout(&report(&["--limit", "1"], &file));
    assert!(one.ends_with("1 more branch (--limit 0 shows all)\n"), "{one}");
}

/// 20 % in 100 stacks of five: with each stack as one draw, Wilson's interval with Student's 1.984
/// is 13.27 to 29.00 %.
#[test]
fn shares_of_a_sample_have_an_interval() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sample.txt");
    let four = " 0x50/0x20/P/-/-/0".repeat(4);
    std::fs::write(&file, format!(" 0x30/0x10/P/-/-/0{four}\n").repeat(100)).unwrap();
    let table = stdout(&report(&[], &file));
    let counts = "500 branches, 100 samples; 0 mispredicted; shares ±9.0 points (95%)";
    assert_eq!(table.lines().nth(1), Some(counts));
    for view in ["hot", "blocks"] {
        let json = stdout(&report(&["--view", view, "--json"], &file));
        if view == "hot" {
            // Predicted each time: the rate is not known to be 0 %.
            let row: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
            assert_eq!((&row["mispredicted"], &row["predictions_known"]), (&0.into(), &400.into()));
            assert!(row["mispredict_rate"].is_null() && row["never_seen_mispredicted"] == true);
            assert!(table.contains(" 0% "), "{table}");
        }
        let rows: Vec<Value> =
            json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(rows.iter().any(|row| row["share_low"].is_f64()), "{json}");
        for row in rows.iter().filter(|row| row["share"] == 0.2) {
            let near = |key: &str, at: f64| (row[key].as_f64().unwrap() - at).abs() < 1e-4;
            assert!(near("share_low", 0.1327) && near("share_high", 0.2900), "{row}");
        }
    }
}

#[test]
fn json_lines() {
    let dir = tempfile::tempdir().unwrap();
    let text = stdout(&report(&["--json"], &software(dir.path())));
    let objects: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 3);
    let hot = &objects[0];
    assert_eq!((&hot["view"], &hot["rank"]), (&"hot".into(), &1.into()));
    assert_eq!((&hot["from"], &hot["to"]), (&"0x10".into(), &"0x20".into()));
    assert_eq!((&hot["count"], &hot["share"]), (&3.into(), &0.75.into()));
    for key in ["mispredicted", "mispredict_rate", "cycles", "type", "from_symbol", "to_file"] {
        assert!(hot.get(key).unwrap().is_null(), "{key}");
    }
    let quality = &objects[2];
    assert_eq!(quality["view"], "quality");
    assert_eq!((&quality["samples"], &quality["exact"]), (&2.into(), &1.into()));
    assert_eq!((&quality["lost"], &quality["software"]), (&4.into(), &2.into()));
    assert_eq!(quality["lost_by_reason"]["torn"], 4);
}

/// Only existing options are suggested.
/// An order that the recording has no values for is reported, and rows are by count.
#[test]
fn sorting_by_absent_values_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let file = software(dir.path());
    let by_count = report(&["--json"], &file);
    assert_eq!(by_count.stderr, b"");
    for (order, lacks) in
        [("rate", "predictions"), ("mispredicts", "predictions"), ("cycles", "cycle counts")]
    {
        let sorted = report(&["--json", "--sort", order], &file);
        let said = String::from_utf8_lossy(&sorted.stderr);
        let wanted = format!("lbr: the recording has no {lacks}: rows are sorted by count\n");
        assert_eq!(said, wanted, "{order}");
        assert_eq!(sorted.stdout, by_count.stdout, "{order}");
    }
    let blocks = report(&["--view", "blocks", "--sort", "cycles"], &file);
    let said = String::from_utf8_lossy(&blocks.stderr);
    assert_eq!(said, "lbr: the recording has no cycle counts: rows are sorted by count\n");
}

#[test]
fn other_views_are_refused() {
    for view in ["paths", "callgraph", "loops", "nonsense"] {
        let out = report(&["--view", view], Path::new("perf.data"));
        assert_eq!(out.status.code(), Some(2), "{view}");
    }
}

#[test]
fn a_cut_file_is_read_up_to_the_cut() {
    let dir = tempfile::tempdir().unwrap();
    let file = software(dir.path());
    let bytes = std::fs::read(&file).unwrap();
    let data_at = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    // The first sample has 8 + 72 + 3 * 24 bytes; the second is cut in two.
    std::fs::write(&file, &bytes[..data_at + 152 + 20]).unwrap();
    let out = report(&["--json"], &file);
    let text = stdout(&out);
    assert!(text.lines().last().unwrap().contains("\"samples\":1"), "{text}");
    assert!(text.lines().last().unwrap().contains("\"partial\":true"), "{text}");
    let said = format!(
        "lbr: {}: cut off or damaged at byte {}: the rest is missing\n",
        file.display(),
        data_at + 152
    );
    assert_eq!(String::from_utf8(out.stderr).unwrap(), said);
}

/// Counts of a real recording, computed from its golden entries.
#[test]
fn a_real_recording() {
    let Some(corpus) = corpus() else { return };
    let golden = corpus.join("golden-entries/autofdo.test.lbr.entries.csv.xz");
    let Ok(xz) = tool("xz").arg("-dc").arg(golden).output() else {
        return skipped("no xz here");
    };
    let mut expected = std::collections::HashMap::<(String, String), (u64, u64)>::new();
    for line in String::from_utf8(xz.stdout).unwrap().lines().skip(1) {
        let columns: Vec<&str> = line.split(',').collect();
        let key = (columns[4].to_owned(), columns[5].to_owned());
        let counts = expected.entry(key).or_default();
        counts.0 += 1;
        counts.1 += u64::from(columns[6] == "1");
    }
    let out = report(&["--json"], &corpus.join("autofdo/perfdata/test.lbr"));
    let mut found = std::collections::HashMap::new();
    for line in stdout(&out).lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        if row["view"] == "hot" {
            let text = |key: &str| row[key].as_str().unwrap().to_owned();
            let counts = (row["count"].as_u64().unwrap(), row["mispredicted"].as_u64().unwrap());
            let sums = found.entry((text("from"), text("to"))).or_insert((0, 0));
            // The same address in two processes is two branches.
            *sums = (sums.0 + counts.0, sums.1 + counts.1);
        } else {
            assert_eq!((&row["branches"], &row["mispredicted"]), (&147_712.into(), &9319.into()));
        }
    }
    assert_eq!(found, expected);
}

/// perf.data and text are counted together in every view; JSON names both.
#[test]
fn several_recordings_are_counted_together() {
    let dir = tempfile::tempdir().unwrap();
    let file = software(dir.path());
    let text = dir.path().join("more.txt");
    std::fs::write(&text, " 0x10/0x20/M/-/-/5 \n 0x40/0x50/P/-/-/7  0x10/0x20/P/-/-/0 \n").unwrap();
    let text = text.to_str().unwrap();
    for view in ["hot", "mispredict", "outcomes", "blocks"] {
        let out = stdout(&report(&["--json", "--view", view, "-i", text], &file));
        let quality: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        // Two stacks with four branches, and two with three.
        assert_eq!((&quality["samples"], &quality["branches"]), (&4.into(), &7.into()), "{view}");
        assert_eq!(quality["predictions_known"], 3, "{view}");
        assert_eq!(quality["inputs"], serde_json::json!([text, file.to_str().unwrap()]));
        assert_eq!(quality["partial"], false, "{view}");
    }
    let out = stdout(&report(&["-i", text], &file));
    let heads: Vec<&str> = out.lines().take(3).collect();
    assert_eq!(heads[0], format!("{text}: CPU not recorded"));
    assert!(heads[1].starts_with(&format!("{}: software LBR", file.display())), "{heads:?}");
    assert!(heads[2].starts_with("7 branches, 4 samples"), "{heads:?}");
}

/// The addresses of one process have no meaning in a process of another recording.
#[test]
fn processes_of_two_recordings_stay_apart() {
    let dir = tempfile::tempdir().unwrap();
    let texts = ["a.txt", "b.txt"].map(|name| dir.path().join(name));
    for text in &texts {
        // 0x25 .. 0x30 ran between the two branches.
        let sample = "  77/77            30  0x30/0x40/P/-/-/5  0x20/0x25/P/-/-/0 \n";
        std::fs::write(text, sample).unwrap();
    }
    let other = texts[0].to_str().unwrap();
    for (view, kind, rows) in [("hot", "hot", 4), ("mispredict", "mispredict", 4)] {
        let out = stdout(&report(&["--json", "--view", view, "-i", other], &texts[1]));
        assert_eq!(out.matches(&format!("\"view\":\"{kind}\"")).count(), rows, "{out}");
    }
    let out = stdout(&report(&["--json", "--view", "blocks", "-i", other], &texts[1]));
    let rows = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rows: Vec<Value> = rows.filter(|row| row["view"] == "blocks").collect();
    for kind in ["block", "basic_block"] {
        let of_kind: Vec<&Value> = rows.iter().filter(|row| row["kind"] == kind).collect();
        assert_eq!(of_kind.len(), 2, "{kind}");
        assert!(of_kind.iter().all(|row| row["count"] == 1), "{kind}");
    }
}

/// Each recording has its verdict, and the worst is the overall one.
#[test]
fn lint_checks_each_recording_and_all_together() {
    let dir = tempfile::tempdir().unwrap();
    let file = software(dir.path());
    let text = dir.path().join("empty.txt");
    std::fs::write(&text, " 0x0/0x0/P/-/-/0 \n").unwrap();
    let lint = |args: &[&str]| {
        let lbr = lbr(&[&["lint"], args].concat());
        let out = String::from_utf8(lbr.stdout).unwrap();
        let rows: Vec<Value> =
            out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        (lbr.status.code(), rows, out)
    };
    let (file, text) = (file.to_str().unwrap(), text.to_str().unwrap());
    let verdict = |input| {
        let (_, rows, _) = lint(&["--json", "-i", input]);
        assert!(rows.iter().all(|row| row["view"] != "overall" && row["input"] == input));
        rows.last().unwrap()["verdict"].as_str().unwrap().to_owned()
    };
    let (one, other) = (verdict(file), verdict(text));
    assert_eq!((&*one, &*other), ("poor", "poor"));
    let (code, rows, _) = lint(&["--json", "--strict", "-i", file, "-i", text]);
    assert_eq!(code, Some(5));
    let verdicts: Vec<&Value> = rows.iter().filter(|row| row["view"] == "verdict").collect();
    assert_eq!(verdicts.len(), 2);
    assert_eq!((&verdicts[0]["input"], &verdicts[1]["input"]), (&file.into(), &text.into()));
    let overall = rows.last().unwrap();
    assert_eq!((&overall["view"], &overall["verdict"]), (&"overall".into(), &"poor".into()));
    assert_eq!((&overall["inputs"], &overall["poor"]), (&2.into(), &2.into()));
    let (_, _, said) = lint(&["-i", file, "-i", text]);
    assert_eq!(said.lines().last(), Some("2 recordings: poor (2 poor)"));
}

#[test]
fn standard_input_is_read_once() {
    let out = report(&["-i", "-"], Path::new("-"));
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("standard input (-i -) can be read once only"), "{said}");
}

/// Repeated inputs are reported, whatever their names.
#[test]
fn a_file_given_twice() {
    let dir = tempfile::tempdir().unwrap();
    let file = software(dir.path());
    let other = dir.path().join("other.data");
    std::os::unix::fs::symlink(&file, &other).unwrap();
    let twice = report(&["-i", file.to_str().unwrap()], &other);
    let said = String::from_utf8(twice.stderr.clone()).unwrap();
    let name = other.display();
    assert!(
        said.contains(&format!("lbr: {name}: given more than once, and counted so\n")),
        "{said}"
    );
    assert!(stdout(&twice).contains("4 samples"), "{}", stdout(&twice));
    let copy = dir.path().join("copy.data");
    std::fs::copy(&file, &copy).unwrap();
    let two = report(&["-i", file.to_str().unwrap()], &copy);
    assert!(!String::from_utf8(two.stderr).unwrap().contains("more than once"));
}

/// Output to a full disk, and output without a reader.
#[test]
fn standard_output_that_is_full_or_closed() {
    let dir = tempfile::tempdir().unwrap();
    let file = software(dir.path());
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let closed = || {
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        write
    };
    for args in [
        &["report"][..],
        &["report", "--json", "--view", "blocks"],
        &["report", "--view", "paths"],
        &["report", "--html", "-"],
        &["lint"],
        &["script"],
    ] {
        let mut command = command(args);
        command.arg("-i").arg(&file);
        let out = command.stdout(full()).output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.starts_with("lbr: standard output: No space left"), "{args:?}: {said}");
        let out = command.stdout(closed()).output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(0), "{args:?}: {said}");
        assert!(!said.contains("pipe"), "{args:?}: {said}");
    }
}

/// Rows with equal numbers and equal text: two lines of files with the same name.
#[test]
fn equal_rows_have_one_order() {
    let folder = tempfile::tempdir().unwrap();
    let [source, program, data] = ["lines.c", "lines", "data"].map(|name| folder.path().join(name));
    let function = |name: &str, file: &str| {
        format!(
            "#line 3 \"{file}\"\n__attribute__((noinline)) int {name}(int n) \
             {{ volatile int sum = 0; while (n-- > 0) sum += n; return sum; }}\n"
        )
    };
    let main = "int main(void) { return one(9) - two(9); }\n";
    let text = [function("two", "/b/same.c"), function("one", "/a/same.c"), main.to_owned()];
    std::fs::write(&source, text.concat()).unwrap();
    let mut cc = tool("cc");
    let built = cc.args(["-O1", "-g", "-w", "-o"]).args([&program, &source]).status();
    if !built.is_ok_and(|status| status.success()) {
        return skipped("no C compiler (cc)");
    }
    let [program, data] = [&program, &data].map(|path| path.to_str().unwrap());
    let options = ["record", "--backend", "soft", "-o", data, "--", program];
    if traced(&options).is_none() {
        return;
    }
    for _ in 0..8 {
        let rows = rows(&["report", "--group", "line", "--json", data]);
        let lines = rows.iter().filter_map(|row| row["line"].as_str());
        let same: Vec<&str> = lines.filter(|line| line.ends_with("/same.c:3")).collect();
        assert_eq!(same, ["/a/same.c:3", "/b/same.c:3"]);
    }
}
