//! `lbr report --view callgraph`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use profile::Selection;
use profile::callgraph::{CallGraph, Function, Node, Sum, Unit, score};
use profile::symbols::Sources;
use serde_json::{Value, json};

pub(super) use super::shown::Shown;
use super::{Report, Totals, dash, percent, share};
use crate::exit::{DONE, Failure, Outcome};
use crate::input::{self, Source};
use crate::present::number::grouped;
use crate::present::out::say;
use crate::symbols::{self, SymbolArgs};

/// Share of the whole below which the tree is cut, percent.
pub(super) const LEAST: f64 = 0.5;
/// Levels of the tree that are drawn.
const LEVELS: usize = 48;

/// What of the call graph is printed.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "View callgraph")]
pub(super) struct GraphOptions {
    /// Tree from callers down to callees; this is the default.
    #[arg(long, conflicts_with = "callee")]
    caller: bool,
    /// Tree from each function up to its callers.
    #[arg(long)]
    callee: bool,
    /// Leave out of the tree what has less than this share
    /// [default: 0.5].
    #[arg(long, value_name = "PERCENT")]
    min_percent: Option<f64>,
    /// Folded lines for flame graphs instead: callers and callees separated by
    /// semicolons, and the count.
    #[arg(long, conflicts_with_all = ["json", "callee"])]
    folded: bool,
    /// Join truncated stacks to earlier ones of the thread where their records
    /// are the same, as perf's --stitch-lbr.
    #[arg(long)]
    stitch: bool,
    /// A recording of all branches of the same run: says how many of the stacks
    /// are right, with and without --stitch.
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
}

impl GraphOptions {
    /// Whether any of them was asked for.
    pub(super) fn any(&self) -> bool {
        self.caller
            || self.callee
            || self.min_percent.is_some()
            || self.folded
            || self.stitch
            || self.truth.is_some()
    }
}

pub(super) fn count(
    paths: &[PathBuf],
    selection: &Arc<Selection>,
    symbols: &SymbolArgs,
    stitch: bool,
) -> Result<(CallGraph, Vec<Source>), Failure> {
    let sources = symbols.sources(&Sources::default());
    CallGraph::count_with(sources, stitch, |read| input::read_all(paths, selection, read))
}

/// Runs the view.
pub(super) fn run(args: &Report) -> Outcome {
    let options = &args.callgraph;
    let least = options.min_percent.unwrap_or(LEAST);
    if !(0.0..=100.0).contains(&least) {
        return super::usage("--min-percent is a percentage: 0 to 100");
    }
    let selection = args.select.selection();
    let (graph, sources) = count(&args.input, &selection, &args.symbols, options.stitch)?;
    let shown = Shown::of(args, &graph)?;
    let rows = shown.rows(args, &graph);
    let totals =
        Totals { branches: graph.entries, distinct: graph.distinct, known: 0, mispredicted: None };
    let scored = match &options.truth {
        Some(truth) => {
            // Of the same run; its event may be another.
            let selection = Selection { events: Vec::new(), ..(*selection).clone() };
            let (truth, _) =
                count(std::slice::from_ref(truth), &Arc::new(selection), &args.symbols, false)?;
            score(&graph, &truth)
        }
        None => None,
    };
    let mut out = super::stdout(args.json);
    if options.folded {
        print_folded(&mut out, &graph, &shown)?;
        if let Some(scored) = scored {
            say!("{}", score_line(scored));
        }
    } else if args.json {
        print_rows(&mut out, args, &graph, &shown)?;
        let mut quality = super::quality_json(&sources, &graph.quality, &totals);
        for key in ["mispredicted", "predictions_known"] {
            quality.as_object_mut().map(|quality| quality.remove(key));
        }
        let passage = &graph.passage;
        quality["unit"] = json!(graph.unit.name());
        quality["total"] = json!(graph.total());
        quality["complete"] = json!(graph.complete);
        quality["truncated"] = json!(passage.truncated);
        quality["stitched"] = json!(options.stitch);
        quality["stitched_whole"] = json!(passage.completed);
        quality["stitched_longer"] = json!(passage.lengthened);
        quality["underflow"] = json!(passage.underflow);
        quality["tail_calls"] = json!(passage.tail_calls);
        quality["unwound_by_longjmp"] = json!(passage.unwound);
        quality["returns_without_call"] = json!(passage.unseen_calls);
        quality["returns_to_no_call"] = json!(passage.unmatched);
        quality["types_unknown"] = json!(passage.untyped);
        quality["frames_too_deep"] = json!(passage.folded);
        quality["stacks_unusable"] = json!(passage.unusable);
        quality["score"] = json!(scored);
        quality["dso"] = json!(rows.map(|rows| rows.json()));
        super::print_json(&mut out, &quality)?;
    } else {
        super::print_recordings(&mut out, &sources, &graph.quality)?;
        super::print_counts(&mut out, &graph.quality, &totals)?;
        print_passage(&mut out, &graph, options.stitch)?;
        if let Some(scored) = scored {
            writeln!(out, "{}", score_line(scored))?;
        }
        if let Some(rows) = rows {
            writeln!(out, "{}", rows.line())?;
        }
        writeln!(out)?;
        print_functions(&mut out, args, &graph, &shown)?;
        writeln!(out)?;
        let tree = if options.callee { graph.inverted() } else { graph };
        print_tree(&mut out, &tree, &shown, least / 100.0)?;
        out.flush()?;
        super::finish(&sources, &tree.maps);
        return Ok(DONE);
    }
    out.flush()?;
    super::finish(&sources, &graph.maps);
    Ok(DONE)
}

