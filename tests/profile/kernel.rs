//! Functions of the kernel and its modules, and of generated code.

use std::path::{Path, PathBuf};

use lbr_msr::BranchFilter;
use lbr_msr::record::{BranchEntry, BranchStack, Event, Integrity, Mmap, Sample, Sink};
use profile::maps::{Location, Maps, Named};
use profile::perf_data::{FileInfo, Meta, Writer};
use profile::symbols::{DebugDirs, RunningKernel, Sources, SymbolError};

use crate::compiled::locate;
use crate::support::mapping::mapping;
use crate::support::skip::{skipped, tool};

/// As `/proc/kallsyms` prints it.
const KALLSYMS: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000100 T alpha
ffffffff81000100 W alpha_weak
ffffffff81000240 t beta
ffffffff81000300 D some_data
ffffffff81000400 T _etext
ffffffffc0002000 t foo_init\t[foo]
ffffffffc0002080 t foo_work\t[foo]
ffffffffc0009000 t bar_work\t[bar]
";
/// The same without permission to see addresses.
const ZEROS: &str = "0000000000000000 T _stext\n0000000000000000 T alpha\n";
const MODULES: &str = "\
foo 16384 0 - Live 0xffffffffc0002000
bar 8192 1 foo, Live 0xffffffffc0009000 (OE)
";
const RELEASE: &str = "6.1.0-lbr";
/// The address of the recorded kernel: different from the running one.
const THEN: u64 = 0xffff_ffff_a200_0000;

struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    fn new(kallsyms: &str) -> Machine {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("kallsyms"), kallsyms).unwrap();
        std::fs::write(dir.path().join("modules"), MODULES).unwrap();
        Machine { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn sources(&self, build_id: Option<Vec<u8>>) -> Sources {
        Sources {
            kernel: RunningKernel {
                hostname: None,
                release: Some(RELEASE.to_owned()),
                build_id,
                kallsyms: self.path("kallsyms"),
                modules: self.path("modules"),
            },
            jit: self.dir.path().to_owned(),
            ..Sources::default()
        }
    }
}

/// Maps the kernel as perf does: the offset is the address of `_text`.
fn map_kernel(maps: &mut Maps, text: u64, build_id: Option<Vec<u8>>) {
    let Event::Mmap(map) = mapping(u32::MAX, text, 0x1000, text, "[kernel.kallsyms]_text") else {
        unreachable!()
    };
    maps.event(&Event::Mmap(Box::new(Mmap { build_id, ..*map })));
}

fn named(name: &str, offset: u64) -> Option<Named> {
    Some(Named { name: name.to_owned(), offset })
}

fn info(release: Option<&str>) -> FileInfo {
    FileInfo { osrelease: release.map(str::to_owned), ..FileInfo::default() }
}

#[test]
fn the_kernel_that_runs_here() {
    let machine = Machine::new(KALLSYMS);
    let mut maps = Maps::with_sources(machine.sources(None));
    map_kernel(&mut maps, THEN, None);
    // Its address at recording time, and perf's names of modules.
    let foo = "/lib/modules/6.1.0-lbr/kernel/drivers/foo.ko.xz";
    maps.event(&mapping(u32::MAX, 0xffff_ffff_c0f0_0000, 0x4000, 0, foo));
    maps.event(&mapping(u32::MAX, 0xffff_ffff_c0f1_0000, 0x2000, 0, "[bar]"));
    let bpf = "bpf_prog_6deef7357e7b4530_sd_fw_egress";
    maps.event(&mapping(u32::MAX, 0xffff_ffff_c0a0_0000, 0x123, 0, bpf));
    let mut at = |addr| locate(&mut maps, 7, addr);
    let program = at(0xffff_ffff_c0a0_0010);
    let (alpha, beta) = (at(THEN + 0x110), at(THEN + 0x240));
    let (work, bar) = (at(0xffff_ffff_c0f0_0084), at(0xffff_ffff_c0f1_0001));
    let outside = at(THEN + 0x1000);
    maps.recorded(&info(Some(RELEASE)));
    assert_eq!(maps.name(alpha), named("alpha", 0x10));
    assert_eq!(maps.name(beta), named("beta", 0));
    assert_eq!(maps.name(work), named("foo_work", 4));
    assert_eq!(maps.name(bar), named("bar_work", 1));
    assert_eq!(maps.name(program), named(bpf, 0x10));
    assert_eq!(outside, Location::Address(THEN + 0x1000));
    assert_eq!(maps.name(outside), None);
    let function = maps.function(alpha).unwrap();
    assert_eq!((function.name.as_str(), &function.offsets), ("alpha", &(0x100..0x240)));
    assert!(function.contains(alpha) && !function.contains(beta));
    assert_eq!(maps.path(function.file), Some("[kernel.kallsyms]"));
    assert_eq!(maps.code(alpha), None);
    assert_eq!(maps.failures().count(), 0);
}

