//! The hot-branch table: every distinct branch with its counts.

use std::collections::HashMap;

use lbr_msr::record::{BranchType, Event};

use crate::clean::{self, DUPLICATE_STRIDE, Streams};
use crate::collect::{self, Collect};
use crate::maps::{Location, Maps};
use crate::perf_data::{EventAttr, ReadError};
use crate::quality::Quality;
use crate::recording::Recording;
use crate::stack::{RawBranch, Stack};

/// Places of the index to begin with: 256 KiB.
const FIRST_PLACES: usize = 1 << 15;

/// What is counted for a branch. 64 bytes, one line of the cache.
#[derive(Clone, Copy, Debug, Default)]
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

/// Counts by (from, to, address space). An index of eight bytes a place with
/// open addressing stays in the second-level cache where the counts do not;
/// the counts stand side by side in the order of their first branch.
#[derive(Debug)]
struct Counts {
    /// Upper half: hash; lower half: number of the slot counted from 1, 0 where
    /// the place is free.
    index: Vec<u64>,
    slots: Vec<Slot>,
}

impl Counts {
    fn new() -> Counts {
        Counts { index: vec![0; FIRST_PLACES], slots: Vec::new() }
    }

    /// Multiplicative hashing; the upper half is the well mixed one.
    #[inline]
    fn hash(from: u64, to: u64, space: u32) -> u32 {
        const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
        let mixed = from.wrapping_mul(ODD) ^ to.rotate_left(32) ^ u64::from(space) << 17;
        (mixed.wrapping_mul(ODD) >> 32) as u32
    }

    /// Loads what adding branches of these hashes will need. The loads do not
    /// wait for each other, as the searches that come after them would.
    #[inline]
    fn touch(&self, hashes: &[u32]) {
        let mask = self.index.len() - 1;
        let place = |hash: &u32| self.index.get(*hash as usize & mask).copied().unwrap_or(0);
        std::hint::black_box(hashes.iter().fold(0, |all, hash| all ^ place(hash)));
        let slot = |hash| self.slots.get((place(hash) as u32 as usize).wrapping_sub(1));
        let load = |hash| slot(hash).map_or(0, |slot| slot.from ^ slot.count);
        std::hint::black_box(hashes.iter().fold(0, |all, hash| all ^ load(hash)));
    }

    /// The slot of a branch, a new one if there was none.
    #[inline]
    fn slot(&mut self, hash: u32, from: u64, to: u64, space: u32) -> Option<&mut Slot> {
        let mask = self.index.len() - 1;
        let mut at = hash as usize & mask;
        // The index is never full, so the search ends.
        let found = loop {
            let place = self.index.get_mut(at)?;
            if *place == 0 {
                let number = u32::try_from(self.slots.len() + 1).ok()?;
                *place = u64::from(hash) << 32 | u64::from(number);
                self.slots.push(Slot { from, to, space, ..Slot::default() });
                break self.slots.len() - 1;
            }
            let number = (*place as u32 as usize).wrapping_sub(1);
            if (*place >> 32) as u32 == hash
                && let Some(slot) = self.slots.get(number)
                && (slot.from, slot.to, slot.space) == (from, to, space)
            {
                break number;
            }
            at = (at + 1) & mask;
        };
        self.slots.get_mut(found)
    }

    #[inline]
    fn add(&mut self, hash: u32, branch: RawBranch, space: u32, weight: u64) {
        // Two thirds full at most.
        if self.slots.len() * 3 >= self.index.len() * 2 {
            self.grow();
        }
        let Some(slot) = self.slot(hash, branch.from, branch.to, space) else { return };
        slot.count = slot.count.saturating_add(weight);
        let flags = branch.flags;
        if let Some(mispredicted) = flags.mispredicted() {
            slot.known = slot.known.saturating_add(weight);
            let missed = weight * u64::from(mispredicted);
            slot.mispredicted = slot.mispredicted.saturating_add(missed);
        }
        if let Some(cycles) = flags.cycles() {
            let cycles = u64::from(cycles).saturating_mul(weight);
            slot.cycles = slot.cycles.saturating_add(cycles);
            slot.with_cycles = slot.with_cycles.saturating_add(weight);
        }
        if slot.branch_type == 0 {
            slot.branch_type = flags.branch_type().map_or(0, |t| t.0);
        }
    }

    fn grow(&mut self) {
        let doubled = vec![0; self.index.len() * 2];
        let old = std::mem::replace(&mut self.index, doubled);
        let mask = self.index.len() - 1;
        for place in old.into_iter().filter(|place| *place != 0) {
            let mut at = (place >> 32) as usize & mask;
            while self.index.get(at).is_some_and(|taken| *taken != 0) {
                at = (at + 1) & mask;
            }
            if let Some(free) = self.index.get_mut(at) {
                *free = place;
            }
        }
    }
}

/// As many branches as the deepest ring has: hashed first, counted together.
const BATCH: usize = 32;

