//! Arguments that select samples and rows.

use std::sync::Arc;

use clap::Args;
use profile::Flow;
use profile::maps::{Location, LocationFilter, Maps};
use profile::select::{NotTimes, Selection, Times};
use serde::Serialize;

use crate::args::heading;
use crate::cpus::CpuList;
use crate::exit::{Result, usage};
use crate::input::Reading;
use crate::present::{grouped, joined, offered, part, summed};
use crate::symbols::SymbolArgs;

/// Selects samples. A sample without the selected property is skipped.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = heading::SELECTION)]
pub(crate) struct SelectArgs {
    /// Only samples of this event, such as cycles:u
    ///
    /// A name without modifiers selects all events of that name, unless one is called exactly so.
    #[arg(long, value_name = "NAME")]
    event: Vec<String>,
    /// Only samples of threads with this name
    ///
    /// The name is the one at the time of the sample. The recording is read twice for it; a pipe
    /// is copied to a temporary file first.
    #[arg(long, alias = "comms", value_name = "NAME", value_delimiter = ',')]
    comm: Vec<String>,
    /// Only samples of this process
    #[arg(long, value_name = "PID", value_delimiter = ',', allow_negative_numbers = true)]
    pid: Vec<i32>,
    /// Only samples of this thread
    #[arg(long, value_name = "TID", value_delimiter = ',', allow_negative_numbers = true)]
    tid: Vec<i32>,
    /// Only samples taken on these CPUs, such as 0-3,6
    #[arg(short = 'C', long, value_name = "LIST")]
    cpu: Option<CpuList>,
    /// Only samples in this time, in seconds, or 10%-20%
    ///
    /// Seconds are those that perf script prints. START or STOP may be empty. Separate several
    /// spans by spaces, in quotes. Percentages (also 10%/2, the second tenth) need a recording that
    /// has the times of its first and last sample.
    #[arg(long, value_name = "START,STOP", value_parser = spans)]
    time: Option<Box<[Times]>>,
    /// Read recordings of other users too, as perf's --force
    #[arg(short, long, help_heading = heading::INPUT, hide_short_help = true)]
    pub(crate) force: bool,
}

/// Reads `--time`.
pub(crate) fn spans(text: &str) -> Result<Box<[Times]>, NotTimes> {
    Times::parse(text).map(Vec::into_boxed_slice)
}

impl SelectArgs {
    /// The samples that count.
    pub(crate) fn selection(&self) -> Arc<Selection> {
        let numbers = |list: &[i32]| list.iter().map(|number| *number as u32).collect();
        Arc::new(Selection {
            events: self.event.iter().flat_map(|names| split(names)).collect(),
            comms: self.comm.clone(),
            pids: numbers(&self.pid),
            tids: numbers(&self.tid),
            cpus: self.cpu.as_ref().map(|list| list.cpus().to_vec()).unwrap_or_default(),
            times: self.time.as_ref().map(|spans| spans.to_vec()).unwrap_or_default(),
        })
    }

    /// How recordings are read.
    pub(crate) fn reading(&self, symbols: &SymbolArgs) -> Reading {
        let (selection, symbols) = (self.selection(), symbols.clone());
        Reading { selection, force: self.force, omit_modelled: false, symbols }
    }
}

/// Names of events with commas between them; those between slashes are part
/// of a name.
fn split(names: &str) -> Vec<String> {
    let mut inside = false;
    let is_end = |letter: char| {
        inside ^= letter == '/';
        letter == ',' && !inside
    };
    names.split(is_end).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Selects rows. All stacks are counted, whatever rows are shown: without some of its branches, a
/// stack would seem to have fall-through ranges that never ran. A branch belongs to the file and
/// function of its FROM, a block to those of the branch that ends it.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize)]
#[command(next_help_heading = heading::SELECTION)]
pub(crate) struct RowArgs {
    /// Only rows of this file, such as libc.so.6, or all
    ///
    /// `all` shows every file. A path, its last part, or `[kernel.kallsyms]`, `[vdso]`, `[unknown]`
    /// [default in text: the recorded program and its own libraries]. A branch belongs to the file
    /// of its FROM, a block to the file it ends in. Shares refer to all files, as in perf.
    #[arg(long, alias = "dsos", value_name = "NAME", value_delimiter = ',')]
    #[serde(rename = "names")]
    pub(crate) dso: Vec<String>,
    /// Only rows of these functions; * and ? are wildcards
    ///
    /// A name matches with or without parameters, template arguments, namespaces and compiler
    /// suffixes (.isra.0). An address means the function around it, or one instruction of code
    /// without symbols; FILE:FUNCTION and file.c:LINE are accepted too. A branch belongs to the
    /// function of its FROM. Shares refer to all functions. May be repeated.
    #[arg(long = "symbol", alias = "symbols", value_name = "GLOB")]
    pub(crate) symbols: Vec<String>,
    /// Only rows of the program's own files if neither is given.
    #[arg(skip)]
    #[serde(skip)]
    pub(crate) own: bool,
    /// Only branches of these types, where rows are branches.
    #[arg(skip)]
    #[serde(skip)]
    pub(crate) types: Vec<String>,
}

/// The value of `--dso` that selects every file.
pub(crate) const ALL: &str = "all";

/// The rows of some files and functions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rows {
    #[serde(flatten)]
    of_what: RowArgs,
    unit: &'static str,
    /// The count of these rows, and of all rows.
    count: u64,
    of: u64,
    rows: usize,
    all_rows: usize,
}

