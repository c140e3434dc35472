//! `lbr browse`: its screens, its numbers, and a terminal that it leaves as it was.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lbr_commands::Browser;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::tcgetattr;
use nix::unistd::Pid;
use proptest::prelude::*;
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::Value;

use crate::support::lbr::{PROGRAM, alone, done, lbr, stderr, text};
use crate::support::programs::{BARE, build};
use crate::support::screen::Terminal;
use crate::support::skip::{run_tool, skipped, tool};
use crate::terminal::typed;

/// A recording of a program, every branch in it.
fn recorded(folder: &Path, program: &str, model: bool) -> Option<String> {
    let program = build(program, BARE)?;
    // Its code must be there when it is browsed.
    let kept = folder.join("program");
    fs::copy(&program.path, &kept).unwrap();
    let file = folder.join("perf.data").to_str().unwrap().to_owned();
    let how: &[&str] =
        if model { &["--model"] } else { &["--backend", "soft", "--source", "ptrace"] };
    let args = [&["record"], how, &["-o", &file, "--", kept.to_str().unwrap()]].concat();
    let out = lbr(&args);
    if out.status.code() != Some(0) {
        skipped(stderr(&out));
        return None;
    }
    Some(file)
}

/// A key: a character, or the name of one (`Enter`).
fn key(name: &str) -> KeyEvent {
    match name {
        "Enter" => KeyCode::Enter,
        "Backspace" => KeyCode::Backspace,
        "Esc" => KeyCode::Esc,
        "Tab" => KeyCode::Tab,
        "BackTab" => KeyCode::BackTab,
        "Up" => KeyCode::Up,
        "Down" => KeyCode::Down,
        "Left" => KeyCode::Left,
        "Right" => KeyCode::Right,
        "Home" => KeyCode::Home,
        "End" => KeyCode::End,
        "PageUp" => KeyCode::PageUp,
        "PageDown" => KeyCode::PageDown,
        "Ctrl-D" => return KeyEvent::new(KeyCode::Char('d'), KeyModifiers::CONTROL),
        "Ctrl-U" => return KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL),
        other => KeyCode::Char(other.chars().next().unwrap_or(' ')),
    }
    .into()
}

/// Presses keys, with spaces in between.
fn press(browser: &mut Browser, keys: &str) {
    for name in keys.split_whitespace() {
        assert!(browser.press(key(name)).unwrap(), "{name} of {keys}");
    }
}

/// Keys; the screen after each is kept, and was looked at.
const WALK: [&str; 17] = [
    "",
    "Enter",
    "G",
    "Home Down Down Down Down Down Down Down",
    "Enter",
    "Backspace",
    "g",
    "Backspace p",
    "Backspace n",
    "Enter",
    "Backspace Backspace Tab > >",
    "/ t o p",
    "Enter Tab Tab Tab",
    "Enter",
    "Enter",
    "?",
    "q f",
];

/// As they were looked at; `LBR_RENEW` writes them anew.
#[test]
fn screens_match_the_golden_files() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let Some(file) = recorded(folder.path(), "stacks.S", false) else { return };
    for size in [(80, 24), (120, 40)] {
        let mut browser = Browser::open(&[&file]).unwrap();
        let mut text = String::new();
        for keys in WALK {
            press(&mut browser, keys);
            writeln!(text, "== {keys}").unwrap();
            for line in browser.screen(size.0, size.1) {
                // Folders differ, and are cut; processes differ.
                let is_of_folder = line.contains("software LBR")
                    || line.contains("_start in ")
                    || line.contains("only pid=");
                text += if is_of_folder { "…" } else { &line };
                text.push('\n');
            }
        }
        let text = text.replace(folder.path().to_str().unwrap(), "FOLDER");
        let path =
            format!("{}/../tests/cli/golden/browse-{}.txt", env!("CARGO_MANIFEST_DIR"), size.0);
        if std::env::var_os("LBR_RENEW").is_some() {
            fs::write(&path, &text).unwrap();
        }
        assert_eq!(text, fs::read_to_string(&path).unwrap(), "{size:?}");
    }
}

/// Objects of `lbr report --json`, without the last, which is about all.
fn rows(args: &[&str]) -> Vec<Value> {
    let text = done(args);
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.filter(|row| row["view"] != "quality").collect()
}

