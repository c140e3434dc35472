//! Source lines and inlined functions, compared with the source and the output of binutils.

use std::path::{Path, PathBuf};

use profile::maps::{Location, Maps};
use profile::symbols::{DebugDirs, Module, Sources, SymbolError};

use crate::compiled::{compile, extent, locate, map, map_with, run, source, symbol};
use crate::support::skip::{skipped, tool};

/// Frames as `function@line`, innermost first.
fn frames(maps: &mut Maps, location: Location) -> Vec<String> {
    let shown = |frame: profile::lines::Frame| {
        let line = frame.source.map(|source| {
            assert_eq!(source.file_name(), "inlined.c");
            source.line.to_string()
        });
        format!("{}@{}", frame.function.unwrap_or_default(), line.unwrap_or_default())
    };
    maps.frames(location).into_iter().map(shown).collect()
}

/// The content of `inlined.c`.
const EXPECTED: [(&str, &[&str], u32); 4] = [
    ("in_inner", &["inner@9", "middle@16", "step@22"], 9),
    ("in_middle", &["middle@15", "step@22"], 15),
    ("in_step", &["step@20"], 20),
    ("in_main", &["main@31"], 31),
];

/// Only here: no debug files of this machine.
fn nowhere() -> Sources {
    Sources { debug: DebugDirs::default(), ..Sources::default() }
}

/// Looks up every mark in `program`, with the symbols of `symbols`.
fn check_marks(sources: Sources, program: &Path, symbols: &Path) {
    let mut maps = Maps::with_sources(sources);
    let bias = if symbol(symbols, "main") < 0x40_0000 { 0x5555_5555_4000 } else { 0 };
    map(&mut maps, 7, program, bias);
    for (mark, expected, line) in EXPECTED {
        let at = locate(&mut maps, 7, symbol(symbols, mark) + bias);
        assert!(matches!(at, Location::File { .. }), "{mark}: {at:?}");
        assert_eq!(frames(&mut maps, at), expected, "{mark}");
        let source = maps.source(at).unwrap();
        assert_eq!((source.file_name(), source.line), ("inlined.c", line), "{mark}");
    }
    let errors: Vec<String> = maps.failures().map(ToString::to_string).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    (dir, path)
}

#[test]
fn lines_and_inlined_functions() {
    let (_dir, dir) = folder();
    for flags in [
        ["-gdwarf-4", "-pie", "-fPIE"],
        ["-gdwarf-5", "-pie", "-fPIE"],
        ["-gdwarf-4", "-no-pie", "-fno-pie"],
        ["-gdwarf-5", "-no-pie", "-fno-pie"],
        ["-gdwarf-5", "-gz=zlib", "-pie"],
    ] {
        let program = dir.join("program");
        let all = [&["-O2"], &flags[..]].concat();
        let Some(()) = compile("inlined.c", &program, &all) else { return };
        check_marks(nowhere(), &program, &program);
    }
}

/// A library with code at an address that differs from its offset in the file.
#[test]
fn segments_that_are_loaded_elsewhere() {
    let (_dir, dir) = folder();
    let library = dir.join("libinlined.so");
    let flags =
        ["-O2", "-g", "-shared", "-fPIC", "-Wl,-z,separate-code", "-Wl,-Ttext-segment=0x20000"];
    let Some(()) = compile("inlined.c", &library, &flags) else { return };
    let (vaddr, offset, _) = crate::compiled::code(&library);
    assert_ne!(vaddr, offset, "the linker placed it where it is in the file");
    check_marks(nowhere(), &library, &library);
}

/// `addr2line` finds the same lines at every byte of the functions.
#[test]
fn addr2line_agrees() {
    let (_dir, dir) = folder();
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let program = dir.join("program");
        let Some(()) = compile("inlined.c", &program, &["-O2", version]) else { return };
        let module = Module::open_with(&program, &DebugDirs::default()).unwrap();
        for function in ["step", "main"] {
            let (start, size) = extent(&program, function);
            assert!(size > 8, "{function} has {size} bytes");
            for addr in start..start + size {
                let hex = format!("{addr:#x}");
                let args = ["-fi", "-e", program.to_str().unwrap(), &hex];
                let Some(theirs) = run("addr2line", &args) else { return };
                let mut ours = String::new();
                for frame in module.frames(addr) {
                    let line = frame.source.unwrap();
                    ours += &format!("{}\n{line}\n", frame.function.unwrap());
                }
                let theirs: String = theirs
                    .lines()
                    .map(|line| line.split(" (disc").next().unwrap().to_owned() + "\n")
                    .collect();
                assert_eq!(ours, theirs, "{version} {addr:#x}");
            }
        }
    }
}

