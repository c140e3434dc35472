//! The picture that a page opens with: calling contexts, or the functions of each file, as boxes as
//! wide as their counts.

use std::collections::HashMap;

use maud::{Markup, html};
use profile::callgraph::{CallGraph, Function, Unit};
use profile::flow::Flow;
use profile::maps::Location;
use profile::overview::Overview;

use crate::commands::functions::{self, FunctionSum, moved};
use crate::commands::report::{GraphRows, Report};
use crate::exit::Result;
use crate::present::{Heat, TITLE, counted, escaped, grouped, part, percent, share, shortened};

/// The share of the picture that a box needs, and the number of boxes at most.
const LEAST: f64 = 0.001;
const BOXES: usize = 1000;
/// Cells of a name in a box.
const NAME: usize = 80;

/// The unit of most pictures.
const BRANCHES: &str = "taken branches";

/// A box.
struct Frame {
    level: usize,
    /// The counts to its left.
    start: u64,
    total: u64,
    own: u64,
    name: String,
    /// The first byte of its function.
    function: Option<Location>,
}

/// The boxes, each before those below it.
pub(super) struct Picture {
    frames: Vec<Frame>,
    unit: &'static str,
    /// The hottest function: its name, count and first byte.
    hottest: Option<(String, u64, Option<Location>)>,
    functions: usize,
    is_graph: bool,
    omitted: usize,
}

/// The calling contexts; without calls, the functions by file.
pub(super) fn of(args: &Report, graph: &mut CallGraph, overview: &mut Overview) -> Result<Picture> {
    if graph.total() > 0 {
        let shown = GraphRows::of(args, graph)?;
        return Ok(of_calls(graph, &shown, overview));
    }
    Ok(of_functions(&functions::sums(overview), overview.flow.taken))
}

fn of_calls(graph: &CallGraph, shown: &GraphRows, overview: &Overview) -> Picture {
    let (children, leads) = (graph.children(), shown.leads(graph));
    // A context comes before those below it, and counts at least as much.
    let is_wide = |at: &usize| {
        let width = graph.nodes.get(*at).and_then(|node| share(node.total, graph.total()));
        leads.get(*at) == Some(&true) && width.is_some_and(|width| width >= LEAST)
    };
    let mut wide: Vec<usize> = (1..graph.nodes.len()).filter(is_wide).collect();
    let omitted = leads.iter().skip(1).filter(|leads| **leads).count();
    wide.sort_by_key(|at| std::cmp::Reverse(graph.nodes[*at].total));
    wide.truncate(BOXES);
    let drawn: std::collections::HashSet<usize> = wide.into_iter().collect();
    let unit = match graph.unit {
        Unit::Branches => BRANCHES,
        Unit::Stacks => "call stacks",
    };
    let mut frames = vec![whole(graph.total(), unit)];
    let mut waiting = vec![(0, 0, 0)];
    while let Some((at, level, start)) = waiting.pop() {
        if let (Some(node), 1..) = (graph.nodes.get(at), level) {
            let function = graph.functions.get(node.function);
            let place = function.and_then(|function| function.location);
            frames.push(Frame {
                level,
                start,
                total: node.total,
                own: node.own,
                name: function.map_or_else(String::new, Function::label),
                function: place.and_then(|at| moved(&graph.maps, &overview.flow.maps, at)),
            });
        }
        let (mut left, first) = (start, waiting.len());
        for child in children.get(at).into_iter().flatten().copied() {
            if drawn.contains(&child) {
                waiting.push((child, level + 1, left));
            }
            left = left.saturating_add(graph.nodes.get(child).map_or(0, |node| node.total));
        }
        waiting[first..].reverse();
    }
    let sums = shown.sums(graph);
    let hottest = sums.iter().max_by_key(|sum| sum.own).and_then(|sum| {
        let function = graph.functions.get(sum.function)?;
        let place = function.location.and_then(|at| moved(&graph.maps, &overview.flow.maps, at));
        Some((function.label(), sum.own, place))
    });
    let omitted = omitted - drawn.len();
    Picture { frames, unit, hottest, functions: sums.len(), is_graph: true, omitted }
}

