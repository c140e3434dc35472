//! Compiled C programs, compared with the output of binutils.

use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSegment, ObjectSymbol};
use profile::maps::{Location, Maps};

use lbr_msr::record::{Event, Mmap};

use crate::support::skip::skipped;

/// Runs a tool; `None`, with a message, if it is missing.
pub(crate) fn run(program: &str, args: &[&str]) -> Option<String> {
    let Ok(out) = Command::new(program).args(args).output() else {
        skipped(format_args!("no {program}"));
        return None;
    };
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{program} {args:?}: {said}");
    Some(String::from_utf8(out.stdout).unwrap())
}

/// The source of a program in `tests/programs`.
pub(crate) fn source(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/programs").join(name);
    path.canonicalize().unwrap()
}

/// Compiles a program into `out`.
pub(crate) fn compile(name: &str, out: &Path, flags: &[&str]) -> Option<()> {
    let source = source(name);
    let mut args = flags.to_vec();
    args.extend(["-o", out.to_str().unwrap(), source.to_str().unwrap()]);
    run("cc", &args).map(drop)
}

/// Address of a symbol in the symbol table.
#[track_caller]
pub(crate) fn symbol(path: &Path, name: &str) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let found = file.symbols().find(|symbol| symbol.name() == Ok(name));
    found.unwrap_or_else(|| panic!("no symbol {name}")).address()
}

/// First address and bytes of a function.
pub(crate) fn extent(path: &Path, name: &str) -> (u64, u64) {
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let found = file.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap();
    (found.address(), found.size())
}

/// The loaded segment with code: (address, offset in the file, bytes).
pub(crate) fn code(path: &Path) -> (u64, u64, u64) {
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let executable = |segment: &object::Segment<'_, '_>| match segment.flags() {
        object::SegmentFlags::Elf { p_flags, .. } => p_flags.contains(object::elf::PF_X),
        _ => false,
    };
    let segment = file.segments().find(executable).unwrap();
    let (offset, size) = segment.file_range();
    (segment.address(), offset, size)
}

/// Maps the code of a program at a base address as the kernel would; returns the difference to
/// addresses in the symbol table.
pub(crate) fn map(maps: &mut Maps, pid: u32, path: &Path, bias: u64) {
    map_with(maps, pid, path, bias, profile::symbols::build_id(path));
}

/// As [`map`], with the recorded build ID.
pub(crate) fn map_with(
    maps: &mut Maps,
    pid: u32,
    path: &Path,
    bias: u64,
    build_id: Option<Vec<u8>>,
) {
    maps.event(&mapped(pid, path, bias, build_id));
}

/// The mapping of a program's code.
pub(crate) fn mapped(pid: u32, path: &Path, bias: u64, build_id: Option<Vec<u8>>) -> Event {
    let (vaddr, offset, size) = code(path);
    let within = vaddr % 4096;
    Event::Mmap(Box::new(Mmap {
        time: 1,
        pid,
        tid: pid,
        addr: vaddr - within + bias,
        len: (size + within).next_multiple_of(4096),
        pgoff: offset - within,
        dev: (8, 1),
        ino: 1,
        ino_generation: 0,
        build_id,
        prot: 5,
        flags: 2,
        path: path.to_str().unwrap().to_owned(),
    }))
}

/// The location of an address in a process.
pub(crate) fn locate(maps: &mut Maps, pid: u32, addr: u64) -> Location {
    let space = maps.space(Some(pid));
    maps.locate(space, addr)
}
