//! Filters: the options of a selection, one by one.

use std::cmp::Reverse;
use std::fmt::Display;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use profile::overview::Task;
use profile::select::{Selection, Times};

use crate::present::summed;
use crate::select::{RowArgs, SelectArgs};

/// Names, processes and threads that are listed, each.
const LISTED: usize = 20;

/// The selected samples and rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Filters {
    pub(super) selection: Arc<Selection>,
    /// Which rows are shown: by default those of the program's own files.
    pub(super) rows: RowArgs,
}

/// A filter by the name of its option, and one of its values.
pub(super) type Chip = (&'static str, String);

impl Filters {
    pub(super) fn of(select: &SelectArgs, rows: &RowArgs) -> Filters {
        Filters { selection: select.selection(), rows: rows.program_first(true) }
    }

    /// All of them.
    pub(super) fn chips(&self) -> Vec<Chip> {
        fn all<T: Display>(name: &'static str, list: &[T]) -> impl Iterator<Item = Chip> {
            list.iter().map(move |value| (name, value.to_string()))
        }
        let Selection { events, comms, pids, tids, cpus, times } = &*self.selection;
        let samples = all("event", events).chain(all("comm", comms)).chain(all("pid", pids));
        let samples = samples.chain(all("tid", tids)).chain(all("cpu", cpus));
        let samples = samples.chain(all("time", times));
        let rows = all("dso", &self.rows.dso).chain(all("symbol", &self.rows.symbols));
        samples.chain(rows).chain(all("type", &self.rows.types)).collect()
    }

    /// Takes one off.
    pub(super) fn remove(&mut self, (name, value): &Chip) {
        fn without<T: Display>(list: &mut Vec<T>, value: &str) {
            list.retain(|other| other.to_string() != value);
        }
        let Selection { events, comms, pids, tids, cpus, times } =
            Arc::make_mut(&mut self.selection);
        match *name {
            "event" => without(events, value),
            "comm" => without(comms, value),
            "pid" => without(pids, value),
            "tid" => without(tids, value),
            "cpu" => without(cpus, value),
            "time" => without(times, value),
            "dso" => without(&mut self.rows.dso, value),
            "type" => without(&mut self.rows.types, value),
            _ => without(&mut self.rows.symbols, value),
        }
    }

    /// Adds one as it is typed: `comm=cc1`.
    pub(super) fn add(&mut self, typed: &str) -> anyhow::Result<()> {
        let Some((name, value)) = typed.split_once('=').filter(|(_, value)| !value.is_empty())
        else {
            bail!("a filter is NAME=VALUE, such as comm=cc1 or dso=libc.so.6");
        };
        let text = value.to_owned();
        let number = || value.parse().map_err(|_| anyhow!("{name} is a number"));
        let Selection { events, comms, pids, tids, cpus, times } =
            Arc::make_mut(&mut self.selection);
        match name.trim() {
            "event" => events.push(text),
            "comm" => comms.push(text),
            "pid" => pids.push(number()?),
            "tid" => tids.push(number()?),
            "cpu" => cpus.push(number()?),
            "time" => times.append(&mut Times::parse(value)?),
            "dso" => {
                self.rows.dso.retain(|name| name != crate::select::ALL);
                self.rows.dso.push(text);
            }
            "symbol" => self.rows.symbols.push(text),
            "type" => self.rows.types.push(text.to_uppercase()),
            other => bail!(
                "unknown filter {other:?}: event, comm, pid, tid, cpu, time, dso, symbol or type"
            ),
        }
        Ok(())
    }
}

/// Filters for the names, processes and threads with most samples, and their samples.
pub(super) fn tasks(tasks: &[Task]) -> Vec<(String, u64)> {
    let mut found: Vec<(String, u64)> = Vec::new();
    let kinds: [fn(&Task) -> Option<String>; 3] = [
        |task| task.name.as_ref().map(|name| format!("comm={name}")),
        |task| task.pid.map(|pid| format!("pid={pid}")),
        |task| task.tid.filter(|tid| task.pid != Some(*tid)).map(|tid| format!("tid={tid}")),
    ];
    for kind in kinds {
        let mut sums = summed(tasks.iter().filter_map(|task| Some((kind(task)?, task.samples))));
        sums.sort_by_key(|(_, samples)| Reverse(*samples));
        found.extend(sums.into_iter().take(LISTED));
    }
    found
}
