use super::{KERNEL, Names, REACH, STRIDE, is_name, is_unknown, slot};

/// A location has one number, and no two names are adjacent.
#[test]
fn each_name_has_its_own_number() {
    let mut names = Names::default();
    let main = names.number(b"main", None, 0x1C).unwrap();
    assert_eq!(names.number(b"main", None, 0x20).unwrap() - main, 4);
    let other = names.number(b"main", Some(b"/usr/bin/x"), 0x1C).unwrap();
    assert_eq!(other - main, STRIDE);
    let far = names.number(b"main", None, REACH).unwrap();
    assert_eq!((slot(main), slot(other), slot(far)), (0, 1, 2));
    let kernel = names.number(b"schedule", Some(b"[kernel.kallsyms]"), 0).unwrap();
    assert!(kernel >= KERNEL && other < KERNEL);
    for number in [main, other, far, kernel] {
        assert!(is_name(number) && !is_unknown(number));
        // Not in the lower or upper half of any x86 address space.
        assert!([47, 56].iter().all(|bit| !matches!((number as i64) >> bit, 0 | -1)));
    }
    let offsets: Vec<u64> = [main, other, far, kernel]
        .iter()
        .map(|number| names.take().unwrap().offset_of(*number).unwrap())
        .collect();
    assert_eq!(offsets, [0x1C, 0x1C, REACH, 0]);
    let first = names.symbols.get(0).unwrap();
    let ends = [REACH - 1, REACH].map(|within| first.offset_of(first.base + within));
    assert_eq!(ends, [Some(REACH - 1), None]);
    assert!(!names.has_new() && names.has(b"main") && !names.has(b"schedule"));
}

/// By perf's names of files; `[uprobes]` is the kernel's for the code of probed instructions.
#[test]
fn code_is_the_kernels_or_a_processs_by_its_file() {
    let of_processes = "[unknown] [vdso] [vsyscall] [uprobes] [heap] [stack] [anon:x] [JIT] \
                        //anon /l/not.kok /l/libx.so";
    let of_kernel = "[kernel.kallsyms] [xfs] /l/xfs.ko /l/xfs.ko.xz /l/xfs.ko.gz /l/xfs.ko.zst \
                     /boot/vmlinux-6.1 bpf_prog_1_x";
    let mut names = Names::default();
    for (files, expected) in [(of_processes, false), (of_kernel, true)] {
        for file in files.split(' ') {
            let number = names.number(b"f", Some(file.as_bytes()), 0).unwrap();
            assert_eq!(number >= KERNEL, expected, "{file}");
        }
    }
}

#[test]
fn unknown_names_are_not_locations() {
    let mut names = Names::default();
    let from = names.unknown(Some(b"[unknown]"), false).unwrap();
    let to = names.unknown(Some(b"[unknown]"), true).unwrap();
    assert!(from < to && is_unknown(from) && is_unknown(to) && is_name(to));
    assert_eq!(names.take().unwrap().name, None);
    assert!([0, 0x40_1000, u64::MAX, 0xFFFF_FFFF_8100_0000].iter().all(|a| !is_name(*a)));
}
