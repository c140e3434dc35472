//! The view `hot`: the most frequent branches, by source and target.

use maud::{Markup, html};
use profile::brstack::type_name;
use profile::hot::{Counter, HotBranch};
use profile::maps::Maps;
use profile::overview::Overview;
use profile::quality::Quality;

use super::{CYCLES, Page, Report, Section, Sort, View, print_hidden, rest, say_unsorted};
use crate::exit::Result;
use crate::head::{Notes, Totals, quality_json, share_trust};
use crate::input::Source;
use crate::present::{Cell, Out, Part, Place, Printer, Ranked, Table, joined, share};

pub(super) const VIEW: View = View {
    name: "hot",
    about: "Branches by (from, to)",
    sorts: &[Sort::Count, Sort::Mispredicts, Sort::Rate, Sort::Cycles, Sort::Address],
    run,
    section: Some(Section { title: "Hot branches", markup }),
};

/// Branches, as shares of all.
pub(crate) fn table(
    all: u64,
    quality: &Quality,
    has_counters: bool,
) -> Table<'_, Maps, Ranked<'_, HotBranch>> {
    Table::<Maps, Ranked<'_, HotBranch>>::ranked("hot")
        .number("count", "count", |_, (_, branch)| Cell::Count(branch.count))
        .number("share", "share", move |_, (_, branch)| Cell::share(share(branch.count, all)))
        .heat()
        .only("share_low|share_high", move |_, (_, branch)| {
            Cell::interval(share(branch.count, all).and_then(|of| quality.share_interval(of)))
        })
        .only("mispredicted", |_, (_, branch)| Cell::count(branch.mispredicted))
        .only("predictions_known", |_, (_, branch)| Cell::Count(branch.known))
        .number("mispredict_rate", "mispredict", |_, (_, branch)| {
            Cell::mispredicts(branch.mispredicted, branch.known)
        })
        .only("never_seen_mispredicted", |_, (_, branch)| {
            Cell::or_absent(branch.mispredicted, |missed| Cell::Flag(missed == 0))
        })
        .number("cycles", "cycles", |_, (_, branch)| Cell::decimal(branch.cycles, 1))
        .nested("counters", |_, (_, branch)| branch.counters.clone())
        .word("", if has_counters { "events" } else { "" }, |_, (_, branch)| {
            Cell::word(means(branch.counters.as_deref(), branch.count))
        })
        .word("type", "type", |maps, (_, branch)| Cell::word(branch.type_in(maps).map(type_name)))
        .location("from", "from", Part::ALL, |(_, branch)| (branch.from_location, branch.from))
        .place("to", "to", Part::ALL, |maps, (_, branch)| {
            let to = Place::of(maps, branch.to_location, branch.to);
            Some(to.reached_from(maps, branch.from_location))
        })
        .behind(" -> ")
        .spares(&["type", "rank", "events", "cycles", "mispredict"])
}

/// Whether events were counted with the branches.
pub(crate) fn has_counters(branches: &[HotBranch]) -> bool {
    branches.iter().any(|branch| branch.counters.is_some())
}

/// The mean of each counter's events per execution, with perf's letters.
pub(crate) fn means(counters: Option<&[Option<u64>; 4]>, count: u64) -> Option<String> {
    let mean = |(letter, sum): (char, &Option<u64>)| {
        sum.map(|sum| format!("{letter} {:.2}", sum as f64 / count.max(1) as f64))
    };
    counters.map(|sums| joined(('A'..).zip(sums).filter_map(mean), " "))
}

fn run(args: &Report, out: &mut Out<'_>) -> Result {
    let (mut hot, sources) = args.count(Counter::default())?;
    if let Some(sort) = args.sort {
        let lacking = match sort {
            Sort::Mispredicts | Sort::Rate => (hot.known == 0).then_some("predictions"),
            Sort::Cycles => hot.branches.iter().all(|b| b.with_cycles == 0).then_some(CYCLES),
            Sort::Count | Sort::Address => None,
        };
        match lacking {
            Some(what) => say_unsorted(what),
            None => hot.sort(sort),
        }
    }
    let mut branches = std::mem::take(&mut hot.branches);
    let totals = Totals::of_hot(&hot, branches.len());
    let from = |branch: &HotBranch| (branch.from_location, branch.count);
    let rows = args.shown().keep(&mut hot.maps, &mut branches, (hot.total, "branches"), from)?;
    let listed = branches.len();
    branches.truncate(args.rows());
    branches.shrink_to_fit();
    out.modelled = Source::any_models_fields(&sources);
    let notes = || {
        let shares = branches.iter().map(|branch| hot.share(branch));
        Notes { trust: share_trust(&hot.quality, shares), ..Notes::default() }
    };
    args.print_head(out, (&sources, &hot.quality, &totals), notes, rows.as_ref())?;
    let table = table(hot.total, &hot.quality, has_counters(&branches));
    table.write(args.printer(), out, &mut hot.maps, branches.iter().enumerate())?;
    if args.printer() == Printer::Text {
        print_hidden(out, listed, branches.len(), ("branch", "branches"))?;
    }
    let totals = quality_json(&sources, &hot.quality, &totals);
    args.end(out, totals, rows.as_ref(), (&sources, &hot.maps))
}

fn markup(page: &mut Page<'_>) -> Result<Markup> {
    let Overview { branches, flow, .. } = &mut *page.overview;
    let table = table(flow.taken, &flow.quality, has_counters(branches));
    let shown = branches.iter().take(page.limit);
    Ok(html! {
        p { "Taken branches by where they came from and went. Cycles are core cycles since the branch before." }
        (table.html("Hot branches", &mut flow.maps, shown.clone().enumerate()))
        (rest(branches.len(), shown.len(), "branches"))
    })
}
