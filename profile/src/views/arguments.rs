//! Arguments of functions: the registers of samples taken at the entry of a function, immediately
//! after the branch to it.
//!
//! The recording does not tell which of the six registers a function takes as arguments: all are
//! counted, whatever they contain.

use std::collections::{BTreeMap, HashMap};

use super::hot::{BranchCounts, HotTable};
use crate::clean::{Cleaned, CommonResult, View};
use crate::code::maps::{Location, Maps};
use crate::read::add;
use crate::read::registers::ARGUMENTS;

/// Distinct values counted per register, caller and function.
pub const MOST_VALUES: usize = 256;

/// The counts of a register's values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// In the order of the values: there are many registers with few values each.
    counts: Vec<(u64, u64)>,
    /// Samples with a value beyond the first [`MOST_VALUES`] distinct ones.
    pub others: u64,
}

impl Values {
    fn add(&mut self, value: u64, weight: u64) {
        let count = match self.counts.binary_search_by_key(&value, |(value, _)| *value) {
            Ok(at) => self.counts.get_mut(at).map(|(_, count)| count),
            Err(at) if self.counts.len() < MOST_VALUES => {
                return self.counts.insert(at, (value, weight));
            }
            Err(_) => None,
        };
        add(count.unwrap_or(&mut self.others), weight);
    }

    fn merge(&mut self, other: &Values) {
        other.counts.iter().for_each(|&(value, count)| self.add(value, count));
        add(&mut self.others, other.others);
    }

    /// Samples with this register.
    pub fn n(&self) -> u64 {
        self.counts.iter().fold(self.others, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Distinct values counted.
    pub fn distinct(&self) -> usize {
        self.counts.len()
    }

    /// The values with their counts, most frequent first.
    pub fn frequent(&self) -> Vec<(u64, u64)> {
        let mut all = self.counts.clone();
        // Of equal counts, the lower value stays first.
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all
    }
}

/// The calls from one function to another.
#[derive(Clone, Debug)]
pub struct Calls {
    /// The function's first byte.
    pub callee: (Location, u64),
    /// One of the branches to it.
    pub caller: (Location, u64),
    /// Samples at the entry.
    pub count: u64,
    /// By register, in the order of [`ARGUMENTS`].
    pub values: [Values; 6],
}

/// The arguments of functions.
#[derive(Debug)]
pub struct Arguments {
    /// By function and caller, most frequent first.
    pub calls: Vec<Calls>,
    /// Samples with registers.
    pub with_registers: u64,
    /// Samples among them at the entry of a function.
    pub at_entry: u64,
    /// The branches of the same recordings.
    pub hot: HotTable,
}

/// Counts registers at branch targets.
#[derive(Debug, Default)]
pub struct ArgumentCounts {
    branches: BranchCounts,
    with_registers: u64,
    /// By address space and both ends of the newest branch.
    calls: HashMap<(u32, u64, u64), Box<Entered>>,
}

/// The count of an entry into a function, and the values of each argument.
type Entered = (u64, [Values; 6]);

impl View for ArgumentCounts {
    type Table = Arguments;

    const ORDERED: bool = false;

    fn stack(&mut self, stack: &Cleaned<'_>, maps: &mut Maps) {
        self.branches.stack(stack, maps);
        let Some(registers) = stack.registers else { return };
        add(&mut self.with_registers, stack.weight);
        let Some(newest) = stack.branches.get(0) else { return };
        // Code that ran after the entry has changed them.
        if stack.head.ip == Some(newest.to) {
            let key = (stack.space, newest.from, newest.to);
            let (count, values) = &mut **self.calls.entry(key).or_default();
            add(count, stack.weight);
            for (values, (register, _)) in values.iter_mut().zip(ARGUMENTS) {
                if let Some(value) = registers.get(register) {
                    values.add(value, stack.weight);
                }
            }
        }
    }

    fn finish(self, whole: CommonResult) -> Arguments {
        let mut hot = self.branches.finish(whole);
        let maps = &mut hot.maps;
        let mut merged: BTreeMap<_, Calls> = BTreeMap::new();
        for ((space, from, to), counted) in self.calls {
            let (count, values) = *counted;
            let callee = maps.locate(space as usize, to);
            let caller = maps.locate(space as usize, from);
            if maps.name(callee).is_none_or(|named| named.offset != 0) {
                continue;
            }
            // Code without a symbol counts as a separate caller.
            let start = maps.function(caller).map(|function| function.offsets.start);
            let file =
                |location: Location| (location.file().unwrap_or(usize::MAX), location.position());
            let (of_caller, at) = file(caller);
            let key = (file(callee), of_caller, start.unwrap_or(at));
            let calls = merged.entry(key).or_insert_with(|| Calls {
                callee: (callee, to),
                caller: (caller, from),
                count: 0,
                values: Default::default(),
            });
            add(&mut calls.count, count);
            calls.values.iter_mut().zip(&values).for_each(|(all, more)| all.merge(more));
        }
        let mut calls: Vec<Calls> = merged.into_values().collect();
        calls.sort_by_key(|of| std::cmp::Reverse(of.count));
        let at_entry = calls.iter().fold(0, |sum: u64, of| sum.saturating_add(of.count));
        Arguments { calls, with_registers: self.with_registers, at_entry, hot }
    }
}
