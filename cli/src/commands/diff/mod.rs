//! `lbr diff`: changes from one build to the next.

mod print;
pub(crate) mod table;
mod trace;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use profile::compare::{self, By, Comparison, Looked, Measure, NotComparable, Row, Total};
use profile::maps::{LocationFilter, Maps};
use profile::select::Times;

use self::print::{html_page, print};
use crate::args::{heading, rows};
use crate::exit::{DIFFERS, DONE, Failure, OrExit, Result, USAGE, usage};
use crate::input::{self, Count, Recordings, Source};
use crate::output::Output;
use crate::present::joined;
use crate::select::{RowArgs, SelectArgs, spans};
use crate::symbols::{self, SymbolArgs};

/// The default significance level, in percent.
pub(crate) const LEVEL: f64 = 1.0;
/// perf's name of the recording before the last one.
const OLD: &str = "perf.data.old";

/// Compare two recordings: what changed from one build to the next
///
/// Examples:
///   lbr diff                         perf.data.old with perf.data
///   lbr diff old.data perf.data      the baseline comes first
///   lbr diff old.data perf.data --fail-above 5      for CI
///
/// Branches match by file offset if the build IDs are equal, otherwise by
/// function, and by line in functions with the same lines. Loops match by
/// their heads. Compared are the total, the share of all branches, the
/// misprediction rate, the median cycles of the block that ends at a branch,
/// and the trip counts of loops. The tests take stacks as units; Holm's
/// correction keeps the chance of any false positive below --level.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Diff {
    /// The baseline, then the recording to compare with it
    ///
    /// In any format that lbr report reads. One alone is compared with perf.data.old.
    /// [default: perf.data.old perf.data]
    #[arg(value_name = "FILE", num_args = 0..=2)]
    files: Vec<PathBuf>,
    /// Recordings of the baseline, counted together
    #[arg(long, value_name = "FILE", conflicts_with = "files", requires = "new",
          help_heading = heading::INPUT)]
    baseline: Vec<PathBuf>,
    /// Recordings to compare with it, counted together
    #[arg(long, value_name = "FILE", conflicts_with = "files", requires = "baseline",
          help_heading = heading::INPUT)]
    new: Vec<PathBuf>,
    #[command(flatten)]
    select: SelectArgs,
    /// --time of the baseline, if it differs
    #[arg(long, value_name = "START,STOP", value_parser = spans, help_heading = heading::SELECTION,
          hide_short_help = true)]
    baseline_time: Option<Box<[Times]>>,
    #[command(flatten)]
    shown: RowArgs,
    #[command(flatten)]
    symbols: SymbolArgs,
    /// Find where two complete recordings, or two commands, part
    ///
    /// Compares their control flow branch by branch, and exits with status 1 if it parts. --symbol
    /// limits it. Memory accesses are not seen.
    #[arg(long, conflicts_with_all = ["baseline", "html", "csv", "fail_above", "by"],
          help_heading = heading::VIEW)]
    trace: bool,
    /// Two commands to record: --trace -- PROG a -- PROG b
    #[arg(last = true, value_name = "CMD", requires = "trace", conflicts_with = "files", hide_short_help = true,
          help_heading = heading::INPUT)]
    commands: Vec<String>,
    /// How to match branches between the builds
    ///
    /// [default: offset if the build IDs are equal, otherwise line]
    #[arg(long, value_parser = by(), value_name = "BY", help_heading = heading::VIEW)]
    by: Option<By>,
    /// Significance level in percent (family-wise, Holm)
    #[arg(long, value_name = "PCT", default_value_t = LEVEL, value_parser = percentage,
          help_heading = heading::VIEW)]
    level: f64,
    /// Exit with status 6 if anything grew by more than PCT%
    ///
    /// The growth must also be significant: of the total, a share, a rate, cycles or trip counts.
    /// A new function grew from zero.
    #[arg(long, value_name = "PCT", value_parser = percentage, help_heading = heading::OUTPUT)]
    fail_above: Option<f64>,
    /// Print up to N rows; 0 is all [default: 25]
    ///
    /// With --json and --csv all rows, with --html 250.
    #[arg(short = 'n', long, value_name = "N", value_parser = rows, help_heading = heading::OUTPUT)]
    limit: Option<usize>,
    /// Write a page; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv"], help_heading = heading::OUTPUT)]
    html: Option<PathBuf>,
    /// Print JSON Lines
    ///
    /// One object a row (`"view":"diff"`), then one with the totals.
    #[arg(long, help_heading = heading::OUTPUT)]
    json: bool,
    /// Print comma-separated values, with the keys of --json
    #[arg(long, conflicts_with = "json", help_heading = heading::OUTPUT)]
    csv: bool,
}

