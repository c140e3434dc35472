//! Hot paths: chains of blocks that usually run one after another.
//!
//! A chain starts at the hottest branch that is not yet in one, and grows forwards along followers
//! with at least a given probability, and backwards along branches that it follows with that
//! probability: superblocks as trace schedulers form them (Hwu et al., The superblock, 1993). Each
//! branch is in one chain. A second pass, over the branches that the first one kept, counts how often
//! each chain was entered, how often it ran completely, and where it was left. The same branch of
//! several processes is merged.
//!
//! Memory is bounded by the number of distinct branches: for each, only its [`FOLLOWERS`] most
//! frequent followers are kept.

mod grow;
mod successors;

use crate::clean::pieces::Pieces;
use crate::clean::quality::Quality;
use crate::clean::{ByThread, Cleaned, CommonResult, Continuity, Counter, View};
use crate::code::maps::{Location, Maps};
use crate::read::add;
use crate::views::sorted_by_key;
use crate::views::walk::{Edges, Follow, Part, SpillError, Step, Trace, Visit, Walk, touch};

use grow::{Chain, Grown, grow};
use successors::Followers;

pub use successors::FOLLOWERS;

/// The lowest probability of a follower that continues a chain.
pub const LEAST: f64 = 0.6;

/// A branch that follows the last one of a chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Follower {
    /// Its number.
    pub(crate) edge: usize,
    /// How often it follows, 0 to 1.
    pub share: f64,
}

/// Why a chain ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Break {
    /// Its last branch is a call.
    Call,
    /// Its last branch is a return.
    Return,
    /// It continues with its own first branch: a loop.
    Round,
    /// It continues in the middle of a chain: itself, or another, hotter one.
    Joins {
        /// Index of the chain.
        chain: usize,
        /// The index of the branch in it.
        at: usize,
    },
    /// No follower is frequent enough.
    Splits {
        /// The followers, most frequent first.
        followers: Vec<Follower>,
        /// Whether the shares are exact; otherwise they are lower bounds.
        exact: bool,
    },
    /// The chain has the maximum length.
    Long,
    /// The next branch is unknown.
    Unknown,
}

impl Break {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Break::Call => "call",
            Break::Return => "return",
            Break::Round => "round",
            Break::Joins { .. } => "joins",
            Break::Splits { .. } => "splits",
            Break::Long => "long",
            Break::Unknown => "unknown",
        }
    }
}

/// A branch of a chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Source address, in the first process that ran it.
    pub from: u64,
    /// Target address.
    pub to: u64,
    /// Location of `from`.
    pub from_location: Location,
    /// Location of `to`.
    pub to_location: Location,
    /// Times taken.
    pub count: u64,
    /// Times that the chain was entered here, except after its own last branch.
    pub entered: u64,
    /// Times that a branch outside of the chain followed, except after its last branch.
    pub left: u64,
    /// Times that the next branch is unknown.
    pub lost: u64,
}

/// A chain.
#[derive(Clone, Debug)]
pub struct Path {
    /// Its branches in order: the block before each starts at the previous branch's target.
    pub links: Vec<Link>,
    /// Branches executed in it.
    pub branches: u64,
    /// Times it ran from the first branch to the last.
    pub whole: u64,
    /// Bytes of code executed between its branches, and from the last to the first in a loop.
    pub bytes: u64,
    /// Why it ends.
    pub ends: Break,
}

/// The hot paths of a recording.
#[derive(Debug)]
pub struct Paths {
    /// Chains, by descending number of executed branches.
    pub paths: Vec<Path>,
    /// Taken branches.
    pub taken: u64,
    /// Distinct ones.
    pub distinct: u64,
    /// Bytes of code executed in known blocks.
    pub bytes: u64,
    /// Branches with more followers than are kept.
    pub crowded: u64,
    /// Quality of the data.
    pub quality: Quality,
    /// Stacks that lack some branches: they show no paths.
    pub filtered: u64,
    /// Whether every taken branch is included.
    pub complete: bool,
    /// Mappings and files, for names.
    pub maps: Maps,
    ends: Vec<(u64, u64, u32)>,
}

impl Paths {
    /// Source and target of a follower.
    pub fn follower(&self, follower: &Follower) -> Option<(u64, Location, u64, Location)> {
        let &(from, to, space) = self.ends.get(follower.edge)?;
        let locate = |addr| self.maps.locate(space as usize, addr);
        Some((from, locate(from), to, locate(to)))
    }
}

