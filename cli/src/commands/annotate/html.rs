//! Annotated code for a browser.

use std::ops::Range;

use maud::{Markup, html};
use profile::Flow;
use profile::annotate::{self, Annotated, Hot, Instruction, Syntax};

use super::arrows::Arrows;
use super::cells::{Columns, HEADINGS, remark, words};
use super::graph;
use crate::present::escape::escaped;
use crate::present::number::{counted, grouped, percent};
use crate::present::page;
use crate::present::place::anchor;
use crate::present::shorten::shortened;

/// Functions on a page at most.
const FUNCTIONS: usize = 10;
/// Cells of a name.
const NAME: usize = 160;
/// Instructions that did not run and are shown all the same.
const FEW: usize = 4;
/// Instructions on a page at most: 4,000 are a megabyte.
const INSTRUCTIONS: usize = 4000;

const STYLE: &str = "
.annotated { border-collapse: collapse; font: 13px/1.35 ui-monospace, 'DejaVu Sans Mono', monospace; }
.annotated th { position: sticky; top: 0; background: Canvas; text-align: right; font-weight: 600; padding: 2px 8px; }
.annotated th:last-child { text-align: left; }
.annotated td { padding: 0 8px; text-align: right; white-space: pre; }
.annotated td.arrows { padding: 0; text-align: left; line-height: 1; color: GrayText; }
.annotated td.code { text-align: left; }
.annotated td.label { text-align: left; font-weight: 600; }
.annotated .remark { color: GrayText; }
.annotated tr.hot { background: color-mix(in srgb, #d33 32%, transparent); }
.annotated tr.warm { background: color-mix(in srgb, #d90 20%, transparent); }
.annotated tr.cold { color: GrayText; }
.scroll { overflow-x: auto; }
summary { cursor: pointer; font-weight: 600; margin: 0.6em 0 0; }
summary .remark { color: GrayText; font-weight: 400; }
";

/// One function, as a title and a table. Instructions that did not run are folded into one row.
pub(crate) fn markup(annotated: &Annotated) -> Markup {
    let (arrows, columns) = (Arrows::of(annotated), Columns::of(annotated));
    html! {
        p { (super::title(annotated)) }
        @if let Some(figure) = graph::figure(annotated) {
            details { summary { "control-flow graph" } (figure) }
        }
        div.scroll tabindex="0" role="region" aria-label=(escaped(&annotated.function.name)) {
            table.annotated {
                thead {
                    tr {
                        @for heading in HEADINGS { th scope="col" { (heading) } }
                        th aria-hidden="true" {}
                        th scope="col" { "address" }
                        th scope="col" { "instruction" }
                    }
                }
                tbody {
                    @for (rows, cold) in runs(annotated) {
                      @if cold {
                        tr.cold {
                            td colspan="6" {}
                            td.arrows aria-hidden="true" { (arrows.above(rows.end)) }
                            td.label colspan="2" {
                                (grouped(rows.len() as u64))
                                @if annotated.exact { " that did not run" } @else { " that were not seen to run" }
                            }
                        }
                      } @else {
                      @for (at, insn) in annotated.instructions.iter().enumerate().take(rows.end).skip(rows.start) {
                        @if let Some(label) = &insn.label {
                            tr {
                                td colspan="6" {}
                                td.arrows aria-hidden="true" { (arrows.above(at)) }
                                td.label colspan="2" { (label) ":" }
                            }
                        }
                        tr class=(columns.heat(insn).name()) data-at=(anchor(annotated.function.file, insn.address)) {
                            @for cell in columns.cells(at, insn).all() { td { (cell) } }
                            td.arrows aria-hidden="true" { (arrows.row(at)) }
                            td { (format!("{:x}", insn.address)) }
                            td.code title=[insn.source.as_ref().map(|line| escaped(&line.to_string()).into_owned())] {
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

/// The hottest functions, each under its name, up to [`INSTRUCTIONS`] together; `None` if no
/// function has both a name and code. Addresses are load addresses if the page has others
/// (`loaded`).
pub(crate) fn hottest(flow: &mut Flow, syntax: Syntax, loaded: bool) -> Option<Markup> {
    let hot = annotate::hottest(flow);
    let all = hot.iter().fold(0, |sum: u64, hot| sum.saturating_add(hot.heat));
    let (mut left, mut shown) = (INSTRUCTIONS, Vec::new());
    for Hot { function, heat } in hot.iter().take(FUNCTIONS) {
        let Ok(annotated) = annotate::annotate(flow, function, syntax) else { continue };
        let rows: usize = runs(&annotated).iter().filter(|run| !run.1).map(|run| run.0.len()).sum();
        if rows <= left {
            left -= rows;
            let share = *heat as f64 / all as f64;
            shown.push((
                share,
                if loaded { annotated } else { annotated.at_file_addresses(syntax) },
            ));
        }
    }
    (!shown.is_empty()).then(|| {
        html! {
            p {
                (counted(shown.len() as u64, "function", "functions")) " of "
                (grouped(hot.len() as u64)) ", by instructions executed"
            }
            @for (at, (share, annotated)) in shown.iter().enumerate() {
                details open[at == 0] {
                    summary { (shortened(&escaped(&annotated.function.name), NAME)) " " span.remark { (percent(*share)) } }
                    (markup(annotated))
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