/// A stripped program with its debug file next to it, in `.debug`, and in a common debug folder.
#[test]
fn debug_links() {
    let (_dir, dir) = folder();
    let full = dir.join("full");
    let flags = ["-O2", "-g", "-Wl,--build-id=none"];
    let Some(()) = compile("inlined.c", &full, &flags) else { return };
    let root = dir.join("root");
    let below = root.join(dir.strip_prefix("/").unwrap());
    for folder in [dir.clone(), dir.join(".debug"), below] {
        std::fs::create_dir_all(&folder).unwrap();
        let debug = folder.join("program.debug");
        let program = dir.join("program");
        let Some(()) = strip(&full, &program, &debug) else { return };
        let debug_dirs = DebugDirs { roots: vec![root.clone()], ..DebugDirs::default() };
        let sources = Sources { debug: debug_dirs, ..Sources::default() };
        check_marks(sources.clone(), &program, &full);
        // Its symbols are in it too.
        let module = Module::open_with(&program, &sources.debug).unwrap();
        assert_eq!(module.find("step").unwrap(), symbol(&full, "step"));
        // One byte of the debug file changed: it is another file.
        let mut bytes = std::fs::read(&debug).unwrap();
        let last = bytes.last_mut().unwrap();
        *last ^= 1;
        std::fs::write(&debug, bytes).unwrap();
        let module = Module::open_with(&program, &sources.debug).unwrap();
        assert!(module.find("step").is_err());
        assert_eq!(module.source(symbol(&full, "step")), None);
        std::fs::remove_file(&debug).unwrap();
    }
}

/// Moves the debug information of a program to a separate file, and links it.
fn strip(full: &Path, program: &Path, debug: &Path) -> Option<()> {
    let (full, program, debug) =
        (full.to_str().unwrap(), program.to_str().unwrap(), debug.to_str().unwrap());
    run("objcopy", &["--only-keep-debug", full, debug])?;
    let link = format!("--add-gnu-debuglink={debug}");
    run("objcopy", &["--strip-all", &link, full, program]).map(drop)
}

/// Debug files by build ID, in the system's layout, perf's and debuginfod's.
#[test]
fn debug_files_by_build_id() {
    let (_dir, dir) = folder();
    let full = dir.join("full");
    let Some(()) = compile("inlined.c", &full, &["-O2", "-g", "-Wl,--build-id=sha1"]) else {
        return;
    };
    let id = profile::symbols::build_id(&full).unwrap();
    assert_eq!(id.len(), 20);
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (first, rest) = id.split_at(2);
    let program = dir.join("program");
    let debug = dir.join("elsewhere.debug");
    let Some(()) = strip(&full, &program, &debug) else { return };
    let here = || vec![dir.join("here")];
    let system = DebugDirs { roots: here(), ..DebugDirs::default() };
    let perf = DebugDirs { caches: here(), ..DebugDirs::default() };
    let fetched = DebugDirs { fetched: here(), ..DebugDirs::default() };
    let at = |file: &str| dir.join("here/.build-id").join(first).join(file);
    for (dirs, place) in [
        (system, at(&format!("{rest}.debug"))),
        (perf.clone(), at(rest).join("debug")),
        (perf.clone(), at(rest).join("elf")),
        (fetched, dir.join("here").join(&id).join("debuginfo")),
    ] {
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(&debug, &place).unwrap();
        std::fs::remove_file(&debug).unwrap();
        check_marks(Sources { debug: dirs, ..Sources::default() }, &program, &full);
        std::fs::rename(&place, &debug).unwrap();
        std::fs::remove_dir_all(dir.join("here")).unwrap();
    }

    // The program was replaced, but perf kept the recorded one.
    let recorded = profile::symbols::build_id(&full);
    let another = dir.join("program");
    std::fs::remove_file(&debug).unwrap();
    let flags = ["-O1", "-g", "-Wl,--build-id=sha1"];
    compile("inlined.c", &another, &flags).unwrap();
    let mark = symbol(&full, "in_inner");
    let look = |dirs: DebugDirs| {
        let mut maps = Maps::with_sources(Sources { debug: dirs, ..Sources::default() });
        map_with(&mut maps, 7, &full, 0, recorded.clone());
        // The recording has the path, which now holds another file.
        std::fs::copy(&full, dir.join("kept")).unwrap();
        std::fs::copy(&another, &full).unwrap();
        let at = locate(&mut maps, 7, mark);
        let found = (maps.source(at).map(|source| source.line), maps.name(at).is_some());
        let replaced = maps.failures().any(|e| matches!(e, SymbolError::BuildId { .. }));
        std::fs::copy(dir.join("kept"), &full).unwrap();
        (found, replaced)
    };
    assert_eq!(look(perf.clone()), ((None, false), true));
    let kept = at(rest).join("elf");
    std::fs::create_dir_all(kept.parent().unwrap()).unwrap();
    std::fs::copy(&full, &kept).unwrap();
    assert_eq!(look(perf), ((Some(9), true), false));
}

