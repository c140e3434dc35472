//! From what was counted in each address space to the flow of the files.

use std::collections::HashMap;

use lbr_msr::record::BranchType;

use super::counter::{BlockSlot, FlowCounter, SiteSlot, Space};
use super::{Block, Flow, Site, Target, add};
use crate::code::Straight;
use crate::interval::Clusters;
use crate::maps::{Location, Maps};

impl FlowCounter {
    /// The flow: the same code of the same file is one, whichever process ran
    /// it.
    #[must_use]
    pub fn finish(self) -> Flow {
        let FlowCounter { quality, block_quality, maps, sites, edges, blocks, .. } = self;
        let mut places = HashMap::new();
        let mut merged: Vec<Site> = Vec::new();
        let mut totals: Vec<Clusters> = Vec::new();
        let mut of_slot = Vec::with_capacity(sites.len());
        for slot in &sites {
            let location = maps.locate(slot.space as usize, slot.from);
            let key = (location, owner(&maps, slot.space, &[location]));
            let index = *places.entry(key).or_insert(merged.len());
            if index == merged.len() {
                merged.push(new_site(slot, location));
                totals.push(Clusters::default());
            }
            of_slot.push(index);
            if let (Some(site), Some(total)) = (merged.get_mut(index), totals.get_mut(index)) {
                merge_site(site, slot);
                total.merge(&slot.taken_by_stack);
            }
        }
        let mut targets = HashMap::new();
        for edge in &edges {
            let Some(slot) = sites.get(edge.site) else { continue };
            let Some(&index) = of_slot.get(edge.site) else { continue };
            let Some(site) = merged.get_mut(index) else { continue };
            let location = maps.locate(slot.space as usize, edge.to);
            let key = (index, location);
            let at = *targets.entry(key).or_insert(site.targets.len());
            if at == site.targets.len() {
                let clusters = Clusters::default();
                site.targets.push(Target { to: edge.to, location, count: 0, clusters });
            }
            if let Some(target) = site.targets.get_mut(at) {
                add(&mut target.count, edge.count);
                target.clusters.merge(&edge.clusters);
            }
        }
        for (site, total) in merged.iter_mut().zip(&totals) {
            for target in &mut site.targets {
                // Stacks that never went there have y = 0, and x all the same.
                let sums = &mut target.clusters;
                (sums.stacks, sums.x, sums.xx) = (total.stacks, total.x, total.xx);
            }
            site.targets.sort_by(|a, b| b.count.cmp(&a.count).then(a.to.cmp(&b.to)));
        }
        let times = |site: &Site| site.taken.saturating_add(site.not_taken.unwrap_or(0));
        merged.sort_by(|a, b| times(b).cmp(&times(a)).then(a.from.cmp(&b.from)));
        let taken = merged.iter().fold(0, |sum: u64, site| sum.saturating_add(site.taken));
        let blocks = merge_blocks(blocks, &maps);
        Flow { sites: merged, blocks, taken, quality, block_quality, maps }
    }
}

/// The process that addresses are bound to, where they lie in no file.
fn owner(maps: &Maps, space: Space, locations: &[Location]) -> Option<u32> {
    let bound = locations.iter().any(Location::is_private);
    if bound { maps.owner(space as usize).and_then(|(_, pid)| pid) } else { None }
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

fn merge_site(site: &mut Site, slot: &SiteSlot) {
    let branch_type = slot.recorded.or(slot.decoded);
    site.branch_type = site.branch_type.or(branch_type);
    site.conditional = site.conditional.or(branch_type.map(|kind| kind == BranchType::COND));
    add(&mut site.taken, slot.taken);
    if let Some(not_taken) = &mut site.not_taken {
        add(not_taken, slot.passed);
    }
    add(&mut site.known, slot.known);
    if slot.known > 0 {
        add(site.mispredicted.get_or_insert(0), slot.missed);
    }
    site.misses.merge(&slot.misses);
    site.outcomes.merge(&slot.outcomes);
}

fn merge_blocks(slots: Vec<BlockSlot>, maps: &Maps) -> Vec<Block> {
    let mut places = HashMap::new();
    let mut blocks: Vec<Block> = Vec::new();
    for slot in slots {
        let locate = |addr| maps.locate(slot.space as usize, addr);
        let (entry_location, exit_location) = (locate(slot.entry), locate(slot.exit));
        let owner = owner(maps, slot.space, &[entry_location, exit_location]);
        let index = *places.entry((entry_location, exit_location, owner)).or_insert(blocks.len());
        if let Some(block) = blocks.get_mut(index) {
            add(&mut block.count, slot.count);
            block.cycles.merge(&slot.cycles);
            continue;
        }
        let (decoded, passed) = match slot.straight {
            Straight::Runs(passed) => (true, passed),
            Straight::NoCode | Straight::Contradicts => (false, Vec::new()),
        };
        blocks.push(Block {
            entry: slot.entry,
            exit: slot.exit,
            entry_location,
            exit_location,
            count: slot.count,
            cycles: slot.cycles,
            decoded,
            owner,
            passed,
        });
    }
    blocks.sort_by(|a, b| b.count.cmp(&a.count).then((a.entry, a.exit).cmp(&(b.entry, b.exit))));
    blocks
}
