//! Which samples and which rows count, as arguments.

use std::sync::Arc;

use anyhow::anyhow;
use clap::Args;
use profile::Flow;
use profile::maps::{Location, LocationFilter, Maps};
use profile::select::{NotTimes, Selection, Times};
use serde_json::{Value, json};

use crate::commands::cpus::CpuList;
use crate::exit::{Failure, USAGE};
use crate::input::Reading;
use crate::present::number::{grouped, part};

/// Names that are offered where none is as asked for.
const OFFERED: usize = 8;

/// Which samples count. One that does not say what is asked for is left out.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Selection")]
pub(crate) struct SelectArgs {
    /// Only samples of this event, by perf's name (branch-misses, cycles:u,
    /// cpu_core/cycles/); without modifiers all events of that name, unless one
    /// is called exactly so.
    #[arg(long, value_name = "NAME")]
    event: Vec<String>,
    /// Only samples of threads that had this name when the sample was taken. To
    /// know the names a recording is read twice: one from a pipe is copied first.
    #[arg(long, visible_alias = "comms", value_name = "NAME", value_delimiter = ',')]
    comm: Vec<String>,
    /// Only samples of this process.
    #[arg(long, value_name = "PID", value_delimiter = ',', allow_negative_numbers = true)]
    pid: Vec<i32>,
    /// Only samples of this thread.
    #[arg(long, value_name = "TID", value_delimiter = ',', allow_negative_numbers = true)]
    tid: Vec<i32>,
    /// Only samples taken on these CPUs, such as 0-3,6.
    #[arg(short = 'C', long, value_name = "LIST")]
    cpu: Option<CpuList>,
    /// Only samples from START to STOP, in seconds as perf script prints them;
    /// either may be missing, several stand in quotes with blanks between them.
    /// Also 10%-20%, or 10%/2 for the second tenth, where the recording says
    /// when its first and last sample were taken.
    #[arg(long, value_name = "START,STOP", value_parser = spans)]
    time: Option<Spans>,
    /// Read recordings that belong to another user too, as perf's --force.
    #[arg(short, long)]
    force: bool,
    /// Threads that read and count [default: one for each CPU that may be used]. What
    /// comes out is the same: text is parsed in all of them; of perf.data the branches
    /// (view hot) and blocks are counted in all, where nobody says it from 512 MiB on,
    /// every other view in one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// Times, as an argument.
#[derive(Clone, Debug)]
pub(crate) struct Spans(pub(crate) Vec<Times>);

/// Reads `--time`.
pub(crate) fn spans(text: &str) -> Result<Spans, NotTimes> {
    Times::parse(text).map(Spans)
}

impl SelectArgs {
    /// How recordings are read, and which of their samples count.
    pub(crate) fn reading(&self) -> Reading {
        let numbers = |list: &[i32]| list.iter().map(|number| *number as u32).collect();
        let selection = Selection {
            events: self.event.iter().flat_map(|names| split(names)).collect(),
            comms: self.comm.clone(),
            pids: numbers(&self.pid),
            tids: numbers(&self.tid),
            cpus: self.cpu.as_ref().map(|list| list.cpus().to_vec()).unwrap_or_default(),
            times: self.time.as_ref().map(|spans| spans.0.clone()).unwrap_or_default(),
        };
        let threads = self.threads.map(usize::from);
        Reading { selection: Arc::new(selection), force: self.force, threads, omit_modelled: false }
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

/// The first few names, each once.
pub(crate) fn offered(names: Vec<String>) -> String {
    let mut once: Vec<String> = Vec::new();
    for name in names {
        if !once.contains(&name) {
            once.push(name);
        }
    }
    let more = once.len().saturating_sub(OFFERED);
    once.truncate(OFFERED);
    let more = if more > 0 { format!(" and {} more", grouped(more as u64)) } else { String::new() };
    once.join(", ") + &more
}

/// Which rows are shown. Every stack was counted as a whole: without some of
/// its branches, code would seem to have run between others. A branch is of the
/// file and the function that it stands in, whose code decided to take it, and a
/// block of those that the branch at its end stands in.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Selection")]
pub(crate) struct RowArgs {
    /// Only rows of this file: a path, its last part (libc.so.6), or
    /// `[kernel.kallsyms]`, `[vdso]`, `[unknown]`; `all` shows every file [default in
    /// text: the recorded program and its own libraries]. A branch belongs to the file of its
    /// FROM, and a block ends in its own. Shares stay of all files, as in perf.
    #[arg(long, visible_alias = "dsos", value_name = "NAME", value_delimiter = ',')]
    dso: Vec<String>,
    /// Only rows of these functions: a name, whole or without parameters, template
    /// arguments, namespaces and what compilers put behind it (.isra.0); * and ?
    /// stand for what may be any. FILE+0xOFFSET is one instruction of code without symbols.
    /// A branch belongs to the function of its FROM.
    /// Shares stay of all. Several may be given.
    #[arg(long = "symbol", visible_alias = "symbols", value_name = "GLOB")]
    symbols: Vec<String>,
    /// Only rows of the program's own files if neither is given.
    #[arg(skip)]
    own: bool,
}

/// The name that stands for every file.
pub(crate) const ALL: &str = "all";

/// The rows of some files and functions.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    of_what: RowArgs,
    unit: &'static str,
    /// What they count together, and what all rows do.
    count: u64,
    of: u64,
    rows: usize,
    all_rows: usize,
}

impl RowArgs {
    /// The files and functions that were asked for.
    pub(crate) fn names(&self) -> (&[String], &[String]) {
        (&self.dso, &self.symbols)
    }

