//! What was compared, on its way to a terminal, to programs and to a browser.

use std::io::Write;

use maud::html;
use profile::compare::{Looked, Row};
use profile::quality::Quality;
use serde_json::{Value, json};

use super::table::table;
use super::{Compared, Diff, Names, Side};
use crate::exit::Failure;
use crate::head::{self, Totals, quality_json};
use crate::input::Source;
use crate::present::number::{counted, grouped};
use crate::present::out::Out;
use crate::present::table::Printer;
use crate::present::{json, page};

/// Rows of a table where nobody says how many.
const ROWS: usize = 25;
/// The same on a page.
const PAGE_ROWS: usize = 250;

fn totals(side: &Side) -> (&Quality, Totals) {
    let Looked { taken, distinct, known, missed, quality, .. } = &side.looked;
    let predictions = Some((*known, (*known > 0).then_some(*missed)));
    (quality, Totals { branches: *taken, distinct: *distinct, predictions })
}

/// Prints what was compared.
pub(super) fn print(args: &Diff, compared: &Compared, names: &mut Names) -> Result<(), Failure> {
    let mut out = Out::stdout();
    let printer = Printer::of(args.json, args.csv);
    let for_people = printer == Printer::Text;
    if for_people {
        for (side, what) in compared.sides.iter().zip(["baseline:", "compared with it:"]) {
            out.line(what)?;
            let (quality, totals) = totals(side);
            head::print(&mut out, &side.sources, quality, &totals)?;
        }
        for line in compared.sentences(args.fail_above) {
            out.line(line)?;
        }
    }
    let limit = args.rows(if for_people { ROWS } else { usize::MAX });
    let mut tables = compared.tables(for_people);
    if printer == Printer::Csv {
        // Rows of one kind have one line of keys.
        tables.truncate(1);
    }
    for (kind, measures, rows) in tables {
        if for_people {
            out.gap()?;
        }
        let shown = rows.iter().take(limit).copied().enumerate();
        table(kind, &measures).write(printer, &mut out, names, shown)?;
        if for_people && rows.len() > limit {
            let more = counted((rows.len() - limit) as u64, "row", "rows");
            out.line(format_args!("{more} more (--limit 0 shows all)"))?;
        }
    }
    if printer == Printer::Json {
        json::value(&mut out, &summary(args, compared))?;
    }
    out.flush()?;
    Ok(())
}

/// What was compared, for programs.
fn summary(args: &Diff, compared: &Compared) -> Value {
    let sides = compared.sides.iter().map(|side| {
        let (quality, totals) = totals(side);
        quality_json(&side.sources, quality, &totals)
    });
    let sides: Vec<Value> = sides.collect();
    json!({
        "view": "diff",
        "kind": "total",
        "baseline": sides.first(),
        "compared": sides.last(),
        "level": compared.level,
        "correction": "holm",
        "unit": "stack",
        "tests": compared.comparison.tests,
        "matched": compared.places(Row::is_matched),
        "gone": compared.places(|row| row.after.is_none()),
        "new": compared.places(|row| row.before.is_none()),
        "significant": compared.count(Row::is_significant),
        "fail_above": args.fail_above,
        "grew": args.fail_above.map(|above| compared.grew(Some(above))),
    })
}

/// The same as a page.
pub(super) fn html_page(args: &Diff, compared: &Compared, names: &mut Names) -> String {
    let limit = args.rows(PAGE_ROWS);
    let mut tables = Vec::new();
    for (kind, measures, rows) in compared.tables(true) {
        let title = match (kind, rows.first().is_some_and(|row| row.is_matched())) {
            ("loop", _) => "Loops",
            (_, true) => "Branches",
            _ => "Gone and new",
        };
        let shown = rows.iter().take(limit).copied().enumerate();
        tables.push((title, table(kind, &measures).html(title, names, shown), rows.len()));
    }
    let [a, b] = compared.sides.each_ref().map(|side| {
        let origins: Vec<String> = side.sources.iter().map(Source::origin).collect();
        let (quality, totals) = totals(side);
        let branches = counted(totals.branches, "branch", "branches");
        let samples = counted(quality.samples, "sample", "samples");
        format!("{}; {samples}, {branches}", origins.join("; "))
    });
    let content = html! {
        h1 { "What changed" }
        p { "Baseline: " (a) br; "Compared with it: " (b) }
        @for line in compared.sentences(args.fail_above) { p { (line) } }
        div class="tools" hidden {
            label for="search" { "Search" }
            input id="search" type="search" placeholder="symbol, verdict" autocomplete="off" spellcheck="false";
            output for="search" aria-live="polite" {}
        }
        @for (title, table, rows) in &tables {
            section aria-label=(title) {
                h2 { (title) }
                (table)
                @if *rows > limit {
                    p class="faint" { "The first " (limit) " of " (grouped(*rows as u64)) " rows (lbr diff --limit 0 --html has all)." }
                }
            }
        }
        p class="faint" { "Made by lbr " (env!("CARGO_PKG_VERSION")) ". A - is not a zero: the recording does not say." }
    };
    page::page("What changed", &content, "")
}
