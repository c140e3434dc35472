//! Names and lines from the kernel's ELF file: a small one, linked at a kernel's usual address.

use std::path::{Path, PathBuf};

use lbr_msr::record::{Event, Mmap};
use profile::maps::{Location, Maps};
use profile::perf_data::FileInfo;
use profile::symbols::{DebugDirs, RunningKernel, Sources, SymbolError, build_id};

use crate::compiled::{compile, locate, run, symbol};
use crate::support::linked::AS_KERNEL;
use crate::support::mapping::mapping;

const RELEASE: &str = "6.1.0-lbr";
/// The load offset of the recorded kernel.
const SLIDE: u64 = 0x2100_0000;

struct Kernel {
    dir: tempfile::TempDir,
    vmlinux: PathBuf,
    text: u64,
    id: Vec<u8>,
}

/// `inlined.c` as a kernel: linked to the upper two gigabytes, with `_text` at the start.
fn kernel() -> Option<Kernel> {
    let dir = tempfile::tempdir().unwrap();
    let vmlinux = dir.path().join("vmlinux");
    compile("inlined.c", &vmlinux, &AS_KERNEL)?;
    run("objcopy", &["--add-symbol", "_text=.text:0,global", vmlinux.to_str().unwrap()])?;
    let text = symbol(&vmlinux, "_text");
    assert!(text > 0xffff_ffff_8000_0000 && symbol(&vmlinux, "step") >= text, "{text:#x}");
    let id = build_id(&vmlinux).unwrap();
    Some(Kernel { dir, vmlinux, text, id })
}

impl Kernel {
    fn sources(&self) -> Sources {
        let nothing = self.dir.path().join("nothing");
        Sources {
            debug: DebugDirs::default(),
            kernel: RunningKernel {
                hostname: None,
                release: Some("7.7.7-another".to_owned()),
                build_id: Some(vec![9; 20]),
                kallsyms: nothing.clone(),
                modules: nothing,
            },
            jit: self.dir.path().to_owned(),
            ..Sources::default()
        }
    }

    /// Records a branch at `in_inner`, at another address than in the file.
    fn record(&self, maps: &mut Maps, id: Option<&[u8]>) -> Location {
        let there = self.text.wrapping_add(SLIDE);
        let Event::Mmap(map) = mapping(u32::MAX, there, 0x10_0000, there, "[kernel.kallsyms]_text")
        else {
            unreachable!()
        };
        maps.event(&Event::Mmap(Box::new(Mmap { build_id: id.map(<[u8]>::to_vec), ..*map })));
        let at = locate(maps, 7, symbol(&self.vmlinux, "in_inner").wrapping_add(SLIDE));
        let osrelease = Some(RELEASE.to_owned());
        maps.recorded(&FileInfo { osrelease, ..FileInfo::default() });
        at
    }

    #[track_caller]
    fn found(&self, maps: &mut Maps, at: Location) {
        let step = symbol(&self.vmlinux, "step");
        let named = maps.name(at).unwrap();
        assert_eq!(named.name, "step");
        assert_eq!(named.offset, symbol(&self.vmlinux, "in_inner") - step);
        let frames: Vec<(String, u32)> = maps
            .frames(at)
            .into_iter()
            .map(|frame| (frame.function.unwrap().to_string(), frame.source.unwrap().line))
            .collect();
        let expected = [("inner", 9), ("middle", 16), ("step", 22)];
        assert_eq!(frames, expected.map(|(name, line)| (name.to_owned(), line)));
        assert_eq!(maps.source(at).unwrap().line, 9);
        let function = maps.function(at).unwrap();
        assert!(function.contains(at));
        assert_eq!(function.address, step);
        // A kernel changes its code: the file may differ from the executed code.
        assert_eq!(maps.code(at), None);
        assert_eq!(maps.failures().count(), 0);
    }
}

