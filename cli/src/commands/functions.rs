//! Sums of branches by function.

use std::collections::HashMap;

use profile::callgraph::CallGraph;
use profile::maps::{Location, Maps};
use profile::overview::Overview;

use super::report::group::{By, GroupKey, plus};
use crate::present::{Cell, Ranked, Table, share};

/// The branches from a function, together. Code without a symbol is summed by file.
pub(crate) struct FunctionSum {
    /// Its symbol, or its file.
    pub(crate) name: String,
    pub(crate) file: Option<String>,
    /// Its first byte, if it has a symbol.
    pub(crate) start: Option<Location>,
    /// The place of its most frequent branch.
    pub(crate) location: Location,
    /// The same as an address.
    pub(crate) address: u64,
    pub(crate) own: u64,
    /// With its callees; `None` until the call graph is known.
    total: Option<u64>,
    known: u64,
    mispredicted: Option<u64>,
    /// Core cycles between the records, as far as they have them.
    cycles: u64,
    with_cycles: u64,
}

/// All functions with branches, by how many.
pub(crate) fn sums(overview: &mut Overview) -> Vec<FunctionSum> {
    let Overview { branches, flow, .. } = overview;
    let mut sums: Vec<FunctionSum> = Vec::new();
    let mut known: HashMap<GroupKey, usize> = HashMap::new();
    for branch in branches.iter() {
        let location = branch.from_location;
        let key = GroupKey::of(&mut flow.maps, By::Function, location);
        let at = *known.entry(key).or_insert_with_key(|key| {
            let start = location.file().zip(key.start);
            sums.push(FunctionSum {
                name: key.text(),
                file: key.file.clone(),
                start: start.map(|(file, offset)| Location::File { file, offset }),
                location,
                address: branch.from,
                own: 0,
                total: None,
                known: 0,
                mispredicted: None,
                cycles: 0,
                with_cycles: 0,
            });
            sums.len() - 1
        });
        let Some(sum) = sums.get_mut(at) else { continue };
        sum.own = sum.own.saturating_add(branch.count);
        sum.known = sum.known.saturating_add(branch.known);
        plus(&mut sum.mispredicted, branch.mispredicted);
        sum.cycles = sum.cycles.saturating_add(branch.cycles_sum);
        sum.with_cycles = sum.with_cycles.saturating_add(branch.with_cycles);
    }
    sums.sort_by(|a, b| b.own.cmp(&a.own).then_with(|| a.name.cmp(&b.name)));
    sums
}

/// Adds the totals of the call graph.
pub(crate) fn add_totals(sums: &mut [FunctionSum], maps: &mut Maps, graph: &CallGraph) {
    let mut totals: HashMap<GroupKey, u64> = HashMap::new();
    for sum in graph.sums() {
        let Some(function) = graph.functions.get(sum.function) else { continue };
        let (Some(location), symbol @ Some(_)) = (function.location, function.name.clone()) else {
            continue;
        };
        let file = graph.maps.path_of(location).map(str::to_owned);
        let start = match location {
            Location::File { offset, .. } => Some(offset),
            Location::Address(_) => None,
        };
        totals.insert(GroupKey { symbol, start, file, ..GroupKey::default() }, sum.total);
    }
    for sum in sums {
        let key = GroupKey::of(maps, By::Function, sum.location);
        sum.total = totals.get(&key).copied();
    }
}

/// The columns, with shares of all branches.
pub(crate) fn table<'a>(all: u64) -> Table<'a, (), Ranked<'a, FunctionSum>> {
    Table::<(), Ranked<'_, FunctionSum>>::new()
        .constant("view", "functions")
        .only("rank", |(), (at, _)| Cell::Number(*at as u64 + 1))
        .number("self", "self", |(), (_, sum)| Cell::Count(sum.own))
        .number("self_share", "share", move |(), (_, sum)| Cell::share(share(sum.own, all)))
        .heat()
        .number("total", "total", |(), (_, sum)| Cell::count(sum.total))
        .number("mispredicted", "mispredicts", |(), (_, sum)| Cell::count(sum.mispredicted))
        .only("predictions_known", |(), (_, sum)| Cell::Count(sum.known))
        .number("mispredict_rate", "rate", |(), (_, sum)| {
            Cell::mispredicts(sum.mispredicted, sum.known)
        })
        .number("cycles", "cycles", |(), (_, sum)| {
            Cell::count((sum.with_cycles > 0).then_some(sum.cycles))
        })
        .name("function", "function", |(), (_, sum)| Cell::Name(sum.name.clone()))
        .only("file", |(), (_, sum)| Cell::name(sum.file.clone()))
        .spares(&["cycles", "rate", "total"])
}

/// A location in the maps of another reading of the same recordings.
pub(crate) fn moved(from: &Maps, to: &Maps, location: Location) -> Option<Location> {
    let Location::File { file, offset } = location else { return Some(location) };
    let path = from.path(file);
    if to.path(file) == path {
        return Some(location);
    }
    let file = to.files().find(|file| to.path(*file) == path)?;
    Some(Location::File { file, offset })
}
