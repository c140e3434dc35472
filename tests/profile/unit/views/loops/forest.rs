use super::super::graph::{Graph, StraightRuns};
use super::{DEEPEST_IRREDUCIBLE, Forest};
use crate::code::maps::Maps;
use crate::views::walk::{Edge, Transfer};

fn forest(jumps: impl IntoIterator<Item = (u64, u64)>) -> Forest {
    let edge = |(from, to)| {
        let (from, to) = (0x1000 + 0x10 * from + 4, 0x1000 + 0x10 * to);
        Edge { from, to, space: 0, kind: Transfer::IndirectJump, count: 1 }
    };
    let edges: Vec<Edge> = jumps.into_iter().map(edge).collect();
    let ran = vec![StraightRuns::default(); edges.len()];
    Forest::new(&Graph::new(&edges, &ran, &[], &Maps::default()))
}

fn deepest(forest: &Forest) -> Option<u32> {
    forest.loops.iter().map(|shape| shape.depth).max()
}

#[test]
fn loops_with_one_entrance_nest_deeper_than_irreducible_ones() {
    // Heads 1 to 30, each the entrance of the next one's loop, and a latch for each.
    let latch = |head: u64| 100 - head;
    let nested = (0..30).flat_map(|head| {
        [(head, head + 1), (latch(head + 1), head + 1), (latch(head + 1), latch(head))]
    });
    let nested = forest(nested.chain([(30, latch(30))]));
    assert!(nested.loops.iter().all(|shape| !shape.irreducible));
    assert_eq!((nested.loops.len(), deepest(&nested)), (30, Some(30)));
    // Thirty pieces that all jump to each other, entered at each.
    let all = (1..=30).flat_map(|from| (0..=30).map(move |to| (to, from)));
    let all = forest(all);
    assert_eq!(deepest(&all), Some(DEEPEST_IRREDUCIBLE));
    assert!(all.loops.iter().all(|shape| shape.irreducible));
}