/// By build ID, in every folder with debug files of kernels.
#[test]
fn found_by_build_id() {
    let Some(kernel) = kernel() else { return };
    let root = kernel.dir.path().join("root");
    let id: String = kernel.id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (first, rest) = id.split_at(2);
    let roots = || DebugDirs { roots: vec![root.clone()], ..DebugDirs::default() };
    let caches = || DebugDirs { caches: vec![root.clone()], ..DebugDirs::default() };
    for (debug, place) in [
        (roots(), format!("boot/vmlinux-{RELEASE}")),
        (roots(), format!("lib/modules/{RELEASE}/vmlinux")),
        (roots(), format!(".build-id/{first}/{rest}.debug")),
        (caches(), format!(".build-id/{first}/{rest}/elf")),
    ] {
        let place = root.join(place);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(&kernel.vmlinux, &place).unwrap();
        let mut maps = Maps::with_sources(Sources { debug, ..kernel.sources() });
        let at = kernel.record(&mut maps, Some(&kernel.id));
        kernel.found(&mut maps, at);
        // Another build of the same release is another kernel.
        let mut maps = Maps::with_sources(Sources { debug: roots(), ..kernel.sources() });
        let at = kernel.record(&mut maps, Some(&[1; 20]));
        assert_eq!((maps.name(at), maps.frames(at).len()), (None, 0));
        assert!(maps.failures().any(|e| matches!(e, SymbolError::OtherKernel { .. })));
        std::fs::remove_dir_all(&root).unwrap();
    }
}

/// The running kernel's build ID replaces an unrecorded one if the release is the same; otherwise
/// the right file is unknown.
#[test]
fn without_a_recorded_build_id() {
    let Some(kernel) = kernel() else { return };
    let root = kernel.dir.path().join("root");
    let place = root.join("boot").join(format!("vmlinux-{RELEASE}"));
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::copy(&kernel.vmlinux, &place).unwrap();
    for (release, id, right) in
        [(RELEASE, &kernel.id, true), ("5.0", &kernel.id, false), (RELEASE, &vec![1; 20], false)]
    {
        let mut sources = kernel.sources();
        sources.debug.roots.push(root.clone());
        sources.kernel.release = Some(release.to_owned());
        sources.kernel.build_id = Some(id.clone());
        let mut maps = Maps::with_sources(sources);
        let at = kernel.record(&mut maps, None);
        if right {
            kernel.found(&mut maps, at);
        } else {
            assert_eq!(maps.name(at), None);
        }
    }
}

/// Given by the user: accepted unless build IDs differ.
#[test]
fn given_by_name() {
    let Some(kernel) = kernel() else { return };
    let given = |path: &Path| Sources { vmlinux: Some(path.to_owned()), ..kernel.sources() };
    for id in [None, Some(kernel.id.as_slice())] {
        let mut maps = Maps::with_sources(given(&kernel.vmlinux));
        let at = kernel.record(&mut maps, id);
        kernel.found(&mut maps, at);
    }
    let mut maps = Maps::with_sources(given(&kernel.vmlinux));
    let at = kernel.record(&mut maps, Some(&[1; 20]));
    assert_eq!(maps.name(at), None);
    let said: Vec<String> = maps.failures().map(ToString::to_string).collect();
    assert!(said[0].contains("not the kernel that was recorded"), "{said:?}");

    // A debug file without code, as distributions have it.
    let debug = kernel.dir.path().join("vmlinux.debug");
    let (from, to) = (kernel.vmlinux.to_str().unwrap(), debug.to_str().unwrap());
    let Some(_) = run("objcopy", &["--only-keep-debug", from, to]) else { return };
    let mut maps = Maps::with_sources(given(&debug));
    let at = kernel.record(&mut maps, Some(&kernel.id));
    kernel.found(&mut maps, at);

    // Not a kernel.
    let list = kernel.dir.path().join("list");
    std::fs::write(&list, "no kernel\n").unwrap();
    for path in [&list, &kernel.dir.path().join("missing"), kernel.dir.path()] {
        let mut maps = Maps::with_sources(given(path));
        let at = kernel.record(&mut maps, None);
        assert_eq!(maps.name(at), None);
        assert_eq!(maps.failures().count(), 1);
    }
}

/// Functions missing from the file are in the list.
#[test]
fn together_with_a_list() {
    let Some(kernel) = kernel() else { return };
    let list = kernel.dir.path().join("kallsyms");
    let there = kernel.text.wrapping_add(SLIDE);
    let beyond = there + 0x8_0000;
    let text = format!("{there:x} T _text\n{beyond:x} T patched_in\n{:x} T _etext\n", beyond + 64);
    std::fs::write(&list, text).unwrap();
    let mut sources = kernel.sources();
    sources.vmlinux = Some(kernel.vmlinux.clone());
    sources.kallsyms = Some(list);
    let mut maps = Maps::with_sources(sources);
    let at = kernel.record(&mut maps, None);
    kernel.found(&mut maps, at);
    let other = locate(&mut maps, 7, beyond + 4);
    let named = maps.name(other).unwrap();
    assert_eq!((named.name.as_str(), named.offset), ("patched_in", 4));
}
