//! `lbr learn`: handouts, pages, a terminal.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;

use nix::sys::signal::{Signal, kill};
use nix::sys::termios::tcgetattr;
use nix::unistd::Pid;

use crate::html::Browser;
use crate::support::lbr::{done, lbr, stderr};
use crate::support::programs::{BARE, build};
use crate::support::screen::Terminal;
use crate::support::skip::skipped;

/// The content of handouts, stored to make changes visible.
#[test]
fn transcripts_match_the_golden_files() {
    for lesson in ["taken", "msr", "arch", "am94"] {
        let path = format!("{}/../tests/cli/golden/learn-{lesson}.txt", env!("CARGO_MANIFEST_DIR"));
        let handout = done(&["learn", "--transcript", lesson]);
        if std::env::var_os("LBR_RENEW").is_some() {
            std::fs::write(&path, &handout).unwrap();
        }
        assert_eq!(handout, std::fs::read_to_string(&path).unwrap(), "{lesson}");
    }
}

#[test]
fn no_terminal_is_an_error() {
    let out = lbr(&["learn"]);
    assert_eq!(out.status.code(), Some(2));
    let said = stderr(&out);
    for word in ["terminal", "--list", "--transcript", "--html"] {
        assert!(said.contains(word), "{said}");
    }
    assert_eq!(lbr(&["learn", "--transcript", "nothing"]).status.code(), Some(2));
    assert!(done(&["learn", "--list"]).lines().count() > 10);
}

/// A lesson on another CPU: it names the missing features, and the classes that cannot be filtered.
#[test]
fn another_cpu_names_its_missing_features() {
    let handout = done(&["learn", "--transcript", "predict", "--soft-cpu", "nehalem"]);
    assert!(handout.contains("no cycle counts"), "{handout}");
    let out = lbr(&["learn", "--transcript", "callstack", "--soft-cpu", "nehalem"]);
    assert!(stderr(&out).contains("no call-stack mode"), "{}", stderr(&out));
}

#[test]
fn a_users_own_program() {
    let Some(program) = build("textbook.S", &[BARE, &["-DELEMENTS=3,9,-4"]].concat()) else {
        return;
    };
    let args = ["learn", "--transcript", "--from", "_start", "--", program.name()];
    let out = lbr(&args);
    if out.status.code() != Some(0) {
        return skipped(stderr(&out));
    }
    let handout = done(&args);
    assert!(handout.contains("_start"), "{handout}");
    // A common spelling.
    let behind = done(&["learn", "--transcript", "--", program.name(), "--from", "_start"]);
    assert_eq!(behind, handout);
    let few = lbr(&["learn", "--transcript", "--steps", "5", "--", program.name()]);
    assert!(stderr(&few).contains("ended after 5 instructions"), "{}", stderr(&few));
}

