//! Taken branches by type: how often, and how many were mispredicted.

use maud::{Markup, html};
use profile::brstack::type_name;
use profile::hot::{Counter, HotBranch};
use profile::maps::Maps;
use profile::overview::Overview;
use profile::types::{OfType, by_type};

use super::{Page, Report, Section, Sort, View};
use crate::exit::Result;
use crate::head::{Notes, Totals, quality_json};
use crate::present::{Cell, Out, Ranked, Table, share};

pub(super) const VIEW: View = View {
    name: "types",
    about: "Taken branches by type: how often, and how many were mispredicted",
    sorts: &[Sort::Count],
    run,
    section: Some(Section { title: "Types", markup }),
};

/// Types, as shares of all branches.
fn table<'a>(all: u64) -> Table<'a, (), Ranked<'a, OfType>> {
    Table::<(), Ranked<'_, OfType>>::ranked("types")
        .number("count", "count", |(), (_, of)| Cell::Count(of.count))
        .number("share", "share", move |(), (_, of)| Cell::share(share(of.count, all)))
        .heat()
        .number("distinct", "distinct", |(), (_, of)| Cell::Count(of.distinct))
        .number("mispredicted", "mispredicts", |(), (_, of)| Cell::count(of.mispredicted))
        .only("predictions_known", |(), (_, of)| Cell::Count(of.known))
        .number("mispredict_rate", "rate", |(), (_, of)| {
            Cell::mispredicts(of.mispredicted, of.known)
        })
        .word("type", "type", |(), (_, of)| Cell::word(of.branch_type.map(type_name)))
        .spares(&["rank", "distinct"])
}

fn run(args: &Report, out: &mut Out<'_>) -> Result {
    let (mut hot, sources) = args.count(Counter::default())?;
    let mut branches = std::mem::take(&mut hot.branches);
    let totals = Totals::of_hot(&hot, branches.len());
    let from = |branch: &HotBranch| (branch.from_location, branch.count);
    let rows = args.shown().keep(&mut hot.maps, &mut branches, (hot.total, "branches"), from)?;
    let types = by_type(&branches, &mut hot.maps);
    args.print_head(out, (&*sources, &hot.quality, &totals), Notes::default, rows.as_ref())?;
    let listed = types.iter().take(args.rows()).enumerate();
    table(hot.total).write(args.printer(), out, &mut (), listed)?;
    let totals = quality_json(&sources, &hot.quality, &totals);
    args.end(out, totals, rows.as_ref(), (&sources, &hot.maps))
}

fn markup(page: &mut Page<'_>) -> Result<Markup> {
    let Overview { branches, flow, .. } = &mut *page.overview;
    let maps: &mut Maps = &mut flow.maps;
    let types = by_type(branches, maps);
    Ok(html! {
        p { "Taken branches by type; rates are of those known to be predicted or not." }
        (table(flow.taken).html("Types", &mut (), types.iter().enumerate()))
    })
}
