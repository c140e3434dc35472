//! The default program of a profile, and profiles that are refused.

use std::fmt::Write as _;
use std::path::Path;

use crate::support::lbr::{lbr, stderr, stdout, traced};
use crate::support::skip::{run_tool, tool};

/// The text of a recording, as `perf script --show-mmap-events --show-task-events`
/// prints it.
#[derive(Default)]
pub(crate) struct Text(pub(crate) String);

impl Text {
    fn exec(mut self, pid: u32, comm: &str) -> Text {
        writeln!(self.0, "{comm} {pid}/{pid} 1.000001: PERF_RECORD_COMM exec: {comm}:{pid}/{pid}")
            .unwrap();
        self
    }

    fn fork(mut self, pid: u32, parent: u32) -> Text {
        writeln!(
            self.0,
            "x {pid}/{pid} 1.000001: PERF_RECORD_FORK({pid}:{pid}):({parent}:{parent})"
        )
        .unwrap();
        self
    }

    pub(crate) fn map(mut self, pid: u32, addr: u64, path: &str) -> Text {
        writeln!(
            self.0,
            "x {pid}/{pid} 1.000001: PERF_RECORD_MMAP2 {pid}/{pid}: [{addr:#x}(0x1000) @ 0x1000 \
             08:01 1 0]: r-xp {path}"
        )
        .unwrap();
        self
    }

    /// Loops of a process at an address.
    pub(crate) fn branches(mut self, pid: u32, addr: u64, count: usize) -> Text {
        let entry = format!(" {:#x}/{addr:#x}/P/-/-/0", addr + 16);
        writeln!(self.0, "x {pid}/{pid} 1.000002: {addr:#x} {}", entry.repeat(count)).unwrap();
        self
    }
}

const LOADER: &str = "/lib64/made-up/ld-linux-x86-64.so.2";
pub(crate) const LIBC: &str = "/usr/lib/made-up/libc.so.6";

/// A program in a process: first itself, then the loader, then a library, as the
/// kernel and the loader map them; more branches lie in the loader.
pub(crate) fn started(text: Text, pid: u32, name: &str, own: usize) -> Text {
    let addr = 0x40_0000 + u64::from(pid) * 0x1_0000;
    text.exec(pid, name)
        .map(pid, addr, &format!("/made/up/{name}"))
        .map(pid, 0x7f00_0000_0000, LOADER)
        .map(pid, 0x7e00_0000_0000, LIBC)
        .branches(pid, 0x7f00_0000_0100, 9)
        .branches(pid, addr + 0x100, own)
}

/// The program that an AutoFDO profile is of, which needs no files; with what else
/// is reported.
fn chosen(text: &Text) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("text");
    std::fs::write(&input, &text.0).unwrap();
    let out = lbr(&["export", "--to", "autofdo", "-i", input.to_str().unwrap()]);
    let said = stderr(&out);
    assert_eq!(out.status.code(), Some(0), "{said}");
    let line = said.strip_prefix("lbr: ").unwrap_or(&said);
    (line.split(": ").next().unwrap().to_owned(), said)
}

#[track_caller]
fn is_chosen(name: &str, text: &Text) {
    let (program, said) = chosen(text);
    assert_eq!(program, name, "{said}");
}

#[test]
fn the_loader_is_never_the_default_program() {
    is_chosen("/made/up/prog", &started(Text::default(), 7, "prog", 2));
}

/// `env prog`, and a wrapper of any name: the process becomes the program.
#[test]
fn a_program_replaced_by_exec() {
    for wrapper in ["env", "wrapper"] {
        let text = started(started(Text::default(), 7, wrapper, 5), 7, "prog", 2);
        is_chosen("/made/up/prog", &text);
    }
}

/// `sh -c prog`, a script, `time prog`: they run it in another process. Other
/// programs are named.
#[test]
fn the_program_that_a_shell_runs() {
    let text = started(Text::default(), 7, "dash", 8);
    let text = started(text.fork(8, 7), 8, "prog", 3);
    is_chosen("/made/up/prog", &text);
    let text = started(text.fork(9, 7), 9, "other", 2);
    let (program, said) = chosen(&text);
    assert_eq!(program, "/made/up/prog", "{said}");
    assert!(said.contains("/made/up/dash, /made/up/other (--dso NAME)"), "{said}");
}

/// A program that starts a helper is the one that was recorded, whatever the
/// helper does.
#[test]
fn not_a_helper_of_the_program() {
    let text = started(Text::default(), 7, "prog", 2).fork(8, 7);
    is_chosen("/made/up/prog", &started(text, 8, "helper", 8));
}

