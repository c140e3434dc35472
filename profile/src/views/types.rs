//! Taken branches by their type.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use lbr_msr::record::BranchType;

use crate::code::maps::Maps;
use crate::read::add;
use crate::views::hot::HotBranch;

/// The branches of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfType {
    /// perf's type, as recorded or from the code; `None` if neither is available.
    pub branch_type: Option<BranchType>,
    /// Distinct ones.
    pub distinct: u64,
    /// Times recorded.
    pub count: u64,
    /// Entries with a known prediction.
    pub known: u64,
    /// Mispredicted ones among them; `None` if none is known.
    pub mispredicted: Option<u64>,
}

/// Branches by type, most frequent first.
pub fn by_type(branches: &[HotBranch], maps: &mut Maps) -> Vec<OfType> {
    let mut types: BTreeMap<Option<u8>, OfType> = BTreeMap::new();
    for branch in branches {
        let branch_type = branch.type_in(maps);
        let new = || OfType { branch_type, ..OfType::default() };
        let of = types.entry(branch_type.map(|branch_type| branch_type.0)).or_insert_with(new);
        add(&mut of.distinct, 1);
        add(&mut of.count, branch.count);
        add(&mut of.known, branch.known);
        if let Some(missed) = branch.mispredicted {
            add(of.mispredicted.get_or_insert(0), missed);
        }
    }
    let mut types: Vec<OfType> = types.into_values().collect();
    types.sort_by_key(|of| Reverse(of.count));
    types
}
