//! `lbr report --view outcomes`.

use std::io::Write;

use lbr_msr::record::BranchType;
use profile::Flow;
use profile::brstack::type_name;
use profile::flow::Site;
use profile::maps::Maps;
use serde_json::{Value, json};

use super::flow::interval_of;
use super::{Report, Sort, dash, flow, percent};
use crate::present::number::grouped;

/// Why there are no code bytes, behind a word of them.
const NO_CODE: &str = ", which are not to be had for symbols in place of addresses";
/// Targets of one branch that the table shows.
const TARGETS: usize = 8;

/// Prints the view.
pub(super) fn print(
    out: &mut impl Write,
    args: &Report,
    flow: &mut Flow,
) -> std::io::Result<Option<u8>> {
    let complete = flow.is_complete();
    let (mut conditional, mut indirect): (Vec<&Site>, Vec<&Site>) = (Vec::new(), Vec::new());
    for site in &flow.sites {
        let targets = matches!(site.branch_type, Some(BranchType::IND | BranchType::IND_CALL));
        if site.conditional == Some(true) {
            conditional.push(site);
        } else if targets {
            indirect.push(site);
        }
    }
    if args.sort == Some(Sort::Address) {
        conditional.sort_by_key(|site| site.from);
        indirect.sort_by_key(|site| site.from);
    }
    let all = (conditional.len(), indirect.len());
    let by_name = flow.maps.has_names();
    conditional.truncate(args.rows());
    indirect.truncate(args.rows());
    let maps = &mut flow.maps;
    let shown = || conditional.iter().chain(&indirect);
    let targets = shown().flat_map(|site| &site.targets).map(|target| target.location);
    maps.look_up_lines(shown().map(|site| site.location).chain(targets));
    if args.json {
        for (rank, site) in conditional.iter().enumerate() {
            super::print_json(out, &conditional_json(maps, site, rank + 1, complete))?;
        }
        for (rank, site) in indirect.iter().enumerate() {
            super::print_json(out, &indirect_json(maps, site, rank + 1, complete))?;
        }
        return Ok(None);
    }
    if conditional.is_empty() && indirect.is_empty() {
        writeln!(
            out,
            "no branch is known to be conditional or indirect: neither the recording nor code bytes say{}",
            if by_name { NO_CODE } else { "" }
        )?;
        return Ok(None);
    }
    if by_name {
        writeln!(out, "times not taken are not known without code bytes{NO_CODE}")?;
    }
    writeln!(
        out,
        "{:>4}  {:>12}  {:>12}  {:>9}  {:>18}  conditional branch -> target",
        "rank", "taken", "not taken", "taken", "interval"
    )?;
    for (rank, site) in conditional.iter().enumerate() {
        let interval = interval_of(&site.outcomes(), complete);
        let target = match site.targets.first() {
            Some(target) => super::place(maps, target.location, target.to),
            None => dash(),
        };
        writeln!(
            out,
            "{:>4}  {:>12}  {:>12}  {:>9}  {:>18}  {} -> {target}",
            rank + 1,
            grouped(site.taken),
            site.not_taken.map_or_else(dash, grouped),
            taken_share(site, complete).map_or_else(dash, percent),
            flow::interval(interval.filter(|_| site.not_taken.is_some())),
            super::place(maps, site.location, site.from),
        )?;
    }
    super::print_hidden(
        out,
        all.0,
        conditional.len(),
        ("conditional branch", "conditional branches"),
    )?;
    writeln!(
        out,
        "\n{:>4}  {:>12}  {:>9}  {:>18}  {:<8}  indirect branch -> target",
        "rank", "count", "share", "interval", "type"
    )?;
    for (rank, site) in indirect.iter().enumerate() {
        let from = super::place(maps, site.location, site.from);
        for target in site.targets.iter().take(TARGETS) {
            let interval = interval_of(&site.to_target(target), complete);
            writeln!(
                out,
                "{:>4}  {:>12}  {:>9}  {:>18}  {:<8}  {from} -> {}",
                rank + 1,
                grouped(target.count),
                percent(target.count as f64 / site.taken as f64),
                flow::interval(interval),
                site.branch_type.map_or_else(dash, |t| type_name(t).into_owned()),
                super::place(maps, target.location, target.to),
            )?;
        }
        let more = site.targets.len().saturating_sub(TARGETS);
        if more > 0 {
            writeln!(out, "{:>4}  {more} more targets of {from} (--json has all)", rank + 1)?;
        }
    }
    super::print_hidden(out, all.1, indirect.len(), ("indirect branch", "indirect branches"))?;
    Ok(None)
}

/// Share of the times taken: of all where all are here, else of those where
/// both outcomes had the same chance to be seen.
pub(super) fn taken_share(site: &Site, complete: bool) -> Option<f64> {
    let not_taken = site.not_taken?;
    if complete {
        return Some(site.taken as f64 / site.taken.saturating_add(not_taken) as f64);
    }
    site.outcomes().ratio()
}

fn conditional_json(maps: &mut Maps, site: &Site, rank: usize, complete: bool) -> Value {
    let interval = interval_of(&site.outcomes(), complete);
    let (low, high) = flow::ends(interval.filter(|_| site.not_taken.is_some()));
    let (symbol, offset, file) = super::end_json(maps, site.location);
    let (line, inlines) = super::source_json(maps, site.location);
    json!({
        "view": "outcomes",
        "kind": "conditional",
        "rank": rank,
        "from": super::address(maps, site.location, site.from),
        "from_symbol": symbol,
        "from_offset": offset,
        "from_file": file,
        "from_line": line,
        "from_inlines": inlines,
        "to": site.targets.first().and_then(|target| super::address(maps, target.location, target.to)),
        "taken": site.taken,
        "not_taken": site.not_taken,
        "taken_share": taken_share(site, complete),
        "low": low,
        "high": high,
        "stacks": site.outcomes().stacks,
    })
}

fn indirect_json(maps: &mut Maps, site: &Site, rank: usize, complete: bool) -> Value {
    let mut targets = Vec::new();
    for target in &site.targets {
        let interval = interval_of(&site.to_target(target), complete);
        let (low, high) = flow::ends(interval);
        let (symbol, offset, file) = super::end_json(maps, target.location);
        let (line, inlines) = super::source_json(maps, target.location);
        targets.push(json!({
            "to": super::address(maps, target.location, target.to),
            "to_symbol": symbol,
            "to_offset": offset,
            "to_file": file,
            "to_line": line,
            "to_inlines": inlines,
            "count": target.count,
            "share": target.count as f64 / site.taken as f64,
            "low": low,
            "high": high,
        }));
    }
    let (symbol, offset, file) = super::end_json(maps, site.location);
    let (line, inlines) = super::source_json(maps, site.location);
    json!({
        "view": "outcomes",
        "kind": "indirect",
        "rank": rank,
        "from": super::address(maps, site.location, site.from),
        "from_symbol": symbol,
        "from_offset": offset,
        "from_file": file,
        "from_line": line,
        "from_inlines": inlines,
        "type": site.branch_type.map(type_name),
        "taken": site.taken,
        "stacks": site.misses().stacks.max(site.targets.first().map_or(0, |t| site.to_target(t).stacks)),
        "targets": targets,
    })
}
