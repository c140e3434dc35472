//! Code bytes of transitions: how their blocks run, and which branch each record belongs to.

use super::Space;
use super::sites::{SiteSlot, Sites};
use super::transitions::{NONE, Slots, TransitionKey, TransitionSlot};
use crate::clean::pieces::Pieces;
use crate::clean::table::{Keyed, Table};
use crate::code::maps::Maps;
use crate::code::straight::{self, Decoding, NotTaken};
use crate::index::{self, BATCH, Index, load_all};

/// A conditional branch inside a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inside {
    pub(super) passed: NotTaken,
    /// [`NONE`] if sites are not needed.
    pub(super) site: u32,
}

/// The conditional branches inside each block with any.
#[derive(Debug, Default)]
pub(super) struct Insides {
    all: Vec<Inside>,
    /// End index of each block's branches.
    ends: Vec<u32>,
}

impl Insides {
    /// The branches with this number.
    #[inline]
    pub(super) fn of(&self, number: u32) -> &[Inside] {
        let Some(at) = (number as usize).checked_sub(1) else { return &[] };
        let end = |at: usize| self.ends.get(at).map_or(0, |end| *end as usize);
        let start = at.checked_sub(1).map_or(0, end);
        self.all.get(start..end(at)).unwrap_or_default()
    }

    /// Adds the branches of a block. Returns their number: 0 if there are none or all numbers are
    /// in use.
    fn push(&mut self, inside: &[Inside]) -> u32 {
        let end = u32::try_from(self.all.len() + inside.len());
        let Some(end) = end.ok().filter(|_| !inside.is_empty()) else { return 0 };
        self.all.extend_from_slice(inside);
        self.ends.push(end);
        self.ends.len() as u32
    }
}

/// Data of a transition besides its counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Decoded {
    /// The first transition with this branch and target; [`NONE`] for a range without its branch.
    pub(super) edge: u32,
    /// The branch, or the end of the code; [`NONE`] if sites are not needed.
    pub(super) site: u32,
    /// The number of the conditional branches inside the block; 0 if there are none.
    pub(super) insides: u32,
    pub(super) kind: Decoding,
}

/// The site of a recorded address.
#[derive(Clone, Copy, Debug, Default)]
struct Name {
    space: Space,
    site: u32,
    addr: u64,
}

impl Keyed for Name {
    type Key = (Space, u64);

    fn key(&self) -> (Space, u64) {
        (self.space, self.addr)
    }

    fn hash((space, addr): (Space, u64)) -> u32 {
        index::hash(addr, 0, u64::from(space))
    }
}

/// Flag next to a site number, which is lower: the block contains branches.
pub(super) const HAS_INSIDES: u32 = 1 << 31;

/// Decodes the code of transitions.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// Whether sites are not needed.
    pub(super) no_sites: bool,
    /// By transition number.
    pub(super) list: Pieces<Decoded>,
    /// The part that each count needs, in compact form: the site, and whether there is a branch
    /// [inside](HAS_INSIDES).
    pub(super) asked: Vec<u32>,
    pub(super) insides: Insides,
    pub(super) sites: Sites,
    names: Table<Name>,
    /// The first transition of each branch and target.
    edges: Index,
    /// The hash and number of the transitions to process next.
    found: Vec<(u32, u32)>,
}

fn branch_hash((from, to, space): (u64, u64, Space)) -> u32 {
    index::hash(from, to, u64::from(space))
}

impl Decoder {
    /// Decodes all new transitions.
    pub(super) fn catch_up(&mut self, slots: &Slots, maps: &mut Maps) {
        while self.list.len() < slots.len() {
            let begin = self.list.len();
            let new = (begin..slots.len().min(begin + BATCH)).map(|number| number as u32);
            let branches = new.clone().filter_map(|number| Some(slots.get(number)?.key.branch()));
            self.edges.look_up(branches.clone().map(branch_hash), &mut self.found, |first| {
                let site = self.list.get(first).map_or(0, |first| u64::from(first.site));
                slots.get(first).map_or(0, |first| first.key.branch().1) ^ site
            });
            let name = |(from, _, space)| self.names.touch(Name::hash((space, from)));
            load_all(branches.map(name));
            new.for_each(|number| self.next(number, slots, maps));
        }
    }

