//! A common address layout for many processes.
//!
//! Every process maps its files at other addresses, and branches are counted by address. A
//! recording of a whole machine can have any number of processes, so branches of later processes
//! are moved to where an earlier process had the same files, and counted together. Memory then
//! grows with the executed code, not with the number of processes.

use std::collections::HashMap;

use lbr_msr::record::Head;

use super::{KERNEL, Mapping, Maps, Owner, Space, covering, overlapped};
use crate::read::names;
use crate::read::note::Source;
use crate::read::stack::{Entries, RawBranch, SampleHead};

/// Maximum number of layouts. A new one starts if a process conflicts with all others: programs
/// that are not position-independent have the same addresses.
const LAYOUTS: usize = 256;

/// Maximum total number of parts of files in them.
const PARTS: usize = 1 << 17;

/// Bytes of a file: file, first byte, length.
type Part = (usize, u64, u64);

/// The layouts of a recording.
#[derive(Debug, Default)]
pub(super) struct Common {
    /// The first is the space of the first process, which keeps its addresses.
    /// Others are moved into it where it has all that they use; nothing is added
    /// to it, because the meaning of its addresses outside of files is unknown.
    layouts: Vec<Layout>,
    /// Parts of all layouts that were added.
    parts: usize,
    /// The process seen last, if it keeps its addresses, and its space.
    pub(super) last: Option<(Option<u32>, usize)>,
}

/// The files of many processes.
#[derive(Debug)]
struct Layout {
    /// The address space that has its mappings.
    space: usize,
    /// Where each part is; in the first layout another mapping may have replaced it.
    parts: HashMap<Part, u64>,
}

impl Layout {
    /// What to add to addresses of a mapping to have them in the layout.
    fn shift(&self, map: &Mapping, spaces: &[Space]) -> Option<u64> {
        let start = *self.parts.get(&part(map))?;
        let there = covering(&spaces.get(self.space)?.mappings, start)?;
        (there.start == start && part(there) == part(map)).then(|| start.wrapping_sub(map.start))
    }

    fn has_room(&self, map: &Mapping, spaces: &[Space]) -> bool {
        let space = spaces.get(self.space);
        space.is_some_and(|space| overlapped(&space.mappings, map).next().is_none())
    }
}

impl Common {
    /// The first process has mapped something more.
    pub(super) fn mapped(&mut self, space: usize, map: &Mapping) {
        if let Some(first) = self.layouts.first_mut().filter(|first| first.space == space) {
            first.parts.insert(part(map), map.start);
        }
    }
}

