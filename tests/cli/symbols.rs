//! Names, lines and lists of symbols in the output of `lbr report`.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::lbr::{lbr, stdout as text_of};
use crate::support::linked::AS_KERNEL;
use crate::support::programs::build;
use crate::support::skip::{skipped, tool};

/// Runs `lbr report` on brstack text.
fn report(dir: &Path, text: &str, args: &[&str]) -> Output {
    let file = dir.join("branches.txt");
    std::fs::write(&file, text).unwrap();
    let mut all = vec!["report", "-i", file.to_str().unwrap()];
    all.extend(args);
    let out = lbr(&all);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    out
}

/// The first row with this view.
fn row(out: &Output, view: &str) -> Value {
    let text = text_of(out);
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.into_iter().find(|row| row["view"] == view).unwrap()
}

const MMAP: &str = "PERF_RECORD_MMAP2 7/7: [0x400000(0x2000) @ 0 08:01 1 0]: r-xp";

/// Lines of `inlined.c`, named in its comments.
#[test]
fn source_lines_and_inlined_functions() {
    let Some(program) = build("inlined.c", &["-O2", "-g", "-no-pie", "-fno-pie"]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (program.at("in_inner"), program.at("in_step"));
    let path = program.path.canonicalize().unwrap();
    let map = format!("{MMAP} {}\n", path.display());
    let text = format!("{map}7/7 1.000000: 0x{from:x}/0x{to:x}/M/-/-/7/COND\n").repeat(2);

    let hot = row(&report(dir.path(), &text, &["--json"]), "hot");
    let source = |line: u32| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/programs/inlined.c");
        format!("{}:{line}", path.display())
    };
    assert_eq!(hot["from_symbol"], "step");
    assert_eq!(hot["from_line"], source(9));
    let frame = |function: &str, line| json!({ "function": function, "line": source(line) });
    assert_eq!(
        hot["from_inlines"],
        json!([frame("inner", 9), frame("middle", 16), frame("step", 22)])
    );
    assert_eq!((&hot["to_line"], &hot["to_inlines"]), (&json!(source(20)), &Value::Null));

    let table = text_of(&report(dir.path(), &text, &[]));
    let step = program.at("step");
    let shown = format!(
        "step+{:#x} (inlined.c:9 inner, inlined) -> +{:#x} (inlined.c:20)",
        from - step,
        to - step
    );
    assert!(table.contains(&shown), "{shown} in\n{table}");

    // Every view prints them.
    let site = row(&report(dir.path(), &text, &["--json", "--view", "mispredict"]), "mispredict");
    assert_eq!((&site["from_line"], &site["type"]), (&json!(source(9)), &json!("COND")));
    let table = text_of(&report(dir.path(), &text, &["--view", "mispredict"]));
    assert!(table.contains("(inlined.c:9 inner, inlined)"), "{table}");

    // They can be switched off.
    let bare = report(dir.path(), &text, &["--json", "--no-source"]);
    let hot = row(&bare, "hot");
    assert_eq!((&hot["from_symbol"], &hot["from_line"]), (&json!("step"), &Value::Null));
    assert_eq!(hot["from_inlines"], Value::Null);
    let table = text_of(&report(dir.path(), &text, &["--no-source"]));
    assert!(!table.contains("inlined.c") && table.contains("step+"), "{table}");
}

/// `--debug-dir`: a stripped program, with its debug file elsewhere.
#[test]
fn a_folder_for_debug_files() {
    let flags = ["-O2", "-g", "-no-pie", "-fno-pie", "-Wl,--build-id=none"];
    let Some(program) = build("inlined.c", &flags) else { return };
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let stripped = dir.join("stripped");
    let root = dir.join("root");
    let below = root.join(dir.strip_prefix("/").unwrap());
    std::fs::create_dir_all(&below).unwrap();
    let debug = below.join("stripped.debug");
    let objcopy = |args: &[&str]| tool("objcopy").args(args).status();
    let (debug, stripped) = (debug.to_str().unwrap(), stripped.to_str().unwrap());
    let Ok(kept) = objcopy(&["--only-keep-debug", program.name(), debug]) else {
        skipped("no objcopy");
        return;
    };
    let link = format!("--add-gnu-debuglink={debug}");
    let linked = objcopy(&["--strip-all", &link, program.name(), stripped]).unwrap();
    assert!(kept.success() && linked.success());

    let (from, to) = (program.at("in_middle"), program.at("in_step"));
    let text = format!("{MMAP} {stripped}\n7/7 1.000000: 0x{from:x}/0x{to:x}/P/-/-/7\n");
    let hot = row(&report(&dir, &text, &["--json"]), "hot");
    assert_eq!((&hot["from_symbol"], &hot["from_line"]), (&Value::Null, &Value::Null));
    let args = ["--json", "--debug-dir", root.to_str().unwrap()];
    for view in ["hot", "mispredict"] {
        let all = [&args[..], &["--view", view]].concat();
        let hot = row(&report(&dir, &text, &all), view);
        assert_eq!(hot["from_symbol"], "step", "{view}");
        assert!(hot["from_line"].as_str().unwrap().ends_with("/inlined.c:15"), "{hot}");
    }
}

