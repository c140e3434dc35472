//! Counting branches and the straight code between them.

use super::blocks::{Decoding, Inside, Insides};
use super::edges::Repeated;
use super::sites::{SiteSlot, Sites};
use super::transitions::{Key, NONE, TransitionSlot, Transitions};
use crate::clean::table::{Keyed, Table};
use crate::clean::{Cleaned, Transition, add};
use crate::code::maps::Maps;
use crate::code::straight::{self, Straight};
use crate::index;

pub(super) type Space = u32;

/// The site of an address that was recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
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

/// Counts what branches did, and the straight code between them.
#[derive(Debug, Default)]
pub struct FlowCounts {
    /// Nobody asks for the sites: nothing is counted by branch, only which
    /// there are.
    pub(super) no_sites: bool,
    /// Nobody asks what each stack has of a branch.
    no_clusters: bool,
    pub(super) transitions: Transitions,
    pub(super) insides: Insides,
    pub(super) names: Table<Name>,
    pub(super) sites: Sites,
    pub(super) repeated: Repeated,
    /// Hash and number of the transitions of a stack.
    found: Vec<(u32, u32)>,
}

impl FlowCounts {
    /// For those who ask for branches alone: blocks are not kept, and take less
    /// than half of the memory. What they say about branches stays.
    pub(crate) fn without_blocks() -> FlowCounts {
        FlowCounts { transitions: Transitions::without_cycles(), ..FlowCounts::default() }
    }

    /// For those who ask for blocks alone: the flow will have no sites.
    pub(crate) fn without_sites() -> FlowCounts {
        FlowCounts { no_sites: true, no_clusters: true, ..FlowCounts::default() }
    }

    /// Without blocks, and for those who do not ask how sure the ratios of
    /// branches are: each branch counts as if it had a stack of its own.
    pub(crate) fn without_clusters() -> FlowCounts {
        FlowCounts { no_clusters: true, ..FlowCounts::without_blocks() }
    }

    /// Counts a stack.
    pub(crate) fn add(&mut self, stack: &Cleaned<'_>, maps: &mut Maps) {
        let (space, weight) = (stack.space, stack.weight);
        let mut found = std::mem::take(&mut self.found);
        let keys = stack.transitions.iter().map(|step| Key::of(space, step));
        self.transitions.look_up(keys, &mut found);
        let clusters = !self.no_clusters;
        if clusters {
            let site = |number| self.transitions.list.get(number).map_or(NONE, |slot| slot.site);
            let touch = |number| self.sites.touch(site(number));
            std::hint::black_box(found.iter().fold(0, |all, (_, number)| all ^ touch(*number)));
            self.sites.begin();
        }
        let mut again = false;
        for (step, (hash, number)) in stack.transitions.iter().zip(&mut found) {
            let key = Key::of(space, step);
            let known = self.transitions.find_near(*number, *hash, &key);
            *number = known.or_else(|| self.new_transition(key, step, maps)).unwrap_or(NONE);
            let Transitions { list, cycles, .. } = &mut self.transitions;
            let Some(slot) = list.get_mut(*number) else { continue };
            let flags = step.branch.flags;
            slot.run(flags, weight);
            if step.cycles != 0
                && let Some(cycles) = cycles.as_mut().and_then(|cycles| cycles.get_mut(*number))
            {
                cycles.add(step.cycles, weight);
            }
            if !slot.typed
                && let Some(recorded) = flags.branch_type()
            {
                slot.typed = true;
                if let Some(site) = self.sites.slots.get_mut(slot.site as usize) {
                    site.recorded.get_or_insert(recorded);
                }
            }
            if clusters {
                again |= self.sites.visit(slot.site);
                for inside in self.insides.of(slot.insides) {
                    again |= self.sites.visit(inside.site);
                }
            }
        }
        if again {
            self.add_repeated(stack, &found);
        }
        self.found = found;
    }

    /// Adds up how a stack that has a branch more than once differs from one for
    /// each.
    fn add_repeated(&mut self, stack: &Cleaned<'_>, found: &[(u32, u32)]) {
        for (step, (_, number)) in stack.transitions.iter().zip(found) {
            let Some(slot) = self.transitions.list.get(*number) else { continue };
            for inside in self.insides.of(slot.insides) {
                self.sites.pass(inside.site);
            }
            self.sites.take(slot.site, slot.is_settled(), step.branch.flags);
            self.repeated.take(slot.edge, slot.site);
        }
        self.repeated.settle(stack.weight, &mut self.sites);
        self.sites.settle(stack.weight);
    }

