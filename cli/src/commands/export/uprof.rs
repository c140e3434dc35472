//! Branches in the columns of AMD uProf's branch analysis ("Analyze the Data"
//! in its user guide, document 57368).

use profile::hot::{Counter, HotBranch, HotTable};
use profile::maps::{Location, Maps};

use super::Export;
use crate::exit::{DONE, Result};
use crate::head;
use crate::output::Output;
use crate::present::{Cell, Table};
use crate::select::RowArgs;

/// Writes them.
pub(super) fn write(args: &Export, output: &Output) -> Result {
    let (HotTable { mut branches, mut maps, total, .. }, read) = args.count(Counter::default())?;
    let shown = RowArgs { dso: args.dso.clone(), ..RowArgs::default() };
    shown.keep(&mut maps, &mut branches, (total, "branches"), |branch| {
        (branch.from_location, branch.count)
    })?;
    output.stream(|out| table(total).write_csv(out, &mut maps, branches.iter()).map(Ok))?;
    head::finish(&read, &maps);
    Ok(DONE)
}

fn table<'a>(total: u64) -> Table<'a, Maps, &'a HotBranch> {
    let percent = |part: u64, of: u64| Cell::Decimal(100.0 * part as f64 / of.max(1) as f64, 2);
    let of_known =
        |branch: &HotBranch, cell: &dyn Fn(u64) -> Cell| Cell::or_absent(branch.mispredicted, cell);
    let function =
        |maps: &mut Maps, at: Location| Cell::name(maps.name(at).map(|named| named.name));
    let line =
        |maps: &mut Maps, at: Location| Cell::name(maps.source(at).map(|line| line.to_string()));
    let module = |maps: &mut Maps, at: Location| Cell::name(maps.path_of(at));
    Table::<Maps, &HotBranch>::new()
        .only("OVERHEAD (%)", move |_, branch| percent(branch.count, total))
        .only("SAMPLES", |_, branch| Cell::Count(branch.count))
        .only("MISPREDICT (%)", move |_, branch| {
            of_known(branch, &|missed| percent(missed, branch.count))
        })
        .only("MISPREDICT COUNT", move |_, branch| of_known(branch, &Cell::Count))
        .only("SOURCE FUNCTION", move |maps, branch| function(maps, branch.from_location))
        .only("TARGET FUNCTION", move |maps, branch| function(maps, branch.to_location))
        .only("SOURCE LINE", move |maps, branch| line(maps, branch.from_location))
        .only("TARGET LINE", move |maps, branch| line(maps, branch.to_location))
        .only("SOURCE MODULE", move |maps, branch| module(maps, branch.from_location))
        .only("TARGET MODULE", move |maps, branch| module(maps, branch.to_location))
        // The same branch of a file in several processes is one row.
        .only("PROCESS", |_, _| Cell::Absent)
}
