//! The same code at many addresses: how much of its time is only layout.

use std::io;

use lab::measure::Options;

use super::TimeArgs;
use super::code::TimedCode;
use super::compare::{self, Side, no_difference};
use super::figures::number;
use crate::exit::{Result, done};
use crate::present::{Out, Printer, joined};

/// Bytes of a cache line, and of a page.
const LINE: u64 = 64;
const PAGE: u64 = 4096;

/// Offsets within a page: alignments in its first line, then in its last one.
fn offsets(alignments: u8) -> Vec<u64> {
    let count = u64::from(alignments);
    let within = |line: u64| (0..count).map(move |i| line + i * LINE / count);
    within(0).chain(within(PAGE - LINE)).collect()
}

/// Measures every piece of code at every offset, in turns, and prints how they differ.
pub(super) fn run(
    args: &TimeArgs,
    options: Options,
    codes: &[TimedCode],
    alignments: u8,
) -> Result {
    let offsets = offsets(alignments);
    let placed = codes.iter().flat_map(|code| offsets.iter().map(|at| code.at_page_offset(*at)));
    let mut placed: Vec<TimedCode> = placed.collect();
    // The counts are the same at every offset.
    let options = Options { stepped: options.stepped.min(1), stepped_iterations: 2, ..options };
    let (turns, mut sides) = compare::measure(args, options, &mut placed, offsets.len())?;
    let time = |side: &Side<'_>| if turns.in_cycles { side.cycles } else { side.ticks };
    let ranges = sides.chunks(offsets.len()).map(|sides| Range::new(sides, &offsets, time));
    let ranges: Vec<Option<Range>> = ranges.collect();
    let first = ranges.first().copied().flatten();
    for (sides, range) in sides.chunks_mut(offsets.len()).zip(&ranges).skip(1) {
        let verdict = verdict(sides.first().and_then(Side::verdict), *range, first);
        sides.iter_mut().for_each(|side| side.at_all_offsets = Some(verdict));
    }
    let mut out = Out::stdout();
    let printer = Printer::of(args.json, args.csv);
    if printer == Printer::Text {
        let unit = if turns.in_cycles { "core cycles" } else { "TSC ticks" };
        print(&mut out, &sides, &ranges, unit)?;
        turns.limits(&mut out)?;
        out.gap()?;
    }
    turns.table().write(printer, &mut out, &mut (), sides.iter())?;
    done(&mut out)
}

/// The fastest and the slowest time of a piece of code, each with its offset.
#[derive(Clone, Copy)]
struct Range {
    fastest: (f64, u64),
    slowest: (f64, u64),
}

impl Range {
    fn new(
        sides: &[Side<'_>],
        offsets: &[u64],
        time: impl Fn(&Side<'_>) -> Option<f64>,
    ) -> Option<Range> {
        let times = sides.iter().zip(offsets).filter_map(|(side, at)| Some((time(side)?, *at)));
        let fastest = times.clone().min_by(|a, b| a.0.total_cmp(&b.0))?;
        let slowest = times.max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Range { fastest, slowest })
    }
}

/// The verdict on a piece of code, compared with the first one. Offsets are arbitrary, so all times
/// of one have to be longer than all of the other.
fn verdict(
    at_first_offset: Option<&'static str>,
    range: Option<Range>,
    first: Option<Range>,
) -> &'static str {
    let (Some(range), Some(first)) = (range, first) else { return "not known" };
    match at_first_offset {
        None => "not known",
        Some("slower") if range.fastest.0 > first.slowest.0 => "slower",
        Some("faster") if range.slowest.0 < first.fastest.0 => "faster",
        Some("slower" | "faster") => "layout",
        Some(other) => other,
    }
}

/// A verdict in words; `interval` is of the ratio at the first offset.
fn answer(verdict: &str, offsets: usize, interval: Option<(f64, f64)>) -> String {
    match verdict {
        "slower" | "faster" => format!("is {verdict} at all {offsets} offsets"),
        "layout" => "differs no more than by layout".to_owned(),
        "not known" => "is not known".to_owned(),
        _ => no_difference(interval),
    }
}

/// The answer, and how far layout changes each.
fn print(
    out: &mut Out<'_>,
    sides: &[Side<'_>],
    ranges: &[Option<Range>],
    unit: &str,
) -> io::Result<()> {
    let each = (sides.len() / ranges.len().max(1)).max(1);
    let of = |range: &Option<Range>| match range {
        None => "no time".to_owned(),
        Some(Range { fastest, slowest }) => format!(
            "{} {unit} at page offset {:#x}, {} at {:#x}",
            number(fastest.0),
            fastest.1,
            number(slowest.0),
            slowest.1
        ),
    };
    if let [range] = ranges {
        let differs = sides.iter().any(|side| matches!(side.verdict(), Some("slower" | "faster")));
        let known = sides.iter().any(|side| !matches!(side.verdict(), None | Some("not known")));
        let spread = range.map_or(0.0, |range| range.slowest.0 / range.fastest.0 - 1.0);
        let answer = match (differs, known) {
            (true, _) => format!("layout changes it by up to {:.1}%", 100.0 * spread),
            (false, true) => "layout changes nothing that was seen".to_owned(),
            (false, false) => "the effect of layout is not known".to_owned(),
        };
        return out.line(format_args!("{answer}: {}", of(range)));
    }
    let pieces = || sides.chunks(each).filter_map(<[Side<'_>]>::first);
    let answers = pieces().filter_map(|side| {
        Some(format!("`{}` {}", side.label, answer(side.at_all_offsets?, each, side.interval())))
    });
    let first = pieces().next().map_or("", |side| &side.label);
    out.line(format_args!("compared with `{first}`: {}", joined(answers, ", ")))?;
    let ranges =
        pieces().zip(ranges).map(|(side, range)| format!("`{}` {}", side.label, of(range)));
    out.line(joined(ranges, "; "))
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/commands/time/layouts.rs"]
mod tests;
