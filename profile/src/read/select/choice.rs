//! A selection at work on one recording.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use lbr_msr::record::{Event, Head};

use super::{Comms, Names, SelectError, Selection, events};
use crate::read::stack::SampleHead;
use crate::read::stack::Thread;

/// What a sample is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// Its event.
    Event,
    /// The name of its thread.
    Comm,
    /// Its process.
    Pid,
    /// Its thread.
    Tid,
    /// Its CPU.
    Cpu,
    /// Its time.
    Time,
}

impl Field {
    /// The word for it: perf's name of the option.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Field::Event => "event",
            Field::Comm => "comm",
            Field::Pid => "pid",
            Field::Tid => "tid",
            Field::Cpu => "cpu",
            Field::Time => "time",
        }
    }
}

/// Why a sample is not in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It has another value.
    Other,
    /// The recording does not say its value.
    Unsaid,
}

/// What a selection left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Samples, aggregated ones counted as often as they stand for.
    pub samples: u64,
    /// The same by the first list that they are not in, and why.
    pub by: BTreeMap<(Field, Why), u64>,
    /// Stacks that our recorder lost of other tasks than those selected.
    pub lost: u64,
    /// Changes of threads' names that are not kept in memory: samples behind
    /// them were taken for those of the name before.
    pub names_unkept: u64,
    /// What is left of a recording that had every taken branch does not have
    /// every one: see [`Quality::is_complete`](crate::clean::quality::Quality::is_complete).
    pub cuts: bool,
}

impl LeftOut {
    /// Takes in what was left out of another recording.
    pub fn add(&mut self, other: &LeftOut) {
        self.samples = self.samples.saturating_add(other.samples);
        for (why, count) in &other.by {
            let sum = self.by.entry(*why).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.lost = self.lost.saturating_add(other.lost);
        self.names_unkept = self.names_unkept.saturating_add(other.names_unkept);
        self.cuts |= other.cuts;
    }
}

/// Where the name of a sample's thread stands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CommOf<'a> {
    /// Beside the sample, if at all.
    Sample(Option<&'a str>),
    /// In records of their own.
    Thread,
}

/// What a recording says behind the samples that it is about.
#[derive(Debug, Default)]
pub(crate) struct FirstPass {
    /// Times of the first and the last sample.
    pub(crate) whole: Option<(u64, u64)>,
    /// Names of threads; `None` where they have to come in time.
    pub(crate) comms: Option<Comms>,
    /// Names of events.
    pub(crate) events: Vec<Option<String>>,
}

/// What a thread's samples went through.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    kept: bool,
    left: bool,
    /// The last one was left out: the next one joins to nothing that counts.
    broken: bool,
}

/// A selection and what it did so far.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) selection: Arc<Selection>,
    spans: Vec<(u64, u64)>,
    /// Names of the events that were looked at.
    looked: Vec<String>,
    /// By event.
    events: Vec<bool>,
    known_events: Vec<bool>,
    /// Names of events that the recording tells behind its samples.
    early: Vec<Option<String>>,
    comms: Comms,
    /// Comms are of the whole recording, not of what was read so far.
    comms_whole: bool,
    met: HashMap<String, u64>,
    left: LeftOut,
    threads: HashMap<Thread, Part>,
}

/// Names of threads that are kept for those who ask for others.
const MOST_MET: usize = 1 << 12;

impl Choice {
    /// Begins.
    pub(crate) fn new(selection: Arc<Selection>, told: FirstPass) -> Result<Choice, SelectError> {
        let FirstPass { whole, comms, events: early } = told;
        let spans: Option<Vec<(u64, u64)>> =
            selection.times.iter().map(|times| times.resolve(whole)).collect();
        Ok(Choice {
            spans: spans.ok_or(SelectError::NoTimes)?,
            looked: Vec::new(),
            events: Vec::new(),
            known_events: vec![false; selection.events.len()],
            early,
            comms_whole: comms.is_some(),
            comms: comms.unwrap_or_default(),
            met: HashMap::new(),
            left: LeftOut::default(),
            threads: HashMap::new(),
            selection,
        })
    }

    /// How many events were looked at.
    pub(crate) fn looked(&self) -> usize {
        self.looked.len()
    }

    /// Looks at all events by name.
    pub(crate) fn look(&mut self, names: Vec<String>) {
        self.looked = names;
        for (name, early) in self.looked.iter_mut().zip(&self.early) {
            if let Some(early) = early {
                name.clone_from(early);
            }
        }
        let meant = events::meant(&self.selection.events, &self.looked);
        self.known_events = meant.iter().map(|events| !events.is_empty()).collect();
        self.events = vec![false; self.looked.len()];
        for event in meant.into_iter().flatten() {
            self.events.get_mut(event).into_iter().for_each(|is| *is = true);
        }
    }

    /// Takes in what is no sample. `false` where it is a loss of others.
    pub(crate) fn event(&mut self, event: &Event) -> bool {
        let named = !self.selection.comms.is_empty();
        if named && !self.comms_whole {
            self.comms.event(event);
        }
        match event {
            // Who knows whose stacks are missing? Only our recorder says.
            Event::Lost(lost) if lost.label.is_some() => {
                let Selection { comms, pids, tids, .. } = &*self.selection;
                let comm = || self.comms.at(lost.tid, Some(lost.time));
                let others = (named && !comm().is_some_and(|comm| has(comms, comm)))
                    || !pids.is_empty() && !pids.contains(&lost.pid)
                    || !tids.is_empty() && !tids.contains(&lost.tid);
                if others {
                    self.left.lost = self.left.lost.saturating_add(lost.stacks);
                }
                !others
            }
            Event::Exit(task) => {
                // The next thread of this number begins anew.
                let thread = (Some(task.pid), Some(task.tid));
                self.threads.get_mut(&thread).into_iter().for_each(|part| part.broken = false);
                true
            }
            _ => true,
        }
    }

