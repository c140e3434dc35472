use super::*;

#[test]
fn lines_of_proc_maps() {
    let line = "7f0012340000-7f0012345000 r-xs 0001a000 fe:01 4711                       /tmp/a b (deleted)";
    let wanted = Mapping {
        start: 0x7f00_1234_0000,
        end: 0x7f00_1234_5000,
        prot: 5,
        shared: true,
        pgoff: 0x1a000,
        dev: (0xfe, 1),
        ino: 4711,
        path: "/tmp/a b (deleted)".to_owned(),
    };
    assert_eq!(parse(line), Some(wanted));
    let anonymous = parse("00400000-00401000 rw-p 00000000 00:00 0 ").expect("a mapping");
    assert_eq!((anonymous.path.as_str(), anonymous.prot, anonymous.shared), ("", 3, false));
    assert_eq!(parse("no mapping"), None);
}

fn two_pages(permissions: &str) -> Mapping {
    parse(&format!("1000-3000 {permissions} 00005000 00:00 1 /a")).expect("a mapping")
}

#[test]
fn only_private_memory_that_cannot_be_written_is_fixed() {
    for (permissions, fixed, executable) in [
        ("r-xp", true, true),
        ("--xp", true, true),
        ("r--p", true, false),
        ("r-xs", false, true),
        ("rwxp", false, true),
        ("rw-s", false, false),
    ] {
        let mapping = two_pages(permissions);
        let found = (mapping.is_fixed(), mapping.is_executable());
        assert_eq!(found, (fixed, executable), "{permissions}");
    }
}

#[test]
fn a_byte_of_a_file_is_mapped_at_one_address() {
    let mapping = two_pages("r-xp");
    assert!(mapping.has(0x1000, 0x5000) && mapping.has(0x2FFF, 0x6FFF));
    assert!(!mapping.has(0x3000, 0x7000), "the end is not part of it");
    assert!(!mapping.has(0x0FFF, 0x4FFF), "before its start");
    assert!(!mapping.has(0x1000, 0) && !mapping.has(0x1001, 0x5000));
}

/// mmap(2) on Linux: MAP_SHARED is 1, MAP_PRIVATE 2.
#[test]
fn a_mapping_is_an_event() {
    let id = ThreadId { pid: 7, tid: 8 };
    for (permissions, flags) in [("r-xs", 1), ("r-xp", 2)] {
        let event = two_pages(permissions).event(9, id);
        assert_eq!((event.time, event.pid, event.tid), (9, 7, 8));
        assert_eq!((event.addr, event.len, event.pgoff), (0x1000, 0x2000, 0x5000));
        assert_eq!((event.prot, event.flags), (5, flags), "{permissions}");
    }
}