/// Of several symbols at one address, a global one gives the name, and one that marks the start of
/// a section does not.
#[test]
fn a_kernel_function_has_its_own_name() {
    let machine = Machine::new(
        "ffffffff81000000 T _text\n\
         ffffffff81000500 T __irqentry_text_start\nffffffff81000500 t asm_x\n\
         ffffffff81000600 t local\nffffffff81000600 T global\n",
    );
    let mut maps = Maps::with_sources(machine.sources(None));
    map_kernel(&mut maps, THEN, None);
    let at = [0x510, 0x610].map(|offset| locate(&mut maps, 7, THEN + offset));
    maps.recorded(&info(Some(RELEASE)));
    assert_eq!(at.map(|at| maps.name(at)), [named("asm_x", 0x10), named("global", 0x10)]);
}

/// Views that decode code need it while they read, and the call graph needs names: the kernel's
/// identity may be at the end of a file, or at its start.
#[test]
fn asked_before_the_end() {
    let machine = Machine::new(KALLSYMS);
    for (release, used) in [(RELEASE, true), ("6.1.0-other", false)] {
        for told_early in [false, true] {
            let mut maps = Maps::with_sources(machine.sources(None));
            if told_early {
                maps.expect(&info(Some(release)));
            }
            map_kernel(&mut maps, THEN, None);
            let alpha = locate(&mut maps, 7, THEN + 0x110);
            let expected = used.then(|| named("alpha", 0x10)).flatten();
            if told_early {
                assert_eq!(maps.name(alpha), expected);
            } else {
                assert_eq!(maps.code(alpha), None);
            }
            maps.recorded(&info(Some(release)));
            assert_eq!(maps.name(alpha), expected);
            let said: Vec<String> = maps.failures().map(ToString::to_string).collect();
            assert_eq!(said.len(), usize::from(!used), "{said:?}");
            assert!(said.iter().all(|said| said.contains("6.1.0-other")), "{said:?}");
        }
    }
}

/// The build ID decides if both have one, otherwise the release.
#[test]
fn only_names_of_the_recorded_kernel() {
    let machine = Machine::new(KALLSYMS);
    let (this, other) = (Some(vec![1; 20]), Some(vec![2; 20]));
    for (recorded, running, release, used) in [
        (this.clone(), this.clone(), None, true),
        (this.clone(), this.clone(), Some("5.0"), true),
        (this.clone(), other.clone(), Some(RELEASE), false),
        (this.clone(), None, Some(RELEASE), true),
        (None, this.clone(), Some(RELEASE), true),
        (None, None, Some("6.1.0-other"), false),
        (None, None, None, false),
        (this.clone(), None, None, false),
    ] {
        let mut maps = Maps::with_sources(machine.sources(running.clone()));
        map_kernel(&mut maps, THEN, None);
        let at = locate(&mut maps, 7, THEN + 0x100);
        let mut info = info(release);
        info.build_ids.extend(recorded.clone().map(|id| ("[kernel.kallsyms]".to_owned(), id)));
        maps.recorded(&info);
        let name = maps.name(at).map(|named| named.name);
        assert_eq!(name.is_some(), used, "{recorded:?} {running:?} {release:?}");
        let errors: Vec<_> = maps.failures().collect();
        match (used, release) {
            (true, _) => assert!(errors.is_empty()),
            (false, None) => assert!(matches!(errors[..], [SymbolError::UnknownKernel])),
            (false, _) => assert!(matches!(errors[..], [SymbolError::OtherKernel { .. }])),
        }
    }
    // The ID may be in the mapping too.
    let mut maps = Maps::with_sources(machine.sources(other));
    map_kernel(&mut maps, THEN, this);
    let at = locate(&mut maps, 7, THEN + 0x100);
    maps.recorded(&info(Some(RELEASE)));
    assert_eq!(maps.name(at), None);
}

