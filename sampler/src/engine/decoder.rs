//! The decoder's side of the queue: raw stacks become samples, in time order
//! with everything else that happened.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::mpsc;

use lbr_msr::caps::Layout;
use lbr_msr::decode::decode_into;
use lbr_msr::record::{
    BranchEntry, BranchStack, Event, Head, Label, Lost, Sample, Sink, SourceKnowledge,
};

use crate::config::Keep;
use crate::drain::RawStack;
use crate::source::Decoding;

/// Stacks and branches of one label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Stacks, the empty ones included.
    pub stacks: u64,
    /// Branches in them.
    pub branches: u64,
}

/// What the decoder counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) labels: BTreeMap<Label, Tally>,
    /// Stacks with branches that do not join to the one before.
    pub(crate) not_joined: u64,
    pub(crate) cut: u64,
    /// Samples that went to the sink.
    pub(crate) samples: u64,
    /// Branches in them.
    pub(crate) branches: u64,
    /// Branches that the software filter left out.
    pub(crate) filtered: u64,
    /// Records that hold no branch although the ring said so.
    pub(crate) unreadable: u64,
    /// Stacks that were announced as lost.
    pub(crate) lost: u64,
}

/// An event that waits for its time.
struct Waiting {
    time: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Waiting {}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
impl Waiting {
    fn key(&self) -> (u64, u64) {
        (self.time, self.order)
    }
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

/// How raw records become branches.
struct Reading {
    layout: Layout,
    knowledge: SourceKnowledge,
    code: Decoding,
}

impl Reading {
    /// Makes `entries` those of a stack. How many of its records hold none.
    ///
    /// Each is written where it is to stand, and not read again: what was written in
    /// pieces and is read as a whole has to be waited for.
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
    /// What the next sample of a thread on a CPU must say of its head, as no
    /// sample was made of a stack before it: it was excluded, or none of its
    /// branches was to be kept and it did not join either.
    owed: BTreeMap<(u32, u32), Head>,
    sink: &'a mut S,
    events: mpsc::Receiver<Event>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    arrived: u64,
    /// Where the entries of the stack before lay.
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
        events: mpsc::Receiver<Event>,
    ) -> Decoder<'a, S> {
        Decoder {
            reading: Reading { layout, knowledge, code },
            keep,
            owed: BTreeMap::new(),
            sink,
            events,
            waiting: BinaryHeap::new(),
            arrived: 0,
            spare: Vec::new(),
            decoded: Decoded::default(),
        }
    }

    /// Takes one stack. What a thread emitted before its branches were drained
    /// is in the channel already, so it goes to the sink first.
    pub(crate) fn stack(&mut self, raw: &RawStack) -> Result<(), S::Error> {
        self.collect();
        self.emit_until(raw.time)?;
        let mut entries = std::mem::take(&mut self.spare);
        self.decoded.unreadable += self.reading.read(raw, &mut entries);
        let mut integrity = raw.integrity;
        if !integrity.label.is_excluded() && !self.is_the_targets(raw.time, &entries)? {
            integrity.label = Label::Mixed;
        }
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
        if branches == 0 {
            return Ok(());
        }
        if let Some(head) = self.owed.remove(&of)
            && integrity.head == Head::Joined
        {
            integrity.head = head;
        }
        let is_snapshot = label == Label::Snapshot;
        let is_joined = integrity.head == Head::Joined;
        let entries = self.wanted(entries);
        let Some(newest) = entries.first() else {
            if !is_snapshot && !is_joined {
                self.owed.insert(of, integrity.head);
            }
            return Ok(());
        };
        self.decoded.not_joined += u64::from(!is_snapshot && !is_joined);
        let sample = Sample {
            time: raw.time,
            pid: raw.thread.pid,
            tid: raw.thread.tid,
            cpu: raw.cpu,
            ip: newest.to,
            period: if is_joined { branches } else { raw.period },
            arguments: raw.arguments,
            stack: BranchStack { entries, integrity },
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

    /// What the software filter keeps.
    fn wanted(&mut self, mut entries: Vec<BranchEntry>) -> Vec<BranchEntry> {
        let Some(keep) = &mut self.keep else { return entries };
        let before = entries.len();
        entries.retain(keep);
        self.decoded.filtered += (before - entries.len()) as u64;
        entries
    }

    /// Takes what the source and the sampler have sent.
    pub(crate) fn collect(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.arrive(event);
        }
    }

    fn arrive(&mut self, event: Event) {
        self.arrived += 1;
        if let Event::Lost(lost) = &event {
            self.decoded.lost += lost.stacks;
        }
        let waiting = Waiting { time: time_of(&event), order: self.arrived, event };
        self.waiting.push(Reverse(waiting));
    }

    fn emit_until(&mut self, time: u64) -> Result<(), S::Error> {
        while self.waiting.peek().is_some_and(|Reverse(next)| next.time <= time) {
            if let Some(Reverse(next)) = self.waiting.pop() {
                self.sink.event(&next.event)?;
            }
        }
        Ok(())
    }

    /// Everything has been sent: emits what is left.
    pub(crate) fn finish(mut self) -> Result<Decoded, S::Error> {
        self.collect();
        self.emit_until(u64::MAX)?;
        Ok(self.decoded)
    }
}

#[cfg(test)]
mod tests {
    use lbr_msr::record::RawEntry;

    use super::*;
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

    /// The heads of the samples that a user's branch between and behind these
    /// stacks makes.
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

    #[test]
    fn what_a_stack_of_our_own_branches_says_of_its_head_goes_to_the_next() {
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
