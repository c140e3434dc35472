//! The mappings of each process, its current address space, and limits on their number.

use super::Maps;
use super::files::{FileKind, MappedFile};
use super::tree::{Mapping, Mappings};
use crate::code::symbols::jit_list;

/// Maximum number of mappings of a process or the kernel: twice Linux's default limit
/// (vm.max_map_count).
pub(super) const MOST_MAPPINGS: usize = 1 << 17;

/// A process of one of the recordings that are counted together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The recording, from 0: a process number has no meaning in another one. 0 if samples lack the
    /// process.
    pub recording: u32,
    /// Its number; `None` if samples lack it.
    pub pid: Option<u32>,
}

/// The mappings of a process over an interval of time.
#[derive(Debug, Default)]
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
        let old_end = old.start.saturating_add(old.len);
        if old.start < new.start {
            mappings.insert(Mapping { len: new.start - old.start, ..old });
        } else {
            mappings.remove(old.start);
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

/// Number of ended processes whose mappings are kept, because records of different CPUs are not
/// exactly in order.
const ENDED: usize = 4096;
/// Maximum number of known processes, and of all their mappings.
const MOST_PROCESSES: usize = 1 << 16;
const MOST_HELD: usize = 1 << 20;

impl Maps {
    /// If there are too many processes, discards the least recently active quarter.
    pub(super) fn forget_some(&mut self) {
        if self.current.len() <= MOST_PROCESSES {
            if self.held <= MOST_HELD {
                return;
            }
            // Processes that ended since the last count hold nothing.
            self.count_held();
            if self.held <= MOST_HELD / 4 * 3 {
                return;
            }
        }
        let of =
            |(pid, at): (&Option<u32>, &usize)| Some((self.spaces.get(*at)?.heard, (*pid)?, *at));
        let mut heard: Vec<(u64, u32, usize)> = self.current.iter().filter_map(of).collect();
        let quarter = heard.len() / 4;
        if quarter == 0 {
            return;
        }
        heard.select_nth_unstable(quarter);
        for (_, pid, at) in heard.drain(..quarter) {
            self.current.remove(&Some(pid));
            let Some(space) = self.spaces.get_mut(at) else { continue };
            self.unkept.processes += u64::from(!space.ended && space.mappings.len() > 0);
            if !space.used {
                *space = Space { owner: space.owner, ..Space::default() };
                self.free.push(at);
            }
        }
        self.count_held();
    }

    /// Counts the mappings of the current processes; shared ones once.
    fn count_held(&mut self) {
        let each = self.current.values().filter_map(|at| self.spaces.get(*at));
        let each = each.map(|space| &space.mappings);
        self.held = each.map(|mappings| mappings.len() / mappings.sharers()).sum();
    }

    /// A process has ended. Its number may be reused.
    pub(super) fn end(&mut self, pid: u32) {
        let Some(&index) = self.current.get(&Some(pid)) else { return };
        let Some(space) = self.spaces.get_mut(index).filter(|space| !space.ended) else { return };
        space.ended = true;
        self.ended.push_back((pid, index));
        if self.ended.len() <= ENDED {
            return;
        }
        let Some((pid, index)) = self.ended.pop_front() else { return };
        // It may have been discarded, and belong to another process.
        let free = |space: &&mut Space| !space.used && space.ended && space.owner.pid == Some(pid);
        let Some(space) = self.spaces.get_mut(index).filter(free) else { return };
        *space = Space { owner: space.owner, ..Space::default() };
        if self.current.get(&Some(pid)) == Some(&index) {
            self.current.remove(&Some(pid));
        }
        self.free.push(index);
    }

    /// The current address space of a process, for a sample. Text samples may lack the process:
    /// they share one space, which has every mapping.
    pub fn space(&mut self, pid: Option<u32>) -> usize {
        let space = self.current_space(pid);
        self.spaces[space].used = true;
        space
    }

    /// The current state of a process, if known.
    pub(super) fn process(&self, pid: u32) -> Option<&Space> {
        self.current.get(&Some(pid)).and_then(|&space| self.spaces.get(space))
    }

    pub(super) fn current_space(&mut self, pid: Option<u32>) -> usize {
        match self.current.get(&pid) {
            Some(&at) => {
                self.clock += 1;
                self.spaces[at].heard = self.clock;
                at
            }
            None if pid.is_some() => self.add_space(pid, Mappings::default()),
            None => {
                let mut all = Mappings::default();
                let ours = |space: &&Space| {
                    let Owner { recording, pid } = space.owner;
                    pid.is_some() && recording == self.recording && !space.replaced
                };
                for space in self.spaces.iter().filter(ours) {
                    space.mappings.values().for_each(|map| put(&mut all, *map));
                }
                self.add_space(None, all)
            }
        }
    }

    pub(super) fn add_space(&mut self, pid: Option<u32>, mappings: Mappings) -> usize {
        // Without processes, equal numbers are the only identification.
        let recording = if pid.is_some() { self.recording } else { 0 };
        let owner = Owner { recording, pid };
        let generated = pid.and_then(|pid| self.generated(pid));
        let named = self.named.current();
        self.forget_some();
        self.clock += 1;
        let heard = self.clock;
        let new = Space { owner, mappings, generated, named, heard, ..Space::default() };
        let space = self.free.pop().unwrap_or(self.spaces.len());
        match self.spaces.get_mut(space) {
            Some(free) => *free = new,
            None => self.spaces.push(new),
        }
        self.current.insert(pid, space);
        space
    }

    /// The symbol list of a process's generated code.
    fn generated(&mut self, pid: u32) -> Option<usize> {
        let list = jit_list(&self.sources.jit, pid)?;
        if let Some(known) = self.process(pid).and_then(|space| space.generated) {
            return Some(known);
        }
        let path = format!("[JIT] tid {pid}");
        self.files.push(MappedFile::new(path, None, FileKind::Jit { list }));
        Some(self.files.len() - 1)
    }
}
