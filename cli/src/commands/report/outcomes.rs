//! Taken and not taken of each conditional branch; targets of indirect ones.

use std::io;

use lbr_msr::record::BranchType;
use maud::{Markup, html};
use profile::Flow;
use profile::brstack::type_name;
use profile::flow::{Site, Target};
use profile::interval::Interval;
use profile::maps::Maps;
use serde_json::Value;

use super::{
    Page, Report, Section, Sort, View, interval_of, print_hidden, rest, run_flow, unusual,
};
use crate::exit::Result;
use crate::head::{Notes, trust};
use crate::present::{Cell, Out, Part, Place, Printer, Ranked, Table, counted};

pub(super) const VIEW: View = View {
    name: "outcomes",
    about: "Taken and not taken of each conditional branch; targets of indirect jumps and calls",
    sorts: &[Sort::Count, Sort::Address],
    run,
    section: Some(Section { title: "Outcomes", markup }),
};

/// Why code bytes are missing.
const NO_CODE: &str = ", which are not to be had for symbols in place of addresses";
/// Targets of one branch that the table shows.
const TARGETS: usize = 8;

/// A branch with one of its targets.
pub(crate) type Went<'a> = (usize, &'a Site, &'a Target);

/// One row a conditional branch.
pub(crate) fn conditional<'a>(complete: bool, unsure: bool) -> Table<'a, Maps, Ranked<'a, Site>> {
    Table::<Maps, Ranked<'_, Site>>::ranked("outcomes")
        .constant("kind", "conditional")
        .number("taken", "taken", |_, (_, site)| Cell::Count(site.taken))
        .number("not_taken", "not taken", |_, (_, site)| Cell::count(site.not_taken))
        .number("", if unsure { "maybe passed" } else { "" }, |_, (_, site)| {
            Cell::Count(site.unsure)
        })
        .number("taken_share", "share taken", move |_, (_, site)| {
            Cell::share(taken_share(site, complete))
        })
        .number("low|high", "interval", move |_, (_, site)| {
            Cell::interval(taken_interval(site, complete))
        })
        .only("stacks", |_, (_, site)| Cell::Count(site.outcomes().stacks))
        .location("from", "conditional branch", Part::ALL, |(_, site)| (site.location, site.from))
        .place("to", "target", Part::NAMES, |maps, (_, site)| {
            let target = site.targets.first()?;
            Some(Place::of(maps, target.location, target.to).reached_from(maps, site.location))
        })
        .behind(" -> ")
        .only("unsure", |_, (_, site)| Cell::Count(site.unsure))
        .spares(&["rank", "interval"])
}

/// One row a target, for people.
pub(crate) fn targets<'a>(complete: bool) -> Table<'a, Maps, Went<'a>> {
    Table::<Maps, Went<'_>>::new()
        .number("", "rank", |_, (at, ..)| Cell::Number(*at as u64 + 1))
        .number("count", "count", |_, (_, _, target)| Cell::Count(target.count))
        .number("share", "share", |_, (_, site, target)| {
            Cell::Share(target.count as f64 / site.taken.max(1) as f64)
        })
        .number("low|high", "interval", move |_, (_, site, target)| {
            Cell::interval(interval_of(&site.to_target(target), complete))
        })
        .word("", "type", |_, (_, site, _)| Cell::word(site.branch_type.map(type_name)))
        .location("", "indirect branch", &[], |(_, site, _)| (site.location, site.from))
        .place("to", "target", Part::ALL, |maps, (_, site, target)| {
            Some(Place::of(maps, target.location, target.to).reached_from(maps, site.location))
        })
        .behind(" -> ")
        .spares(&["type", "rank", "interval"])
}

/// One row a branch; its targets are for programs.
pub(crate) fn indirect<'a>(complete: bool) -> Table<'a, Maps, Ranked<'a, Site>> {
    let targets = targets(complete);
    Table::<Maps, Ranked<'_, Site>>::ranked("outcomes")
        .constant("kind", "indirect")
        .location("from", "indirect branch", Part::ALL, |(_, site)| (site.location, site.from))
        .word("type", "type", |_, (_, site)| Cell::word(site.branch_type.map(type_name)))
        .number("taken", "taken", |_, (_, site)| Cell::Count(site.taken))
        .heat()
        .number("", "targets", |_, (_, site)| Cell::Count(site.targets.len() as u64))
        .only("stacks", |_, (_, site)| {
            let of_first = site.targets.first().map_or(0, |target| site.to_target(target).stacks);
            Cell::Count(site.misses().stacks.max(of_first))
        })
        .nested("targets", move |maps, (at, site)| {
            let target = |target| targets.object(maps, &(*at, *site, target));
            site.targets.iter().map(target).collect::<Vec<Value>>()
        })
        .spares(&["rank", "type"])
}

fn run(args: &Report, out: &mut Out<'_>) -> Result {
    let notes = |flow: &Flow| Notes { trust: Some(trust(flow).to_owned()), unusual: unusual(flow) };
    run_flow(args, out, false, notes, |out, flow| print(out, args, flow))
}

pub(crate) fn is_conditional(site: &Site) -> bool {
    site.conditional == Some(true)
}

pub(crate) fn is_indirect(site: &Site) -> bool {
    !is_conditional(site)
        && matches!(site.branch_type, Some(BranchType::IND | BranchType::IND_CALL))
}

