//! `lbr hist`: how many cycles a block took, each time it ran.

mod list;
mod output;
mod place;
mod select;

use lbr_msr::text::AsText;
use std::io::Write;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use profile::Flow;
use profile::flow::FlowCounter;
use profile::place::LocationSpec;

use self::output::Format;
use self::place::BlockSpec;
use self::select::Chosen;
use super::report;
use crate::exit::{DONE, Failure, Outcome, POOR, USAGE};
use crate::head::{Totals, flow_json};
use crate::input::{self, Inputs, Source, selected};
use crate::output::Output;
use crate::present;
use crate::present::chart::{Bins, Gaps, Histogram, PICTURE_BINS, Series, Terminal};
use crate::present::json;
use crate::present::number::{counted, grouped, share};
use crate::present::out::{Out, say};
use crate::present::place::Part;
use crate::present::table::{Cell, Table};
use crate::select::{RowArgs, Rows, SelectArgs};
use crate::symbols::SymbolArgs;

/// Draw how many cycles blocks of code took
///
/// A block is straight code, from the target of one branch to the next branch taken. Each run of it
/// has a number of core cycles, where the records have cycle counts. Without --block: the blocks
/// that ran most, to choose from. The distributions of several recordings are drawn over each other.
#[derive(Debug, Args)]
#[command(after_help = BINS)]
pub(crate) struct Hist {
    #[command(flatten)]
    inputs: Inputs,
    /// A block by where it begins, and by where it ends if its branch matters: 0x401000, main+0x1c,
    /// file.c:12, main+0x1c..main+0x40. Several are drawn over each other.
    #[arg(long, value_name = "PLACE")]
    block: Vec<BlockSpec>,
    /// Only blocks that end at this branch; else every exit is drawn.
    #[arg(long, value_name = "PLACE", requires = "block")]
    to: Vec<LocationSpec>,
    /// Draw into this file, by its ending: .svg or .html.
    #[arg(short, long, value_name = "FILE", value_parser = output::file)]
    output: Option<(Format, PathBuf)>,
    /// Draw runs on a logarithmic scale.
    #[arg(long)]
    log: bool,
    /// Bins at most [default: 40 in text, 100 in pictures].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    bins: Option<u16>,
    /// Blocks to choose from, without --block; 0 is all.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 12, conflicts_with = "block")]
    limit: usize,
    /// One JSON object a distribution (`"view":"hist"`), and one a recording (`"view":"quality"`).
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// The distributions as comma-separated values: how many runs took so many cycles.
    #[arg(long, conflicts_with_all = ["json", "output"])]
    csv: bool,
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    rows: RowArgs,
    #[command(flatten)]
    symbols: SymbolArgs,
}

const BINS: &str = "Bins:
  One cycle wide where that gives no more bins than wanted, else 2, 5, 10, 20, 50 and so on. Where
  they are wider than one cycle the tail beyond p99.9 is not drawn but said. Bins are
  narrower than that where it takes them, up to four times as many, to show a valley between two
  modes. In text, three or more empty bins are one line. One distribution is drawn by its runs,
  several by their shares.

  n: runs with a cycle count. saturated: those at the highest count that a record holds; they took
  as long or longer. dropped: runs without a count, such as the first after a gap. modes: counts
  around which runs gather.

Exit status 5: the recording has no cycle counts, or none for this block.";

/// A recording that was read.
pub(crate) struct Read {
    /// What it says of itself.
    pub(crate) source: Source,
    /// What it says.
    pub(crate) flow: Flow,
    /// The blocks of some files, where not of all.
    rows: Option<Rows>,
}

