use super::super::forest::Forest;
use super::{Graph, StraightRuns};
use crate::code::maps::Maps;
use crate::views::walk::{Edge, Transfer};

#[test]
fn the_last_node_has_no_fall_through() {
    // A fall-through range that started after a branch and never ended.
    let edge = Edge { from: 0x10, to: 0x20, space: 0, kind: Transfer::Conditional, count: 5 };
    let ran = StraightRuns { begins: 5, ..StraightRuns::default() };
    let graph = Graph::new(&[edge], &[ran], &[], &Maps::default());
    let last = graph.nodes.len() - 1;
    assert!(graph.next(last).is_empty());
    assert!(Forest::new(&graph).loops.is_empty());
}
