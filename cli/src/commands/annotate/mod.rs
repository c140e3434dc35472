//! `lbr annotate`: the code of a function, with counts for each instruction.

mod arrows;
mod cells;
pub(crate) mod graph;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod text;

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use profile::Flow;
use profile::annotate::{self, Annotated, Syntax};
use profile::flow::FlowCounter;
use profile::maps::Location;

use crate::args::heading;
use crate::exit::{DONE, Failure, OrExit, Result, USAGE, usage};
use crate::head::{self, Notes, Totals, finish, without};
use crate::input::source_text::Sources;
use crate::input::{Count, Recordings, Source};
use crate::output::Output;
use crate::present::{Out, counted, escaped, grouped};
use crate::select::{RowArgs, SelectArgs};
use crate::symbols::SymbolArgs;

/// Show the code of a function with its counts, mispredictions and cycles
///
/// Examples:
///   lbr annotate                     the program's hottest function
///   lbr annotate main                a function of the program
///   lbr annotate libc.so.6:qsort     a function of a library
///
/// Each instruction has its count. A branch has the share that was taken, an
/// arrow to its target, and the share of its taken branches that were
/// mispredicted. The end of a block has the median and 90th percentile of its
/// core cycles, and its instructions per cycle. A block is the straight-line
/// code from the target of a branch to the next taken branch.
///
/// Counts are exact if every taken branch was recorded (`lbr record -c N`);
/// otherwise they are those of the sample, not scaled up. `-` means not
/// recorded, which is not zero.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Annotate {
    /// A function, an address, a line or a range [default: the program's hottest function]
    ///
    /// A function (main, libc.so.6:malloc; the end of its name suffices: push for `Vec<T>::push`),
    /// an address (0x401136) or a line (foo.c:12) in one, or the code between two
    /// (0x401136..0x401160, loop..leaf). Addresses are load addresses, which --load-addresses
    /// prints. Name a recording with -i.
    #[arg(value_name = "PLACE")]
    place: Option<String>,
    /// perf.data or perf script text; - is stdin
    ///
    /// Recordings that are given several times are counted together.
    #[arg(short, long, value_name = "FILE", default_value = "perf.data",
          help_heading = heading::INPUT)]
    input: Vec<PathBuf>,
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    rows: RowArgs,
    #[command(flatten)]
    symbols: SymbolArgs,
    /// Syntax of instructions
    #[arg(long, value_parser = syntax(), default_value = "intel", help_heading = heading::VIEW)]
    syntax: Syntax,
    /// Print basic blocks by count, hottest first
    #[arg(long, help_heading = heading::VIEW)]
    hottest: bool,
    /// Print source lines between the instructions (needs -g)
    #[arg(long, conflicts_with = "no_source", help_heading = heading::VIEW)]
    source: bool,
    /// Print load addresses, not those in the file
    #[arg(long, help_heading = heading::VIEW)]
    load_addresses: bool,
    /// Write a page; without PLACE, of the ten hottest functions
    ///
    /// `-` is standard output.
    #[arg(long, value_name = "FILE", help_heading = heading::OUTPUT)]
    html: Option<PathBuf>,
    /// Draw the control-flow graph into FILE.svg or FILE.dot
    ///
    /// FILE.dot is for Graphviz; `-` is SVG on standard output.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["html", "json", "hottest"],
          help_heading = heading::OUTPUT)]
    graph: Option<PathBuf>,
    /// Print JSON Lines
    ///
    /// The function, its instructions, then its blocks with their cycles (`"kind"`). Addresses are
    /// load addresses.
    #[arg(long, conflicts_with = "html", help_heading = heading::OUTPUT)]
    json: bool,
}

fn syntax() -> impl TypedValueParser<Value = Syntax> {
    let att = |name: String| if name == "att" { Syntax::Att } else { Syntax::Intel };
    PossibleValuesParser::new(["intel", "att"]).map(att)
}

pub(crate) fn run(args: &Annotate) -> Result {
    annotate(args).map_err(|failure| match args.place.as_deref().filter(|what| Path::new(what).is_file()) {
        Some(file) => {
            let error = failure.error.context(format!(
                "{file} was taken for a place in code; a recording is given with -i: lbr annotate -i {file}"
            ));
            Failure { error, ..failure }
        }
        None => failure,
    })
}

/// Whether a graph is for Graphviz, by the ending of its file.
fn is_dot(path: &Path) -> Result<bool> {
    match path.extension().and_then(|end| end.to_str()) {
        Some("dot" | "gv") => Ok(true),
        Some("svg") => Ok(false),
        _ if path == Path::new("-") => Ok(false),
        _ => Err(usage!("--graph {}: neither .svg nor .dot", path.display())),
    }
}

