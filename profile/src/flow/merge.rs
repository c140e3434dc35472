//! From what was counted in each address space to the flow of the files.

use std::cmp::Reverse;

use lbr_msr::record::BranchType;

use super::counter::{FlowCounter, Space};
use super::tables::{Blocks, EdgeSlot, Kind, SiteSlot, SiteTotals, Sites};
use super::{Block, Flow, Site, Target, add};
use crate::code::Passed;
use crate::index::{Index, hash};
use crate::interval::Clusters;
use crate::maps::{Location, Maps, Owner};

impl FlowCounter {
    /// The flow: the same code of the same file is one, whichever process ran
    /// it.
    #[must_use]
    pub fn finish(self) -> Flow {
        let FlowCounter { quality, block_quality, maps, sites, edges, mut blocks, .. } = self;
        let edges = edges.slots;
        blocks.drop_index();
        // The largest table goes first.
        let blocks = merge_blocks(blocks, &sites, &maps);
        let (mut merged, totals, of_slot) = merge_sites(&sites, &maps);
        let spaces: Vec<Space> = sites.slots.iter().map(|slot| slot.space).collect();
        drop(sites);
        merge_edges(&mut merged, &edges, &of_slot, &spaces, &maps);
        drop(edges);
        for (site, total) in merged.iter_mut().zip(&totals) {
            for target in &mut site.targets {
                // Stacks that never went there have y = 0, and x all the same.
                let sums = &mut target.clusters;
                (sums.stacks, sums.x, sums.xx) = (total.stacks, total.x, total.xx);
            }
            site.targets.sort_by(|a, b| b.count.cmp(&a.count).then(a.to.cmp(&b.to)));
        }
        let times = |site: &Site| site.taken.saturating_add(site.not_taken.unwrap_or(0));
        merged.sort_by_cached_key(|site| (Reverse(times(site)), site.from));
        let taken = merged.iter().fold(0, |sum: u64, site| sum.saturating_add(site.taken));
        Flow { sites: merged, blocks, taken, quality, block_quality, maps }
    }
}

/// The process that addresses are bound to, where they lie in no file.
fn owner(maps: &Maps, space: Space, locations: &[Location]) -> Option<Owner> {
    let bound = locations.iter().any(Location::is_private);
    if bound { maps.owner(space as usize) } else { None }
}

/// Offset or address, and file counted from 1.
fn parts(location: Location) -> (u64, u64) {
    match location {
        Location::File { file, offset } => (offset, file as u64 + 1),
        Location::Address(addr) => (addr, 0),
    }
}

/// The hash of a place with something else, and of who owns them.
fn place_hash(location: Location, other: u64, owner: Option<Owner>) -> u32 {
    let (at, file) = parts(location);
    let owner = owner.map_or(0, |owner| {
        let pid = owner.pid.map_or(0, |pid| u64::from(pid) + 1);
        u64::from(owner.recording) << 33 ^ pid
    });
    hash(at, other ^ owner.rotate_left(7), file)
}

/// Sites by place, their times taken by stack, and the site of each slot.
fn merge_sites(sites: &Sites, maps: &Maps) -> (Vec<Site>, Vec<Clusters>, Vec<u32>) {
    let mut index = Index::default();
    let mut merged: Vec<Site> = Vec::with_capacity(sites.slots.len());
    let mut owners: Vec<Option<Owner>> = Vec::new();
    let mut totals: Vec<Clusters> = Vec::new();
    let mut of_slot = Vec::with_capacity(sites.slots.len());
    for (number, slot) in sites.slots.iter().enumerate() {
        let location = maps.locate(slot.space as usize, slot.from);
        let owner = owner(maps, slot.space, &[location]);
        let hash = place_hash(location, 0, owner);
        let is = |n: u32| {
            let same = merged.get(n as usize).is_some_and(|site| site.location == location);
            same && owners.get(n as usize) == Some(&owner)
        };
        let at = index.find(hash, is).unwrap_or_else(|| {
            let next = merged.len() as u32;
            index.insert(hash, next);
            merged.push(new_site(slot, location));
            owners.push(owner);
            totals.push(Clusters::default());
            next
        });
        of_slot.push(at);
        let counted = sites.totals(number);
        let at = at as usize;
        if let (Some(site), Some(total)) = (merged.get_mut(at), totals.get_mut(at)) {
            merge_site(site, slot, &counted);
            total.merge(&counted.taken_by_stack);
        }
    }
    (merged, totals, of_slot)
}

