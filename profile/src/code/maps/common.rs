//! One layout for many processes.
//!
//! Every process has the files that it runs at other addresses, and a branch
//! is counted by its addresses. A recording of a whole machine can have any
//! number of processes: branches of all but the first are moved to where an
//! earlier process had the same files, and so counted with its own. What grows
//! is then the code that ran, not the number of those who ran it.

use std::collections::HashMap;
use std::sync::Arc;

use lbr_msr::record::Head;

use super::{KERNEL, Mapping, Maps, Owner, Space, overlapped};
use crate::read::names;
use crate::read::note::Source;
use crate::read::stack::{Entries, RawBranch, SampleHead};

/// Layouts at most. Another is begun where a process has something where all
/// others have something else: programs that are not position-independent lie
/// at the same address.
const LAYOUTS: usize = 256;

/// Parts of files that all of them have at most.
const PARTS: usize = 1 << 17;

/// The same bytes of the same file: file, first byte, length.
type Part = (usize, u64, u64);

/// The layouts of a recording.
#[derive(Debug, Default)]
pub(super) struct Common {
    /// The space of the first process, which keeps its addresses. Others are
    /// moved into it where it has all that they use; nothing is added to it,
    /// because what it has in no file nobody knows.
    first: Option<usize>,
    layouts: Vec<Layout>,
    /// The process seen last, if it keeps its addresses, and its space.
    pub(super) last: Option<(Option<u32>, usize)>,
}

/// Files of many processes.
#[derive(Debug)]
struct Layout {
    /// The address space that stands for it.
    space: usize,
    /// What lies where.
    parts: HashMap<Part, u64>,
}

/// The way of a process's branches into another space.
#[derive(Debug)]
pub(super) struct Translation {
    space: usize,
    /// First address, length, and what is added to the addresses; sorted.
    shifts: Box<[(u64, u64, u64)]>,
    /// Numbers may stand for names.
    has_names: bool,
}

impl Translation {
    fn address(&self, addr: u64, last: &mut usize) -> Option<u64> {
        // The kernel is everybody's, and so are names.
        if addr >= KERNEL || self.has_names && names::is_name(addr) {
            return Some(addr);
        }
        let inside = |at: usize| {
            let (start, len, shift) = *self.shifts.get(at)?;
            (addr.wrapping_sub(start) < len).then(|| addr.wrapping_add(shift))
        };
        // Mostly the file of the address before.
        inside(*last).or_else(|| {
            let after = self.shifts.partition_point(|(start, ..)| *start <= addr);
            *last = after.checked_sub(1)?;
            inside(*last)
        })
    }

    /// The entries as they would be in the layout, into an empty list; `false`,
    /// and none, where an address lies in no file that is there.
    fn entries(&self, entries: &Entries<'_>, into: &mut Vec<RawBranch>) -> bool {
        let mut last = 0;
        let mut all = true;
        entries.for_each(|branch| {
            if branch.is_empty() {
                into.push(branch);
                return;
            }
            let ends = (self.address(branch.from, &mut last), self.address(branch.to, &mut last));
            match ends {
                (Some(from), Some(to)) => into.push(RawBranch { from, to, ..branch }),
                _ => all = false,
            }
        });
        if !all {
            into.clear();
        }
        all
    }
}