impl RowArgs {
    /// As given, but by default only rows of the program's own files.
    pub(crate) fn program_first(&self, own: bool) -> RowArgs {
        RowArgs { own, ..self.clone() }
    }

    /// The requested files; empty for all.
    pub(crate) fn files(&self) -> &[String] {
        if self.dso.iter().any(|name| name == ALL) { &[] } else { &self.dso }
    }

    /// Where to look first for the row to show: in the program's own files, unless files or
    /// functions are given.
    pub(crate) fn first(&self, maps: &Maps) -> LocationFilter {
        let own = (!self.any() && self.dso.is_empty()).then(|| LocationFilter::own(maps));
        own.flatten().unwrap_or_else(|| LocationFilter::files(maps, &[]))
    }

    /// Whether rows are selected by files or functions.
    pub(crate) fn any(&self) -> bool {
        !self.files().is_empty() || !self.symbols.is_empty()
    }

    /// The requested locations; `None` for all. `places` are the rows' locations with counts, for
    /// error messages that list known files.
    pub(crate) fn places(
        &self,
        maps: &mut Maps,
        places: impl Iterator<Item = (Location, u64)>,
    ) -> Result<Option<LocationFilter>> {
        if !self.any() {
            let own =
                (self.own && self.dso.is_empty()).then(|| LocationFilter::own(maps)).flatten();
            let Some(own) = own else { return Ok(None) };
            // Omits nothing if only one of the two would be left.
            let (mut inside, mut outside) = (false, false);
            for (place, _) in places {
                *if own.has(place) { &mut inside } else { &mut outside } = true;
            }
            return Ok(Some(own).filter(|_| inside && outside));
        }
        let within = LocationFilter::new(maps, self.files(), &self.symbols);
        let [missing, ..] = &*within.missing else { return Ok(Some(within)) };
        Err(if self.dso.contains(missing) {
            let are = files_of(maps, places);
            usage!("no file of the recording is called {missing:?}; rows are of {are}")
        } else {
            let instead = maps.instead_of(missing);
            usage!("no function of the recording is called {missing:?}{instead}")
        })
    }

    /// Drops the rows of other files and functions. `of` is the total of all rows.
    pub(crate) fn keep<T>(
        &self,
        maps: &mut Maps,
        rows: &mut Vec<T>,
        (of, unit): (u64, &'static str),
        look: impl Fn(&T) -> (Location, u64),
    ) -> Result<Option<Rows>> {
        let Some(within) = self.places(maps, rows.iter().map(&look))? else { return Ok(None) };
        let all_rows = rows.len();
        rows.retain(|row| within.has(look(row).0));
        let count = rows.iter().fold(0, |sum: u64, row| sum.saturating_add(look(row).1));
        Ok(Some(self.rows(unit, (count, of), (rows.len(), all_rows))))
    }

    /// Drops the blocks, or the branches, of files that were not requested.
    pub(crate) fn keep_flow(&self, flow: &mut Flow, blocks: bool) -> Result<Option<Rows>> {
        let Flow { sites, blocks: ran, maps, block_quality, taken, .. } = flow;
        if blocks {
            let all = (block_quality.blocks, "blocks");
            return self.keep(maps, ran, all, |block| (block.exit_location, block.count));
        }
        self.keep(maps, sites, (*taken, "branches"), |site| (site.location, site.taken))
    }

    /// The message about omitted rows.
    pub(crate) fn rows(
        &self,
        unit: &'static str,
        (count, of): (u64, u64),
        (rows, all_rows): (usize, usize),
    ) -> Rows {
        Rows { of_what: self.clone(), unit, count, of, rows, all_rows }
    }
}

impl Rows {
    pub(crate) fn line(&self) -> String {
        let Rows { of_what, unit, count, of, rows, all_rows } = self;
        let part_of = |count: u64, rows: usize| {
            let [rows, all_rows] = [rows, *all_rows].map(|rows| grouped(rows as u64));
            let (share, count, of) = (part(count, (*of).max(1)), grouped(count), grouped(*of));
            (format!("{count} of {of} {unit} ({share})"), format!("{rows} of {all_rows} rows"))
        };
        if !of_what.any() {
            let omitted = (of.saturating_sub(*count), all_rows.saturating_sub(*rows));
            let (counts, rows) = part_of(omitted.0, omitted.1);
            return format!(
                "omitted: {counts} outside the program's own files, {rows} (--dso all shows \
                 them); shares are of all"
            );
        }
        let (dso, symbols) = (of_what.files(), &of_what.symbols);
        let files = (!dso.is_empty()).then(|| dso.join(" or "));
        let functions =
            (!symbols.is_empty()).then(|| format!("functions {}", symbols.join(" or ")));
        let what = joined(functions.into_iter().chain(files), " in ");
        let (counts, rows) = part_of(*count, *rows);
        format!("rows of {what}: {counts}, {rows}; shares are of all")
    }
}

/// The files of some locations, the most frequent first.
fn files_of(maps: &Maps, places: impl Iterator<Item = (Location, u64)>) -> String {
    let mut counts = summed(places.map(|(at, count)| (LocationFilter::name_of(maps, at), count)));
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    offered(counts.into_iter().map(|(name, _)| name.to_owned()).collect())
}
