//! Options of `perf record`: accepted if they mean the same here, otherwise the error names lbr's.

use std::fs;
use std::str::FromStr;

use clap::Args;

use super::Record;
use crate::commands::machine::MachineArgs;
use crate::exit::{OrExit, Result, USAGE, usage};

/// Options of `perf record`.
#[derive(Debug, Args)]
#[command(next_help_heading = "As in perf record")]
pub(super) struct PerfSpelling {
    /// Record any branch; the default
    #[arg(short = 'b', long, conflicts_with = "filter", hide_short_help = true)]
    branch_any: bool,

    /// branches, branches:u or branches:k: user or kernel branches, as u and k in -j
    #[arg(short = 'e', long, value_name = "EVENT", hide_short_help = true)]
    event: Option<String>,

    /// lbr: call stacks by the LBR, as -j stack,u
    #[arg(long, value_name = "MODE", conflicts_with = "filter", hide_short_help = true)]
    call_graph: Option<String>,

    /// Record all CPUs, as -C with all of them
    #[arg(short = 'a', long, conflicts_with_all = ["cpu", "pid"], hide_short_help = true)]
    all_cpus: bool,

    /// Do not record child processes; the default
    #[arg(short = 'i', long, conflicts_with = "children", hide_short_help = true)]
    no_inherit: bool,

    #[arg(short = 'g', hide = true)]
    frame_pointers: bool,

    #[arg(short = 't', long, value_name = "TID", hide = true)]
    tid: Option<String>,
}

/// Stacks per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rate {
    /// This many.
    Hz(u32),
    /// The maximum that the kernel allows.
    Max,
}

/// The highest rate that is accepted, per second.
const MOST_HZ: u32 = 1_000_000;
/// Linux's default of kernel.perf_event_max_sample_rate.
const USUAL_MOST_HZ: u32 = 100_000;

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        if text == "max" {
            return Ok(Rate::Max);
        }
        let hz = text.parse().ok().filter(|hz| (1..=MOST_HZ).contains(hz));
        hz.map(Rate::Hz)
            .ok_or_else(|| format!("not a rate: give 1 to {MOST_HZ} per second, or max"))
    }
}

/// A process's number.
pub(super) fn pid(text: &str) -> Result<u32, String> {
    let pid = text.parse().ok().filter(|pid| *pid > 0);
    pid.ok_or_else(|| "not a process: give the number of one".to_owned())
}

impl Record {
    /// Stacks per second, if a rate was given.
    pub(super) fn hz(&self) -> Option<u32> {
        Some(match self.freq? {
            Rate::Hz(hz) => hz,
            Rate::Max => {
                let root = MachineArgs::from(self.host.clone()).root();
                let limit =
                    fs::read_to_string(root.join("proc/sys/kernel/perf_event_max_sample_rate"));
                let limit = limit.ok().and_then(|text| text.trim().parse().ok());
                limit.unwrap_or(USUAL_MOST_HZ).clamp(1, MOST_HZ)
            }
        })
    }

    /// Translates perf's options into lbr's.
    pub(super) fn resolve_spelling(&mut self) -> Result<()> {
        let spelling = &self.spelling;
        if spelling.frame_pointers {
            return Err(usage!(
                "-g: lbr walks no frame pointers; --call-graph lbr (or -j stack,u) records call \
                 stacks by the LBR"
            ));
        }
        if spelling.tid.is_some() {
            return Err(usage!("-t: lbr records whole processes: -p PID"));
        }
        if let Some(mode) = &spelling.call_graph {
            if mode != "lbr" {
                return Err(usage!(
                    "--call-graph {mode}: lbr records call stacks by the LBR alone: --call-graph \
                     lbr, or -j stack,u"
                ));
            }
            "stack,u".clone_into(&mut self.filter);
        }
        if let Some(event) = &spelling.event {
            let rings = rings(event).or_exit(USAGE)?;
            self.filter = with_rings(&self.filter, rings);
        }
        if spelling.all_cpus {
            if !self.command.is_empty() {
                return Err(usage!(
                    "-a: lbr records all CPUs without a program, for a time: lbr record -a --for \
                     MS"
                ));
            }
            let root = MachineArgs::from(self.host.clone()).root();
            self.cpu = Some(root.online().parse().or_exit(USAGE)?);
        }
        Ok(())
    }
}

/// perf's names of the event that lbr samples by.
const BRANCHES: [&str; 4] =
    ["branches", "branch-instructions", "cpu/branches/", "cpu/branch-instructions/"];

/// The rings that an event's modifiers name.
fn rings(event: &str) -> anyhow::Result<&str> {
    let (name, modifiers) = match event.rsplit_once(['/', ':']) {
        Some((before, after)) => (event.get(..=before.len()).unwrap_or(event), after),
        None => (event, ""),
    };
    if !BRANCHES.contains(&name.trim_end_matches(':')) {
        anyhow::bail!(
            "-e {event}: lbr samples by branches, not by other events; drop -e, and give the rate \
             with -F or -c"
        );
    }
    if !modifiers.bytes().all(|modifier| matches!(modifier, b'u' | b'k')) {
        anyhow::bail!("-e {event}: lbr takes the modifiers u and k: -e branches:u");
    }
    Ok(modifiers)
}

/// A filter with these rings, if it names none, or if it is the default.
fn with_rings(filter: &str, rings: &str) -> String {
    let is_default = filter == super::FILTER;
    let names_one = |word: &str| ["u", "k", "user", "kernel"].contains(&word);
    if rings.is_empty() || !is_default && filter.split(',').any(names_one) {
        return filter.to_owned();
    }
    let types = if is_default { if rings == "u" { "any,no_far" } else { "any" } } else { filter };
    rings.chars().fold(types.to_owned(), |filter, ring| format!("{filter},{ring}"))
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/commands/record/spelling.rs"]
mod tests;