/// Branches of a stack on their way into the counts. A table of many branches
/// lies outside the caches; collected, their slots are fetched side by side.
struct Batch {
    branches: [RawBranch; BATCH],
    hashes: [u32; BATCH],
    len: usize,
    space: u32,
    weight: u64,
}

impl Batch {
    #[inline]
    fn new(space: u32, weight: u64) -> Batch {
        let branches = [RawBranch::default(); BATCH];
        Batch { branches, hashes: [0; BATCH], len: 0, space, weight }
    }

    #[inline]
    fn add(&mut self, branch: RawBranch, counts: &mut Counts) {
        if self.len == BATCH {
            self.flush(counts);
        }
        let hash = Counts::hash(branch.from, branch.to, self.space);
        let places = (self.branches.get_mut(self.len), self.hashes.get_mut(self.len));
        if let (Some(branch_place), Some(hash_place)) = places {
            *branch_place = branch;
            *hash_place = hash;
            self.len += 1;
        }
    }

    #[inline]
    fn flush(&mut self, counts: &mut Counts) {
        let hashes = self.hashes.get(..self.len).unwrap_or_default();
        counts.touch(hashes);
        for (branch, hash) in self.branches.iter().zip(hashes) {
            counts.add(*hash, *branch, self.space, self.weight);
        }
        self.len = 0;
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
        let falling = |a: f64, b: f64| b.total_cmp(&a);
        // A stable sort would move each row several times.
        self.branches.sort_unstable_by(|a, b| {
            let first = match order {
                Order::Count => b.count.cmp(&a.count),
                Order::Mispredicts => b.mispredicted.cmp(&a.mispredicted),
                Order::Rate => falling(
                    a.mispredict_rate().unwrap_or(-1.0),
                    b.mispredict_rate().unwrap_or(-1.0),
                ),
                Order::Cycles => falling(a.cycles.unwrap_or(-1.0), b.cycles.unwrap_or(-1.0)),
                Order::Address => std::cmp::Ordering::Equal,
            };
            first.then_with(|| (a.from, a.to).cmp(&(b.from, b.to)))
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

/// A recording, and a process of it.
type Owner = (u32, Option<u32>);

/// Counts branches as they come.
#[derive(Debug)]
pub struct Counter {
    counts: Counts,
    quality: Quality,
    maps: Maps,
    streams: Streams,
    /// The space of the process seen last.
    last: Option<(Option<u32>, u32)>,
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
            counts: Counts::new(),
            quality: Quality::default(),
            maps: Maps::default(),
            streams: Streams::default(),
            last: None,
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
        if !self.maps.is_empty() {
            self.maps.next_recording();
            self.last = None;
            self.streams = Streams::default();
        }
        collect::collect(recording, self, progress)?;
        if let Some(info) = recording.info() {
            self.maps.build_ids(&info.build_ids);
        }
        Ok(())
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
        let mut skip = self.streams.is_duplicated(head, &stack.entries, DUPLICATE_STRIDE);
        let (counts, quality) = (&mut self.counts, &mut self.quality);
        let mut batch = Batch::new(space, head.weight);
        let aborts = clean::second_aborts(&stack.entries);
        let (mut index, mut aborts) = (0usize, aborts.iter().peekable());
        stack.entries.for_each(|branch| {
            let here = index;
            index += 1;
            if aborts.next_if_eq(&&here).is_some() {
                quality.double_aborts = quality.double_aborts.saturating_add(head.weight);
            } else if std::mem::take(&mut skip) {
                quality.duplicated_newest = quality.duplicated_newest.saturating_add(head.weight);
            } else if branch.is_empty() {
                quality.zero_entries = quality.zero_entries.saturating_add(head.weight);
            } else if branch.flags.not_taken() {
                quality.not_taken = quality.not_taken.saturating_add(head.weight);
            } else {
                batch.add(branch, counts);
            }
        });
        batch.flush(counts);
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
        let slots = counts.slots;
        let mut rows: Vec<Slot> = Vec::with_capacity(slots.len());
        let mut places = Vec::with_capacity(slots.len());
        let mut seen: HashMap<(Location, Location, Option<Owner>), usize> = HashMap::new();
        let one_space = slots.windows(2).all(|pair| match pair {
            [a, b] => a.space == b.space,
            _ => true,
        });
        for slot in slots {
            let space = slot.space as usize;
            let place = (maps.locate(space, slot.from), maps.locate(space, slot.to));
            if !one_space {
                // Addresses in no file mean something in their process only.
                let bound = [place.0, place.1].iter().any(Location::is_private);
                let owner = if bound { maps.owner(space) } else { None };
                let key = (place.0, place.1, owner);
                if let Some(row) = seen.get(&key).and_then(|&row| rows.get_mut(row)) {
                    merge(row, &slot);
                    continue;
                }
                seen.insert(key, rows.len());
            }
            rows.push(slot);
            places.push(place);
        }
        drop(seen);
        let branches = rows.iter().zip(places).map(|(slot, (from_location, to_location))| {
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
