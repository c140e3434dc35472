//! Batch look-ups of lines give the same as single ones.

use std::path::{Path, PathBuf};

use object::{Object, ObjectSection};
use profile::lines::Frame;
use profile::symbols::{DebugDirs, Module};

use crate::compiled::{compile, run};
use crate::support::skip::skipped;

/// `count` addresses spread over the code of a program.
fn addresses(program: &Path, count: u64) -> Vec<u64> {
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let text = file.section_by_name(".text").unwrap();
    let step = (text.size() / count).max(1);
    (text.address()..text.address() + text.size()).step_by(step as usize).collect()
}

/// The result for each address, and whether there is any.
fn frames(module: &Module, addrs: &[u64]) -> Vec<Vec<Frame>> {
    addrs.iter().map(|addr| module.frames(*addr)).collect()
}

/// Looks addresses up in both ways; returns how many have inlined functions.
fn compare(program: &Path, addrs: &[u64]) -> usize {
    let open = || Module::open_with(program, &DebugDirs::none()).unwrap();
    let alone = open();
    let mut together = open();
    // Twice, the second time with some already known, in no order.
    let (first, second) = addrs.split_at(addrs.len() / 2);
    together.look_up_lines(first.to_vec());
    together.look_up_lines(second.iter().chain(first).copied().rev().collect());
    assert_eq!(frames(&alone, addrs), frames(&together, addrs));
    for addr in addrs {
        assert_eq!(alone.source(*addr), together.source(*addr), "{addr:#x}");
    }
    addrs.iter().filter(|addr| together.frames(**addr).len() > 1).count()
}

fn path(dir: &tempfile::TempDir, name: &str) -> PathBuf {
    dir.path().canonicalize().unwrap().join(name)
}

/// Every byte of the code, and addresses outside of it.
#[test]
fn every_address_of_a_program() {
    let dir = tempfile::tempdir().unwrap();
    let program = path(&dir, "program");
    for flags in [
        &["-O2", "-gdwarf-4"][..],
        &["-O2", "-gdwarf-5"],
        &["-O2", "-gdwarf-5", "-gz=zlib"],
        &["-O2", "-gdwarf-5", "-gsplit-dwarf"],
        &["-O2", "-gdwarf-5", "-flto", "-ffat-lto-objects"],
    ] {
        let Some(()) = compile("inlined.c", &program, flags) else { return };
        let mut addrs = addresses(&program, u64::MAX);
        addrs.extend([0, 1, u64::MAX - 1, u64::MAX]);
        assert!(compare(&program, &addrs) > 0, "{flags:?}: nothing was inlined");
    }
}

/// Many megabytes of debug information: this test's own, which is read in many pieces.
#[test]
fn a_large_program() {
    let program = std::env::current_exe().unwrap();
    let debug = |name: &str| {
        let bytes = std::fs::read(&program).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        file.section_by_name(name).map_or(0, |section| section.size())
    };
    if debug(".debug_info") < 4 << 20 {
        skipped("the tests have little debug information");
        return;
    }
    let inlined = compare(&program, &addresses(&program, 3000));
    assert!(inlined > 0, "nothing was inlined");
}

/// Functions inlined from one source file into another: their names are in another unit than their
/// code.
#[test]
fn names_in_other_units() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two, program) = (path(&dir, "one.c"), path(&dir, "two.c"), path(&dir, "program"));
    std::fs::write(&one, "int twice(int x) { return x ^ (x << 3); }\n").unwrap();
    let caller = "int twice(int x);\nint main(int argc, char **argv) {\n    (void)argv;\n    \
        return twice(argc);\n}\n";
    std::fs::write(&two, caller).unwrap();
    let names = [&program, &one, &two].map(|path| path.to_str().unwrap());
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let args = ["-O2", version, "-flto", "-flto-partition=none", "-o", names[0]];
        let Some(_) = run("cc", &[&args[..], &names[1..]].concat()) else { return };
        let bytes = std::fs::read(&program).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let main = object::ObjectSymbol::address(&file.symbol_by_name("main").unwrap());
        let addrs: Vec<u64> = (main..main + 8).collect();
        compare(&program, &addrs);
        let mut module = Module::open_with(&program, &DebugDirs::none()).unwrap();
        module.look_up_lines(addrs.clone());
        let inlined = addrs.iter().find(|addr| module.frames(**addr).len() == 2);
        let Some(inlined) = inlined else {
            skipped(format_args!("this compiler inlines nothing between units ({version})"));
            continue;
        };
        let frames = module.frames(*inlined);
        let shown = |frame: &Frame| {
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
