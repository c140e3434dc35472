//! Applies a selection to a recording.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use lbr_msr::record::{Event, Head};

use super::{Comms, Names, SelectError, Selection, events};
use crate::read::add;
use crate::read::stack::{SampleHead, Thread};

/// A property that samples are selected by.
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
    /// Its name: perf's name of the option.
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

/// Why a sample does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It has another value.
    Other,
    /// Its value is not recorded.
    Unsaid,
}

/// The samples that a selection dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Samples, with aggregated ones counted by their weight.
    pub samples: u64,
    /// The same by the first property that does not match, and why.
    pub by: BTreeMap<(Field, Why), u64>,
    /// Stacks that `lbr record` lost for tasks outside of the selection.
    pub lost: u64,
    /// Changes of thread names that exceed the memory limit: later samples were assigned the
    /// previous name.
    pub names_unkept: u64,
    /// Whether the selected part of a complete recording is no longer complete: see
    /// [`Quality::is_complete`](crate::clean::quality::Quality::is_complete).
    pub cuts: bool,
}

impl LeftOut {
    /// Adds the counts of another recording.
    pub fn add(&mut self, other: &LeftOut) {
        add(&mut self.samples, other.samples);
        other.by.iter().for_each(|(why, count)| add(self.by.entry(*why).or_default(), *count));
        add(&mut self.lost, other.lost);
        add(&mut self.names_unkept, other.names_unkept);
        self.cuts |= other.cuts;
    }
}

/// Where the name of a sample's thread comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CommOf<'a> {
    /// Printed with the sample, if at all.
    Sample(Option<&'a str>),
    /// From separate records.
    Thread,
}

/// Data that follows the samples concerned.
#[derive(Debug, Default)]
pub(crate) struct FirstPass {
    /// Times of the first and the last sample.
    pub(crate) whole: Option<(u64, u64)>,
    /// Names of threads; `None` if they must arrive in time.
    pub(crate) comms: Option<Comms>,
    /// Names of events.
    pub(crate) events: Vec<Option<String>>,
}

/// The state of a thread's samples.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    kept: bool,
    left: bool,
    /// The last one was dropped, so the next one is not joined.
    broken: bool,
}

/// A selection and its state.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    pub(crate) selection: Arc<Selection>,
    spans: Vec<(u64, u64)>,
    /// Names of the events examined.
    pub(crate) looked: Vec<String>,
    /// Whether each event is selected.
    events: Vec<bool>,
    known_events: Vec<bool>,
    /// Names of events that follow their samples.
    early: Vec<Option<String>>,
    comms: Comms,
    /// Whether `comms` covers the whole recording, rather than the part read so far.
    comms_whole: bool,
    met: HashMap<String, u64>,
    left: LeftOut,
    threads: HashMap<Thread, Part>,
}

/// Maximum number of thread names kept for listing.
const MOST_MET: usize = 1 << 12;

impl Choice {
    pub(crate) fn new(selection: Arc<Selection>, first: FirstPass) -> Result<Choice, SelectError> {
        let FirstPass { whole, comms, events: early } = first;
        let spans: Option<Vec<(u64, u64)>> =
            selection.times.iter().map(|times| times.resolve(whole)).collect();
        Ok(Choice {
            spans: spans.ok_or(SelectError::NoTimes)?,
            known_events: vec![false; selection.events.len()],
            early,
            comms_whole: comms.is_some(),
            comms: comms.unwrap_or_default(),
            selection,
            ..Choice::default()
        })
    }

    /// Examines all events by name.
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

    /// Handles an event. Returns `false` for a loss that belongs to unselected tasks.
    pub(crate) fn event(&mut self, event: &Event) -> bool {
        let named = !self.selection.comms.is_empty();
        if named && !self.comms_whole {
            self.comms.event(event);
        }
        match event {
            // Only our recorder reports whose stacks are missing.
            Event::Lost(lost) if lost.label.is_some() => {
                let Selection { comms, pids, tids, .. } = &*self.selection;
                let comm = || self.comms.at(lost.tid, Some(lost.time));
                let others = (named && !comm().is_some_and(|comm| has(comms, comm)))
                    || !pids.is_empty() && !pids.contains(&lost.pid)
                    || !tids.is_empty() && !tids.contains(&lost.tid);
                if others {
                    add(&mut self.left.lost, lost.stacks);
                }
                !others
            }
            Event::Exit(task) => {
                // A later thread with this number starts afresh.
                let thread = (Some(task.pid), Some(task.tid));
                self.threads.get_mut(&thread).into_iter().for_each(|part| part.broken = false);
                true
            }
            _ => true,
        }
    }

