//! Counting branches and the straight code between them.

use super::blocks::{BlockSlot, Blocks, Decoding, Inside};
use super::edges::{EdgeSlot, Edges};
use super::sites::{SiteSlot, Sites};
use crate::clean::quality::BlockQuality;
use crate::clean::table::{Keyed, Table};
use crate::clean::{Cleaned, NO_BLOCK, Transition, add};
use crate::code::maps::Maps;
use crate::code::straight::{self, Straight};
use crate::index;
use crate::read::stack::{EntryFlags, RawBranch};

pub(super) type Space = u32;

/// As many branches as the deepest ring has: looked up together.
const BATCH: usize = 32;

/// Where a branch and the code before it will most likely be counted.
#[derive(Clone, Copy, Debug, Default)]
struct Guess {
    edge_hash: u32,
    edge: u32,
    block_hash: u32,
    block: u32,
}

/// What there is in the stack at hand.
#[derive(Clone, Copy, Debug, Default)]
struct InStack {
    taken: u64,
    known: u64,
    missed: u64,
    /// Blocks.
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

/// Counts what branches did, and the straight code between them.
#[derive(Debug, Default)]
pub struct FlowCounts {
    /// Of the blocks that ran.
    pub(super) quality: BlockQuality,
    /// Branches, those known to be predicted or not, and those mispredicted.
    pub(super) taken: u64,
    pub(super) known: u64,
    pub(super) missed: u64,
    /// Nobody asks for the sites: nothing is counted by branch, only which
    /// there are.
    pub(super) no_sites: bool,
    guesses: Vec<Guess>,
    names: Table<Name>,
    pub(super) sites: Sites,
    pub(super) edges: Edges,
    pub(super) blocks: Blocks,
}

impl FlowCounts {
    /// For those who ask for branches alone: blocks are not kept, and take less
    /// than half of the memory. What they say about branches stays.
    pub(crate) fn without_blocks() -> FlowCounts {
        FlowCounts { blocks: Blocks::without_cycles(), ..FlowCounts::default() }
    }

    /// For those who ask for blocks alone: the flow will have no sites.
    pub(crate) fn without_sites() -> FlowCounts {
        FlowCounts { no_sites: true, ..FlowCounts::default() }
    }

    /// Counts a stack.
    pub(crate) fn add(&mut self, stack: &Cleaned<'_>, maps: &mut Maps) {
        let (space, weight) = (stack.space, stack.weight);
        let renumbered = self.sites.begin();
        self.edges.begin(renumbered);
        let mut now = InStack::default();
        let mut guesses = std::mem::take(&mut self.guesses);
        for steps in stack.transitions.chunks(BATCH) {
            self.look_up(space, steps, &mut guesses);
            for (step, guess) in steps.iter().zip(&guesses) {
                let settled =
                    step.len != NO_BLOCK && self.block(space, step, guess, weight, maps, &mut now);
                let flags = step.branch.flags;
                now.taken += 1;
                now.known += u64::from(flags.mispredicted().is_some());
                now.missed += flags.0 & EntryFlags::MISPREDICTED;
                self.branch(space, step, guess, settled, weight, maps);
            }
        }
        self.guesses = guesses;
        self.edges.settle(weight, &self.sites);
        self.settle(&now, weight);
    }

    /// Counts straight code whose branches are counted elsewhere.
    pub(crate) fn add_straight(
        &mut self,
        (entry, len, space): (u64, u32, Space),
        weight: u64,
        maps: &mut Maps,
    ) {
        let branch = RawBranch { from: entry.wrapping_add(u64::from(len)), ..RawBranch::default() };
        let step = Transition { branch, entry, len, ..Transition::default() };
        let mut guesses = std::mem::take(&mut self.guesses);
        let renumbered = self.sites.begin();
        self.edges.begin(renumbered);
        self.look_up(space, &[step], &mut guesses);
        let guess = guesses.first().copied().unwrap_or_default();
        let mut now = InStack::default();
        let settled = self.block(space, &step, &guess, weight, maps, &mut now);
        if settled && let Some(site) = self.site(space, branch.from, None, maps) {
            self.sites.end(site);
        }
        self.guesses = guesses;
        self.settle(&now, weight);
    }

    /// Adds the stack at hand up.
    fn settle(&mut self, now: &InStack, weight: u64) {
        self.sites.settle(weight);
        let BlockQuality { blocks, without_code, contradicted, .. } = &mut self.quality;
        for (sum, more) in [
            (&mut self.taken, now.taken),
            (&mut self.known, now.known),
            (&mut self.missed, now.missed),
            (blocks, now.ran),
            (without_code, now.without_code),
            (contradicted, now.contradicted),
        ] {
            add(sum, more.saturating_mul(weight));
        }
    }

