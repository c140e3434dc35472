//! Who calls whom: from recordings in call-stack mode, or from all calls and
//! returns.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use maud::{Markup, html};
use profile::callgraph::{self, CallGraph, Function, Node, Sum, Unit, score};
use profile::maps::Location;
use profile::perf_data::Rate;
use profile::select::EventSamples;
use serde_json::json;

use super::{Page, Report, Section, Sort, View, rest};
use crate::args::heading;
use crate::exit::Result;
use crate::head::{self, Notes, Totals, quality_json};
use crate::input::{Count, Recordings, Source};
use crate::present::{
    Cell, Out, Printer, Ranked, Table, counted_nonzero, dash, escaped, grouped, part, percent, say,
    share, shortened,
};
use crate::select::Rows;

pub(super) const VIEW: View = View {
    name: "callgraph",
    about: "Who calls whom: from recordings in call-stack mode, or from all calls and returns",
    sorts: &[Sort::Count],
    run,
    section: Some(Section { title: "Call graph", markup }),
};

/// Share below which the tree is cut, percent.
pub(crate) const LEAST: f64 = 0.5;
/// Levels of the tree that are drawn.
const LEVELS: usize = 48;
/// Printed if the call graph is empty.
pub(crate) const NO_CALLS: &str =
    "No calls: the recording has neither call stacks nor calls and returns.";
/// Minimum width of a name in the tree, at any depth.
const LEAST_NAME: usize = 20;

/// Options of the view callgraph.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = heading::VIEW)]
pub(super) struct GraphOptions {
    /// Tree from functions up to their callers (callgraph)
    #[arg(long)]
    callee: bool,
    /// Folded stacks for flame graphs (callgraph)
    #[arg(long, conflicts_with_all = ["json", "callee"])]
    pub(super) folded: bool,
    /// Join truncated stacks to earlier ones, as perf's --stitch-lbr (callgraph)
    ///
    /// Two stacks of a thread are joined if their records overlap.
    #[arg(long, hide_short_help = true)]
    stitch: bool,
    /// A recording of every branch of the same run, to check the stacks (callgraph)
    ///
    /// Prints how many stacks are right, with and without --stitch.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    truth: Option<PathBuf>,
}

impl GraphOptions {
    /// Whether any of them was given.
    pub(super) fn any(&self) -> bool {
        self.callee || self.folded || self.stitch || self.truth.is_some()
    }
}

fn run(args: &Report, out: &mut Out<'_>) -> Result {
    let options = &args.callgraph;
    let (mut graph, sources) = args.count(callgraph::counter(options.stitch))?;
    let shown = Shown::of(args, &mut graph)?;
    let rows = shown.rows(args, &graph);
    let totals = Totals::of(graph.entries, graph.distinct);
    let scored = match &options.truth {
        Some(truth) => {
            // It must be of the same run; its event may differ.
            let mut reading = args.reading();
            Arc::make_mut(&mut reading.selection).events.clear();
            let truth = Recordings::once(std::slice::from_ref(truth), reading)?;
            score(&graph, &truth.count(callgraph::counter(false))?.0)
        }
        None => None,
    };
    let sums = shown.sums(&graph);
    let listed = sums.iter().enumerate();
    let functions = functions(graph.total(), graph.unit);
    let printer = args.printer();
    if options.folded {
        print_folded(out, &graph, |function| shown.has(function))?;
        if let Some(scored) = scored {
            say!("{}", score_line(scored));
        }
    } else if printer == Printer::Text {
        let trust = Some(passage_line(&graph, &sources, options.stitch));
        let notes = Notes { trust, ..Notes::default() };
        out.lines(&head::lines(&sources, &graph.quality, &totals, notes, args.verbose))?;
        if let Some(scored) = scored {
            out.line(score_line(scored))?;
        }
        if let Some(rows) = &rows {
            out.line(rows.line())?;
        }
        out.gap()?;
        args.write_rows(out, &functions, &mut graph, listed, ("function", "functions"))?;
        out.gap()?;
        if options.callee {
            graph = graph.inverted();
        }
        let (leads, width) = (shown.leads(&graph), out.width);
        tree(&graph, &leads, LEAST / 100.0, width, &mut |line, _| out.line(line))?;
    } else {
        args.write_rows(out, &functions, &mut graph, listed, ("function", "functions"))?;
        if printer == Printer::Json {
            print_contexts(out, args, &graph, &shown)?;
        }
    }
    let mut totals = quality_json(&sources, &graph.quality, &totals);
    let passage = &graph.passage;
    totals["unit"] = json!(graph.unit.name());
    totals["total"] = json!(graph.total());
    totals["complete"] = json!(graph.complete);
    totals["truncated"] = json!(passage.truncated);
    totals["stitched"] = json!(options.stitch);
    totals["stitched_whole"] = json!(passage.completed);
    totals["stitched_longer"] = json!(passage.lengthened);
    totals["underflow"] = json!(passage.underflow);
    totals["tail_calls"] = json!(passage.tail_calls);
    totals["unwound_by_longjmp"] = json!(passage.unwound);
    totals["returns_without_call"] = json!(passage.unseen_calls);
    totals["returns_to_no_call"] = json!(passage.unmatched);
    totals["types_unknown"] = json!(passage.untyped);
    totals["frames_too_deep"] = json!(passage.folded);
    totals["stacks_unusable"] = json!(passage.unusable);
    totals["score"] = json!(scored);
    args.end(out, totals, rows.as_ref(), (&sources, &graph.maps))
}

