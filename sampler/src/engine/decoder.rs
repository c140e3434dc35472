//! The consumer of the queues: decodes raw stacks into samples and merges them with other events by
//! time.

use std::collections::BTreeMap;

use lbr_msr::caps::Layout;
use lbr_msr::decode::decode_into;
use lbr_msr::record::{
    BranchEntry, BranchStack, Event, Head, Label, Lost, Sample, Sink, SourceKnowledge, ThreadMove,
};

use crate::config::Keep;
use crate::drain::RawStack;
use crate::gate::Message;
use crate::source::Decoding;
use crate::sync::mpsc;

/// Number of stacks and branches with one label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Stacks, including empty ones.
    pub stacks: u64,
    /// Branches in them.
    pub branches: u64,
}

/// The decoder's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) labels: BTreeMap<Label, Tally>,
    /// Stacks with branches that do not continue the previous one.
    pub(crate) not_joined: u64,
    pub(crate) cut: u64,
    /// Samples sent to the sink.
    pub(crate) samples: u64,
    /// Branches in them.
    pub(crate) branches: u64,
    /// Branches that the software filter dropped.
    pub(crate) filtered: u64,
    /// Records that do not decode to a branch although their slot was not empty.
    pub(crate) unreadable: u64,
    /// Stacks reported as lost.
    pub(crate) lost: u64,
}

const fn time_of(event: &Event) -> u64 {
    match event {
        Event::Sample(sample) => sample.time,
        Event::Mmap(mmap) => mmap.time,
        Event::Comm(comm) => comm.time,
        Event::Fork(task) | Event::Exit(task) => task.time,
        Event::Lost(lost) => lost.time,
    }
}

/// Decodes raw records into branches.
struct Reading {
    layout: Layout,
    knowledge: SourceKnowledge,
    code: Decoding,
}

impl Reading {
    /// Replaces `entries` with the decoded entries of `raw`. Returns the number of undecodable
    /// records. Entries are decoded in place, because reading back a whole entry right after
    /// storing its fields stalls.
    fn read(&mut self, raw: &RawStack, entries: &mut Vec<BranchEntry>) -> u64 {
        let Reading { layout, knowledge, code } = self;
        entries.resize(raw.entries().len(), BranchEntry::default());
        let (mut kept, mut unreadable) = (0, 0);
        let mut is_oldest_kept = false;
        for record in raw.entries() {
            is_oldest_kept = false;
            let Some(entry) = entries.get_mut(kept) else { break };
            let holds = match &code.decode {
                Some(decode) => decode(record).map(|decoded| *entry = decoded).is_some(),
                None => decode_into(*layout, record, entry),
            };
            if !holds {
                unreadable += 1;
                continue;
            }
            let is_kernels = entry.from >> 63 != 0;
            if is_kernels && code.ours.as_ref().is_some_and(|ours| ours.contains(&entry.to)) {
                continue;
            }
            *entry = knowledge.mask(*entry);
            if let Some(classify) = &mut code.classify
                && let Some(branch_type) = classify(raw.thread.pid, entry.from)
            {
                entry.branch_type = Some(branch_type);
            }
            kept += 1;
            is_oldest_kept = true;
        }
        entries.truncate(kept);
        let measures_nothing = is_oldest_kept && raw.starts_after_thaw;
        if let Some(oldest) = entries.last_mut().filter(|_| measures_nothing) {
            // The counter ran from the thaw, not from a branch.
            oldest.cycles = None;
            oldest.cycles_saturated = None;
        }
        unreadable
    }
}

pub(crate) struct Decoder<'a, S: Sink> {
    reading: Reading,
    keep: Option<Keep>,
    /// The head that a thread's next sample on a CPU must have, because an earlier stack without a
    /// sample (excluded, or empty after filtering) was not joined.
    owed: BTreeMap<(u32, u32), Head>,
    sink: &'a mut S,
    messages: mpsc::Receiver<Message>,
    /// The moves of stacks that are still queued, by thread and time.
    moves: BTreeMap<(u32, u64), Vec<ThreadMove>>,
    /// Events that are held until their time; those of one time in their order of arrival.
    waiting: BTreeMap<(u64, u64), Event>,
    arrived: u64,
    /// The entries vector of the previous stack, for reuse.
    spare: Vec<BranchEntry>,
    decoded: Decoded,
}

