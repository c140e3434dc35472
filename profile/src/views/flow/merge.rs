//! Merges the counts of all address spaces into the flow of the files.

use std::borrow::Borrow;
use std::cmp::Reverse;

use lbr_msr::record::BranchType;

use super::blocks::{Decoded, Insides};
use super::counts::FlowCounts;
use super::edges::Repeated;
use super::sites::{SiteSlot, Sites};
use super::transitions::{Many, NONE, Slots, Sums, TransitionSlot};
use super::{Block, Flow, Site, Target};
use crate::clean::pieces::Pieces;
use crate::clean::quality::BlockQuality;
use crate::clean::{self, CommonResult, Key, place_hash};
use crate::code::maps::{Location, Maps};
use crate::code::straight::Decoding;
use crate::index::{BATCH, Index, load_all};
use crate::read::add;
use crate::read::names;
use crate::views::cycles::Cycles;
use crate::views::hot::{Counted, add_counted};

impl FlowCounts {
    /// The flow: the same code of one file is merged, whichever process ran it.
    pub(crate) fn flow(self, whole: CommonResult) -> Flow {
        let CommonResult { quality, gaps, mut maps, open } = whole;
        let FlowCounts { transitions, mut decoder, repeated, counters, not_taken, .. } = self;
        let has_other_files = maps.has_other_files();
        // No more look-ups follow.
        let (mut slots, many) = transitions.into_parts();
        let has_cycles = slots.has_cycles();
        decoder.catch_up(&slots, &mut maps);
        let no_sites = decoder.no_sites;
        let passed: Vec<(u32, u64)> = not_taken
            .into_iter()
            .map(|((space, from), (times, kind))| {
                let site = decoder.site(space, from, None, &mut maps);
                if let Some(slot) = decoder.sites.slots.get_mut(site as usize) {
                    slot.recorded = slot.recorded.or(kind);
                }
                (site, times)
            })
            .collect();
        let (mut decoded, insides, mut sites) = decoder.into_parts();
        if has_other_files {
            forget_other_files(&mut sites, &slots, &mut decoded, &maps);
        }
        let mut flow = Flow {
            distinct: distinct(&slots, &decoded, &maps),
            quality,
            block_quality: BlockQuality { blocks: 0, without_code: 0, contradicted: 0, ..gaps },
            maps,
            ..Flow::default()
        };
        flow.add_up(&slots, &decoded, &many);
        let most = slots.len();
        if !no_sites {
            let mut merged = Merge::new(sites, &slots, &decoded, repeated, &passed, &flow.maps);
            // Frees each piece after merging it, if it is not needed elsewhere.
            if has_cycles {
                merged.add_all(slots.iter().zip(decoded.iter()), &many, &insides);
            } else {
                let slots = std::mem::take(&mut slots).take().map(|(slot, _)| slot);
                merged.add_all(slots.zip(std::mem::take(&mut decoded).take()), &many, &insides);
            }
            flow.sites = merged.finish();
            flow.mark_unsure(&open);
        }
        if has_cycles {
            let all = (0..).zip(slots.take().zip(decoded.take()));
            let all = all.map(|(number, ((slot, cycles), decoded))| {
                let sums = (cycles, many.sums(number, &slot).count, counters.get(&number).copied());
                (slot, decoded, sums)
            });
            flow.blocks = merge_blocks(all, most, &insides, &flow.maps);
        }
        flow
    }
}

impl Flow {
    /// Sums the branches, and the known blocks.
    fn add_up(&mut self, slots: &Slots, decoded: &Pieces<Decoded>, many: &Many) {
        let (mut missed, quality) = (0, &mut self.block_quality);
        for ((number, slot), decoded) in (0..).zip(slots.iter()).zip(decoded.iter()) {
            let sums = many.sums(number, slot);
            add(&mut self.taken, if slot.key.has_branch() { sums.count } else { 0 });
            add(&mut self.known, sums.known);
            add(&mut missed, sums.missed);
            if slot.key.block().is_none() {
                continue;
            }
            let (ran, without) = match decoded.kind {
                Decoding::Runs => (&mut quality.blocks, false),
                Decoding::NoCode => (&mut quality.blocks, true),
                Decoding::Contradicts => (&mut quality.contradicted, false),
            };
            add(ran, sums.count);
            if without {
                add(&mut quality.without_code, sums.count);
            }
        }
        self.mispredicted = (self.known > 0).then_some(missed);
    }
}

