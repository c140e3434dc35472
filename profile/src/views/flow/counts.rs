//! Counting branches and the straight code between them.

use super::blocks::{BlockSlot, Blocks, Inside, Kind};
use super::edges::{EdgeSlot, Edges};
use super::sites::{SiteSlot, Sites};
use super::{BlockQuality, add};
use crate::clean::index;
use crate::clean::table::{Keyed, Table};
use crate::code::maps::Maps;
use crate::code::straight::{self, Straight};
use crate::read::stack::RawBranch;

pub(super) type Space = u32;

/// As many branches as the deepest ring has: looked up together.
const BATCH: usize = 32;

/// No straight code lies before a branch.
pub(super) const NO_BLOCK: u32 = u32::MAX;

/// A branch of the stack at hand on its way into the counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    pub(super) branch: RawBranch,
    /// Where the straight code before it begins, and its length or
    /// [`NO_BLOCK`].
    pub(super) entry: u64,
    pub(super) len: u32,
    /// The cycles of that code, 0 where they are not known.
    pub(super) cycles: u32,
    /// Where branch and code will most likely be counted.
    edge_hash: u32,
    edge: u32,
    block_hash: u32,
    block: u32,
}

impl Step {
    /// A branch without straight code before it.
    pub(super) fn of(branch: RawBranch) -> Step {
        Step { branch, len: NO_BLOCK, ..Step::default() }
    }
}

/// What became of the blocks of the stack at hand.
#[derive(Clone, Copy, Debug, Default)]
struct BlocksNow {
    ran: u64,
    without_code: u64,
    contradicted: u64,
}

/// The site of an address that was recorded.
#[derive(Clone, Copy, Debug)]
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

/// What was counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    names: Table<Name>,
    pub(super) sites: Sites,
    pub(super) edges: Edges,
    pub(super) blocks: Blocks,
}

impl Counts {
    /// For those who ask for branches alone.
    pub(super) fn without_blocks() -> Counts {
        Counts { blocks: Blocks::without_cycles(), ..Counts::default() }
    }

    /// Counts the steps of a stack.
    pub(super) fn stack(
        &mut self,
        space: Space,
        steps: &mut [Step],
        weight: u64,
        maps: &mut Maps,
        quality: &mut BlockQuality,
    ) {
        let renumbered = self.sites.begin();
        self.edges.begin(renumbered);
        let mut now = BlocksNow::default();
        for steps in steps.chunks_mut(BATCH) {
            self.look_up(space, steps);
            for step in steps {
                let settled =
                    step.len != NO_BLOCK && self.block(space, step, weight, maps, &mut now);
                self.branch(space, step, settled, weight, maps);
            }
        }
        self.edges.settle(weight, &self.sites);
        self.sites.settle(weight);
        add(&mut quality.blocks, now.ran.saturating_mul(weight));
        add(&mut quality.without_code, now.without_code.saturating_mul(weight));
        add(&mut quality.contradicted, now.contradicted.saturating_mul(weight));
    }

    /// Where steps will most likely be counted. What is there is fetched, all
    /// of it side by side: one after the other, each step would wait for its
    /// own.
    #[inline]
    fn look_up(&self, space: Space, steps: &mut [Step]) {
        let (edges, blocks) = (&self.edges.table, &self.blocks.table);
        let mut places = 0;
        for step in &mut *steps {
            step.edge_hash = EdgeSlot::hash((step.branch.from, step.branch.to, space));
            step.block_hash = BlockSlot::hash((step.entry, step.len, space));
            places ^= edges.touch(step.edge_hash) ^ blocks.touch(step.block_hash);
        }
        std::hint::black_box(places);
        for step in &mut *steps {
            step.edge = edges.guess(step.edge_hash);
            step.block =
                if step.len == NO_BLOCK { NO_BLOCK } else { blocks.guess(step.block_hash) };
        }
        let touch = |step: &Step| self.edges.site(step.edge) ^ self.blocks.touch(step.block);
        std::hint::black_box(steps.iter().fold(0, |all, step| all ^ touch(step)));
        let touch = |step: &Step| {
            let first = self.blocks.inside(step.block).first();
            let passed = first.map_or(0, |inside| self.sites.touch(inside.site));
            self.sites.touch(self.edges.site(step.edge)) ^ passed
        };
        std::hint::black_box(steps.iter().fold(0, |all, step| all ^ touch(step)));
    }

    /// A taken branch.
    #[inline]
    fn branch(&mut self, space: Space, step: &Step, settled: bool, weight: u64, maps: &mut Maps) {
        let branch = step.branch;
        let key = (branch.from, branch.to, space);
        let found = self.edges.table.find_near(step.edge, step.edge_hash, key);
        let Some(edge) = found.or_else(|| self.new_edge(space, branch, maps)) else { return };
        let branch_type = branch.flags.branch_type();
        let (site, first) = self.edges.take(edge, weight, branch_type.is_some(), &self.sites);
        if first && let Some(slot) = self.sites.slots.get_mut(site as usize) {
            slot.recorded = slot.recorded.or(branch_type);
        }
        self.sites.take(site, settled, branch.flags);
    }

    #[cold]
    fn new_edge(&mut self, space: Space, branch: RawBranch, maps: &mut Maps) -> Option<u32> {
        let site = self.site(space, branch.from, Some(branch.to), maps)?;
        self.edges.table.push(EdgeSlot::new(branch.from, branch.to, space, site))
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

    /// Straight code that ran. Whether it is known what happened in it.
    #[inline]
    fn block(
        &mut self,
        space: Space,
        step: &Step,
        weight: u64,
        maps: &mut Maps,
        now: &mut BlocksNow,
    ) -> bool {
        let key = (step.entry, step.len, space);
        let found = self.blocks.table.find_near(step.block, step.block_hash, key);
        let Some(block) = found.or_else(|| self.new_block(key, maps)) else { return false };
        match self.blocks.run(block, step.cycles, weight) {
            Kind::Runs => {
                now.ran += 1;
                for inside in self.blocks.inside(block) {
                    self.sites.pass(inside.site);
                }
                true
            }
            Kind::NoCode => {
                now.ran += 1;
                now.without_code += 1;
                false
            }
            Kind::Contradicts => {
                now.contradicted += 1;
                false
            }
        }
    }

    #[cold]
    fn new_block(&mut self, key: (u64, u32, Space), maps: &mut Maps) -> Option<u32> {
        let (entry, len, space) = key;
        let exit = entry.wrapping_add(u64::from(len));
        let mut inside = Vec::new();
        let kind = match straight::decode(maps, space as usize, entry, exit) {
            Straight::Runs(passed) => {
                for passed in passed {
                    let site = self.site(space, passed.from, None, maps)?;
                    let len = passed.next.wrapping_sub(passed.from) as u32;
                    inside.push(Inside { site, len });
                }
                Kind::Runs
            }
            Straight::NoCode => Kind::NoCode,
            Straight::Contradicts => Kind::Contradicts,
        };
        self.blocks.push(key, kind, &inside)
    }

    /// What the views need, without what only counting did.
    pub(super) fn into_parts(self) -> (Sites, Vec<EdgeSlot>, Blocks) {
        (self.sites, self.edges.table.list, self.blocks)
    }
}
