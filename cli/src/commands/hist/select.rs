//! Which blocks are meant.

use std::collections::HashMap;

use profile::Flow;
use profile::flow::Block;
use profile::maps::{LocationFilter, Maps};
use profile::place::LocationSpec;

use super::Read;
use super::place::ResolvedBlock;
use crate::commands::report::BlockSpec;
use crate::exit::{Failure, OrExit, Result, USAGE, usage};
use crate::present::{Place, offered, say, summed};
use crate::select::RowArgs;

/// Maximum number of distributions in one drawing: more are hard to distinguish.
pub(super) const MOST: usize = 6;

/// A block of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    /// Which recording.
    pub(super) read: usize,
    pub(super) block: usize,
}

impl Chosen {
    pub(super) fn block<'a>(&self, read: &'a [Read]) -> &'a Block {
        &read[self.read].flow.blocks[self.block]
    }

    /// Its two ends, for people.
    pub(super) fn ends(&self, read: &mut [Read]) -> (String, String) {
        let Flow { blocks, maps, .. } = &mut read[self.read].flow;
        let block = &blocks[self.block];
        // As `--block` takes it.
        let mut end = |location, addr| Place::of(maps, location, addr).bare().to_string();
        (end(block.entry_location, block.entry), end(block.exit_location, block.exit))
    }

    /// The recording it is from, if there are several.
    pub(super) fn file(&self, read: &[Read]) -> String {
        if read.len() > 1 { format!(" in {}", read[self.read].source.name) } else { String::new() }
    }
}

/// Identifies a block across recordings: the file and offset of both ends; or the symbols, if the
/// recording has symbols in place of addresses.
pub(super) type BlockKey = [(Option<String>, Option<String>, u64); 2];

pub(super) fn key(maps: &Maps, block: &Block) -> BlockKey {
    [(block.entry_location, block.entry), (block.exit_location, block.exit)].map(|(at, addr)| {
        match maps.key(at) {
            Some((path, symbol, offset)) => {
                (Some(path.to_owned()), symbol.map(str::to_owned), offset)
            }
            None => (None, None, addr),
        }
    })
}