/// The rows that the browser writes.
fn written(browser: &mut Browser, folder: &Path) -> Vec<Value> {
    let file = folder.join("rows.json");
    press(browser, "w");
    let path = file.to_str().unwrap();
    path.chars().for_each(|c| assert!(browser.press(key(&c.to_string())).unwrap()));
    press(browser, "Enter");
    let text = fs::read_to_string(&file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The browser writes the rows that `lbr report` prints, and shows the same lines.
#[test]
fn numbers_are_those_of_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let Some(file) = recorded(folder.path(), "outcomes.S", true) else { return };
    let views = [
        ("hot", "Tab"),
        ("mispredict", "Tab Tab"),
        ("outcomes", "Tab Tab Tab"),
        ("blocks", "Tab Tab Tab Tab Tab"),
        ("loops", "Tab Tab Tab Tab Tab Tab"),
    ];
    for (view, keys) in views {
        let mut browser = Browser::open(&[&file]).unwrap();
        press(&mut browser, keys);
        let ours = written(&mut browser, folder.path());
        let mut theirs = rows(&["report", "-i", &file, "--view", view, "--json"]);
        // These views have rows of another kind too, which are other pages.
        theirs.retain(|row| row["kind"] != "basic_block" && row["kind"] != "indirect");
        assert!(!theirs.is_empty(), "{view}");
        assert_eq!(ours, theirs, "{view}");
        let printed = typed(140, &["report", "-i", &file, "--view", view, "-n", "0"], |_, _| ());
        let shown = browser.screen(140, 200);
        for line in shown.iter().skip(4).take_while(|line| !line.is_empty()) {
            assert!(printed.lines().any(|other| other.trim_end() == line), "{line}\n{printed}");
        }
    }
    let Some(file) = recorded(folder.path(), "stacks.S", true) else { return };
    let mut browser = Browser::open(&[&file]).unwrap();
    let screen = browser.screen(140, 40).join("\n");
    let functions = rows(&["report", "-i", &file, "--group", "function", "--json"]);
    let graph = rows(&["report", "-i", &file, "--view", "callgraph", "--json"]);
    let total = |name: &Value| {
        let is = |row: &&Value| row["kind"] == "function" && row["function"] == *name;
        graph.iter().find(is).map_or("-".to_owned(), |row| row["total"].to_string())
    };
    assert!(functions.len() > 5);
    for row in &functions {
        let name = &row["symbol"];
        let line = screen.lines().find(|line| line.ends_with(name.as_str().unwrap())).unwrap();
        let words: Vec<String> =
            line.split_whitespace().map(|word| word.replace(',', "")).collect();
        assert_eq!(words[0], row["count"].to_string(), "{screen}");
        assert_eq!(words[2], total(name), "{screen}");
        if let Some(missed) = row["mispredicted"].as_u64() {
            assert_eq!(words[3], missed.to_string(), "{screen}");
        }
    }
    press(&mut browser, "Enter");
    let code = browser.screen(140, 200);
    let printed = typed(140, &["annotate", "-i", &file], |_, _| ());
    let lines: Vec<&str> = code.iter().skip(4).map(String::as_str).collect();
    let lines = lines.iter().take_while(|line| !line.is_empty());
    assert!(lines.clone().count() > 5);
    for line in lines {
        assert!(printed.lines().any(|other| other.trim_end() == *line), "{line}\n{printed}");
    }
}

/// Rows of `lbr diff --json` that are of a kind.
fn differences(args: &[&str], kind: &str) -> Vec<Value> {
    let mut all = rows(&[&["diff"], args, &["--json"]].concat());
    all.retain(|row| row["kind"] == kind);
    assert!(!all.is_empty());
    all
}

/// Two recordings: functions, branches and loops are those of `lbr diff`; code is marked.
#[test]
fn a_difference_is_that_of_the_diff() {
    let folder = crate::diff::Folder::new();
    let text = crate::diff::text;
    let (a, b) =
        (folder.file("a.txt", &text(1, 10, "leaf")), folder.file("b.txt", &text(5, 10, "leaf")));
    let mut browser = Browser::open(&[&a, &b]).unwrap();
    let of = |by: &[&str], kind| differences(&[&[a.as_str(), &b], by].concat(), kind);
    assert_eq!(written(&mut browser, folder.0.path()), of(&["--by", "function"], "branch"));
    // 20 of 600 predictions were wrong, and 100 of 600 are: in `lbr diff`'s own test, by hand.
    let screen = browser.screen(100, 24);
    let row = screen.iter().find(|line| line.ends_with("loop")).unwrap();
    assert!(row.contains("worse") && row.contains("3.33%") && row.contains("16.67%"), "{screen:?}");
    assert!(screen[1].starts_with("1 significant change"), "{screen:?}");
    press(&mut browser, "Tab");
    assert_eq!(written(&mut browser, folder.0.path()), of(&[], "branch"));
    let versions = [("one", 20), ("two", 28)].map(|(name, trips)| {
        crate::diff::recorded(&folder, name, &crate::diff::source("", trips, ""), "")
    });
    let [Some(one), Some(two)] = versions else { return };
    let mut browser = Browser::open(&[&one, &two, "--symbol", "work"]).unwrap();
    let loops = differences(&[&one, &two, "--symbol", "work"], "loop");
    press(&mut browser, "Tab Tab Tab Tab Tab Tab");
    assert_eq!(written(&mut browser, folder.0.path()), loops);
    press(&mut browser, "Enter");
    let code = browser.screen(140, 40).join("\n");
    let marked = code.lines().find(|line| line.contains("trips 20.00 -> 28.00"));
    assert!(marked.is_some_and(|line| line.starts_with("worse ")), "{code}");
    // Pages without a comparison are those of the second recording.
    press(&mut browser, "q Tab Tab");
    assert!(browser.screen(140, 40)[1].starts_with(&two), "{:?}", browser.screen(140, 40));
}

/// By hand: 200 stacks each, whose block from `loop` takes 10 and 14 cycles.
#[test]
fn cycles_are_drawn_with_those_of_the_baseline() {
    let folder = crate::diff::Folder::new();
    let of = |name, cycles| folder.file(name, &crate::diff::text(1, cycles, "leaf"));
    let mut browser = Browser::open(&[&of("a.txt", 10), &of("b.txt", 14)]).unwrap();
    press(&mut browser, "Tab Tab Tab Tab Tab j j c");
    let screen = browser.screen(100, 24).join("\n");
    for line in [
        "baseline: n 200, saturated 0, dropped 0, mode 10",
        "new: n 200, saturated 0, dropped 0, mode 14",
    ] {
        assert!(screen.contains(line), "{screen}");
    }
}

/// By hand: `b_bit` is taken or not 1,000 times, `l_bit` runs when it is not. The generator of
/// `outcomes.S` decides.
#[test]
fn counts_are_those_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let Some(file) = recorded(folder.path(), "outcomes.S", false) else { return };
    let (mut random, mut clear, mut cases) = (12345_u32, 0, [0; 4]);
    for _ in 0..1000 {
        random = random.wrapping_mul(1_103_515_245).wrapping_add(12345);
        clear += u32::from(random & 0x10000 == 0);
        cases[(random >> 20) as usize & 3] += 1;
    }
    let mut browser = Browser::open(&[&file]).unwrap();
    press(&mut browser, "Tab Tab Tab Tab Enter");
    let targets = browser.screen(120, 40).join("\n");
    let mut counts: Vec<u32> = cases.to_vec();
    counts.sort_unstable();
    let mut shown: Vec<u32> = Vec::new();
    for line in targets.lines().filter(|line| line.contains("b_switch+0x0 -> ")) {
        shown.push(line.split_whitespace().nth(1).unwrap().parse().unwrap());
    }
    shown.sort_unstable();
    assert_eq!(shown, counts, "{targets}");
    press(&mut browser, "Backspace BackTab");
    let outcomes = browser.screen(120, 40).join("\n");
    let both = [clear.to_string(), (1000 - clear).to_string()];
    let line = outcomes.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.windows(2).any(|pair| pair == both)
    });
    assert!(line, "{both:?} {outcomes}");
}

