//! `lbr script`.

use std::path::Path;
use std::process::{Output, Stdio};

use crate::support::corpus::corpus;
use crate::support::lbr::{command, lbr, lbr_with_input, stderr, stdout};
use crate::support::skip::{skipped, tool};

const TEXT: &str = "  12/13 [001] 7.000001:  a0 0x10/0x20/M/-/-/5/COND  0x30/0x40/-/-/-/0\n";

#[test]
fn text_output_has_one_format() {
    let out = lbr_with_input(&["script", "-i", "-"], TEXT.as_bytes());
    assert_eq!(stdout(&out), " 0x10/0x20/M/-/-/5/COND/-  0x30/0x40/-/-/-/0//- \n");
    assert_eq!((stderr(&out).as_str(), out.status.code()), ("", Some(0)));
    let fields = ["script", "-i", "-", "-F", "brstack,ip,quality,time,cpu,tid,pid"];
    let out = lbr_with_input(&fields, TEXT.as_bytes());
    let wanted = "     12/13      [001]     7.000001:                a0 {-} 0x10/0x20/M/-/-/5/COND/-  0x30/0x40/-/-/-/0//- \n";
    assert_eq!(stdout(&out), wanted);
}

#[test]
fn json_has_null_for_what_is_absent() {
    let out = lbr_with_input(&["script", "-i", "-", "--json"], TEXT.as_bytes());
    let object: serde_json::Value = serde_json::from_str(&stdout(&out)).unwrap();
    assert_eq!(object["time"], 7_000_001_000u64);
    assert_eq!((&object["pid"], &object["tid"]), (&12.into(), &13.into()));
    assert_eq!(object["ip"], "0xa0");
    assert!(object["exact"].is_null() && object["period"].is_null());
    let [known, unknown] = &object["entries"].as_array().unwrap()[..] else { panic!() };
    assert_eq!((&known["from"], &known["to"]), (&"0x10".into(), &"0x20".into()));
    assert_eq!((&known["mispredicted"], &known["cycles"]), (&true.into(), &5.into()));
    assert_eq!(known["type"], "COND");
    for key in ["mispredicted", "cycles", "cycles_saturated", "type", "spec", "in_tx", "abort"] {
        assert!(unknown[key].is_null(), "{key}");
    }
}

#[test]
fn bad_lines_are_reported_and_the_rest_is_printed() {
    let text = format!("{TEXT}0x1/0x2/Q/-/-/0\n{TEXT}");
    let out = lbr_with_input(&["script", "-i", "-"], text.as_bytes());
    assert_eq!(stdout(&out).lines().count(), 2);
    let said = "lbr: standard input: line 2: branch 1: the prediction is not one of M, P, -, MN, PN (skipped)\n";
    assert_eq!(stderr(&out), said);
    assert_eq!(out.status.code(), Some(0));
}

#[test]
fn bad_input_is_a_sentence_and_status_2() {
    let missing = lbr(&["script", "-i", "/nonexistent/perf.data"]);
    assert_eq!(stderr(&missing), "lbr: /nonexistent/perf.data does not exist\n");
    assert_eq!(missing.status.code(), Some(2));
    let garbage = lbr_with_input(&["script", "-i", "-"], b"\x7fELF\x02\x01\x01\0\0\0");
    assert_eq!(
        stderr(&garbage),
        "lbr: standard input: not a recording with branches: neither perf.data nor perf script -F \
         brstack text\n"
    );
    assert_eq!(garbage.status.code(), Some(2));
    let wrapped = lbr_with_input(&["script", "-i", "-"], b"\xfd7zXZ\0\0\x04");
    let said = "lbr: standard input: is compressed by xz; unpack it into a pipe: xz -dc FILE | lbr report -i -\n";
    assert_eq!((stderr(&wrapped).as_str(), wrapped.status.code()), (said, Some(2)));
    let short = lbr_with_input(&["script", "-i", "-"], b"PERFILE2");
    assert_eq!(short.status.code(), Some(2));
    assert!(
        stderr(&short).starts_with("lbr: standard input: damaged perf.data header: the file ends")
    );
}

