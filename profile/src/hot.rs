//! The hot-branch table: every distinct branch with its counts.

use std::cmp::Reverse;
use std::collections::HashMap;

use lbr_msr::record::{BranchType, Event};

use crate::clean::{self, DUPLICATE_STRIDE, Streams};
use crate::collect::{self, Collect};
use crate::index::{self, Index};
use crate::maps::{Location, Maps, Owner};
use crate::perf_data::{EventAttr, ReadError};
use crate::quality::Quality;
use crate::recording::Recording;
use crate::stack::{self, Entries, EntryFlags, RawBranch, Stack};

/// What is counted for a branch: one line of the cache.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Slot {
    from: u64,
    to: u64,
    count: u64,
    mispredicted: u64,
    known: u64,
    cycles: u64,
    with_cycles: u64,
    space: u32,
    /// perf's code of the type, 0 where no record had one.
    branch_type: u8,
}

const _: () = assert!(size_of::<Slot>() == 64);

impl Slot {
    #[inline]
    fn is_of(&self, branch: &RawBranch, space: u32) -> bool {
        (self.from, self.to, self.space) == (branch.from, branch.to, space)
    }

    #[inline]
    fn add<const WEIGHTED: bool>(&mut self, flags: EntryFlags, weight: u64) {
        // As `mispredicted` says, without a branch.
        let known = u64::from(flags.0 & (EntryFlags::MISPREDICTED | EntryFlags::PREDICTED) != 0);
        let missed = flags.0 & EntryFlags::MISPREDICTED;
        let cycles = u64::from(flags.cycles().unwrap_or(0));
        let with_cycles = u64::from(cycles != 0);
        let add = |sum: &mut u64, more: u64| {
            *sum = if WEIGHTED {
                sum.saturating_add(more.saturating_mul(weight))
            } else {
                sum.wrapping_add(more)
            };
        };
        add(&mut self.count, 1);
        add(&mut self.known, known);
        add(&mut self.mispredicted, missed);
        add(&mut self.cycles, cycles);
        add(&mut self.with_cycles, with_cycles);
        if self.branch_type == 0 {
            self.branch_type = flags.branch_type().map_or(0, |t| t.0);
        }
    }
}

/// Counts by (from, to, address space), in the order of their first branch.
#[derive(Debug, Default)]
struct Counts {
    index: Index,
    slots: Vec<Slot>,
    /// What was counted at branches, by slot: empty where nothing was.
    counters: Vec<Counted>,
    /// A stack stood for more than one.
    weighted: bool,
}

/// Sums of four counters; `None` where nothing was counted.
type Counted = [Option<u64>; 4];

fn add_counted(sums: &mut Counted, more: &Counted) {
    for (sum, more) in sums.iter_mut().zip(more) {
        if let Some(more) = more {
            *sum = Some(sum.unwrap_or(0).saturating_add(*more));
        }
    }
}

/// As many branches as the deepest ring has.
const BATCH: usize = 32;

impl Counts {
    /// Counts entries. A table of many branches lies outside the caches: all
    /// are looked up first, so that their slots are fetched side by side.
    /// Without weights nothing can overflow, and sums need not stop anywhere.
    #[inline]
    fn add_all<T, const WEIGHTED: bool>(
        &mut self,
        entries: &[T],
        read: impl Fn(&T) -> RawBranch,
        space: u32,
        weight: u64,
    ) {
        for entries in entries.chunks(BATCH) {
            let mut found = [(0u32, 0u32); BATCH];
            let mut places = 0;
            for (entry, (hash, _)) in entries.iter().zip(&mut found) {
                let branch = read(entry);
                *hash = index::hash(branch.from, branch.to, u64::from(space));
                places ^= self.index.touch(*hash);
            }
            std::hint::black_box(places);
            for (hash, number) in found.iter_mut().take(entries.len()) {
                *number = self.index.guess(*hash);
            }
            let slots = found.iter().take(entries.len());
            let slots = slots.map(|(_, number)| self.slots.get(*number as usize));
            std::hint::black_box(
                slots.fold(0, |all, slot| all ^ slot.map_or(0, |slot| slot.count)),
            );
            for (entry, (hash, number)) in entries.iter().zip(found) {
                let branch = read(entry);
                let known =
                    self.slots.get_mut(number as usize).filter(|slot| slot.is_of(&branch, space));
                match known {
                    Some(slot) => slot.add::<WEIGHTED>(branch.flags, weight),
                    None => {
                        if let Some(slot) = self.slot(hash, &branch, space) {
                            slot.add::<WEIGHTED>(branch.flags, weight);
                        }
                    }
                }
            }
        }
    }