/// The first pass.
#[derive(Debug, Default)]
struct FirstWalk {
    followers: Pieces<Followers>,
    /// Bytes of code executed in known blocks.
    bytes: u64,
    trace: Trace,
}

impl Visit for FirstWalk {
    type Table = Result<Paths, SpillError>;

    fn stack(&mut self, stack: &Cleaned<'_>, steps: &[Step], edges: &Edges, _: &mut Maps) {
        let new = self.followers.len()..edges.list().len();
        new.for_each(|_| self.followers.push(Followers::default()));
        touch(steps, |edge| self.followers.get(edge as u32).map_or(0, Followers::word));
        for step in steps {
            let Some(before) = step.before else { continue };
            if let Some(after) = self.followers.get_mut(before as u32) {
                after.add(step.edge, stack.weight);
            }
            let bytes = block_bytes(edges, before, step.edge);
            add(&mut self.bytes, bytes.saturating_mul(stack.weight));
        }
        self.trace.stack(Part::of(stack), steps);
    }

    /// The same branch of several processes is merged into the first.
    fn finish(self, mut edges: Edges, whole: CommonResult) -> Result<Paths, SpillError> {
        let FirstWalk { mut followers, bytes, trace } = self;
        let firsts = edges.firsts(&whole.maps);
        edges.merge(&firsts);
        for (at, first) in (0..).zip(&firsts) {
            // The first one comes earlier, so its followers are already processed.
            let after = followers.get_mut(at).map(std::mem::take);
            if let Some((after, into)) = after.zip(followers.get_mut(*first)) {
                into.merge(&after, &firsts);
            }
        }
        let mut walk = SecondWalk::new(&edges, firsts, followers, bytes);
        trace.replay(&edges, &mut walk)?;
        Ok(walk.finish(edges, whole))
    }
}

/// Length of the code between two branches that follow each other.
fn block_bytes(edges: &Edges, before: usize, edge: usize) -> u64 {
    let ends = edges.get(before).zip(edges.get(edge));
    ends.map_or(0, |(before, edge)| edge.from.saturating_sub(before.to))
}

/// The chain position of a branch, and its counts: half a cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
struct Place {
    /// Its chain, or [`NO_CHAIN`], and its index there.
    chain: u32,
    at: u16,
    /// Whether it is the last of its chain.
    last: bool,
    /// Whether it is counted at another branch, the first that is the same.
    is_other: bool,
    entered: u64,
    left: u64,
    lost: u64,
}

const NO_CHAIN: u32 = u32::MAX;

/// The position of a thread: chain, index, and whether it came through the chain's first branch.
#[derive(Clone, Copy, Debug)]
struct OnChain {
    chain: u32,
    at: u16,
    last: bool,
    from_first: bool,
    edge: usize,
}

/// The second pass.
#[derive(Debug)]
struct SecondWalk {
    crowded: u64,
    chains: Vec<Chain>,
    /// By branch; equal branches use the first one's.
    places: Vec<Place>,
    firsts: Vec<u32>,
    whole: Vec<u64>,
    bytes: u64,
    threads: ByThread<OnChain>,
}

impl SecondWalk {
    /// Grows chains.
    fn new(
        edges: &Edges,
        firsts: Vec<u32>,
        followers: Pieces<Followers>,
        bytes: u64,
    ) -> SecondWalk {
        let crowded = followers.iter().filter(|after| after.missing() > 0).count() as u64;
        let Grown { chains, place } = grow(edges.list(), &followers);
        drop(followers);
        let places = (0..).zip(&firsts).zip(place).map(|((number, first), place)| {
            let (chain, at) = place.unwrap_or((NO_CHAIN, 0));
            let of = chains.get(chain as usize);
            let last = of.is_some_and(|of| usize::from(at) + 1 >= of.edges.len());
            Place { chain, at, last, is_other: *first != number, ..Place::default() }
        });
        SecondWalk {
            crowded,
            places: places.collect(),
            firsts,
            whole: vec![0; chains.len()],
            chains,
            bytes,
            threads: ByThread::default(),
        }
    }

    fn ran(&mut self, edge: usize, change: impl FnOnce(&mut Place)) {
        if let Some(ran) = self.places.get_mut(edge) {
            change(ran);
        }
    }

