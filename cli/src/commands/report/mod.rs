//! `lbr report`: counts of a recording, by view.

mod args;
pub(crate) mod blocks;
pub(crate) mod callgraph;
pub(crate) mod group;
pub(crate) mod hot;
pub(crate) mod loops;
pub(crate) mod mispredict;
pub(crate) mod outcomes;
pub(crate) mod paths;
mod rows;
mod types;

use std::io::{self, IsTerminal, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use maud::Markup;
use profile::callgraph::CallGraph;
use profile::flow::{FlowCounter, FlowCounts};
use profile::hot::Order as Sort;
use profile::interval::{Clusters, Interval};
use profile::maps::Maps;
use profile::overview::Overview;
use profile::quality::Quality;
use profile::{Counter, Flow};
use serde_json::{Value, json};

pub(crate) use self::blocks::{BlockSpec, charts as block_charts, table as block_table};
pub(crate) use self::callgraph::{Shown as GraphRows, print_folded};
pub(crate) use self::rows::print_hidden;
use self::rows::rest;
use crate::args::{heading, rows};
use crate::exit::{DONE, Result, usage};
use crate::head::{self, Notes, Totals, flow_json, without};
use crate::input::{self, Count, Inputs, Reading, Recordings, Source};
use crate::present::{FAINT, Out, Printer, counted_nonzero, joined, json, say};
use crate::select::{RowArgs, Rows, SelectArgs};
use crate::symbols::SymbolArgs;

/// Default of `--min-n`.
pub(crate) const KNOWN: u64 = 30;
/// Default rows of the table.
const ROWS: usize = 25;

/// The views, in the order of a page. A new view is a file and a line here.
pub(crate) const VIEWS: &[View] = &[
    hot::VIEW,
    types::VIEW,
    mispredict::VIEW,
    outcomes::VIEW,
    blocks::VIEW,
    loops::VIEW,
    callgraph::VIEW,
    paths::VIEW,
    args::VIEW,
];

/// A view of a recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// Its name on the command line and on a page.
    pub(crate) name: &'static str,
    about: &'static str,
    /// The sort orders it supports.
    sorts: &'static [Sort],
    run: fn(&Report, &mut Out<'_>) -> Result,
    /// Its section of the page, if it has one.
    pub(crate) section: Option<Section>,
}

impl Default for View {
    fn default() -> View {
        hot::VIEW
    }
}

/// A part of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    /// Its heading.
    pub(crate) title: &'static str,
    /// Its content.
    pub(crate) markup: fn(&mut Page<'_>) -> Result<Markup>,
}

/// The data of a page's sections.
pub(crate) struct Page<'a> {
    /// The options.
    pub(crate) args: &'a Report,
    /// The recordings, for a view that reads them again.
    pub(crate) recordings: &'a Recordings,
    pub(crate) sources: &'a [Source],
    /// The result of one pass through the recordings.
    pub(crate) overview: &'a mut Overview,
    /// The result of another.
    pub(crate) graph: &'a mut CallGraph,
    /// Rows of a table at most.
    pub(crate) limit: usize,
}

/// Count the branches of a recording, or of several together
///
/// Examples:
///   lbr report                       the most frequent taken branches
///   lbr report --view mispredict     which branches mispredict, by count
///   lbr report --view blocks -s cycles -n 10
///
/// Shares in the views mispredict and outcomes have 95% confidence intervals,
/// clustered by stack. A recording of every branch is exact and has none.
/// Impossible entries (`lbr lint` lists them) are dropped in every view, and
/// counted.
#[derive(Debug, Default, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Report {
    #[command(flatten)]
    pub(crate) inputs: Inputs,
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    #[command(flatten)]
    pub(crate) shown: RowArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    /// What to count
    #[arg(long, value_parser = view(), default_value = hot::VIEW.name, help_heading = heading::VIEW)]
    view: View,
    /// Sort by count, mispredicts, rate, cycles, address
    ///
    /// [default: count; in the view mispredict: mispredicts]
    #[arg(long, short, value_name = "BY", value_parser = sort, help_heading = heading::VIEW)]
    sort: Option<Sort>,
    /// Sum rows by function, line or file
    ///
    /// In the views hot, mispredict, outcomes and blocks. A branch counts where it comes from, a
    /// block where it ends.
    #[arg(long, value_enum, value_name = "BY", conflicts_with_all = ["sort", "block", "min_n"],
          hide_possible_values = true, help_heading = heading::VIEW)]
    pub(crate) group: Option<group::By>,
    /// Known predictions that a branch needs for a rate (mispredict)
    #[arg(long, value_name = "N", default_value_t = KNOWN, hide_short_help = true,
          help_heading = heading::VIEW)]
    min_n: u64,
    /// One block and its cycles (blocks)
    ///
    /// Prints the distribution of its cycles. Its ends as the view prints them,
    /// main+0x10 .. +0x1c, or addresses as in --json.
    #[arg(long, value_name = "ENTRY..EXIT", help_heading = heading::VIEW)]
    block: Option<BlockSpec>,
    #[command(flatten)]
    callgraph: callgraph::GraphOptions,
    /// Print up to N rows; 0 is all [default: 25]
    ///
    /// With --json and --csv all rows, with --html 250.
    #[arg(short = 'n', long, value_name = "N", value_parser = rows, help_heading = heading::OUTPUT)]
    pub(crate) limit: Option<usize>,
    /// Write a page: call graph, code and tables; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv", "view", "sort", "block"],
          help_heading = heading::OUTPUT)]
    pub(crate) html: Option<PathBuf>,
    /// Print JSON Lines
    ///
    /// One object a row (`"view":"hot"` and so on), then one with the totals and the data quality
    /// (`"view":"quality"`).
    #[arg(long, help_heading = heading::OUTPUT)]
    pub(crate) json: bool,
    /// Print comma-separated values
    ///
    /// Columns have the keys of --json. The view outcomes prints the conditional branches, blocks
    /// the blocks, callgraph the functions, paths the branches.
    #[arg(long, conflicts_with = "json", help_heading = heading::OUTPUT)]
    pub(crate) csv: bool,
    /// Print the recorder, distinct branches and data quality too
    #[arg(short, long, help_heading = heading::OUTPUT)]
    verbose: bool,
    #[command(flatten)]
    spelling: PerfSpelling,
}

