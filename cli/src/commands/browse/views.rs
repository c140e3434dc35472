//! The tables that are browsed: their rows, and the code that a row is about.

use lbr_msr::record::BranchType;
use profile::annotate::Stretch;
use profile::compare::{By, Measure};
use profile::flow::{Block, Flow, Site};
use profile::hot::HotBranch;
use profile::loops::Loop;
use profile::maps::{Location, Maps};
use profile::overview::Overview;
use profile::paths::Link;

use super::reading::{Ask, Difference, Model};
use crate::commands::annotate::graph::{self, EdgeRow};
use crate::commands::diff::{self, is_loop};
use crate::commands::functions::{self, moved};
use crate::commands::report::outcomes::{is_conditional, is_indirect};
use crate::commands::report::{KNOWN, blocks, hot, loops, mispredict, outcomes, paths};
use crate::exit::Result;
use crate::present::{Listed, Sheet};
use crate::select::RowArgs;

/// The views, in the order of Tab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Functions,
    Branches,
    Mispredicts,
    Outcomes,
    Targets,
    Blocks,
    Loops,
    Paths,
    CallGraph,
    Lint,
}

impl View {
    /// All, in this order, with their names.
    pub(super) const ALL: [(View, &'static str); 10] = [
        (View::Functions, "functions"),
        (View::Branches, "branches"),
        (View::Mispredicts, "mispredicts"),
        (View::Outcomes, "outcomes"),
        (View::Targets, "targets"),
        (View::Blocks, "blocks"),
        (View::Loops, "loops"),
        (View::Paths, "paths"),
        (View::CallGraph, "call graph"),
        (View::Lint, "lint"),
    ];

    pub(super) fn name(self) -> &'static str {
        View::ALL[self as usize].1
    }

    /// Its neighbour, round and round.
    pub(super) fn next(self, back: bool) -> View {
        let step = if back { View::ALL.len() - 1 } else { 1 };
        View::ALL[(self as usize + step) % View::ALL.len()].0
    }

    /// The comparison that it shows, if there is a baseline.
    pub(super) fn difference(self, model: &Model) -> Option<&Difference> {
        model.compared[self.compared()?].as_ref()
    }

    fn compared(self) -> Option<usize> {
        match self {
            View::Functions => Some(0),
            View::Branches | View::Loops => Some(1),
            _ => None,
        }
    }

    /// The request for its data; `None` if they are there.
    pub(super) fn needs(self, model: &Model) -> Option<Ask> {
        match self {
            View::Loops if model.loops.is_none() && self.difference(model).is_none() => {
                Some(Ask::Loops)
            }
            View::Paths if model.paths.is_none() => Some(Ask::Paths),
            _ => None,
        }
    }
}

/// The rows of a table.
pub(super) enum Rows {
    /// Those of a view.
    View(View),
    /// Those of its comparison with a baseline.
    Compared(View),
    /// Branches into a function from others, or out of it; returns are neither.
    Calls { into: bool, function: Stretch },
    /// Targets of a branch, by its index.
    TargetsOf(usize),
    /// Edges of a control-flow graph.
    Edges(Vec<EdgeRow>),
}

/// The address that a row is about, and its place in the maps of the whole.
pub(super) type At = (Location, u64);