/// The number of distinct branches.
fn distinct(slots: &Slots, decoded: &Pieces<Decoded>, maps: &Maps) -> u64 {
    let all = (0..).zip(decoded.iter());
    let firsts = all.filter(|(number, decoded)| *number == decoded.edge);
    let firsts: Vec<u32> = firsts.map(|(number, _)| number).collect();
    clean::distinct(maps, |at| {
        let (from, to, space) = slots.get(*firsts.get(at)?)?.key.branch();
        Some((space, from, to))
    })
}

/// Discards decoding results of files that turned out to differ from the executed ones.
fn forget_other_files(
    sites: &mut Sites,
    slots: &Slots,
    decoded: &mut Pieces<Decoded>,
    maps: &Maps,
) {
    let is_other = |space, addr| maps.is_of_other_file(maps.locate(space as usize, addr));
    for slot in &mut sites.slots {
        if slot.code && is_other(slot.space, slot.from) {
            (slot.code, slot.decoded) = (false, None);
        }
    }
    for (slot, decoded) in slots.iter().zip(decoded.iter_mut()) {
        if let Some((entry, _, space)) = slot.key.block()
            && decoded.kind != Decoding::NoCode
            && is_other(space, entry)
        {
            (decoded.kind, decoded.insides) = (Decoding::NoCode, 0);
        }
    }
}

/// Maximum number of a branch's targets that are searched linearly.
const FEW_TARGETS: usize = 8;

/// State of adding transitions to sites.
struct Merge<'a> {
    sites: Vec<Site>,
    /// The site of each slot.
    of_slot: Vec<u32>,
    /// By the number of the first transition with a branch and target: the index among the site's
    /// targets.
    targets: Vec<u32>,
    /// Finds a site's target by hash, if there are many.
    index: Index,
    places: Vec<(u32, u32)>,
    repeated: Repeated,
    /// Whether the recording has branches that were not taken: it then has both outcomes alike, and
    /// those inside blocks would count twice.
    has_outcomes: bool,
    maps: &'a Maps,
}