    /// Whether a sample is selected. One that follows a dropped sample of the same thread is not
    /// joined, and its head is set accordingly.
    pub(crate) fn takes(&mut self, head: &mut SampleHead, comm: CommOf<'_>) -> bool {
        let checked = self.check(head, comm);
        let part = self.threads.entry((head.pid, head.tid)).or_default();
        let Err(why) = checked else {
            part.kept = true;
            if std::mem::take(&mut part.broken) && head.integrity.head == Head::Joined {
                head.integrity.head = Head::Unknown;
            }
            return true;
        };
        part.left = true;
        part.broken = true;
        add(&mut self.left.samples, head.weight);
        add(self.left.by.entry(why).or_default(), head.weight);
        false
    }

    /// Fails with the first property that does not match.
    fn check(&mut self, head: &SampleHead, comm: CommOf<'_>) -> Result<(), (Field, Why)> {
        let Selection { events, comms, pids, tids, cpus, .. } = &*self.selection;
        let check = |field, matches: Option<bool>| match matches {
            Some(true) => Ok(()),
            Some(false) => Err((field, Why::Other)),
            None => Err((field, Why::Unsaid)),
        };
        if !events.is_empty() {
            // Text without an event column: unknown.
            let name = self.looked.get(head.event).filter(|name| !name.is_empty());
            let is = self.events.get(head.event) == Some(&true);
            check(Field::Event, if is { Some(true) } else { name.map(|_| false) })?;
        }
        if !comms.is_empty() {
            // perf names a thread without a name by its number.
            let number = || head.tid.map(|tid| format!(":{}", tid as i32));
            let named = match comm {
                CommOf::Sample(comm) => comm,
                CommOf::Thread => head.tid.and_then(|tid| self.comms.at(tid, head.time)),
            };
            let is = match named {
                Some(comm) => has(comms, comm),
                None => number().is_some_and(|number| has(comms, &number)),
            };
            if let Some(comm) = named {
                if self.met.len() < MOST_MET && !self.met.contains_key(comm) {
                    self.met.insert(comm.to_owned(), 0);
                }
                self.met.get_mut(comm).into_iter().for_each(|met| add(met, head.weight));
            }
            check(Field::Comm, if is { Some(true) } else { named.map(|_| false) })?;
        }
        let numbers = [
            (Field::Pid, pids, head.pid),
            (Field::Tid, tids, head.tid),
            (Field::Cpu, cpus, head.cpu),
        ];
        for (field, list, value) in numbers.into_iter().filter(|(_, list, _)| !list.is_empty()) {
            check(field, value.map(|value| list.contains(&value)))?;
        }
        if !self.spans.is_empty() {
            let inside = |time: u64| self.spans.iter().any(|(a, b)| (*a..=*b).contains(&time));
            check(Field::Time, head.time.map(inside))?;
        }
        Ok(())
    }

    /// The samples dropped so far.
    pub(crate) fn left_out(&self) -> LeftOut {
        let names_unkept = self.comms.unkept;
        LeftOut { cuts: self.cuts(), names_unkept, ..self.left.clone() }
    }

    /// Whether branches may be missing between the first and last selected sample.
    ///
    /// Selecting processes or threads keeps complete recordings complete, because each thread's
    /// stacks are joined only to its own. The same holds for a name, if its threads had no other
    /// name: otherwise the branches before and after the change are missing, and the stack at the
    /// change has branches of both. CPUs and times do not select complete branch streams: tasks
    /// come and go, and the stacks at both ends reach beyond. The same holds for events, and for
    /// samples without the selected property.
    fn cuts(&self) -> bool {
        let task = |field: Field| matches!(field, Field::Comm | Field::Pid | Field::Tid);
        self.left.by.keys().any(|(field, why)| !task(*field) || *why == Why::Unsaid)
            || self.threads.values().any(|part| part.kept && part.left)
    }

    /// The names in the recording, and which were requested. `events` are those with branch stacks.
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
