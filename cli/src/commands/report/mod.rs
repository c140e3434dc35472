//! `lbr report`: what a recording says.

mod args;
mod blocks;
mod callgraph;
mod flow;
pub(crate) mod group;
mod hot;
mod loops;
mod mispredict;
mod outcomes;
mod paths;
mod shown;
mod types;

use std::io;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use maud::{Markup, html};
use profile::overview::Overview;

pub(crate) use self::blocks::table as block_table;
pub(crate) use self::callgraph::{count as call_graph, print_folded};
use crate::exit::{Failure, Outcome, USAGE};
use crate::input::Inputs;
use crate::present::number::grouped;
use crate::present::out::Out;
use crate::present::table::Printer;
use crate::select::{RowArgs, SelectArgs};
use crate::symbols::SymbolArgs;

/// Known predictions that a rate needs where nobody says how many.
const KNOWN: u64 = 30;
/// Rows of the table where nobody says how many.
const ROWS: usize = 25;
/// Branches of a recording that is walked through again for a page: about two
/// seconds more.
const WALKED: u64 = 2_000_000;

/// The views, in the order of a page. Another one is a file and a line here.
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

/// One way to look at a recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// Its name on the command line and on a page.
    pub(crate) name: &'static str,
    about: &'static str,
    /// By what it can be sorted.
    sorts: &'static [Sort],
    run: fn(&Report, &mut Out<'_>) -> Outcome,
    /// What a page shows of it.
    pub(crate) section: Option<Section>,
}

/// A part of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    /// Its heading.
    pub(crate) title: &'static str,
    /// What it holds.
    pub(crate) markup: fn(&mut Page<'_>) -> Result<Markup, Failure>,
}

/// What sections of a page are made of.
pub(crate) struct Page<'a> {
    /// What was asked for.
    pub(crate) args: &'a Report,
    /// What one pass through the recordings gave.
    pub(crate) overview: &'a mut Overview,
    /// Rows of a table at most.
    pub(crate) limit: usize,
    /// A recorder says that nothing was measured.
    pub(crate) modelled: bool,
}

impl Page<'_> {
    /// The recording, for a view with walks of its own; else what stands in its
    /// place, by the view's name.
    fn walked(&self) -> Result<&Path, impl Fn(&str) -> Markup + use<>> {
        let branches = self.overview.flow.taken;
        let why = match self.args.inputs.paths() {
            [path] if path == Path::new("-") || !path.is_file() => {
                "they read a recording again, which a pipe cannot be".to_owned()
            }
            [path] if branches <= WALKED => return Ok(path),
            [_] => {
                format!("for more than {} branches they take longer than the rest", grouped(WALKED))
            }
            _ => "they follow one recording, and here are several".to_owned(),
        };
        Err(move |view: &str| {
            html! { p { "Not on this page: " (why) " (lbr report --view " (view) ")." } }
        })
    }
}

/// Count the branches of a recording, or of several together.
///
/// The shares in the views mispredict and outcomes have a 95% interval, which
/// knows that the entries of one stack are alike; where every branch was
/// recorded the counts are the truth and have none. Entries that no code can
/// have left (see `lbr lint`) are left out of every view, and counted.
#[derive(Debug, Args)]
pub(crate) struct Report {
    #[command(flatten)]
    pub(crate) inputs: Inputs,
    /// What to look at.
    #[arg(long, value_parser = view(), default_value = hot::VIEW.name)]
    view: View,
    /// By what to sort: count, mispredicts, rate, cycles or address [default: count; mispredicts
    /// in its view].
    #[arg(long, short, value_name = "BY", value_parser = Sort::named)]
    sort: Option<Sort>,
    /// Sum rows by function, source line or file (views hot, mispredict, outcomes,
    /// blocks): a branch counts where it comes from, a block where it ends.
    #[arg(long, value_enum, value_name = "BY", conflicts_with_all = ["sort", "block", "min_n"])]
    pub(crate) group: Option<group::By>,
    /// Known predictions that a branch needs for a rate (view mispredict).
    #[arg(long, value_name = "N", default_value_t = KNOWN)]
    min_n: u64,
    /// One block and the distribution of its cycles (view blocks); its ends as
    /// the view prints them: addresses as with --json, or main+0x10..main+0x1c.
    #[arg(long, value_name = "ENTRY..EXIT", value_parser = blocks::range)]
    block: Option<blocks::BlockEnds>,
    /// Rows at most; 0 is all [default: 25, with --json and --csv all, with --html 250].
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Write one page with every view but paths into this file, to look at in a browser;
    /// `-` is standard output.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv", "view", "sort", "block"])]
    pub(crate) html: Option<PathBuf>,
    /// One JSON object a row (`"view":"hot"` and so on), and at the end one with
    /// the totals and the quality of the data (`"view":"quality"`).
    #[arg(long)]
    pub(crate) json: bool,
    /// The rows as comma-separated values, under the keys of --json; of the view
    /// outcomes the conditional branches, of blocks the blocks, of callgraph the
    /// functions, of paths the branches.
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
    /// Also print who recorded, distinct branches, and the quality of the data.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    #[command(flatten)]
    pub(crate) shown: RowArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    #[command(flatten)]
    paths: paths::PathOptions,
    #[command(flatten)]
    callgraph: callgraph::GraphOptions,
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
    PossibleValuesParser::new(names).try_map(|name| {
        VIEWS.iter().copied().find(|view| view.name == name).ok_or("there is no such view")
    })
}

