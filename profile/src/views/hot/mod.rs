//! The hot-branch table: every distinct branch with its counts.

mod counts;

use std::cmp::Reverse;
use std::collections::HashMap;

use lbr_msr::record::{BranchType, Event};

use crate::clean::collect::{self, Collect};
use crate::clean::quality::Quality;
use crate::clean::{self, DUPLICATE_STRIDE, Streams};
use crate::code::maps::{Location, Maps, Owner};
use crate::read::names::Symbol;
use crate::read::perf_data::{EventAttr, ReadError};
use crate::read::recording::Recording;
use crate::read::select::LeftOut;
use crate::read::stack::{Entries, RawBranch, Stack};
use counts::{Counts, Row};

/// A branch with its counts.
#[derive(Clone, Debug, PartialEq)]
pub struct HotBranch {
    /// Address of the branch, in the first process that ran it.
    pub from: u64,
    /// Address it went to.
    pub to: u64,
    /// Where `from` lies.
    pub from_location: Location,
    /// Where `to` lies.
    pub to_location: Location,
    /// Times recorded.
    pub count: u64,
    /// How many of them are known to be predicted or mispredicted.
    pub known: u64,
    /// How many of them were mispredicted; `None` where none is known.
    pub mispredicted: Option<u64>,
    /// Mean of the core cycles since the branch before, over the entries that
    /// have them; `None` where none has.
    pub cycles: Option<f64>,
    /// perf's type where the recording has it; see [`HotTable::type_of`].
    pub branch_type: Option<BranchType>,
    /// How often the events of the counters occurred between the branch before
    /// and this one, all times together: lower bounds, because a record counts
    /// to 3 (see [`Counters`](crate::read::stack::Counters)). `None` where the
    /// recording has no such counts.
    pub counters: Option<Box<[Option<u64>; 4]>>,
}

impl HotBranch {
    /// Share of mispredictions among the known; `None` where none is known.
    #[must_use]
    pub fn mispredict_rate(&self) -> Option<f64> {
        self.mispredicted.map(|missed| missed as f64 / self.known as f64)
    }
}

/// By what the table is sorted, each from high to low.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Times recorded.
    #[default]
    Count,
    /// Mispredictions.
    Mispredicts,
    /// Share of mispredictions.
    Rate,
    /// Mean of the cycles.
    Cycles,
    /// Address of the branch, from low to high.
    Address,
}

/// The hot-branch table of a recording.
#[derive(Debug)]
pub struct HotTable {
    /// Branches, the hottest first.
    pub branches: Vec<HotBranch>,
    /// All branches of the table together.
    pub total: u64,
    /// All known to be predicted or mispredicted.
    pub known: u64,
    /// All mispredicted; `None` where none is known.
    pub mispredicted: Option<u64>,
    /// How good the data are.
    pub quality: Quality,
    /// Mappings and files, for names.
    pub maps: Maps,
}

impl HotTable {
    /// Counts a recording to its end. `progress` is called now and then with
    /// the bytes read and the bytes of the whole, where known.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn count(
        recording: &mut Recording,
        progress: impl FnMut(u64, Option<u64>),
    ) -> Result<HotTable, ReadError> {
        let mut counter = Counter::new();
        counter.recording(recording, progress)?;
        Ok(counter.finish())
    }

    /// Sorts anew. Ties are in the order of addresses.
    pub fn sort(&mut self, order: Order) {
        // By keys alone: rows are large.
        self.branches.sort_by_cached_key(|branch| {
            let first = match order {
                Order::Count => branch.count,
                Order::Mispredicts => branch.mispredicted.map_or(0, |n| n.saturating_add(1)),
                Order::Rate => rank(branch.mispredict_rate()),
                Order::Cycles => rank(branch.cycles),
                Order::Address => 0,
            };
            (Reverse(first), branch.from, branch.to)
        });
    }

    /// The type of a branch: as recorded, else out of the code bytes of the
    /// file it lies in. `None` for branches from unknown places, which are many.
    pub fn type_of(&mut self, branch: &HotBranch) -> Option<BranchType> {
        if self.maps.unknown(branch.from_location).is_some() {
            return None;
        }
        let decoded = |maps: &mut Maps| maps.branch(branch.from_location, branch.from);
        branch.branch_type.or_else(|| decoded(&mut self.maps).map(|insn| insn.branch_type))
    }

    /// Share of a branch among all, 0 to 1.
    #[must_use]
    pub fn share(&self, branch: &HotBranch) -> f64 {
        if self.total == 0 { 0.0 } else { branch.count as f64 / self.total as f64 }
    }
}

