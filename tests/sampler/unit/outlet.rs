use lbr_msr::record::RawEntry;

use super::*;
use crate::gate::Message;
use crate::sync::queue::RingBuffer;

fn stack(tid: u32, branches: usize, label: Label) -> RawStack {
    let mut stack = RawStack::empty(ThreadId { pid: 7, tid }, 3);
    stack.integrity.label = label;
    for _ in 0..branches {
        stack.push(RawEntry { from: 1, to: 2, info: None });
    }
    stack
}

/// An empty stack says nothing, unless something stopped the LBR.
#[test]
fn dropped_stacks_are_announced_thread_by_thread() {
    let (messages, received) = mpsc::channel();
    let (_decoded, is_decoded) = mpsc::channel();
    let shared = Shared::new(Arc::default(), messages, is_decoded);
    let (producer, mut consumer) = RingBuffer::new(1);
    let (ready, _is_ready) = mpsc::channel();
    let reached = Arc::default();
    let mut outlet = Outlet::new(shared, producer, WhenFull::Drop, Arc::clone(&reached), ready);
    for (tid, branches, label, delivered) in [
        (1, 1, Label::Stream, true),
        (1, 0, Label::Stream, true),
        (1, 1, Label::Stream, false),
        (1, 2, Label::Gap, false),
        (2, 1, Label::Stream, false),
        (2, 0, Label::Stopped, false),
        (3, 1, Label::Stream, false),
    ] {
        assert_eq!(outlet.push(&stack(tid, branches, label)), delivered, "{tid} {label:?}");
    }
    assert!(consumer.pop().is_ok_and(|stack| stack.thread.tid == 1));
    assert!(outlet.push(&stack(3, 1, Label::Stream)));
    assert!(!outlet.push(&stack(1, 1, Label::Stream)));
    let report = outlet.end();
    assert_eq!((report.dropped, report.drains), (6, 9));
    assert_eq!(reached.load(Ordering::Acquire), u64::MAX);
    let lost: Vec<_> = received
        .try_iter()
        .map(|message| match message {
            Message::Event(Event::Lost(lost)) => (lost.pid, lost.tid, lost.cpu, lost.stacks),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lost, [(7, 1, 3, 2), (7, 2, 3, 2), (7, 3, 3, 1), (7, 1, 3, 1)]);
}
