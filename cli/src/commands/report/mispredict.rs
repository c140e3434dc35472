//! How often each branch was mispredicted when it was taken.

use std::cmp::Ordering;

use maud::{Markup, html};
use profile::Flow;
use profile::brstack::type_name;
use profile::flow::Site;
use profile::interval::Interval;
use profile::maps::Maps;

use super::{Page, Report, Section, Sort, View, interval_of, rest, run_flow};
use crate::exit::Result;
use crate::head::{Notes, trust};
use crate::present::{Cell, Out, Part, Printer, Ranked, Table, percent};

pub(super) const VIEW: View = View {
    name: "mispredict",
    about: "How often each branch was mispredicted when it was taken",
    sorts: &[Sort::Count, Sort::Mispredicts, Sort::Rate, Sort::Address],
    run,
    section: Some(Section { title: "Mispredicts", markup }),
};

/// `min_n` known predictions are needed for a rate, unless all are here.
pub(crate) fn table<'a>(min_n: u64, complete: bool) -> Table<'a, Maps, Ranked<'a, Site>> {
    let interval =
        move |site: &Site| interval_of(&site.misses(), complete).filter(|_| site.known >= min_n);
    Table::<Maps, Ranked<'_, Site>>::ranked("mispredict")
        .number("mispredicted", "mispredicts", |_, (_, site)| Cell::count(site.mispredicted))
        .heat()
        .number("", "known", |_, (_, site)| {
            Cell::count(Some(site.known).filter(|known| *known > 0))
        })
        .only("predictions_known", |_, (_, site)| Cell::Count(site.known))
        .number("taken", "taken", |_, (_, site)| Cell::Count(site.taken))
        .number("mispredict_rate", "rate", move |_, (_, site)| match site.mispredicted {
            Some(0) => Cell::Stated("0%".to_owned(), None),
            _ => Cell::share(rate(site, min_n, complete)),
        })
        .number("", "interval", move |_, (_, site)| match (interval(site), site.mispredicted) {
            (Some(Interval { high, .. }), Some(0)) => {
                Cell::Stated(format!("up to {}", percent(high)), Some(0.0))
            }
            (interval, _) => Cell::interval(interval),
        })
        .only("low|high", move |_, (_, site)| Cell::interval(interval(site)))
        .only("never_seen_mispredicted", |_, (_, site)| {
            Cell::or_absent(site.mispredicted, |missed| Cell::Flag(missed == 0))
        })
        .only("stacks", |_, (_, site)| Cell::Count(site.misses().stacks))
        .word("type", "type", |_, (_, site)| Cell::word(site.branch_type.map(type_name)))
        .location("from", "branch", Part::ALL, |(_, site)| (site.location, site.from))
        .spares(&["type", "rank", "taken", "known", "interval"])
}

fn run(args: &Report, out: &mut Out<'_>) -> Result {
    let notes = |flow: &Flow| Notes { trust: Some(trust(flow).to_owned()), ..Notes::default() };
    run_flow(args, out, false, notes, |out, flow| print(out, args, flow))
}

fn print(out: &mut Out<'_>, args: &Report, flow: &mut Flow) -> std::io::Result<Option<u8>> {
    // A branch that was never taken has no record, and so no prediction.
    let mut sites: Vec<&Site> = flow.sites.iter().filter(|site| site.taken > 0).collect();
    let complete = flow.is_complete();
    let rate = |site: &Site| rate(site, args.min_n, complete).unwrap_or(-1.0);
    sites.sort_by(|a, b| {
        let first = match args.sort.unwrap_or(Sort::Mispredicts) {
            Sort::Count => b.taken.cmp(&a.taken),
            Sort::Rate => rate(b).total_cmp(&rate(a)),
            Sort::Address => Ordering::Equal,
            Sort::Mispredicts | Sort::Cycles => by_misses(a, b),
        };
        first.then(a.from.cmp(&b.from))
    });
    if flow.known == 0 && args.printer() == Printer::Text {
        let why = match flow.quality.software {
            0 => "its CPU or its recorder omits them",
            _ => "the software LBR measures none (lbr record --model adds modelled ones)",
        };
        out.line(format_args!("no predictions: {why}"))?;
        return Ok(None);
    }
    let rows = sites.iter().copied().enumerate();
    let table = table(args.min_n, complete);
    args.write_rows(out, &table, &mut flow.maps, rows, ("branch", "branches"))?;
    if args.printer() == Printer::Text {
        let passed = match flow.quality.not_taken {
            0 => ": a branch that falls through leaves no record",
            _ => "",
        };
        out.line(format_args!("rates are of the times a branch was taken{passed}"))?;
    }
    Ok(None)
}

/// The default order of rows.
pub(crate) fn by_misses(a: &Site, b: &Site) -> Ordering {
    most_missed(a, b).then(b.taken.cmp(&a.taken)).then(a.from.cmp(&b.from))
}

/// Most mispredictions first.
fn most_missed(a: &Site, b: &Site) -> Ordering {
    b.mispredicted.cmp(&a.mispredicted).then(b.known.cmp(&a.known))
}

/// Misprediction rate. `None` if no prediction is known, which is not a rate of 0, or if too few
/// are known in a sample.
fn rate(site: &Site, min_n: u64, complete: bool) -> Option<f64> {
    let enough = complete || site.known >= min_n;
    let missed = site.mispredicted.filter(|missed| *missed > 0 && enough)?;
    Some(missed as f64 / site.known as f64)
}

fn markup(page: &mut Page<'_>) -> Result<Markup> {
    let (min_n, flow) = (page.args.min_n, &mut page.overview.flow);
    let complete = flow.is_complete();
    let known = flow.sites.iter().any(|site| site.known > 0);
    let mut missed: Vec<&Site> =
        flow.sites.iter().filter(|site| site.mispredicted.unwrap_or(0) > 0).collect();
    missed.sort_by(|a, b| most_missed(a, b).then(a.from.cmp(&b.from)));
    let shown = missed.get(..page.limit.min(missed.len())).unwrap_or_default();
    Ok(html! {
        @if !known {
            p { "The recording has no predictions." }
        } @else if missed.is_empty() {
            p { "No taken branch was seen mispredicted." }
        } @else {
            p {
                "Rates are of the times a branch was taken: a branch that falls through leaves no record. "
                "A rate needs " (min_n) " known predictions, unless every taken branch is here."
            }
            (table(min_n, complete).html("Mispredicts", &mut flow.maps, shown.iter().copied().enumerate()))
            (rest(missed.len(), shown.len(), "branches"))
        }
    })
}
