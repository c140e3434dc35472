//! The columns of a comparison.

use anstyle::Style;
use profile::compare::{By, Change, Measure, Row};

use super::{Names, is_loop};
use crate::present::{BAD, Cell, DOUBTFUL, GOOD, Place, Ranked, Table, joined};

/// The verdict on a row. To run more often or less is neither good nor bad.
fn verdict(row: &Row) -> Cell {
    mark(row).map_or(Cell::Absent, |(word, style)| Cell::Mark(word, style))
}

/// The same as a word with its style.
pub(crate) fn mark(row: &Row) -> Option<(&'static str, Style)> {
    let changed = || row.changes.iter().filter(|change| change.significant);
    let only_share = changed().all(|change| change.measure == Measure::Share);
    let (worse, better): (Vec<&Change>, Vec<_>) = changed().partition(|change| change.is_worse());
    Some(match (row.before.is_some(), row.after.is_some(), worse.is_empty(), better.is_empty()) {
        (true, false, ..) => ("gone", DOUBTFUL),
        (false, true, ..) => ("new", DOUBTFUL),
        (.., true, true) => return None,
        (.., false, true) if only_share => ("more", DOUBTFUL),
        (.., true, false) if only_share => ("less", DOUBTFUL),
        (.., false, true) => ("worse", BAD),
        (.., true, false) => ("better", GOOD),
        (.., false, false) => ("mixed", DOUBTFUL),
    })
}

/// Keys and headings of a measure: before, after, and in JSON the change.
type Keys = [&'static str; 6];

const fn keys(measure: Measure) -> Keys {
    match measure {
        Measure::Share => {
            ["share_before", "share was", "share_after", "share is", "share_p", "share_p_holm"]
        }
        Measure::Mispredict => [
            "mispredict_rate_before",
            "missed was",
            "mispredict_rate_after",
            "missed is",
            "mispredict_rate_p",
            "mispredict_rate_p_holm",
        ],
        Measure::Cycles => {
            ["cycles_before", "cycles were", "cycles_after", "are", "cycles_p", "cycles_p_holm"]
        }
        Measure::Trips => {
            ["trips_before", "trips were", "trips_after", "are", "trips_p", "trips_p_holm"]
        }
    }
}

/// The columns of rows, which are branches or loops (`kind`), with these measures.
pub(crate) fn table<'a>(
    kind: &'static str,
    measures: &[Measure],
) -> Table<'a, Names, Ranked<'a, Row>> {
    let least =
        |row: &Row| row.changes.iter().filter_map(|change| change.adjusted).reduce(f64::min);
    let mut table = Table::<Names, Ranked<'_, Row>>::ranked("diff")
        .constant("kind", kind)
        .word("verdict", "verdict", |_, (_, row)| verdict(row))
        .only("significant", |_, (_, row)| Cell::Flag(row.is_significant()))
        .number("p_holm", "p", move |_, (_, row)| p_value(least(row)));
    for measure in measures.iter().copied() {
        let [before, was, after, is, p, holm] = keys(measure);
        let change =
            move |row: &Row, of: fn(&Change) -> Option<f64>| row.change(measure).and_then(of);
        table = table
            .number(before, was, move |_, (_, row)| value(measure, change(row, |of| of.before)))
            .number(after, is, move |_, (_, row)| value(measure, change(row, |of| of.after)))
            .only(p, move |_, (_, row)| Cell::decimal(change(row, |of| of.p), 9))
            .only(holm, move |_, (_, row)| Cell::decimal(change(row, |of| of.adjusted), 9));
        if measure == Measure::Share {
            table = table.heat();
        }
    }
    table
        .only("count_before", |_, (_, row)| Cell::count(row.before.as_ref().map(|of| of.count)))
        .only("count_after", |_, (_, row)| Cell::count(row.after.as_ref().map(|of| of.count)))
        .name("", kind, |names, (_, row)| title(names, row))
        .only("symbol", |_, (_, row)| Cell::name(row.side().and_then(|of| of.function.clone())))
        .only("offset", |names, (_, row)| {
            let offset = |place: Place| place.symbol.map(|symbol| symbol.offset);
            Cell::number(place(names, row).filter(|_| row.by == By::Offset).and_then(offset))
        })
        .only("file", |_, (_, row)| Cell::name(row.side().and_then(|of| of.file.clone())))
        .only("line", |_, (_, row)| {
            Cell::name(row.side().and_then(|of| of.line.as_ref()).map(ToString::to_string))
        })
        .spares(&["rank", "p", "cycles were", "missed was"])
}