/// Runs the command.
pub(crate) fn run(args: &Hist) -> Outcome {
    let output = match &args.output {
        Some((format, path)) => {
            let inputs = args.inputs.paths().iter().chain(args.symbols.files());
            Some((*format, Output::new(path, inputs)?))
        }
        None => None,
    };
    let mut flows = Vec::new();
    let sources = input::read_all(args.inputs.paths(), &args.select.reading(), |recording, at| {
        let mut counter = FlowCounter::without_sites();
        args.symbols.apply(counter.maps());
        counter.recording(recording, at)?;
        let mut flow = counter.finish();
        flow.drop_contradicted();
        flows.push(flow);
        Ok(())
    })?;
    sources.iter().for_each(input::warn);
    let mut read: Vec<Read> = sources
        .into_iter()
        .zip(flows)
        .map(|(source, flow)| Read { source, flow, rows: None })
        .collect();
    for of in &mut read {
        of.rows = args.rows.keep_flow(&mut of.flow, true)?;
    }
    let with_cycles = |read: &Read| read.flow.blocks.iter().any(|block| block.cycles.n() > 0);
    if let Some(without) = read.iter().find(|read| !with_cycles(read)) {
        return Err(Failure { code: POOR, error: without_cycles(without) });
    }
    if args.block.is_empty() {
        return list::run(args, &mut read, output.as_ref());
    }
    let chosen = select::select(&mut read, &args.block, &args.to)?;
    if chosen.iter().all(|of| of.block(&read).is_none_or(|block| block.cycles.n() == 0)) {
        let error = anyhow!("none of the runs of this block has a cycle count");
        return Err(Failure { code: POOR, error });
    }
    let drawn = chosen.get(..select::MOST.min(chosen.len())).unwrap_or_default();
    let chart = chart(args, &mut read, drawn);
    if let Some((format, output)) = &output {
        output.write(output::bytes(*format, std::slice::from_ref(&chart))?)?;
        let series = counted(drawn.len() as u64, "distribution", "distributions");
        say!("{series} to {}", output.path().as_text());
        say_hidden(&read, &chosen);
        return Ok(DONE);
    }
    let mut out = Out::stdout();
    if args.json {
        for of in &chosen {
            print_json(&mut out, args, &mut read, of)?;
        }
        print_quality(&mut out, &read)?;
    } else if args.csv {
        print_csv(&mut out, &mut read, &chosen)?;
    } else {
        exits(&mut out, &mut read, &chosen)?;
        out.write_all(chart.text(Terminal::of_stdout()).as_bytes())?;
        say_hidden(&read, &chosen);
    }
    out.flush()?;
    Ok(DONE)
}

/// Why a recording has no cycles for any block.
fn without_cycles(read: &Read) -> anyhow::Error {
    let (name, blocks) = (&read.source.name, &read.flow.block_quality);
    if blocks.blocks == 0 && blocks.filtered > 0 {
        return anyhow!(
            "{name} has no blocks: not every branch was recorded (record with -j any,u)"
        );
    }
    let software = read.flow.quality.software > 0;
    let why = if software {
        "its software LBR does not know cycles; the test machine counts instructions in their place"
    } else {
        "the CPU or the recorder left them out (Skylake and later, and Architectural LBR, have them)"
    };
    anyhow!("{name} has no cycle counts: {why}")
}

/// The chart of some blocks.
fn chart(args: &Hist, read: &mut [Read], chosen: &[Chosen]) -> Histogram {
    let names: Vec<(String, String)> = chosen.iter().map(|of| of.ends(read)).collect();
    let one_entry = names.windows(2).all(|pair| matches!(pair, [a, b] if a.0 == b.0));
    let one_block = names.windows(2).all(|pair| matches!(pair, [a, b] if a == b));
    let several = read.len() > 1;
    let series = chosen.iter().zip(&names).filter_map(|(of, (entry, exit))| {
        let block = of.block(read)?;
        let mut label = match (one_block, one_entry) {
            (true, _) => String::new(),
            (false, true) => format!("to {exit}"),
            (false, false) => format!("{entry} .. {exit}"),
        };
        if several {
            let file = read.get(of.read).map(|read| read.source.name.as_str()).unwrap_or_default();
            label = if label.is_empty() { file.to_owned() } else { format!("{label} in {file}") };
        }
        Some(Series::of(label, block))
    });
    let title = match names.first() {
        Some((entry, exit)) if one_block => format!("{entry} .. {exit}"),
        Some((entry, _)) if one_entry => format!("blocks from {entry}"),
        _ => "cycles of blocks".to_owned(),
    };
    Histogram {
        title,
        series: series.collect(),
        note: note(read),
        unit: None,
        log: args.log,
        bins: args.bins.map(usize::from),
    }
}

/// What a picture must say of the recordings: whose cycles they are, and what
/// was lost.
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
        said.push(format!("{} stacks lost", grouped(quality.lost_total())));
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

/// The exits of the blocks, where there are several to choose from.
fn exits(out: &mut Out<'_>, read: &mut [Read], chosen: &[Chosen]) -> std::io::Result<()> {
    if chosen.len() < 2 {
        return Ok(());
    }
    let all: u64 = chosen.iter().filter_map(|of| Some(of.block(read)?.count)).sum();
    let table = Table::<[Read], &Chosen>::new()
        .number("", "runs", |read, of| Cell::count(of.block(read).map(|block| block.count)))
        .number("", "share", move |read, of| {
            Cell::share(of.block(read).and_then(|block| share(block.count, all)))
        })
        .heat()
        .number("", "n", |read, of| Cell::count(of.block(read).map(|block| block.cycles.n())))
        .spare(1)
        .number("", "median", |read, of| {
            Cell::number(of.block(read).and_then(|block| block.cycles.quantile(0.5)))
        });
    named(table, " .. ").write_text(out, read, chosen.iter())?;
    out.gap()
}

