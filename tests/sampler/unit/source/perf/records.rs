use perf_event::{Builder, SampleFlag, events::Software};

use super::*;

/// A format whose records end in TID, TIME and CPU.
fn reading(call_stack: bool) -> Reading {
    let mut builder = Builder::new(Software::DUMMY);
    builder
        .sample(SampleFlag::TID)
        .sample(SampleFlag::TIME)
        .sample(SampleFlag::CPU)
        .sample_id_all(true);
    Reading { config: (*builder.attrs()).into(), depth: 2, call_stack }
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Thread 8 of process 7 at 99 ns on CPU 3.
const TRAILER: [u64; 3] = [7 | 8 << 32, 99, 3];

#[test]
fn a_sample_newest_branch_first() {
    let entries = [0x30, 0x40, 0x12, 0, 0, 0, 0x10, 0x20, 1];
    let body = bytes(&[&TRAILER[..], &[1000, 3], &entries].concat());
    let DecodedRecord::Stack(stack) = reading(false).read(9, 2, &body) else { panic!("no stack") };
    assert_eq!((stack.thread.pid, stack.thread.tid, stack.time, stack.cpu), (7, 8, 99, 3));
    assert_eq!(stack.period, 1000);
    let found: Vec<_> = stack.entries().iter().map(|e| (e.from, e.to, e.info)).collect();
    assert_eq!(found, [(0x30, 0x40, Some(0x12)), (0x10, 0x20, Some(1))]);
    assert_eq!(stack.integrity.label, Label::Stream);
    let DecodedRecord::Stack(stack) = reading(true).read(9, 2, &body) else { panic!("no stack") };
    assert!(stack.integrity.label == Label::Snapshot && stack.integrity.truncated);
    // A call of a null pointer, in a stack with room for another.
    let null = bytes(&[&TRAILER[..], &[1000, 1, 0x50, 0, 1]].concat());
    let DecodedRecord::Stack(stack) = reading(true).read(9, 2, &null) else { panic!("no stack") };
    assert_eq!(stack.entries(), [RawEntry { from: 0x50, to: 0, info: Some(1) }]);
    assert!(!stack.integrity.truncated);
    // More entries than bytes.
    let cut = bytes(&[&TRAILER[..], &[1000, 30, 1, 2, 3, 4]].concat());
    let DecodedRecord::Stack(stack) = reading(false).read(9, 2, &cut) else { panic!("no stack") };
    assert_eq!(stack.entries().len(), 1);
    assert!(matches!(reading(false).read(9, 2, &[0; 12]), DecodedRecord::Nothing));
}

#[test]
fn mapping_events_are_read() {
    let mut body = bytes(&[7 | 8 << 32, 0x40_0000, 0x1000, 0, 8 << 32 | 1, 55, 66, 5 | 2 << 32]);
    body.extend_from_slice(b"/bin/a\xff\0");
    body.extend_from_slice(&bytes(&TRAILER));
    let DecodedRecord::Event(Event::Mmap(map)) = reading(false).read(10, 2, &body) else {
        panic!("no mapping")
    };
    assert_eq!((map.time, map.pid, map.tid, map.addr, map.len), (99, 7, 8, 0x40_0000, 0x1000));
    assert_eq!((map.dev, map.ino, map.ino_generation), ((1, 8), 55, 66));
    assert_eq!((map.prot, map.flags), (5, 2));
    assert_eq!(map.path, "/bin/a\\xff");
    let mut body = bytes(&[7 | 8 << 32]);
    body.extend_from_slice(b"cat\0\0\0\0\0");
    body.extend_from_slice(&bytes(&TRAILER));
    // PERF_RECORD_MISC_COMM_EXEC, and user mode.
    for (misc, exec) in [(0x2000, true), (2, false)] {
        let comm = Comm { time: 99, pid: 7, tid: 8, comm: "cat".to_owned(), exec };
        let found = reading(false).read(3, misc, &body);
        assert!(
            matches!(&found, DecodedRecord::Event(Event::Comm(found)) if *found == comm),
            "{found:?}"
        );
    }
    // pid, ppid, tid, ptid, time: linux/perf_event.h.
    let body = bytes(&[&[7 | 1 << 32, 8 | 2 << 32, 42][..], &TRAILER].concat());
    let task = Task { time: 42, pid: 7, tid: 8, ppid: 1, ptid: 2 };
    let found = reading(false).read(4, 0, &body);
    assert!(
        matches!(found, DecodedRecord::Event(Event::Exit(found)) if found == task),
        "{found:?}"
    );
    let found = reading(false).read(7, 0, &body);
    assert!(
        matches!(found, DecodedRecord::Event(Event::Fork(found)) if found == task),
        "{found:?}"
    );
}

#[test]
fn what_is_missing() {
    let lost = Lost { time: 99, pid: 7, tid: 8, cpu: 3, stacks: 12, label: None };
    let body = bytes(&[&[1, 12][..], &TRAILER].concat());
    let found = reading(false).read(2, 0, &body);
    assert!(
        matches!(&found, DecodedRecord::Event(Event::Lost(found)) if *found == lost),
        "{found:?}"
    );
    let body = bytes(&[&[12][..], &TRAILER].concat());
    let found = reading(false).read(13, 0, &body);
    assert!(
        matches!(&found, DecodedRecord::Event(Event::Lost(found)) if *found == lost),
        "{found:?}"
    );
    let body = bytes(&[&[1, 2, 3][..], &TRAILER].concat());
    assert!(matches!(reading(false).read(5, 0, &body), DecodedRecord::Throttled));
    assert!(matches!(reading(false).read(6, 0, &body), DecodedRecord::Nothing));
    assert!(matches!(reading(false).read(4711, 0, &body), DecodedRecord::Nothing));
}