    /// A chain with its counts.
    fn path(&mut self, number: usize, chain: Chain, edges: &Edges, maps: &Maps) -> Path {
        let mut path = Path {
            links: Vec::with_capacity(chain.edges.len()),
            branches: 0,
            whole: self.whole.get(number).copied().unwrap_or(0),
            bytes: 0,
            ends: chain.ends,
        };
        let mut before = chain.edges.last().copied();
        for edge in chain.edges {
            let Some(branch) = edges.get(edge) else { continue };
            let Place { entered, left, lost, .. } =
                self.places.get(edge).copied().unwrap_or_default();
            let locate = |addr| maps.locate(branch.space as usize, addr);
            add(&mut path.branches, branch.count);
            // Whenever the chain was not entered here, it came from the branch before.
            let bytes = before.map_or(0, |before| block_bytes(edges, before, edge));
            add(&mut path.bytes, bytes.saturating_mul(branch.count.saturating_sub(entered)));
            before = Some(edge);
            path.links.push(Link {
                from: branch.from,
                to: branch.to,
                from_location: locate(branch.from),
                to_location: locate(branch.to),
                count: branch.count,
                entered,
                left,
                lost,
            });
        }
        path
    }

    /// The paths, after the last stack.
    fn finish(mut self, edges: Edges, whole: CommonResult) -> Paths {
        // The next branch after the end of a recording is unknown.
        for (_, place) in std::mem::take(&mut self.threads) {
            self.ran(place.edge, |ran| add(&mut ran.lost, 1));
        }
        let complete = whole.is_complete();
        let CommonResult { quality, gaps, maps, .. } = whole;
        let (taken, distinct) = edges.totals(&maps);
        let chains = std::mem::take(&mut self.chains).into_iter().enumerate();
        let paths = chains.map(|(number, chain)| self.path(number, chain, &edges, &maps));
        let key = |path: &Path| std::cmp::Reverse(path.branches);
        let (mut paths, moved) = sorted_by_key(paths.collect(), key);
        for path in &mut paths {
            if let Break::Joins { chain, .. } = &mut path.ends {
                *chain = moved.get(*chain).copied().unwrap_or(*chain);
            }
        }
        Paths {
            paths,
            taken,
            distinct,
            bytes: self.bytes,
            crowded: self.crowded,
            filtered: gaps.filtered,
            complete,
            ends: edges.list().iter().map(|edge| (edge.from, edge.to, edge.space)).collect(),
            quality,
            maps,
        }
    }
}

impl Follow for SecondWalk {
    fn part(&mut self, part: Part, steps: &[Step], _: &Edges) {
        let weight = part.weight;
        let mut stands = self.threads.remove(&part.thread);
        if part.joins != Continuity::Before
            && let Some(place) = stands.take()
        {
            self.ran(place.edge, |ran| add(&mut ran.lost, weight));
        }
        touch(steps, |edge| self.places.get(edge).map_or(0, |place| place.entered));
        for step in steps {
            let Some(mut place) = self.places.get(step.edge).copied() else { continue };
            let mut edge = step.edge;
            if place.is_other {
                edge = self.firsts.get(edge).map_or(edge, |first| *first as usize);
                place = self.places.get(edge).copied().unwrap_or(place);
            }
            let Place { chain, at, last, .. } = place;
            if chain == NO_CHAIN {
                continue;
            }
            let same = stands.filter(|place| step.before.is_some() && place.chain == chain);
            let goes_on = same.filter(|place| place.at + 1 == at);
            let round = same.filter(|place| at == 0 && place.last);
            let from_first = match goes_on.or(round) {
                Some(place) => place.from_first || at == 0,
                None => {
                    if let Some(place) = stands {
                        self.ran(place.edge, |ran| match step.before {
                            Some(_) if !place.last => add(&mut ran.left, weight),
                            Some(_) => {}
                            None => add(&mut ran.lost, weight),
                        });
                    }
                    self.ran(edge, |ran| add(&mut ran.entered, weight));
                    at == 0
                }
            };
            if from_first
                && last
                && let Some(whole) = self.whole.get_mut(chain as usize)
            {
                add(whole, weight);
            }
            stands = Some(OnChain { chain, at, last, from_first, edge });
        }
        match stands {
            Some(place) if part.goes_on => {
                self.threads.insert(part.thread, place);
            }
            Some(place) => self.ran(place.edge, |ran| add(&mut ran.lost, weight)),
            None => {}
        }
    }
}

/// Finds the paths of recordings.
pub fn counter() -> Counter<impl View<Table = Result<Paths, SpillError>>> {
    Counter::of(Walk::new(FirstWalk::default()))
}
