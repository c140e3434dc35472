//! `[vdso]` and `[vsyscall]`: code in every process that is in no file.

use std::io::Read;
use std::os::unix::fs::FileExt;

use lbr_msr::record::{Event, Mmap};
use object::{Object, ObjectSymbol};
use profile::maps::{Location, Maps};
use profile::perf_data::FileInfo;
use profile::symbols::{DebugDirs, Sources};

use crate::compiled::locate;
use crate::support::mapping::mapping;
use crate::support::skip::skipped;

const VSYSCALL: u64 = 0xffff_ffff_ff60_0000;
const BASE: u64 = 0x7ffd_1234_5000;

/// This process's own: its bytes, and the offset of `__vdso_gettimeofday`.
fn own() -> Option<(Vec<u8>, Vec<u8>, u64)> {
    let mut maps = String::new();
    std::fs::File::open("/proc/self/maps").unwrap().read_to_string(&mut maps).unwrap();
    let Some(line) = maps.lines().find(|line| line.ends_with("[vdso]")) else {
        skipped("this kernel maps no [vdso]");
        return None;
    };
    let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
    let number = |text| u64::from_str_radix(text, 16).unwrap();
    let mut bytes = vec![0; (number(end) - number(start)) as usize];
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    memory.read_exact_at(&mut bytes, number(start)).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let mut symbols = file.dynamic_symbols();
    let Some(found) = symbols.find(|symbol| symbol.name() == Ok("__vdso_gettimeofday")) else {
        skipped("this [vdso] has no gettimeofday");
        return None;
    };
    let id = file.build_id().unwrap().unwrap().to_vec();
    let addr = found.address();
    Some((bytes, id, addr))
}

fn map(maps: &mut Maps, base: u64, id: Option<&[u8]>) {
    let Event::Mmap(map) = mapping(7, base, 0x2000, 0, "[vdso]") else { unreachable!() };
    maps.event(&Event::Mmap(Box::new(Mmap { build_id: id.map(<[u8]>::to_vec), ..*map })));
}

fn sources() -> Sources {
    Sources { debug: DebugDirs::default(), ..Sources::default() }
}

fn name(maps: &mut Maps, at: Location) -> Option<String> {
    maps.name(at).map(|named| format!("{}+{:#x}", named.name, named.offset))
}

#[test]
fn functions_of_the_vdso() {
    let Some((bytes, id, addr)) = own() else { return };
    let expected = Some("__vdso_gettimeofday+0x1".to_owned());
    let look = |id: Option<&[u8]>, sources: Sources, base: u64| {
        let mut maps = Maps::with_sources(sources);
        map(&mut maps, base, id);
        let at = locate(&mut maps, 7, base + addr + 1);
        let Location::File { file, .. } = at else { panic!("{at:?}") };
        assert_eq!(maps.path(file), Some("[vdso]"));
        (name(&mut maps, at), maps.code(at).map(|code| code.bytes), maps.failures().count())
    };
    let code = bytes[addr as usize + 1..][..15].to_vec();
    assert_eq!(look(Some(&id), sources(), BASE), (expected.clone(), Some(code.clone()), 0));
    // Another kernel's, which is not available.
    assert_eq!(look(Some(&[1; 20]), sources(), BASE), (None, None, 0));
    // Of an unknown kernel.
    assert_eq!(look(None, sources(), BASE), (None, None, 0));

    // perf kept a copy.
    let dir = tempfile::tempdir().unwrap();
    let mut kept = bytes;
    let at = kept.windows(20).position(|window| window == id).unwrap();
    let other = [0xab; 20];
    kept[at..at + 20].copy_from_slice(&other);
    let folder = dir.path().join(".build-id/ab").join("ab".repeat(19));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("vdso"), kept).unwrap();
    let debug = DebugDirs { caches: vec![dir.path().to_owned()], ..DebugDirs::default() };
    let with_cache = Sources { debug, ..sources() };
    assert_eq!(look(Some(&other), with_cache, BASE), (expected, Some(code), 0));
}

/// Without a build ID: that of the recorded kernel, if it runs here.
#[test]
fn the_kernel_reports_the_vdso() {
    let Some((_, _, addr)) = own() else { return };
    let running = sources().kernel.release.unwrap();
    for (release, base, named) in [
        (running.as_str(), BASE, true),
        ("5.0-another", BASE, false),
        // A 32-bit process has another one.
        (running.as_str(), 0xf7f0_0000, false),
    ] {
        let mut maps = Maps::with_sources(sources());
        map(&mut maps, base, None);
        let at = locate(&mut maps, 7, base + addr);
        // Requested too early.
        assert_eq!(name(&mut maps, at), None);
        let osrelease = Some(release.to_owned());
        maps.recorded(&FileInfo { osrelease, ..FileInfo::default() });
        let expected = named.then(|| "__vdso_gettimeofday+0x0".to_owned());
        assert_eq!(name(&mut maps, at), expected, "{release} {base:#x}");
    }
}

/// The page of old system calls has a name, and is in the kernel's half.
#[test]
fn the_vsyscall_page() {
    let mut maps = Maps::with_sources(sources());
    let before = locate(&mut maps, 7, VSYSCALL);
    assert_eq!(before, Location::Address(VSYSCALL));
    maps.event(&mapping(7, VSYSCALL, 0x1000, 0, "[vsyscall]"));
    let at = locate(&mut maps, 7, VSYSCALL + 0x400);
    let Location::File { file, offset: 0x400 } = at else { panic!("{at:?}") };
    assert_eq!(maps.path(file), Some("[vsyscall]"));
    assert_eq!((maps.name(at), maps.code(at)), (None, None));
    // Another process's.
    assert_eq!(locate(&mut maps, 8, VSYSCALL), Location::Address(VSYSCALL));
}