/// The page, by keyboard alone: forwards and back, another CPU, a bit, an answer.
#[test]
fn the_page_steps_through_the_states() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("course.html");
    done(&["learn", "taken", "--html", page.to_str().unwrap()]);
    let script = r##"
        const press = key => document.activeElement.dispatchEvent(
            new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
        const seen = () => ["progress", "ring", "controls", "happened", "code"]
            .map(id => document.getElementById(id).innerHTML).join();
        const states = [seen()];
        for (let i = 0; i < 16; i++) { press("ArrowRight"); states.push(seen()); }
        const full = [...document.querySelectorAll("#ring tr")].filter(row => row.cells[1].textContent !== "0x0").length;
        let same = 0;
        for (let i = 15; i >= 0; i--) { press("ArrowLeft"); same += Number(seen().replace(/ chosen|chosen/g, "") === states[i].replace(/ chosen|chosen/g, "")); }
        press("c"); press("c");
        const cpu = document.getElementById("cpu").value;
        press("0");
        [...document.querySelectorAll("#controls button")].find(b => b.textContent.endsWith(" JCC")).click();
        const bit = name => [...document.querySelectorAll("#controls button")].find(b => b.textContent.endsWith(" " + name));
        const records = () => [...document.querySelectorAll("#ring tr")].filter(row => row.cells[1].textContent !== "0x0").length;
        bit("FAR_BRANCH").click();
        const pair = ["JCC", "FAR_BRANCH", "LBR"].map(name => [bit(name).getAttribute("aria-pressed"), bit(name).disabled]);
        press("r");
        const filtered = [...document.querySelectorAll("#ring tr")].filter(row => row.cells[1].textContent !== "0x0").length;
        press("0");
        for (let i = 0; i < 7; i++) press("s");
        const steps = [records()];
        bit("LBR").click();
        steps.push(document.activeElement.textContent);
        press("r");
        steps.push(records(), bit("LBR").getAttribute("aria-pressed"));
        for (let i = 0; i < 10; i++) press("b");
        press("r");
        steps.push(records());
        press("0");
        bit("LBR").click();
        for (let i = 0; i < 7; i++) press("s");
        bit("LBR").click();
        press("r");
        steps.push(records());
        press("a");
        const input = document.getElementById("answer");
        input.value = "2";
        document.getElementById("question").requestSubmit();
        const wrong = document.getElementById("verdict").textContent;
        input.value = "1";
        document.getElementById("question").requestSubmit();
        const right = document.getElementById("verdict").textContent;
        return { full, same, cpu, pair, filtered, steps, wrong, right };
        "##;
    let (page, size) = (std::fs::read_to_string(page).unwrap(), (1300, 1000));
    let seen = browser.look(&[(&page, size, false, script), (&page, size, true, "")]);
    let played = &seen[0].0;
    // `taken` leaves three records, none of them of its conditional branches with JCC.
    assert_eq!((&played["full"], &played["same"]), (&3.into(), &16.into()));
    assert!(!played["cpu"].as_str().unwrap().starts_with("Skylake"), "{played}");
    assert_eq!(played["filtered"], 0);
    // The button of LBR is disabled.
    let pair = serde_json::json!([["true", false], ["true", false], ["true", true]]);
    assert_eq!(played["pair"], pair);
    // Its first record appears at step 7: off then, off with everything undone, and off until then.
    assert_eq!(played["steps"], serde_json::json!([1, "0 LBR", 1, "false", 3, 2]));
    assert!(played["wrong"].as_str().unwrap().contains("says no"), "{played}");
    assert!(played["right"].as_str().unwrap().contains("right"), "{played}");
    assert_eq!((seen[0].1[0], seen[1].1[0]), ([0xFF; 3], [0x0D, 0x11, 0x17]));
}

/// However it ends, the terminal is restored.
#[test]
fn the_terminal_is_restored() {
    for (end, signal) in
        [("q", None), ("\u{3}", None), ("", Some(Signal::SIGTERM)), ("", Some(Signal::SIGINT))]
    {
        let mut terminal = Terminal::start((80, 24), &["learn"]);
        let before = tcgetattr(&terminal.slave).unwrap();
        terminal.wait_for("Only taken branches");
        assert_ne!(tcgetattr(&terminal.slave).unwrap(), before, "raw while it is drawn");
        terminal.keys.write_all(b" sss").unwrap();
        terminal.wait_for("step 3 of 16");
        terminal.keys.write_all(end.as_bytes()).unwrap();
        if let Some(signal) = signal {
            kill(Pid::from_raw(terminal.child.id().cast_signed()), signal).unwrap();
        }
        // Back on the main screen, with a cursor.
        terminal.wait_for_bytes("\u{1b}[?25h");
        terminal.wait_for_bytes("\u{1b}[?1049l");
        let status = terminal.child.wait().unwrap();
        assert_eq!(status.signal(), signal.map(|signal| signal as i32));
        assert_eq!(tcgetattr(&terminal.slave).unwrap(), before);
    }
}
