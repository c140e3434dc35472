//! `lbr report --view mispredict`.

use std::io::Write;

use profile::Flow;
use profile::brstack::type_name;
use profile::flow::Site;
use profile::interval::Interval;
use serde_json::json;

use super::flow::interval_of;
use super::{Report, Sort, dash, flow, percent};
use crate::present::number::grouped;

/// Prints the view.
pub(super) fn print(
    out: &mut impl Write,
    args: &Report,
    flow: &mut Flow,
) -> std::io::Result<Option<u8>> {
    // A branch that was never taken has no record, and so no prediction.
    let mut sites: Vec<&Site> = flow.sites.iter().filter(|site| site.taken > 0).collect();
    let complete = flow.is_complete();
    let rate = |site: &Site| rate(site, args.min_n, complete).unwrap_or(-1.0);
    sites.sort_by(|a, b| {
        let first = match args.sort.unwrap_or(Sort::Mispredicts) {
            Sort::Count => b.taken.cmp(&a.taken),
            Sort::Rate => rate(b).total_cmp(&rate(a)),
            Sort::Address => std::cmp::Ordering::Equal,
            Sort::Mispredicts | Sort::Cycles => b
                .mispredicted
                .cmp(&a.mispredicted)
                .then(b.known.cmp(&a.known))
                .then(b.taken.cmp(&a.taken)),
        };
        first.then(a.from.cmp(&b.from))
    });
    let all = sites.len();
    sites.truncate(args.rows());
    let maps = &mut flow.maps;
    maps.look_up_lines(sites.iter().map(|site| site.location));
    if !args.json {
        writeln!(
            out,
            "{:>4}  {:>12}  {:>12}  {:>12}  {:>10}  {:>18}  {:<10}  branch",
            "rank", "mispredicts", "known", "taken", "rate", "interval", "type"
        )?;
    }
    for (rank, site) in sites.iter().enumerate() {
        let rank = rank + 1;
        let never = site.mispredicted == Some(0);
        let rate = self::rate(site, args.min_n, complete);
        let interval = interval(site, complete).filter(|_| site.known >= args.min_n);
        if args.json {
            let (symbol, offset, file) = super::end_json(maps, site.location);
            let (line, inlines) = super::source_json(maps, site.location);
            let (low, high) = flow::ends(interval);
            let row = json!({
                "view": "mispredict",
                "rank": rank,
                "from": super::address(maps, site.location, site.from),
                "from_symbol": symbol,
                "from_offset": offset,
                "from_file": file,
                "from_line": line,
                "from_inlines": inlines,
                "type": site.branch_type.map(type_name),
                "taken": site.taken,
                "predictions_known": site.known,
                "mispredicted": site.mispredicted,
                "never_seen_mispredicted": site.mispredicted.map(|missed| missed == 0),
                "mispredict_rate": rate,
                "low": low,
                "high": high,
                "stacks": site.misses().stacks,
            });
            super::print_json(out, &row)?;
            continue;
        }
        let rate = if never { "never seen".to_owned() } else { rate.map_or_else(dash, percent) };
        let interval = match interval {
            Some(Interval { high, .. }) if never => format!("up to {}", percent(high)),
            interval => flow::interval(interval),
        };
        writeln!(
            out,
            "{rank:>4}  {:>12}  {:>12}  {:>12}  {rate:>10}  {interval:>18}  {:<10}  {}",
            site.mispredicted.map_or_else(dash, grouped),
            if site.known > 0 { grouped(site.known) } else { dash() },
            grouped(site.taken),
            site.branch_type.map_or_else(dash, |t| type_name(t).into_owned()),
            super::place(maps, site.location, site.from),
        )?;
    }
    if !args.json {
        super::print_hidden(out, all, sites.len(), ("branch", "branches"))?;
        writeln!(
            out,
            "rates are of the times a branch was taken: a branch that falls through leaves no record"
        )?;
    }
    Ok(None)
}

/// Share of mispredictions. None where none was seen: that is no rate of 0.
/// None where too few are known, unless they are all there is.
pub(super) fn rate(site: &Site, min_n: u64, complete: bool) -> Option<f64> {
    let enough = complete || site.known >= min_n;
    let missed = site.mispredicted.filter(|missed| *missed > 0 && enough)?;
    Some(missed as f64 / site.known as f64)
}

pub(super) fn interval(site: &Site, complete: bool) -> Option<Interval> {
    interval_of(&site.misses(), complete)
}
