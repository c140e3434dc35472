use super::*;

/// perf_event_open(2), "mmap layout": offset 8 holds lock 2, offset 12 index 3.
const PAGE_OF_3: u64 = 2 | 3 << 32;

#[test]
fn differences_need_an_unchanged_page() {
    // The lower half wraps around; the third counter is inactive.
    let opening = [
        [PAGE_OF_3, 0xFFFF_FFF0, 1, PAGE_OF_3],
        [PAGE_OF_3, 5, 0, PAGE_OF_3],
        [2, 0, 0, 2],
        [0; 4],
    ];
    let mut closing = opening;
    closing[0] = [PAGE_OF_3, 0x10, 2, PAGE_OF_3];
    let found = differences(&[opening, closing]);
    assert_eq!(found, Some([Some(0x20), Some(0), None, None]));
    // The kernel multiplexed one between the readings, or during one.
    closing[1] = [PAGE_OF_3 + 2, 5, 0, PAGE_OF_3 + 2];
    assert_eq!(differences(&[opening, closing]), None);
    closing[1] = opening[1];
    closing[1][3] += 2;
    assert_eq!(differences(&[opening, closing]), None);
}
