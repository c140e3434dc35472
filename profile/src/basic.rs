//! Basic blocks: the blocks cut at every place where one begins or ends.

use std::collections::BTreeMap;

use crate::flow::Block;
use crate::maps::{Location, Owner};

/// One end of a basic block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edge {
    /// At this instruction: the first of the block, or the branch that ends
    /// it.
    At(u64),
    /// Begins behind the branch at this address; how long that is, is not
    /// known without code bytes.
    Behind(u64),
    /// Runs on into the block that begins at this address.
    Before(u64),
}

/// Code that always runs from its first instruction to its last, as far as
/// the recording shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasicBlock {
    /// Where it begins: [`Edge::At`] or [`Edge::Behind`].
    pub start: Edge,
    /// Where it ends: [`Edge::At`] or [`Edge::Before`].
    pub end: Edge,
    /// Where the address of `start` lies.
    pub location: Location,
    /// Times it ran.
    pub count: u64,
}

/// What happens at an address.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    begins: u64,
    ends: u64,
    leads: bool,
    leaves: bool,
    /// The branch here was passed: code goes on at this address.
    next: Option<u64>,
}

/// Addresses of one file, or of one process where there is no file, count
/// together. The first block's addresses stand for the others'.
type Group = (Option<usize>, Option<Owner>);

/// Cuts blocks into basic blocks, the most often executed first.
#[must_use]
pub fn basic_blocks(blocks: &[Block]) -> Vec<BasicBlock> {
    let mut groups: BTreeMap<Group, (i128, BTreeMap<u64, Point>)> = BTreeMap::new();
    // Code that did not run from end to end would count everything in between.
    for block in blocks.iter().filter(|block| !block.contradicted) {
        let (file, place) = match block.entry_location {
            Location::File { file, offset } => (Some(file), offset),
            Location::Address(addr) => (None, addr),
        };
        // Processes may have mapped the file elsewhere.
        let here = i128::from(block.entry) - i128::from(place);
        let (shift, points) = groups.entry((file, block.owner)).or_insert((here, BTreeMap::new()));
        let moved = |addr: u64| (i128::from(addr) - here + *shift) as u64;
        let first = points.entry(moved(block.entry)).or_default();
        first.leads = true;
        first.begins = first.begins.saturating_add(block.count);
        let last = points.entry(moved(block.exit)).or_default();
        last.leaves = true;
        last.ends = last.ends.saturating_add(block.count);
        for passed in &block.passed {
            let branch = points.entry(moved(passed.from)).or_default();
            branch.leaves = true;
            branch.next = Some(moved(passed.next));
            points.entry(moved(passed.next)).or_default().leads = true;
        }
    }
    let mut found = Vec::new();
    for ((file, _), (shift, points)) in groups {
        let location = |edge: Edge| {
            let (Edge::At(addr) | Edge::Behind(addr) | Edge::Before(addr)) = edge;
            match file {
                Some(file) => Location::File { file, offset: (i128::from(addr) - shift) as u64 },
                None => Location::Address(addr),
            }
        };
        sweep(&points, |start, end, count| {
            found.push(BasicBlock { start, end, location: location(start), count });
        });
    }
    found.sort_by(|a, b| b.count.cmp(&a.count).then(a.start.cmp(&b.start)));
    found
}

/// Walks up the addresses. `running` is how often the code at hand ran.
fn sweep(points: &BTreeMap<u64, Point>, mut found: impl FnMut(Edge, Edge, u64)) {
    let mut running = 0u64;
    let mut start: Option<Edge> = None;
    let mut next: Option<u64> = None;
    for (&addr, point) in points {
        if point.leads {
            // Right behind a branch nothing lies in between.
            if let Some(start) = start.filter(|_| next != Some(addr)) {
                found(start, Edge::Before(addr), running);
            }
            running = running.saturating_add(point.begins);
            start = (running > 0).then_some(Edge::At(addr));
            next = None;
        }
        if point.leaves {
            if let Some(start) = start {
                found(start, Edge::At(addr), running);
            }
            running = running.saturating_sub(point.ends);
            start = (running > 0).then_some(Edge::Behind(addr));
            next = point.next;
        }
    }
}