/// `ld-linux-x86-64.so.2 ./prog`: the loader maps the program.
#[test]
fn the_program_that_the_loader_was_given() {
    let text = Text::default()
        .exec(7, "ld-linux-x86-64")
        .map(7, 0x7f00_0000_0000, LOADER)
        .branches(7, 0x7f00_0000_0100, 9)
        .map(7, 0x7e00_0000_0000, "/made/up/prog")
        .map(7, 0x7d00_0000_0000, LIBC)
        .branches(7, 0x7d00_0000_0100, 5)
        .branches(7, 0x7e00_0000_0100, 2);
    is_chosen("/made/up/prog", &text);
}

/// Of a process that ran before, perf lists the mappings in the order of addresses,
/// and marks no exec.
#[test]
fn the_program_of_a_process_that_ran_already() {
    let text = Text::default()
        .map(7, 0x5500_0000_0000, "/made/up/prog")
        .map(7, 0x7e00_0000_0000, "/made/up/plugin.so")
        .map(7, 0x7f00_0000_0000, LOADER)
        .branches(7, 0x7e00_0000_0100, 9)
        .branches(7, 0x5500_0000_0100, 2);
    is_chosen("/made/up/prog", &text);
}

/// Only libraries have branches: the profile is of the one with most.
#[test]
fn a_library_if_nothing_else_was_mapped() {
    let text = Text::default()
        .map(7, 0x7e00_0000_0000, LIBC)
        .map(7, 0x7f00_0000_0000, "/made/up/plugin.so")
        .branches(7, 0x7f00_0000_0100, 3)
        .branches(7, 0x7e00_0000_0100, 2);
    is_chosen("/made/up/plugin.so", &text);
}

/// A profile without a count is an error, which names where the branches are.
#[test]
fn nothing_to_profile() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("text");
    std::fs::write(&input, started(Text::default(), 7, "prog", 0).0).unwrap();
    let args = ["export", "--to", "autofdo", "-i", input.to_str().unwrap()];
    let out = lbr(&args);
    assert_eq!((out.status.code(), stdout(&out)), (Some(2), String::new()));
    let said = stderr(&out);
    assert!(said.contains("/made/up/prog; branches are in /lib64/made-up/ld-linux"), "{said}");
    let out = lbr(&[&args[..], &["--pid", "9999"]].concat());
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
}

/// Compiles C into a folder; `None`, after saying so, without a compiler.
fn compile(dir: &Path, source: &str, args: &[&str]) -> Option<()> {
    std::fs::write(dir.join("source.c"), source).unwrap();
    let out = run_tool(tool("cc").current_dir(dir).args(args))?;
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(())
}

fn recorded(dir: &Path, program: &Path) -> Option<String> {
    let input = dir.join("perf.data").to_str().unwrap().to_owned();
    let command = ["record", "--source", "ptrace", "-o", &input, "--", program.to_str().unwrap()];
    traced(&command).map(|_| input)
}

const LOOP: &str = "__attribute__((noinline)) int work(int n) { int s = 0; \
                    for (int i = 0; i < n; i++) s += i & 3 ? i : 1; return s; }\n";
const MAIN: &str = "int work(int); int main(void) { return work(500) == 1; }\n";