fn of_functions(sums: &[FunctionSum], all: u64) -> Picture {
    let mut files: Vec<(&str, u64, Vec<&FunctionSum>)> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for sum in sums {
        let path = sum.file.as_deref().unwrap_or("[unknown]");
        let at = *known.entry(path).or_insert_with(|| {
            files.push((path, 0, Vec::new()));
            files.len() - 1
        });
        files[at].1 = files[at].1.saturating_add(sum.own);
        files[at].2.push(sum);
    }
    files.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
    let is_wide = |count: u64| share(count, all).is_some_and(|width| width >= LEAST);
    let (mut frames, mut start) = (vec![whole(all, BRANCHES)], 0_u64);
    for (path, total, sums) in files {
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        if is_wide(total) {
            frames.push(Frame { level: 1, start, total, own: 0, name, function: None });
        }
        for sum in sums {
            if is_wide(sum.own) && frames.len() < BOXES {
                let (total, own, name) = (sum.own, sum.own, sum.name.clone());
                frames.push(Frame { level: 2, start, total, own, name, function: sum.start });
            }
            start = start.saturating_add(sum.own);
        }
    }
    let drawn = frames.iter().filter(|frame| frame.level == 2).count();
    Picture {
        frames,
        unit: BRANCHES,
        hottest: sums.first().map(|sum| (sum.name.clone(), sum.own, sum.start)),
        functions: sums.len(),
        is_graph: false,
        omitted: sums.len() - drawn,
    }
}

/// The box of everything.
fn whole(total: u64, unit: &str) -> Frame {
    let name = format!("{} {unit}", grouped(total));
    Frame { level: 0, start: 0, total, own: 0, name, function: None }
}

/// The code of a function, if it is on the page.
fn href(function: Option<Location>, code: &HashMap<Location, usize>) -> Option<String> {
    code.get(&function?).map(|at| format!("#f{at}"))
}

impl Picture {
    fn all(&self) -> u64 {
        self.frames.first().map_or(0, |all| all.total)
    }

    pub(super) fn title(&self) -> &'static str {
        if self.is_graph { "Who calls whom" } else { "Functions by file" }
    }

    /// The answer in one sentence.
    pub(super) fn sentence(&self, flow: &Flow, code: &HashMap<Location, usize>) -> Markup {
        let missed = flow.mispredicted.and_then(|missed| share(missed, flow.known));
        html! {
            p class="lead" {
                @match &self.hottest {
                    Some((name, own, place)) => {
                        a href=[href(*place, code)] { (shortened(&escaped(name), NAME)) } " has " (part(*own, self.all())) " of the "
                        (grouped(self.all())) " " (self.unit) ", the most of "
                        (counted(self.functions as u64, "function", "functions"))
                        @if let Some(missed) = missed { "; " (percent(missed)) " of known predictions were wrong" } "."
                    }
                    None => "Nothing was recorded.",
                }
            }
        }
    }

    /// The boxes; those of functions whose code is on the page (`code`) lead there.
    pub(super) fn markup(&self, code: &HashMap<Location, usize>) -> Markup {
        let all = self.all();
        let peak = self.frames.iter().map(|frame| frame.own).max().unwrap_or(0) as f64;
        let levels = self.frames.iter().map(|frame| frame.level + 1).max().unwrap_or(0);
        let shape = |frame: &Frame| {
            let of = |count| share(count, all).unwrap_or(0.0);
            format!("--x:{:.5};--w:{:.5};--l:{}", of(frame.start), of(frame.total), frame.level)
        };
        html! {
            div class="levels" {
                div class="icicle" role="tree" aria-label=(self.title()) style={ "--levels:" (levels) } {
                    @for frame in &self.frames {
                        @let name = escaped(&frame.name);
                        a class={ "frame " (Heat::of(Some(frame.own as f64), peak).name) } role="treeitem"
                            aria-level=(frame.level + 1) tabindex="-1" href=[href(frame.function, code)]
                            style=(shape(frame))
                            title={ (shortened(&name, TITLE)) "\n" (grouped(frame.total)) " " (self.unit) ", " (part(frame.total, all))
                                "; " (grouped(frame.own)) " in itself, " (part(frame.own, all)) } {
                            (shortened(&name, NAME))
                        }
                    }
                }
            }
            p class="faint" {
                "Width: " (self.unit) (if self.is_graph { " in a function and those it calls" } else { "" })
                "; colour: those in itself."
                @if self.omitted > 0 { " " (grouped(self.omitted as u64)) " narrow boxes are omitted." }
            }
        }
    }
}
