//! A comparison for a terminal, for programs and for a browser.

use std::io::Write;

use maud::html;
use profile::compare::{By, Change, Looked, Measure, NotComparable, Row, Total, Unit};
use profile::quality::Quality;
use serde_json::{Value, json};

use super::table::{changes, signed, table};
use super::{Compared, Diff, Names, Side, events, is_loop};
use crate::commands::report::print_hidden;
use crate::exit::Result;
use crate::head::{Totals, quality_json, quality_line};
use crate::present::{Out, Printer, counted, grouped, joined, json, page};

/// Default limit of significant changes.
const CHANGES: usize = 25;
/// Default limit of the other rows, by table.
const ROWS: usize = 10;
/// Default limit on a page.
const PAGE_ROWS: usize = 250;

fn totals(side: &Side) -> (&Quality, Totals) {
    let Looked { taken, distinct, known, missed, quality, .. } = &side.looked;
    let predictions = Some((*known, (*known > 0).then_some(*missed)));
    (quality, Totals { branches: *taken, distinct: *distinct, predictions })
}

pub(super) fn print(args: &Diff, compared: &Compared, names: &mut Names) -> Result<()> {
    let mut out = Out::stdout();
    match Printer::of(args.json, args.csv) {
        Printer::Text => print_text(args, compared, names, &mut out)?,
        printer => print_rows(args, compared, names, printer, &mut out)?,
    }
    out.flush()?;
    Ok(())
}

/// The verdict, the sides, the significant changes, and the evidence.
fn print_text(
    args: &Diff,
    compared: &Compared,
    names: &mut Names,
    out: &mut Out<'_>,
) -> Result<()> {
    out.line(compared.verdict(args.fail_above))?;
    out.lines(&compared.origins())?;
    let significant = compared.significant();
    if !significant.is_empty() {
        out.gap()?;
        let limit = args.limit.unwrap_or(CHANGES);
        let shown = significant.iter().take(limit).copied().enumerate();
        changes().write(Printer::Text, out, names, shown)?;
        print_hidden(out, significant.len(), limit, ("change", "changes"))?;
    }
    let limit = args.limit.unwrap_or(ROWS);
    for (kind, title, measures, rows) in compared.others() {
        out.gap()?;
        out.line(title)?;
        let shown = rows.iter().take(limit).copied().enumerate();
        table(kind, &measures).write(Printer::Text, out, names, shown)?;
        print_hidden(out, rows.len(), limit, ("row", "rows"))?;
    }
    out.gap()?;
    out.lines(&compared.evidence())?;
    Ok(())
}

/// All rows for programs: the significant ones first.
fn print_rows(
    args: &Diff,
    compared: &Compared,
    names: &mut Names,
    printer: Printer,
    out: &mut Out<'_>,
) -> Result<()> {
    let limit = args.limit.unwrap_or(usize::MAX);
    let rows = |loops: bool| {
        let rows = compared.comparison.rows.iter().filter(move |row| is_loop(row) == loops);
        rows.enumerate().take(limit)
    };
    let branches = table("branch", &compared.measures());
    if printer == Printer::Csv {
        // CSV has a single line of keys: those of branches.
        branches.write(printer, out, names, rows(false))?;
        return Ok(());
    }
    let loops = table("loop", &[Measure::Trips]);
    for significant in [true, false] {
        let is = |(_, row): &(usize, &Row)| row.is_significant() == significant;
        branches.write(printer, out, names, rows(false).filter(is))?;
        loops.write(printer, out, names, rows(true).filter(is))?;
    }
    json::value(out, &summary(args, compared))?;
    Ok(())
}

/// The totals, for programs.
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
        "total": compared.total.as_ref().ok().map(|total| compared.total_json(args, total)),
        "total_not_compared": compared.total.as_ref().err().map(|why| reason(*why)),
        "fail_above": args.fail_above,
        "grew": args.fail_above.map(|above| compared.grew(above)),
    })
}

/// The comparison as a page.
pub(super) fn html_page(args: &Diff, compared: &Compared, names: &mut Names) -> String {
    let limit = args.limit.unwrap_or(PAGE_ROWS);
    let mut tables = Vec::new();
    let significant = compared.significant();
    if !significant.is_empty() {
        let shown = significant.iter().take(limit).copied().enumerate();
        let title = "Significant changes";
        tables.push((title, changes().html(title, names, shown), significant.len()));
    }
    for (kind, title, measures, rows) in compared.others() {
        let shown = rows.iter().take(limit).copied().enumerate();
        tables.push((title, table(kind, &measures).html(title, names, shown), rows.len()));
    }
    let content = html! {
        h1 { "What changed" }
        p { (compared.verdict(args.fail_above)) }
        p { @for line in compared.origins() { (line) br; } }
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
        @for line in compared.evidence() { p { (line) } }
        p class="faint" { "Made by lbr " (env!("CARGO_PKG_VERSION")) ". A - is not a zero: the recording does not say." }
    };
    page::page("What changed", &content, "")
}

fn reason(why: NotComparable) -> &'static str {
    match why {
        NotComparable::NoPeriod => "the period of the samples is unknown (record with -c)",
        NotComparable::Lost => "stacks were lost",
        NotComparable::Selected => "only a part of a recording is selected",
        NotComparable::Events => "the samples are of several events, or of an unknown one",
    }
}

