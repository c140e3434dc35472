//! Analyses of a recording. A view counts the branches that the cleaner returns, never raw stacks.

pub mod annotate;
pub mod arguments;
pub mod basic;
pub mod callgraph;
pub mod compare;
pub mod cycles;
pub mod flow;
pub mod hot;
pub mod lint;
pub mod loops;
mod modes;
pub mod overview;
pub mod paths;
pub mod trace;
pub mod types;
pub(crate) mod walk;

/// Sorts a list. Also returns the new index of each item, by its old one.
fn sorted_by_key<T, K: Ord>(items: Vec<T>, key: impl Fn(&T) -> K) -> (Vec<T>, Vec<usize>) {
    let mut all: Vec<(usize, T)> = items.into_iter().enumerate().collect();
    all.sort_by_key(|(_, item)| key(item));
    let mut moved = vec![0; all.len()];
    all.iter().enumerate().for_each(|(new, (old, _))| moved[*old] = new);
    (all.into_iter().map(|(_, item)| item).collect(), moved)
}