fn by() -> impl TypedValueParser<Value = By> {
    PossibleValuesParser::new(["function", "line", "offset"]).map(|name| match &*name {
        "function" => By::Function,
        "line" => By::Line,
        _ => By::Offset,
    })
}

fn percentage(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end().parse().ok();
    number
        .filter(|number: &f64| number.is_finite() && *number >= 0.0)
        .ok_or_else(|| "a number of percent, 0 or more".to_owned())
}

/// The recordings of one side, and the results of reading them once.
struct Side {
    sources: Vec<Source>,
    looked: Looked,
}

/// The two sides and their comparison.
pub(crate) struct Compared {
    sides: [Side; 2],
    pub(crate) comparison: Comparison,
    total: Result<Total, NotComparable>,
    /// 0.01 is 1%.
    level: f64,
}

/// The symbol tables of each side.
pub(crate) struct Names {
    branches: [Maps; 2],
    loops: [Maps; 2],
}

impl Names {
    /// The tables of a row's place in the new recording, otherwise in the baseline.
    pub(crate) fn of(&self, row: &Row) -> &Maps {
        let of = if is_loop(row) { &self.loops } else { &self.branches };
        &of[usize::from(row.after.is_some())]
    }

    fn of_mut(&mut self, row: &Row) -> &mut Maps {
        let of = if is_loop(row) { &mut self.loops } else { &mut self.branches };
        &mut of[usize::from(row.after.is_some())]
    }
}

pub(crate) fn is_loop(row: &Row) -> bool {
    row.change(Measure::Trips).is_some()
}

pub(crate) fn run(args: &Diff) -> Result {
    if args.trace {
        return trace::run(args);
    }
    let [before, after] = args.sides();
    let both: Vec<&PathBuf> = before.iter().chain(&after).collect();
    let inputs = || both.iter().copied().chain(args.symbols.files());
    let output = args.html.as_ref().map(|path| Output::new(path, inputs())).transpose()?;
    if both.iter().filter(|path| **path == Path::new("-")).count() > 1 {
        return Err(usage!("standard input (-) can be read once only"));
    }
    args.baseline_is_here().or_exit(USAGE)?;
    let reading = args.select.reading(&args.symbols);
    let mut baseline = reading.clone();
    if let Some(spans) = &args.baseline_time {
        Arc::make_mut(&mut baseline.selection).times = spans.to_vec();
    }
    let recordings = [Recordings::reread(&before, baseline)?, Recordings::reread(&after, reading)?];
    let (compared, mut names) =
        compare(recordings.each_ref(), args.by, &args.shown, args.level / 100.0)?;
    match output {
        Some(output) => output.write(html_page(args, &compared, &mut names))?,
        None => print(args, &compared, &mut names)?,
    }
    compared.sides.iter().flat_map(|side| &side.sources).for_each(input::warn);
    symbols::warn(&names.branches.each_ref());
    Ok(if args.fail_above.is_some_and(|above| compared.grew(above) > 0) { DIFFERS } else { DONE })
}

impl Diff {
    /// The recordings of the baseline, and those compared with it.
    fn sides(&self) -> [Vec<PathBuf>; 2] {
        let old = || vec![PathBuf::from(OLD)];
        match self.files.as_slice() {
            _ if !self.baseline.is_empty() => [self.baseline.clone(), self.new.clone()],
            [] => [old(), vec![PathBuf::from("perf.data")]],
            [one] => [old(), vec![one.clone()]],
            [before, after, ..] => [vec![before.clone()], vec![after.clone()]],
        }
    }