    /// Visits branches with their spaces, their addresses and how often they
    /// were taken, some of them more than once.
    pub(crate) fn each_branch(&self, mut visit: impl FnMut(Space, u64, u64)) {
        for slot in self.transitions.list.iter().filter(|slot| slot.edge != NONE) {
            let (from, _, space) = slot.key.branch();
            visit(space, from, slot.count);
        }
    }

    /// Counts straight code whose branches are counted elsewhere.
    pub(crate) fn add_straight(&mut self, block: (u64, u32, Space), weight: u64, maps: &mut Maps) {
        let key = Key::straight(block);
        let known = self.transitions.find(&key);
        let number = known.or_else(|| {
            let (kind, insides) = self.decoded(block, maps)?;
            let (entry, len, space) = block;
            let exit = entry.wrapping_add(u64::from(len));
            let runs = kind == Decoding::Runs;
            let site = if runs { self.site(space, exit, None, maps)? } else { NONE };
            let slot =
                TransitionSlot { key, edge: NONE, site, insides, kind, ..Default::default() };
            self.transitions.push(slot)
        });
        let slot = number.and_then(|number| self.transitions.list.get_mut(number));
        slot.into_iter().for_each(|slot| add(&mut slot.count, weight));
    }

    /// A branch that was not seen yet behind this block. `None` where there are
    /// more than numbers.
    #[cold]
    fn new_transition(&mut self, key: Key, step: &Transition, maps: &mut Maps) -> Option<u32> {
        let (kind, insides) = match key.block() {
            Some(block) => self.decoded(block, maps)?,
            None => (Decoding::NoCode, 0),
        };
        let branch = (step.branch.from, step.branch.to, key.space);
        let (edge, site) = match self.transitions.with_branch(branch) {
            Some(edge) => (edge, self.transitions.list.get(edge)?.site),
            None => {
                let site = self.site(key.space, step.branch.from, Some(step.branch.to), maps)?;
                (self.transitions.next()?, site)
            }
        };
        let slot = TransitionSlot { key, edge, site, insides, kind, ..Default::default() };
        self.transitions.push(slot)
    }

    /// The site of an address. A record of a fused compare and branch is of
    /// the branch. `None` where there are more than numbers.
    fn site(&mut self, space: Space, from: u64, to: Option<u64>, maps: &mut Maps) -> Option<u32> {
        if let Some(site) = self.known_site(space, from) {
            return Some(site);
        }
        let location = maps.locate(space as usize, from);
        let (code, branch) = straight::branch_at(maps, location, from, to.unwrap_or(from));
        let at = branch.map_or(from, |branch| branch.ip);
        let site = match self.known_site(space, at) {
            Some(site) => site,
            None => {
                let site = u32::try_from(self.sites.slots.len()).ok()?;
                let decoded = branch.map(|branch| branch.branch_type);
                self.sites.push(SiteSlot::new(at, space, code, decoded));
                self.names.push(Name { space, addr: at, site })?;
                site
            }
        };
        if at != from {
            self.names.push(Name { space, addr: from, site })?;
        }
        Some(site)
    }

    fn known_site(&self, space: Space, addr: u64) -> Option<u32> {
        let key = (space, addr);
        let number = self.names.find(Name::hash(key), key)?;
        self.names.get(number).map(|name| name.site)
    }

    /// What the code bytes say about a block, and what is inside; `None` where
    /// there are more than numbers.
    fn decoded(&mut self, block: (u64, u32, Space), maps: &mut Maps) -> Option<(Decoding, u32)> {
        if let Some(slot) = self.transitions.with_block(block) {
            return Some((slot.kind, slot.insides));
        }
        let (entry, len, space) = block;
        let exit = entry.wrapping_add(u64::from(len));
        Some(match straight::decode(maps, space as usize, entry, exit) {
            Straight::Runs(passed) => {
                let mut inside = Vec::with_capacity(passed.len());
                for passed in passed {
                    let site = self.site(space, passed.from, None, maps)?;
                    let len = passed.next.wrapping_sub(passed.from) as u32;
                    inside.push(Inside { site, len });
                }
                (Decoding::Runs, self.insides.push(&inside)?)
            }
            Straight::NoCode => (Decoding::NoCode, 0),
            Straight::Contradicts => (Decoding::Contradicts, 0),
        })
    }
}
