//! Loops, and who calls whom. Each has walks of its own through the recording.

use std::path::Path;

use maud::{Markup, html};
use profile::callgraph::Unit;
use profile::loops::{Loop, LoopFinder, Loops, Quantile};

use super::tables::{Column, table};
use super::{number, place, rest};
use crate::commands::report::{Report, callgraph, loops, percent, share};
use crate::exit::Failure;
use crate::input;
use crate::present::number::grouped;

/// Branches of a recording that is walked through again for this: about two
/// seconds more.
const BRANCHES: u64 = 2_000_000;
/// Lines of the tree, at most.
const TREE: usize = 400;

/// Why there is neither, if so. `branches` is how many were read.
fn left_out(args: &Report, branches: u64) -> Option<String> {
    let [path] = args.input.as_slice() else {
        return Some("they follow one recording, and here are several".to_owned());
    };
    if path == Path::new("-") || !path.is_file() {
        return Some("they read a recording again, which a pipe cannot be".to_owned());
    }
    (branches > BRANCHES).then(|| {
        format!("for more than {} branches they take longer than the rest", grouped(BRANCHES))
    })
}

/// Two sections: anchor, title, content.
pub(super) fn sections(
    args: &Report,
    branches: u64,
    limit: usize,
) -> Result<[(&'static str, &'static str, Markup); 2], Failure> {
    let absent = |why: &str, view: &str| {
        html! { p { "Not on this page: " (why) " (lbr report --view " (view) ")." } }
    };
    let (loops, calls) = match (left_out(args, branches), args.input.first()) {
        (None, Some(path)) => (loop_table(args, path, limit)?, call_table(args, path, limit)?),
        (why, _) => {
            let why = why.unwrap_or_default();
            (absent(&why, "loops"), absent(&why, "callgraph"))
        }
    };
    Ok([("loops", "Loops", loops), ("calls", "Call graph", calls)])
}

fn loop_table(args: &Report, path: &Path, limit: usize) -> Result<Markup, Failure> {
    let failed = |e| input::failure(path, e);
    let open = || input::open(path, &args.select.selection());
    let finder = LoopFinder::find(&mut open()?, |_, _| ()).map_err(failed)?;
    let loops = finder.count(&mut open()?, |_, _| ()).map_err(failed)?;
    let Loops { loops: found, mut maps, complete, filtered, .. } = loops;
    args.symbols.apply(&mut maps);
    let mut listed: Vec<(usize, &Loop)> = found.iter().enumerate().collect();
    args.dso.keep(&maps, &mut listed, (0, ""), |(_, one)| (one.location, one.rounds))?;
    if listed.is_empty() {
        let why = if !found.is_empty() {
            "There are no loops in these files."
        } else if filtered > 0 {
            "There are no loops: not every branch was recorded (record with -j any,u)."
        } else {
            "There are no loops."
        };
        return Ok(html! { p { (why) } });
    }
    let order = |quantile: Quantile| match quantile {
        Quantile::Unknown => None,
        Quantile::Is(trips) | Quantile::AtLeast(trips) => Some(trips),
    };
    let rows = html! {
        @for (rank, one) in listed.iter().copied().take(limit) {
            @let (mean, interval) = loops::mean(one);
            @let (p50, p90) = (one.trips.quantile(0.5), one.trips.quantile(0.9));
            tr {
                td class="num" { (rank + 1) }
                (number(one.parent.map(|parent| (parent + 1).to_string())))
                td class="num" { (grouped(loops::entries(one))) }
                td class="num" { (grouped(one.rounds)) }
                (number(one.trips.min().map(|min| min.to_string())))
                td class="num" data-v=[order(p50)] { (loops::quantile(p50)) }
                td class="num" data-v=[order(p90)] { (loops::quantile(p90)) }
                td class="num" data-v=[one.longest().map(|(most, _)| most)] { (loops::longest(one)) }
                td class="num" { (mean) }
                @if !complete {
                    td class="num" data-v=[one.mean.and_then(|mean| mean.low)] { (interval) }
                }
                (number(one.cycles.quantile(0.5).map(|cycles| cycles.to_string())))
                td class="code" { (place(&mut maps, one.location, one.head)) }
                td class="code" { (loops::backs(&mut maps, one)) (loops::remarks(one)) }
            }
        }
    };
    let interval = (!complete).then_some(Column("95 % interval", true));
    let columns: Vec<Column> = [
        Column("Rank", true),
        Column("Inside", true),
        Column("Entries", true),
        Column("Rounds", true),
        Column("Min", true),
        Column("p50", true),
        Column("p90", true),
        Column("Max", true),
        Column("Mean", true),
    ]
    .into_iter()
    .chain(interval)
    .chain([Column("Cycles p50", true), Column("Head", false), Column("Back edges", false)])
    .collect();
    Ok(html! {
        p {
            "How often the body ran each time the loop was entered, and the core cycles of a round. "
            @if complete { "Every taken branch is here: trip counts are the truth." }
            @else { "A sample: quantiles are of the entries that were seen to begin, ≥ where longer ones were lost sight of." }
        }
        (table("Loops", &columns, &rows))
        (rest(listed.len(), listed.len().min(limit), "loops"))
    })
}

fn call_table(args: &Report, path: &Path, limit: usize) -> Result<Markup, Failure> {
    let selection = args.select.selection();
    let (graph, _) = callgraph::count(&[path.to_owned()], &selection, &args.symbols, false)?;
    let shown = callgraph::Shown::of(args, &graph)?;
    let (sums, all) = (shown.sums(&graph), graph.total());
    if all == 0 {
        return Ok(
            html! { p { "There are no calls: the recording holds neither call stacks nor calls and returns." } },
        );
    }
    let cell = |part| number(share(part, all).map(percent));
    let replayed = graph.unit == Unit::Branches;
    let rows = html! {
        @for sum in sums.iter().take(limit) {
            tr {
                td class="num" { (grouped(sum.total)) }
                (cell(sum.total))
                td class="num" { (grouped(sum.own)) }
                (cell(sum.own))
                (number(replayed.then(|| grouped(sum.calls))))
                td class="code" { (super::shortened(&callgraph::label(&graph, sum.function))) }
            }
        }
    };
    let columns = [
        Column("Total", true),
        Column("Total share", true),
        Column("Self", true),
        Column("Self share", true),
        Column("Calls", true),
        Column("Function", false),
    ];
    let mut tree = Vec::new();
    callgraph::print_tree(&mut tree, &graph, &shown, callgraph::LEAST / 100.0)?;
    let tree = String::from_utf8_lossy(&tree);
    let lines: Vec<String> = tree.lines().take(TREE).map(super::shortened).collect();
    let more = tree.lines().count().saturating_sub(lines.len());
    let tree = lines.join("\n");
    Ok(html! {
        p {
            @if replayed {
                "Calls and returns replayed" (if graph.complete { ", all of them" } else { ", stack by stack" })
                ": self and total count taken branches."
            } @else { "Call stacks: self and total count stacks." }
        }
        (table("Functions", &columns, &rows))
        (rest(sums.len(), sums.len().min(limit), "functions"))
        details {
            summary { "From callers down to callees" }
            div class="scroll" tabindex="0" role="region" aria-label="Call tree" { pre class="code" { (tree) } }
            @if more > 0 { p class="faint" { (grouped(more as u64)) " more lines (lbr report --view callgraph)." } }
        }
    })
}
