//! `lbr hist`: how many cycles a block took, each time it ran.

pub(crate) mod output;
mod place;
mod select;

use lbr_msr::text::AsText;
use std::io::Write;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use profile::Flow;
use profile::flow::{FlowCounter, FlowCounts};
use serde_json::json;

use self::output::Format;
use self::select::Chosen;
use super::report::{self, BlockSpec};
use crate::args::heading;
use crate::exit::{DONE, Failure, POOR, Result, done, failure};
use crate::head::{Totals, flow_json};
use crate::input::{self, Inputs, Recordings, Source, selected};
use crate::output::Output;
use crate::present::chart::{Bin, Bins, Gaps, Histogram, PICTURE_BINS, Series, Terminal};
use crate::present::{Cell, Out, Table, counted, grouped, json, say, share};
use crate::select::{RowArgs, Rows, SelectArgs};
use crate::symbols::SymbolArgs;

/// Draw how many cycles blocks of code took
///
/// Examples:
///   lbr hist                         the hottest block with cycle counts
///   lbr hist --block order+0x0       the block that starts there
///   lbr hist -o cycles.html          all of them, up to 24, on a page
///
/// A block is straight-line code, from the target of one branch to the next
/// taken branch. Its cycles are known if the records have cycle counts.
/// Distributions of several recordings are drawn over each other.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_long_help = BINS)]
pub(crate) struct Hist {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    rows: RowArgs,
    #[command(flatten)]
    symbols: SymbolArgs,
    /// The block that starts here: main+0x1c, file.c:12, 0x401000
    ///
    /// Add ..EXIT if its last branch matters: main+0x1c..main+0x40. Several blocks are drawn over
    /// each other. [default: the block that ran most]
    #[arg(long, value_name = "PLACE", help_heading = heading::VIEW)]
    block: Vec<BlockSpec>,
    /// Draw into FILE.svg or FILE.html
    #[arg(short, long, value_name = "FILE", value_parser = output::file, help_heading = heading::OUTPUT)]
    output: Option<(Format, PathBuf)>,
    /// Print JSON Lines
    ///
    /// One object a distribution (`"view":"hist"`), then one a recording (`"view":"quality"`).
    #[arg(long, conflicts_with = "output", help_heading = heading::OUTPUT)]
    json: bool,
}

const BINS: &str = "Bins:
  A bin is 1 cycle wide, or 2, 5, 10, 20, 50 and so on if there would be too many. Bins get narrower, \
up to four times as many, if that shows a valley between two modes. If a bin is wider than a cycle, \
the tail beyond p99.9 is counted, not drawn. In text, three or more empty bins are one line. One \
distribution is drawn by counts, several by shares.

  n: runs with a cycle count. saturated: runs with the highest count that a record can hold; they \
took at least as long. dropped: runs without a count, such as the first after a gap. modes: cycle \
counts around which runs cluster.

Exit status 5: the recording has no cycle counts, or none for this block.";

/// Maximum number of charts on a sheet.
const SHEET: usize = 24;

/// A recording that was read.
pub(crate) struct Read {
    pub(crate) source: Source,
    pub(crate) flow: Flow,
    /// The rows of some files, unless all are shown.
    rows: Option<Rows>,
}

