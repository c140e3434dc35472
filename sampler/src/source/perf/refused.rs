//! Why the kernel gives no branch stacks.

use std::io;

use lbr_msr::BranchFilter;
use nix::libc;

use super::host::{Host, highest_level};
use crate::target::SourceError;

/// Why branches cannot be recorded through perf events, and what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// ENOSYS.
    #[error("this kernel was built without perf events")]
    NoEvents,
    /// No driver has bound to performance counters.
    #[error("the kernel found no performance counters of this CPU")]
    NoCounters,
    /// sysfs `rdpmc` is 0.
    #[error("programs may not read the counters of this CPU themselves (RDPMC)")]
    NoRdpmc,
    /// There are counters alone.
    #[error("the kernel found performance counters of this CPU, and no branch records")]
    NoStacks,
    /// The system's policy.
    #[error(
        "kernel.perf_event_paranoid is {level}, which forbids {what} without CAP_PERFMON",
        what = match highest {
            2.. => "all perf events",
            1 => "branches of the kernel",
            _ => "recording whole CPUs",
        }
    )]
    Level {
        /// As it is set.
        level: i32,
        /// The highest at which this is allowed.
        highest: i32,
    },
    /// Not the system's policy.
    #[error(
        "perf_event_open is not permitted, although kernel.perf_event_paranoid would allow it: the \
         filter of a container (seccomp), a security module, or a process of another user"
    )]
    Forbidden,
    /// EINVAL or EOPNOTSUPP where there are branch stacks.
    #[error("`{asked}` cannot be asked of the branch stacks of this CPU and kernel")]
    Filter {
        /// What was asked.
        asked: BranchFilter,
    },
    /// A rate above the kernel's.
    #[error("{hz} samples a second are more than this kernel takes: {most}")]
    Rate {
        /// What was asked.
        hz: u32,
        /// The kernel's limit.
        most: u32,
    },
    /// EBUSY.
    #[error(
        "something else has the counters or the branch records for itself: a driver, Intel PT or BTS"
    )]
    Busy,
    /// EMFILE.
    #[error("too many perf events for one process: each thread and CPU takes an open file")]
    Files,
    /// The ring buffer.
    #[error(
        "no more memory may be locked for the kernel's ring buffers: other perf sessions have it"
    )]
    Memory,
    /// There is no such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// As asked.
        pid: u32,
    },
    /// None of the CPUs has counters that can be used.
    #[error("none of the CPUs to record is online with performance counters")]
    NoCpu,
    /// The program cannot be started.
    #[error(transparent)]
    Target(#[from] SourceError),
    /// Anything else.
    #[error("perf_event_open: {0}")]
    Os(io::Error),
}

/// What was asked of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) filter: BranchFilter,
    pub(super) whole_cpus: bool,
    pub(super) hz: Option<u32>,
    pub(super) pid: i32,
}

impl Refused {
    /// What helps, where something does.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Refused::Level { highest, .. } => format!(
                "as root: sysctl kernel.perf_event_paranoid={highest}, or setcap cap_perfmon+ep on \
                 lbr"
            ),
            Refused::Forbidden => "let the container or the module allow it".to_owned(),
            Refused::Rate { hz, .. } => {
                format!("as root: sysctl kernel.perf_event_max_sample_rate={hz}")
            }
            Refused::NoCounters => {
                "the firmware may hide them, or a newer kernel know them".to_owned()
            }
            Refused::NoRdpmc => {
                "as root: echo 1 > /sys/bus/event_source/devices/cpu/rdpmc".to_owned()
            }
            Refused::Busy => "end it".to_owned(),
            Refused::Files => "ulimit -n with a higher number".to_owned(),
            Refused::Memory => {
                "end them, or raise kernel.perf_event_mlock_kb or ulimit -l".to_owned()
            }
            _ => return None,
        })
    }

    /// What an error of perf_event_open(2) means on this host.
    pub(super) fn of(error: io::Error, host: &Host, asked: Asked) -> Refused {
        match error.raw_os_error() {
            Some(libc::ENOSYS) => Refused::NoEvents,
            Some(libc::ENOENT) => Refused::NoCounters,
            Some(libc::EOPNOTSUPP) if asked.filter.contains(BranchFilter::STACK) => {
                Refused::Filter { asked: asked.filter }
            }
            Some(libc::EOPNOTSUPP) => Refused::NoStacks,
            Some(libc::EINVAL) => match (asked.hz, host.most_hz) {
                (Some(hz), Some(most)) if hz > most => Refused::Rate { hz, most },
                _ => Refused::Filter { asked: asked.filter },
            },
            Some(libc::EACCES | libc::EPERM) => {
                match (host.level, highest_level(asked.filter, asked.whole_cpus)) {
                    (Some(level), highest) if level > highest => Refused::Level { level, highest },
                    _ => Refused::Forbidden,
                }
            }
            Some(libc::EBUSY) => Refused::Busy,
            Some(libc::EMFILE | libc::ENFILE) => Refused::Files,
            Some(libc::ESRCH) => Refused::NoProcess { pid: asked.pid.unsigned_abs() },
            _ => Refused::Os(error),
        }
    }
}
