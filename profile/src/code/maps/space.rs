//! What a process has mapped where.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::common::Translation;

/// Mappings of a process and of the kernel that are kept: twice as many as Linux
/// lets a process have where nobody says otherwise (vm.max_map_count).
pub(super) const MOST_MAPPINGS: usize = 1 << 17;

/// One mapping of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) pgoff: u64,
    pub(super) file: usize,
}

/// Mappings by their first address; none overlap.
pub(super) type Mappings = BTreeMap<u64, Mapping>;

/// A process of one of the recordings that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// Which recording, counted from 0: a process number of one means nothing
    /// in another. 0 where samples do not say their process.
    pub recording: u32,
    /// Its number; `None` where samples do not say.
    pub pid: Option<u32>,
}

/// What a process had mapped for a while.
#[derive(Debug)]
pub(super) struct Space {
    /// Shared with the parent until either changes it.
    pub(super) mappings: Arc<Mappings>,
    pub(super) owner: Owner,
    /// Names of its generated code, if somebody left any.
    pub(super) generated: Option<usize>,
    /// Samples refer to it: it must not change its meaning.
    pub(super) used: bool,
    /// Where its samples may go otherwise; `None` until one has asked.
    pub(super) ways: Option<Vec<Translation>>,
    /// Its process has ended.
    pub(super) ended: bool,
    /// When something was heard of it last.
    pub(super) heard: u64,
    /// The symbols that numbers in it stand for, by recording.
    pub(super) named: Option<usize>,
}

impl Space {
    pub(super) fn new(owner: Owner, mappings: Arc<Mappings>) -> Space {
        Space {
            mappings,
            owner,
            generated: None,
            used: false,
            ways: None,
            ended: false,
            heard: 0,
            named: None,
        }
    }
}

/// The mapping that an address lies in.
pub(super) fn covering(mappings: &Mappings, addr: u64) -> Option<&Mapping> {
    let (_, map) = mappings.range(..=addr).next_back()?;
    (addr - map.start < map.len).then_some(map)
}

/// The mappings that a new one overlaps.
pub(super) fn overlapped(mappings: &Mappings, new: &Mapping) -> Vec<Mapping> {
    let end = new.start.saturating_add(new.len);
    mappings
        .range(..end)
        .rev()
        .map(|(_, mapping)| *mapping)
        .take_while(|mapping| mapping.start.saturating_add(mapping.len) > new.start)
        .collect()
}

/// Adds a mapping; of those that it overlaps stays what is outside.
pub(super) fn put(mappings: &mut Mappings, new: Mapping) {
    let end = new.start.saturating_add(new.len);
    for old in overlapped(mappings, &new) {
        mappings.remove(&old.start);
        let old_end = old.start.saturating_add(old.len);
        if old.start < new.start {
            mappings.insert(old.start, Mapping { len: new.start - old.start, ..old });
        }
        if old_end > end {
            let moved = end - old.start;
            let pgoff = old.pgoff.wrapping_add(moved);
            mappings.insert(end, Mapping { start: end, len: old_end - end, pgoff, ..old });
        }
    }
    mappings.insert(new.start, new);
}

/// Adds a mapping, unless there are too many, or it is of a file too many: what it
/// overlaps is then gone all the same.
pub(super) fn put_if_few(mappings: &mut Mappings, new: Mapping) -> bool {
    if mappings.len() < MOST_MAPPINGS && new.file != usize::MAX {
        put(mappings, new);
        return true;
    }
    for old in overlapped(mappings, &new) {
        mappings.remove(&old.start);
    }
    false
}