pub(crate) fn run(args: &Hist) -> Result {
    let inputs = args.inputs.paths().iter().chain(args.symbols.files());
    let output = args
        .output
        .as_ref()
        .map(|(format, path)| Output::new(path, inputs).map(|output| (*format, output)));
    let output = output.transpose()?;
    let mut flows = Vec::new();
    let reading = args.select.reading(&args.symbols);
    let sources = Recordings::once(args.inputs.paths(), reading)?.read(&mut |recording, at| {
        let mut counter = FlowCounter::of(FlowCounts::without_sites());
        args.symbols.apply(counter.maps());
        counter.recording(recording, at)?;
        let mut flow = counter.finish();
        flow.drop_contradicted();
        flows.push(flow);
        Ok(())
    })?;
    sources.iter().for_each(input::warn);
    let mut read = Vec::new();
    for (source, mut flow) in sources.into_iter().zip(flows) {
        let rows = args.rows.keep_flow(&mut flow, true)?;
        read.push(Read { source, flow, rows });
    }
    let with_cycles = |read: &Read| read.flow.blocks.iter().any(|block| block.cycles.n() > 0);
    if let Some(without) = read.iter().find(|read| !with_cycles(read)) {
        return Err(Failure { code: POOR, error: without_cycles(without) });
    }
    let groups = match args.block.is_empty() {
        true => select::groups(&read),
        false => vec![select::select(&mut read, &args.block)?],
    };
    if groups.iter().flatten().all(|of| of.block(&read).cycles.n() == 0) {
        return Err(failure!(POOR, "none of the runs of this block has a cycle count"));
    }
    // Programs and pictures get all blocks unless one is named.
    if let (true, Some((format, output))) = (args.block.is_empty(), &output) {
        let sheet = groups.iter().take(SHEET);
        let drawn: Vec<Histogram> = sheet.map(|group| chart(&mut read, group)).collect();
        output.write(format(&drawn))?;
        let all = grouped(groups.len() as u64);
        let to = output.path().as_text();
        say!("{} of {all} blocks with cycle counts to {to}", drawn.len());
        return Ok(DONE);
    }
    let mut out = Out::stdout();
    if args.json {
        for of in groups.iter().flatten() {
            print_json(&mut out, &mut read, of)?;
        }
        print_quality(&mut out, &read)?;
        return done(&mut out);
    }
    let chosen = match args.block.is_empty() {
        true => select::first(&read, &args.rows, groups),
        false => groups.concat(),
    };
    let drawn = &chosen[..select::MOST.min(chosen.len())];
    let chart = chart(&mut read, drawn);
    if let Some((format, output)) = &output {
        output.write(format(std::slice::from_ref(&chart)))?;
        let series = counted(drawn.len() as u64, "distribution", "distributions");
        say!("{series} to {}", output.path().as_text());
        say_hidden(&read, &chosen);
        return Ok(DONE);
    }
    exits(&mut out, &mut read, &chosen)?;
    out.write_all(chart.text(Terminal::of_stdout()).as_bytes())?;
    if args.block.is_empty() {
        out.line("the program's hottest block; lbr report --view blocks lists others")?;
    }
    say_hidden(&read, &chosen);
    done(&mut out)
}

/// Why a recording has no cycles for any block.
fn without_cycles(read: &Read) -> anyhow::Error {
    let (name, blocks) = (&read.source.name, &read.flow.block_quality);
    if blocks.blocks == 0 && blocks.filtered > 0 {
        return anyhow!(
            "{name} has no blocks: not every branch was recorded (record with -j any,u)"
        );
    }
    let why = if read.flow.quality.software > 0 {
        "the software LBR measures none (lbr record --model adds modelled ones)"
    } else {
        "the CPU or the recorder left them out (Skylake and later, and Architectural LBR, have them)"
    };
    anyhow!("{name} has no cycle counts: {why}")
}

/// The chart of some blocks.
fn chart(read: &mut [Read], chosen: &[Chosen]) -> Histogram {
    let names: Vec<(String, String)> = chosen.iter().map(|of| of.ends(read)).collect();
    let one_entry = names.windows(2).all(|pair| matches!(pair, [a, b] if a.0 == b.0));
    let one_block = names.windows(2).all(|pair| matches!(pair, [a, b] if a == b));
    let several = read.len() > 1;
    let series = chosen.iter().zip(&names).map(|(of, (entry, exit))| {
        let mut label = match (one_block, one_entry) {
            (true, _) => String::new(),
            (false, true) => format!("to {exit}"),
            (false, false) => format!("{entry} .. {exit}"),
        };
        if several {
            let file = &read[of.read].source.name;
            label = if label.is_empty() { file.clone() } else { format!("{label} in {file}") };
        }
        Series::of(label, of.block(read))
    });
    let title = match names.first() {
        Some((entry, exit)) if one_block => format!("{entry} .. {exit}"),
        Some((entry, _)) if one_entry => format!("blocks from {entry}"),
        _ => "cycles of blocks".to_owned(),
    };
    Histogram { title, series: series.collect(), note: note(read) }
}

