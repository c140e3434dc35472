//! Annotated code for a browser.

use std::ops::Range;

use maud::{Markup, html};
use profile::Flow;
use profile::annotate::{self, Annotated, Hot, Instruction, Stretch, Syntax};

use super::arrows::Arrows;
use super::cells::{Columns, remark, words};
use super::graph;
use crate::input::source_text::Sources;
use crate::present::{anchor, counted, escaped, grouped, page, percent, shortened};

/// Maximum number of functions on a page.
const FUNCTIONS: usize = 10;
/// Maximum width of a name, in characters.
pub(crate) const NAME: usize = 160;
/// Runs of unexecuted instructions up to this length are not folded.
const FEW: usize = 4;
/// Maximum size of all functions on a page in bytes: about 4,000 instructions.
const BYTES: usize = 1_500_000;

const STYLE: &str = "
.annotated { border-collapse: collapse; font: 12px/1.35 ui-monospace, 'DejaVu Sans Mono', monospace; }
.annotated th { position: sticky; top: 0; background: Canvas; text-align: right; font-weight: 600; padding: 2px 5px; }
.annotated th:last-child { text-align: left; }
.annotated tbody tr { background: none; }
.annotated td { padding: 0 5px; text-align: right; white-space: pre; }
.annotated td.arrows { padding: 0; text-align: left; line-height: 1; color: GrayText; }
.annotated td.code { text-align: left; }
.annotated td.label { text-align: left; font-weight: 600; }
.annotated tr.source td.label { font-weight: 400; max-width: 0; overflow: hidden; text-overflow: ellipsis; }
.annotated td.code { min-width: 36ch; }
.annotated .remark, .annotated tr.source { color: GrayText; }
.annotated tr.hot { background: color-mix(in srgb, #d33 32%, transparent); }
.annotated tr.warm { background: color-mix(in srgb, #d90 20%, transparent); }
.annotated tr.cold { color: GrayText; }
.scroll { overflow-x: auto; }
summary { cursor: pointer; font-weight: 600; margin: 0.6em 0 0; }
p.remark { color: GrayText; font-size: .82rem; }
summary .remark { color: GrayText; font-weight: 400; }
";

/// One function: where it is, its graph, and its code with source lines. Instructions that did not
/// run are folded into one row.
pub(crate) fn markup(annotated: &Annotated, sources: &mut Sources) -> Markup {
    let (arrows, columns) = (Arrows::of(annotated), Columns::of(annotated));
    let file = annotated.function.file;
    let block = |at: usize| {
        let block = columns.block(at).filter(|block| block.cycles.n() > 0)?;
        Some(format!("{} {}", anchor(file, block.entry), anchor(file, block.exit)))
    };
    let between = |at: usize, class: &str, text: &str| {
        // A source line is as wide as the instructions allow.
        let title = (class == "source").then_some(text);
        html! {
            tr class=(class) {
                td colspan="6" {}
                td.arrows aria-hidden="true" { (arrows.above(at)) }
                td.label colspan="2" title=[title] { (text) }
            }
        }
    };
    let mut line = None;
    html! {
        p { (super::about(annotated)) }
        div.sides {
            @if let Some(figure) = graph::figure(annotated) { (figure) }
            div.scroll tabindex="0" role="region" aria-label=(escaped(&annotated.function.name)) {
                table.annotated {
                    thead {
                        tr {
                            @for heading in columns.headings() { th scope="col" { (heading) } }
                            th aria-hidden="true" {}
                            th scope="col" { "address" }
                            th scope="col" { "instruction" }
                        }
                    }
                    tbody {
                        @for (rows, cold) in runs(annotated) {
                            @if cold {
                                @let ran = if annotated.exact { "did not run" } else { "were not seen to run" };
                                (between(rows.end, "cold", &format!("{} that {ran}", grouped(rows.len() as u64))))
                            } @else {
                                @for (at, insn) in annotated.instructions.iter().enumerate().take(rows.end).skip(rows.start) {
                                    @if let Some(label) = &insn.label { (between(at, "", &format!("{label}:"))) }
                                    @if insn.source.is_some() && insn.source.as_ref() != line {
                                        @if let Some(source) = { line = insn.source.as_ref(); line } {
                                            (between(at, "source", &escaped(&sources.line(source))))
                                        }
                                    }
                                    tr class=(columns.heat(insn.count).name) data-at=(anchor(file, insn.address)) data-block=[block(at)] {
                                        @for cell in columns.cells(at, insn).iter().take(columns.headings().len()) { td { (cell) } }
                                        td.arrows aria-hidden="true" { (arrows.row(at)) }
                                        td { (format!("{:x}", insn.address)) }
                                        td.code {
                                            (words(insn))
                                            @if let Some(remark) = remark(annotated, at, insn, Some(&arrows)) {
                                                span.remark { "  " (remark) }
                                            }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Splits rows into runs that did and did not execute. A long run that did not execute is folded
/// into one row, unless nothing executed.
fn runs(annotated: &Annotated) -> Vec<(Range<usize>, bool)> {
    let ran = |insn: &Instruction| insn.count.is_some_and(|count| count > 0);
    let (mut runs, mut at): (Vec<(Range<usize>, bool)>, usize) = (Vec::new(), 0);
    for run in annotated.instructions.chunk_by(|a, b| ran(a) == ran(b)) {
        let rows = at..at + run.len();
        let cold = run.len() > FEW && !run.iter().any(ran) && annotated.executed() > 0;
        at = rows.end;
        match runs.last_mut() {
            Some((last, false)) if !cold => last.end = rows.end,
            _ => runs.push((rows, cold)),
        }
    }
    runs
}

/// A function of a page, with its share of the executed instructions.
pub(crate) struct Shown {
    pub(crate) function: Stretch,
    pub(crate) share: f64,
    pub(crate) markup: Markup,
}

/// The hottest functions, as far as a page has space for them, and the number of all. Addresses
/// are load addresses if the page has others (`loaded`).
pub(crate) fn hottest(
    flow: &mut Flow,
    syntax: Syntax,
    loaded: bool,
    most: usize,
) -> (Vec<Shown>, usize) {
    let hot = annotate::hottest(flow);
    let all = hot.iter().fold(0, |sum: u64, hot| sum.saturating_add(hot.heat));
    let (mut left, mut shown, mut sources) = (BYTES, Vec::new(), Sources::default());
    for Hot { function, heat } in hot.iter().take(most) {
        let Ok(annotated) = annotate::annotate(flow, function, syntax) else { continue };
        let annotated = if loaded { annotated } else { annotated.at_file_addresses(syntax) };
        let markup = markup(&annotated, &mut sources);
        if markup.0.len() <= left {
            left -= markup.0.len();
            let share = *heat as f64 / all as f64;
            shown.push(Shown { function: function.clone(), share, markup });
        }
    }
    (shown, hot.len())
}

/// The hottest functions, each under its name; `None` if no function has both a name and code.
pub(crate) fn folded(flow: &mut Flow, syntax: Syntax) -> Option<Markup> {
    let (shown, all) = hottest(flow, syntax, false, FUNCTIONS);
    (!shown.is_empty()).then(|| {
        html! {
            p {
                (counted(shown.len() as u64, "function", "functions")) " of "
                (grouped(all as u64)) ", by instructions executed"
            }
            @for (at, Shown { function, share, markup }) in shown.iter().enumerate() {
                details open[at == 0] {
                    summary { (shortened(&escaped(&function.name), NAME)) " " span.remark { (percent(*share)) } }
                    (markup)
                }
            }
        }
    })
}

/// The styles of annotated code and its graphs, once for each page.
pub(crate) fn style() -> String {
    [STYLE, graph::STYLE].concat()
}

/// A page of one function, or of several.
pub(crate) fn page(title: &str, head: &[String], content: &Markup) -> String {
    let content = html! {
        h1 { (title) }
        @for line in head { div { (line) } }
        (content)
    };
    page::page(title, &content, &style())
}