/// A file that had a build ID when recorded and has none now is a different file.
#[test]
fn a_missing_build_id() {
    let (_dir, dir) = folder();
    let program = dir.join("program");
    let Some(()) = compile("inlined.c", &program, &["-g", "-Wl,--build-id=none"]) else { return };
    let mut maps = Maps::with_sources(nowhere());
    map_with(&mut maps, 7, &program, 0, Some(vec![1; 20]));
    let at = locate(&mut maps, 7, symbol(&program, "step"));
    assert_eq!(maps.name(at), None);
    assert!(maps.failures().any(|error| matches!(error, SymbolError::BuildId { .. })));
}

/// `-gsplit-dwarf`: units in separate files, and packed.
#[test]
fn split_dwarf() {
    let (_dir, dir) = folder();
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let object = dir.join("inlined.o");
        let program = dir.join("program");
        let flags = ["-c", "-O2", version, "-gsplit-dwarf"];
        let Some(()) = compile("inlined.c", &object, &flags) else { return };
        let (o, p) = (object.to_str().unwrap(), program.to_str().unwrap());
        run("cc", &["-o", p, o]).unwrap();
        let unit = dir.join("inlined.dwo");
        assert!(unit.exists());
        check_marks(nowhere(), &program, &program);

        let package = dir.join("program.dwp");
        let packed = tool("dwp").args(["-e", p, "-o", package.to_str().unwrap()]).output();
        std::fs::remove_file(&unit).unwrap();
        if packed.is_ok_and(|out| out.status.success()) {
            check_marks(nowhere(), &program, &program);
            std::fs::remove_file(&package).unwrap();
        } else {
            skipped(format_args!("no dwp that packs {version}"));
        }
        // Removed: lines remain, because they are in the program.
        let module = Module::open_with(&program, &DebugDirs::default()).unwrap();
        assert_eq!(module.source(symbol(&program, "in_inner")).unwrap().line, 9);
    }
}

/// Debug information that several programs share, as `dwz` makes it.
#[test]
fn shared_debug_information() {
    let (_dir, dir) = folder();
    let (one, two) = (dir.join("one"), dir.join("two"));
    for program in [&one, &two] {
        let flags = ["-O2", "-gdwarf-4", "-Wl,--build-id=sha1"];
        let Some(()) = compile("inlined.c", program, &flags) else { return };
    }
    let shared = dir.join("shared.debug");
    let (s, a, b) = (shared.to_str().unwrap(), one.to_str().unwrap(), two.to_str().unwrap());
    if run("dwz", &["-m", s, "-M", s, a, b]).is_none() {
        return;
    }
    check_marks(nowhere(), &one, &one);
    // Without it, only names are missing.
    std::fs::remove_file(&shared).unwrap();
    let module = Module::open_with(&one, &DebugDirs::default()).unwrap();
    assert_eq!(module.find("step").unwrap(), symbol(&one, "step"));
    let _ = module.frames(symbol(&one, "in_inner"));
}

/// A program without debug information has names but no lines.
#[test]
fn no_debug_information() {
    let (_dir, dir) = folder();
    let program = dir.join("program");
    let Some(()) = compile("inlined.c", &program, &["-O2"]) else { return };
    let mut maps = Maps::with_sources(nowhere());
    map(&mut maps, 7, &program, 0);
    let at = locate(&mut maps, 7, symbol(&program, "step"));
    assert_eq!(maps.name(at).unwrap().name, "step");
    assert_eq!((maps.source(at), maps.frames(at).len()), (None, 0));
    assert_eq!(maps.failures().count(), 0);
}

/// A label inside a function takes no code from it, and can be found by its name.
#[test]
fn labels_inside_functions() {
    let (_dir, dir) = folder();
    let program = dir.join("program");
    let Some(()) = compile("inlined.c", &program, &["-O2"]) else { return };
    let module = Module::open_with(&program, &DebugDirs::default()).unwrap();
    let (start, size) = extent(&program, "step");
    let label = symbol(&program, "in_step");
    assert!((start..start + size).contains(&label));
    assert_eq!(module.symbol_at(label), Some(("step", label - start)));
    assert_eq!(module.function_at(label), Some(("step", start..start + size)));
    assert_eq!(module.find("in_step").unwrap(), label);
}