/// The note of a picture: the recording's CPU, losses and labels.
fn note(read: &[Read]) -> Option<String> {
    let of = |read: &Read| {
        let quality = &read.flow.quality;
        let mut said =
            vec![read.source.cpu.clone().unwrap_or_else(|| "CPU not recorded".to_owned())];
        let says = said.iter().any(|cpu| cpu.contains("modelled"));
        match (quality.software > 0, read.source.says_modelled()) {
            (true, false) => said.push("modelled, not measured".to_owned()),
            (true, true) if !says => said.push("cycles modelled".to_owned()),
            _ => {}
        }
        let lost = quality.lost_total();
        if lost > 0 {
            said.push(format!("{} lost", counted(lost, "stack", "stacks")));
        }
        said.extend(read.source.events_line());
        said.extend(read.source.limits().into_iter().map(str::to_owned));
        said.extend(selected::of_quality(std::slice::from_ref(&read.source), quality));
        said.extend(read.rows.as_ref().map(Rows::line));
        said.extend(read.source.partial().map(str::to_owned));
        said.join(", ")
    };
    let mut notes: Vec<String> = read.iter().map(of).collect();
    notes.dedup();
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// The exits of the blocks, if there are several to choose from.
fn exits(out: &mut Out<'_>, read: &mut [Read], chosen: &[Chosen]) -> std::io::Result<()> {
    if chosen.len() < 2 {
        return Ok(());
    }
    let all: u64 = chosen.iter().map(|of| of.block(read).count).sum();
    let table = Table::<[Read], &Chosen>::new()
        .number("", "runs", |read, of| Cell::Count(of.block(read).count))
        .number("", "share", move |read, of| Cell::share(share(of.block(read).count, all)))
        .heat()
        .number("", "n", |read, of| Cell::Count(of.block(read).cycles.n()))
        .number("", "median", |read, of| Cell::number(of.block(read).cycles.quantile(0.5)))
        .name("", "entry", |read, of| Cell::Name(of.ends(read).0))
        .name("", "exit", |read, of| Cell::Name(of.ends(read).1))
        .behind(" .. ")
        .name("", " ", |read, of| Cell::Name(of.file(read)))
        .behind("")
        .spares(&["n"]);
    table.write_text(out, read, chosen.iter())?;
    out.gap()
}

/// Prints which blocks are not in the picture.
fn say_hidden(read: &[Read], chosen: &[Chosen]) {
    let hidden = chosen.get(select::MOST..).unwrap_or_default();
    if hidden.is_empty() {
        return;
    }
    let runs: u64 = hidden.iter().map(|of| of.block(read).count).sum();
    say!(
        "the {} blocks with most runs are drawn; {} more, which ran {} times, are not (--block ENTRY..EXIT chooses; --json has all)",
        select::MOST,
        grouped(hidden.len() as u64),
        grouped(runs)
    );
}

fn print_json(out: &mut Out<'_>, read: &mut [Read], of: &Chosen) -> std::io::Result<()> {
    let Read { source, flow, .. } = &mut read[of.read];
    let Flow { blocks, maps, quality, block_quality, .. } = flow;
    let block = &blocks[of.block];
    let table = report::block_table(block_quality.blocks, quality, false);
    let mut json = table.object(maps, &(of.block, block));
    let series = Series::of(String::new(), block);
    let bins = Bins::of(std::slice::from_ref(&series), PICTURE_BINS, Gaps::Drawn);
    json["view"] = "hist".into();
    json["input"] = source.name.as_str().into();
    let software = quality.software > 0;
    json["software"] = software.into();
    json["modelled"] = (software || source.says_modelled()).into();
    json["dropped"] = series.dropped.into();
    json["bin_width"] = bins.as_ref().map(|bins| bins.width).into();
    json["beyond"] = bins.as_ref().map(|bins| bins.beyond.iter().sum::<u64>()).into();
    let bin = |bin: &Bin| json!({ "first": bin.first, "runs": bin.runs.iter().sum::<f64>() });
    json["bins"] = bins.map(|bins| bins.bins.iter().map(bin).collect::<Vec<_>>()).into();
    json::value(out, &json)
}

fn print_quality(out: &mut Out<'_>, read: &[Read]) -> std::io::Result<()> {
    for read in read {
        let sources = std::slice::from_ref(&read.source);
        let mut json = flow_json(sources, &read.flow, &Totals::from(&read.flow));
        json["dso"] = json!(read.rows);
        json::value(out, &json)?;
    }
    Ok(())
}