    /// Where steps will most likely be counted. What is there is fetched, all
    /// of it side by side: one after the other, each step would wait for its
    /// own.
    #[inline]
    fn look_up(&self, space: Space, steps: &[Transition], guesses: &mut Vec<Guess>) {
        let (edges, blocks) = (&self.edges.table, &self.blocks.table);
        let mut places = 0;
        guesses.clear();
        guesses.extend(steps.iter().map(|step| {
            let edge_hash = EdgeSlot::hash((step.branch.from, step.branch.to, space));
            let block_hash = BlockSlot::hash((step.entry, step.len, space));
            places ^= edges.touch(edge_hash) ^ blocks.touch(block_hash);
            let block = if step.len == NO_BLOCK { NO_BLOCK } else { 0 };
            Guess { edge_hash, block_hash, edge: 0, block }
        }));
        std::hint::black_box(places);
        for guess in &mut *guesses {
            guess.edge = edges.guess(guess.edge_hash);
            if guess.block != NO_BLOCK {
                guess.block = blocks.guess(guess.block_hash);
            }
        }
        let touch = |guess: &Guess| self.edges.site(guess.edge) ^ self.blocks.touch(guess.block);
        std::hint::black_box(guesses.iter().fold(0, |all, guess| all ^ touch(guess)));
        if self.no_sites {
            return;
        }
        let touch = |guess: &Guess| {
            let first = self.blocks.inside(guess.block).first();
            let passed = first.map_or(0, |inside| self.sites.touch(inside.site));
            self.sites.touch(self.edges.site(guess.edge)) ^ passed
        };
        std::hint::black_box(guesses.iter().fold(0, |all, guess| all ^ touch(guess)));
    }

    /// A taken branch.
    #[inline]
    fn branch(
        &mut self,
        space: Space,
        step: &Transition,
        guess: &Guess,
        settled: bool,
        weight: u64,
        maps: &mut Maps,
    ) {
        let branch = step.branch;
        let key = (branch.from, branch.to, space);
        let found = self.edges.table.find_near(guess.edge, guess.edge_hash, key);
        let Some(edge) = found.or_else(|| self.new_edge(space, branch, maps)) else { return };
        if self.no_sites {
            return;
        }
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
        step: &Transition,
        guess: &Guess,
        weight: u64,
        maps: &mut Maps,
        now: &mut InStack,
    ) -> bool {
        let key = (step.entry, step.len, space);
        let found = self.blocks.table.find_near(guess.block, guess.block_hash, key);
        let Some(block) = found.or_else(|| self.new_block(key, maps)) else { return false };
        match self.blocks.run(block, step.cycles, weight) {
            Decoding::Runs => {
                now.ran += 1;
                if !self.no_sites {
                    for inside in self.blocks.inside(block) {
                        self.sites.pass(inside.site);
                    }
                }
                true
            }
            Decoding::NoCode => {
                now.ran += 1;
                now.without_code += 1;
                false
            }
            Decoding::Contradicts => {
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
                Decoding::Runs
            }
            Straight::NoCode => Decoding::NoCode,
            Straight::Contradicts => Decoding::Contradicts,
        };
        self.blocks.push(key, kind, &inside)
    }

    /// Takes back what files said that turned out not to be those that ran.
    pub(super) fn forget_other_files(&mut self, maps: &mut Maps) {
        let quality = &mut self.quality;
        if !maps.has_other_files() {
            return;
        }
        let is_other = |space, addr| maps.is_of_other_file(maps.locate(space as usize, addr));
        for slot in &mut self.sites.slots {
            if slot.code && is_other(slot.space, slot.from) {
                (slot.code, slot.decoded) = (false, None);
            }
        }
        for slot in &mut self.blocks.table.list {
            if slot.kind == Decoding::NoCode || !is_other(slot.space, slot.entry) {
                continue;
            }
            if slot.kind == Decoding::Contradicts {
                quality.contradicted = quality.contradicted.saturating_sub(slot.count);
                add(&mut quality.blocks, slot.count);
            }
            add(&mut quality.without_code, slot.count);
            slot.forget_code();
        }
    }

    /// What the views need, without what only counting did.
    pub(super) fn into_parts(self) -> (Sites, Vec<EdgeSlot>, Blocks) {
        (self.sites, self.edges.table.list, self.blocks)
    }
}
