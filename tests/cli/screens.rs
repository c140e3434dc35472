//! Every command that prints results, at three widths of a terminal, as they were looked at. The
//! answer is in the first three lines of each.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::lbr::lbr_in;
use crate::support::programs::{BARE, build};
use crate::support::skip::skipped;
use crate::terminal::typed;

/// Commands, and words of the answer.
const SCREENS: [(&[&str], &str); 20] = [
    (&["probe", "--soft-cpu", "zen4"], "amd_lbr_v2"),
    (&["decode", "--format", "5", "raw.txt"], "401000"),
    (&["explain", "LBR_SELECT", "0x3c5"], "= 0x3c5"),
    (&["explain", "--build", "LBR_SELECT", "any_call,u"], "= 0xe5"),
    (&["verify", "--soft-cpu", "skylake"], "as documented, none differs"),
    (
        &["verify", "--soft-cpu", "skylake", "--write", "--soft-lie", "tos-off-by-one"],
        "1 differs: order",
    ),
    (&["report"], "18 branches"),
    (&["report", "--view", "types"], "18 branches"),
    (&["report", "--view", "mispredict"], "mispredicted"),
    (&["report", "--view", "outcomes"], "18 branches"),
    (&["report", "--view", "blocks"], "18 branches"),
    (&["report", "--view", "loops"], "18 branches"),
    (&["report", "--view", "callgraph"], "18 branches"),
    (&["report", "--view", "paths"], "18 branches"),
    (&["hist"], "leaf+0x0 .. leaf+0x3"),
    (&["annotate"], "counts are exact"),
    (&["diff", "perf.data", "perf.data"], "no row changed significantly"),
    (&["lint"], "sound"),
    (&["script"], "/COND/"),
    (&["report", "--csv"], "count"),
];

/// Views of other recordings (without predictions and cycles, of calls only, of call stacks, a text
/// of `perf script` without its program), and words of the answer.
const VIEWS: [(&[&str], [&str; 4]); 8] = [
    (
        &["report", "--limit", "5", "-i"],
        ["18 branches", "5 branches", "10 samples", "312 branches"],
    ),
    (
        &["report", "--limit", "5", "--view", "mispredict", "-i"],
        ["18 ", "5 ", "10 samples", "312 "],
    ),
    (&["report", "--limit", "5", "--view", "outcomes", "-i"], ["18 ", "5 ", "10 samples", "312 "]),
    (
        &["report", "--limit", "5", "--view", "blocks", "-i"],
        ["18 ", "without blocks", "10 samples", "312 "],
    ),
    (
        &["report", "--limit", "5", "--view", "callgraph", "-i"],
        ["18 ", "5 ", "count stacks", "312 "],
    ),
    (&["hist", "-i"], ["no cycle counts", "no blocks", "no blocks", "no cycle counts"]),
    (&["annotate", "-i"], ["counts are exact", "of the sample", "of the sample", "no function"]),
    (&["lint", "-i"], ["sound", "sound", "sound", "sound"]),
];
const RECORDINGS: [(&str, &[&str]); 3] =
    [("plain", &[]), ("calls", &["-j", "any_call,u"]), ("stacks", &["-j", "stack,u", "-c", "1"])];
/// A text that `perf script` printed.
const TEXT: &str = "../tests/texts/perf-6.1-brstack.txt";

/// Two machines, and what their CPUs have.
const HOSTS: [(&str, &str); 2] = [("skylake", "Skylake"), ("zen4", "LbrExtV2")];

#[test]
fn every_command_on_a_terminal() {
    let flags = [BARE, &["-Wl,-Ttext=0x4ed000"]].concat();
    let Some(program) = build("textbook.S", &flags) else { return };
    // Paths are printed, and their length decides where lines are folded.
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let textbook = folder.path().join("textbook");
    fs::copy(program.name(), &textbook).unwrap();
    let raw = "401000 401020 1000000000000005\n8000000000401020 401000 20\n";
    fs::write(folder.path().join("raw.txt"), raw).unwrap();
    let recordings = [("perf.data", &["--model"][..])].into_iter().chain(RECORDINGS);
    for (name, options) in recordings {
        let start = ["record", "--source", "ptrace", "-o", name];
        let end = ["--", textbook.to_str().unwrap()];
        let out = lbr_in(folder.path(), &[&start[..], options, &end].concat());
        if out.status.code() == Some(4) {
            skipped(String::from_utf8_lossy(&out.stderr));
            return;
        }
    }
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::copy(crate_folder.join(TEXT), folder.path().join("text")).unwrap();
    let hosts = crate_folder.join("../tests/hosts").canonicalize().unwrap();
    let hosts = hosts.to_str().unwrap();
    let mut screens: Vec<(Vec<String>, &str)> = Vec::new();
    let mut add = |words: &[&str], answer| {
        screens.push((words.iter().map(|word| (*word).to_owned()).collect(), answer));
    };
    SCREENS.iter().for_each(|(words, answer)| add(words, answer));
    for (words, answers) in VIEWS {
        for (name, answer) in ["plain", "calls", "stacks", "text"].into_iter().zip(answers) {
            add(&[words, &[name]].concat(), answer);
        }
    }
    for (host, answer) in HOSTS {
        add(&["probe", "--msr-root", &format!("{hosts}/{host}")], answer);
    }
    let home = folder.path().to_str().unwrap();
    for width in [80, 120, 200] {
        let mut all = String::new();
        for (words, answer) in &screens {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let here = |command: &mut Command, _: &_| {
                command.stdin(Stdio::null()).current_dir(&folder);
            };
            let text = typed(width, &words, here).replace("\r\n", "\n");
            let line = words.join(" ").replace(hosts, "HOSTS");
            let head: String = text.lines().take(3).collect::<Vec<_>>().join("\n");
            assert!(head.contains(*answer), "{line} at {width}: {answer}\n{text}");
            write!(
                all,
                "$ lbr {line}\n{}\n",
                text.replace(home, "/home/you").replace(hosts, "HOSTS")
            )
            .unwrap();
        }
        let path =
            format!("{}/../tests/cli/golden/screens-{width}.txt", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("LBR_RENEW").is_some() {
            fs::write(&path, &all).unwrap();
        }
        let golden = fs::read_to_string(&path).unwrap();
        let differs = all.lines().zip(golden.lines()).find(|(ours, theirs)| ours != theirs);
        assert_eq!(differs, None, "at {width} columns: LBR_RENEW=1 writes {path}");
        assert_eq!(all.lines().count(), golden.lines().count(), "at {width} columns");
    }
}