#[test]
fn a_kernel_that_shows_no_addresses() {
    let machine = Machine::new(ZEROS);
    let mut maps = Maps::with_sources(machine.sources(None));
    map_kernel(&mut maps, THEN, None);
    maps.event(&mapping(u32::MAX, 0xffff_ffff_c0f1_0000, 0x2000, 0, "[bar]"));
    let at = [THEN, THEN + 0x100, 0xffff_ffff_c0f1_0000].map(|addr| locate(&mut maps, 7, addr));
    maps.recorded(&info(Some(RELEASE)));
    for at in at {
        assert_eq!(maps.name(at), None);
    }
    // Reported once, not for every module.
    let said: Vec<String> = maps.failures().map(ToString::to_string).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("kptr_restrict"), "{said:?}");
}

/// A list given by the user applies whatever kernel runs here, and also if no mapping has the
/// kernel's address.
#[test]
fn a_given_kallsyms_file() {
    let machine = Machine::new(ZEROS);
    std::fs::write(machine.path("given"), KALLSYMS).unwrap();
    let given = Sources { kallsyms: Some(machine.path("given")), ..machine.sources(None) };
    let mut maps = Maps::with_sources(given.clone());
    map_kernel(&mut maps, THEN, None);
    let at = locate(&mut maps, 7, THEN + 0x111);
    assert_eq!(maps.name(at), named("alpha", 0x11));
    let mut maps = Maps::with_sources(given.clone());
    let at = locate(&mut maps, 7, 0xffff_ffff_8100_0111);
    assert_eq!(maps.name(at), named("alpha", 0x11));
    // A file that is not a list is reported.
    std::fs::write(machine.path("given"), "hello\n\0\0\n12 34 56\n").unwrap();
    let mut maps = Maps::with_sources(given);
    map_kernel(&mut maps, THEN, None);
    let at = locate(&mut maps, 7, THEN + 0x111);
    assert_eq!(maps.name(at), None);
    assert!(maps.failures().any(|e| matches!(e, SymbolError::NotKallsyms(..))));
}

/// perf keeps the symbol lists of recorded kernels, by build ID.
#[test]
fn a_kallsyms_file_kept_by_perf() {
    let machine = Machine::new(KALLSYMS);
    let id = vec![0xABu8; 20];
    let cache = machine.path("cache");
    let entry = cache.join(".build-id/ab").join("ab".repeat(19));
    std::fs::create_dir_all(&entry).unwrap();
    let kept = KALLSYMS.replace("alpha", "older").replace("ffffffffc0002", "ffffffffc0f00");
    std::fs::write(entry.join("kallsyms"), kept).unwrap();
    let mut sources = machine.sources(Some(vec![1; 20]));
    sources.debug = DebugDirs { caches: vec![cache], ..DebugDirs::default() };
    let mut maps = Maps::with_sources(sources);
    map_kernel(&mut maps, THEN, Some(id));
    maps.event(&mapping(u32::MAX, 0xffff_ffff_c0f0_0000, 0x4000, 0, "[foo]"));
    let (at, work) = (THEN + 0x110, 0xffff_ffff_c0f0_0081);
    let (at, work) = (locate(&mut maps, 7, at), locate(&mut maps, 7, work));
    maps.recorded(&info(Some("5.0")));
    assert_eq!(maps.name(at), named("older", 0x10));
    assert_eq!(maps.name(work), named("foo_work", 1));
    assert_eq!(maps.failures().count(), 0);
}

/// The same kernel in two recordings is one, wherever it was loaded; a different kernel is not.
#[test]
fn kernels_of_several_recordings() {
    let machine = Machine::new(KALLSYMS);
    let mut maps = Maps::with_sources(machine.sources(None));
    let mut record = |text: u64, release| {
        map_kernel(&mut maps, text, None);
        let space = maps.space(Some(7));
        maps.recorded(&info(Some(release)));
        maps.next_recording();
        (space, text + 0x100)
    };
    let first = record(THEN, RELEASE);
    let again = record(THEN + 0x20_0000, RELEASE);
    let other = record(THEN, "5.0");
    let at = |(space, addr)| maps.locate(space, addr);
    let (first, again, other) = (at(first), at(again), at(other));
    assert_eq!(first, again);
    assert_ne!(first, other);
    assert_eq!(maps.name(first), named("alpha", 0));
    assert_eq!(maps.name(other), None);
}