fn score_line(score: f64) -> String {
    format!("against the truth: {} of the stacks are on the same paths", percent(score))
}

/// The denominator of shares of call stacks.
fn shares_of(graph: &CallGraph, sources: &[Source]) -> String {
    let events: Vec<&EventSamples> = sources.iter().flat_map(Source::events).collect();
    let all = |is: fn(&&EventSamples) -> bool| !events.is_empty() && events.iter().all(is);
    if all(|event| matches!(event.rate, Some(Rate::Frequency(_)))) {
        return "; taken at a rate: shares are of time".to_owned();
    }
    let [event, ..] = events.as_slice() else { return String::new() };
    let same = events.iter().all(|other| other.name == event.name && other.rate == event.rate);
    match event.rate.filter(|_| same) {
        Some(Rate::Period(period)) if graph.quality.software > 0 => {
            let each = match period {
                1 => "one at each call and return".to_owned(),
                _ => format!("one every {} calls and returns", grouped(period)),
            };
            format!("; {each}: shares are of these, not of time (record -F)")
        }
        Some(Rate::Period(_)) => format!("; shares are of {}", event.name),
        _ => String::new(),
    }
}

/// How the counts came about.
fn passage_line(graph: &CallGraph, sources: &[Source], stitch: bool) -> String {
    let passage = &graph.passage;
    let unit = match graph.unit {
        Unit::Stacks => {
            format!("call stacks: self and total count stacks{}", shares_of(graph, sources))
        }
        Unit::Branches => format!(
            "calls and returns replayed{}: self and total count taken branches",
            if graph.complete { ", all of them" } else { ", stack by stack" }
        ),
    };
    let counts = counted_nonzero([
        (passage.truncated, "truncated stack", "truncated stacks", ""),
        (passage.underflow, "stack", "stacks", "whose outer calls returns have used up"),
        (passage.completed, "of these", "of these", "made whole by stitching"),
        (passage.lengthened, "made longer", "made longer", "by stitching"),
        (passage.tail_calls, "tail call", "tail calls", ""),
        (passage.unwound, "frame", "frames", "left by longjmp"),
        (passage.unseen_calls, "return", "returns", "whose call was not seen"),
        (passage.unmatched, "return", "returns", "to no open call"),
        (
            passage.untyped,
            "branch",
            "branches",
            "of unknown type, among which calls and returns are not seen",
        ),
        (
            passage.folded,
            "frame too deep for a separate row",
            "frames too deep for separate rows",
            "",
        ),
        (passage.unusable, "stack", "stacks", "without calls and returns skipped"),
    ]);
    let stitches = passage.truncated > 0 && !stitch;
    let advice = stitches.then(|| "--stitch joins them to earlier ones".to_owned());
    let counts: Vec<String> = counts.chain(advice).collect();
    if counts.is_empty() { unit } else { format!("{unit}; {}", counts.join(", ")) }
}

fn label(graph: &CallGraph, function: usize) -> String {
    graph.functions.get(function).map_or_else(dash, Function::label)
}