/// Blocks with cycle counts, those with most counts first; the same block of
/// several recordings together.
pub(super) fn groups(read: &[Read]) -> Vec<Vec<Chosen>> {
    let mut groups: Vec<(u64, Vec<Chosen>)> = Vec::new();
    let mut known: HashMap<BlockKey, usize> = HashMap::new();
    for (index, of) in read.iter().enumerate() {
        for (number, block) in of.flow.blocks.iter().enumerate() {
            let n = block.cycles.n();
            if n == 0 {
                continue;
            }
            let chosen = Chosen { read: index, block: number };
            // In one recording all blocks are distinct.
            if read.len() > 1 {
                let group = *known.entry(key(&of.flow.maps, block)).or_insert(groups.len());
                if let Some((all, group)) = groups.get_mut(group) {
                    *all = all.saturating_add(n);
                    group.push(chosen);
                    continue;
                }
            }
            groups.push((n, vec![chosen]));
        }
    }
    groups.sort_by_key(|(n, _)| std::cmp::Reverse(*n));
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The blocks to draw if none is named: those with most counts in the program's own files.
pub(super) fn first(read: &[Read], rows: &RowArgs, groups: Vec<Vec<Chosen>>) -> Vec<Chosen> {
    let files: Vec<LocationFilter> = read.iter().map(|of| rows.first(&of.flow.maps)).collect();
    let is_own = |of: &Chosen| files[of.read].has(of.block(read).exit_location);
    let first = groups.iter().position(|group| group.iter().any(is_own));
    groups.into_iter().nth(first.unwrap_or(0)).unwrap_or_default()
}

/// The requested blocks, those with the most runs first.
pub(super) fn select(read: &mut [Read], wanted: &[BlockSpec]) -> Result<Vec<Chosen>> {
    let mut chosen: Vec<Chosen> = Vec::new();
    for wanted in wanted {
        let mut found = matching(read, wanted, ResolvedBlock::begins)?;
        if found.is_empty() {
            found = matching(read, wanted, ResolvedBlock::runs_through)?;
            if found.is_empty() {
                return Err(not_found(read, wanted));
            }
            say!("no block begins at {}: these run through it", wanted.entry);
        }
        found.retain(|of| !chosen.contains(of));
        // The same block of several recordings stays together, in their order.
        let key = |of: &Chosen| key(&read[of.read].flow.maps, of.block(read));
        let runs = summed(found.iter().map(|of| (key(of), of.block(read).count)));
        let runs: HashMap<BlockKey, u64> = runs.into_iter().collect();
        found.sort_by_cached_key(|of| {
            let key = key(of);
            (std::cmp::Reverse(runs.get(&key).copied()), key, of.read)
        });
        chosen.append(&mut found);
    }
    Ok(chosen)
}

/// The matching blocks of all recordings. A location may be missing in some recordings; it is an
/// error if it is missing in all.
fn matching(
    read: &mut [Read],
    wanted: &BlockSpec,
    fits: impl Fn(&ResolvedBlock, &Block) -> bool,
) -> Result<Vec<Chosen>> {
    let mut found = Vec::new();
    let mut keys: Vec<BlockKey> = Vec::new();
    let mut wrong = None;
    let mut any = false;
    let mut given = std::iter::once(&wanted.entry).chain(&wanted.exit);
    let has_address = given.any(|place| matches!(place, LocationSpec::Address(_)));
    for (index, Read { flow, .. }) in read.iter_mut().enumerate() {
        let places = ResolvedBlock::new(flow, wanted);
        any |= places.is_ok();
        // An address refers to the first recording that has it; in the others the same code may be
        // mapped elsewhere.
        let by_key = !keys.is_empty() && has_address;
        let places = places.map_err(|error| wrong.get_or_insert(error)).ok();
        for (number, block) in flow.blocks.iter().enumerate() {
            let fits = if by_key {
                keys.contains(&key(&flow.maps, block))
            } else {
                places.as_ref().is_some_and(|places| fits(places, block))
            };
            if fits {
                found.push(Chosen { read: index, block: number });
            }
        }
        if keys.is_empty() {
            let blocks = found.iter().filter_map(|of: &Chosen| flow.blocks.get(of.block));
            keys = blocks.map(|block| key(&flow.maps, block)).collect();
        }
    }
    match wrong.filter(|_| !any) {
        Some(error) => Err(error).or_exit(USAGE),
        None => Ok(found),
    }
}

/// Suggests alternatives.
fn not_found(read: &mut [Read], wanted: &BlockSpec) -> Failure {
    let entry = &wanted.entry;
    let anywhere = BlockSpec { entry: entry.clone(), exit: None };
    if wanted.exit.is_some() {
        let exits = match matching(read, &anywhere, ResolvedBlock::begins) {
            Ok(exits) => exits,
            Err(failure) => return failure,
        };
        if !exits.is_empty() {
            let exits = offered(exits.iter().map(|of| of.ends(read).1).collect());
            return usage!("no block from {entry} ends there; its exits: {exits}");
        }
    }
    if let LocationSpec::Symbol { file, name, .. } = entry {
        let all = LocationSpec::Symbol { file: file.clone(), name: name.clone(), offset: None };
        let all = BlockSpec { entry: all, exit: None };
        let inside = matching(read, &all, ResolvedBlock::begins).unwrap_or_default();
        if !inside.is_empty() {
            let places = offered(inside.iter().map(|of| of.ends(read).0).collect());
            return usage!(
                "no block begins at {entry} or runs through it; in that function begin {places}"
            );
        }
    }
    usage!(
        "no block begins at {entry} or runs through it; lbr report --view blocks lists the blocks"
    )
}
