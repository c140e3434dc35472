//! Perf support as the kernel's files describe it, without opening an event.

use std::{fs, io};

use lbr_msr::BranchFilter;
use lbr_msr::access::Root;
use lbr_msr::environment::capabilities;
use nix::libc;

use super::open::EventRequest;
use super::refused::Refused;
use crate::config::Sampling;

/// CAP_SYS_ADMIN and CAP_PERFMON, each of which overrides the paranoid level. capabilities(7).
const PRIVILEGED: u64 = 1 << 21 | 1 << 38;

/// A PMU of the kernel: the performance counters of CPUs of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// PERF_TYPE of its events if the CPUs differ; 0 if they are alike and generic events work.
    pub(super) kind: u32,
    /// Its CPUs, as a list of ranges; `None`: all.
    cpus: Option<String>,
    /// Depth of a branch stack, 0 for none; `None` if the kernel does not report it (Linux before
    /// 4.14, and on AMD before 5.19).
    pub branches: Option<u32>,
    /// Whether programs may read their counters with RDPMC.
    pub rdpmc: bool,
}

impl Monitor {
    /// Whether a CPU belongs to it.
    pub(super) fn is_of(&self, cpu: u32) -> bool {
        let holds = |range: &str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.trim().parse::<u32>().ok();
            number(first)
                .zip(number(last))
                .is_some_and(|(first, last)| (first..=last).contains(&cpu))
        };
        self.cpus.as_ref().is_none_or(|list| list.split(',').any(holds))
    }
}

/// The system's limits for perf events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The PMUs; `None` if the kernel lists no event sources at all.
    pub monitors: Option<Vec<Monitor>>,
    /// `kernel.perf_event_paranoid`.
    pub level: Option<i32>,
    /// Whether this process may ignore that level; `None` if unknown.
    pub privileged: Option<bool>,
    /// `kernel.perf_event_max_sample_rate`.
    pub most_hz: Option<u32>,
}

impl Host {
    /// Reads the files.
    pub fn look(root: &Root) -> Host {
        let read = |path: &str| fs::read_to_string(root.join(path)).ok();
        let sources = "sys/bus/event_source/devices";
        let monitors = fs::read_dir(root.join(sources)).ok().map(|found| {
            let mut names: Vec<String> =
                found.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
            names.retain(|name| name == "cpu" || name.starts_with("cpu_"));
            names.sort();
            let monitors = names.iter().map(|name| {
                let of =
                    |file: &str| Some(read(&format!("{sources}/{name}/{file}"))?.trim().to_owned());
                let kind = match name.as_str() {
                    "cpu" => 0,
                    _ => of("type").and_then(|text| text.parse().ok()).unwrap_or(0),
                };
                // A kernel that lists a PMU's capabilities includes this one.
                let says = root.join(&format!("{sources}/{name}/caps")).is_dir();
                let branches = of("caps/branches").and_then(|text| text.parse().ok());
                let branches = branches.or(says.then_some(0));
                let rdpmc = of("rdpmc").is_none_or(|text| text != "0");
                Monitor { kind, cpus: of("cpus"), branches, rdpmc }
            });
            // A PMU for a kind of CPU that is absent.
            monitors.filter(|monitor| monitor.cpus.as_deref() != Some("")).collect()
        });
        let number = |path: &str| read(path)?.trim().parse::<i64>().ok();
        let level = number("proc/sys/kernel/perf_event_paranoid");
        let most_hz = number("proc/sys/kernel/perf_event_max_sample_rate");
        Host {
            monitors,
            level: level.and_then(|level| i32::try_from(level).ok()),
            privileged: capabilities(root).map(|held| held & PRIVILEGED != 0),
            most_hz: most_hz.and_then(|hz| u32::try_from(hz).ok()),
        }
    }

    /// Depth of the deepest branch stack; `None` if unknown.
    pub fn branches(&self) -> Option<u32> {
        self.monitors.as_ref()?.iter().filter_map(|monitor| monitor.branches).max()
    }

    /// Checks what the files alone forbid: no counters, none with branch stacks, or a paranoid
    /// level that excludes ordinary users.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn allows(&self, filter: BranchFilter, whole_cpus: bool) -> Result<(), Refused> {
        if self.monitors.as_ref().is_some_and(|monitors| !monitors.is_empty())
            && self.branches() == Some(0)
        {
            return Err(Refused::NoStacks);
        }
        self.permits(filter, whole_cpus)
    }

    /// The same check for counters only.
    pub(super) fn permits(&self, filter: BranchFilter, whole_cpus: bool) -> Result<(), Refused> {
        if self.monitors.as_ref().is_some_and(Vec::is_empty) {
            return Err(Refused::NoCounters);
        }
        match self.refused_by_level(filter, whole_cpus) {
            Some(refused) if self.privileged == Some(false) => Err(refused),
            _ => Ok(()),
        }
    }

    /// The refusal, if the level forbids this to ordinary users. Linux
    /// `Documentation/admin-guide/sysctl/kernel.rst`; Debian and Ubuntu add levels above 2, which
    /// forbid everything.
    fn refused_by_level(&self, filter: BranchFilter, whole_cpus: bool) -> Option<Refused> {
        let highest = match (whole_cpus, filter.kernel()) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        };
        let level = self.level.filter(|level| *level > highest)?;
        Some(Refused::Level { level, highest })
    }

    /// The cause of an error of perf_event_open(2).
    pub(super) fn refused(&self, error: io::Error, asked: &EventRequest<'_>) -> Refused {
        match error.raw_os_error() {
            Some(libc::ENOSYS) => Refused::NoEvents,
            Some(libc::ENOENT) => Refused::NoCounters,
            Some(libc::EOPNOTSUPP) if asked.filter.contains(BranchFilter::STACK) => {
                Refused::Filter { asked: asked.filter }
            }
            Some(libc::EOPNOTSUPP) => Refused::NoStacks,
            Some(libc::EINVAL) => match (asked.sampling, self.most_hz) {
                (Sampling::Rate { hz, .. }, Some(most)) if hz > most => Refused::Rate { hz, most },
                _ => Refused::Filter { asked: asked.filter },
            },
            Some(libc::EACCES | libc::EPERM) => {
                let refused = self.refused_by_level(asked.filter, asked.threads.is_none());
                refused.unwrap_or(Refused::Forbidden)
            }
            Some(libc::EBUSY) => Refused::Busy,
            Some(libc::EMFILE | libc::ENFILE) => Refused::Files,
            Some(libc::ESRCH) => {
                let first = asked.threads.and_then(<[i32]>::first);
                Refused::NoProcess { pid: first.map_or(0, |pid| pid.unsigned_abs()) }
            }
            _ => Refused::Os(error),
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/perf/host.rs"]
mod tests;
