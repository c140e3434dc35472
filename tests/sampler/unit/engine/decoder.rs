use lbr_msr::LbrFormat;
use lbr_msr::record::{Comm, RawEntry};

use super::*;
use crate::config::Owns;
use crate::target::ThreadId;

const USER: u64 = 0x40_1000;
const KERNEL: u64 = 0xFFFF_FFFF_8100_0000;
const OURS: u64 = 0x7000;

fn stack(from: u64, to: u64, head: Head, label: Label) -> RawStack {
    let mut stack = RawStack::empty(ThreadId { pid: 7, tid: 7 }, 1);
    stack.integrity.head = head;
    stack.integrity.label = label;
    stack.push(RawEntry { from, to, info: None });
    stack
}

/// The heads of the samples of a user branch between and after these stacks.
fn heads(before: &[(u64, Head, Label)]) -> (Vec<Head>, u64) {
    let mut events: Vec<Event> = Vec::new();
    let (_sender, received) = mpsc::channel();
    let code = Decoding { ours: Some(OURS..OURS + 16), ..Decoding::default() };
    let knowledge = SourceKnowledge::HARDWARE;
    let mut decoder = Decoder::new(Layout::Plain, knowledge, code, None, &mut events, received);
    for (to, head, label) in before {
        let from = if *to == OURS { KERNEL } else { USER };
        decoder.stack(&stack(from, *to, *head, *label)).expect("a vector takes all");
    }
    let not_joined = decoder.decoded.not_joined;
    let heads = events.iter().filter_map(|event| match event {
        Event::Sample(sample) => Some(sample.stack.integrity.head),
        _ => None,
    });
    (heads.collect(), not_joined)
}

fn samples(stacks: &[RawStack]) -> (Vec<Sample>, Summary) {
    let mut events: Vec<Event> = Vec::new();
    let (_sender, received) = mpsc::channel();
    let code = Decoding { ours: Some(OURS..OURS + 16), ..Decoding::default() };
    let knowledge = SourceKnowledge::HARDWARE;
    let mut decoder = Decoder::new(Layout::Plain, knowledge, code, None, &mut events, received);
    for stack in stacks {
        decoder.stack(stack).expect("a vector takes all");
    }
    let decoded = decoder.finish().expect("a vector takes all");
    let samples = events.into_iter().filter_map(|event| match event {
        Event::Sample(sample) => Some(sample),
        _ => None,
    });
    (samples.collect(), decoded)
}

/// The first record after a thaw counts from there; a dropped record before a kept one was the
/// first.
#[test]
fn only_the_first_record_after_a_thaw_lacks_cycles() {
    let layout = Layout::Legacy { format: LbrFormat::INFO, tsx: false };
    let cycles = |oldest: RawEntry| {
        let mut stack = stack(USER, 0x10, Head::Joined, Label::Stream);
        stack.starts_after_thaw = true;
        stack.push(RawEntry { from: USER, to: 0x20, info: Some(7) });
        stack.push(oldest);
        let mut entries = Vec::new();
        let code = Decoding { ours: Some(OURS..OURS + 16), ..Decoding::default() };
        let mut reading = Reading { layout, knowledge: SourceKnowledge::HARDWARE, code };
        reading.read(&stack, &mut entries);
        entries.iter().map(|entry| entry.cycles).collect::<Vec<_>>()
    };
    let kept = RawEntry { from: USER, to: 0x30, info: Some(9) };
    assert_eq!(cycles(kept)[1..], [Some(7), None]);
    let dropped = RawEntry { from: KERNEL, to: OURS, info: Some(9) };
    assert_eq!(cycles(dropped)[1..], [Some(7)]);
}

/// perf's IP is where the newest branch went; the branches of a stack that joins the one
/// before are all that ran, so they are its period.
#[test]
fn ip_and_period_of_a_sample() {
    let mut joined = stack(USER, 0x10, Head::Joined, Label::Stream);
    joined.push(RawEntry { from: USER, to: 0x20, info: None });
    joined.period = 1000;
    let mut alone = joined;
    alone.integrity.head = Head::Lost;
    let (samples, _) = samples(&[joined, alone]);
    let found: Vec<_> = samples.iter().map(|sample| (sample.ip, sample.period)).collect();
    assert_eq!(found, [(0x10, 2), (0x10, 1000)]);
}

#[test]
fn empty_records_are_counted_and_only_the_kernels_jumps_to_us_are_ours() {
    let mut raw = stack(USER, OURS, Head::Joined, Label::Stream);
    for (from, to) in [(0, 0x10), (KERNEL, OURS), (0, 0x20), (KERNEL, USER), (USER, KERNEL)] {
        raw.push(RawEntry { from, to, info: None });
    }
    let (samples, decoded) = samples(&[raw]);
    assert_eq!(decoded.unreadable, 2);
    let kept: Vec<_> =
        samples[0].stack.entries.iter().map(|entry| (entry.from, entry.to)).collect();
    assert_eq!(kept, [(USER, OURS), (KERNEL, USER), (USER, KERNEL)]);
}

#[test]
fn a_stack_that_is_left_out_breaks_only_the_next_of_its_cpu_and_thread() {
    let on = |cpu, tid, label| {
        let mut stack = stack(USER, USER, Head::Joined, label);
        (stack.cpu, stack.thread.tid) = (cpu, tid);
        stack
    };
    let (samples, decoded) = samples(&[
        on(1, 7, Label::Torn),
        on(2, 7, Label::Stream),
        on(1, 8, Label::Stream),
        on(1, 7, Label::Stream),
        on(1, 7, Label::Stream),
    ]);
    let heads: Vec<_> = samples.iter().map(|sample| sample.stack.integrity.head).collect();
    assert_eq!(heads, [Head::Joined, Head::Joined, Head::Lost, Head::Joined]);
    assert_eq!((decoded.lost, decoded.not_joined, decoded.cut), (1, 1, 5));
}

