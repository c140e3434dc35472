//! The hot-branch table: every distinct branch with its counts.

mod counts;

use std::cmp::Reverse;

use lbr_msr::record::BranchType;

use crate::clean::quality::Quality;
use crate::clean::{Cleaned, CommonResult, Key, View};
use crate::code::maps::{Location, Maps};
use crate::index::Index;
use crate::read::perf_data::ReadError;
use crate::read::recording::Recording;
use counts::CountedBranch;

pub use counts::BranchCounts;
pub(crate) use counts::{Counted, add_counted};

/// Reads recordings and counts their branches.
pub type Counter = crate::clean::Counter<BranchCounts>;

/// A branch with its counts.
#[derive(Clone, Debug, PartialEq)]
pub struct HotBranch {
    /// Source address, in the first process that ran it.
    pub from: u64,
    /// Target address.
    pub to: u64,
    /// Location of `from`.
    pub from_location: Location,
    /// Location of `to`.
    pub to_location: Location,
    /// Times recorded.
    pub count: u64,
    /// Entries with a known prediction.
    pub known: u64,
    /// Mispredicted ones among them; `None` if none is known.
    pub mispredicted: Option<u64>,
    /// Mean core cycles since the previous branch, of entries with a cycle count; `None` if there
    /// are none.
    pub cycles: Option<f64>,
    /// Sum of these cycles.
    pub cycles_sum: u64,
    /// Number of entries with cycles.
    pub with_cycles: u64,
    /// perf's type, if recorded; see [`HotBranch::type_in`].
    pub branch_type: Option<BranchType>,
    /// Total occurrences of each counter's event between the previous branch and this one: lower
    /// bounds, because a record counts only to 3 (see [`Counters`](crate::read::stack::Counters)).
    /// `None` if the recording has no such counts.
    pub counters: Option<Box<[Option<u64>; 4]>>,
}

impl HotBranch {
    /// Share of mispredictions among entries with a known prediction; `None` if there are none.
    pub fn mispredict_rate(&self) -> Option<f64> {
        self.mispredicted.map(|missed| missed as f64 / self.known as f64)
    }

    /// The type: as recorded, or else from the code bytes of the branch's file. `None` for unknown
    /// source locations, which represent many branches.
    pub fn type_in(&self, maps: &mut Maps) -> Option<BranchType> {
        if maps.unknown(self.from_location).is_some() {
            return None;
        }
        let decoded = || maps.branch(self.from_location, self.from).map(|insn| insn.branch_type);
        self.branch_type.or_else(decoded)
    }
}

/// The sort key of the table, descending.
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
    /// Source address, ascending.
    Address,
}

/// The hot-branch table of a recording.
#[derive(Debug)]
pub struct HotTable {
    /// Branches, hottest first.
    pub branches: Vec<HotBranch>,
    /// Sum of all counts.
    pub total: u64,
    /// Entries with a known prediction.
    pub known: u64,
    /// Mispredicted entries; `None` if none is known.
    pub mispredicted: Option<u64>,
    /// Quality of the data.
    pub quality: Quality,
    /// Mappings and files, for names.
    pub maps: Maps,
}

impl HotTable {
    /// Counts one recording. `progress` is called now and then with the bytes read and the total,
    /// if known.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn count(
        recording: &mut Recording,
        progress: impl FnMut(u64, Option<u64>),
    ) -> Result<HotTable, ReadError> {
        Counter::default().count(recording, progress)
    }

    /// Sorts again. Ties are in address order.
    pub fn sort(&mut self, order: Order) {
        sort(&mut self.branches, order);
    }

    /// Share of a branch among all, 0 to 1.
    pub fn share(&self, branch: &HotBranch) -> f64 {
        if self.total == 0 { 0.0 } else { branch.count as f64 / self.total as f64 }
    }
}

impl View for BranchCounts {
    type Table = HotTable;

    const ORDERED: bool = false;

    fn stack(&mut self, stack: &Cleaned<'_>, _: &mut Maps) {
        self.add(&stack.branches, stack.space, stack.weight);
        if stack.counters.is_some() {
            for (at, branch) in stack.branches.iter().enumerate() {
                self.counted(&branch, stack.space, &stack.counts(at));
            }
        }
    }

    fn finish(self, whole: CommonResult) -> HotTable {
        let CommonResult { quality, maps, .. } = whole;
        let branches = self.branches(&maps);
        let sum = |of: fn(&HotBranch) -> u64| {
            branches.iter().fold(0, |sum: u64, branch| sum.saturating_add(of(branch)))
        };
        let known = sum(|b| b.known);
        let missed = sum(|b| b.mispredicted.unwrap_or(0));
        HotTable {
            total: sum(|b| b.count),
            known,
            mispredicted: (known > 0).then_some(missed),
            branches,
            quality,
            maps,
        }
    }
}

impl BranchCounts {
    /// The branches, hottest first. The same branch of one file is merged, whichever process ran
    /// it.
    pub(crate) fn branches(self, maps: &Maps) -> Vec<HotBranch> {
        let key = |row: &CountedBranch| Key::of(maps, row.space, row.from, row.to);
        if self.one_space().is_some_and(|space| maps.has_each_byte_once(space as usize)) {
            return self.ranked().map(|row| row_of(key(&row).place, &row)).collect();
        }
        let mut index = Index::default();
        // The first row of a branch supplies its addresses.
        let mut rows: Vec<CountedBranch> = Vec::new();
        for row in self.rows() {
            let (ours, is) = (key(&row), |at: u32| rows.get(at as usize).map(key));
            match index.find(ours.hash(), |at| is(at) == Some(ours)) {
                Some(at) => rows[at as usize].merge(&row),
                None => {
                    index.insert(ours.hash(), rows.len() as u32);
                    rows.push(row);
                }
            }
        }
        drop(self);
        let mut branches: Vec<HotBranch> =
            rows.iter().map(|row| row_of(key(row).place, row)).collect();
        sort(&mut branches, Order::Count);
        branches
    }
}

fn sort(branches: &mut [HotBranch], order: Order) {
    // Sorts by cached keys: rows are large.
    branches.sort_by_cached_key(|branch| {
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

/// Maps non-negative numbers to integers with the same order; unknown ones come first.
fn rank(number: Option<f64>) -> u64 {
    number.map_or(0, |number| number.max(0.0).to_bits() + 1)
}

fn row_of((from_location, to_location): (Location, Location), row: &CountedBranch) -> HotBranch {
    let CountedBranch { from, to, sums, counters, branch_type, .. } = *row;
    HotBranch {
        from,
        to,
        from_location,
        to_location,
        count: sums.count,
        known: sums.known,
        mispredicted: (sums.known > 0).then_some(sums.mispredicted),
        cycles: (sums.with_cycles > 0).then(|| sums.cycles as f64 / sums.with_cycles as f64),
        cycles_sum: sums.cycles,
        with_cycles: sums.with_cycles,
        branch_type: (branch_type != 0).then_some(BranchType(branch_type)),
        counters: Some(counters).filter(|sums| sums.iter().any(Option::is_some)).map(Box::new),
    }
}