impl Rows {
    /// The indices of the rows, those first that are first in `lbr report`; and whether others are
    /// omitted that `shown` did not name.
    pub(super) fn ids(&self, model: &mut Model, shown: &RowArgs) -> Result<(Vec<usize>, bool)> {
        if let Rows::Compared(view) = self {
            let compared = view.difference(model);
            let rows = compared.map_or(&[][..], |(compared, _)| &compared.comparison.rows);
            let is_shown = |at: &usize| is_loop(&rows[*at]) == (*view == View::Loops);
            return Ok(((0..rows.len()).filter(is_shown).collect(), false));
        }
        let Model { overview: Overview { branches, flow, .. }, .. } = model;
        let Flow { sites, blocks, maps, .. } = flow;
        let by_site = |at: &usize| (sites[*at].location, sites[*at].taken);
        let of_sites = |is: &dyn Fn(&Site) -> bool| -> Vec<usize> {
            (0..sites.len()).filter(|at| is(&sites[*at])).collect()
        };
        match self {
            Rows::View(View::Functions) => {
                let functions = &model.functions;
                keep(shown, maps, 0..functions.len(), |at| (functions[*at].location, 1))
            }
            Rows::View(View::Branches) => keep(shown, maps, 0..branches.len(), |at| {
                (branches[*at].from_location, branches[*at].count)
            }),
            Rows::View(View::Mispredicts) => {
                let mut ids = of_sites(&|site| site.taken > 0);
                ids.sort_by(|a, b| mispredict::by_misses(&sites[*a], &sites[*b]));
                keep(shown, maps, ids, by_site)
            }
            Rows::View(View::Outcomes) => keep(shown, maps, of_sites(&is_conditional), by_site),
            Rows::View(View::Targets) => keep(shown, maps, of_sites(&is_indirect), by_site),
            Rows::View(View::Blocks) => {
                let ids = (0..blocks.len()).filter(|at| !blocks[*at].contradicted);
                keep(shown, maps, ids, |at| (blocks[*at].exit_location, blocks[*at].count))
            }
            Rows::View(View::Loops) => {
                let Some(loops) = &mut model.loops else { return Ok(Default::default()) };
                let found = &loops.loops;
                keep(shown, &mut loops.maps, 0..found.len(), |at| {
                    (found[*at].location, found[*at].all_trips())
                })
            }
            Rows::View(View::Paths) => {
                let Some(paths) = &mut model.paths else { return Ok(Default::default()) };
                let links = links(&paths.paths);
                keep(shown, &mut paths.maps, 0..links.len(), |at| {
                    let (_, link) = links[*at];
                    (link.from_location, link.count)
                })
            }
            Rows::View(View::CallGraph | View::Lint) | Rows::Compared(_) => Ok(Default::default()),
            Rows::Calls { into, function } => {
                let inside = |location| function.distance(location).is_some();
                let crosses = |branch: &HotBranch| {
                    let ends = (inside(branch.from_location), inside(branch.to_location));
                    ends == (!*into, *into)
                };
                let calls = |at: &usize| {
                    let branch = &branches[*at];
                    crosses(branch) && branch.type_in(maps) != Some(BranchType::RET)
                };
                Ok(((0..branches.len()).filter(calls).collect(), false))
            }
            Rows::TargetsOf(site) => {
                let targets = sites.get(*site).map_or(0, |site| site.targets.len());
                Ok(((0..targets).collect(), false))
            }
            Rows::Edges(edges) => Ok(((0..edges.len()).collect(), false)),
        }
    }

    /// Calls `then` with the table of these rows: a row's index is that in `ids`. `None` if there is no
    /// table.
    pub(super) fn with<T>(
        &self,
        model: &mut Model,
        ids: &[usize],
        then: impl FnOnce(&mut dyn Sheet) -> T,
    ) -> Option<T> {
        if let Rows::Compared(view) = self {
            let (compared, names) = model.compared[view.compared()?].as_mut()?;
            let table = match view {
                View::Loops => diff::table::table("loop", &[Measure::Trips]),
                _ => diff::table::table("branch", &compared.measures()),
            };
            let row = |at: usize| (at, &compared.comparison.rows[ids[at]]);
            return Some(then(&mut Listed { table: &table, context: names, row: &row }));
        }
        let Model { overview: Overview { branches, flow, .. }, functions, .. } = model;
        let complete = flow.is_complete();
        let all = flow.taken;
        let Flow { sites, blocks, maps, quality, block_quality, .. } = flow;
        Some(match self {
            Rows::View(View::Functions) => then(&mut Listed {
                table: &functions::table(all),
                context: &mut (),
                row: &|at| (at, &functions[ids[at]]),
            }),
            Rows::View(View::Branches) | Rows::Calls { .. } => {
                let row = |at: usize| (at, &branches[ids[at]]);
                let table = hot::table(all, quality, false);
                then(&mut Listed { table: &table, context: maps, row: &row })
            }
            Rows::View(view @ (View::Mispredicts | View::Outcomes | View::Targets)) => {
                let unsure = complete && ids.iter().any(|at| sites[*at].unsure > 0);
                let row = |at: usize| (at, &sites[ids[at]]);
                let table = match view {
                    View::Mispredicts => mispredict::table(KNOWN, complete),
                    View::Outcomes => outcomes::conditional(complete, unsure),
                    _ => outcomes::indirect(complete),
                };
                then(&mut Listed { table: &table, context: maps, row: &row })
            }
            Rows::TargetsOf(site) => {
                let site = sites.get(*site)?;
                let row = |at: usize| (at, site, &site.targets[ids[at]]);
                then(&mut Listed { table: &outcomes::targets(complete), context: maps, row: &row })
            }
            Rows::View(View::Blocks) => {
                let row = |at: usize| (at, &blocks[ids[at]]);
                let table = blocks::table(block_quality.blocks, quality, false);
                then(&mut Listed { table: &table, context: maps, row: &row })
            }
            Rows::View(View::Loops) => {
                let loops = model.loops.as_mut()?;
                let found: &Vec<Loop> = &loops.loops;
                let row = |at: usize| (ids[at], &found[ids[at]]);
                let table = loops::table(loops.complete);
                then(&mut Listed { table: &table, context: &mut loops.maps, row: &row })
            }
            Rows::View(View::Paths) => {
                let paths = model.paths.as_mut()?;
                let links: Vec<(usize, &Link)> = links(&paths.paths);
                let row = |at: usize| links[ids[at]];
                let table = paths::ranked();
                then(&mut Listed { table: &table, context: &mut paths.maps, row: &row })
            }
            Rows::View(View::CallGraph | View::Lint) | Rows::Compared(_) => return None,
            Rows::Edges(edges) => then(&mut Listed {
                table: &graph::table(),
                context: &mut (),
                row: &|at| (at, &edges[ids[at]]),
            }),
        })
    }