impl<'a> Merge<'a> {
    /// Sites by location, with zero counts but for the recorded branches that were not taken
    /// (`passed`: their slots, and how often).
    fn new(
        mut counted: Sites,
        slots: &Slots,
        decoded: &Pieces<Decoded>,
        repeated: Repeated,
        passed: &[(u32, u64)],
        maps: &'a Maps,
    ) -> Merge<'a> {
        for (slot, decoded) in slots.iter().zip(decoded.iter()) {
            if let Some(recorded) = slot.branch_type()
                && let Some(site) = counted.slots.get_mut(decoded.site as usize)
            {
                site.recorded.get_or_insert(recorded);
            }
        }
        let (sites, of_slot) = merge_sites(&counted, maps);
        let targets = vec![0; slots.len()];
        let (index, places) = (Index::default(), Vec::new());
        let has_outcomes = !passed.is_empty();
        let mut merge =
            Merge { sites, of_slot, targets, index, places, repeated, has_outcomes, maps };
        merge.record_not_taken(passed);
        merge
    }

    fn record_not_taken(&mut self, passed: &[(u32, u64)]) {
        if self.has_outcomes {
            self.sites.iter_mut().for_each(|site| site.not_taken = Some(0));
        }
        for (slot, times) in passed {
            let site = self.site(*slot).and_then(|at| self.sites.get_mut(at as usize));
            site.into_iter().for_each(|site| add(site.not_taken.get_or_insert(0), *times));
        }
    }

    /// Adds the transitions in their order.
    fn add_all(
        &mut self,
        all: impl Iterator<Item = (impl Borrow<TransitionSlot>, impl Borrow<Decoded>)>,
        many: &Many,
        insides: &Insides,
    ) {
        let mut all = (0..).zip(all);
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            batch.extend(all.by_ref().take(BATCH));
            if batch.is_empty() {
                return;
            }
            load_all(batch.iter().map(|(_, (_, decoded))| {
                let site =
                    self.site(decoded.borrow().site).and_then(|at| self.sites.get(at as usize));
                let target = |site: &Site| site.targets.first().map_or(0, |first| first.count);
                site.map_or(0, |site| site.taken ^ target(site))
            }));
            for (number, (slot, decoded)) in batch.drain(..) {
                let sums = many.sums(number, slot.borrow());
                self.add(number, (slot.borrow(), decoded.borrow()), sums, insides);
            }
        }
    }

    /// Adds a transition with its counts.
    fn add(
        &mut self,
        number: u32,
        (slot, decoded): (&TransitionSlot, &Decoded),
        sums: Sums,
        insides: &Insides,
    ) {
        for inside in insides.of(decoded.insides).iter().filter(|_| !self.has_outcomes) {
            let site = self.site(inside.site).and_then(|at| self.sites.get_mut(at as usize));
            if let Some(passed) = site.and_then(|site| site.not_taken.as_mut()) {
                add(passed, sums.count);
            }
        }
        let Some(at) = self.site(decoded.site) else { return };
        if decoded.edge == number {
            self.add_target(number, at, slot);
        }
        let Some(site) = self.sites.get_mut(at as usize) else { return };
        if self.has_outcomes || decoded.kind == Decoding::Runs {
            add(&mut site.settled, sums.count);
        }
        if decoded.edge == NONE {
            return;
        }
        add(&mut site.taken, sums.count);
        add(&mut site.known, sums.known);
        if sums.known > 0 {
            add(site.mispredicted.get_or_insert(0), sums.missed);
        }
        let target = self.targets.get(decoded.edge as usize);
        let target = target.and_then(|target| site.targets.get_mut(*target as usize));
        target.into_iter().for_each(|target| add(&mut target.count, sums.count));
    }

    fn site(&self, slot: u32) -> Option<u32> {
        self.of_slot.get(slot as usize).copied()
    }

    /// Adds the target of a transition to a site.
    fn add_target(&mut self, number: u32, at: u32, slot: &TransitionSlot) {
        let (from, to, space) = slot.key.branch();
        let location = self.maps.locate(space as usize, to);
        let Some(site) = self.sites.get_mut(at as usize) else { return };
        let (places, targets) = (&mut self.places, &mut site.targets);
        let hash = |target: &Target| place_hash(target.location, u64::from(at), None);
        let new = Target { to, location, count: 0, xy: 0, yy: 0 };
        let known = if targets.len() <= FEW_TARGETS {
            targets.iter().position(|target| target.location == location)
        } else {
            let of = |number: u32| places.get(number as usize).filter(|(site, _)| *site == at);
            let target = |number| targets.get(of(number)?.1 as usize);
            let is = |number| target(number).is_some_and(|target| target.location == location);
            let found = self.index.find(hash(&new), is).and_then(of);
            found.map(|(_, target)| *target as usize)
        };
        let target = known.unwrap_or_else(|| {
            let number = targets.len();
            // Most branches have one target.
            targets.reserve_exact(usize::from(number == 0));
            let to = in_process_of(site.from, site.location, from, &new, |addr| {
                self.maps.locate(space as usize, addr)
            });
            targets.push(Target { to, ..new });
            if number >= FEW_TARGETS {
                // When the first one is hashed, those before it are hashed too.
                let first = if number == FEW_TARGETS { 0 } else { number };
                for (target, place) in (0..).zip(&*targets).skip(first) {
                    self.index.insert(hash(place), places.len() as u32);
                    places.push((at, target));
                }
            }
            number
        });
        self.targets[number as usize] = target as u32;
        if let Some(more) = self.repeated.sums.get(&number)
            && let Some(target) = targets.get_mut(target)
        {
            add(&mut target.xy, more.xy);
            add(&mut target.yy, more.yy);
        }
    }

    /// Sites with their targets, most executed first.
    fn finish(self) -> Vec<Site> {
        let Merge { mut sites, has_outcomes, .. } = self;
        // Removes branches in code that did not run, or that no record is of.
        sites.retain(|site| {
            site.taken > 0 || site.not_taken.is_some_and(|times| times > 0 || !has_outcomes)
        });
        for site in &mut sites {
            site.targets.sort_by(|a, b| b.count.cmp(&a.count).then(a.to.cmp(&b.to)));
        }
        let times = |site: &Site| site.taken.saturating_add(site.not_taken.unwrap_or(0));
        sites.sort_by_cached_key(|site| (Reverse(times(site)), site.from));
        sites
    }
}

/// The address of a target of the branch at `from` in the process of the site's address: after an
/// exec, a file may be at another one.
fn in_process_of(
    site: u64,
    location: Location,
    from: u64,
    target: &Target,
    locate: impl Fn(u64) -> Location,
) -> u64 {
    match (location, locate(from), target.location) {
        (
            Location::File { file, offset },
            Location::File { file: of_branch, offset: of_from },
            Location::File { file: of_target, .. },
        ) if file == of_branch && file == of_target => {
            let (base, here) = (site.wrapping_sub(offset), from.wrapping_sub(of_from));
            target.to.wrapping_add(base.wrapping_sub(here))
        }
        _ => target.to,
    }
}