/// A reader that exits early.
#[test]
fn a_closed_pipe_is_success() {
    let Some(corpus) = corpus() else { return };
    let mut child = command(&["script", "-i"])
        .arg(corpus.join("autofdo/perfdata/test.lbr"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
}

/// perf 6.12's own lines, from a file and through a pipe.
#[test]
fn prints_what_perf_prints() {
    let Some(corpus) = corpus() else { return };
    let file = corpus.join("autofdo/perfdata/test.lbr");
    let expected = corpus.join("autofdo/expected/test.lbr.perf6.12.head200.txt");
    let expected = std::fs::read_to_string(expected).unwrap();
    let first = |out: &Output| -> Vec<String> {
        stdout(out).lines().take(200).map(str::to_owned).collect()
    };
    let path = file.to_str().unwrap();
    let seekable = lbr(&["script", "-F", "pid,ip,brstack", "-i", path]);
    let lines: Vec<&str> = expected.lines().collect();
    assert_eq!(first(&seekable), lines);
    let bytes = std::fs::read(Path::new(path)).unwrap();
    let piped = lbr_with_input(&["script", "-F", "pid,ip,brstack", "-i", "-"], &bytes);
    assert_eq!(stdout(&piped), stdout(&seekable));
    assert_eq!(stderr(&piped), "");
}

/// Every entry of recordings for which three other readers agree, in order, with sample and
/// position.
#[test]
fn golden_entries_are_printed_in_order() {
    let Some(corpus) = corpus() else { return };
    let folder = corpus.join("golden-entries");
    let index = std::fs::read_to_string(folder.join("INDEX.csv")).unwrap();
    let files = index.lines().skip(1).filter_map(|line| line.split(',').next());
    // The tests of `lbr-profile` compare the two larger ones.
    for file in files.filter(|file| file.starts_with("perf-data-converter/")) {
        let (project, _) = file.split_once('/').unwrap();
        let name = file.rsplit('/').next().unwrap();
        let csv = folder.join(format!("{project}.{name}.entries.csv.xz"));
        let Ok(csv) = tool("xz").arg("-dc").arg(csv).output() else {
            return skipped("no xz here");
        };
        let expected = stdout(&csv);
        let mut expected = expected.lines().skip(1);
        let printed = lbr(&["script", "--json", "-i", corpus.join(file).to_str().unwrap()]);
        for (sample, line) in stdout(&printed).lines().enumerate() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            for (place, entry) in line["entries"].as_array().unwrap().iter().enumerate() {
                let golden: Vec<&str> = expected.next().unwrap().split(',').collect();
                let at = [sample.to_string(), place.to_string()];
                let ends = [entry["from"].as_str().unwrap(), entry["to"].as_str().unwrap()];
                assert_eq!([golden[0], golden[3]], at.each_ref().map(String::as_str), "{file}");
                assert_eq!([golden[4], golden[5]], ends, "{file}: {golden:?}");
                let missed = entry["mispredicted"].as_bool();
                let (bad, good) = (golden[6] == "1", golden[7] == "1");
                assert_eq!(missed, (bad || good).then_some(bad), "{file}: {golden:?}");
                let cycles = entry["cycles"].as_u64().unwrap_or(0);
                assert_eq!(cycles.to_string(), golden[10], "{file}: {golden:?}");
            }
        }
        assert_eq!(expected.next(), None, "{file}: entries are missing");
    }
}

/// A recording of two CPUs with separate buffers, written in three rounds. Within a round, the
/// buffers follow one another, each in order of time.
fn two_buffers() -> Vec<u8> {
    // IP, TID, TIME, CPU, BRANCH_STACK, IDENTIFIER.
    const SAMPLE_TYPE: u64 = 1 | 2 | 4 | 0x80 | 0x800 | 0x1_0000;
    let mut data: Vec<u8> = Vec::new();
    let rounds: [&[(u64, u64)]; 3] = [
        &[(0, 1000), (0, 3000), (0, 5000), (1, 2000), (1, 4000)],
        &[(0, 6000), (0, 9000), (1, 4500), (1, 7000), (1, 9000)],
        &[(1, 8000), (1, 10_000), (0, 9500)],
    ];
    for samples in rounds {
        for &(cpu, time) in samples {
            data.extend([9u32.to_le_bytes(), (2u32 | 80 << 16).to_le_bytes()].concat());
            let words = [0x41 + cpu, 0xa0, 7 << 32 | 7, time * 1000, cpu, 1, time, time + 8, 2];
            words.iter().for_each(|word: &u64| data.extend(word.to_le_bytes()));
        }
        data.extend([68u32.to_le_bytes(), (8u32 << 16).to_le_bytes()].concat());
    }
    let mut attr = [0u64; 16];
    (attr[0], attr[2], attr[3]) = (128 << 32, 1000, SAMPLE_TYPE);
    (attr[5], attr[9]) = (1 << 18, 8 | 1);
    let mut file = Vec::new();
    let header = [104, 144, 120, 144, 264, data.len() as u64, 0, 0, 0, 0, 0, 0, 0x41, 0x42];
    let words = [&header[..], &attr[..], &[104u64, 16][..]].concat();
    file.extend(b"PERFILE2");
    words.iter().for_each(|word| file.extend(word.to_le_bytes()));
    file.extend(data);
    file
}

/// CPU and time of each line.
fn who_and_when(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).collect()
}

