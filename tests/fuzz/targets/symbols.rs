//! Any file as what names are looked up in: a program with its debug
//! information, the kernel's list, the list of its modules, a list of
//! generated code.
#![no_main]

use std::path::PathBuf;
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

static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join(format!("lbr-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder of our own");
    dir
});

fn write(name: &str, bytes: &[u8]) -> PathBuf {
    let path = DIR.join(name);
    std::fs::write(&path, bytes).expect("a file of our own");
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
        debug: DebugDirs::none(),
        kernel,
        kallsyms,
        vmlinux: None,
        jit: DIR.clone(),
        lines: true,
    }
}

/// Asks for everything at some addresses.
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

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => {
            let path = write("program", bytes);
            let Ok(mut module) = Module::open_with(&path, &DebugDirs::none()) else { return };
            for addr in (0..64).map(|at| 0x1000 + at * 7).chain([0, u64::MAX, 0x40_1000]) {
                let _ = (module.function_at(addr), module.source(addr), module.frames(addr));
                let _ = (module.code_at(addr), module.offset_of_address(addr));
            }
            let _ = module.find("main");
            let mut together = Module::open_with(&path, &DebugDirs::none()).expect("it was opened");
            together.look_up_lines((0x1000..0x1400).step_by(7).chain([0, u64::MAX]).collect());
            let mut sources = sources(None, DIR.join("absent"));
            sources.vmlinux = Some(path.clone());
            let mut maps = Maps::with_sources(sources);
            let path = path.to_str().expect("UTF-8");
            // The same file as a program and as the kernel.
            const KERNEL: u64 = 0xffff_ffff_8100_0000;
            maps.event(&mapping(u32::MAX, KERNEL, 0x4000, KERNEL, "[kernel.kallsyms]main"));
            ask(&mut maps, Some(PID), (0..0x4000).step_by(61).map(|at| KERNEL + at));
            maps.event(&mapping(PID, 0x40_0000, bytes.len() as u64, 0, path));
            ask(
                &mut maps,
                Some(PID),
                (0..bytes.len().min(0x4000) as u64).step_by(61).map(|at| 0x40_0000 + at),
            );
        }
        1 | 2 => {
            let kallsyms = write(
                "kallsyms",
                if kind % 4 == 1 {
                    bytes
                } else {
                    b"ffffffff81000000 T _text\nffffffff81001000 T _etext\nffffffffc0001000 t f [m]\n"
                },
            );
            let modules = write(
                "modules",
                if kind % 4 == 2 { bytes } else { b"m 4096 0 - Live 0xffffffffc0001000\n" },
            );
            let sources = sources(Some(kallsyms), modules);
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
        _ => {
            let path = write(&format!("perf-{PID}.map"), bytes);
            let mut maps = Maps::with_sources(sources(None, DIR.join("absent")));
            maps.event(&mapping(PID, 0x1000, 0x10_0000, 0, "//anon"));
            ask(&mut maps, Some(PID), [0, 0x1000, 0x1234, 0x10_0000, u64::MAX]);
            std::fs::remove_file(path).expect("our own file");
        }
    }
    if let Ok(name) = std::str::from_utf8(bytes) {
        let _ = demangle(name);
    }
});
