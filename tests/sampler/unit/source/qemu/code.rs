use super::*;

#[test]
fn pages_of_a_segment_and_parts_of_a_mapping() {
    let segment = Segment { address: 0x17e0, offset: 0x7e0, size: 0x510, executable: true };
    assert_eq!((segment.pages(), segment.page()), (Some((0, 0x1000)), 0x1000));
    let longer = Segment { size: 0x821, ..segment };
    assert_eq!(longer.pages(), Some((0, 0x2000)), "one byte on the next page");
    let mapping = Mapping {
        start: 0x1000,
        end: 0x5000,
        prot: 1,
        shared: false,
        pgoff: 0x2000,
        dev: (0, 0),
        ino: 1,
        path: "/program".to_owned(),
    };
    let found = |start, end| {
        let part = part(&mapping, start, end, 7, 8)?;
        assert_eq!((part.pid, part.tid, part.prot), (7, 8, 5), "readable and executable");
        Some((part.addr, part.len, part.pgoff))
    };
    assert_eq!(found(0x2000, 0x3000), Some((0x2000, 0x1000, 0x3000)));
    assert_eq!(found(0, 0x2000), Some((0x1000, 0x1000, 0x2000)));
    assert_eq!(found(0x4000, 0x9000), Some((0x4000, 0x1000, 0x5000)));
    assert_eq!(found(0x5000, 0x6000), None, "it touches its end");
    assert_eq!(found(0, 0x1000), None, "it touches its start");
}

/// A small program of lld: four segments, all of them in page 0 of the file.
#[test]
fn segments_that_share_a_page_of_the_file() {
    let segment = |address, offset, size, executable| Segment { address, offset, size, executable };
    let segments = [
        segment(0, 0, 0x7d4, false),
        segment(0x17e0, 0x7e0, 0x510, true),
        segment(0x2cf0, 0xcf0, 0x1d8, false),
        segment(0x3ec8, 0xec8, 0x58, false),
    ];
    let mapping = |start: u64, end: u64, prot| Mapping {
        start,
        end,
        prot,
        shared: false,
        pgoff: 0,
        dev: (0, 0),
        ino: 1,
        path: "/program".to_owned(),
    };
    let (r, rw) = (1, 3);
    // All but the last have equal permissions here.
    let mapped = [
        mapping(0x40_0000, 0x40_1000, r),
        mapping(0x40_1000, 0x40_2000, r),
        mapping(0x40_2000, 0x40_3000, r),
        mapping(0x40_3000, 0x40_4000, rw),
    ];
    assert_eq!(biases(&segments, &mapped), [0x40_0000]);
    // Twice, the second time without its last part.
    let again = [mapping(0x80_0000, 0x80_1000, r), mapping(0x80_1000, 0x80_2000, r)];
    let both = [&mapped[..], &again[..]].concat();
    assert_eq!(biases(&segments, &both), [0x40_0000]);
    assert_eq!(biases(&segments, &again), [0x80_0000]);
}