    /// The code that a row is about: where its branch comes from, its block or loop starts.
    pub(super) fn at(&self, model: &Model, id: usize) -> Option<At> {
        let Overview { branches, flow, .. } = &model.overview;
        let moved = |maps: &Maps, location: Location| moved(maps, &flow.maps, location);
        let site = || flow.sites.get(id).map(|site| (site.location, site.from));
        match self {
            Rows::View(View::Functions) => {
                model.functions.get(id).map(|sum| (sum.location, sum.address))
            }
            Rows::View(View::Branches) | Rows::Calls { into: true, .. } => {
                branches.get(id).map(|branch| (branch.from_location, branch.from))
            }
            Rows::Calls { into: false, .. } => {
                branches.get(id).map(|branch| (branch.to_location, branch.to))
            }
            Rows::View(View::Mispredicts | View::Outcomes | View::Targets) => site(),
            Rows::TargetsOf(site) => {
                let target = flow.sites.get(*site)?.targets.get(id)?;
                Some((target.location, target.to))
            }
            Rows::View(View::Blocks) => {
                self.block(model, id).map(|of| (of.entry_location, of.entry))
            }
            Rows::View(View::Loops) => {
                let loops = model.loops.as_ref()?;
                let found = loops.loops.get(id)?;
                Some((moved(&loops.maps, found.location)?, found.head))
            }
            Rows::View(View::Paths) => {
                let paths = model.paths.as_ref()?;
                let (_, link) = *links(&paths.paths).get(id)?;
                Some((moved(&paths.maps, link.from_location)?, link.from))
            }
            Rows::Edges(edges) => Some((edges.get(id)?.target?, 0)),
            Rows::Compared(view) => {
                let (compared, names) = view.difference(model)?;
                let row = compared.comparison.rows.get(id)?;
                // Other code of the baseline is in a file that this recording does not have.
                let is_here = row.after.is_some() || row.by == By::Offset;
                let side = row.side().filter(|_| is_here)?;
                Some((moved(names.of(row), side.location)?, side.addr))
            }
            Rows::View(View::CallGraph | View::Lint) => None,
        }
    }

    /// The block that a row is.
    pub(super) fn block<'a>(&self, model: &'a Model, id: usize) -> Option<&'a Block> {
        matches!(self, Rows::View(View::Blocks)).then(|| model.overview.flow.blocks.get(id))?
    }
}

/// All branches of chains, each with its chain's index.
fn links(paths: &[profile::paths::Path]) -> Vec<(usize, &Link)> {
    let chains = paths.iter().enumerate();
    chains.flat_map(|(at, path)| path.links.iter().map(move |link| (at, link))).collect()
}

/// The rows of some files and functions, and whether others are omitted that were not named.
fn keep(
    shown: &RowArgs,
    maps: &mut Maps,
    ids: impl IntoIterator<Item = usize>,
    look: impl Fn(&usize) -> (Location, u64),
) -> Result<(Vec<usize>, bool)> {
    let mut ids: Vec<usize> = ids.into_iter().collect();
    let kept = shown.keep(maps, &mut ids, (0, ""), look)?;
    Ok((ids, kept.is_some() && !shown.any()))
}
