//! From what was counted in each address space to the flow of the files.

use std::cmp::Reverse;

use lbr_msr::record::BranchType;

use super::blocks::{BlockSlot, Decoding, Insides};
use super::counts::{FlowCounts, Space};
use super::edges::EdgeSlot;
use super::sites::{SiteSlot, SiteTotals, Sites};
use super::{Block, Flow, Site, Target};
use crate::clean::quality::BlockQuality;
use crate::clean::{self, Key, Owned, Whole, add, place_hash};
use crate::code::maps::{Location, Maps};
use crate::code::straight::Passed;
use crate::index::Index;
use crate::read::names;
use crate::views::cycles::Cycles;

impl FlowCounts {
    /// The flow: the same code of the same file is one, whichever process ran
    /// it.
    pub(crate) fn flow(mut self, whole: Whole) -> Flow {
        let Whole { quality, gaps, mut maps } = whole;
        self.forget_other_files(&mut maps);
        let BlockQuality { blocks, without_code, contradicted, .. } = self.quality;
        let block_quality = BlockQuality { blocks, without_code, contradicted, ..gaps };
        let FlowCounts { no_sites, taken, known, missed, .. } = self;
        let mispredicted = (known > 0).then_some(missed);
        let (counted, edges, blocks) = self.into_parts();
        // Without what only counting needed. One after the other: each takes
        // more memory than what it was counted in, which goes.
        let blocks = blocks.into_parts();
        let froms: Vec<u64> = counted.slots.iter().map(|slot| slot.from).collect();
        let ends = |at: usize| edges.get(at).map(|edge| (edge.space, edge.from, edge.to));
        let distinct = clean::distinct(&maps, ends);
        let sites = if no_sites { Vec::new() } else { merge_all(counted, edges, &maps) };
        let blocks = merge_blocks(blocks, &froms, &maps);
        Flow { sites, blocks, taken, distinct, known, mispredicted, quality, block_quality, maps }
    }
}

/// Sites with their targets, the most often executed first.
fn merge_all(counted: Sites, edges: Vec<EdgeSlot>, maps: &Maps) -> Vec<Site> {
    let (mut sites, of_slot) = merge_sites(&counted, maps);
    let spaces: Vec<Space> = counted.slots.iter().map(|slot| slot.space).collect();
    drop(counted);
    merge_edges(&mut sites, &edges, &of_slot, &spaces, maps);
    drop(edges);
    // Of code that did not run nothing was passed either.
    sites.retain(|site| site.taken > 0 || site.not_taken.is_some());
    for site in &mut sites {
        site.targets.sort_by(|a, b| b.count.cmp(&a.count).then(a.to.cmp(&b.to)));
    }
    let times = |site: &Site| site.taken.saturating_add(site.not_taken.unwrap_or(0));
    sites.sort_by_cached_key(|site| (Reverse(times(site)), site.from));
    sites
}

/// Sites by place, and the site of each slot.
fn merge_sites(sites: &Sites, maps: &Maps) -> (Vec<Site>, Vec<u32>) {
    let mut index = Index::default();
    let mut merged: Vec<Site> = Vec::with_capacity(sites.slots.len());
    let mut firsts: Vec<u32> = Vec::new();
    let mut of_slot = Vec::with_capacity(sites.slots.len());
    let key = |slot: &SiteSlot| Owned::at(maps, slot.space, slot.from);
    for (number, slot) in sites.slots.iter().enumerate() {
        let ours = key(slot);
        let location = ours.place;
        let is = |n: u32| {
            let same = merged.get(n as usize).is_some_and(|site| site.location == location);
            let first = firsts.get(n as usize).and_then(|first| sites.slots.get(*first as usize));
            same && first.is_some_and(|first| key(first) == ours)
        };
        let at = index.find(ours.hash(), is).unwrap_or_else(|| {
            let next = merged.len() as u32;
            index.insert(ours.hash(), next);
            merged.push(new_site(slot, location));
            firsts.push(number as u32);
            next
        });
        of_slot.push(at);
        if let Some(site) = merged.get_mut(at as usize) {
            merge_site(site, slot, &sites.totals(number));
            // One that nobody knows the place of stands for many.
            if names::is_unknown(slot.from) && maps.unknown(location).is_some() {
                (site.branch_type, site.conditional) = (None, None);
            }
        }
    }
    (merged, of_slot)
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
            // Most branches have one target.
            site.targets.reserve_exact(usize::from(site.targets.is_empty()));
            site.targets.push(Target { to: edge.to, location, count: 0, xy: 0, yy: 0 });
            target
        });
        if let Some(target) = site.targets.get_mut(target as usize) {
            add(&mut target.count, edge.count);
            add(&mut target.xy, edge.xy);
            add(&mut target.yy, edge.yy);
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
        targets: Vec::new(),
        settled: 0,
        surplus: None,
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
    add(&mut site.settled, counted.settled);
    if let Some(surplus) = &counted.surplus {
        site.surplus.get_or_insert_default().merge(surplus);
    }
}

/// Blocks, the most often executed first; `froms` are the addresses of the
/// sites.
fn merge_blocks(
    (slots, cycles, insides): (Vec<BlockSlot>, Vec<Cycles>, Insides),
    froms: &[u64],
    maps: &Maps,
) -> Vec<Block> {
    let mut index = Index::default();
    let mut blocks: Vec<Block> = Vec::new();
    blocks.reserve_exact(slots.len());
    for (slot, cycles) in slots.into_iter().zip(cycles) {
        let exit = slot.entry.wrapping_add(u64::from(slot.len));
        let key = Key::of(maps, slot.space, slot.entry, exit);
        let Owned { place: (entry_location, exit_location), owner } = key;
        let is = |number: u32| {
            blocks.get(number as usize).is_some_and(|block| {
                let place = (block.entry_location, block.exit_location);
                Owned { place, owner: block.owner } == key
            })
        };
        let hash = key.hash();
        let known = index.find(hash, is);
        if let Some(block) = known.and_then(|number| blocks.get_mut(number as usize)) {
            add(&mut block.count, slot.count);
            block.cycles.merge(&cycles);
            continue;
        }
        let passed = insides.of(&slot).iter().filter_map(|inside| {
            let from = *froms.get(inside.site as usize)?;
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
            decoded: slot.kind == Decoding::Runs,
            contradicted: slot.kind == Decoding::Contradicts,
            owner,
            passed: passed.collect(),
        });
    }
    // By keys alone: blocks are large.
    blocks.sort_by_cached_key(|block| (Reverse(block.count), block.entry, block.exit));
    blocks
}
