//! Files that no recorder wrote, given to every command that reads recordings: an error message and
//! a documented exit status, with at most 1 GiB of address space.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::lbr::{PROGRAM, alone, piped, text};
use crate::support::skip::{skipped, tool};

/// Every command that reads a recording.
const COMMANDS: [&[&str]; 14] = [
    &["report"],
    &["report", "--json", "--view", "mispredict"],
    &["report", "--view", "outcomes"],
    &["report", "--view", "blocks"],
    &["report", "--view", "loops"],
    &["report", "--view", "paths"],
    &["report", "--view", "callgraph"],
    &["report", "--view", "args"],
    &["report", "--html", "/dev/null"],
    &["hist"],
    &["annotate"],
    &["lint"],
    &["lint", "--strict"],
    &["script"],
];

/// Runs a command on a file, with limited memory.
fn run(command: &[&str], file: &Path) -> Output {
    limited().args(command).arg("-i").arg(file).output().unwrap()
}

/// `lbr` with limited address space, and arguments to follow.
fn limited() -> Command {
    let mut sh = alone(Command::new("sh"));
    sh.args(["-c", "ulimit -v 1048576; exec \"$0\" \"$@\"", PROGRAM]);
    sh
}

/// The exit status of a command that ended as documented: success, failure, or rejection with one
/// message. It may add warnings to its results.
#[track_caller]
fn ends_well(command: &[&str], file: &Path, what: &str) -> i32 {
    let out = run(command, file);
    let said = String::from_utf8(out.stderr).unwrap();
    let code = out.status.code();
    assert!(matches!(code, Some(0 | 1 | 2 | 5)), "{what}: {command:?}: {}: {said}", out.status);
    assert!(!said.contains("panicked"), "{what}: {command:?}: {said}");
    if matches!(code, Some(1 | 2)) {
        assert!(said.starts_with("lbr: "), "{what}: {command:?}: {said}");
        assert!(said.lines().count() <= 3, "{what}: {command:?}: {said}");
    }
    code.unwrap()
}

