//! Compressed symbols in a stripped program (`.gnu_debugdata`).

use std::path::{Path, PathBuf};

use object::{Object, ObjectSection};
use profile::symbols::{DebugDirs, Module};

use crate::compiled::{compile, extent, run, symbol};
use crate::support::skip::{skipped, tool};

/// Builds a program as distributions do: its function symbols in a small file, compressed, and
/// embedded in the stripped program. `None` if tools are missing.
fn made(dir: &Path, xz: &[&str]) -> Option<(PathBuf, PathBuf)> {
    let path = |name: &str| dir.join(name);
    let (full, small, program) = (path("full"), path("small"), path("program"));
    let flags = ["-O2", "-g", "-Wl,--build-id=none"];
    compile("inlined.c", &full, &flags)?;
    let keep = path("keep");
    std::fs::write(&keep, "main\nstep\nin_step\n").unwrap();
    let keep = format!("--keep-symbols={}", keep.display());
    let [f, s, p] = [&full, &small, &program].map(|path| path.to_str().unwrap().to_owned());
    run("objcopy", &["-S", "--remove-section=.comment", &keep, &f, &s])?;
    let Ok(packed) = tool("xz").args(xz).args(["-c", &s]).output() else {
        skipped("no xz");
        return None;
    };
    assert!(packed.status.success());
    let data = path("small.xz");
    std::fs::write(&data, packed.stdout).unwrap();
    let add = format!("--add-section=.gnu_debugdata={}", data.display());
    run("objcopy", &["--strip-all", &add, &f, &p])?;
    Some((full, program))
}

#[test]
fn names_from_packed_symbols() {
    let dir = tempfile::tempdir().unwrap();
    for xz in [&["-6"][..], &["-9e"], &["--check=crc32"], &["--check=none"], &["--x86", "--lzma2"]]
    {
        let Some((full, program)) = made(dir.path(), xz) else { return };
        let module = Module::open_with(&program, &DebugDirs::default()).unwrap();
        let (start, size) = extent(&full, "step");
        assert_eq!(module.symbol_at(start + 1), Some(("step", 1)), "{xz:?}");
        assert_eq!(module.function_at(start), Some(("step", start..start + size)));
        assert_eq!(module.find("main").unwrap(), symbol(&full, "main"));
        assert!(!module.is_stripped());
        // Not in the small file.
        assert!(module.find("in_inner").is_err());
    }
}

/// Damage anywhere: missing or wrong names, but no other failure.
#[test]
fn damaged_packed_symbols() {
    let dir = tempfile::tempdir().unwrap();
    let Some((full, program)) = made(dir.path(), &["-6"]) else { return };
    let bytes = std::fs::read(&program).unwrap();
    let (at, len) = {
        let file = object::File::parse(&*bytes).unwrap();
        file.section_by_name(".gnu_debugdata").unwrap().file_range().unwrap()
    };
    let start = symbol(&full, "step");
    let mut silent = 0;
    for place in (0..len).step_by(7) {
        let mut changed = bytes.clone();
        changed[(at + place) as usize] ^= 0x55;
        std::fs::write(&program, changed).unwrap();
        let module = Module::open_with(&program, &DebugDirs::default()).unwrap();
        silent += u32::from(module.symbol_at(start).is_none());
    }
    assert!(silent > 0, "{len} bytes, and every change passed");
}

/// A small section that decompresses to more than any symbol list.
#[test]
fn packed_symbols_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let Some((full, program)) = made(dir.path(), &["-6"]) else { return };
    let zeros = dir.path().join("zeros");
    let file = std::fs::File::create(&zeros).unwrap();
    file.set_len(80 << 20).unwrap();
    let packed = tool("xz").args(["-1", "-c", zeros.to_str().unwrap()]).output().unwrap();
    let data = dir.path().join("zeros.xz");
    std::fs::write(&data, packed.stdout).unwrap();
    let update = format!("--update-section=.gnu_debugdata={}", data.display());
    let Some(_) = run("objcopy", &[&update, program.to_str().unwrap()]) else { return };
    let module = Module::open_with(&program, &DebugDirs::default()).unwrap();
    assert_eq!(module.symbol_at(symbol(&full, "step")), None);
}