/// Stubs of the procedure linkage table, with objdump's names; and `_init`, which has no size, ends
/// with its section.
#[test]
fn stubs_of_shared_libraries() {
    let (_dir, dir) = folder();
    for flags in [
        &["-O1", "-fcf-protection=none", "-Wl,-z,lazy"][..],
        &["-O1", "-fcf-protection=full", "-Wl,-z,ibtplt", "-Wl,-z,lazy"],
        &["-O1", "-fno-plt"],
        &["-O1", "-Wl,-z,now"],
    ] {
        let program = dir.join("program");
        let Some(()) = compile("threads.c", &program, &[flags, &["-pthread"]].concat()) else {
            return;
        };
        let path = program.to_str().unwrap();
        let Some(text) = run("objdump", &["-d", path]) else { return };
        let module = Module::open_with(&program, &DebugDirs::default()).unwrap();
        let mut stubs = 0;
        for line in text.lines().filter(|line| line.ends_with("@plt>:")) {
            let (addr, name) = line.split_once(" <").unwrap();
            let addr = u64::from_str_radix(addr, 16).unwrap();
            let name = name.trim_end_matches(">:");
            assert_eq!(module.symbol_at(addr), Some((name, 0)), "{flags:?}");
            assert_eq!(module.symbol_at(addr + 6), Some((name, 6)), "{flags:?}");
            stubs += 1;
        }
        assert!(stubs > 0, "{flags:?}: no stubs in\n{text}");
        // The table's head belongs to no function.
        let init = symbol(&program, "_init");
        assert_eq!(module.symbol_at(init), Some(("_init", 0)));
        if let Some(head) = text.lines().find_map(|line| line.strip_suffix(" <.plt>:")) {
            let head = u64::from_str_radix(head, 16).unwrap();
            assert_eq!(module.symbol_at(head), None, "{flags:?}");
        }
    }
}

/// A function that another one chooses when the program starts: objdump names its
/// stub by the address of that other one, which is also the symbol's.
#[test]
fn stubs_of_chosen_functions() {
    let (_dir, dir) = folder();
    let source = dir.join("chosen.c");
    let text = "static int one(int n) { return n + 1; }\n\
                static int (*choose(void))(int) { return one; }\n\
                int pick(int) __attribute__((ifunc(\"choose\")));\n\
                int main(int count, char **args) { return pick(count); }\n";
    std::fs::write(&source, text).unwrap();
    for flags in [&["-pie", "-fPIE"][..], &["-no-pie"], &["-fcf-protection=full", "-Wl,-z,ibtplt"]]
    {
        let program = dir.join("chosen");
        let (path, source) = (program.to_str().unwrap(), source.to_str().unwrap());
        let Some(_) = run("cc", &[flags, &["-O1", "-o", path, source]].concat()) else { return };
        let Some(text) = run("objdump", &["-d", path]) else { return };
        let stub = format!(" <*ABS*+{:#x}@plt>:", symbol(&program, "pick"));
        let stubs = text.lines().filter_map(|line| line.strip_suffix(&stub));
        let stubs: Vec<u64> = stubs.map(|addr| u64::from_str_radix(addr, 16).unwrap()).collect();
        assert!(!stubs.is_empty(), "{flags:?}: no{stub} in\n{text}");
        let module = Module::open_with(&program, &DebugDirs::default()).unwrap();
        for addr in stubs {
            assert_eq!(module.symbol_at(addr), Some(("pick@plt", 0)), "{flags:?}");
        }
    }
}

/// Debug information truncated or damaged anywhere: wrong or no answers, but no panic and no hang.
#[test]
fn damaged_debug_information() {
    let (_dir, dir) = folder();
    let whole = dir.join("whole");
    for flags in [["-O2", "-gdwarf-4", "-nostdlib"], ["-O2", "-gdwarf-5", "-nostdlib"]] {
        let all = [&flags[..], &["-Wl,-e,main", "-no-pie"]].concat();
        let Some(()) = compile("inlined.c", &whole, &all) else { return };
        let bytes = std::fs::read(&whole).unwrap();
        let addrs = [symbol(&whole, "in_inner"), symbol(&whole, "main"), 0, u64::MAX];
        let damaged = dir.join("damaged");
        let look = |bytes: &[u8]| {
            std::fs::write(&damaged, bytes).unwrap();
            if let Ok(module) = Module::open_with(&damaged, &DebugDirs::default()) {
                for addr in addrs {
                    let _ = (module.source(addr), module.frames(addr), module.symbol_at(addr));
                }
                let _ = module.find("step");
            }
        };
        for len in (0..bytes.len()).step_by(97) {
            look(&bytes[..len]);
        }
        // The sections, damaged differently in each byte.
        let file = object::File::parse(&*bytes).unwrap();
        let mut state = 1u32;
        for name in [
            ".debug_info",
            ".debug_abbrev",
            ".debug_line",
            ".debug_aranges",
            ".debug_str",
            ".debug_ranges",
            ".debug_rnglists",
            ".debug_line_str",
        ] {
            use object::{Object, ObjectSection};
            let Some(section) = file.section_by_name(name) else { continue };
            let (at, len) = section.file_range().unwrap();
            for _ in 0..150 {
                let mut changed = bytes.clone();
                for _ in 0..3 {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let place = at as usize + (state >> 8) as usize % len.max(1) as usize;
                    changed[place] =
                        [0, 0xFF, 0x7F, 0x80][state as usize >> 4 & 3] ^ (state >> 24) as u8;
                }
                look(&changed);
            }
        }
    }
}