    /// Rows of some files.
    pub(crate) fn of_files(names: &[String]) -> RowArgs {
        RowArgs { dso: names.to_vec(), ..RowArgs::default() }
    }

    /// The same, but without names only rows of the program's own files.
    pub(crate) fn program_first(&self, own: bool) -> RowArgs {
        RowArgs { own, ..self.clone() }
    }

    /// The files that are asked for; empty if all are.
    pub(crate) fn files(&self) -> &[String] {
        if self.dso.iter().any(|name| name == ALL) { &[] } else { &self.dso }
    }

    /// The same functions in other files.
    pub(crate) fn with_files(&self, names: Vec<String>) -> RowArgs {
        RowArgs { dso: names, ..self.clone() }
    }

    /// Whether rows are asked for by their files or functions.
    pub(crate) fn any(&self) -> bool {
        !self.files().is_empty() || !self.symbols.is_empty()
    }

    /// The places that are asked for; `None` for all. `places` are those of the
    /// rows, with their counts, for who asks for a file that there is not.
    pub(crate) fn places(
        &self,
        maps: &mut Maps,
        places: impl Iterator<Item = (Location, u64)>,
    ) -> Result<Option<LocationFilter>, Failure> {
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
        let [missing, ..] = within.missing() else { return Ok(Some(within)) };
        let error = if self.dso.contains(missing) {
            let are = files_of(maps, places);
            anyhow!("no file of the recording is called {missing:?}; rows are of {are}")
        } else {
            let instead = maps.instead_of(missing);
            anyhow!("no function of the recording is called {missing:?}{instead}")
        };
        Err(Failure { code: USAGE, error })
    }

    /// Leaves out the rows of other files and functions. `of` is what all rows count.
    pub(crate) fn keep<T>(
        &self,
        maps: &mut Maps,
        rows: &mut Vec<T>,
        (of, unit): (u64, &'static str),
        look: impl Fn(&T) -> (Location, u64),
    ) -> Result<Option<Rows>, Failure> {
        let Some(within) = self.places(maps, rows.iter().map(&look))? else { return Ok(None) };
        let all_rows = rows.len();
        rows.retain(|row| within.has(look(row).0));
        let count = rows.iter().fold(0, |sum: u64, row| sum.saturating_add(look(row).1));
        Ok(Some(self.rows(unit, (count, of), (rows.len(), all_rows))))
    }

    /// Leaves out the blocks, or the branches, of other files than those asked for.
    pub(crate) fn keep_flow(&self, flow: &mut Flow, blocks: bool) -> Result<Option<Rows>, Failure> {
        let Flow { sites, blocks: ran, maps, block_quality, taken, .. } = flow;
        if blocks {
            let all = (block_quality.blocks, "blocks");
            return self.keep(maps, ran, all, |block| (block.exit_location, block.count));
        }
        self.keep(maps, sites, (*taken, "branches"), |site| (site.location, site.taken))
    }

    /// What is said of rows that were left out.
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
    /// In a line.
    pub(crate) fn line(&self) -> String {
        let Rows { of_what, unit, count, of, rows, all_rows } = self;
        if !of_what.any() {
            let rest = of.saturating_sub(*count);
            return format!(
                "omitted: {} of {} {unit} ({}) outside the program's own files, {} of {} rows \
                 (--dso all shows them); shares are of all",
                grouped(rest),
                grouped(*of),
                part(rest, (*of).max(1)),
                grouped(all_rows.saturating_sub(*rows) as u64),
                grouped(*all_rows as u64),
            );
        }
        let (dso, symbols) = (of_what.files(), &of_what.symbols);
        let files = (!dso.is_empty()).then(|| dso.join(" or "));
        let functions =
            (!symbols.is_empty()).then(|| format!("functions {}", symbols.join(" or ")));
        let what: Vec<String> = functions.into_iter().chain(files).collect();
        format!(
            "rows of {}: {} of {} {unit} ({}), {} of {} rows; shares are of all",
            what.join(" in "),
            grouped(*count),
            grouped(*of),
            part(*count, (*of).max(1)),
            grouped(*rows as u64),
            grouped(*all_rows as u64),
        )
    }

    /// In JSON.
    pub(crate) fn json(&self) -> Value {
        json!({
            "names": self.of_what.dso,
            "symbols": self.of_what.symbols,
            "unit": self.unit,
            "count": self.count,
            "of": self.of,
            "rows": self.rows,
            "all_rows": self.all_rows,
        })
    }
}

/// The files of some places, those of the most first.
fn files_of(maps: &Maps, places: impl Iterator<Item = (Location, u64)>) -> String {
    let mut counts: Vec<(&str, u64)> = Vec::new();
    for (location, count) in places {
        let name = LocationFilter::name_of(maps, location);
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => counts.push((name, count)),
        }
    }
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    offered(counts.into_iter().map(|(name, _)| name.to_owned()).collect())
}