fn print(out: &mut Out<'_>, args: &Report, flow: &mut Flow) -> io::Result<Option<u8>> {
    let complete = flow.is_complete();
    let mut jumps: Vec<&Site> = flow.sites.iter().filter(|site| is_conditional(site)).collect();
    let mut switches: Vec<&Site> = flow.sites.iter().filter(|site| is_indirect(site)).collect();
    if args.sort == Some(Sort::Address) {
        jumps.sort_by_key(|site| site.from);
        switches.sort_by_key(|site| site.from);
    }
    let (by_name, is_text) = (flow.maps.has_names(), args.printer() == Printer::Text);
    if is_text && jumps.is_empty() && switches.is_empty() {
        out.line(format_args!(
            "no branch is known to be conditional or indirect: neither the recording nor code bytes \
             say{}",
            if by_name { NO_CODE } else { "" }
        ))?;
        return Ok(None);
    }
    if is_text && by_name && flow.quality.not_taken == 0 {
        out.line(format_args!("times not taken are not known without code bytes{NO_CODE}"))?;
    }
    let (maps, rows) = (&mut flow.maps, jumps.iter().copied().enumerate());
    let unsure = complete && jumps.iter().take(args.rows()).any(|site| site.unsure > 0);
    let names = ("conditional branch", "conditional branches");
    args.write_rows(out, &conditional(complete, unsure), maps, rows, names)?;
    let shown = switches.get(..args.rows().min(switches.len())).unwrap_or_default();
    match args.printer() {
        Printer::Text => {
            out.gap()?;
            print_targets(out, maps, shown, complete)?;
            let names = ("indirect branch", "indirect branches");
            print_hidden(out, switches.len(), shown.len(), names)?;
        }
        Printer::Json => {
            indirect(complete).write_json(out, maps, shown.iter().copied().enumerate())?;
        }
        // It has one line of keys.
        Printer::Csv => {}
    }
    Ok(None)
}

fn print_targets(
    out: &mut Out<'_>,
    maps: &mut Maps,
    switches: &[&Site],
    complete: bool,
) -> io::Result<()> {
    let table = targets(complete);
    let rows = switches.iter().enumerate().flat_map(|(at, site)| went(at, site).take(TARGETS));
    let layout = table.layout(out, maps, rows, 0);
    if !switches.is_empty() {
        layout.headings(out)?;
    }
    for (at, site) in switches.iter().enumerate() {
        for row in went(at, site).take(TARGETS) {
            table.write_row(&layout, out, maps, &row)?;
        }
        let more = site.targets.len().saturating_sub(TARGETS);
        if more > 0 {
            let from = Place::of(maps, site.location, site.from);
            let more = counted(more as u64, "more target", "more targets");
            out.line(format_args!("{:>4}  {more} of {from} (--json has all)", at + 1))?;
        }
    }
    Ok(())
}

fn went<'a>(at: usize, site: &'a Site) -> impl Iterator<Item = Went<'a>> + Clone {
    site.targets.iter().map(move |target| (at, site, target))
}

/// Share of executions that were taken: exact in a complete recording, otherwise over entries for
/// which both outcomes were equally observable.
fn taken_share(site: &Site, complete: bool) -> Option<f64> {
    let not_taken = site.not_taken?;
    if complete {
        return Some(site.taken as f64 / site.taken.saturating_add(not_taken) as f64);
    }
    site.outcomes().ratio()
}

/// The 95% interval of the share taken. In a complete recording: its bounds, if the number of times
/// not taken is uncertain.
fn taken_interval(site: &Site, complete: bool) -> Option<Interval> {
    let not_taken = site.not_taken?;
    if !complete || site.unsure == 0 {
        return interval_of(&site.outcomes(), complete);
    }
    let share = |passed: u64| site.taken as f64 / site.taken.saturating_add(passed) as f64;
    Some(Interval { low: share(not_taken.saturating_add(site.unsure)), high: share(not_taken) })
        .filter(|_| site.taken > 0)
}

fn markup(page: &mut Page<'_>) -> Result<Markup> {
    let (limit, flow) = (page.limit, &mut page.overview.flow);
    let complete = flow.is_complete();
    let Flow { sites, maps, .. } = flow;
    let jumps: Vec<&Site> = sites.iter().filter(|site| is_conditional(site)).collect();
    let switches: Vec<&Site> = sites.iter().filter(|site| is_indirect(site)).collect();
    let ends: usize = switches.iter().map(|site| site.targets.len()).sum();
    let rows = switches.iter().enumerate().flat_map(|(at, site)| went(at, site));
    Ok(html! {
        h3 { "Conditional branches" }
        @if jumps.is_empty() {
            p { "No branch is known to be conditional: neither the recording nor code bytes say." }
        } @else {
            (conditional(complete, complete && jumps.iter().any(|site| site.unsure > 0)).html(
                "Conditional branches", maps, jumps.iter().copied().enumerate().take(limit)))
            (rest(jumps.len(), jumps.len().min(limit), "branches"))
        }
        h3 { "Targets of indirect jumps and calls" }
        @if ends == 0 {
            p { "No branch is known to be indirect." }
        } @else {
            (targets(complete).html("Targets of indirect branches", maps, rows.take(limit)))
            (rest(ends, ends.min(limit), "targets"))
        }
    })
}