/// Parsing recurses with this depth.
#[test]
fn endless_inlining() {
    let (_dir, dir) = folder();
    let program = dir.join("program");
    for (nested, frames) in [(3, 4), (400, 401), (300_000, 0)] {
        let nested = format!("-Wa,--defsym,NESTED={nested}");
        let flags = ["-nostdlib", "-static", "-Wl,-e,around", &nested];
        let Some(()) = compile("inlined_deep.S", &program, &flags) else { return };
        let around = symbol(&program, "around");
        let module = Module::open_with(&program, &DebugDirs::default()).unwrap();
        let found = module.frames(around);
        assert_eq!(found.len(), frames);
        let last = found.last().and_then(|frame| frame.function.as_deref());
        assert_eq!(last, (frames > 0).then_some("around"));
    }
}

/// A section that claims a huge decompressed size.
#[test]
fn enormous_compressed_sections() {
    let (_dir, dir) = folder();
    let program = dir.join("program");
    let Some(()) = compile("inlined.c", &program, &["-O2", "-g", "-gz=zlib"]) else { return };
    let mut bytes = std::fs::read(&program).unwrap();
    let sections: Vec<u64> = {
        use object::{Object, ObjectSection};
        let file = object::File::parse(&*bytes).unwrap();
        let all = file.sections();
        all.filter(|s| s.name().unwrap().starts_with(".debug"))
            .map(|s| s.file_range().unwrap().0)
            .collect()
    };
    for at in sections {
        // Elf64_Chdr: type, reserved, size, alignment.
        let at = at as usize;
        if bytes[at..at + 4] == [1, 0, 0, 0] {
            bytes[at + 8..at + 16].copy_from_slice(&u64::MAX.to_le_bytes());
        }
    }
    std::fs::write(&program, &bytes).unwrap();
    let module = Module::open_with(&program, &DebugDirs::default()).unwrap();
    let _ = module.frames(symbol(&program, "in_inner"));
    assert_eq!(source("inlined.c").file_name().unwrap(), "inlined.c");
}

/// Functions inlined from one source file into another: their names are in another unit than their
/// code.
#[test]
fn names_in_other_units() {
    let (_dir, dir) = folder();
    let [one, two, program] = ["one.c", "two.c", "program"].map(|name| dir.join(name));
    std::fs::write(&one, "int twice(int x) { return x ^ (x << 3); }\n").unwrap();
    let caller = "int twice(int x);\nint main(int argc, char **argv) {\n    (void)argv;\n    \
        return twice(argc);\n}\n";
    std::fs::write(&two, caller).unwrap();
    let names = [&program, &one, &two].map(|path| path.to_str().unwrap());
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let args = ["-O2", version, "-flto", "-flto-partition=none", "-o", names[0]];
        let Some(_) = run("cc", &[&args[..], &names[1..]].concat()) else { return };
        let main = symbol(&program, "main");
        let module = Module::open_with(&program, &DebugDirs::default()).unwrap();
        let inlined = (main..main + 8).find(|addr| module.frames(*addr).len() == 2);
        let Some(inlined) = inlined else {
            skipped(format_args!("this compiler inlines nothing between units ({version})"));
            continue;
        };
        let frames = module.frames(inlined);
        let shown = |frame: &profile::lines::Frame| {
            let source = frame.source.as_ref().unwrap();
            (
                frame.function.clone().unwrap().to_string(),
                source.file_name().to_owned(),
                source.line,
            )
        };
        assert_eq!(shown(&frames[0]), ("twice".into(), "one.c".into(), 1), "{version}");
        assert_eq!(shown(&frames[1]), ("main".into(), "two.c".into(), 4), "{version}");
    }
}