    /// Counts the branches of a stack.
    fn stack(&mut self, entries: &Entries<'_>, space: u32, weight: u64) {
        self.weighted |= weight != 1;
        if self.weighted {
            self.of_stack::<true>(entries, space, weight);
        } else {
            self.of_stack::<false>(entries, space, weight);
        }
    }

    fn of_stack<const WEIGHTED: bool>(&mut self, entries: &Entries<'_>, space: u32, weight: u64) {
        match entries {
            Entries::Little(raw) => self.add_all::<_, WEIGHTED>(raw, stack::little, space, weight),
            Entries::Big(raw) => self.add_all::<_, WEIGHTED>(raw, stack::big, space, weight),
            Entries::Parsed(all) => self.add_all::<_, WEIGHTED>(all, |b| *b, space, weight),
        }
    }

    /// Adds what was counted at branches that are in the table.
    #[cold]
    fn counted(&mut self, branch: &RawBranch, space: u32, weight: u64, counts: [Option<u8>; 4]) {
        let hash = index::hash(branch.from, branch.to, u64::from(space));
        let is = |number: u32| {
            self.slots.get(number as usize).is_some_and(|slot| slot.is_of(branch, space))
        };
        let Some(number) = self.index.find(hash, is) else { return };
        if self.counters.len() < self.slots.len() {
            self.counters.resize(self.slots.len(), Counted::default());
        }
        if let Some(sums) = self.counters.get_mut(number as usize) {
            let counts = counts.map(|count| count.map(|n| u64::from(n).saturating_mul(weight)));
            add_counted(sums, &counts);
        }
    }