    /// Refuses a missing default baseline.
    fn baseline_is_here(&self) -> anyhow::Result<()> {
        let is_default = self.baseline.is_empty() && self.files.len() < 2;
        if !is_default || Path::new(OLD).exists() {
            return Ok(());
        }
        let new = self.files.first().map_or("perf.data".into(), |path| input::name(path));
        bail!(
            "no {OLD} here to compare {new} with: name the baseline first \
             (lbr diff BASELINE {new})"
        )
    }
}

/// Reads both sides, and compares them. A `level` of 0.01 is 1%.
pub(crate) fn compare(
    sides: [&impl Count; 2],
    by: Option<By>,
    shown: &RowArgs,
    level: f64,
) -> Result<(Compared, Names)> {
    let look = |side: usize| {
        let (looked, sources) = sides[side].count(compare::looker())?;
        Ok::<_, Failure>(Side { sources, looked })
    };
    let (mut a, mut b) = (look(0)?, look(1)?);
    refuse(&a, &b).or_exit(USAGE)?;
    let rows = compare::rows(&mut a.looked, &mut b.looked, by);
    let count = |looked: &mut Looked, side: usize| {
        sides[side].count(compare::counter(looked, &rows, side)).map(|(counted, _)| counted)
    };
    let (counted_a, maps_a) = count(&mut a.looked, 0)?;
    let (counted_b, maps_b) = count(&mut b.looked, 1)?;
    let ((mut loops_a, _), (mut loops_b, _)) = (sides[0].loops()?, sides[1].loops()?);
    let total = total(&a, &b);
    let files = rows.files.clone();
    let mut comparison = Comparison::of(rows, &counted_a, &counted_b);
    comparison.add_loops(&mut loops_a, &mut loops_b, by);
    let mut names = Names { branches: [maps_a, maps_b], loops: [loops_a.maps, loops_b.maps] };
    keep(shown, &mut comparison.rows, &mut names, &files)?;
    comparison.test(level);
    Ok((Compared { sides: [a, b], comparison, total, level }, names))
}

/// The events of a side, without modifiers, which only restrict the privilege level.
fn events(side: &Side) -> Vec<String> {
    let names = side.sources.iter().flat_map(Source::events);
    let mut names: Vec<String> = names
        .map(|event| event.name.split(':').next().unwrap_or_default().to_owned())
        .filter(|name| !name.is_empty())
        .collect();
    names.sort();
    names.dedup();
    names
}

fn total(a: &Side, b: &Side) -> Result<Total, NotComparable> {
    let recordings = [a, b].map(|side| side.sources.len() as u64);
    let one_event = [a, b].iter().all(|side| events(side).len() == 1);
    Total::of([&a.looked, &b.looked], recordings, one_event)
}

/// Refuses what cannot be compared.
fn refuse(a: &Side, b: &Side) -> anyhow::Result<()> {
    let name = |side: &Side| joined(side.sources.iter().map(|source| &source.name), ", ");
    for side in [a, b] {
        if side.looked.taken == 0 {
            let name = name(side);
            let what = if side.looked.quality.samples == 0 { "sample counts" } else { "branches" };
            bail!("{name}: no {what}: there is nothing to compare");
        }
    }
    let (of_a, of_b) = (events(a), events(b));
    if !of_a.is_empty() && !of_b.is_empty() && of_a != of_b {
        bail!(
            "{} has samples of {} and {} of {}: recordings sampled on different events cannot be \
             compared (--event NAME selects one)",
            name(a),
            of_a.join(", "),
            name(b),
            of_b.join(", ")
        );
    }
    for (one, other) in [(a, b), (b, a)] {
        if one.looked.quality.software > 0 && other.looked.quality.software == 0 {
            let (one, other) = (name(one), name(other));
            bail!("{one} is of a software LBR, and {other} is not");
        }
        if one.looked.gaps.filtered > 0 && other.looked.gaps.filtered == 0 {
            let (one, other) = (name(one), name(other));
            bail!(
                "{one} was recorded with a branch filter, {other} was not: their shares cannot be \
                 compared"
            );
        }
    }
    Ok(())
}

