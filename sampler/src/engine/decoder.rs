//! The consumer of the queues: decodes raw stacks into samples and merges them with other events by
//! time.

use std::collections::BTreeMap;

use lbr_msr::caps::Layout;
use lbr_msr::decode::decode;
use lbr_msr::record::{
    BranchEntry, BranchStack, Event, Head, Label, Lost, Sample, Sink, SourceKnowledge, ThreadMove,
};

use super::summary::Summary;
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
    /// records.
    fn read(&mut self, raw: &RawStack, entries: &mut Vec<BranchEntry>) -> u64 {
        let Reading { layout, knowledge, code } = self;
        entries.clear();
        let (mut unreadable, mut is_oldest_kept) = (0, false);
        for record in raw.entries() {
            is_oldest_kept = false;
            let decoded = match &code.decode {
                Some(decode) => decode(record),
                None => decode(*layout, record),
            };
            let Some(entry) = decoded else {
                unreadable += 1;
                continue;
            };
            let is_kernels = entry.from >> 63 != 0;
            if is_kernels && code.ours.as_ref().is_some_and(|ours| ours.contains(&entry.to)) {
                continue;
            }
            let mut entry = knowledge.mask(entry);
            if let Some(classify) = &mut code.classify
                && let Some(branch_type) = classify(raw.thread.pid, entry.from)
            {
                entry.branch_type = Some(branch_type);
            }
            entries.push(entry);
            is_oldest_kept = true;
        }
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
    /// Only the counters of decoded stacks and branches.
    decoded: Summary,
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
            decoded: Summary::default(),
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
        if let Some(head) = self.owed.remove(&of)
            && integrity.head == Head::Joined
        {
            integrity.head = head;
        }
        let is_joined = integrity.head == Head::Joined;
        let entries = self.wanted(entries);
        // An empty call stack is a sample: the outermost function ran.
        if entries.is_empty() && (branches > 0 || !is_snapshot) {
            if !is_snapshot {
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
                Message::Event(event) => {
                    self.arrived += 1;
                    if let Event::Lost(lost) = &event {
                        self.decoded.lost += lost.stacks;
                    }
                    self.waiting.insert((time_of(&event), self.arrived), event);
                }
                Message::Moves(thread, time, moves) => {
                    self.moves.insert((thread.tid, time), moves);
                }
            }
        }
    }

    fn emit_until(&mut self, time: u64) -> Result<(), S::Error> {
        while let Some(next) = self.waiting.first_entry().filter(|next| next.key().0 <= time) {
            self.sink.event(&next.remove())?;
        }
        Ok(())
    }

    /// After the last event: emits the rest.
    pub(crate) fn finish(mut self) -> Result<Summary, S::Error> {
        self.collect();
        self.emit_until(u64::MAX)?;
        Ok(self.decoded)
    }
}

#[cfg(test)]
#[path = "../../../tests/sampler/unit/engine/decoder.rs"]
mod tests;
