//! The control-flow graph of a function, as SVG and for Graphviz.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};
use profile::annotate::{Annotated, BasicBlock, Edge, EdgeKind, Graph, Instruction, Node};
use profile::maps::Location;

use super::cells::{Columns, symbol_of, words};
use crate::present::layered::{self, HEAD, Layout, Link};
use crate::present::{Cell, Table, anchor, counted, escaped, grouped, percent, without_middle};

/// Maximum number of characters in a line of a box.
const CHARS: usize = 46;
/// Size of a character and distance of lines, pixels of SVG at a font size of 12.
const CHAR: f64 = 7.25;
const LINE: f64 = 16.0;
/// Width of the most executed edge, pixels.
const WIDEST: f64 = 7.0;
/// The XML namespace, which a separate SVG file needs.
const NAMESPACE: &str = "http://www.w3.org/2000/svg";
/// Maximum number of nodes of a graph on a page.
const ON_PAGE: usize = 250;

/// Plain colours, which every viewer knows, and others for a dark scheme.
pub(super) const STYLE: &str = "
.cfg { font: 12px ui-monospace, 'DejaVu Sans Mono', monospace; background: #ffffff; }
.cfg text { fill: #1f2328; white-space: pre; } .cfg .faint { fill: #59636e; } .cfg .name { font-weight: 700; }
.cfg rect { fill: #eef1f4; stroke: #8c959f; } .cfg .hot rect { fill: #ffd8b5; } .cfg .warm rect { fill: #fff3d6; }
.cfg .outside rect, .cfg .folded rect { fill: #ffffff; stroke-dasharray: 3 3; }
.cfg .edge { stroke: #8c959f; fill: #8c959f; } .cfg .line { fill: none; } .cfg .label { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; } .cfg .falls .line { stroke-dasharray: 7 4; } .cfg .call .line, .cfg .after .line { stroke-dasharray: 2 4; }
@media (prefers-color-scheme: dark) {
.cfg { background: #0d1117; } .cfg text { fill: #e6edf3; } .cfg .faint { fill: #9198a1; }
.cfg rect { fill: #1c222a; stroke: #6e7681; } .cfg .hot rect { fill: #6b3a12; } .cfg .warm rect { fill: #4a3b10; }
.cfg .outside rect, .cfg .folded rect { fill: #0d1117; } .cfg .label { stroke: #0d1117; }
}
.cfg-figure { margin: .5rem 0; overflow: auto; max-height: 60vh; }
.cfg a { cursor: pointer; } .cfg a:focus-visible rect, .cfg a:hover rect { stroke-width: 3; }
";

/// The lines of a box.
struct Lines {
    class: &'static str,
    lines: Vec<String>,
}

fn clipped(text: &str) -> String {
    without_middle(text, CHARS)
}

/// The text of all nodes.
fn all_lines(annotated: &Annotated, graph: &Graph) -> Vec<Lines> {
    let columns = Columns::of(annotated);
    // All edges of a branch have its share, so its block has it, once.
    let mut shares = vec![None; graph.nodes.len()];
    for edge in &graph.edges {
        shares[edge.from] = shares[edge.from].or(edge.mispredicted);
    }
    graph.nodes.iter().zip(shares).map(|(node, share)| lines(&columns, node, share)).collect()
}

/// The text of a node, with the share of its branch that was mispredicted.
fn lines(columns: &Columns<'_>, node: &Node, mispredicted: Option<f64>) -> Lines {
    match node {
        Node::Block(block) => block_lines(columns, block, mispredicted),
        Node::Folded { blocks } => {
            let what = if columns.annotated.exact { "not executed" } else { "not seen" };
            let blocks = counted(*blocks as u64, "block", "blocks");
            Lines { class: "folded", lines: vec![format!("{blocks} {what}")] }
        }
        Node::Outside(target) => {
            let name = symbol_of(target).unwrap_or_else(|| format!("{:#x}", target.address));
            Lines { class: "outside", lines: vec![clipped(&name)] }
        }
    }
}

fn block_lines(columns: &Columns<'_>, block: &BasicBlock, mispredicted: Option<f64>) -> Lines {
    let annotated = columns.annotated;
    let insns = annotated.instructions.get(block.first..block.end).unwrap_or_default();
    let mut lines = Vec::new();
    if let Some(first) = insns.first() {
        let source = first.source.as_ref().map(|line| {
            let text = escaped(&line.to_string()).into_owned();
            format!("  {}", text.rsplit('/').next().unwrap_or_default())
        });
        let offset = first.address.wrapping_sub(annotated.function.address);
        let source = source.unwrap_or_default();
        lines.push(clipped(&format!("+{offset:#x}{source}")));
        lines.push(clipped(&instruction(annotated, first)));
    }
    match insns.len() {
        0..=2 => {}
        3 => lines.extend(insns.get(1).map(|insn| clipped(&words(insn)))),
        len => lines.push(format!("… {} more", len - 2)),
    }
    if let [_, .., last] = insns {
        lines.push(clipped(&instruction(annotated, last)));
    }
    let mut foot =
        block.count.map_or_else(|| "count unknown".to_owned(), |n| format!("{}×", grouped(n)));
    let timed = block.end.checked_sub(1).and_then(|last| columns.block(last));
    if let Some(cycles) = timed.and_then(|timed| timed.cycles.quantile(0.5)) {
        foot += &format!("  p50 {}", counted(cycles.into(), "cycle", "cycles"));
    }
    lines.push(foot);
    if let Some(share) = mispredicted.filter(|share| *share > 0.0) {
        lines.push(format!("{} mispredicted", percent(share)));
    }
    Lines { class: columns.heat(block.count).name, lines }
}

/// An instruction, with a target inside the function as its distance from the function's start.
fn instruction(annotated: &Annotated, insn: &Instruction) -> String {
    let target = insn.branch.as_ref().and_then(|branch| branch.target.as_ref());
    match (target.filter(|target| target.inside.is_some()), &insn.text) {
        (Some(target), Some(text)) => {
            let offset = target.address.wrapping_sub(annotated.function.address);
            format!("{:<6} +{offset:#x}", text.mnemonic)
        }
        _ => words(insn),
    }
}

/// The label of an edge: its count, and the mean trips of the loop that it closes.
fn label(annotated: &Annotated, edge: &Edge) -> String {
    let mut label = edge.count.map(grouped).unwrap_or_default();
    if let Some(trips) = edge.trips {
        let about = if annotated.exact { "" } else { "~" };
        label += &format!(" (loop: {about}{trips:.1} trips)");
    }
    label
}

/// The class of a kind of edges, its name, and its style for Graphviz.
fn kind(edge: &Edge) -> [&'static str; 3] {
    match edge.kind {
        EdgeKind::Taken => ["edge", "taken", "solid"],
        EdgeKind::FallThrough => ["edge falls", "fall-through", "dashed"],
        EdgeKind::Call => ["edge call", "call", "dotted"],
        EdgeKind::Return => ["edge", "return", "solid"],
        EdgeKind::AfterCall => ["edge after", "after call", "dotted"],
    }
}

/// From blue, never mispredicted, to red, at least every second time; `None` if unknown.
fn colour(edge: &Edge) -> Option<String> {
    let share = (edge.mispredicted? * 2.0).min(1.0);
    let mix = |blue: f64, red: f64| (blue + (red - blue) * share) as u8;
    let (red, green, blue) = (mix(9.0, 209.0), mix(105.0, 36.0), mix(218.0, 47.0));
    let colour = format!("#{red:02x}{green:02x}{blue:02x}");
    Some(format!("stroke: {colour}; fill: {colour}"))
}

/// Explains lines and colours, and counts the blocks that are not drawn.
fn legend(annotated: &Annotated, graph: &Graph) -> String {
    let mut legend =
        "solid: taken, dashed: fall-through, dotted: call; wider: more often; ".to_owned();
    legend += match graph.edges.iter().any(|edge| edge.mispredicted.is_some()) {
        true => "blue to red: never to often mispredicted",
        false => "predictions not recorded",
    };
    if graph.cold > 0 {
        let what = if annotated.exact { "not executed" } else { "not seen to execute" };
        legend += &format!("; {} {what}", counted(graph.cold as u64, "block", "blocks"));
    }
    legend
}

/// The picture for a page; `None` for a single block, or more nodes than a page has space for.
pub(super) fn figure(annotated: &Annotated) -> Option<Markup> {
    let graph = annotated.graph();
    (2..=ON_PAGE).contains(&graph.nodes.len()).then(|| {
        html! {
            div {
                p.remark { (legend(annotated, &graph)) }
                div.cfg-figure { (picture(annotated, &graph, &[], None)) }
            }
        }
    })
}

/// An SVG document with the given lines above the graph.
pub(crate) fn svg(annotated: &Annotated, head: &[String]) -> String {
    picture(annotated, &annotated.graph(), head, Some(NAMESPACE)).into_string()
}

fn picture(
    annotated: &Annotated,
    graph: &Graph,
    head: &[String],
    namespace: Option<&str>,
) -> Markup {
    let boxes = all_lines(annotated, graph);
    let sizes: Vec<(f64, f64)> = boxes
        .iter()
        .map(|text| {
            let longest = text.lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
            (longest as f64 * CHAR + 16.0, text.lines.len() as f64 * LINE + 10.0)
        })
        .collect();
    let most = graph.edges.iter().filter_map(|edge| edge.count).max().unwrap_or(0) as f64;
    let links: Vec<Link> = graph
        .edges
        .iter()
        .map(|edge| Link {
            from: edge.from,
            to: edge.to,
            back: edge.back,
            // The code after a call stays below it; the called code moves aside.
            weight: match edge.kind {
                EdgeKind::Call => 0.1,
                _ => 1.0 + edge.count.unwrap_or(0) as f64 / most.max(1.0),
            },
        })
        .collect();
    let drawn = layered::layout(&sizes, &links);
    let mut notes: Vec<&str> = head.iter().map(String::as_str).collect();
    let legend = legend(annotated, graph);
    // A page wraps the legend; a separate picture has to be as wide as it.
    notes.extend(namespace.map(|_| legend.as_str()));
    let widest = notes.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let width = drawn.width.max(widest as f64 * CHAR + 24.0);
    let top = notes.len() as f64 * LINE + 12.0;
    let stroke = |edge: &Edge| match edge.count {
        Some(count) if count > 0 && most > 1.0 => {
            1.0 + (WIDEST - 1.0) * (count as f64).ln() / most.ln()
        }
        _ => 1.0,
    };
    let labels: Vec<String> = graph.edges.iter().map(|edge| label(annotated, edge)).collect();
    html! {
        svg.cfg xmlns=[namespace] role="img" width=(format!("{width:.0}")) height=(format!("{:.0}", drawn.height + top))
            viewBox=(format!("0 0 {width:.0} {:.0}", drawn.height + top)) {
            title { "control flow of " (escaped(&annotated.function.name)) }
            // A page has the style once, for all its pictures.
            @if namespace.is_some() { style { (PreEscaped(STYLE)) } }
            @for (at, note) in notes.iter().enumerate() {
                text.faint x="12" y=(format!("{:.0}", (at + 1) as f64 * LINE)) { (escaped(note)) }
            }
            g transform=(format!("translate(0 {top:.0})")) {
                @for ((edge, label), route) in graph.edges.iter().zip(&labels).zip(&drawn.routes) {
                    g class=(kind(edge)[0]) data-from=(edge.from) data-to=(edge.to) data-count=[edge.count] style=[colour(edge)] {
                        title { (name(&boxes, edge.from)) " → " (name(&boxes, edge.to)) ": " (label) }
                        path.line d=(layered::path(route)) stroke-width=(format!("{:.1}", stroke(edge))) {}
                        @if let Some(end) = route.last() {
                            path d=(format!("M{:.1} {:.1}l-5 -{HEAD}h10z", end.x, end.to + HEAD)) stroke="none" {}
                        }
                    }
                }
                @for (((text, at), size), node) in boxes.iter().zip(&drawn.boxes).zip(&sizes).zip(&graph.nodes) {
                    g class=(text.class) data-at=[place(annotated, node).filter(|_| namespace.is_none())] {
                        rect x=(format!("{:.1}", at.0)) y=(format!("{:.1}", at.1)) width=(format!("{:.1}", size.0)) height=(format!("{:.1}", size.1)) rx="4" {}
                        @for (line, words) in text.lines.iter().enumerate() {
                            text class=[(line == 0).then_some("name")] x=(format!("{:.1}", at.0 + 8.0)) y=(format!("{:.1}", at.1 + 1.0 + (line + 1) as f64 * LINE)) { (words) }
                        }
                    }
                }
                @for (text, (x, y)) in placed(&labels, graph, &sizes, &drawn) {
                    text.faint.label x=(format!("{x:.1}")) y=(format!("{y:.1}")) { (text) }
                }
            }
        }
    }
}

/// The page anchor of a box's first instruction.
fn place(annotated: &Annotated, node: &Node) -> Option<String> {
    let Node::Block(block) = node else { return None };
    let first = annotated.instructions.get(block.first)?;
    Some(anchor(annotated.function.file, first.address))
}

/// Positions of the labels: next to their edges, clear of boxes and other labels. A label without
/// space is omitted; the edge's tooltip has it.
fn placed<'a>(
    labels: &'a [String],
    graph: &Graph,
    sizes: &[(f64, f64)],
    drawn: &Layout,
) -> Vec<(&'a str, (f64, f64))> {
    let corners =
        |(x, y): &(f64, f64), (width, height): &(f64, f64)| (*x, *y, x + width, y + height);
    let mut taken: Vec<(f64, f64, f64, f64)> =
        drawn.boxes.iter().zip(sizes).map(|(at, size)| corners(at, size)).collect();
    let mut order: Vec<usize> = (0..graph.edges.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(graph.edges[*at].count));
    let mut shown = Vec::new();
    for at in order {
        let text = labels[at].as_str();
        let size = (text.chars().count() as f64 * CHAR, LINE - 3.0);
        let places = layered::points(&drawn.routes[at]).map(|(x, y)| (x + 7.0, y - size.1 / 2.0));
        let is_free = |place: &(f64, f64)| {
            let (left, top, right, bottom) = corners(place, &size);
            let apart = |other: &(f64, f64, f64, f64)| {
                right < other.0 || other.2 < left || bottom < other.1 || other.3 < top
            };
            right < drawn.width && taken.iter().all(apart)
        };
        if let Some(place) = places.into_iter().find(is_free).filter(|_| !text.is_empty()) {
            taken.push(corners(&place, &size));
            shown.push((text, (place.0, place.1 + size.1 - 3.0)));
        }
    }
    shown
}

/// An edge of the graph as a row.
pub(crate) struct EdgeRow {
    edge: Edge,
    from: String,
    to: String,
    /// The code that it leads to, if that is in the function.
    pub(crate) target: Option<Location>,
}

/// The edges of a function, in the order of its code.
pub(crate) fn edges(annotated: &Annotated) -> Vec<EdgeRow> {
    let graph = annotated.graph();
    let boxes = all_lines(annotated, &graph);
    let row = |edge: &Edge| {
        let name = |node| name(&boxes, node).to_owned();
        let target = match graph.nodes.get(edge.to) {
            Some(Node::Block(block)) => annotated.instructions.get(block.first),
            _ => None,
        };
        let target = target.map(|insn| annotated.function.location(insn.address));
        EdgeRow { from: name(edge.from), to: name(edge.to), target, edge: edge.clone() }
    };
    graph.edges.iter().map(row).collect()
}

/// The columns of edges.
pub(crate) fn table<'a>() -> Table<'a, (), (usize, &'a EdgeRow)> {
    Table::<(), (usize, &EdgeRow)>::new()
        .constant("view", "graph")
        .number("count", "count", |(), (_, row)| Cell::count(row.edge.count))
        .heat()
        .number("mispredict_rate", "mispredict", |(), (_, row)| Cell::share(row.edge.mispredicted))
        .number("trips", "trips", |(), (_, row)| Cell::decimal(row.edge.trips, 1))
        .word("kind", "kind", |(), (_, row)| Cell::Word(kind(&row.edge)[1].into()))
        .name("from", "from block", |(), (_, row)| Cell::Name(row.from.clone()))
        .name("to", "to", |(), (_, row)| Cell::Name(row.to.clone()))
        .behind(" -> ")
        .spares(&["trips", "mispredict"])
}

fn name(boxes: &[Lines], node: usize) -> &str {
    boxes.get(node).and_then(|text| text.lines.first()).map_or("", String::as_str)
}

/// The graph in Graphviz's language.
pub(crate) fn dot(annotated: &Annotated, head: &[String]) -> String {
    let graph = annotated.graph();
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut dot = format!("digraph \"{}\" {{\n", quoted(&escaped(&annotated.function.name)));
    let legend = legend(annotated, &graph);
    let notes = head.iter().chain([&legend]).map(|line| quoted(&escaped(line)) + "\\l");
    // Writing to a String cannot fail.
    let _ = writeln!(dot, "  label=\"{}\"; labelloc=t; labeljust=l;", notes.collect::<String>());
    dot += "  node [shape=box, fontname=monospace, fontsize=11];\n";
    dot += "  edge [fontname=monospace, fontsize=10];\n";
    for (at, text) in all_lines(annotated, &graph).iter().enumerate() {
        let label: String = text.lines.iter().map(|line| quoted(line) + "\\l").collect();
        let style = match text.class {
            "hot" => ", style=filled, fillcolor=\"#ffd8b5\"",
            "warm" => ", style=filled, fillcolor=\"#fff3d6\"",
            "outside" | "folded" => ", style=dashed",
            _ => "",
        };
        let _ = writeln!(dot, "  n{at} [label=\"{label}\"{style}];");
    }
    for edge in &graph.edges {
        let [.., style] = kind(edge);
        let label = quoted(&label(annotated, edge));
        let _ =
            writeln!(dot, "  n{} -> n{} [label=\"{label}\", style={style}];", edge.from, edge.to);
    }
    dot + "}\n"
}