impl Maps {
    /// The address space that a stack is counted in, its entries there, and
    /// whether those are at other addresses than recorded, for which `room` is.
    pub(crate) fn settle<'a>(
        &mut self,
        head: &SampleHead,
        entries: Entries<'a>,
        room: &'a mut Vec<RawBranch>,
    ) -> (usize, Entries<'a>, bool) {
        room.clear();
        // Mostly the process of the stack before.
        let last = self.common.last.filter(|(pid, _)| *pid == head.pid);
        let space = last.map_or_else(|| self.current_space(head.pid), |(_, space)| space);
        self.gather_evidence(space, &entries);
        if last.is_some() {
            return (space, entries, false);
        }
        let used = self.spaces.get(space).is_none_or(|space| space.used);
        // Ours are followed from stack to stack, at the addresses that they have.
        let alone = head.source == Source::Unsaid && head.integrity.head == Head::Unknown;
        if alone && !used && head.pid.is_some() {
            match self.common.first {
                None => self.common.first = Some(space),
                Some(first) => {
                    for way in self.ways(space, first) {
                        if way.entries(&entries, room) {
                            return (way.space, Entries::Parsed(room), true);
                        }
                    }
                }
            }
        }
        if let Some(space) = self.spaces.get_mut(space) {
            space.used = true;
        }
        self.common.last = Some((head.pid, space));
        (space, entries, false)
    }

    /// Where the branches of a process may go, the first choice first.
    fn ways(&mut self, index: usize, first: usize) -> &[Translation] {
        let known = |space: &Space| space.ways.is_some();
        if !self.spaces.get(index).is_some_and(known) {
            let mappings = |index| {
                let space: Option<&Space> = self.spaces.get(index);
                let all = space.into_iter().flat_map(|space| space.mappings.values());
                all.filter(|map| self.is_shared(map.file)).copied().collect::<Vec<Mapping>>()
            };
            let ours = mappings(index);
            let theirs = mappings(first).iter().map(|map| (part(map), map.start)).collect();
            let has_names = self.named.current().is_some();
            let mut ways = vec![way(&ours, &Layout { space: first, parts: theirs }, has_names)];
            ways.extend(self.layout(&ours).map(|layout| way(&ours, layout, has_names)));
            if let Some(space) = self.spaces.get_mut(index) {
                space.ways = Some(ways);
            }
        }
        self.spaces.get(index).and_then(|space| space.ways.as_deref()).unwrap_or_default()
    }

    /// A layout that has room for all of these mappings, which it has then.
    /// `None` where there is none, and cannot be another.
    fn layout(&mut self, mappings: &[Mapping]) -> Option<&Layout> {
        let spaces = &self.spaces;
        let room = |layout: &Layout| {
            let Some(space) = spaces.get(layout.space) else { return false };
            mappings.iter().all(|map| {
                layout.parts.contains_key(&part(map)) || overlapped(&space.mappings, map).is_empty()
            })
        };
        let parts: usize = self.common.layouts.iter().map(|layout| layout.parts.len()).sum();
        if parts + mappings.len() > PARTS {
            return None;
        }
        let known = self.common.layouts.iter().position(room);
        let at = match known {
            Some(at) => at,
            None if self.common.layouts.len() < LAYOUTS => {
                let owner = Owner { recording: self.recording, pid: None };
                let named = self.named.current();
                self.spaces.push(Space { used: true, named, ..Space::new(owner, Arc::default()) });
                let space = self.spaces.len() - 1;
                self.common.layouts.push(Layout { space, parts: HashMap::new() });
                self.common.layouts.len() - 1
            }
            None => return None,
        };
        let layout = self.common.layouts.get_mut(at)?;
        let space = self.spaces.get_mut(layout.space)?;
        let lying = Arc::make_mut(&mut space.mappings);
        for map in mappings {
            layout.parts.entry(part(map)).or_insert_with(|| {
                lying.insert(map.start, *map);
                map.start
            });
        }
        Some(layout)
    }
}

/// From the addresses of these mappings to those in a layout, as far as it has
/// them.
fn way(ours: &[Mapping], layout: &Layout, has_names: bool) -> Translation {
    let shifts = ours.iter().filter_map(|map| {
        let start = layout.parts.get(&part(map))?;
        Some((map.start, map.len, start.wrapping_sub(map.start)))
    });
    Translation { space: layout.space, shifts: shifts.collect(), has_names }
}

fn part(map: &Mapping) -> Part {
    (map.file, map.pgoff, map.len)
}