impl Compared {
    fn count(&self, is: impl Fn(&Row) -> bool) -> u64 {
        self.comparison.rows.iter().filter(|row| is(row)).count() as u64
    }

    /// Rows without loops, whose heads are such places too.
    fn places(&self, is: impl Fn(&Row) -> bool) -> u64 {
        self.count(|row| !is_loop(row) && is(row))
    }

    /// Number of rows that grew by more than `above` percent; the total counts as one.
    fn grew(&self, above: f64) -> u64 {
        let rows = self.count(|row| {
            let mut changes = row.changes.iter().filter(|change| change.is_worse());
            changes.any(|change| change.relative().is_none_or(|more| more * 100.0 > above))
        });
        rows + u64::from(self.total_grew(above))
    }

    /// Whether the total grew significantly and by more than `above` percent.
    fn total_grew(&self, above: f64) -> bool {
        let is = |total: &Total| total.p <= self.level && total.relative() * 100.0 > above;
        self.total.as_ref().is_ok_and(is)
    }

    /// Whether both sides recorded it.
    fn has(&self, measure: Measure) -> bool {
        let has = |side: &Side| match measure {
            Measure::Mispredict => side.looked.known > 0,
            Measure::Cycles => side.looked.timed > 0,
            Measure::Share | Measure::Trips => true,
        };
        self.sides.iter().all(has)
    }

    /// The measures of branches that both sides recorded.
    pub(crate) fn measures(&self) -> Vec<Measure> {
        let measures = [Measure::Share, Measure::Mispredict, Measure::Cycles];
        measures.into_iter().filter(|one| self.has(*one)).collect()
    }
}

/// Drops rows of files and functions that were not requested. `files` are the pairs of files that
/// both sides have: the name of either selects both.
fn keep(
    shown: &RowArgs,
    rows: &mut Vec<Row>,
    names: &mut Names,
    files: &[[String; 2]],
) -> Result<()> {
    if !shown.any() {
        return Ok(());
    }
    let sides = on_each_side(shown, &names.branches, files);
    let mut within = |side: usize, loops: bool| {
        let of = |row: &Row| if side == 0 { row.before.clone() } else { row.after.clone() };
        let places = rows.iter().filter(|row| is_loop(row) == loops).filter_map(of);
        let maps = if loops { &mut names.loops } else { &mut names.branches };
        sides[side].places(&mut maps[side], places.map(|place| (place.location, place.count)))
    };
    let branches = [within(0, false), within(1, false)];
    let heads = [within(0, true).ok().flatten(), within(1, true).ok().flatten()];
    // One side lacks places that are gone or new.
    let branches = match branches {
        [Err(error), Err(_)] => return Err(error),
        sides => sides.map(|side| side.ok().flatten()),
    };
    rows.retain(|row| {
        let within = if is_loop(row) { &heads } else { &branches };
        within.iter().zip([&row.before, &row.after]).any(|(within, side)| {
            matches!((within, side), (Some(within), Some(side)) if within.has(side.location))
        })
    });
    Ok(())
}

/// The requested rows, by the names of each side's files.
fn on_each_side(shown: &RowArgs, maps: &[Maps; 2], files: &[[String; 2]]) -> [RowArgs; 2] {
    let named = |side: usize, name: &String| {
        let maps = &maps[side];
        let within = LocationFilter::files(maps, std::slice::from_ref(name));
        let named = maps.files().filter(|file| within.has_file(*file));
        named.filter_map(|file| maps.path(file)).map(str::to_owned).collect::<Vec<_>>()
    };
    [0, 1].map(|side| {
        let other = 1 - side;
        let mut names: Vec<String> = Vec::new();
        for name in shown.files() {
            if LocationFilter::files(&maps[side], std::slice::from_ref(name)).missing.is_empty() {
                names.push(name.clone());
            }
            let there = named(other, name);
            let pairs = files.iter().filter(|pair| there.contains(&pair[other]));
            names.extend(pairs.map(|pair| pair[side].clone()));
        }
        // A name that neither side has is an error, which needs the name.
        let dso = if names.is_empty() { shown.files().to_vec() } else { names };
        RowArgs { dso, ..shown.clone() }
    })
}