/// Sites by location, and the site of each slot.
fn merge_sites(sites: &Sites, maps: &Maps) -> (Vec<Site>, Vec<u32>) {
    let place = |slot: &SiteSlot| (slot.space, slot.from, slot.from);
    let firsts = clean::firsts(maps, |at| sites.slots.get(at).map(place));
    let mut merged: Vec<Site> = Vec::with_capacity(sites.slots.len());
    let mut of_slot: Vec<u32> = Vec::with_capacity(sites.slots.len());
    for (slot, first) in sites.slots.iter().zip(firsts) {
        let at = of_slot.get(first as usize).copied().unwrap_or(merged.len() as u32);
        let location = maps.locate(slot.space as usize, slot.from);
        if at as usize == merged.len() {
            merged.push(Site {
                from: slot.from,
                location,
                branch_type: None,
                conditional: None,
                taken: 0,
                not_taken: slot.code.then_some(0),
                known: 0,
                mispredicted: None,
                targets: Vec::new(),
                unsure: 0,
                settled: 0,
                surplus: None,
            });
        }
        of_slot.push(at);
        let site = &mut merged[at as usize];
        let branch_type = slot.recorded.or(slot.decoded);
        site.branch_type = site.branch_type.or(branch_type);
        site.conditional = site.conditional.or(branch_type.map(|kind| kind == BranchType::COND));
        if let Some(surplus) = sites.surplus(slot) {
            site.surplus.get_or_insert_default().merge(surplus);
        }
        // An unknown location may stand for many branches.
        if names::is_unknown(slot.from) && maps.unknown(location).is_some() {
            (site.branch_type, site.conditional) = (None, None);
        }
    }
    (merged, of_slot)
}

/// Cycles, executions, and counters of a block.
type BlockSums = (Cycles, u64, Option<Counted>);

/// Blocks, most executed first, from transitions with their decoding, cycles and counts. There are
/// at most `most`.
fn merge_blocks(
    all: impl Iterator<Item = (TransitionSlot, Decoded, BlockSums)>,
    most: usize,
    insides: &Insides,
    maps: &Maps,
) -> Vec<Block> {
    let mut index = Index::default();
    let mut blocks: Vec<Block> = Vec::new();
    blocks.reserve_exact(most);
    let mut all = all.filter_map(|(slot, decoded, sums)| {
        let (entry, len, space) = slot.key.block()?;
        let exit = entry.wrapping_add(u64::from(len));
        Some(((entry, exit), Key::of(maps, space, entry, exit), decoded, sums))
    });
    let (mut batch, mut found) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    loop {
        batch.extend(all.by_ref().take(BATCH));
        if batch.is_empty() {
            break;
        }
        let count = |at: u32| blocks.get(at as usize).map_or(0, |block| block.count);
        index.look_up(batch.iter().map(|(_, key, ..)| key.hash()), &mut found, count);
        for ((ends, key, decoded, sums), (hash, _)) in batch.drain(..).zip(&found) {
            let (cycles, count, counters) = sums;
            let is = |block: &Block| {
                let place = (block.entry_location, block.exit_location);
                Key { place, owner: block.owner } == key
            };
            let known = index.find(*hash, |number| blocks.get(number as usize).is_some_and(is));
            if let Some(block) = known.and_then(|number| blocks.get_mut(number as usize)) {
                add(&mut block.count, count);
                block.cycles.merge(&cycles);
                if let Some(counters) = counters {
                    add_counted(block.counters.get_or_insert_default(), &counters);
                }
                continue;
            }
            index.insert(*hash, blocks.len() as u32);
            blocks.push(Block {
                entry: ends.0,
                exit: ends.1,
                entry_location: key.place.0,
                exit_location: key.place.1,
                count,
                cycles,
                counters: counters.map(Box::new),
                decoded: decoded.kind == Decoding::Runs,
                contradicted: decoded.kind == Decoding::Contradicts,
                owner: key.owner,
                passed: insides.of(decoded.insides).iter().map(|inside| inside.passed).collect(),
            });
        }
    }
    // Sorts by cached keys: blocks are large.
    blocks.sort_by_cached_key(|block| (Reverse(block.count), block.entry, block.exit));
    blocks
}