/// Another build where the recorded one lay is named: refused, where the profile is
/// made of its bytes.
#[test]
fn another_build_of_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let build = |program: &str, flag| {
        let args = [flag, "-g", "-Wl,--build-id", "-o", program, "source.c"];
        compile(dir.path(), &format!("{LOOP}{MAIN}"), &args)
    };
    let Some(()) = build("prog", "-O1") else { return };
    std::fs::copy(dir.path().join("prog"), dir.path().join("copy")).unwrap();
    let Some(input) = recorded(dir.path(), &dir.path().join("prog")) else { return };
    build("prog", "-O0").unwrap();
    for (kind, status) in [("llvm", 2), ("llvm-raw", 2), ("preagg", 2), ("autofdo", 0)] {
        let out = lbr(&["export", "--to", kind, "-i", &input]);
        let said = stderr(&out);
        assert_eq!(out.status.code(), Some(status), "{kind}: {said}");
        assert!(said.contains("prog was replaced since it was recorded"), "{kind}: {said}");
    }
    // The recorded build under another name is found by its build id.
    let copy = dir.path().join("copy");
    let out = lbr(&["export", "--to", "llvm", "-i", &input, "--binary", copy.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    assert!(stdout(&out).starts_with("work:"), "{}", stdout(&out));
}

/// The hot function has no line information: what is left would be no profile of
/// the program.
#[test]
fn a_profile_that_lacks_the_hot_function() {
    let dir = tempfile::tempdir().unwrap();
    let compiled = compile(dir.path(), LOOP, &["-O1", "-c", "-o", "work.o", "source.c"]);
    let Some(()) = compiled else { return };
    compile(dir.path(), MAIN, &["-O1", "-g", "-o", "prog", "source.c", "work.o"]).unwrap();
    let Some(input) = recorded(dir.path(), &dir.path().join("prog")) else { return };
    let args = ["export", "--to", "llvm", "-i", &input];
    let out = lbr(&args);
    let said = stderr(&out);
    assert_eq!((out.status.code(), stdout(&out)), (Some(2), String::new()), "{said}");
    assert!(said.contains("(in work)") && said.contains("--partial"), "{said}");
    let out = lbr(&[&args[..], &["--partial"]].concat());
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    assert!(stdout(&out).starts_with("main:"), "{}", stdout(&out));
}

/// Where `-gsplit-dwarf` puts the debug information changes no line of a profile:
/// in files next to the program, or packed into one.
#[test]
fn split_debug_information() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::create_dir(path("whole")).unwrap();
    let inlined = "static inline int half(int n) { if (n & 1) return n * 3 + 1; return n / 2; }\n\
                   __attribute__((noinline)) int work(int n) { int s = 0;\n\
                   for (; n > 1; n = half(n)) s += n & 4 ? half(n) : 1; return s; }\n";
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let flags = ["-O2", "-g", version, "-Wl,--build-id=none"];
        let build = |out: &str, more: &[&str]| {
            let source = format!("{inlined}{MAIN}");
            let objects = ["-c", "-o", "source.o", "source.c"];
            compile(dir.path(), &source, &[&flags[..], more, &objects].concat())?;
            compile(dir.path(), &source, &[&flags[..], &["-o", out, "source.o"]].concat())
        };
        let Some(()) = build("whole/prog", &[]) else { return };
        build("prog", &["-gsplit-dwarf"]).unwrap();
        let Some(input) = recorded(dir.path(), &path("prog")) else { return };
        let profile =
            |more: &[&str]| lbr(&[&["export", "--to", "llvm", "-i", &input], more].concat());
        let whole = profile(&["--binary", path("whole/prog").to_str().unwrap()]);
        let whole = (whole.status.code(), stdout(&whole));
        assert!(whole.1.contains("half:"), "{version}: {whole:?}");
        let split = profile(&[]);
        assert_eq!((split.status.code(), stdout(&split)), whole, "{version}: {}", stderr(&split));
        let packed = tool("dwp").current_dir(dir.path()).args(["-e", "prog"]).output();
        std::fs::remove_file(path("source.dwo")).unwrap();
        if packed.is_ok_and(|packed| packed.status.success()) {
            let packed = profile(&[]);
            let said = stderr(&packed);
            assert_eq!((packed.status.code(), stdout(&packed)), whole, "{version}: {said}");
            std::fs::remove_file(path("prog.dwp")).unwrap();
        }
        let missing = profile(&[]);
        let said = stderr(&missing);
        assert_eq!((missing.status.code(), stdout(&missing)), (Some(2), String::new()), "{said}");
        assert!(said.contains("split DWARF") && said.contains("source.dwo"), "{said}");
    }
}

/// All binaries in one pass: a file each, with the text that `--dso` gives.
#[test]
fn a_profile_of_each_file() {
    let dir = tempfile::tempdir().unwrap();
    let (input, folder) = (dir.path().join("text"), dir.path().join("profiles"));
    std::fs::write(&input, started(Text::default(), 7, "prog", 2).0).unwrap();
    let (input, into) = (input.to_str().unwrap(), folder.to_str().unwrap());
    let args = ["export", "--to", "autofdo", "-i", input, "--dso"];
    let out = lbr(&[&args[..], &["all", "-o", into]].concat());
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    let mut files: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, ["ld-linux-x86-64.so.2.autofdo", "prog.autofdo"]);
    for file in files {
        let alone = lbr(&[&args[..], &[file.trim_end_matches(".autofdo")]].concat());
        assert_eq!(std::fs::read_to_string(folder.join(&file)).unwrap(), stdout(&alone), "{file}");
    }
    let out = lbr(&[&args[..], &["all"]].concat());
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
}
