//! Rows summed by function, line or file.

use std::collections::HashMap;
use std::io;

use clap::ValueEnum;
use maud::{Markup, html};
use profile::Flow;
use profile::cycles::Cycles;
use profile::lines::SourceLine;
use profile::maps::{Location, Maps};

use super::{Page, Report, View, blocks, hot, mispredict, outcomes, rest, run_flow};
use crate::exit::Result;
use crate::head::{Notes, trust};
use crate::present::{Cell, Out, Ranked, Table, share};

/// Grouping key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// By function; code without a symbol by file.
    Function,
    /// By source line, of inlined code the innermost; code without lines by function.
    Line,
    /// By file.
    File,
}

impl By {
    const fn name(self) -> &'static str {
        match self {
            By::Function => "function",
            By::Line => "line",
            By::File => "file",
        }
    }
}

/// Grouping key; `null` if unused or unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupKey {
    pub(crate) symbol: Option<String>,
    /// The offset of the function's first byte: functions may have the same name.
    pub(crate) start: Option<u64>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<SourceLine>,
}

impl GroupKey {
    pub(crate) fn of(maps: &mut Maps, by: By, location: Location) -> GroupKey {
        let file = maps.path_of(location).map(str::to_owned);
        let line = (by == By::Line).then(|| maps.source(location)).flatten();
        if by == By::File || line.is_some() {
            return GroupKey { file, line, ..GroupKey::default() };
        }
        match maps.function(location) {
            Some(function) => GroupKey {
                symbol: Some(function.name),
                start: Some(function.offsets.start),
                file,
                line,
            },
            None => {
                let symbol = maps.name(location).map(|named| named.name);
                GroupKey { symbol, file, ..GroupKey::default() }
            }
        }
    }

    pub(crate) fn text(&self) -> String {
        let file = self.file.as_deref().unwrap_or("[unknown]");
        match (&self.line, &self.symbol) {
            (Some(line), _) => format!("{}:{}", line.file_name(), line.line),
            (None, Some(symbol)) => symbol.clone(),
            (None, None) => file.to_owned(),
        }
    }
}

/// The rows of a group, together.
#[derive(Debug, Default)]
struct GroupSum {
    key: GroupKey,
    rows: u64,
    /// Times taken, or run.
    count: u64,
    not_taken: Option<u64>,
    /// Taken and executed counts, over entries for which both outcomes were equally observable.
    outcomes: (u64, u64),
    known: u64,
    mispredicted: Option<u64>,
    cycles: Cycles,
}

/// Adds a number that may be unknown.
pub(crate) fn plus(sum: &mut Option<u64>, more: Option<u64>) {
    *sum = match (*sum, more) {
        (Some(sum), Some(more)) => Some(sum.saturating_add(more)),
        (sum, more) => sum.or(more),
    };
}

/// The data to sum and its columns: those of the view.
struct GroupSums {
    view: &'static str,
    by: By,
    rows: Vec<GroupSum>,
    /// The denominator of shares.
    all: u64,
}

/// Whether a view has rows to sum.
pub(crate) fn can_sum(view: &View) -> bool {
    [hot::VIEW.name, mispredict::VIEW.name, outcomes::VIEW.name, blocks::VIEW.name]
        .contains(&view.name)
}

impl GroupSums {
    fn of(flow: &mut Flow, view: &View, by: By) -> GroupSums {
        let complete = flow.is_complete();
        let is_blocks = view.name == blocks::VIEW.name;
        let Flow { sites, blocks, maps, .. } = flow;
        let mut sums: HashMap<GroupKey, GroupSum> = HashMap::new();
        for block in blocks.iter().filter(|_| is_blocks) {
            let sum = sums.entry(GroupKey::of(maps, by, block.exit_location)).or_default();
            sum.rows += 1;
            sum.count = sum.count.saturating_add(block.count);
            sum.cycles.merge(&block.cycles);
        }
        for site in sites.iter().filter(|_| !is_blocks) {
            let is_of_outcomes = view.name == outcomes::VIEW.name;
            if !(if is_of_outcomes { outcomes::is_conditional(site) } else { site.taken > 0 }) {
                continue;
            }
            let sum = sums.entry(GroupKey::of(maps, by, site.location)).or_default();
            sum.rows += 1;
            sum.count = sum.count.saturating_add(site.taken);
            sum.known = sum.known.saturating_add(site.known);
            plus(&mut sum.mispredicted, site.mispredicted);
            plus(&mut sum.not_taken, site.not_taken);
            if let Some(not_taken) = site.not_taken {
                let seen = site.outcomes();
                let (taken, executed) = match complete {
                    true => (site.taken, site.taken.saturating_add(not_taken)),
                    false => (seen.y, seen.x),
                };
                sum.outcomes.0 = sum.outcomes.0.saturating_add(taken);
                sum.outcomes.1 = sum.outcomes.1.saturating_add(executed);
            }
        }
        let mut rows: Vec<GroupSum> =
            sums.into_iter().map(|(key, sum)| GroupSum { key, ..sum }).collect();
        let by_misses = view.name == mispredict::VIEW.name;
        let weight = |sum: &GroupSum| (sum.mispredicted.filter(|_| by_misses), sum.count);
        rows.sort_by(|a, b| {
            let by_name = || a.key.text().cmp(&b.key.text()).then_with(|| a.key.cmp(&b.key));
            weight(b).cmp(&weight(a)).then_with(by_name)
        });
        let all = if is_blocks { flow.block_quality.blocks } else { flow.taken };
        GroupSums { view: view.name, by, rows, all }
    }