impl<'a, S: Sink> Decoder<'a, S> {
    pub(crate) fn new(
        layout: Layout,
        knowledge: SourceKnowledge,
        code: Decoding,
        keep: Option<Keep>,
        sink: &'a mut S,
        messages: mpsc::Receiver<Message>,
    ) -> Decoder<'a, S> {
        Decoder {
            reading: Reading { layout, knowledge, code },
            keep,
            owed: BTreeMap::new(),
            sink,
            messages,
            moves: BTreeMap::new(),
            waiting: BTreeMap::new(),
            arrived: 0,
            spare: Vec::new(),
            decoded: Decoded::default(),
        }
    }

    /// Decodes one stack. Events that the thread emitted before the drain are already in the
    /// channel, so they go to the sink first.
    pub(crate) fn stack(&mut self, raw: &RawStack) -> Result<(), S::Error> {
        self.collect();
        self.emit_until(raw.time)?;
        let mut entries = std::mem::take(&mut self.spare);
        self.decoded.unreadable += self.reading.read(raw, &mut entries);
        let mut integrity = raw.integrity;
        if !integrity.label.is_excluded() && !self.is_the_targets(raw.time, &entries)? {
            integrity.label = Label::Mixed;
        }
        let moves = self.moves.remove(&(raw.thread.tid, raw.time));
        // Their positions count all entries.
        let moves = moves.filter(|_| self.keep.is_none()).unwrap_or_default();
        let of = (raw.cpu, raw.thread.tid);
        let label = integrity.label;
        let branches = raw.entries().len() as u64;
        let tally = self.decoded.labels.entry(label).or_default();
        tally.stacks += 1;
        tally.branches += branches;
        self.decoded.cut += u64::from(integrity.cut);
        if label.is_excluded() {
            self.decoded.lost += 1;
            self.owed.insert(of, Head::Lost);
            return self.sink.event(&Event::Lost(Lost {
                time: raw.time,
                pid: raw.thread.pid,
                tid: raw.thread.tid,
                cpu: raw.cpu,
                stacks: 1,
                label: Some(label),
            }));
        }
        let is_snapshot = label == Label::Snapshot;
        // An empty call stack is a sample: the outermost function ran.
        if branches == 0 && !is_snapshot {
            return Ok(());
        }
        if let Some(head) = self.owed.remove(&of)
            && integrity.head == Head::Joined
        {
            integrity.head = head;
        }
        let is_joined = integrity.head == Head::Joined;
        let entries = self.wanted(entries);
        if entries.is_empty() && (branches > 0 || !is_snapshot) {
            if !is_snapshot && !is_joined {
                self.owed.insert(of, integrity.head);
            }
            return Ok(());
        }
        self.decoded.not_joined += u64::from(!is_snapshot && !is_joined);
        let sample = Sample {
            time: raw.time,
            pid: raw.thread.pid,
            tid: raw.thread.tid,
            cpu: raw.cpu,
            ip: entries.first().map_or(0, |newest| newest.to),
            period: if is_joined { branches } else { raw.period },
            arguments: raw.arguments,
            stack: BranchStack { entries, integrity, moves },
        };
        self.decoded.samples += 1;
        self.decoded.branches += sample.stack.entries.len() as u64;
        let event = Event::Sample(sample);
        let taken = self.sink.event(&event);
        if let Event::Sample(sample) = event {
            self.spare = sample.stack.entries;
        }
        taken
    }

    fn is_the_targets(&mut self, time: u64, entries: &[BranchEntry]) -> Result<bool, S::Error> {
        let Some(owns) = &mut self.reading.code.owns else { return Ok(true) };
        let mut events = Vec::new();
        let is_owned = owns(time, entries, &mut events);
        events.iter().try_for_each(|event| self.sink.event(event))?;
        Ok(is_owned)
    }

    /// The entries that the software filter keeps.
    fn wanted(&mut self, mut entries: Vec<BranchEntry>) -> Vec<BranchEntry> {
        let Some(keep) = &mut self.keep else { return entries };
        let before = entries.len();
        entries.retain(keep);
        self.decoded.filtered += (before - entries.len()) as u64;
        entries
    }

    /// Receives pending events from the source and the samplers.
    pub(crate) fn collect(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                Message::Event(event) => self.arrive(event),
                Message::Moves(thread, time, moves) => {
                    self.moves.insert((thread.tid, time), moves);
                }
            }
        }
    }

    fn arrive(&mut self, event: Event) {
        self.arrived += 1;
        if let Event::Lost(lost) = &event {
            self.decoded.lost += lost.stacks;
        }
        self.waiting.insert((time_of(&event), self.arrived), event);
    }

    fn emit_until(&mut self, time: u64) -> Result<(), S::Error> {
        while let Some(next) = self.waiting.first_entry().filter(|next| next.key().0 <= time) {
            self.sink.event(&next.remove())?;
        }
        Ok(())
    }

    /// After the last event: emits the rest.
    pub(crate) fn finish(mut self) -> Result<Decoded, S::Error> {
        self.collect();
        self.emit_until(u64::MAX)?;
        Ok(self.decoded)
    }
}

#[cfg(test)]
mod tests {
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

    fn samples(stacks: &[RawStack]) -> (Vec<Sample>, Decoded) {
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
        let [known, Event::Sample(sample), looked, lost] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!((known, sample.time, looked), (&comm(5), 5, &comm(6)));
        let label = Some(Label::Mixed);
        let wanted = Lost { time: 6, pid: 7, tid: 9, cpu: 1, stacks: 1, label };
        assert_eq!(lost, &Event::Lost(wanted));
    }

    /// The branches that a filter in software drops ran as well; a call stack without any of its
    /// frames is no sample, unlike one that had none.
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
}