    /// The slot of a branch that was not where it was expected, a new one if
    /// there is none.
    #[cold]
    fn slot(&mut self, hash: u32, branch: &RawBranch, space: u32) -> Option<&mut Slot> {
        let is = |number: u32| {
            self.slots.get(number as usize).is_some_and(|slot| slot.is_of(branch, space))
        };
        let number = match self.index.find(hash, is) {
            Some(number) => number as usize,
            None => {
                let number = self.slots.len();
                self.index.insert(hash, u32::try_from(number).ok()?);
                self.slots.push(Slot {
                    from: branch.from,
                    to: branch.to,
                    space,
                    ..Slot::default()
                });
                number
            }
        };
        self.slots.get_mut(number)
    }
}

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
    /// to 3 (see [`Counters`](crate::stack::Counters)). `None` where the
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
    /// file it lies in.
    pub fn type_of(&mut self, branch: &HotBranch) -> Option<BranchType> {
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
    /// The space of the process seen last.
    last: Option<(Option<u32>, u32)>,
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
            last: None,
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
            self.last = None;
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
        let space = match self.last {
            Some((pid, space)) if pid == head.pid => space,
            _ => {
                let space = self.maps.space(head.pid) as u32;
                self.last = Some((head.pid, space));
                space
            }
        };
        let duplicate = self.streams.is_duplicated(head, &stack.entries, DUPLICATE_STRIDE);
        if !duplicate && !clean::any_odd(&stack.entries) {
            self.counts.stack(&stack.entries, space, head.weight);
            if let Some(counters) = &stack.counters {
                for (at, branch) in stack.entries.iter().enumerate() {
                    let counts = counters.get(at).unwrap_or_default();
                    self.counts.counted(&branch, space, head.weight, counts);
                }
            }
            return;
        }
        let mut kept_at = Vec::new();
        let (quality, kept) = (&mut self.quality, &mut self.kept);
        kept.clear();
        let aborts = clean::second_aborts(&stack.entries);
        let (mut index, mut aborts) = (0usize, aborts.iter().peekable());
        let mut skip = duplicate;
        stack.entries.for_each(|branch| {
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
        self.last = None;
    }

    /// The table: the same branch of the same file is one, whichever process
    /// ran it.
    #[must_use]
    pub fn finish(self) -> HotTable {
        let Counter { counts, quality, maps, .. } = self;
        let Counts { slots, mut counters, index, .. } = counts;
        drop(index);
        counters.resize(if counters.is_empty() { 0 } else { slots.len() }, Counted::default());
        let mut row_counters: Vec<Counted> = Vec::new();
        let mut rows: Vec<Slot> = Vec::with_capacity(slots.len());
        let mut places = Vec::with_capacity(slots.len());
        let mut seen: HashMap<(Location, Location, Option<Owner>), usize> = HashMap::new();
        let one_space = slots.windows(2).all(|pair| match pair {
            [a, b] => a.space == b.space,
            _ => true,
        });
        for (number, slot) in slots.into_iter().enumerate() {
            let space = slot.space as usize;
            let place = (maps.locate(space, slot.from), maps.locate(space, slot.to));
            if !one_space {
                // Addresses in no file mean something in their process only.
                let bound = [place.0, place.1].iter().any(Location::is_private);
                let owner = if bound { maps.owner(space) } else { None };
                let key = (place.0, place.1, owner);
                let known = seen.get(&key).copied();
                if let Some(row) = known.and_then(|row| rows.get_mut(row)) {
                    merge(row, &slot);
                    let sums = known.and_then(|row| row_counters.get_mut(row));
                    if let Some((sums, more)) = sums.zip(counters.get(number)) {
                        add_counted(sums, more);
                    }
                    continue;
                }
                seen.insert(key, rows.len());
            }
            rows.push(slot);
            places.push(place);
            row_counters.extend(counters.get(number));
        }
        drop(seen);
        let mut row = 0usize;
        let branches = rows.iter().zip(places).map(|(slot, (from_location, to_location))| {
            let counted = row_counters.get(row).filter(|sums| sums.iter().any(Option::is_some));
            row += 1;
            let recorded = (slot.branch_type != 0).then_some(BranchType(slot.branch_type));
            HotBranch {
                from: slot.from,
                to: slot.to,
                from_location,
                to_location,
                count: slot.count,
                known: slot.known,
                mispredicted: (slot.known > 0).then_some(slot.mispredicted),
                cycles: (slot.with_cycles > 0)
                    .then(|| slot.cycles as f64 / slot.with_cycles as f64),
                branch_type: recorded,
                counters: counted.copied().map(Box::new),
            }
        });
        let branches: Vec<HotBranch> = branches.collect();
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
        table.sort(Order::Count);
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
}

/// Numbers that are not negative in the order of their bits, after those that
/// are not known.
fn rank(number: Option<f64>) -> u64 {
    number.map_or(0, |number| number.max(0.0).to_bits() + 1)
}

fn merge(row: &mut Slot, other: &Slot) {
    row.count = row.count.saturating_add(other.count);
    row.mispredicted = row.mispredicted.saturating_add(other.mispredicted);
    row.known = row.known.saturating_add(other.known);
    row.cycles = row.cycles.saturating_add(other.cycles);
    row.with_cycles = row.with_cycles.saturating_add(other.with_cycles);
    if row.branch_type == 0 {
        row.branch_type = other.branch_type;
    }
}