/// Counts branches as they come.
#[derive(Debug)]
pub struct Counter {
    counts: Counts,
    quality: Quality,
    maps: Maps,
    streams: Streams,
    /// The branches of a stack that is counted at other addresses.
    moved: Vec<RawBranch>,
    /// The branches of a stack of which some are left out.
    kept: Vec<RawBranch>,
}

impl Default for Counter {
    fn default() -> Counter {
        Counter::new()
    }
}

impl Counter {
    /// Begins with nothing.
    #[must_use]
    pub fn new() -> Counter {
        Counter {
            counts: Counts::default(),
            quality: Quality::default(),
            maps: Maps::default(),
            streams: Streams::default(),
            moved: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Learns which events there are: their filters say what a duplicate is.
    pub fn events(&mut self, events: &[EventAttr]) {
        self.streams.look(events);
    }

    /// Counts a recording to its end, beside those counted before: their
    /// address spaces stay apart, and a branch of the same file is one.
    /// `progress` is as in [`HotTable::count`].
    ///
    /// # Errors
    /// [`ReadError`]; what was read before it stays counted.
    pub fn recording(
        &mut self,
        recording: &mut Recording,
        progress: impl FnMut(u64, Option<u64>),
    ) -> Result<(), ReadError> {
        self.begin();
        collect::collect(recording, self, progress)?;
        self.end(recording);
        Ok(())
    }

    /// What follows comes from another recording.
    pub(crate) fn begin(&mut self) {
        if !self.maps.is_empty() {
            self.maps.next_recording();
            self.streams = Streams::default();
        }
    }

    /// A recording was read to its end.
    pub(crate) fn end(&mut self, recording: &Recording) {
        if let Some(info) = recording.info() {
            self.maps.recorded(info);
        }
    }

    /// Takes a stack in.
    pub fn stack(&mut self, stack: &Stack<'_>) {
        let head = &stack.head;
        let counts = self.quality.sample(head, stack.entries.len());
        // What stands for no stack is counted no times.
        if !counts || head.weight == 0 {
            return;
        }
        let (space, entries) = self.maps.settle(head, stack.entries, &mut self.moved);
        let space = space as u32;
        let duplicate = self.streams.is_duplicated(head, &entries, DUPLICATE_STRIDE);
        // Empty entries are left out by the table.
        if !duplicate && !clean::any_marked(&entries) {
            self.counts.stack(&entries, space, head.weight);
            if let Some(counters) = &stack.counters {
                for (at, branch) in entries.iter().enumerate() {
                    let counts = counters.get(at).unwrap_or_default();
                    self.counts.counted(&branch, space, head.weight, counts);
                }
            }
            return;
        }
        let mut kept_at = Vec::new();
        let (quality, kept) = (&mut self.quality, &mut self.kept);
        kept.clear();
        let aborts = clean::second_aborts(&entries);
        let (mut index, mut aborts) = (0usize, aborts.iter().peekable());
        let mut skip = duplicate;
        entries.for_each(|branch| {
            let here = index;
            index += 1;
            let left_out = if aborts.next_if_eq(&&here).is_some() {
                &mut quality.double_aborts
            } else if std::mem::take(&mut skip) {
                &mut quality.duplicated_newest
            } else if branch.is_empty() {
                &mut quality.zero_entries
            } else if branch.flags.not_taken() {
                &mut quality.not_taken
            } else {
                kept.push(branch);
                if stack.counters.is_some() {
                    kept_at.push(here);
                }
                return;
            };
            *left_out = left_out.saturating_add(head.weight);
        });
        self.counts.stack(&Entries::Parsed(kept), space, head.weight);
        for (branch, at) in kept.iter().zip(kept_at) {
            let counts = stack.counters.and_then(|counters| counters.get(at)).unwrap_or_default();
            self.counts.counted(branch, space, head.weight, counts);
        }
    }

    /// Takes anything else in.
    pub fn event(&mut self, event: &Event) {
        if let Event::Lost(lost) = event {
            self.quality.lost(lost);
        }
        self.maps.event(event);
    }

    /// The table: the same branch of the same file is one, whichever process
    /// ran it.
    #[must_use]
    pub fn finish(self) -> HotTable {
        let Counter { counts, mut quality, maps, .. } = self;
        quality.zero_entries = quality.zero_entries.saturating_add(counts.empty());
        let places = |row: &Row| {
            let space = row.space as usize;
            (maps.locate(space, row.from), maps.locate(space, row.to))
        };
        let one_space = counts.has_one_space();
        let branches: Vec<HotBranch> = if one_space {
            counts.ranked().map(|row| row_of(places(&row), &row)).collect()
        } else {
            let mut seen: HashMap<(Location, Location, Option<Owner>), usize> = HashMap::new();
            let mut rows: Vec<((Location, Location), Row)> = Vec::new();
            // The first of them gives its addresses.
            for row in counts.rows() {
                let place = places(&row);
                // Addresses in no file mean something in their process only.
                let bound = [place.0, place.1].iter().any(Location::is_private);
                let owner = if bound { maps.owner(row.space as usize) } else { None };
                let at = *seen.entry((place.0, place.1, owner)).or_insert(rows.len());
                match rows.get_mut(at) {
                    Some((_, known)) => known.merge(&row),
                    None => rows.push((place, row)),
                }
            }
            rows.iter().map(|(place, row)| row_of(*place, row)).collect()
        };
        drop(counts);
        let sum = |of: fn(&HotBranch) -> u64| {
            branches.iter().fold(0, |sum: u64, branch| sum.saturating_add(of(branch)))
        };
        let known = sum(|b| b.known);
        let missed = sum(|b| b.mispredicted.unwrap_or(0));
        let mut table = HotTable {
            total: sum(|b| b.count),
            known,
            mispredicted: (known > 0).then_some(missed),
            branches,
            quality,
            maps,
        };
        if !one_space {
            table.sort(Order::Count);
        }
        table
    }
}

impl Collect for Counter {
    fn events(&mut self, events: &[EventAttr]) {
        Counter::events(self, events);
    }
    fn knows(&self, event: usize) -> bool {
        self.streams.knows(event)
    }
    fn stack(&mut self, stack: &Stack<'_>) {
        Counter::stack(self, stack);
    }
    fn event(&mut self, event: &Event) {
        Counter::event(self, event);
    }
    fn left_out(&mut self, left: &LeftOut) {
        self.quality.left_out.add(left);
    }
    fn symbol(&mut self, symbol: &Symbol) {
        self.maps.symbol(symbol);
    }
}

/// Numbers that are not negative in the order of their bits, after those that
/// are not known.
fn rank(number: Option<f64>) -> u64 {
    number.map_or(0, |number| number.max(0.0).to_bits() + 1)
}

fn row_of((from_location, to_location): (Location, Location), row: &Row) -> HotBranch {
    let Row { from, to, sums, counters, branch_type, .. } = *row;
    HotBranch {
        from,
        to,
        from_location,
        to_location,
        count: sums.count,
        known: sums.known,
        mispredicted: (sums.known > 0).then_some(sums.mispredicted),
        cycles: (sums.with_cycles > 0).then(|| sums.cycles as f64 / sums.with_cycles as f64),
        branch_type: (branch_type != 0).then_some(BranchType(branch_type)),
        counters: Some(counters).filter(|sums| sums.iter().any(Option::is_some)).map(Box::new),
    }
}