fn score_line(score: f64) -> String {
    format!("against the truth: {} of the stacks are on the same paths", percent(score))
}

fn print_passage(out: &mut impl Write, graph: &CallGraph, stitch: bool) -> std::io::Result<()> {
    let passage = &graph.passage;
    match graph.unit {
        Unit::Stacks => writeln!(
            out,
            "call stacks: self and total count stacks; a tail call innermost, and frames that \
             longjmp left, are not told from others"
        )?,
        Unit::Branches => writeln!(
            out,
            "calls and returns replayed{}: self and total count taken branches",
            if graph.complete { ", all of them" } else { ", stack by stack" }
        )?,
    }
    let odd = [
        ("truncated stacks", passage.truncated),
        ("stacks whose outer calls returns have used up", passage.underflow),
        ("of these made whole by stitching", passage.completed),
        ("made longer by stitching", passage.lengthened),
        ("tail calls", passage.tail_calls),
        ("frames left by longjmp", passage.unwound),
        ("returns whose call was not seen", passage.unseen_calls),
        ("returns to no open call", passage.unmatched),
        ("branches of unknown type, among which calls and returns are not seen", passage.untyped),
        ("frames too deep for a place of their own", passage.folded),
        ("stacks without calls and returns left out", passage.unusable),
    ];
    let mut words: Vec<String> = odd
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{} {what}", grouped(count)))
        .collect();
    if passage.truncated > 0 && !stitch {
        words.push("--stitch joins them to earlier ones".to_owned());
    }
    if !words.is_empty() {
        writeln!(out, "{}", words.join(", "))?;
    }
    Ok(())
}

pub(super) fn label(graph: &CallGraph, function: usize) -> String {
    graph.functions.get(function).map_or_else(dash, Function::label)
}

fn print_functions(
    out: &mut impl Write,
    args: &Report,
    graph: &CallGraph,
    shown: &Shown,
) -> std::io::Result<()> {
    let sums = shown.sums(graph);
    let all = graph.total();
    let calls = |sum: &Sum| match graph.unit {
        Unit::Branches => grouped(sum.calls),
        Unit::Stacks => dash(),
    };
    writeln!(
        out,
        "{:>12}  {:>8}  {:>12}  {:>8}  {:>12}  function",
        "total", "", "self", "", "calls"
    )?;
    let shown = args.rows().min(sums.len());
    for sum in sums.iter().take(shown) {
        writeln!(
            out,
            "{:>12}  {:>8}  {:>12}  {:>8}  {:>12}  {}",
            grouped(sum.total),
            share(sum.total, all).map_or_else(dash, percent),
            grouped(sum.own),
            share(sum.own, all).map_or_else(dash, percent),
            calls(sum),
            symbols::shortened(&label(graph, sum.function), symbols::room()),
        )?;
    }
    super::print_hidden(out, sums.len(), shown, ("function", "functions"))
}

