use super::Ordered;

fn text(ordered: Ordered<Vec<u8>>) -> String {
    String::from_utf8(ordered.out).unwrap()
}

/// A round is held until the next but one starts; equal times keep the order of the file.
#[test]
fn two_rounds_wait() {
    let mut ordered = Ordered::new(Vec::new());
    for (time, round, line) in [(10, 0, "a"), (30, 0, "c"), (20, 0, "b"), (25, 1, "B")] {
        ordered.line(time, round, line.as_bytes()).unwrap();
    }
    assert_eq!(ordered.out, b"");
    ordered.line(30, 1, b"C").unwrap();
    ordered.line(50, 2, b"e").unwrap();
    assert_eq!(ordered.out, b"abBcC");
    ordered.line(40, 2, b"d").unwrap();
    ordered.flush().unwrap();
    assert_eq!(ordered.late, 0);
    assert_eq!(text(ordered), "abBcCde");
}

/// Without ends of rounds the buffer is bounded: it prints early, and counts samples that come
/// too late.
#[test]
fn waiting_has_a_limit() {
    let mut ordered = Ordered { most: 2, ..Ordered::new(Vec::new()) };
    for (time, line) in [(3, "c"), (1, "a"), (4, "d"), (2, "b"), (0, "-")] {
        ordered.line(time, 0, line.as_bytes()).unwrap();
    }
    ordered.flush().unwrap();
    assert_eq!(ordered.late, 1);
    assert_eq!(text(ordered), "ab-cd");
}
