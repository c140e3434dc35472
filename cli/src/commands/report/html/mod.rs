//! `lbr report --html`: one page to send to somebody.

mod blocks;
mod head;
mod structure;
mod tables;

use std::path::Path;

use maud::{Markup, html};
use profile::Flow;
use profile::annotate::Syntax;
use profile::maps::{Location, Maps};
use profile::overview::{Overview, OverviewCounter};

use super::{Report, flow};
use crate::commands::annotate;
use crate::exit::{DONE, Outcome};
use crate::input;
use crate::present::number::grouped;
use crate::present::out::say;
use crate::present::page;
use crate::symbols;

/// Rows of a table where nobody says how many: the page stays small enough to
/// be sent.
const ROWS: usize = 250;
/// Functions whose code is on the page.
const FUNCTIONS: usize = 8;
/// How many of them are unfolded.
const OPEN: usize = 2;
/// Instructions of a function, at most.
const INSTRUCTIONS: usize = 600;
/// Characters of a name that the page shows.
const NAME: usize = 160;

/// Reads the recordings and writes the page.
pub(super) fn run(args: &Report, path: &Path) -> Outcome {
    let mut counter = OverviewCounter::new(args.input.len() > 1);
    let mut recorded = Vec::new();
    let sources = input::read_all(&args.input, &args.select.selection(), |recording, at| {
        counter.recording(recording, at)?;
        recorded.push(recording.info().cloned());
        Ok(())
    })?;
    let mut overview = counter.finish();
    args.symbols.apply(&mut overview.hot.maps);
    args.symbols.apply(&mut overview.flow.maps);
    let rows = match args.limit {
        Some(0) => usize::MAX,
        limit => limit.unwrap_or(ROWS),
    };
    let distinct = overview.hot.branches.len() as u64;
    let hot = &mut overview.hot;
    let kept = args.dso.keep(&hot.maps, &mut hot.branches, (hot.total, "branches"), |branch| {
        (branch.from_location, branch.count)
    })?;
    flow::keep(&args.dso, &mut overview.flow, false)?;
    flow::keep(&args.dso, &mut overview.flow, true)?;
    let head = head::Head { distinct, kept, sources: &sources, recorded: &recorded };
    let page = page(&head, &mut overview, args, rows)?;
    page::write(path, &page)?;
    super::finish(&sources, &overview.flow.maps);
    if path != Path::new("-") {
        say!("report to {}", path.display());
    }
    Ok(DONE)
}

fn page(
    head: &head::Head<'_>,
    overview: &mut Overview,
    args: &Report,
    rows: usize,
) -> anyhow::Result<String> {
    let sections = [
        ("hot", "Hot branches", tables::hot(&mut overview.hot, rows)),
        ("mispredicts", "Mispredicts", tables::mispredicts(&mut overview.flow, args.min_n, rows)),
        ("outcomes", "Outcomes", tables::outcomes(&mut overview.flow, rows)),
        ("blocks", "Blocks", blocks::section(&mut overview.flow, head.says_modelled(), rows)?),
    ];
    let annotated = annotated(&mut overview.flow).map(|code| ("code", "Annotated functions", code));
    let structure = structure::sections(args, overview.hot.total, rows).map_err(|f| f.error)?;
    let sections: Vec<_> = sections.into_iter().chain(structure).chain(annotated).collect();
    let content = html! {
        (head.title())
        (head.verdict(&overview.judged))
        (head.facts(overview))
        nav aria-label="Sections" {
            ul { @for (id, title, _) in &sections { li { a href={ "#" (id) } { (title) } } } }
        }
        div class="tools" hidden {
            label for="search" { "Search" }
            input id="search" type="search" placeholder="symbol, address, type" autocomplete="off" spellcheck="false";
            span class="faint" { "press / to search, Escape to clear" }
            output for="search" aria-live="polite" {}
        }
        @for (id, title, section) in &sections {
            section id=(id) aria-labelledby={ (id) "-title" } { h2 id={ (id) "-title" } { (title) } (section) }
        }
        p class="faint" { "Made by lbr " (env!("CARGO_PKG_VERSION")) ". A - is not a zero: the recording does not say." }
    };
    Ok(page::page(&head.name(), &content, annotate::html::STYLE))
}

/// The hot functions with their code; `None` where no code bytes are to be had.
fn annotated(flow: &mut Flow) -> Option<Markup> {
    let hottest = profile::annotate::hottest(flow);
    let mut functions = Vec::new();
    for hot in hottest.iter().take(FUNCTIONS) {
        let Ok(code) = profile::annotate::annotate(flow, &hot.function, Syntax::Intel) else {
            continue;
        };
        // A function of thousands of instructions would be most of the page.
        if code.instructions.len() <= INSTRUCTIONS {
            functions.push((shortened(&code.function.name), annotate::html::markup(&code)));
        }
    }
    if functions.is_empty() {
        return None;
    }
    Some(html! {
        @for (rank, (name, code)) in functions.iter().enumerate() {
            details open[rank < OPEN] { summary class="code" { (name) } (code) }
        }
        @if hottest.len() > functions.len() {
            p class="faint" {
                "The hottest functions of at most " (grouped(INSTRUCTIONS as u64)) " instructions; "
                (grouped((hottest.len() - functions.len()) as u64))
                " more ran (lbr annotate shows any)."
            }
        }
    })
}

/// A place as people read it.
fn place(maps: &mut Maps, location: Location, addr: u64) -> String {
    shortened(&symbols::place(maps, location, addr))
}

/// A long name without its middle.
fn shortened(name: &str) -> String {
    symbols::shortened(name, NAME)
}

/// Says how many rows are not on the page.
fn rest(all: usize, shown: usize, what: &str) -> Markup {
    let hidden = all.saturating_sub(shown);
    html! {
        @if hidden > 0 {
            p class="faint" {
                "The first " (grouped(shown as u64)) " are shown; " (grouped(hidden as u64)) " more "
                (what) " are not on this page (lbr report --limit 0 --html has all). "
                "Sorting and searching act on what is shown."
            }
        }
    }
}

/// A cell of numbers; what is not known is a dash.
fn number(text: Option<String>) -> Markup {
    html! { td class="num" { (text.as_deref().unwrap_or("-")) } }
}
