//! Sums of branches by function.

use std::collections::HashMap;

use profile::callgraph::CallGraph;
use profile::maps::{Location, Maps};
use profile::overview::Overview;

use crate::present::number::share;
use crate::present::table::{Cell, Ranked, Table};

/// The branches from a function, together. Code without a symbol is summed by file.
#[derive(Clone, Debug)]
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

/// Identifies a function across readings: its file and the offset of its first byte, or its name.
type Identity = (Option<String>, Option<u64>, String);

/// All functions with branches, by how many.
pub(crate) fn sums(overview: &mut Overview) -> Vec<FunctionSum> {
    let Overview { branches, flow, .. } = overview;
    let mut sums: Vec<FunctionSum> = Vec::new();
    let mut known: HashMap<Identity, usize> = HashMap::new();
    for branch in branches.iter() {
        let location = branch.from_location;
        let identity = identity(&mut flow.maps, location);
        let at = *known.entry(identity).or_insert_with_key(|(file, start, name)| {
            let start = location.file().zip(*start);
            sums.push(FunctionSum {
                name: name.clone(),
                file: file.clone(),
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
        if let Some(missed) = branch.mispredicted {
            sum.mispredicted = Some(sum.mispredicted.unwrap_or(0).saturating_add(missed));
        }
        sum.cycles = sum.cycles.saturating_add(branch.cycles_sum);
        sum.with_cycles = sum.with_cycles.saturating_add(branch.with_cycles);
    }
    sums.sort_by(|a, b| b.own.cmp(&a.own).then_with(|| a.name.cmp(&b.name)));
    sums
}

/// Adds the totals of the call graph.
pub(crate) fn add_totals(sums: &mut [FunctionSum], maps: &mut Maps, graph: &CallGraph) {
    let mut totals: HashMap<Identity, u64> = HashMap::new();
    for sum in graph.sums() {
        let Some(function) = graph.functions.get(sum.function) else { continue };
        let (Some(location), Some(name)) = (function.location, &function.name) else { continue };
        let file = graph.maps.path_of(location).map(str::to_owned);
        let start = match location {
            Location::File { offset, .. } => Some(offset),
            Location::Address(_) => None,
        };
        totals.insert((file, start, name.clone()), sum.total);
    }
    for sum in sums {
        sum.total = totals.get(&identity(maps, sum.location)).copied();
    }
}

fn identity(maps: &mut Maps, location: Location) -> Identity {
    let file = maps.path_of(location).map(str::to_owned);
    match maps.function(location) {
        Some(function) => (file, Some(function.offsets.start), function.name),
        None => {
            let name = maps.name(location).map(|named| named.name);
            let name = name.or_else(|| file.clone()).unwrap_or_else(|| "[unknown]".to_owned());
            (file, None, name)
        }
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
        .spare(1)
        .number("mispredicted", "mispredicts", |(), (_, sum)| Cell::count(sum.mispredicted))
        .only("predictions_known", |(), (_, sum)| Cell::Count(sum.known))
        .number("mispredict_rate", "rate", |(), (_, sum)| {
            Cell::mispredicts(sum.mispredicted, sum.known)
        })
        .spare(2)
        .number("cycles", "cycles", |(), (_, sum)| {
            Cell::count((sum.with_cycles > 0).then_some(sum.cycles))
        })
        .spare(3)
        .name("function", "function", |(), (_, sum)| Cell::Name(sum.name.clone()))
        .only("file", |(), (_, sum)| Cell::name(sum.file.clone()))
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