/// `--kallsyms`: text does not name the kernel, but the user may know it.
#[test]
fn kernel_symbols_that_are_given() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("kallsyms");
    let symbols = "ffffffff81000000 T _text\nffffffff81000100 T alpha\n\
        ffffffff81000200 T beta\nffffffff81000300 T _etext\n";
    std::fs::write(&list, symbols).unwrap();
    // Recorded elsewhere: 0xa2000000 - 0x81000000 higher.
    let text = "PERF_RECORD_MMAP -1/0: [0xffffffffa2000000(0x300) @ 0xffffffffa2000000]: x \
        [kernel.kallsyms]_text\n7/7 1.000000: 0xffffffffa2000123/0xffffffffa2000200/P/-/-/7\n";
    let without = report(dir.path(), text, &["--json"]);
    let hot = row(&without, "hot");
    assert_eq!(
        (&hot["from_symbol"], &hot["from_file"]),
        (&Value::Null, &json!("[kernel.kallsyms]"))
    );
    let said = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(said.contains("does not say which kernel") && said.contains("--kallsyms"), "{said}");

    let args = ["--kallsyms", list.to_str().unwrap()];
    let with = report(dir.path(), text, &[&args[..], &["--json"]].concat());
    let hot = row(&with, "hot");
    assert_eq!((&hot["from_symbol"], &hot["from_offset"]), (&json!("alpha"), &json!(0x23)));
    assert_eq!((&hot["to_symbol"], &hot["to_offset"]), (&json!("beta"), &json!(0)));
    assert!(with.stderr.is_empty(), "{}", String::from_utf8_lossy(&with.stderr));
    let table = text_of(&report(dir.path(), text, &args));
    assert!(table.contains("alpha+0x23 -> beta+0x0"), "{table}");

    // An invalid list is reported, and the report continues without it.
    std::fs::write(&list, "no list\n").unwrap();
    let bad = report(dir.path(), text, &args);
    let said = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert!(said.contains("is not a list of kernel symbols"), "{said}");
}

/// A list of generated code, at the usual path of run-time compilers.
#[test]
fn generated_code() {
    // No other process has this number now.
    let pid = std::process::id();
    let list = std::path::PathBuf::from(format!("/tmp/perf-{pid}.map"));
    if std::fs::write(&list, "7f0000001000 100 JIT:hot_loop app.js:12\n").is_err() {
        skipped("/tmp cannot be written");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let text = format!("{pid}/{pid} 1.000000: 0x7f0000001010/0x7f0000002000/P/-/-/7\n");
    let out = report(dir.path(), &text, &["--json"]);
    let table = text_of(&report(dir.path(), &text, &[]));
    std::fs::remove_file(&list).unwrap();
    let hot = row(&out, "hot");
    assert_eq!(hot["from_symbol"], "JIT:hot_loop app.js:12");
    assert_eq!((&hot["from_offset"], &hot["to_symbol"]), (&json!(0x10), &Value::Null));
    assert_eq!(hot["from_file"], format!("[JIT] tid {pid}"));
    assert!(table.contains("JIT:hot_loop app.js:12+0x10 -> 0x7f0000002000"), "{table}");
}

/// `--vmlinux`: names and lines of the kernel, wherever it was loaded.
#[test]
fn a_kernel_that_is_given() {
    let Some(program) = build("inlined.c", &AS_KERNEL) else { return };
    let dir = tempfile::tempdir().unwrap();
    let vmlinux = dir.path().join("vmlinux");
    let vmlinux = vmlinux.to_str().unwrap();
    let marked = ["--add-symbol", "_text=.text:0,global", program.name(), vmlinux];
    let Ok(status) = tool("objcopy").args(marked).status() else {
        skipped("no objcopy");
        return;
    };
    assert!(status.success());
    let moved = |addr: u64| addr + 0x2100_0000;
    let (main, step) = (program.at("main"), program.at("step"));
    let text = moved(main.min(step) & !0xFFF);
    let (from, to) = (moved(program.at("in_inner")), moved(program.at("in_step")));
    let text = format!(
        "PERF_RECORD_MMAP -1/0: [0x{text:x}(0x1000) @ 0x{text:x}]: x [kernel.kallsyms]_text\n\
         7/7 1.000000: 0x{from:x}/0x{to:x}/P/-/-/7\n"
    );
    for view in ["hot", "mispredict"] {
        let hot = row(&report(dir.path(), &text, &["--json", "--view", view]), view);
        assert_eq!((&hot["from_symbol"], &hot["from_line"]), (&Value::Null, &Value::Null));
        let out = report(dir.path(), &text, &["--json", "--view", view, "--vmlinux", vmlinux]);
        let hot = row(&out, view);
        assert_eq!(hot["from_symbol"], "step");
        assert_eq!(hot["from_file"], "[kernel.kallsyms]");
        assert!(hot["from_line"].as_str().unwrap().ends_with("/inlined.c:9"), "{hot}");
        assert_eq!(hot["from_inlines"][0]["function"], "inner");
        assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    let table = text_of(&report(dir.path(), &text, &["--vmlinux", vmlinux]));
    assert!(table.contains("(inlined.c:9 inner, inlined) -> +"), "{table}");
    let bad = report(dir.path(), &text, &["--vmlinux", "/nonexistent/vmlinux"]);
    let said = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert!(said.contains("/nonexistent/vmlinux"), "{said}");
}

/// Code that the kernel maps into every process has perf's name for it.
#[test]
fn code_in_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let text = "PERF_RECORD_MMAP2 7/7: [0x7ffd00001000(0x2000) @ 0 00:00 0 0]: r-xp [vdso]\n\
        PERF_RECORD_MMAP2 7/7: [0xffffffffff600000(0x1000) @ 0 00:00 0 0]: --xp [vsyscall]\n\
        7/7 1.000000: 0x7ffd00001010/0xffffffffff600400/P/-/-/7\n";
    let hot = row(&report(dir.path(), text, &["--json"]), "hot");
    assert_eq!((&hot["from_file"], &hot["to_file"]), (&json!("[vdso]"), &json!("[vsyscall]")));
    let table = text_of(&report(dir.path(), text, &[]));
    let shown = "[vdso]+0x10 -> 0xffffffffff600400 ([vsyscall])";
    assert!(table.contains(shown), "{table}");
}