/// Kernels are the same by their build IDs; without any, by release and host.
#[test]
fn the_identity_of_a_kernel() {
    type Identity<'a> = (Option<u8>, Option<&'a str>, Option<&'a str>);
    let machine = Machine::new(KALLSYMS);
    let is_one = |kernels: [Identity<'_>; 2]| {
        let mut maps = Maps::with_sources(machine.sources(None));
        let [a, b] = kernels.map(|(id, release, host)| {
            map_kernel(&mut maps, THEN, id.map(|id| vec![id; 20]));
            let space = maps.space(Some(7));
            maps.recorded(&FileInfo { hostname: host.map(str::to_owned), ..info(release) });
            maps.next_recording();
            space
        });
        maps.locate(a, THEN + 0x100) == maps.locate(b, THEN + 0x100)
    };
    let (release, host) = (Some(RELEASE), Some("box"));
    for (a, b, expected) in [
        ((Some(1), release, host), (Some(1), Some("5.0"), None), true),
        ((Some(1), release, host), (Some(2), release, host), false),
        ((Some(1), release, host), (None, release, host), false),
        ((None, release, host), (None, release, host), true),
        ((None, release, host), (None, Some("5.0"), host), false),
        ((None, release, host), (None, release, Some("other")), false),
        ((None, None, host), (None, None, host), false),
    ] {
        assert_eq!(is_one([a, b]), expected, "{a:?} {b:?}");
    }
}

/// A guest's kernel is a different one, and `[vsyscall]` does not belong to the kernel.
#[test]
fn symbols_of_another_kernel() {
    let machine = Machine::new(KALLSYMS);
    let mut maps = Maps::with_sources(machine.sources(None));
    maps.event(&mapping(0, THEN, 0x1000, THEN, "[guest.kernel.kallsyms]_text"));
    maps.event(&mapping(7, 0xffff_ffff_ff60_0000, 0x1000, 0, "[vsyscall]"));
    assert_eq!(locate(&mut maps, 7, THEN + 0x100), Location::Address(THEN + 0x100));
    let at = locate(&mut maps, 7, 0xffff_ffff_ff60_0000);
    let Location::File { file, offset: 0 } = at else { panic!("{at:?}") };
    assert_eq!(maps.path(file), Some("[vsyscall]"));
    assert_eq!(maps.name(at), None);
}

/// The running kernel, if its symbols are readable.
#[test]
fn this_machines_own_list() {
    let Ok(kallsyms) = std::fs::read_to_string("/proc/kallsyms") else {
        skipped("no /proc/kallsyms");
        return;
    };
    let addr = |name: &str| {
        let line = kallsyms.lines().find(|line| line.ends_with(&format!(" T {name}")))?;
        u64::from_str_radix(line.split(' ').next()?, 16).ok().filter(|addr| *addr != 0)
    };
    let (Some(text), Some(schedule)) = (addr("_text"), addr("schedule")) else {
        skipped("/proc/kallsyms shows no addresses");
        return;
    };
    let mut maps = Maps::with_sources(Sources::default());
    let slide = 0x40_0000;
    let map = mapping(u32::MAX, text + slide, 0x400_0000, text + slide, "[kernel.kallsyms]_text");
    maps.event(&map);
    let at = locate(&mut maps, 7, schedule + slide + 2);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    maps.recorded(&info(Some(release.trim())));
    assert_eq!(maps.name(at), named("schedule", 2));
}

/// A recording of ours with kernel branches: we resolve their names again, and perf does too.
#[test]
fn a_recording_of_this_kernel() {
    let mappings = match RunningKernel::default().mappings(1) {
        Ok(mappings) => mappings,
        Err(why) => {
            skipped(why);
            return;
        }
    };
    let kallsyms = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let line = kallsyms.lines().find(|line| line.ends_with(" T schedule")).unwrap();
    let schedule = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    let mut meta = Meta::of_this_machine();
    meta.filter = BranchFilter::ANY | BranchFilter::KERNEL;
    let mut writer = Writer::new(std::fs::File::create(&file).unwrap(), meta).unwrap();
    for mapping in mappings {
        writer.event(&Event::Mmap(Box::new(mapping))).unwrap();
    }
    let entry = BranchEntry { from: schedule + 2, to: schedule, ..BranchEntry::default() };
    writer
        .event(&Event::Sample(Sample {
            arguments: None,
            time: 2,
            pid: 7,
            tid: 7,
            cpu: 0,
            ip: schedule,
            period: 1,
            stack: BranchStack {
                entries: vec![entry],
                integrity: Integrity::UNKNOWN,
                moves: Vec::new(),
            },
        }))
        .unwrap();
    writer.finish_file().unwrap();

    let mut recording = profile::Recording::open(&file).unwrap();
    let mut table = profile::HotTable::count(&mut recording, |_, _| ()).unwrap();
    let branch = table.branches[0].clone();
    assert_eq!(table.maps.name(branch.from_location), named("schedule", 2));
    assert_eq!(table.maps.name(branch.to_location), named("schedule", 0));
    assert_eq!(table.maps.failures().count(), 0);

    let perf =
        tool("perf").args(["script", "-F", "brstacksym", "-i", file.to_str().unwrap()]).output();
    let Ok(perf) = perf else {
        skipped("no perf");
        return;
    };
    let text = String::from_utf8_lossy(&perf.stdout).into_owned();
    let said = String::from_utf8_lossy(&perf.stderr).into_owned();
    assert!(text.contains("schedule+0x2/schedule+0x0/"), "{text}{said}");
}

