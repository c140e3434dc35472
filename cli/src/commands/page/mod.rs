//! `lbr report --html`: one self-contained page. It opens with a picture of the functions; the code
//! of the selected function, cycles and the views' tables follow.

mod head;
mod picture;

use lbr_msr::text::AsText;
use std::collections::HashMap;
use std::path::Path;

use maud::{Markup, PreEscaped, html};
use profile::annotate::Syntax;
use profile::callgraph;
use profile::maps::Location;
use profile::overview::{Overview, OverviewCounter};

use self::head::Head;
use super::annotate::html::{NAME, Shown, hottest, style};
use super::report::{Page, Report, VIEWS, block_charts, group};
use crate::exit::{DONE, Result};
use crate::head::finish;
use crate::input::{Count, Recordings, Source};
use crate::output::Output;
use crate::present::{counted, escaped, grouped, page, percent, say, shortened};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Default rows of a table: the page stays small enough to send.
const ROWS: usize = 250;
/// Functions whose code is on the page, at most.
const FUNCTIONS: usize = 40;
/// Bytes of a page at most, unless its user says how many rows.
const BYTES: usize = 5_000_000;

/// Reads the recordings and writes the page.
pub(crate) fn run(args: &Report, path: &Path) -> Result {
    let output = Output::new(path, args.inputs.paths().iter().chain(args.symbols.files()))?;
    let recordings = Recordings::reread(args.inputs.paths(), args.reading())?;
    let mut counter = OverviewCounter::new(args.inputs.paths().len() > 1);
    args.symbols.apply(counter.maps());
    let mut recorded = Vec::new();
    let sources = recordings.read(&mut |recording, at| {
        counter.recording(recording, at)?;
        recorded.push(recording.info().cloned());
        Ok(())
    })?;
    let mut overview = counter.finish();
    let (mut graph, _) = recordings.count(callgraph::counter(false))?;
    let Overview { branches, flow: all, .. } = &mut overview;
    let kept = args.shown().keep(&mut all.maps, branches, (all.taken, "branches"), |branch| {
        (branch.from_location, branch.count)
    })?;
    args.shown().keep_flow(&mut overview.flow, false)?;
    args.shown().keep_flow(&mut overview.flow, true)?;
    let head = Head { kept, sources: &sources, recorded: &recorded };
    let limit = args.limit.unwrap_or(ROWS);
    let mut of = Page {
        args,
        recordings: &recordings,
        sources: &sources,
        overview: &mut overview,
        graph: &mut graph,
        limit,
    };
    let mut text = page(&head, &mut of)?;
    // Long names.
    while args.limit.is_none() && text.len() > BYTES && of.limit > 1 {
        of.limit /= 2;
        text = page(&head, &mut of)?;
    }
    output.write(&text)?;
    finish(&sources, &overview.flow.maps);
    if path != Path::new("-") {
        say!("report to {}", path.as_text());
    }
    Ok(DONE)
}

fn page(head: &Head<'_>, of: &mut Page<'_>) -> Result<String> {
    let picture = picture::of(of.args, of.graph, of.overview)?;
    let (functions, all) = hottest(&mut of.overview.flow, Syntax::Intel, true, FUNCTIONS);
    let places = places(&functions);
    let modelled =
        of.overview.flow.quality.software > 0 || of.sources.iter().any(Source::says_modelled);
    let charts = block_charts(&mut of.overview.flow, modelled);
    let mut sections = Vec::new();
    for view in VIEWS {
        let Some(section) = view.section else { continue };
        let markup = match of.args.group.filter(|_| group::can_sum(view)) {
            Some(by) => group::markup(of, view, by),
            None => (section.markup)(of)?,
        };
        sections.push((view.name, section.title, markup));
    }
    let overview = &*of.overview;
    let content = html! {
        h1 { (head.name()) }
        (head.verdict(&overview.judged))
        (head.facts(overview))
        (picture.sentence(&overview.flow, &places))
        div class="tools" hidden {
            label for="search" { "Search" }
            input id="search" type="search" placeholder="symbol, address, type" autocomplete="off" spellcheck="false";
            output for="search" aria-live="polite" {}
            span class="faint" { "/ search, arrows walk the picture, Enter opens, Escape clears" }
        }
        div class="walk" {
            section class="picture" aria-labelledby="picture-title" {
                h2 id="picture-title" { (picture.title()) }
                (picture.markup(&places))
            }
            section class="functions" aria-label="Selected function" { (code(&functions, all)) }
            section id="cycles" aria-labelledby="cycles-title" { h2 id="cycles-title" { "Cycles of a block" } (charts) }
        }
        nav aria-label="Tables" {
            ul { @for (id, title, _) in &sections { li { a href={ "#" (id) } { (title) } } } }
        }
        @for (id, title, section) in &sections {
            section id=(id) class="table" aria-labelledby={ (id) "-title" } { h2 id={ (id) "-title" } { (title) } (section) }
        }
        p class="faint" { "Made by lbr " (env!("CARGO_PKG_VERSION")) ". A - is not a zero: the recording does not say." }
        script { (PreEscaped(SCRIPT)) }
    };
    Ok(page::page(&head.name(), &content, &(style() + STYLE)))
}

/// Where the functions with code start, and their indices.
fn places(functions: &[Shown]) -> HashMap<Location, usize> {
    let starts = functions.iter().enumerate().map(|(at, Shown { function, .. })| {
        (Location::File { file: function.file, offset: function.offset }, at)
    });
    starts.collect()
}

/// Graphs and code, of which a browser shows one function.
fn code(functions: &[Shown], all: usize) -> Markup {
    html! {
        @for (at, Shown { function, share, markup }) in functions.iter().enumerate() {
            section id={ "f" (at) } class="function" tabindex="-1" aria-labelledby={ "f" (at) "-title" } {
                h2 id={ "f" (at) "-title" } title=(escaped(&function.name)) { (shortened(&escaped(&function.name), NAME)) " " span class="faint" { (percent(*share)) " of instructions" } }
                (markup)
            }
        }
        p class="faint" {
            @if all == 0 { "No function of this recording has a name and code." }
            @else {
                "Code on this page: " (counted(functions.len() as u64, "function", "functions")) " of "
                (grouped(all as u64)) ", by instructions executed (lbr annotate FUNCTION shows any)."
            }
        }
    }
}
