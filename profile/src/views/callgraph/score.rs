//! The similarity of two call graphs.

use std::collections::HashMap;

use super::CallGraph;
use super::tree::ROOT;

/// The share (0 to 1) of stacks that two call graphs have on the same paths: for each path from the
/// outermost to the innermost function, the smaller of its two shares, summed. 1 means that both
/// have the same stacks with the same shares; a stack with missing callers matches no path of the
/// truth.
///
/// A replay counts the stack after each call and return, as call-stack mode samples it; stacks
/// without an open call are in neither. `None` if one of the two has no stack.
pub fn score(ours: &CallGraph, truth: &CallGraph) -> Option<f64> {
    let moves = |graph: &CallGraph| graph.nodes.iter().map(|node| node.moves as f64).sum::<f64>();
    let (all_ours, all_truth) = (moves(ours), moves(truth));
    if all_ours <= 0.0 || all_truth <= 0.0 {
        return None;
    }
    let theirs: HashMap<(usize, String), (usize, u64)> = truth
        .nodes
        .iter()
        .enumerate()
        .filter_map(|(at, node)| {
            let label = truth.functions.get(node.function)?.label();
            Some(((node.parent?, label), (at, node.moves)))
        })
        .collect();
    // Parents come before their children.
    let mut same: Vec<Option<usize>> = vec![None; ours.nodes.len()];
    same[ROOT] = Some(ROOT);
    let mut agreed = 0.0;
    for (at, node) in ours.nodes.iter().enumerate().skip(1) {
        let parent = node.parent.and_then(|parent| same.get(parent).copied().flatten());
        let label = ours.functions.get(node.function).map(super::Function::label);
        let Some((parent, label)) = parent.zip(label) else { continue };
        let Some(&(their, moves)) = theirs.get(&(parent, label)) else { continue };
        same[at] = Some(their);
        agreed += (node.moves as f64 / all_ours).min(moves as f64 / all_truth);
    }
    Some(agreed)
}