impl Maps {
    /// The address space in which a stack is counted, its entries there, and whether they were
    /// moved (into `room`).
    pub(crate) fn settle<'a>(
        &mut self,
        head: &SampleHead,
        entries: Entries<'a>,
        room: &'a mut Vec<RawBranch>,
    ) -> (usize, Entries<'a>, bool) {
        room.clear();
        // Usually the process of the previous stack.
        let last = self.common.last.filter(|(pid, _)| *pid == head.pid);
        let space = last.map_or_else(|| self.current_space(head.pid), |(_, space)| space);
        self.gather_evidence(space, &entries);
        if last.is_some() {
            return (space, entries, false);
        }
        let used = self.spaces[space].used;
        // Our own recordings are followed from stack to stack at their original addresses.
        let alone = head.source == Source::Unsaid && head.integrity.head == Head::Unknown;
        if alone && !used && head.pid.is_some() {
            if self.common.layouts.is_empty() {
                self.begin_layouts(space);
            } else if let Some(layout) = self.translate(space, &entries, room) {
                return (layout, Entries::Parsed(room), true);
            }
        }
        self.spaces[space].used = true;
        self.common.last = Some((head.pid, space));
        (space, entries, false)
    }

    fn begin_layouts(&mut self, first: usize) {
        let all = self.spaces[first].mappings.values();
        let parts = all.map(|map| (part(map), map.start)).collect();
        self.common.layouts.push(Layout { space: first, parts });
    }

    /// Writes the entries as they would be in a layout into an empty list and
    /// returns the layout's space. `None` if an address is in no file, or if no
    /// layout has room: the list is empty then.
    fn translate(
        &mut self,
        space: usize,
        entries: &Entries<'_>,
        into: &mut Vec<RawBranch>,
    ) -> Option<usize> {
        let mappings = self.mappings_of(space, entries)?;
        let at = self.layout(space, &mappings)?;
        let layout = self.common.layouts.get(at)?;
        let shifts: Option<Vec<(Mapping, u64)>> =
            mappings.iter().map(|map| Some((*map, layout.shift(map, &self.spaces)?))).collect();
        let shifts = shifts?;
        let moved = |addr: u64| {
            let of = shifts.iter().find(|(map, _)| addr.wrapping_sub(map.start) < map.len);
            of.map_or(addr, |(_, shift)| addr.wrapping_add(*shift))
        };
        entries.for_each(|branch| {
            let (from, to) = (moved(branch.from), moved(branch.to));
            into.push(RawBranch { from, to, ..branch });
        });
        Some(layout.space)
    }

    /// The mappings that the addresses of a stack are in; `None` if one is in no
    /// file, or if two map the same part, which has one place in a layout. The
    /// kernel's addresses are everybody's, and so are names.
    fn mappings_of(&self, space: usize, entries: &Entries<'_>) -> Option<Vec<Mapping>> {
        let has_names = self.named.current().is_some();
        let space = self.spaces.get(space)?;
        let mut found: Vec<Mapping> = Vec::new();
        let mut all = true;
        let mut add = |addr: u64| {
            let known = |map: &Mapping| addr.wrapping_sub(map.start) < map.len;
            if addr >= KERNEL || has_names && names::is_name(addr) || found.iter().any(known) {
                return true;
            }
            let again = |map: &Mapping| found.iter().any(|other| part(other) == part(map));
            let map = covering(&space.mappings, addr);
            let map = map.filter(|map| self.is_shared(map.file) && !again(map));
            found.extend(map);
            map.is_some()
        };
        entries.for_each(|branch| {
            all = all && (branch.is_empty() || add(branch.from) && add(branch.to));
        });
        all.then_some(found)
    }

    /// The number of a layout that has these mappings, to which they are added if
    /// there is room: the first, the one of this process's last stack, or another.
    fn layout(&mut self, space: usize, mappings: &[Mapping]) -> Option<usize> {
        let (spaces, common) = (&self.spaces, &self.common);
        let may_grow = common.parts + mappings.len() <= PARTS;
        let fits = |at: usize| {
            let layout = common.layouts.get(at)?;
            let fits = mappings.iter().all(|map| {
                layout.shift(map, spaces).is_some()
                    || at > 0 && may_grow && layout.has_room(map, spaces)
            });
            fits.then_some(at)
        };
        let last = spaces.get(space)?.layout;
        let known = fits(0).or_else(|| fits(last));
        let at = match known.or_else(|| (1..common.layouts.len()).find_map(fits)) {
            Some(at) => at,
            None if may_grow && common.layouts.len() <= LAYOUTS => self.new_layout(),
            None => return None,
        };
        self.spaces.get_mut(space)?.layout = at;
        let layout = self.common.layouts.get_mut(at)?;
        for map in mappings {
            if layout.shift(map, &self.spaces).is_none() {
                layout.parts.insert(part(map), map.start);
                self.common.parts += 1;
                self.spaces.get_mut(layout.space)?.mappings.insert(*map);
            }
        }
        Some(at)
    }

    fn new_layout(&mut self) -> usize {
        let owner = Owner { recording: self.recording, pid: None };
        let named = self.named.current();
        let space = Space { owner, used: true, named, ..Space::default() };
        self.spaces.push(space);
        let space = self.spaces.len() - 1;
        self.common.layouts.push(Layout { space, parts: HashMap::new() });
        self.common.layouts.len() - 1
    }
}

fn part(map: &Mapping) -> Part {
    (map.file, map.pgoff, map.len)
}