/// perf.data through a pipe, byte by byte: an event, a mapping, samples. Returns the offset of each
/// record, and the end.
fn recording() -> (Vec<u8>, Vec<usize>) {
    let mut bytes = b"PERFILE2".to_vec();
    bytes.extend(16u64.to_le_bytes());
    let mut begins = Vec::new();
    let mut record = |kind: u32, misc: u16, body: &[u8]| {
        begins.push(bytes.len());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(misc.to_le_bytes());
        bytes.extend(u16::try_from(8 + body.len()).unwrap().to_le_bytes());
        bytes.extend(body);
    };
    let words = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
    // IP | TID | BRANCH_STACK, of user space.
    let attr = words(&[128 << 32, 4, 1, 1 | 2 | 1 << 11, 0, 1 << 14, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    record(64, 0, &attr);
    let mut map = words(&[7 << 32 | 7, 0x40_0000, 0x1000, 0]);
    map.extend(b"/nowhere/prog\0\0\0");
    record(1, 2, &map);
    for at in 0..4 {
        let (loops, calls) = (0x40_0100 + at, 0x40_0200);
        let stack =
            [0x40_0100, 7 << 32 | 7, 3, loops, 0x40_0100, 2, calls, loops, 1, 0x40_0110, calls, 2];
        record(9, 2, &words(&stack));
    }
    begins.push(bytes.len());
    (bytes, begins)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn file(dir: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_file_that_is_not_a_recording() {
    let dir = folder();
    let garbage: String = (0..1_000).map(|n| format!("line {n} of something else\n")).collect();
    let other = [
        file(&dir, "empty", b""),
        file(&dir, "magic", b"PERFILE2"),
        file(&dir, "sizes", &[&b"PERFILE2"[..], &[0xFF; 200]].concat()),
        file(&dir, "garbage", garbage.as_bytes()),
        file(&dir, "one_line", &[b'x'; 3_000_000]),
        file(&dir, "zeros", &[0; 1_000_000]),
        file(&dir, "cut.gz", &[0x1F, 0x8B, 8]),
        file(&dir, "cut.zst", &[0x28, 0xB5, 0x2F, 0xFD]),
        dir.path().join("absent"),
        PathBuf::from("/dev/null"),
        PathBuf::from("/dev/zero"),
    ];
    for path in &other {
        for command in COMMANDS {
            let code = ends_well(command, path, "");
            assert_eq!(code, 2, "{command:?} {}", path.display());
        }
    }
    for command in COMMANDS {
        assert_eq!(ends_well(command, dir.path(), "a folder"), 2, "{command:?}");
    }
}

/// A named pipe is read like any other.
#[test]
fn a_named_pipe() {
    let dir = folder();
    let (bytes, _) = recording();
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for command in COMMANDS {
        let (to, bytes) = (pipe.clone(), bytes.clone());
        let writer = std::thread::spawn(move || fs::write(to, bytes));
        let code = ends_well(command, &pipe, "a pipe");
        writer.join().unwrap().unwrap();
        // It has no cycles and no code to annotate.
        assert!(
            code == 0 || matches!(command[0], "hist" | "annotate" | "lint"),
            "{command:?} {code}"
        );
    }
}

/// Truncated between records, in their headers and in their bodies.
#[test]
fn cut_and_damaged() {
    let dir = folder();
    let (bytes, begins) = recording();
    let mut turn = COMMANDS.iter().cycle();
    let mut three = |bytes: &[u8], what: &str| {
        let path = file(&dir, "damaged", bytes);
        for command in turn.by_ref().take(3) {
            ends_well(command, &path, what);
        }
    };
    for &begin in &begins {
        for len in [begin, begin + 4, begin + 12] {
            three(&bytes[..len.min(bytes.len())], &format!("cut at {len}"));
        }
    }
    // Every word of the first records with extreme values: sizes, counts, types.
    for at in (8..begins[3]).step_by(8) {
        for word in [u64::MAX, 1 << 63, 0xFFFF_FFFF] {
            let mut damaged = bytes.clone();
            damaged[at..at + 8].copy_from_slice(&word.to_le_bytes());
            three(&damaged, &format!("{word:#x} at {at}"));
        }
    }
}

/// A zstd frame of blocks that repeat one byte a given number of times.
fn bomb(begin: &[u8], of: u8, blocks: usize, size: usize) -> Vec<u8> {
    // No checksum, no size, a window of 128 KiB.
    let mut bytes = vec![0x28, 0xB5, 0x2F, 0xFD, 0, 7 << 3];
    let block = |last: u32, kind: u32, size: usize| {
        let head = last | kind << 1 | u32::try_from(size).unwrap() << 3;
        head.to_le_bytes()[..3].to_vec()
    };
    bytes.extend(block(0, 0, begin.len()));
    bytes.extend(begin);
    for left in (0..blocks).rev() {
        bytes.extend(block(u32::from(left == 0), 1, size));
        bytes.push(of);
    }
    bytes
}

/// More data than the limit, from 36 KiB, is read while it is decompressed and never stored.
#[test]
fn archives_of_nothing() {
    let dir = folder();
    let text = b" 0x10/0x20/P/-/-/5  0x30/0x40/M/-/-/0 \n";
    let (recorded, _) = recording();
    for (begin, blocks) in [(&text[..], 9 << 10), (&recorded[..], 9 << 10)] {
        let path = file(&dir, "bomb", &bomb(begin, 0, blocks, 1 << 17));
        assert_eq!(ends_well(&["lint"], &path, "a bomb"), 0);
    }
}

/// Ctrl-C ends the reading of an archive that is larger than it looks.
#[test]
fn an_archive_is_stopped() {
    let mut child = piped(&["report", "-i", "-"]).stdout(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let bytes = bomb(b" 0x10/0x20/P/-/-/5 \n", b'\n', 800_000, 1 << 7);
    // More than a pipe and the decompressor hold: after writing it, some was read.
    let (first, rest) = bytes.split_at(1 << 19);
    stdin.write_all(first).unwrap();
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let _ = stdin.write_all(rest);
    drop(stdin);
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert!(said.contains("stopped by Ctrl-C: partial"), "{said}");
}

/// `lbr verify --diff` reads only reports.
#[test]
fn a_file_that_is_not_a_verify_report() {
    let dir = folder();
    let sound = file(&dir, "sound", b"{\"facility\":\"x\"}\n");
    let many = "{\"facility\":1}\n".repeat(300);
    let deep = "[".repeat(100_000);
    let other = [
        file(&dir, "empty", b""),
        file(&dir, "binary", &[0xFF; 1000]),
        file(&dir, "check_first", b"{\"check\":\"a\"}\n"),
        file(&dir, "groups", many.as_bytes()),
        file(&dir, "deep", deep.as_bytes()),
        dir.path().to_owned(),
        PathBuf::from("/dev/zero"),
    ];
    for path in &other {
        for (one, other) in [(path, &sound), (&sound, path)] {
            let command = ["verify", "--diff", one.to_str().unwrap(), other.to_str().unwrap()];
            let out = limited().args(command).output().unwrap();
            let said = String::from_utf8(out.stderr).unwrap();
            assert_eq!(out.status.code(), Some(2), "{command:?}: {said}");
            assert!(said.starts_with("lbr: ") && said.lines().count() == 1, "{said}");
        }
    }
}

/// Debug information that names a pipe as its source file: it is not read.
#[test]
fn a_source_that_is_a_pipe() {
    let dir = folder();
    let pipe = dir.path().join("source.c");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    is_named_and_not_read(&dir, &pipe);
}

/// The kernel reports these as regular files: its log, which blocks, and loses what was read.
#[test]
fn a_source_that_the_kernel_makes() {
    is_named_and_not_read(&folder(), Path::new("/proc/cpuinfo"));
}

/// A program whose debug information names this file as its source.
fn is_named_and_not_read(dir: &tempfile::TempDir, source: &Path) {
    let code = format!(
        "# 1 \"{}\"\nint around(int n) {{\nwhile (n) n &= n - 1;\nreturn n;\n}}\n",
        source.display()
    );
    let name = source.file_name().unwrap().to_str().unwrap();
    let code = file(dir, "code.c", code.as_bytes());
    let program = dir.path().join("program");
    let built = tool("cc")
        .args(["-g", "-O1", "-nostdlib", "-static", "-no-pie", "-Wl,-e,around", "-o"])
        .args([&program, &code])
        .status();
    if !built.is_ok_and(|status| status.success()) {
        skipped("no C compiler (cc)");
        return;
    }
    use object::{Object, ObjectSymbol};
    let bytes = fs::read(&program).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let around = elf.symbols().find(|symbol| symbol.name() == Ok("around")).unwrap().address();
    let text = format!(
        "PERF_RECORD_MMAP2 1/1: [{:#x}(0x1000) @ 0x1000 00:00 0 0]: r-xp {}\n 1/1 {:#x}/{around:#x}/P/-/-/0  {:#x}/{around:#x}/P/-/-/0 \n",
        around & !0xFFF,
        program.display(),
        around + 4,
        around + 4
    );
    let text = file(dir, "text", text.as_bytes());
    let out = run(&["annotate", "--source", "around"], &text);
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(0), "{said}");
    // The line is named, but its text is not available.
    let shown = String::from_utf8(out.stdout).unwrap();
    assert!(shown.lines().any(|line| line.trim_end().ends_with(&format!("{name}:2"))), "{shown}");
    let out = limited().args(["learn", "--transcript", "--"]).arg(&program).output().unwrap();
    let shown = String::from_utf8(out.stdout).unwrap();
    match out.status.code() {
        // Tracing is not permitted here.
        Some(4) => skipped(String::from_utf8(out.stderr).unwrap()),
        _ => assert!(shown.contains(&format!("{name}:")), "{shown}"),
    }
}

/// Characters that control a terminal, or imitate our own lines.
#[track_caller]
fn is_plain(text: &[u8]) {
    let text = std::str::from_utf8(text).unwrap();
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("fake")), "{text}");
    assert!(!text.contains('\u{FFFD}') && !text.contains('\u{202E}'), "{text:?}");
}

/// Error messages for a command line quote it.
#[test]
fn invalid_arguments() {
    for (words, shown) in [
        (&[&b"report"[..], b"--x\x1b[31m\nfake"][..], "--x\\x1b[31m\\nfake"),
        (&[b"report", b"--view", b"\x1b]0;T\x07"], "\\x1b]0;T\\x07"),
        (&[b"re\npo\xe2\x80\xaert"], "re\\npo\\u{202e}rt"),
        (&[b"report", b"--\xff\n"], "--\\xff\\n"),
        (&[b"record", b"--user", b"no\x9b\xc2\x9bbody", b"--", b"true"], "no\\x9b\\x9bbody"),
        (&[b"decode", b"--format", b"\xff"], "\\xff"),
    ] {
        let words = words.iter().map(|word| std::ffi::OsStr::from_bytes(word));
        let out = alone(Command::new(PROGRAM)).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(shown), "{shown}: {said}");
        is_plain(&out.stderr);
    }
}

/// A name that is not UTF-8 is shown as its bytes, in any output.
#[test]
fn file_names_that_are_not_utf_8() {
    let dir = folder();
    let stacks = b"prog 1/1 0.1: a\xffb+0x1/c\xc3(+0x2/P/-/-/3/COND/- \n".repeat(3);
    let path = dir.path().join(std::ffi::OsStr::from_bytes(b"r\xfe"));
    fs::write(&path, stacks).unwrap();
    for (command, name) in [
        (&["report"][..], "a\\xffb"),
        (&["report", "--json"], "a\\\\xffb"),
        (&["report", "--csv"], "a\\xffb"),
        (&["report", "--html", "-"], "a\\xffb"),
        (&["report", "--view", "callgraph", "--folded"], "a\\xffb"),
        (&["script"], "a\\xffb"),
        (&["script", "--json"], "a\\\\xffb"),
    ] {
        let out = run(command, &path);
        let shown = String::from_utf8_lossy(&out.stdout);
        assert!(shown.contains(name), "{command:?}: {shown}\n{:?}", text(&out.stderr));
        assert!(!shown.contains('\u{FFFD}'), "{command:?}");
    }
    is_plain(&run(&["report"], &path).stdout);
    let absent = run(&["report"], &dir.path().join(std::ffi::OsStr::from_bytes(b"\xff\n")));
    assert!(text(&absent.stderr).contains("\\xff\\n does not exist"), "{}", text(&absent.stderr));
    is_plain(&absent.stderr);
}

/// A failed memory allocation gives an error message.
#[test]
fn too_little_memory() {
    let dir = folder();
    let stacks: String =
        (1..600_000).map(|n| format!(" 0x55555{n:06}0/0x66666{n:06}4/P/-/-/0\n")).collect();
    let path = file(&dir, "distinct", stacks.as_bytes());
    for limit in [60_000, 90_000] {
        let limited = format!("ulimit -v {limit}; exec \"$0\" report -i \"$1\"");
        let out =
            alone(Command::new("sh")).args(["-c", &limited, PROGRAM]).arg(&path).output().unwrap();
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{limit}: {said}");
        assert!(said.starts_with("lbr: out of memory: "), "{limit}: {said}");
        assert!(said.contains(&format!("ulimit -v, is {limit} KiB")), "{limit}: {said}");
    }
}

/// Cells that a spreadsheet would take for formulas, in every table of comma-separated values.
#[test]
fn csv_cells_are_never_formulas() {
    let dir = folder();
    let stack = "prog 1/1 0.1: =cmd|calc!A0+0x1/@SUM(1)+0x2/P/-/-/3/COND/-  \
                 -1+1+0x4/=cmd|calc!A0+0x0/M/-/-/5/COND/- \n";
    let path = file(&dir, "=file", stack.repeat(3).as_bytes());
    let (of_file, side) = ("-i", path.to_str().unwrap());
    let commands: [&[&str]; 7] = [
        &["report", "--csv", of_file],
        &["report", "--csv", "--view", "mispredict", of_file],
        &["report", "--csv", "--view", "callgraph", of_file],
        &["report", "--csv", "--group", "function", of_file],
        &["lint", "--csv", of_file],
        &["export", "--to", "csv:uprof", of_file],
        &["diff", "--csv", side],
    ];
    for args in commands {
        let out = alone(Command::new(PROGRAM))
            .args(args)
            .arg("=file")
            .current_dir(&dir)
            .output()
            .unwrap();
        let table = text(&out.stdout);
        assert!(table.lines().count() > 1, "{args:?}: {}", text(&out.stderr));
        let guarded = table.contains("\"'=cmd|calc!A0\"") || table.contains("\"'=file\"");
        assert!(guarded, "{args:?}: {table}");
        let bare = table.lines().flat_map(|line| line.split(',')).find(|cell| {
            cell.trim_matches('"').starts_with(['=', '+', '-', '@']) && cell.parse::<f64>().is_err()
        });
        assert_eq!(bare, None, "{args:?}: {table}");
    }
}