    /// Whether a sample counts. One that does and follows on one of its thread
    /// that does not, joins to nothing: its head then says so.
    pub(crate) fn takes(&mut self, head: &mut SampleHead, said: CommOf<'_>) -> bool {
        let why = self.why(head, said);
        let part = self.threads.entry((head.pid, head.tid)).or_default();
        let Some(why) = why else {
            part.kept = true;
            if std::mem::take(&mut part.broken) && head.integrity.head == Head::Joined {
                head.integrity.head = Head::Unknown;
            }
            return true;
        };
        part.left = true;
        part.broken = true;
        self.left.samples = self.left.samples.saturating_add(head.weight);
        let sum = self.left.by.entry(why).or_default();
        *sum = sum.saturating_add(head.weight);
        false
    }

    /// The first list that a sample is not in.
    fn why(&mut self, head: &SampleHead, said: CommOf<'_>) -> Option<(Field, Why)> {
        let Selection { events, comms, pids, tids, cpus, .. } = &*self.selection;
        if !events.is_empty() {
            // Text without a column of events: nobody says.
            let name = self.looked.get(head.event).filter(|name| !name.is_empty());
            let is = self.events.get(head.event).copied().unwrap_or(false);
            match name {
                _ if is => {}
                Some(_) => return Some((Field::Event, Why::Other)),
                None => return Some((Field::Event, Why::Unsaid)),
            }
        }
        if !comms.is_empty() {
            // perf calls a thread without a name by its number.
            let number = || head.tid.map(|tid| format!(":{}", tid as i32));
            let named = match said {
                CommOf::Sample(comm) => comm,
                CommOf::Thread => head.tid.and_then(|tid| self.comms.at(tid, head.time)),
            };
            let is = match named {
                Some(comm) => has(comms, comm),
                None => number().is_some_and(|number| has(comms, &number)),
            };
            if let Some(comm) = named {
                let room = self.met.len() < MOST_MET;
                match self.met.get_mut(comm) {
                    Some(met) => *met = met.saturating_add(head.weight),
                    None if room => {
                        self.met.insert(comm.to_owned(), head.weight);
                    }
                    None => {}
                }
            }
            if !is {
                let why = if named.is_some() { Why::Other } else { Why::Unsaid };
                return Some((Field::Comm, why));
            }
        }
        let numbers = [
            (Field::Pid, pids, head.pid),
            (Field::Tid, tids, head.tid),
            (Field::Cpu, cpus, head.cpu),
        ];
        for (field, list, value) in numbers {
            match value {
                _ if list.is_empty() => {}
                Some(value) if list.contains(&value) => {}
                Some(_) => return Some((field, Why::Other)),
                None => return Some((field, Why::Unsaid)),
            }
        }
        if !self.spans.is_empty() {
            let inside = |time: u64| self.spans.iter().any(|(a, b)| (*a..=*b).contains(&time));
            match head.time {
                Some(time) if inside(time) => {}
                Some(_) => return Some((Field::Time, Why::Other)),
                None => return Some((Field::Time, Why::Unsaid)),
            }
        }
        None
    }

    /// What was left out so far.
    pub(crate) fn left_out(&self) -> LeftOut {
        let names_unkept = self.comms.unkept();
        LeftOut { cuts: self.cuts(), names_unkept, ..self.left.clone() }
    }

    /// Whether branches may be missing between the first and the last of what
    /// was selected.
    ///
    /// A process or a thread is followed by itself: its stacks join to its own
    /// whatever others did, so a recording of every branch stays one of every
    /// branch of those tasks. So it is with a name, as long as its threads had
    /// no other: of one that changed its name, what it did before and after is
    /// missing, and the stack at the change holds branches of both. A CPU or a
    /// time is nothing that branches can be followed through: tasks come and
    /// go, and the stacks at both ends reach beyond. The same is true of an
    /// event. And where a sample does not say whose it is, it may be one of
    /// those selected.
    fn cuts(&self) -> bool {
        let task = |field: Field| matches!(field, Field::Comm | Field::Pid | Field::Tid);
        self.left.by.keys().any(|(field, why)| !task(*field) || *why == Why::Unsaid)
            || self.threads.values().any(|part| part.kept && part.left)
    }

    /// The names that the recording has, and which were asked for. `events`
    /// are those with branch stacks.
    pub(crate) fn names(&self, events: Vec<String>) -> Names {
        let mut comms: Vec<(String, u64)> =
            self.met.iter().map(|(name, count)| (name.clone(), *count)).collect();
        comms.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        let wanted = &self.selection.comms;
        let bore = |name: &String| {
            let number = name.strip_prefix(':').is_some_and(|tid| tid.parse::<i32>().is_ok());
            number || self.met.contains_key(name) || self.comms.knows(name)
        };
        Names {
            known_events: self.known_events.clone(),
            known_comms: wanted.iter().map(bore).collect(),
            events,
            comms,
        }
    }
}

fn has(list: &[String], name: &str) -> bool {
    list.iter().any(|one| one == name)
}