fn functions<'a>(all: u64, unit: Unit) -> Table<'a, CallGraph, Ranked<'a, Sum>> {
    let function = |graph: &CallGraph, sum: &Sum| graph.functions.get(sum.function).cloned();
    Table::<CallGraph, Ranked<'_, Sum>>::new()
        .constant("view", "callgraph")
        .constant("kind", "function")
        .only("rank", |_, (at, _)| Cell::Number(*at as u64 + 1))
        .number("total", "total", |_, (_, sum)| Cell::Count(sum.total))
        .number("total_share", "share", move |_, (_, sum)| Cell::share(share(sum.total, all)))
        .number("self", "self", |_, (_, sum)| Cell::Count(sum.own))
        .number("self_share", "share", move |_, (_, sum)| Cell::share(share(sum.own, all)))
        .heat()
        .number("calls", "calls", move |_, (_, sum)| match unit {
            Unit::Branches => Cell::Count(sum.calls),
            Unit::Stacks => Cell::Absent,
        })
        .name("function", "function", |graph, (_, sum)| Cell::Name(label(graph, sum.function)))
        .only("addr", move |graph, (_, sum)| {
            let addr = function(graph, sum).and_then(|function| function.addr);
            Cell::word(addr.map(|addr| format!("{addr:#x}")))
        })
        .only("file", move |graph, (_, sum)| {
            let location = function(graph, sum).and_then(|function| function.location);
            Cell::name(location.and_then(|location| graph.maps.path_of(location)))
        })
        .spares(&["calls", "total", "self"])
}

/// The tree, branch by branch, without recursion: recordings may be deep. `line` gets each line,
/// and the index of its function.
pub(crate) fn tree(
    graph: &CallGraph,
    leads: &[bool],
    least: f64,
    width: Option<usize>,
    line: &mut dyn FnMut(String, usize) -> io::Result<()>,
) -> io::Result<()> {
    let children = graph.children();
    let all = graph.total();
    let seen = |at: &usize| {
        if leads.get(*at) != Some(&true) {
            return false;
        }
        let total = graph.nodes.get(*at).map_or(0, |node| node.total);
        total > 0 && share(total, all).is_some_and(|share| share >= least)
    };
    // Node, level, the bars to its left, whether siblings follow below it.
    let mut waiting: Vec<(usize, String, bool)> = Vec::new();
    let push = |waiting: &mut Vec<(usize, String, bool)>, of: usize, bars: &str| {
        let below: Vec<usize> =
            children.get(of).into_iter().flatten().copied().filter(|at| seen(at)).collect();
        for (left, at) in below.iter().rev().enumerate() {
            waiting.push((*at, bars.to_owned(), left > 0));
        }
    };
    push(&mut waiting, 0, "");
    while let Some((at, bars, more)) = waiting.pop() {
        let Some(node) = graph.nodes.get(at) else { continue };
        let fork = if more { "|-- " } else { "`-- " };
        let own = match node.own > 0 && node.own < node.total {
            true => format!(" (self {})", part(node.own, all)),
            false => String::new(),
        };
        let name = label(graph, node.function);
        let (share, name) = (part(node.total, all), escaped(&name));
        let used = 10 + bars.len() + fork.len() + own.len();
        let room = width.map_or(usize::MAX, |width| width.saturating_sub(used));
        let name = shortened(&name, room.max(LEAST_NAME));
        line(format!("{share:>7}  {bars}{fork}{name}{own}"), node.function)?;
        let bars = format!("{bars}{}", if more { "|   " } else { "    " });
        if bars.len() / 4 < LEVELS {
            push(&mut waiting, at, &bars);
        } else if children.get(at).is_some_and(|below| !below.is_empty()) {
            line(format!("{:>7}  {bars}(deeper)", ""), node.function)?;
        }
    }
    Ok(())
}

/// Prints folded stacks for flame graphs: functions from the outermost on, separated by semicolons,
/// and the count. Semicolons in names become colons.
pub(crate) fn print_folded(
    out: &mut impl Write,
    graph: &CallGraph,
    shown: impl Fn(usize) -> bool,
) -> io::Result<()> {
    let is_shown = |node: &Node| node.own > 0 && shown(node.function);
    for (at, node) in graph.nodes.iter().enumerate().filter(|(_, node)| is_shown(node)) {
        let path = graph.path(at).into_iter();
        let names: Vec<String> =
            path.map(|function| label(graph, function).replace(';', ":")).collect();
        writeln!(out, "{} {}", escaped(&names.join(";")), node.own)?;
    }
    Ok(())
}

