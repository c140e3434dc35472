//! Grows chains: from the hottest branch, along the most frequent followers.

use super::successors::Followers;
use super::{Break, Follower, LEAST};
use crate::clean::pieces::Pieces;
use crate::views::walk::{Edge, Transfer};

/// Maximum length of a chain.
const LONGEST: usize = 256;

const _: () = assert!(LONGEST <= u16::MAX as usize);

/// A growing chain.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) edges: Vec<usize>,
    pub(super) ends: Break,
}

/// Chains, and the chain and index of each branch.
pub(super) struct Grown {
    pub(super) chains: Vec<Chain>,
    pub(super) place: Vec<Option<(u32, u16)>>,
}

pub(super) fn grow(edges: &[Edge], followers: &Pieces<Followers>) -> Grown {
    let count = |edge: usize| edges.get(edge).map_or(0, |edge| edge.count);
    let stops = |edge: usize| edges.get(edge).map(|edge| edge.kind).filter(|kind| !kind.is_jump());
    let following = |(edge, after): (usize, &Followers)| {
        let (next, count) = *after.best().first()?;
        let is_dominant = count as f64 >= LEAST * after.all() as f64;
        (is_dominant && stops(edge).is_none()).then_some(next as u32)
    };
    let followed: Vec<Option<u32>> = followers.iter().enumerate().map(following).collect();
    let next = |edge: usize| followed.get(edge).copied().flatten().map(|next| next as usize);
    // For each branch, the most frequent one that it predominantly follows.
    let mut before: Vec<Option<u32>> = vec![None; edges.len()];
    for edge in 0..edges.len() {
        if let Some(place) = next(edge).and_then(|next| before.get_mut(next))
            && place.is_none_or(|known| count(edge) > count(known as usize))
        {
            *place = Some(edge as u32);
        }
    }
    // A branch counted at another one is not in a chain.
    let mut order: Vec<usize> = (0..edges.len()).filter(|edge| count(*edge) > 0).collect();
    order.sort_by_key(|edge| (std::cmp::Reverse(count(*edge)), *edge));
    let mut grown = Grown { chains: Vec::new(), place: vec![None; edges.len()] };
    for seed in order {
        if grown.place.get(seed).is_none_or(Option::is_some) {
            continue;
        }
        let number = grown.chains.len();
        let mut chain = std::collections::VecDeque::from([seed]);
        let mut mark = |edge: usize| {
            let free = grown.place.get_mut(edge).filter(|place| place.is_none());
            free.map(|place| *place = Some((number as u32, 0))).is_some()
        };
        mark(seed);
        let mut at = seed;
        while chain.len() < LONGEST
            && let Some(after) = next(at).filter(|edge| mark(*edge))
        {
            chain.push_back(after);
            at = after;
        }
        // Stops at the first branch, so that a chain does not wrap around.
        let mut at = seed;
        while chain.len() < LONGEST
            && let Some(ahead) = before.get(at).copied().flatten().map(|ahead| ahead as usize)
            && mark(ahead)
        {
            chain.push_front(ahead);
            at = ahead;
        }
        let chain: Vec<usize> = chain.into();
        for (at, edge) in chain.iter().enumerate() {
            grown.place[*edge] = Some((number as u32, at as u16));
        }
        grown.chains.push(Chain { edges: chain, ends: Break::Unknown });
    }
    let place = &grown.place;
    for chain in &mut grown.chains {
        let (Some(&first), Some(&last)) = (chain.edges.first(), chain.edges.last()) else {
            continue;
        };
        let after = followers.get(last as u32).cloned().unwrap_or_default();
        let all = after.all();
        let joined = |next: usize| place.get(next).copied().flatten();
        chain.ends = match (stops(last), next(last)) {
            (Some(Transfer::Call), _) => Break::Call,
            (Some(_), _) => Break::Return,
            (None, Some(next)) if next == first => Break::Round,
            (None, Some(_)) if chain.edges.len() >= LONGEST => Break::Long,
            (None, Some(next)) => match joined(next) {
                Some((number, at)) => Break::Joins { chain: number as usize, at: usize::from(at) },
                None => Break::Unknown,
            },
            (None, None) if all == 0 => Break::Unknown,
            (None, None) => Break::Splits {
                followers: after
                    .best()
                    .into_iter()
                    .map(|(edge, count)| Follower { edge, share: count as f64 / all as f64 })
                    .collect(),
                exact: after.missing() == 0,
            },
        };
    }
    grown
}