    /// Decodes the next transition.
    fn next(&mut self, number: u32, slots: &Slots, maps: &mut Maps) {
        let Some(TransitionSlot { key, .. }) = slots.get(number) else { return };
        let (kind, insides) = match key.block() {
            Some(block) => self.block(block, key.is_ended(), maps),
            None => (Decoding::NoCode, 0),
        };
        let branch @ (from, to, space) = key.branch();
        let (mut edge, mut site) = (NONE, NONE);
        if key.has_branch() {
            let same = |key: &TransitionKey| key.has_branch() && key.branch() == branch;
            let is = |at: u32| slots.get(at).is_some_and(|slot| same(&slot.key));
            match self.edges.find(branch_hash(branch), is) {
                Some(first) => {
                    (edge, site) = (first, self.list.get(first).map_or(NONE, |first| first.site));
                }
                None => {
                    self.edges.insert(branch_hash(branch), number);
                    (edge, site) = (number, self.site(space, from, Some(to), maps));
                }
            }
        } else if kind == Decoding::Runs && !key.is_ended() {
            site = self.site(space, from, None, maps);
        }
        if !self.no_sites {
            self.asked.push(site & !HAS_INSIDES | if insides == 0 { 0 } else { HAS_INSIDES });
        }
        self.list.push(Decoded { edge, site, insides, kind });
    }

    /// Drops the hash tables: no more look-ups follow.
    pub(super) fn into_parts(self) -> (Pieces<Decoded>, Insides, Sites) {
        (self.list, self.insides, self.sites)
    }

    /// The site of an address. A record of a fused compare and branch belongs to the branch.
    pub(super) fn site(
        &mut self,
        space: Space,
        from: u64,
        to: Option<u64>,
        maps: &mut Maps,
    ) -> u32 {
        if self.no_sites {
            return NONE;
        }
        if let Some(site) = self.known_site(space, from) {
            return site;
        }
        let location = maps.locate(space as usize, from);
        let (code, branch) = straight::branch_at(maps, location, from, to.unwrap_or(from));
        let at = branch.map_or(from, |branch| branch.ip);
        let site = self.known_site(space, at).unwrap_or_else(|| {
            let decoded = branch.map(|branch| branch.branch_type);
            let site = self.sites.slots.len() as u32;
            let slot = SiteSlot { from: at, space, code, decoded, ..SiteSlot::default() };
            self.sites.slots.push(slot);
            self.names.push(Name { space, addr: at, site });
            site
        });
        if at != from {
            self.names.push(Name { space, addr: from, site });
        }
        site
    }

    fn known_site(&self, space: Space, addr: u64) -> Option<u32> {
        let key = (space, addr);
        let number = self.names.find(Name::hash(key), key)?;
        self.names.get(number).map(|name| name.site)
    }

    /// Decodes a block, and the branches inside it; `ended` as in [`straight::decode`].
    fn block(&mut self, block: (u64, u32, Space), ended: bool, maps: &mut Maps) -> (Decoding, u32) {
        let (entry, len, space) = block;
        let exit = entry.wrapping_add(u64::from(len));
        let mut passed = Vec::new();
        let kind = straight::decode(maps, space as usize, (entry, exit), ended, &mut passed);
        if kind != Decoding::Runs {
            return (kind, 0);
        }
        let inside = passed
            .into_iter()
            .map(|passed| Inside { passed, site: self.site(space, passed.from, None, maps) });
        let inside: Vec<Inside> = inside.collect();
        (kind, self.insides.push(&inside))
    }
}