fn print_contexts(
    out: &mut Out<'_>,
    args: &Report,
    graph: &CallGraph,
    shown: &Shown,
) -> io::Result<()> {
    let (all, callee) = (graph.total(), args.callgraph.callee);
    let inverted = callee.then(|| graph.inverted());
    let tree = inverted.as_ref().unwrap_or(graph);
    let counted = !callee && graph.unit == Unit::Branches;
    let table = Table::<(), (usize, &Node)>::new()
        .constant("view", "callgraph")
        .constant("kind", "context")
        .constant("order", if callee { "callee" } else { "caller" })
        .nested("path", |(), (at, _)| {
            tree.path(*at).into_iter().map(|function| label(tree, function)).collect::<Vec<_>>()
        })
        .only("total", |(), (_, node)| Cell::Count(node.total))
        .only("total_share", |(), (_, node)| Cell::share(share(node.total, all)))
        .only("self", |(), (_, node)| Cell::Count(node.own))
        .only("calls", |(), (_, node)| Cell::count(counted.then_some(node.calls)));
    let nodes = tree.nodes.iter().enumerate().skip(1).filter(|(_, node)| shown.has(node.function));
    table.write_json(out, &mut (), nodes)
}

fn markup(page: &mut Page<'_>) -> Result<Markup> {
    let graph = &mut *page.graph;
    let (sums, all) = (Shown::of(page.args, graph)?.sums(graph), graph.total());
    if all == 0 {
        return Ok(html! { p { (NO_CALLS) } });
    }
    let rows = sums.iter().take(page.limit).enumerate();
    Ok(html! {
        p {
            @if graph.unit == Unit::Branches {
                "Calls and returns replayed" (if graph.complete { ", all of them" } else { ", stack by stack" })
                ": self and total count taken branches."
            } @else { "Call stacks: self and total count stacks" (shares_of(graph, page.sources)) "." }
        }
        (functions(all, graph.unit).html("Functions", graph, rows))
        (rest(sums.len(), sums.len().min(page.limit), "functions"))
    })
}

/// Which functions of the call graph are shown: those in the requested files.
pub(crate) struct Shown {
    /// By function.
    functions: Vec<bool>,
    /// All are.
    any: bool,
}

impl Shown {
    /// The functions in the requested files.
    pub(crate) fn of(args: &Report, graph: &mut CallGraph) -> Result<Shown> {
        let place = |function: &Function| function.location.unwrap_or(Location::Address(0));
        let sums = graph.sums();
        let CallGraph { functions, maps, .. } = graph;
        let places = sums.into_iter().filter_map(|sum| {
            functions.get(sum.function).map(|function| (place(function), sum.own))
        });
        let within = args.shown().places(maps, places)?;
        let is = |function| within.as_ref().is_none_or(|within| within.has(place(function)));
        let functions = graph.functions.iter().map(is).collect();
        Ok(Shown { functions, any: within.is_none() })
    }

    pub(crate) fn has(&self, function: usize) -> bool {
        self.any || self.functions.get(function).copied().unwrap_or(false)
    }

    /// The sums of the functions that are shown.
    pub(crate) fn sums(&self, graph: &CallGraph) -> Vec<Sum> {
        graph.sums().into_iter().filter(|sum| self.has(sum.function)).collect()
    }

    /// For each node, whether it leads to one of the functions.
    pub(crate) fn leads(&self, graph: &CallGraph) -> Vec<bool> {
        let mut leads: Vec<bool> = graph.nodes.iter().map(|node| self.has(node.function)).collect();
        // Children have higher numbers than their parents.
        for (at, node) in graph.nodes.iter().enumerate().rev() {
            if let Some(parent) = node.parent.filter(|_| leads[at]) {
                leads[parent] = true;
            }
        }
        leads
    }

    pub(crate) fn rows(&self, args: &Report, graph: &CallGraph) -> Option<Rows> {
        let (sums, all) = (self.sums(graph), graph.sums().len());
        let own = sums.iter().fold(0, |sum: u64, of| sum.saturating_add(of.own));
        let unit = graph.unit.name();
        (!self.any).then(|| args.shown().rows(unit, (own, graph.total()), (sums.len(), all)))
    }
}