/// By what to sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// Times recorded.
    Count,
    /// Mispredictions.
    Mispredicts,
    /// Share of mispredictions.
    Rate,
    /// Mean cycles; median in the view blocks.
    Cycles,
    /// Address of the branch.
    Address,
}

impl Sort {
    /// By its name; perf's sort keys, which group rows, are answered with ours.
    fn named(name: &str) -> Result<Sort, String> {
        const PERFS: [&str; 10] = [
            "symbol",
            "sym",
            "dso",
            "srcline",
            "comm",
            "pid",
            "mispredict",
            "in_tx",
            "abort",
            "cycles",
        ];
        let is_perfs = |key: &str| {
            let end = key.trim_end_matches("_from").trim_end_matches("_to");
            PERFS.contains(&end)
        };
        Sort::from_str(name, false).map_err(|_| {
            let ours = "count, mispredicts, rate, cycles or address";
            if name.split(',').all(is_perfs) {
                return format!(
                    "rows are branches, from and to, already: drop it, or sum them with --group \
                     function, line or file; rows are sorted by {ours}"
                );
            }
            format!("rows are sorted by {ours}")
        })
    }
}

impl Report {
    /// All rows of a view.
    pub(crate) fn of(inputs: Inputs, view: View) -> Report {
        Report {
            inputs,
            view,
            sort: None,
            group: None,
            min_n: KNOWN,
            block: None,
            limit: None,
            html: None,
            json: false,
            csv: false,
            verbose: false,
            select: SelectArgs::default(),
            shown: RowArgs::default(),
            symbols: SymbolArgs::default(),
            paths: paths::PathOptions::default(),
            callgraph: callgraph::GraphOptions::default(),
            spelling: PerfSpelling::default(),
        }
    }
}

/// Prints the hot branches of a recording that has just been made.
pub(crate) fn hot(recording: &Path) -> Outcome {
    // Its first lines belong to those of the recording, which no pager shows.
    print(&Report::of(Inputs::one(recording), hot::VIEW), &mut Out::unpaged())
}

/// Runs the command.
pub(crate) fn run(args: &Report) -> Outcome {
    print(args, &mut Out::stdout())
}

/// The same into another place than standard output.
pub(crate) fn print(args: &Report, out: &mut Out<'_>) -> Outcome {
    let view = args.view;
    if args.block.is_some() && view.name != blocks::VIEW.name {
        return usage("--block is of the view blocks: add --view blocks");
    }
    if let Some(by) = args.group {
        if !group::can_sum(&view) {
            return usage(
                "--group sums rows of the views hot, mispredict, outcomes and blocks; callgraph is \
                 by function already, and a path or a loop is of no one line",
            );
        }
        return group::run(args, by, out);
    }
    if args.paths.any() && view.name != paths::VIEW.name {
        return usage(
            "--min-probability and --cross-calls are of the view paths: add --view paths",
        );
    }
    if args.callgraph.any() && view.name != callgraph::VIEW.name {
        return usage(
            "--caller, --callee, --min-percent, --folded, --stitch and --truth are of the view \
             callgraph: add --view callgraph",
        );
    }
    if args.sort.is_some_and(|sort| !view.sorts.contains(&sort)) {
        return usage("this view cannot be sorted so: it has no such column");
    }
    (view.run)(args, out)
}

impl Report {
    /// The rows that the tables show: in text those of the program's own files, unless
    /// the arguments ask for others.
    pub(crate) fn shown(&self) -> RowArgs {
        let is_asked = self.block.is_some()
            || self.callgraph.any()
            || self.group == Some(group::By::File)
            || self.printer() != Printer::Text;
        self.shown.program_first(!is_asked)
    }

    /// Rows of a table at most.
    fn rows(&self) -> usize {
        match (self.limit, self.printer()) {
            (Some(0), _) => usize::MAX,
            (Some(limit), _) => limit,
            (None, Printer::Text) => ROWS,
            (None, _) => usize::MAX,
        }
    }

    fn printer(&self) -> Printer {
        Printer::of(self.json, self.csv)
    }
}

fn usage(what: &'static str) -> Outcome {
    Err(Failure { code: USAGE, error: anyhow::Error::msg(what) })
}

/// Says that rows were left out.
fn print_hidden(
    out: &mut Out<'_>,
    all: usize,
    shown: usize,
    (one, many): (&str, &str),
) -> io::Result<()> {
    let hidden = all.saturating_sub(shown);
    if hidden == 0 {
        return Ok(());
    }
    let what = if hidden == 1 { one } else { many };
    out.line(format_args!("{} more {what} (--limit 0 shows all)", grouped(hidden as u64)))
}

/// Says how many rows are not on a page.
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