/// Samples are printed in file order, or in order of time, as in perf.
#[test]
fn several_buffers_are_sorted_as_perf_sorts_them_if_asked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    std::fs::write(&file, two_buffers()).unwrap();
    let path = file.to_str().unwrap();
    let ours = lbr(&["script", "-i", path, "-F", "cpu,time,brstack", "--time-order"]);
    assert_eq!((stderr(&ours).as_str(), ours.status.code()), ("", Some(0)));
    let ours = who_and_when(&stdout(&ours));
    let micros = |line: &String| line.split_whitespace().nth(1).unwrap().to_owned();
    let times: Vec<String> = ours.iter().map(micros).collect();
    let expected = [1000, 2000, 3000, 4000, 4500, 5000, 6000, 7000, 8000, 9000, 9000, 9500, 10_000];
    let expected: Vec<String> = expected.iter().map(|us| format!("0.{us:06}:")).collect();
    assert_eq!(times, expected);
    // Equal times are in file order.
    assert_eq!(&ours[9..11], ["[000] 0.009000:", "[001] 0.009000:"]);
    let piped =
        lbr_with_input(&["script", "-i", "-", "-F", "cpu,time", "--time-order"], two_buffers());
    assert_eq!(who_and_when(&stdout(&piped)), ours);
    let unsorted = lbr(&["script", "-i", path, "-F", "time"]);
    let expected = [1, 3, 5, 2, 4, 6, 9, 4, 7, 9, 8, 10, 9];
    let seconds = |line: &str| line.trim().trim_end_matches(':').parse::<f64>().unwrap();
    let found: Vec<f64> = stdout(&unsorted).lines().map(seconds).collect();
    assert_eq!(found.iter().map(|s| (s * 1000.0) as u64).collect::<Vec<_>>(), expected);
    let perf = tool("perf").args(["script", "-F", "cpu,time,brstack", "-i", path]).output();
    let Ok(perf) = perf else {
        skipped("no perf to compare with");
        return;
    };
    assert!(perf.status.success(), "{}", stderr(&perf));
    assert_eq!(who_and_when(&stdout(&perf)), ours);
}