/// Gives sites their targets.
fn merge_edges(
    merged: &mut [Site],
    edges: &[EdgeSlot],
    of_slot: &[u32],
    spaces: &[Space],
    maps: &Maps,
) {
    let mut index = Index::default();
    // The site and the place among its targets of each number in the index.
    let mut places: Vec<(u32, u32)> = Vec::new();
    for edge in edges {
        let site = edge.site as usize;
        let (Some(&at), Some(&space)) = (of_slot.get(site), spaces.get(site)) else { continue };
        let location = maps.locate(space as usize, edge.to);
        let hash = place_hash(location, u64::from(at), None);
        let targets = merged.get(at as usize).map_or(&[][..], |site| &site.targets);
        let is = |number: u32| {
            let place = places.get(number as usize).filter(|(site, _)| *site == at);
            let target = place.and_then(|(_, target)| targets.get(*target as usize));
            target.is_some_and(|target| target.location == location)
        };
        let found = index.find(hash, is).and_then(|n| places.get(n as usize)).map(|place| place.1);
        let Some(site) = merged.get_mut(at as usize) else { continue };
        let target = found.unwrap_or_else(|| {
            let target = site.targets.len() as u32;
            index.insert(hash, places.len() as u32);
            places.push((at, target));
            let clusters = Clusters::default();
            // Most branches have one target.
            site.targets.reserve_exact(usize::from(site.targets.is_empty()));
            site.targets.push(Target { to: edge.to, location, count: 0, clusters });
            target
        });
        if let Some(target) = site.targets.get_mut(target as usize) {
            add(&mut target.count, edge.count);
            target.clusters.merge(&edge.clusters());
        }
    }
}

fn new_site(slot: &SiteSlot, location: Location) -> Site {
    Site {
        from: slot.from,
        location,
        branch_type: None,
        conditional: None,
        taken: 0,
        not_taken: slot.code.then_some(0),
        known: 0,
        mispredicted: None,
        misses: Clusters::default(),
        outcomes: Clusters::default(),
        targets: Vec::new(),
    }
}

fn merge_site(site: &mut Site, slot: &SiteSlot, counted: &SiteTotals) {
    let branch_type = slot.recorded.or(slot.decoded);
    site.branch_type = site.branch_type.or(branch_type);
    site.conditional = site.conditional.or(branch_type.map(|kind| kind == BranchType::COND));
    add(&mut site.taken, counted.taken);
    if let Some(not_taken) = &mut site.not_taken {
        add(not_taken, counted.passed);
    }
    add(&mut site.known, counted.known);
    if counted.known > 0 {
        add(site.mispredicted.get_or_insert(0), counted.missed);
    }
    site.misses.merge(&counted.misses);
    site.outcomes.merge(&counted.outcomes);
}

fn merge_blocks(mut counted: Blocks, sites: &Sites, maps: &Maps) -> Vec<Block> {
    let mut index = Index::default();
    let slots = std::mem::take(&mut counted.slots);
    let mut blocks: Vec<Block> = Vec::new();
    blocks.reserve_exact(slots.len());
    for slot in slots {
        let locate = |addr| maps.locate(slot.space as usize, addr);
        let exit = slot.entry.wrapping_add(u64::from(slot.len));
        let (entry_location, exit_location) = (locate(slot.entry), locate(exit));
        let owner = owner(maps, slot.space, &[entry_location, exit_location]);
        let hash = place_hash(entry_location, parts(exit_location).0, owner);
        let is = |number: u32| {
            blocks.get(number as usize).is_some_and(|block| {
                (block.entry_location, block.exit_location, block.owner)
                    == (entry_location, exit_location, owner)
            })
        };
        let cycles = counted.take_cycles(&slot);
        let known = index.find(hash, is);
        if let Some(block) = known.and_then(|number| blocks.get_mut(number as usize)) {
            add(&mut block.count, slot.count);
            block.cycles.merge(&cycles);
            continue;
        }
        let passed = counted.inside_of(&slot).iter().filter_map(|inside| {
            let from = sites.slots.get(inside.site as usize)?.from;
            Some(Passed { from, next: from.wrapping_add(u64::from(inside.len)) })
        });
        index.insert(hash, blocks.len() as u32);
        blocks.push(Block {
            entry: slot.entry,
            exit,
            entry_location,
            exit_location,
            count: slot.count,
            cycles,
            decoded: slot.kind == Kind::Runs,
            contradicted: slot.kind == Kind::Contradicts,
            owner,
            passed: passed.collect(),
        });
    }
    // By keys alone: blocks are large.
    blocks.sort_by_cached_key(|block| (Reverse(block.count), block.entry, block.exit));
    blocks
}