fn annotate(args: &Annotate) -> Result {
    let inputs = || args.input.iter().chain(args.symbols.files());
    let is_dot = args.graph.as_deref().map(is_dot).transpose()?.unwrap_or_default();
    let output = args
        .html
        .as_ref()
        .or(args.graph.as_ref())
        .map(|path| Output::new(path, inputs()))
        .transpose()?;
    let recordings = Recordings::once(&args.input, args.select.reading(&args.symbols))?;
    let (mut flow, sources) = recordings.count(FlowCounter::default())?;
    args.rows.keep_flow(&mut flow, false)?;
    args.rows.keep_flow(&mut flow, true)?;
    let syntax = args.syntax;
    if let (Some(output), None, None) = (&output, &args.place, &args.graph) {
        let head = head(&flow, None, &sources);
        let functions = html::folded(&mut flow, syntax);
        let content = functions.ok_or_else(|| annotate::nothing(&mut flow)).or_exit(USAGE)?;
        output.write(html::page("Annotated functions", &head, &content))?;
        finish(&sources, &flow.maps);
        return Ok(DONE);
    }
    let found = match &args.place {
        Some(symbol) => annotate::find(&mut flow, symbol),
        None => {
            let first = args.rows.first(&flow.maps);
            annotate::hottest_one(&mut flow, &first)
        }
    };
    let found = found.or_exit(USAGE)?;
    let place = Location::File { file: found.file, offset: found.offset };
    if args.rows.places(&mut flow.maps, std::iter::empty())?.is_some_and(|dsos| !dsos.has(place)) {
        return Err(usage!("{} of {} is not among --dso and --symbol", found.name, found.path));
    }
    let mut annotated = annotate::annotate(&mut flow, &found, syntax).or_exit(USAGE)?;
    if !args.json && !args.load_addresses {
        annotated = annotated.at_file_addresses(syntax);
    }
    let head = head(&flow, Some(&annotated), &sources);
    if let Some(output) = &output {
        let name = escaped(&annotated.function.name);
        let lines: Vec<String> =
            [title(&annotated)].into_iter().chain(head.iter().cloned()).collect();
        output.write(match &args.graph {
            Some(_) if is_dot => graph::dot(&annotated, &lines),
            Some(_) => graph::svg(&annotated, &lines),
            None => html::page(&name, &head, &html::markup(&annotated, &mut Sources::default())),
        })?;
    } else {
        let mut out = Out::stdout();
        if args.json {
            json::print(&mut out, &flow, &annotated, &sources, args.hottest)?;
        } else {
            let (source, hottest, marks) = (args.source, args.hottest, text::Marks::new());
            let options = text::Options { source, hottest, marks };
            text::print(&mut out, &head, &annotated, &options)?;
        }
        out.flush()?;
    }
    finish(&sources, &flow.maps);
    Ok(DONE)
}

/// The head of annotated code.
pub(crate) fn head(flow: &Flow, annotated: Option<&Annotated>, sources: &[Source]) -> Vec<String> {
    let contradicted = annotated.map_or(0, |annotated| annotated.contradicted);
    let trust = match (flow.is_complete(), contradicted) {
        (true, 0) => "complete: counts are exact",
        (true, _) => "complete, but parts do not fit the code: counts are of those that do",
        (false, _) => "counts are of the sample; ± and < are 95% intervals, by stack",
    };
    let mut unusual = without(flow.block_quality.filtered, "blocks");
    if let Some(annotated) = annotated.filter(|_| contradicted > 0) {
        let fits = annotated.blocks.iter().filter(|block| block.instructions.is_some());
        let fit = fits.fold(0, |sum: u64, block| sum.saturating_add(block.count));
        let replaced = if fit < contradicted {
            ": the file was replaced after the recording, or its code changed while it ran"
        } else {
            ""
        };
        let blocks = counted(contradicted, "block", "blocks");
        unusual.push(format!("{blocks} dropped that the code bytes contradict{replaced}"));
    }
    let notes = Notes { trust: Some(trust.to_owned()), unusual };
    head::lines(sources, &flow.quality, &Totals::of(flow.taken, flow.distinct), notes, false)
}

/// The line about the function itself.
pub(crate) fn title(annotated: &Annotated) -> String {
    format!("{} {}", escaped(&annotated.function.name), about(annotated))
}

/// Where the function is, and how much of it ran.
fn about(annotated: &Annotated) -> String {
    let function = &annotated.function;
    let mut title = format!(
        "in {}: {:#x}..{:#x}",
        escaped(&function.path),
        function.address,
        function.address.wrapping_add(function.len),
    );
    if function.address != function.file_address {
        title += &format!(" ({:#x} in the file)", function.file_address);
    }
    let ran = match (annotated.executed(), annotated.exact) {
        (0, true) => "it never ran between the first branch recorded and the last".to_owned(),
        (0, false) => "the recording did not see it run".to_owned(),
        (executed, _) => format!("{} executed", grouped(executed)),
    };
    format!("{title}, {} instructions, {ran}", grouped(annotated.instructions.len() as u64))
}
