//! The view `args`: argument values of functions, by caller.

use profile::Counter;
use profile::arguments::{ArgumentCounts, Arguments, Calls, MOST_VALUES, Values};
use profile::maps::Maps;
use profile::registers::ARGUMENTS;
use serde_json::json;

use super::{Report, Sort, View};
use crate::exit::Result;
use crate::head::{Notes, Totals, quality_json};
use crate::present::{Cell, Out, Part, Printer, Table, counted, grouped, json, part};

pub(super) const VIEW: View = View {
    name: "args",
    about: "Arguments of functions: their integer registers at their entry, by caller",
    sorts: &[Sort::Count],
    run,
    section: None,
};

/// Values that a line of the table names.
const NAMED: usize = 4;

/// An argument register at the calls of one function by another.
#[derive(Clone, Copy)]
struct ArgumentRow<'a> {
    rank: usize,
    calls: &'a Calls,
    register: &'static str,
    values: &'a Values,
}

fn run(args: &Report, out: &mut Out<'_>) -> Result {
    let (made, sources) = args.count(Counter::<ArgumentCounts>::default())?;
    let Arguments { mut calls, with_registers, at_entry, mut hot } = made;
    let totals = Totals::of_hot(&hot, hot.branches.len());
    let shown = args
        .shown()
        .keep(&mut hot.maps, &mut calls, (at_entry, "calls"), |of| (of.callee.0, of.count))?;
    if args.printer() == Printer::Text {
        out.line(reliability(with_registers, at_entry))?;
    }
    args.print_head(out, (&*sources, &hot.quality, &totals), Notes::default, shown.as_ref())?;
    let rows: Vec<ArgumentRow<'_>> = calls.iter().enumerate().flat_map(rows).collect();
    args.write_rows(out, &table(), &mut hot.maps, rows.iter().copied(), ("row", "rows"))?;
    let mut totals = quality_json(&sources, &hot.quality, &totals);
    totals["samples_with_registers"] = json!(with_registers);
    totals["samples_at_entry"] = json!(at_entry);
    args.end(out, totals, shown.as_ref(), (&sources, &hot.maps))
}

/// How reliable the rows are.
fn reliability(with_registers: u64, at_entry: u64) -> String {
    if with_registers == 0 {
        return "no sample has registers: lbr record --args FUNCTION takes them at the entries of \
                a function, if it is entered; perf record -b needs --intr-regs=di,si,dx,cx,r8,r9, \
                sampling at calls"
            .to_owned();
    }
    format!(
        "{} with registers, {} of them at the entry of a function; which registers are arguments \
         is not recorded; {MOST_VALUES} distinct values are counted one by one",
        counted(with_registers, "sample", "samples"),
        grouped(at_entry)
    )
}

/// The registers of calls that were recorded.
fn rows((rank, calls): (usize, &Calls)) -> impl Iterator<Item = ArgumentRow<'_>> {
    let values = calls.values.iter().zip(ARGUMENTS);
    let rows =
        values.map(move |(values, (_, register))| ArgumentRow { rank, calls, register, values });
    rows.filter(|row| row.values.n() > 0)
}

fn table<'a>() -> Table<'a, Maps, ArgumentRow<'a>> {
    Table::<Maps, ArgumentRow<'_>>::new()
        .constant("view", "args")
        .number("rank", "rank", |_, row| Cell::Number(row.rank as u64 + 1))
        .number("count", "calls", |_, row| Cell::Count(row.calls.count))
        .heat()
        .word("register", "in", |_, row| Cell::Word(row.register.into()))
        .number("n", "known", |_, row| Cell::Count(row.values.n()))
        .number("distinct", "distinct", |_, row| {
            let more = if row.values.others > 0 { "+" } else { "" };
            let distinct = row.values.distinct();
            Cell::Stated(format!("{distinct}{more}"), Some(distinct as f64))
        })
        .only("others", |_, row| Cell::Count(row.values.others))
        .nested("values", |_, row| {
            let had = |(value, count)| json!({ "value": json::hex(value), "count": count });
            row.values.frequent().into_iter().map(had).collect::<Vec<_>>()
        })
        .location("callee", "function", Part::ALL, |row| (row.calls.callee.0, row.calls.callee.1))
        .location("caller", "caller", Part::ALL, |row| (row.calls.caller.0, row.calls.caller.1))
        .behind(" <- ")
        .name("", "values", |_, row| Cell::Name(values(row.values)))
        .behind(": ")
        .spares(&["rank", "known", "distinct"])
}

/// The most frequent values, each with its share.
fn values(values: &Values) -> String {
    let (all, frequent) = (values.n(), values.frequent());
    let named = frequent.iter().take(NAMED);
    let mut words: Vec<String> =
        named.map(|(value, count)| format!("{value:#x} {}", part(*count, all))).collect();
    let more = frequent.len().saturating_sub(NAMED);
    if more > 0 || values.others > 0 {
        let bound = if values.others > 0 { "at least " } else { "" };
        words.push(format!("{bound}{} more", grouped(more as u64)));
    }
    words.join(", ")
}