impl Compared {
    /// The answer in a line.
    pub(crate) fn verdict(&self, fail_above: Option<f64>) -> String {
        let mut parts = Vec::new();
        if let Some(above) = fail_above {
            parts.push(match self.grew(above) {
                0 => format!("passed: nothing grew by more than {above}%"),
                grew => format!("failed: {} grew by more than {above}%", grouped(grew)),
            });
        }
        parts.push(match self.significant().len() as u64 {
            0 => "no row changed significantly".to_owned(),
            changes => counted(changes, "significant change", "significant changes"),
        });
        parts.push(match &self.total {
            Ok(total) => match total.interval {
                _ if total.before == total.after => "total unchanged".to_owned(),
                None => format!("total {}", signed(total.relative())),
                Some([low, high]) => format!(
                    "total {} ({} to {})",
                    signed(total.relative()),
                    signed(low - 1.0),
                    signed(high - 1.0)
                ),
            },
            Err(_) => "totals not compared".to_owned(),
        });
        parts.join("; ")
    }

    /// The two sides, a line each.
    pub(crate) fn origins(&self) -> [String; 2] {
        let of = |(side, name): (&Side, &str)| {
            let (quality, totals) = totals(side);
            let files = joined(side.sources.iter().map(|source| &source.name), ", ");
            let branches = counted(totals.branches, "branch", "branches");
            let samples = counted(quality.samples, "sample", "samples");
            let complete = if quality.is_complete() { ", complete" } else { "" };
            let modelled = if quality.software > 0 { "; software LBR" } else { "" };
            format!("{name}: {files}: {branches} in {samples}{complete}{modelled}")
        };
        let [before, after] = &self.sides;
        [of((before, "baseline")), of((after, "compared"))]
    }

    /// The significant changes, in the order of their rows.
    fn significant(&self) -> Vec<(&Row, &Change)> {
        let rows = self.comparison.rows.iter();
        let changes = rows.flat_map(|row| row.changes.iter().map(move |change| (row, change)));
        changes.filter(|(_, change)| change.significant).collect()
    }

    /// The other rows by table: their kind, a title, the measures, and the rows.
    fn others(&self) -> Vec<(&'static str, &'static str, Vec<Measure>, Vec<&Row>)> {
        let rows = self.comparison.rows.iter().filter(|row| !row.is_significant());
        let (loops, branches): (Vec<&Row>, Vec<&Row>) = rows.partition(|row| is_loop(row));
        let (matched, others) = branches.into_iter().partition(|row| row.is_matched());
        let tables = [
            ("branch", "Other branches", self.measures(), matched),
            ("branch", "Other branches on one side", self.measures(), others),
            ("loop", "Other loops", vec![Measure::Trips], loops),
        ];
        tables.into_iter().filter(|(.., rows)| !rows.is_empty()).collect()
    }

    /// How rows were matched and tested, and what was not compared.
    fn evidence(&self) -> Vec<String> {
        let ways = [
            (By::Offset, "file and offset"),
            (By::Line, "function and line"),
            (By::Function, "function"),
        ];
        let is_used = |by: By| self.comparison.rows.iter().any(|row| row.by == by);
        let matched = ways.iter().filter(|(by, _)| is_used(*by)).map(|(_, what)| what);
        let mut lines = vec![
            format!(
                "matched by {}: {}, {} gone, {} new",
                joined(matched, "; by "),
                counted(self.places(Row::is_matched), "place", "places"),
                grouped(self.places(|row| row.after.is_none())),
                grouped(self.places(|row| row.before.is_none()))
            ),
            format!(
                "{} at {}% (Holm), by stack",
                counted(self.comparison.tests, "test", "tests"),
                self.level * 100.0
            ),
        ];
        lines.push(match &self.total {
            Ok(total) => self.total_line(total),
            Err(why) => format!("totals are not compared: {}", reason(*why)),
        });
        let absent = [(Measure::Mispredict, "predictions"), (Measure::Cycles, "cycles")];
        for (_, what) in absent.into_iter().filter(|(measure, _)| !self.has(*measure)) {
            lines.push(format!("{what} are not compared: they are not recorded on both sides"));
        }
        for (name, side) in ["baseline", "compared"].into_iter().zip(&self.sides) {
            let origins = joined(side.sources.iter().map(|source| source.origin(true)), "; ");
            lines.push(format!("{name}: {origins}; {}", quality_line(&side.looked.quality)));
        }
        lines
    }

    fn total_line(&self, total: &Total) -> String {
        let several = self.sides.iter().any(|side| side.sources.len() > 1);
        let of = if several { " a recording" } else { "" };
        let [before, after] = [total.before, total.after].map(|sum| grouped(sum.round() as u64));
        match total.unit {
            Unit::Branches => format!("total: {before} branches before, {after} after{of}, exact"),
            Unit::Events => {
                let event = self.sides.iter().flat_map(events).next().unwrap_or_default();
                format!("total: {before} {event} before, {after} after{of}, by samples and periods")
            }
        }
    }

    fn total_json(&self, args: &Diff, total: &Total) -> Value {
        let [low, high] = total.interval.map_or([None; 2], |ends| ends.map(Some));
        json!({
            "unit": match total.unit { Unit::Branches => "branches", Unit::Events => "events" },
            "before": total.before,
            "after": total.after,
            "exact": total.interval.is_none(),
            "ratio_low": low,
            "ratio_high": high,
            "p": total.p,
            "significant": total.p <= self.level,
            "grew": args.fail_above.map(|above| self.total_grew(above)),
        })
    }
}
