//! Functions of the call graph in the requested files.

use profile::callgraph::{CallGraph, Function, Sum};
use profile::maps::Location;

use super::Report;
use crate::exit::Failure;
use crate::select::Rows;

/// Which functions are shown.
pub(crate) struct Shown {
    /// By function.
    functions: Vec<bool>,
    /// All are.
    any: bool,
}

impl Shown {
    /// The functions in the requested files.
    pub(crate) fn of(args: &Report, graph: &mut CallGraph) -> Result<Shown, Failure> {
        let unknown = Location::Address(0);
        let place = |function: &Function| function.location.unwrap_or(unknown);
        let sums = graph.sums();
        let CallGraph { functions, maps, .. } = graph;
        let places = sums.into_iter().filter_map(|sum| {
            functions.get(sum.function).map(|function| (place(function), sum.own))
        });
        let within = args.shown().places(maps, places)?;
        let is = |function| within.as_ref().is_none_or(|within| within.has(place(function)));
        let functions = graph.functions.iter().map(is).collect();
        Ok(Shown { functions, any: within.is_none() })
    }

    pub(crate) fn has(&self, function: usize) -> bool {
        self.any || self.functions.get(function).copied().unwrap_or(false)
    }

    /// The sums of the functions that are shown.
    pub(crate) fn sums(&self, graph: &CallGraph) -> Vec<Sum> {
        graph.sums().into_iter().filter(|sum| self.has(sum.function)).collect()
    }

    /// For each node, whether it leads to one of the functions.
    pub(crate) fn leads(&self, graph: &CallGraph) -> Vec<bool> {
        let mut leads: Vec<bool> = graph.nodes.iter().map(|node| self.has(node.function)).collect();
        // Children have higher numbers than their parents.
        for (at, node) in graph.nodes.iter().enumerate().rev() {
            let parent = node.parent.filter(|_| leads.get(at) == Some(&true));
            if let Some(parent) = parent {
                leads.get_mut(parent).into_iter().for_each(|parent| *parent = true);
            }
        }
        leads
    }

    pub(crate) fn rows(&self, args: &Report, graph: &CallGraph) -> Option<Rows> {
        let (sums, all) = (self.sums(graph), graph.sums().len());
        let own = sums.iter().fold(0, |sum: u64, of| sum.saturating_add(of.own));
        let unit = graph.unit.name();
        (!self.any).then(|| args.shown().rows(unit, (own, graph.total()), (sums.len(), all)))
    }
}
