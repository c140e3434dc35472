//! The tables of branches.

use lbr_msr::record::BranchType;
use maud::{Markup, html};
use profile::brstack::type_name;
use profile::flow::{Flow, Site};
use profile::hot::{HotBranch, HotTable};

use super::{number, place, rest};
use crate::commands::report::hot::rate;
use crate::commands::report::{flow, mispredict, outcomes, percent};
use crate::present::number::grouped;

/// A heading; `num` for columns of numbers.
pub(super) struct Column(pub(super) &'static str, pub(super) bool);

/// A table that can be sorted and scrolled in its own box.
pub(super) fn table(name: &str, columns: &[Column], rows: &Markup) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(name) {
            table class="sortable" {
                thead { tr {
                    @for Column(title, is_number) in columns {
                        th scope="col" class=[is_number.then_some("num")] { (title) }
                    }
                } }
                tbody { (rows) }
            }
        }
    }
}

fn kind(branch_type: Option<BranchType>) -> String {
    branch_type.map_or_else(|| "-".to_owned(), |kind| type_name(kind).into_owned())
}

/// Branches by (from, to), the most frequent first.
pub(super) fn hot(table: &mut HotTable, limit: usize) -> Markup {
    let branches: Vec<HotBranch> = table.branches.iter().take(limit).cloned().collect();
    let rows = html! {
        @for (rank, branch) in branches.iter().enumerate() {
            tr {
                td class="num" { (rank + 1) }
                td class="num" { (grouped(branch.count)) }
                td class="num" { (percent(table.share(branch))) }
                td class="num" data-v=[branch.mispredict_rate()] { (rate(branch)) }
                (number(branch.cycles.map(|cycles| format!("{cycles:.1}"))))
                td { (kind(table.type_of(branch))) }
                td class="code" { (place(&mut table.maps, branch.from_location, branch.from)) }
                td class="code" { (place(&mut table.maps, branch.to_location, branch.to)) }
            }
        }
    };
    let columns = [
        Column("Rank", true),
        Column("Count", true),
        Column("Share", true),
        Column("Mispredict", true),
        Column("Mean cycles", true),
        Column("Type", false),
        Column("From", false),
        Column("To", false),
    ];
    html! {
        p { "Taken branches by where they came from and went. Cycles are core cycles since the branch before." }
        (self::table("Hot branches", &columns, &rows))
        (rest(table.branches.len(), branches.len(), "branches"))
    }
}

/// Branches that were mispredicted, those most often first.
pub(super) fn mispredicts(flow: &mut Flow, min_n: u64, limit: usize) -> Markup {
    let complete = flow.is_complete();
    let Flow { sites, maps, .. } = flow;
    let known = sites.iter().any(|site| site.known > 0);
    let mut missed: Vec<&Site> = sites.iter().filter(|s| s.mispredicted.unwrap_or(0) > 0).collect();
    missed.sort_by(|a, b| {
        let first = b.mispredicted.cmp(&a.mispredicted).then(a.known.cmp(&b.known));
        first.then(a.from.cmp(&b.from))
    });
    let all = missed.len();
    missed.truncate(limit);
    let rows = html! {
        @for site in &missed {
            @let interval = mispredict::interval(site, complete).filter(|_| site.known >= min_n);
            tr {
                (number(site.mispredicted.map(grouped)))
                td class="num" { (grouped(site.known)) }
                td class="num" { (grouped(site.taken)) }
                (number(mispredict::rate(site, min_n, complete).map(percent)))
                td class="num" data-v=[interval.map(|i| i.low)] { (flow::interval(interval)) }
                td { (kind(site.branch_type)) }
                td class="code" { (place(maps, site.location, site.from)) }
            }
        }
    };
    let columns = [
        Column("Mispredicts", true),
        Column("Known", true),
        Column("Taken", true),
        Column("Rate", true),
        Column("95 % interval", true),
        Column("Type", false),
        Column("Branch", false),
    ];
    html! {
        @if !known {
            p { "The recording has no predictions." }
        } @else if all == 0 {
            p { "No taken branch was seen mispredicted." }
        } @else {
            p {
                "Rates are of the times a branch was taken: a branch that falls through leaves no record. "
                "A rate needs " (min_n) " known predictions, unless every taken branch is here."
            }
            (table("Mispredicts", &columns, &rows))
            (rest(all, missed.len(), "branches"))
        }
    }
}

/// Conditional branches taken and not, and targets of indirect ones.
pub(super) fn outcomes(flow: &mut Flow, limit: usize) -> Markup {
    html! {
        h3 { "Conditional branches" }
        (conditional(flow, limit))
        h3 { "Targets of indirect jumps and calls" }
        (indirect(flow, limit))
    }
}

fn conditional(flow: &mut Flow, limit: usize) -> Markup {
    let complete = flow.is_complete();
    let Flow { sites, maps, .. } = flow;
    let sites: Vec<&Site> = sites.iter().filter(|site| site.conditional == Some(true)).collect();
    let rows = html! {
        @for site in sites.iter().take(limit) {
            @let known = site.not_taken.filter(|_| !complete);
            @let interval = known.and_then(|_| site.outcomes().interval());
            tr {
                td class="num" { (grouped(site.taken)) }
                (number(site.not_taken.map(grouped)))
                (number(outcomes::taken_share(site, complete).map(percent)))
                td class="num" data-v=[interval.map(|i| i.low)] { (flow::interval(interval)) }
                td class="code" { (place(maps, site.location, site.from)) }
                td class="code" {
                    @if let Some(to) = site.targets.first() { (place(maps, to.location, to.to)) }
                    @else { "-" }
                }
            }
        }
    };
    let columns = [
        Column("Taken", true),
        Column("Not taken", true),
        Column("Taken share", true),
        Column("95 % interval", true),
        Column("Branch", false),
        Column("Target", false),
    ];
    html! {
        @if sites.is_empty() {
            p { "No branch is known to be conditional: neither the recording nor code bytes say." }
        } @else {
            (table("Conditional branches", &columns, &rows))
            (rest(sites.len(), sites.len().min(limit), "branches"))
        }
    }
}

fn indirect(flow: &mut Flow, limit: usize) -> Markup {
    let complete = flow.is_complete();
    let Flow { sites, maps, .. } = flow;
    let is_indirect =
        |site: &&Site| matches!(site.branch_type, Some(BranchType::IND | BranchType::IND_CALL));
    let all: usize = sites.iter().filter(is_indirect).map(|site| site.targets.len()).sum();
    let targets = sites.iter().filter(is_indirect);
    let targets = targets.flat_map(|site| site.targets.iter().map(move |target| (site, target)));
    let rows = html! {
        @for (site, target) in targets.take(limit) {
            @let interval = flow::interval_of(&site.to_target(target), complete);
            tr {
                td class="num" { (grouped(target.count)) }
                td class="num" { (percent(target.count as f64 / site.taken.max(1) as f64)) }
                td class="num" data-v=[interval.map(|i| i.low)] { (flow::interval(interval)) }
                td { (kind(site.branch_type)) }
                td class="code" { (place(maps, site.location, site.from)) }
                td class="code" { (place(maps, target.location, target.to)) }
            }
        }
    };
    let columns = [
        Column("Count", true),
        Column("Share", true),
        Column("95 % interval", true),
        Column("Type", false),
        Column("Branch", false),
        Column("Target", false),
    ];
    html! {
        @if all == 0 {
            p { "No branch is known to be indirect." }
        } @else {
            (table("Targets of indirect branches", &columns, &rows))
            (rest(all, all.min(limit), "targets"))
        }
    }
}
