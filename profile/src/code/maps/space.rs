//! The mappings of a process.

use super::tree::{Mapping, Mappings};

/// Maximum number of mappings of a process or the kernel: twice Linux's default limit
/// (vm.max_map_count).
pub(super) const MOST_MAPPINGS: usize = 1 << 17;

/// A process of one of the recordings that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The recording, from 0: a process number has no meaning in another one. 0 if samples lack the
    /// process.
    pub recording: u32,
    /// Its number; `None` if samples lack it.
    pub pid: Option<u32>,
}

/// The mappings of a process over an interval of time.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) mappings: Mappings,
    pub(super) owner: Owner,
    /// The symbol list of its generated code, if any.
    pub(super) generated: Option<usize>,
    /// Whether samples refer to it, so that it must not change.
    pub(super) used: bool,
    /// The layout that its last sample went to, by number.
    pub(super) layout: usize,
    /// The same process has a later space, with all that this one has elsewhere.
    pub(super) replaced: bool,
    /// Its process has ended.
    pub(super) ended: bool,
    /// When the last event about it arrived.
    pub(super) heard: u64,
    /// The table of symbols for its numbers.
    pub(super) named: Option<usize>,
}

impl Space {
    pub(super) fn new(owner: Owner, mappings: Mappings) -> Space {
        Space {
            mappings,
            owner,
            generated: None,
            used: false,
            layout: 0,
            replaced: false,
            ended: false,
            heard: 0,
            named: None,
        }
    }
}

/// The mapping that contains an address.
pub(super) fn covering(mappings: &Mappings, addr: u64) -> Option<&Mapping> {
    mappings.last_from(addr).filter(|map| addr - map.start < map.len)
}

/// The mappings that a new one overlaps, the last first.
pub(super) fn overlapped<'a>(
    mappings: &'a Mappings,
    new: &Mapping,
) -> impl Iterator<Item = Mapping> + use<'a> {
    let (start, mut before) = (new.start, new.start.saturating_add(new.len).checked_sub(1));
    std::iter::from_fn(move || {
        let old = mappings.last_from(before?)?;
        before = old.start.checked_sub(1);
        (old.start.saturating_add(old.len) > start).then_some(*old)
    })
}

/// Adds a mapping; overlapped ones keep their parts outside.
pub(super) fn put(mappings: &mut Mappings, new: Mapping) {
    let end = new.start.saturating_add(new.len);
    let all: Vec<Mapping> = overlapped(mappings, &new).collect();
    for old in all {
        mappings.remove(old.start);
        let old_end = old.start.saturating_add(old.len);
        if old.start < new.start {
            mappings.insert(Mapping { len: new.start - old.start, ..old });
        }
        if old_end > end {
            let moved = end - old.start;
            let pgoff = old.pgoff.wrapping_add(moved);
            mappings.insert(Mapping { start: end, len: old_end - end, pgoff, ..old });
        }
    }
    mappings.insert(new);
}

/// Adds a mapping, unless there are too many, or its file is beyond the maximum; overlapped parts
/// are removed in any case.
pub(super) fn put_if_few(mappings: &mut Mappings, new: Mapping) -> bool {
    if mappings.len() < MOST_MAPPINGS && new.file != usize::MAX {
        put(mappings, new);
        return true;
    }
    let all: Vec<Mapping> = overlapped(mappings, &new).collect();
    all.iter().for_each(|old| mappings.remove(old.start));
    false
}