/// Options of `perf report` for what is done anyway.
#[derive(Debug, Default, Args)]
struct PerfSpelling {
    #[arg(long, hide = true)]
    stdio: bool,
    #[arg(short = 'b', long, hide = true)]
    branch_stack: bool,
    #[arg(long, hide = true)]
    no_children: bool,
}

/// A view by its name.
pub(crate) fn view() -> impl TypedValueParser<Value = View> {
    let names = VIEWS.iter().map(|view| PossibleValue::new(view.name).help(view.about));
    PossibleValuesParser::new(names)
        .try_map(|name| VIEWS.iter().copied().find(|view| view.name == name).ok_or("no such view"))
}

/// Parses a sort order; for perf's sort keys, which group rows, the error names lbr's.
fn sort(name: &str) -> Result<Sort, String> {
    const PERFS: [&str; 9] =
        ["symbol", "sym", "dso", "srcline", "comm", "pid", "mispredict", "in_tx", "abort"];
    let is_perfs = |key: &str| {
        let end = key.trim_end_matches("_from").trim_end_matches("_to");
        PERFS.contains(&end) || end == "cycles"
    };
    Ok(match name {
        "count" => Sort::Count,
        "mispredicts" => Sort::Mispredicts,
        "rate" => Sort::Rate,
        "cycles" => Sort::Cycles,
        "address" => Sort::Address,
        _ if name.split(',').all(is_perfs) => {
            return Err(format!(
                "rows are branches by (from, to) already: omit it, or sum rows with --group \
                 function, line or file; {SORTS}"
            ));
        }
        _ => return Err(SORTS.to_owned()),
    })
}

const SORTS: &str = "rows are sorted by count, mispredicts, rate, cycles or address";

/// The values that [`Sort::Cycles`] needs.
const CYCLES: &str = "cycle counts";

/// Reports that the requested order needs something that the recording lacks.
fn say_unsorted(lacking: &str) {
    say!("the recording has no {lacking}: rows are sorted by count");
}

/// Prints the hot branches of a recording that has just been made.
pub(crate) fn hot(recording: &Path) -> Result {
    let inputs = Inputs { files: vec![recording.to_owned()], ..Inputs::default() };
    let args = Report { inputs, min_n: KNOWN, ..Report::default() };
    // Its first lines belong to the recording's messages, which no pager shows.
    print(&args, &mut Out::unpaged())
}

pub(crate) fn run(args: &Report) -> Result {
    let mut out = Out::stdout();
    let status = print(args, &mut out)?;
    if args.printer() == Printer::Text && !args.callgraph.folded && io::stdout().is_terminal() {
        let files = args.inputs.paths();
        // Two without an option would be compared.
        let option = if files.len() > 1 { "-i " } else { "" };
        let files = joined(files.iter().map(|path| input::name(path)), " -i ");
        out.styled(FAINT, format_args!("lbr browse {option}{files} walks through this"))?;
        out.flush()?;
    }
    Ok(status)
}