/// The tree, branch by branch, without recursion: recordings may be deep.
pub(super) fn print_tree(
    out: &mut impl Write,
    graph: &CallGraph,
    shown: &Shown,
    least: f64,
) -> std::io::Result<()> {
    let children = graph.children();
    let all = graph.total();
    let leads = shown.leads(graph);
    let seen = |at: &usize| {
        if leads.get(*at) != Some(&true) {
            return false;
        }
        let total = graph.nodes.get(*at).map_or(0, |node| node.total);
        total > 0 && share(total, all).is_some_and(|share| share >= least)
    };
    // Node, level, the bars to its left, whether others follow below it.
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
        let own = if node.own > 0 && node.own < node.total {
            format!(" (self {})", share(node.own, all).map_or_else(dash, percent))
        } else {
            String::new()
        };
        writeln!(
            out,
            "{:>8}  {bars}{fork}{}{own}",
            share(node.total, all).map_or_else(dash, percent),
            symbols::shortened(&label(graph, node.function), symbols::room()),
        )?;
        let bars = format!("{bars}{}", if more { "|   " } else { "    " });
        if bars.len() / 4 < LEVELS {
            push(&mut waiting, at, &bars);
        } else if children.get(at).is_some_and(|below| !below.is_empty()) {
            writeln!(out, "{:>8}  {bars}(deeper)", "")?;
        }
    }
    Ok(())
}

/// Lines for flame graphs. Semicolons separate frames: those in a name give
/// way.
fn print_folded(out: &mut impl Write, graph: &CallGraph, shown: &Shown) -> std::io::Result<()> {
    let is_shown = |node: &Node| node.own > 0 && shown.has(node.function);
    for (at, _) in graph.nodes.iter().enumerate().filter(|(_, node)| is_shown(node)) {
        let Some(node) = graph.nodes.get(at) else { continue };
        let path = graph.path(at);
        let names: Vec<String> =
            path.into_iter().map(|function| label(graph, function).replace(';', ":")).collect();
        writeln!(out, "{} {}", names.join(";"), node.own)?;
    }
    Ok(())
}

fn print_rows(
    out: &mut impl Write,
    args: &Report,
    graph: &CallGraph,
    shown: &Shown,
) -> std::io::Result<()> {
    let all = graph.total();
    let calls = |calls: u64| (graph.unit == Unit::Branches).then_some(calls);
    let name = |function: usize| graph.functions.get(function);
    for (rank, sum) in shown.sums(graph).iter().take(args.rows()).enumerate() {
        let function = name(sum.function);
        let file = function.and_then(|function| match function.location? {
            profile::maps::Location::File { file, .. } => graph.maps.path(file),
            profile::maps::Location::Address(_) => None,
        });
        super::print_json(
            out,
            &json!({
                "view": "callgraph",
                "kind": "function",
                "rank": rank + 1,
                "function": label(graph, sum.function),
                "addr": function.and_then(|f| f.addr).map(|addr| format!("{addr:#x}")),
                "file": file,
                "total": sum.total,
                "total_share": share(sum.total, all),
                "self": sum.own,
                "self_share": share(sum.own, all),
                "calls": calls(sum.calls),
            }),
        )?;
    }
    let inverted = args.callgraph.callee.then(|| graph.inverted());
    let tree = inverted.as_ref().unwrap_or(graph);
    let least = args.callgraph.min_percent.unwrap_or(0.0) / 100.0;
    for (at, node) in tree.nodes.iter().enumerate().skip(1) {
        let small = share(node.total, all).is_some_and(|share| share < least);
        if small || !shown.has(node.function) {
            continue;
        }
        let path: Vec<Value> =
            tree.path(at).into_iter().map(|function| json!(label(tree, function))).collect();
        super::print_json(
            out,
            &json!({
                "view": "callgraph",
                "kind": "context",
                "order": if args.callgraph.callee { "callee" } else { "caller" },
                "path": path,
                "total": node.total,
                "total_share": share(node.total, all),
                "self": node.own,
                "calls": calls(node.calls).filter(|_| !args.callgraph.callee),
            }),
        )?;
    }
    Ok(())
}
