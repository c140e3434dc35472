//! The view `hot`: the most frequent branches, by source and target.

use maud::{Markup, html};
use profile::brstack::type_name;
use profile::hot::{Counter, HotBranch};
use profile::maps::Maps;
use profile::overview::Overview;
use profile::quality::Quality;

use super::{Page, Report, Section, Sort, View, print_hidden, rest};
use crate::exit::{Failure, Outcome};
use crate::head::{Notes, Totals, quality_json, share_trust};
use crate::input::{self, Source};
use crate::present::out::Out;
use crate::present::place::{Part, Place};
use crate::present::table::{Cell, Printer, Ranked, Table};

pub(super) const VIEW: View = View {
    name: "hot",
    about: "Branches by (from, to)",
    sorts: &[Sort::Count, Sort::Mispredicts, Sort::Rate, Sort::Cycles, Sort::Address],
    run,
    section: Some(Section { title: "Hot branches", markup }),
};

/// The total that the branches belong to.
pub(crate) struct HotCounts<'a> {
    /// All branches together.
    pub(crate) total: u64,
    pub(crate) quality: &'a Quality,
    pub(crate) maps: &'a mut Maps,
}

impl HotCounts<'_> {
    fn share(&self, branch: &HotBranch) -> f64 {
        if self.total == 0 { 0.0 } else { branch.count as f64 / self.total as f64 }
    }
}

/// Branches, as shares of all.
pub(crate) fn table<'a>(has_counters: bool) -> Table<'a, HotCounts<'a>, Ranked<'a, HotBranch>> {
    let table = Table::<HotCounts<'_>, Ranked<'_, HotBranch>>::new()
        .constant("view", "hot")
        .number("rank", "rank", |_, (at, _)| Cell::Number(*at as u64 + 1))
        .spare(3)
        .number("count", "count", |_, (_, branch)| Cell::Count(branch.count))
        .number("share", "share", |counts, (_, branch)| Cell::Share(counts.share(branch)))
        .heat()
        .only("share_low|share_high", |counts, (_, branch)| {
            Cell::interval(counts.quality.share_interval(counts.share(branch)))
        })
        .only("mispredicted", |_, (_, branch)| Cell::count(branch.mispredicted))
        .only("predictions_known", |_, (_, branch)| Cell::Count(branch.known))
        .number("mispredict_rate", "mispredict", |_, (_, branch)| match branch.mispredict_rate() {
            // The true rate is unknown: null in JSON.
            Some(0.0) => Cell::Stated("0%".to_owned(), None),
            rate => Cell::share(rate),
        })
        .spare(1)
        .only("never_seen_mispredicted", |_, (_, branch)| {
            Cell::or_absent(branch.mispredicted, |missed| Cell::Flag(missed == 0))
        })
        .number("cycles", "cycles", |_, (_, branch)| {
            Cell::or_absent(branch.cycles, |cycles| Cell::Decimal(cycles, 1))
        })
        .spare(2)
        .nested("counters", |_, (_, branch)| branch.counters.clone());
    let table = match has_counters {
        true => table
            .word("", "events", |_, (_, branch)| events(branch.counters.as_deref(), branch.count))
            .spare(2),
        false => table,
    };
    table
        .word("type", "type", |counts, (_, branch)| {
            Cell::word(branch.type_in(counts.maps).map(type_name))
        })
        .spare(4)
        .place("from", "from", Part::ALL, |counts, (_, branch)| {
            Some(Place::of(counts.maps, branch.from_location, branch.from))
        })
        .place("to", "to", Part::ALL, |counts, (_, branch)| {
            let from = Place::of(counts.maps, branch.from_location, branch.from);
            Some(Place::of(counts.maps, branch.to_location, branch.to).reached_from(&from))
        })
        .behind(" -> ")
}

/// Whether events were counted with the branches.
pub(crate) fn has_counters(branches: &[HotBranch]) -> bool {
    branches.iter().any(|branch| branch.counters.is_some())
}

/// The mean of each counter's events by execution, with perf's letters.
pub(super) fn events(counters: Option<&[Option<u64>; 4]>, count: u64) -> Cell {
    Cell::word(counters.map(|_| means(counters, count)))
}

/// The same as text; empty without counters.
pub(crate) fn means(counters: Option<&[Option<u64>; 4]>, count: u64) -> String {
    let mean = |(letter, sum): (char, &Option<u64>)| {
        sum.map(|sum| format!("{letter} {:.2}", sum as f64 / count.max(1) as f64))
    };
    let means = counters.map(|sums| ('A'..).zip(sums).filter_map(mean).collect::<Vec<_>>());
    means.unwrap_or_default().join(" ")
}

fn run(args: &Report, out: &mut Out<'_>) -> Outcome {
    let reading = args.select.reading();
    let mut counter = Counter::new();
    args.symbols.apply(counter.maps());
    let sources = input::read_all(args.inputs.paths(), &reading, |recording, at| {
        counter.recording(recording, at)
    })?;
    let mut hot = counter.finish();
    if let Some(sort) = args.sort {
        hot.sort(sort);
    }
    let mut branches = std::mem::take(&mut hot.branches);
    let distinct = branches.len() as u64;
    let rows =
        args.shown().keep(&mut hot.maps, &mut branches, (hot.total, "branches"), |branch| {
            (branch.from_location, branch.count)
        })?;
    let listed = branches.len();
    branches.truncate(args.rows());
    branches.shrink_to_fit();
    let predictions = Some((hot.known, hot.mispredicted));
    let totals = Totals { branches: hot.total, distinct, predictions };
    out.modelled = Source::any_models_fields(&sources);
    let notes = || {
        let shares = branches.iter().map(|branch| hot.share(branch));
        Notes { trust: share_trust(&hot.quality, shares), ..Notes::default() }
    };
    args.print_head(out, (&sources, &hot.quality, &totals), notes, rows.as_ref())?;
    let mut counts = HotCounts { total: hot.total, quality: &hot.quality, maps: &mut hot.maps };
    let listed_now = branches.iter().enumerate();
    table(has_counters(&branches)).write(args.printer(), out, &mut counts, listed_now)?;
    if args.printer() == Printer::Text {
        print_hidden(out, listed, branches.len(), ("branch", "branches"))?;
    }
    let totals = quality_json(&sources, &hot.quality, &totals);
    args.end(out, totals, rows.as_ref(), (&sources, &hot.maps))
}

fn markup(page: &mut Page<'_>) -> Result<Markup, Failure> {
    let Overview { branches, flow, .. } = &mut *page.overview;
    let mut counts = HotCounts { total: flow.taken, quality: &flow.quality, maps: &mut flow.maps };
    let shown = branches.iter().take(page.limit);
    Ok(html! {
        p { "Taken branches by where they came from and went. Cycles are core cycles since the branch before." }
        (table(has_counters(branches)).html("Hot branches", &mut counts, shown.clone().enumerate()))
        (rest(branches.len(), shown.len(), "branches"))
    })
}