/// A list as node, the JVM and others write it.
fn write_map(dir: &Path, pid: u32, text: &[u8]) -> PathBuf {
    let path = dir.join(format!("perf-{pid}.map"));
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn generated_code() {
    let machine = Machine::new(KALLSYMS);
    let text = b"7f0000001000 40 LazyCompile:*fib /srv/app.js:3\n\
        0x7f0000001040 0x20 Lvoid Foo::bar(int)\n\
        7f0000002000 0 empty\nnonsense\n\n7f00 zz x\n\
        7f0000001040 30 newer\n";
    write_map(machine.dir.path(), 77, text);
    let mut maps = Maps::with_sources(machine.sources(None));
    maps.event(&mapping(77, 0x7f00_0000_0000, 0x10000, 0, "//anon"));
    maps.event(&mapping(77, 0x40_0000, 0x1000, 0, "/nonexistent/program"));
    maps.event(&mapping(78, 0x7f00_0000_0000, 0x10000, 0, "//anon"));
    let fib = locate(&mut maps, 77, 0x7f00_0000_103f);
    assert_eq!(maps.name(fib), named("LazyCompile:*fib /srv/app.js:3", 0x3f));
    // Code that replaced other code.
    let newer = locate(&mut maps, 77, 0x7f00_0000_1065);
    assert_eq!(maps.name(newer), named("newer", 0x25));
    let behind = locate(&mut maps, 77, 0x7f00_0000_1070);
    assert_eq!(maps.name(behind), None);
    let Location::File { file, .. } = fib else { panic!("{fib:?}") };
    assert_eq!(maps.path(file), Some("[JIT] tid 77"));
    assert_eq!(maps.function(fib).unwrap().offsets, 0x7f00_0000_1000..0x7f00_0000_1040);
    // Addresses in a file belong to the file, and another process has no such list.
    let in_file = locate(&mut maps, 77, 0x40_0010);
    assert!(matches!(in_file, Location::File { offset: 0x10, .. }), "{in_file:?}");
    let others = locate(&mut maps, 78, 0x7f00_0000_103f);
    assert_eq!(others, Location::Address(0x7f00_0000_103f));
    assert_eq!(maps.name(others), None);
}

/// Files that any user can create in /tmp.
#[test]
fn untrustworthy_symbol_lists() {
    let machine = Machine::new(KALLSYMS);
    let dir = machine.dir.path();
    let line = b"7f0000001000 40 evil\n";
    let real = dir.join("real");
    std::fs::write(&real, line).unwrap();
    std::os::unix::fs::symlink(&real, dir.join("perf-1.map")).unwrap();
    std::fs::create_dir(dir.join("perf-2.map")).unwrap();
    let foreign = write_map(dir, 3, line);
    let chowned = std::os::unix::fs::chown(&foreign, Some(12345), None).is_ok();
    let large = write_map(dir, 4, line);
    std::fs::File::options().write(true).open(large).unwrap().set_len(1 << 40).unwrap();
    let mut garbage = vec![0xFFu8; 100_000];
    garbage.extend(b"\n7f0000001000 40 good\n");
    write_map(dir, 5, &garbage);
    let mut maps = Maps::with_sources(machine.sources(None));
    let mut name = |pid| {
        let at = locate(&mut maps, pid, 0x7f00_0000_1000);
        maps.name(at).map(|named| named.name)
    };
    assert_eq!(name(1), None);
    assert_eq!(name(2), None);
    assert_eq!(name(4), None);
    assert_eq!(name(5).as_deref(), Some("good"));
    if chowned {
        assert_eq!(name(3), None);
        assert!(maps.failures().any(|e| matches!(e, SymbolError::Owner(..))));
    } else {
        skipped("files of others, which only root can make");
    }
    assert!(maps.failures().any(|e| matches!(e, SymbolError::TooLarge { .. })));
}