/// Searching narrows the rows, sorting changes their order, and a filter can be taken off.
#[test]
fn rows_are_searched_sorted_and_filtered() {
    let folder = tempfile::tempdir().unwrap();
    let Some(file) = recorded(folder.path(), "stacks.S", false) else { return };
    let mut browser = Browser::open(&[&file]).unwrap();
    let lines = |browser: &mut Browser| -> Vec<String> {
        let screen = browser.screen(80, 24);
        let head = screen.iter().position(|line| line.ends_with("cycles  function")).unwrap();
        let rows = screen[head + 1..23].iter().take_while(|line| !line.is_empty());
        rows.map(|line| line.split_whitespace().last().unwrap().to_owned()).collect()
    };
    let all = lines(&mut browser);
    assert!(all.len() > 5, "{all:?}");
    press(&mut browser, "/ w r k");
    assert_eq!(lines(&mut browser), ["work"]);
    press(&mut browser, "Esc");
    assert_eq!(lines(&mut browser), all);
    press(&mut browser, "7");
    let mut sorted = all.clone();
    sorted.sort();
    assert_eq!(lines(&mut browser), sorted);
    press(&mut browser, "7");
    sorted.reverse();
    assert_eq!(lines(&mut browser), sorted);
    press(&mut browser, "f j Enter");
    assert_eq!(lines(&mut browser), sorted[..1]);
    press(&mut browser, "f Enter");
    assert_eq!(lines(&mut browser), sorted);
    // The process is listed with its samples; all rows are its own.
    press(&mut browser, "f");
    let choices = browser.screen(80, 24);
    let first = choices.iter().position(|line| line.starts_with("only dso=")).unwrap();
    let process = choices.iter().position(|line| line.starts_with("only pid=")).unwrap();
    assert!(choices[process].ends_with(": 4 samples"), "{choices:?}");
    (first..process).for_each(|_| press(&mut browser, "j"));
    press(&mut browser, "Enter");
    assert_eq!(lines(&mut browser), sorted);
    assert!(browser.screen(80, 24).iter().any(|line| line.starts_with("[pid=")));
    // Its file, which no column shows.
    press(&mut browser, "/ p r o g r a m");
    assert_eq!(lines(&mut browser), sorted);
    press(&mut browser, "Esc Tab");
    let types = |browser: &mut Browser| {
        let rows = written(browser, folder.path());
        rows.into_iter().map(|row| row["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = types(&mut browser);
    let returns = all.iter().filter(|name| *name == "RET").count();
    assert!(returns > 0 && returns < all.len(), "{all:?}");
    press(&mut browser, "f");
    let choices = browser.screen(80, 40);
    let first = choices.iter().position(|line| line.starts_with("take off")).unwrap();
    let typed = choices.iter().position(|line| line.starts_with("only type=RET: ")).unwrap();
    (first..typed).for_each(|_| press(&mut browser, "j"));
    press(&mut browser, "Enter");
    assert_eq!(types(&mut browser), vec!["RET"; returns]);
    press(&mut browser, "f j Enter");
    assert_eq!(types(&mut browser), all);
}

/// Keys of every kind, and clicks.
fn any_key() -> impl Strategy<Value = String> {
    const NAMES: &[&str] = &[
        "Enter",
        "Enter",
        "Enter",
        "Backspace",
        "Esc",
        "Tab",
        "BackTab",
        "Up",
        "Down",
        "Left",
        "Right",
        "Home",
        "End",
        "PageUp",
        "PageDown",
        "Ctrl-D",
        "Ctrl-U",
        "click",
    ];
    prop_oneof![
        2 => proptest::sample::select(NAMES).prop_map(str::to_owned),
        // `w` would write files.
        3 => "[a-vx-zA-Z0-9/?<>.=\u{e9}\u{95a2} ]",
    ]
}

/// No key leads to a panic or to a page without a way back.
#[test]
fn ten_thousand_keys_at_random() {
    let folder = tempfile::tempdir().unwrap();
    let Some(file) = recorded(folder.path(), "stacks.S", false) else { return };
    let twice = [file.as_str(), &file];
    let config = ProptestConfig { cases: 50, failure_persistence: None, ..Default::default() };
    let sizes = proptest::sample::select(&[(80, 24), (200, 50), (40, 10), (1, 1)][..]);
    proptest!(config, |(
        keys in proptest::collection::vec(any_key(), 200), size in sizes, sides in 1..=2_usize,
    )| {
        let mut browser = Browser::open(&twice[..sides]).unwrap();
        browser.screen(size.0, size.1);
        let (mut ended, mut at) = (false, 0_usize);
        for pressed in &keys {
            at += 7;
            match pressed.as_str() {
                "click" => browser.click(at % 24),
                name => ended = !browser.press(key(name)).unwrap(),
            }
            if ended {
                browser = Browser::open(&twice[..sides]).unwrap();
                browser.screen(size.0, size.1);
            }
        }
        browser.screen(size.0, size.1);
        // A prompt takes one Escape; every page one q.
        browser.press(key("Esc")).unwrap();
        let way = (0..=keys.len()).find(|_| !browser.press(key("q")).unwrap());
        prop_assert!(way.is_some(), "no way back from {keys:?}");
    });
}

#[test]
fn no_terminal_is_an_error() {
    let out = lbr(&["browse"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(stderr(&out).contains("lbr report"), "{}", stderr(&out));
    assert_eq!(lbr(&["browse", "-i", "nothing.data"]).status.code(), Some(2));
}

/// However it ends, the terminal is as it was; stopped and continued, it is drawn again.
#[test]
fn the_terminal_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let Some(file) = recorded(folder.path(), "stacks.S", false) else { return };
    for (end, signal) in [("q", None), ("\u{3}", None), ("", Some(Signal::SIGTERM))] {
        let mut terminal = Terminal::start((80, 24), &["browse", &file]);
        let before = tcgetattr(&terminal.slave).unwrap();
        terminal.wait_for(" branches, ");
        assert_ne!(tcgetattr(&terminal.slave).unwrap(), before, "raw while it is drawn");
        let pid = Pid::from_raw(terminal.child.id().cast_signed());
        kill(pid, Signal::SIGTSTP).unwrap();
        terminal.wait_for_bytes("\u{1b}[?1049l");
        // The parent waits until it has stopped, and continues it.
        let flags = nix::sys::wait::WaitPidFlag::WUNTRACED;
        nix::sys::wait::waitpid(pid, Some(flags)).unwrap();
        assert_eq!(tcgetattr(&terminal.slave).unwrap(), before, "stopped");
        kill(pid, Signal::SIGCONT).unwrap();
        terminal.wait_for_bytes("\u{1b}[?1049h");
        terminal.wait_for(" branches, ");
        terminal.keys.write_all(b"\r").unwrap();
        terminal.wait_for("functions > ");
        terminal.keys.write_all(b"\x7f").unwrap();
        terminal.wait_for(" mispredicts ");
        terminal.keys.write_all(end.as_bytes()).unwrap();
        if let Some(signal) = signal {
            kill(pid, signal).unwrap();
        }
        terminal.wait_for_bytes("\u{1b}[?25h");
        terminal.wait_for_bytes("\u{1b}[?1049l");
        let status = terminal.child.wait().unwrap();
        assert_eq!(status.signal(), signal.map(|signal| signal as i32));
        assert_eq!(tcgetattr(&terminal.slave).unwrap(), before);
    }
}

/// A closed terminal window ends it, also where it is closed just before input is waited for.
#[test]
fn it_ends_with_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let Some(file) = recorded(folder.path(), "stacks.S", false) else { return };
    ends_with_its_terminal(&file, None);
    let slow = folder.path().join("slow_epoll.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/programs/slow_epoll.c");
    let mut cc = tool("cc");
    let Some(made) = run_tool(cc.args(["-shared", "-fPIC", "-o"]).arg(&slow).arg(source)) else {
        return;
    };
    assert!(made.status.success(), "{}", text(&made.stderr));
    ends_with_its_terminal(&file, Some(&slow));
}

fn ends_with_its_terminal(file: &str, preloaded: Option<&Path>) {
    let size = nix::pty::Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = nix::pty::openpty(Some(&size), None).unwrap();
    // The child must not keep the window open.
    fcntl(&pty.master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
    let end = || Stdio::from(pty.slave.try_clone().unwrap());
    let mut command = alone(Command::new(PROGRAM));
    command.args(["browse", file]).env("TERM", "xterm");
    command.envs(preloaded.map(|library| ("LD_PRELOAD", library)));
    command.stdin(end()).stdout(end()).stderr(end());
    let mut child = command.spawn().unwrap();
    drop((command, pty.slave));
    let mut window = File::from(pty.master);
    let (mut shown, mut buffer) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&shown).contains("function") {
        let n = window.read(&mut buffer).unwrap();
        shown.extend_from_slice(&buffer[..n]);
    }
    if preloaded.is_some() {
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(window);
    let (ended, end) = std::sync::mpsc::channel();
    let pid = Pid::from_raw(child.id().cast_signed());
    std::thread::spawn(move || ended.send(child.wait()));
    let status = end.recv_timeout(Duration::from_secs(60));
    assert!(status.is_ok(), "it goes on without a terminal: {:?}", kill(pid, Signal::SIGKILL));
}