/// Adds the two ends of a block and its recording, where there are several.
fn named<'a>(
    table: Table<'a, [Read], &'a Chosen>,
    joint: &'static str,
) -> Table<'a, [Read], &'a Chosen> {
    table
        .name("", "entry", |read, of| Cell::Name(of.ends(read).0))
        .name("", "exit", |read, of| Cell::Name(of.ends(read).1))
        .behind(joint)
        .name("", " ", |read, of| Cell::Name(of.file(read)))
        .behind("")
}

/// Says which blocks are not in the picture.
fn say_hidden(read: &[Read], chosen: &[Chosen]) {
    let hidden = chosen.get(select::MOST..).unwrap_or_default();
    if hidden.is_empty() {
        return;
    }
    let runs: u64 = hidden.iter().filter_map(|of| Some(of.block(read)?.count)).sum();
    say!(
        "the {} blocks with most runs are drawn; {} more, which ran {} times, are not (--to chooses; --json has all)",
        select::MOST,
        grouped(hidden.len() as u64),
        grouped(runs)
    );
}

fn print_json(
    out: &mut Out<'_>,
    args: &Hist,
    read: &mut [Read],
    of: &Chosen,
) -> std::io::Result<()> {
    let Some(read) = read.get_mut(of.read) else { return Ok(()) };
    let Flow { blocks, maps, quality, block_quality, .. } = &mut read.flow;
    let Some(block) = blocks.get(of.block) else { return Ok(()) };
    let table = report::block_table(block_quality.blocks, quality);
    let mut json = table.object(maps, &(of.block, block));
    let series = Series::of(String::new(), block);
    let most = args.bins.map_or(PICTURE_BINS, usize::from);
    let bins = Bins::of(std::slice::from_ref(&series), most, Gaps::Drawn);
    json["view"] = "hist".into();
    json["input"] = read.source.name.as_str().into();
    let software = quality.software > 0;
    json["software"] = software.into();
    json["modelled"] = (software || read.source.says_modelled()).into();
    json["dropped"] = series.dropped.into();
    json["bin_width"] = bins.as_ref().map(|bins| bins.width).into();
    json["beyond"] = bins.as_ref().map(|bins| bins.beyond.iter().sum::<u64>()).into();
    let bins = bins.map(|bins| {
        let bin = |bin: &crate::present::chart::Bin| {
            serde_json::json!({ "first": bin.first, "runs": bin.runs.iter().sum::<f64>() })
        };
        bins.bins.iter().map(bin).collect::<Vec<_>>()
    });
    json["bins"] = bins.into();
    json::value(out, &json)
}

/// Every cycle count of the blocks.
fn print_csv(out: &mut Out<'_>, read: &mut [Read], chosen: &[Chosen]) -> std::io::Result<()> {
    type Row = (Chosen, u32, u64);
    let ends = |of: &Chosen, read: &mut [Read]| {
        let Flow { blocks, maps, .. } = &mut read.get_mut(of.read)?.flow;
        let block = blocks.get(of.block)?;
        let entry = present::place::Place::of(maps, block.entry_location, block.entry);
        Some((entry, present::place::Place::of(maps, block.exit_location, block.exit)))
    };
    let table = Table::<[Read], Row>::new()
        .only("input", |read, (of, ..)| {
            Cell::or_absent(read.get(of.read), |read| Cell::Name(read.source.name.clone()))
        })
        .place("entry", "", Part::NAMES, move |read, (of, ..)| Some(ends(of, read)?.0))
        .place("exit", "", Part::NAMES, move |read, (of, ..)| Some(ends(of, read)?.1))
        .only("cycles", |_, (_, cycles, _)| Cell::Number(u64::from(*cycles)))
        .only("samples", |_, (.., samples)| Cell::Count(*samples))
        .only("rate", |read, (of, _, samples)| {
            Cell::share(of.block(read).and_then(|block| share(*samples, block.cycles.n())))
        });
    let cycles = |of: &Chosen| {
        let cycles = of.block(read).into_iter().flat_map(|block| block.cycles.iter());
        cycles.map(|(cycles, samples)| (*of, cycles, samples)).collect::<Vec<Row>>()
    };
    let rows: Vec<Row> = chosen.iter().flat_map(cycles).collect();
    out.modelled =
        read.iter().any(|read| Source::any_models_fields(std::slice::from_ref(&read.source)));
    table.write_csv(out, read, rows.into_iter())
}

fn print_quality(out: &mut Out<'_>, read: &[Read]) -> std::io::Result<()> {
    for read in read {
        let sources = std::slice::from_ref(&read.source);
        let mut json = flow_json(sources, &read.flow, &Totals::from(&read.flow));
        json["dso"] = read.rows.as_ref().map(Rows::json).into();
        json::value(out, &json)?;
    }
    Ok(())
}

/// A usage error.
fn usage(error: anyhow::Error) -> Failure {
    Failure { code: USAGE, error }
}
