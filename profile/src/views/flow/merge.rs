//! From what was counted in each address space to the flow of the files.

use std::cmp::Reverse;

use lbr_msr::record::BranchType;

use super::blocks::{Decoding, Insides};
use super::counts::{FlowCounts, Space};
use super::edges::{EdgeSlot, Repeated};
use super::sites::{SiteSlot, SiteSums, Sites, Surplus};
use super::transitions::{NONE, TransitionSlot};
use super::{Block, Flow, Site, Target};
use crate::clean::pieces::Pieces;
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
    pub(crate) fn flow(self, whole: Whole) -> Flow {
        let Whole { quality, gaps, mut maps } = whole;
        let FlowCounts { no_sites, transitions, insides, names, mut sites, repeated, .. } = self;
        // Nobody will look for any more.
        drop(names);
        let (mut slots, cycles) = transitions.into_parts();
        let sums = Sums::of(&slots, &insides, &repeated, sites.slots.len());
        let Sums { taken, known, missed, .. } = sums;
        let mut block_quality = block_quality(&slots, gaps);
        if maps.has_other_files() {
            forget_other_files(&mut sites, &mut slots, &mut block_quality, &maps);
        }
        let froms: Vec<u64> = sites.slots.iter().map(|slot| slot.from).collect();
        let ends = |at: usize| sums.edges.get(at).map(|edge| (edge.space, edge.from, edge.to));
        let distinct = clean::distinct(&maps, ends);
        // One after the other: each takes more memory than what it was counted
        // in, which goes.
        let slots = cycles.map(|cycles| (slots, cycles));
        let sites = if no_sites {
            drop((sites, sums));
            Vec::new()
        } else {
            merge_all(sites, sums, &maps)
        };
        let blocks = slots.map(|slots| merge_blocks(slots, &insides, &froms, &maps));
        let (blocks, mispredicted) = (blocks.unwrap_or_default(), (known > 0).then_some(missed));
        Flow { sites, blocks, taken, distinct, known, mispredicted, quality, block_quality, maps }
    }
}

/// Sums of a recording.
#[derive(Debug, Default)]
struct Sums {
    /// Branches, those known to be predicted or not, and those mispredicted.
    taken: u64,
    known: u64,
    missed: u64,
    /// By number.
    sites: Vec<SiteSums>,
    edges: Vec<EdgeSlot>,
}

impl Sums {
    /// From what was counted together to the sums of each.
    fn of(
        slots: &Pieces<TransitionSlot>,
        insides: &Insides,
        repeated: &Repeated,
        sites: usize,
    ) -> Sums {
        let mut sums = Sums { sites: vec![SiteSums::default(); sites], ..Sums::default() };
        // The number of each first one's branch and target.
        let mut numbers = vec![0u32; slots.len()];
        for (at, slot) in (0u32..).zip(slots.iter()) {
            let TransitionSlot { count, known, missed, edge, site, .. } = *slot;
            if edge == at {
                let (from, to, space) = slot.key.branch();
                let more = repeated.sums.get(&edge).copied().unwrap_or_default();
                numbers[at as usize] = sums.edges.len() as u32;
                sums.edges.push(EdgeSlot { from, to, count: 0, more, site, space });
            }
            let number = numbers.get(edge as usize).map(|number| *number as usize);
            if let Some(edge) = number.and_then(|number| sums.edges.get_mut(number)) {
                add(&mut edge.count, count);
                add(&mut sums.taken, count);
            }
            add(&mut sums.known, known);
            add(&mut sums.missed, missed);
            if let Some(sums) = sums.sites.get_mut(site as usize) {
                add(&mut sums.taken, if edge == NONE { 0 } else { count });
                add(&mut sums.known, known);
                add(&mut sums.missed, missed);
                add(&mut sums.settled, if slot.is_settled() { count } else { 0 });
            }
            for inside in insides.of(slot.insides) {
                if let Some(sums) = sums.sites.get_mut(inside.site as usize) {
                    add(&mut sums.passed, count);
                }
            }
        }
        sums
    }
}

/// What is known of the blocks that ran.
fn block_quality(slots: &Pieces<TransitionSlot>, gaps: BlockQuality) -> BlockQuality {
    let mut quality = BlockQuality { blocks: 0, without_code: 0, contradicted: 0, ..gaps };
    for slot in slots.iter().filter(|slot| slot.key.block().is_some()) {
        match slot.kind {
            Decoding::Runs => add(&mut quality.blocks, slot.count),
            Decoding::NoCode => {
                add(&mut quality.blocks, slot.count);
                add(&mut quality.without_code, slot.count);
            }
            Decoding::Contradicts => add(&mut quality.contradicted, slot.count),
        }
    }
    quality
}

/// Takes back what files said that turned out not to be those that ran.
fn forget_other_files(
    sites: &mut Sites,
    slots: &mut Pieces<TransitionSlot>,
    quality: &mut BlockQuality,
    maps: &Maps,
) {
    let is_other = |space, addr| maps.is_of_other_file(maps.locate(space as usize, addr));
    for slot in &mut sites.slots {
        if slot.code && is_other(slot.space, slot.from) {
            (slot.code, slot.decoded) = (false, None);
        }
    }
    for slot in slots.iter_mut().filter(|slot| slot.kind != Decoding::NoCode) {
        let Some((entry, _, space)) = slot.key.block() else { continue };
        if !is_other(space, entry) {
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

/// Sites with their targets, the most often executed first.
fn merge_all(counted: Sites, sums: Sums, maps: &Maps) -> Vec<Site> {
    let Sums { sites: sums, edges, .. } = sums;
    let (mut sites, of_slot) = merge_sites(&counted, &sums, maps);
    drop(sums);
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
fn merge_sites(sites: &Sites, sums: &[SiteSums], maps: &Maps) -> (Vec<Site>, Vec<u32>) {
    let mut index = Index::default();
    let mut merged: Vec<Site> = Vec::with_capacity(sites.slots.len());
    let mut firsts: Vec<u32> = Vec::new();
    let mut of_slot = Vec::with_capacity(sites.slots.len());
    let key = |slot: &SiteSlot| Owned::at(maps, slot.space, slot.from);
    for (number, (slot, sums)) in sites.slots.iter().zip(sums).enumerate() {
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
            merge_site(site, slot, sums, sites.surplus(slot));
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
            add(&mut target.xy, edge.more.xy);
            add(&mut target.yy, edge.more.yy);
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

fn merge_site(site: &mut Site, slot: &SiteSlot, counted: &SiteSums, more: Option<&Surplus>) {
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
    if let Some(surplus) = more {
        site.surplus.get_or_insert_default().merge(surplus);
    }
}

/// Blocks, the most often executed first; `froms` are the addresses of the
/// sites.
fn merge_blocks(
    (slots, cycles): (Pieces<TransitionSlot>, Pieces<Cycles>),
    insides: &Insides,
    froms: &[u64],
    maps: &Maps,
) -> Vec<Block> {
    let mut index = Index::default();
    let mut blocks: Vec<Block> = Vec::new();
    blocks.reserve_exact(slots.len());
    for (slot, cycles) in slots.take().zip(cycles.take()) {
        let Some((entry, len, space)) = slot.key.block() else { continue };
        let exit = entry.wrapping_add(u64::from(len));
        let key = Key::of(maps, space, entry, exit);
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
        let passed = insides.of(slot.insides).iter().filter_map(|inside| {
            let from = *froms.get(inside.site as usize)?;
            Some(Passed { from, next: from.wrapping_add(u64::from(inside.len)) })
        });
        index.insert(hash, blocks.len() as u32);
        blocks.push(Block {
            entry,
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