fn comm(time: u64) -> Event {
    Event::Comm(Comm { time, pid: 7, tid: 7, comm: "a".to_owned(), exec: false })
}

/// The kernel's events have its clock's time, and so may a stack.
#[test]
fn an_event_of_the_time_of_a_stack_comes_first() {
    let mut events: Vec<Event> = Vec::new();
    let (sender, received) = mpsc::channel();
    let (code, knowledge) = (Decoding::default(), SourceKnowledge::HARDWARE);
    let mut decoder = Decoder::new(Layout::Plain, knowledge, code, None, &mut events, received);
    for time in [6, 5] {
        sender.send(Message::Event(comm(time))).expect("the decoder lives");
    }
    let mut raw = stack(USER, USER, Head::Joined, Label::Stream);
    raw.time = 5;
    decoder.stack(&raw).expect("a vector takes all");
    decoder.finish().expect("a vector takes all");
    assert!(matches!(events[..], [Event::Comm(_), Event::Sample(_), Event::Comm(_)]));
    assert_eq!(events.iter().map(time_of).collect::<Vec<_>>(), [5, 5, 6]);
}

/// A branch outside of the known mappings may be in a new one, which precedes the sample.
#[test]
fn the_targets_new_mappings_precede_its_sample_and_other_stacks_are_lost() {
    let mut events: Vec<Event> = Vec::new();
    let (_sender, received) = mpsc::channel();
    let owns: Owns = Box::new(|time, entries, events| {
        events.push(comm(time));
        entries.iter().all(|entry| entry.from == USER)
    });
    let code = Decoding { owns: Some(owns), ..Decoding::default() };
    let knowledge = SourceKnowledge::HARDWARE;
    let mut decoder = Decoder::new(Layout::Plain, knowledge, code, None, &mut events, received);
    for (time, from) in [(5, USER), (6, USER + 1)] {
        let mut raw = stack(from, USER, Head::Joined, Label::Stream);
        (raw.time, raw.thread.tid) = (time, 9);
        decoder.stack(&raw).expect("a vector takes all");
    }
    decoder.finish().expect("a vector takes all");
    let [known, Event::Sample(sample), looked, lost] = &events[..] else { panic!("{events:?}") };
    assert_eq!((known, sample.time, looked), (&comm(5), 5, &comm(6)));
    let label = Some(Label::Mixed);
    let wanted = Lost { time: 6, pid: 7, tid: 9, cpu: 1, stacks: 1, label };
    assert_eq!(lost, &Event::Lost(wanted));
}

/// The branches that a filter in software drops ran as well; a call stack that loses all of
/// its frames is omitted, one that had none is a sample.
#[test]
fn a_filter_in_software_changes_no_period_and_empties_no_sample() {
    let mut events: Vec<Event> = Vec::new();
    let (_sender, received) = mpsc::channel();
    let keep: Keep = Box::new(|entry| entry.to == 0x10);
    let (code, knowledge) = (Decoding::default(), SourceKnowledge::HARDWARE);
    let mut decoder =
        Decoder::new(Layout::Plain, knowledge, code, Some(keep), &mut events, received);
    let mut joined = stack(USER, 0x20, Head::Joined, Label::Stream);
    joined.push(RawEntry { from: USER, to: 0x10, info: None });
    let frames = stack(USER, 0x20, Head::Unknown, Label::Snapshot);
    for raw in [joined, frames, joined] {
        decoder.stack(&raw).expect("a vector takes all");
    }
    let decoded = decoder.finish().expect("a vector takes all");
    assert_eq!((decoded.samples, decoded.branches, decoded.filtered), (2, 2, 3));
    for event in &events {
        let Event::Sample(sample) = event else { panic!("{event:?}") };
        assert_eq!((sample.period, sample.ip, sample.stack.entries.len()), (2, 0x10, 1));
        assert_eq!(sample.stack.integrity.head, Head::Joined);
    }
}

/// An empty call stack is a sample, because the outermost function ran.
#[test]
fn only_a_snapshot_may_be_empty() {
    let empty = |label| {
        let mut stack = RawStack::empty(ThreadId { pid: 7, tid: 7 }, 1);
        stack.integrity.label = label;
        stack
    };
    let (samples, decoded) = samples(&[empty(Label::Stream), empty(Label::Snapshot)]);
    let labels: Vec<_> = samples.iter().map(|sample| sample.stack.integrity.label).collect();
    assert_eq!(labels, [Label::Snapshot]);
    assert_eq!((decoded.samples, decoded.not_joined), (1, 0));
}

#[test]
fn the_head_of_a_stack_of_lbrs_own_branches_passes_to_the_next() {
    use Head::{Joined, Lost, Unknown};
    let stream = |to, head| (to, head, Label::Stream);
    let user = stream(USER, Joined);
    assert_eq!(heads(&[user, stream(OURS, Joined), user]), (vec![Joined, Joined], 0));
    let unsure = stream(OURS, Unknown);
    assert_eq!(heads(&[user, unsure, user, user]), (vec![Joined, Unknown, Joined], 1));
    let twice = [user, unsure, stream(OURS, Joined), user];
    assert_eq!(heads(&twice), (vec![Joined, Unknown], 1));
    let gap = (OURS, Lost, Label::Gap);
    assert_eq!(heads(&[user, gap, user]), (vec![Joined, Lost], 1));
}