/// The columns of significant changes, for people.
pub(super) fn changes<'a>() -> Table<'a, Names, (usize, (&'a Row, &'a Change))> {
    Table::<Names, (usize, (&Row, &Change))>::new()
        .number("", "rank", |_, (at, _)| Cell::Number(*at as u64 + 1))
        .word("", "verdict", |_, (_, (row, _))| verdict(row))
        .word("", "measure", |_, (_, (_, of))| Cell::Word(name(of.measure).into()))
        .number("", "was", |_, (_, (_, of))| value(of.measure, of.before))
        .number("", "is", |_, (_, (_, of))| value(of.measure, of.after))
        .number("", "change", |_, (_, (_, of))| {
            Cell::or_absent(of.relative(), |more| Cell::Stated(signed(more), Some(more)))
        })
        .number("", "p", |_, (_, (_, of))| p_value(of.adjusted))
        .name("", "where", |names, (_, (row, _))| {
            let place = title(names, row);
            if is_loop(row) { Cell::Name(format!("loop {}", place.text())) } else { place }
        })
        .spares(&["rank", "p"])
}

/// The significant changes of a row: `missed 0.10% -> 50.00%`.
pub(crate) fn changed(row: &Row) -> String {
    let words = row.changes.iter().filter(|change| change.significant).map(|change| {
        let [was, is] = [change.before, change.after].map(|side| value(change.measure, side));
        format!("{} {} -> {}", name(change.measure), was.text(), is.text())
    });
    joined(words, ", ")
}

fn name(measure: Measure) -> &'static str {
    match measure {
        Measure::Share => "share",
        Measure::Mispredict => "missed",
        Measure::Cycles => "cycles",
        Measure::Trips => "trips",
    }
}

fn value(measure: Measure, value: Option<f64>) -> Cell {
    match (value, measure) {
        (None, _) => Cell::Absent,
        (Some(value), Measure::Share | Measure::Mispredict) => Cell::Share(value),
        (Some(value), Measure::Cycles) => Cell::Decimal(value, 0),
        (Some(value), Measure::Trips) => Cell::Decimal(value, 2),
    }
}

/// A p-value, if known.
fn p_value(p: Option<f64>) -> Cell {
    let Some(p) = p else { return Cell::Absent };
    let text = match p {
        p if p < 1e-9 => "<1e-9".to_owned(),
        p if p < 1e-3 => format!("{p:.0e}"),
        p => format!("{p:.3}"),
    };
    Cell::Stated(text, Some(p))
}

fn place(names: &mut Names, row: &Row) -> Option<Place> {
    let side = row.side()?;
    Some(Place::of(names.of_mut(row), side.location, side.addr))
}

/// A row's location, for people.
fn title(names: &mut Names, row: &Row) -> Cell {
    if row.by == By::Offset {
        return Cell::or_absent(place(names, row), |place| Cell::Place(Box::new(place)));
    }
    let Some(side) = row.side() else { return Cell::Absent };
    let file = side.file.as_deref().and_then(|path| path.rsplit('/').next());
    let function = side.function.as_deref().or(file).unwrap_or("[unknown]");
    Cell::Name(match &side.line {
        Some(line) => format!("{function} ({}:{})", line.file_name(), line.line),
        None => function.to_owned(),
    })
}

/// A ratio as a change: `+36.4%`.
pub(super) fn signed(relative: f64) -> String {
    format!("{:+.1}%", relative * 100.0)
}
