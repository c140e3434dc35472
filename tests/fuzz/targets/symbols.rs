//! Any file as a source of symbols, after a byte that selects its kind: a program with its debug
//! information, the kernel's list, the list of its modules, a list of generated code, a name.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use lbr_msr::record::Event;
use libfuzzer_sys::fuzz_target;
use profile::maps::Maps;
use profile::place::LocationSpec;
use profile::symbols::{DebugDirs, Module, RunningKernel, Sources, demangle};

#[path = "../../support/mapping.rs"]
mod mapping;
use mapping::mapping;

/// The process whose generated code is listed.
const PID: u32 = 1;
/// The link address of programs.
const BASE: u64 = 0x40_0000;

static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join(format!("lbr-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a private directory");
    dir
});

fn write(name: &str, bytes: &[u8]) -> PathBuf {
    let path = DIR.join(name);
    std::fs::write(&path, bytes).expect("a private file");
    path
}

fn sources(kallsyms: Option<PathBuf>, modules: PathBuf) -> Sources {
    let kernel = RunningKernel {
        hostname: None,
        release: None,
        build_id: None,
        kallsyms: kallsyms.clone().unwrap_or_else(|| DIR.join("absent")),
        modules,
    };
    Sources {
        debug: DebugDirs::default(),
        kernel,
        kallsyms,
        vmlinux: None,
        jit: DIR.clone(),
        lines: true,
    }
}

/// Looks up everything at some addresses.
fn ask(maps: &mut Maps, pid: Option<u32>, addrs: impl IntoIterator<Item = u64>) {
    let space = maps.space(pid);
    for addr in addrs {
        let at = maps.locate(space, addr);
        let _ = (maps.name(at), maps.function(at), maps.source(at), maps.frames(at));
        let _ = (maps.branch(at, addr), maps.code(at));
    }
    for place in ["main", "main+4", "hot.c:3", "0x401000", "lib.so:f"] {
        let _ = maps.resolve(&place.parse::<LocationSpec>().expect("places"), &|_| 0.0);
    }
}

/// Looks these addresses up in a program, one by one.
fn module(path: &Path) {
    let Ok(mut module) = Module::open_with(path, &DebugDirs::default()) else { return };
    for addr in (0..16).map(|at| 0x1000 + at * 7).chain([0, u64::MAX, BASE + 0xC0, BASE + 0xE0]) {
        let _ = (module.function_at(addr), module.source(addr), module.frames(addr));
        let _ = (module.code_at(addr), module.offset_of_address(addr));
    }
    let _ = module.find("main");
}

/// The lines of many addresses.
fn lines(path: &Path) {
    let Ok(module) = Module::open_with(path, &DebugDirs::default()) else { return };
    let addrs = (BASE..BASE + 0x200).step_by(7).chain((0x1000..0x1100).step_by(7));
    for addr in addrs.chain([0, u64::MAX]) {
        let _ = (module.source(addr), module.frames(addr));
    }
}

/// A program as the kernel.
fn vmlinux(path: PathBuf) {
    const KERNEL: u64 = 0xffff_ffff_8100_0000;
    let sources = Sources { vmlinux: Some(path), ..sources(None, DIR.join("absent")) };
    let mut maps = Maps::with_sources(sources);
    maps.event(&mapping(u32::MAX, KERNEL, 0x4000, KERNEL, "[kernel.kallsyms]main"));
    ask(&mut maps, Some(PID), (0..0x400).step_by(61).map(|at| KERNEL + at));
}

/// A mapped program.
fn mapped(path: &Path, len: u64) {
    let mut maps = Maps::with_sources(sources(None, DIR.join("absent")));
    maps.event(&mapping(PID, BASE, len, 0, path.to_str().expect("UTF-8")));
    ask(&mut maps, Some(PID), (0..len.min(0x400)).step_by(61).map(|at| BASE + at));
}

/// The kernel's list of symbols, or that of its modules.
fn kernel(kallsyms: &[u8], modules: &[u8]) {
    let kallsyms = write("kallsyms", kallsyms);
    let sources = sources(Some(kallsyms), write("modules", modules));
    let own = sources.kernel.mappings(0).unwrap_or_default();
    let mut maps = Maps::with_sources(sources);
    maps.event(&mapping(
        u32::MAX,
        0xFFFF_FFFF_8100_0000,
        0x1000,
        0xFFFF_FFFF_8100_0000,
        "[kernel.kallsyms]_text",
    ));
    maps.event(&mapping(u32::MAX, 0xFFFF_FFFF_C000_1000, 0x1000, 0, "[m]"));
    for map in own {
        maps.event(&Event::Mmap(Box::new(map)));
    }
    ask(
        &mut maps,
        Some(PID),
        [0xFFFF_FFFF_8100_0000, 0xFFFF_FFFF_8100_0FFF, 0xFFFF_FFFF_C000_1000, u64::MAX],
    );
}

/// A list of generated code.
fn generated(bytes: &[u8]) {
    write(&format!("perf-{PID}.map"), bytes);
    let mut maps = Maps::with_sources(sources(None, DIR.join("absent")));
    maps.event(&mapping(PID, 0x1000, 0x10_0000, 0, "//anon"));
    ask(&mut maps, Some(PID), [0, 0x1000, 0x1234, 0x10_0000, u64::MAX]);
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    match kind % 8 {
        0 => module(&write("program", bytes)),
        1 => lines(&write("program", bytes)),
        2 => mapped(&write("program", bytes), bytes.len() as u64),
        3 => vmlinux(write("program", bytes)),
        4 => kernel(bytes, b"m 4096 0 - Live 0xffffffffc0001000\n"),
        5 => kernel(
            b"ffffffff81000000 T _text\nffffffff81001000 T _etext\nffffffffc0001000 t f [m]\n",
            bytes,
        ),
        6 => generated(bytes),
        _ => {
            if let Ok(name) = std::str::from_utf8(bytes) {
                let _ = demangle(name);
            }
        }
    }
});
