//! `lbr report --html`: one self-contained page. Its sections come from the views.

mod head;

use lbr_msr::text::AsText;
use std::path::Path;

use maud::html;
use profile::annotate::Syntax;
use profile::overview::{Overview, OverviewCounter};

use super::annotate;
use super::report::{Page, Report, VIEWS, group};
use crate::exit::{DONE, Failure, Outcome};
use crate::head::finish;
use crate::input;
use crate::output::Output;
use crate::present::out::say;
use crate::present::page;

/// Default rows of a table: the page stays small enough to send.
const ROWS: usize = 250;

/// Reads the recordings and writes the page.
pub(crate) fn run(args: &Report, path: &Path) -> Outcome {
    let output = Output::new(path, args.inputs.paths().iter().chain(args.symbols.files()))?;
    let mut counter = OverviewCounter::new(args.inputs.paths().len() > 1);
    args.symbols.apply(counter.maps());
    let mut recorded = Vec::new();
    let sources = input::read_all(args.inputs.paths(), &args.select.reading(), |recording, at| {
        counter.recording(recording, at)?;
        recorded.push(recording.info().cloned());
        Ok(())
    })?;
    let mut overview = counter.finish();
    let Overview { branches, flow: all, .. } = &mut overview;
    let kept = args.shown().keep(&mut all.maps, branches, (all.taken, "branches"), |branch| {
        (branch.from_location, branch.count)
    })?;
    args.shown().keep_flow(&mut overview.flow, false)?;
    args.shown().keep_flow(&mut overview.flow, true)?;
    let head = head::Head { kept, sources: &sources, recorded: &recorded };
    let page = page(&head, &mut overview, args)?;
    output.write(&page)?;
    finish(&sources, &overview.flow.maps);
    if path != Path::new("-") {
        say!("report to {}", path.as_text());
    }
    Ok(DONE)
}

fn page(head: &head::Head<'_>, overview: &mut Overview, args: &Report) -> Result<String, Failure> {
    let limit = match args.limit {
        Some(0) => usize::MAX,
        limit => limit.unwrap_or(ROWS),
    };
    let mut sections = Vec::new();
    for view in VIEWS {
        let Some(section) = view.section else { continue };
        let modelled = head.says_modelled();
        let mut of = Page { args, overview: &mut *overview, limit, modelled };
        let markup = match args.group.filter(|_| group::can_sum(view)) {
            Some(by) => group::markup(&mut of, view, by),
            None => (section.markup)(&mut of)?,
        };
        sections.push((view.name, section.title, markup));
    }
    let code = annotate::html::hottest(&mut overview.flow, Syntax::Intel, true);
    sections.extend(code.map(|code| ("code", "Annotated functions", code)));
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
    Ok(page::page(&head.name(), &content, &annotate::html::style()))
}