/// Prints to another place than standard output.
pub(crate) fn print(args: &Report, out: &mut Out<'_>) -> Result {
    let view = args.view;
    if args.block.is_some() && view.name != blocks::VIEW.name {
        return Err(usage!("--block needs --view blocks"));
    }
    if let Some(by) = args.group {
        if !group::can_sum(&view) {
            return Err(usage!(
                "--group sums rows of the views hot, mispredict, outcomes and blocks; callgraph is \
                 by function already, and a path or a loop spans several lines"
            ));
        }
        return group::run(args, by, out);
    }
    if args.callgraph.any() && view.name != callgraph::VIEW.name {
        return Err(usage!("--callee, --folded, --stitch and --truth need --view callgraph"));
    }
    if args.sort.is_some_and(|sort| !view.sorts.contains(&sort)) {
        return Err(usage!("this view has no such column to sort by"));
    }
    (view.run)(args, out)
}

impl Report {
    /// The rows of the tables: in text those of the program's own files, unless others are
    /// requested.
    pub(crate) fn shown(&self) -> RowArgs {
        let is_asked = self.block.is_some()
            || self.callgraph.any()
            || self.group == Some(group::By::File)
            || self.printer() != Printer::Text;
        self.shown.program_first(!is_asked)
    }

    /// How the recordings are read.
    pub(crate) fn reading(&self) -> Reading {
        self.select.reading(&self.symbols)
    }

    /// Reads the recordings.
    fn count<V: profile::View>(&self, counter: Counter<V>) -> Result<(V::Table, Vec<Source>)> {
        Recordings::once(self.inputs.paths(), self.reading())?.count(counter)
    }

    /// Rows of a table at most.
    fn rows(&self) -> usize {
        self.limit.unwrap_or(if self.printer() == Printer::Text { ROWS } else { usize::MAX })
    }

    fn printer(&self) -> Printer {
        Printer::of(self.json, self.csv)
    }

    /// Prints the lines above a view's table, for people.
    fn print_head(
        &self,
        out: &mut Out<'_>,
        (sources, quality, totals): (&[Source], &Quality, &Totals),
        notes: impl FnOnce() -> Notes,
        rows: Option<&Rows>,
    ) -> io::Result<()> {
        if self.printer() != Printer::Text {
            return Ok(());
        }
        out.lines(&head::lines(sources, quality, totals, notes(), self.verbose))?;
        if let Some(rows) = rows {
            out.line(rows.line())?;
        }
        out.gap()
    }

    /// Ends a view: with --json prints the totals, then warns about the recordings.
    fn end(
        &self,
        out: &mut Out<'_>,
        mut totals: Value,
        rows: Option<&Rows>,
        (sources, maps): (&[Source], &Maps),
    ) -> Result {
        if self.printer() == Printer::Json {
            totals["dso"] = json!(rows);
            json::value(out, &totals)?;
        }
        out.flush()?;
        head::finish(sources, maps);
        Ok(DONE)
    }
}

/// Runs a view of blocks or branches. `print` may return an exit status.
fn run_flow(
    args: &Report,
    out: &mut Out<'_>,
    blocks: bool,
    notes: impl FnOnce(&Flow) -> Notes,
    print: impl FnOnce(&mut Out<'_>, &mut Flow) -> io::Result<Option<u8>>,
) -> Result {
    let counts = if blocks { FlowCounts::without_sites() } else { FlowCounts::without_blocks() };
    let (mut flow, sources) = args.count(FlowCounter::of(counts))?;
    let totals = Totals::from(&flow);
    let rows = args.shown().keep_flow(&mut flow, blocks)?;
    args.print_head(out, (&*sources, &flow.quality, &totals), || notes(&flow), rows.as_ref())?;
    out.modelled = Source::any_models_fields(&sources);
    let status = print(out, &mut flow)?;
    let totals = flow_json(&sources, &flow, &totals);
    let done = args.end(out, totals, rows.as_ref(), (&sources, &flow.maps))?;
    Ok(status.unwrap_or(done))
}

/// The 95% interval of a ratio; `None` also if the counts are exact.
fn interval_of(ratio: &Clusters, complete: bool) -> Option<Interval> {
    if complete { None } else { ratio.interval() }
}

/// Counts of the stacks and blocks that could not be used.
fn unusual(flow: &Flow) -> Vec<String> {
    let quality = &flow.block_quality;
    let counts = counted_nonzero([
        (quality.without_code, "block", "blocks", "without code bytes"),
        (quality.contradicted, "block", "blocks", "dropped that the code bytes contradict"),
        (quality.impossible(), "impossible block", "impossible blocks", "dropped"),
        (quality.crossing, "fall-through", "fall-throughs", "across the kernel's boundary"),
        (quality.apart, "fall-through", "fall-throughs", "between two functions, distance unknown"),
        (
            quality.open,
            "address",
            "addresses",
            "from which the extent of straight-line code is unknown",
        ),
    ]);
    without(quality.filtered, "blocks").into_iter().chain(counts).collect()
}