    fn table<'a>(&self) -> Table<'a, (), Ranked<'a, GroupSum>> {
        let (all, view) = (self.all, self.view);
        let heading = self.by.name();
        let table = Table::<(), Ranked<'_, GroupSum>>::ranked(view).constant("group", heading);
        let rate = |sum: &GroupSum| Cell::share(sum.mispredicted.and_then(|n| share(n, sum.known)));
        let shares = move |table: Table<'a, (), Ranked<'a, GroupSum>>| {
            table
                .number("count", "count", |(), (_, sum)| Cell::Count(sum.count))
                .number("share", "share", move |(), (_, sum)| Cell::share(share(sum.count, all)))
                .heat()
        };
        let table = match view {
            "outcomes" => table
                .number("taken", "taken", |(), (_, sum)| Cell::Count(sum.count))
                .heat()
                .number("not_taken", "not taken", |(), (_, sum)| Cell::count(sum.not_taken))
                .number("taken_share", "share taken", |(), (_, sum)| {
                    Cell::share(share(sum.outcomes.0, sum.outcomes.1))
                }),
            "mispredict" => table
                .number("mispredicted", "mispredicts", |(), (_, sum)| Cell::count(sum.mispredicted))
                .heat()
                .number("predictions_known", "known", |(), (_, sum)| Cell::Count(sum.known))
                .number("taken", "taken", |(), (_, sum)| Cell::Count(sum.count))
                .number("mispredict_rate", "rate", move |(), (_, sum)| rate(sum)),
            "blocks" => shares(table)
                .number("n", "n", |(), (_, sum)| Cell::Count(sum.cycles.n()))
                .number("p50", "p50", |(), (_, sum)| Cell::number(sum.cycles.quantile(0.5)))
                .number("p90", "p90", |(), (_, sum)| Cell::number(sum.cycles.quantile(0.9))),
            _ => shares(table)
                .only("mispredicted", |(), (_, sum)| Cell::count(sum.mispredicted))
                .only("predictions_known", |(), (_, sum)| Cell::Count(sum.known))
                .number("mispredict_rate", "mispredict", move |(), (_, sum)| rate(sum)),
        };
        table
            .number("rows", "rows", |(), (_, sum)| Cell::Count(sum.rows))
            .name("", heading, |(), (_, sum)| Cell::Name(sum.key.text()))
            .only("symbol", |(), (_, sum)| Cell::name(sum.key.symbol.clone()))
            .only("file", |(), (_, sum)| Cell::name(sum.key.file.clone()))
            .only("line", |(), (_, sum)| Cell::name(sum.key.line.as_ref().map(ToString::to_string)))
            .spares(&["rank", "known", "n", "mispredict", "rows"])
    }
}

/// The rows that are summed, and how reliable the sums are.
fn reliability(view: &View, by: By, flow: &Flow) -> String {
    let what = match view.name {
        "blocks" => "blocks, by where they end",
        "outcomes" => "conditional branches",
        _ => "branches, by where they come from",
    };
    let worth = match flow.is_complete() {
        true => trust(flow),
        false => "a sample, and sums of rows have no intervals",
    };
    format!("{what}, summed by {}; {worth}", by.name())
}

/// Runs a view with its rows summed.
pub(super) fn run(args: &Report, by: By, out: &mut Out<'_>) -> Result {
    let is_blocks = args.view.name == blocks::VIEW.name;
    let notes =
        |flow: &Flow| Notes { trust: Some(reliability(&args.view, by, flow)), ..Notes::default() };
    run_flow(args, out, is_blocks, notes, |out, flow| print(out, args, flow, by))
}

fn print(out: &mut Out<'_>, args: &Report, flow: &mut Flow, by: By) -> io::Result<Option<u8>> {
    if args.view.name == blocks::VIEW.name {
        flow.drop_contradicted();
    }
    let sums = GroupSums::of(flow, &args.view, by);
    args.write_rows(out, &sums.table(), &mut (), sums.rows.iter().enumerate(), ("row", "rows"))?;
    Ok(None)
}

/// The sums on a page.
pub(crate) fn markup(page: &mut Page<'_>, view: &View, by: By) -> Markup {
    let sums = GroupSums::of(&mut page.overview.flow, view, by);
    let shown = page.limit.min(sums.rows.len());
    html! {
        p { (reliability(view, by, &page.overview.flow)) "." }
        (sums.table().html(view.name, &mut (), sums.rows.iter().take(shown).enumerate()))
        (rest(sums.rows.len(), shown, "rows"))
    }
}
