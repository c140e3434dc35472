//! Why the kernel provides no branch stacks.

use std::io;

use lbr_msr::BranchFilter;

use crate::target::SourceError;

/// Why perf events cannot record branches, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// ENOSYS.
    #[error("this kernel was built without perf events")]
    NoEvents,
    /// No driver is bound to performance counters.
    #[error("the kernel found no performance counters of this CPU")]
    NoCounters,
    /// sysfs `rdpmc` is 0.
    #[error("programs may not read this CPU's counters with RDPMC")]
    NoRdpmc,
    /// There are counters without branch records.
    #[error(
        "the kernel found performance counters on this CPU, but no branch records (or a virtual \
         machine with KVM's mediated PMU has them)"
    )]
    NoStacks,
    /// The system's perf_event_paranoid forbids it.
    #[error(
        "kernel.perf_event_paranoid is {level}, which forbids {what} without CAP_PERFMON",
        what = match highest {
            2.. => "all perf events",
            1 => "branches of the kernel",
            _ => "recording whole CPUs",
        }
    )]
    Level {
        /// The current level.
        level: i32,
        /// The highest level that permits this.
        highest: i32,
    },
    /// Refused, although perf_event_paranoid permits it.
    #[error(
        "perf_event_open is not permitted, although kernel.perf_event_paranoid would allow it: the \
         filter of a container (seccomp), a security module, or a process of another user"
    )]
    Forbidden,
    /// EINVAL or EOPNOTSUPP although there are branch stacks.
    #[error("the branch stacks of this CPU and kernel cannot do `{asked}`")]
    Filter {
        /// The requested filter.
        asked: BranchFilter,
    },
    /// The rate exceeds the kernel's limit.
    #[error("{hz} samples per second exceed the limit of this kernel, {most}")]
    Rate {
        /// The requested rate.
        hz: u32,
        /// The kernel's limit.
        most: u32,
    },
    /// EBUSY.
    #[error(
        "something else has exclusive use of the counters or the branch records: a driver, Intel PT, \
         BTS, or a virtual machine with a mediated PMU"
    )]
    Busy,
    /// EMFILE.
    #[error("too many perf events for one process: each thread and CPU takes an open file")]
    Files,
    /// No memory for a ring buffer.
    #[error(
        "the limit of locked memory for perf's ring buffers is reached: other perf sessions use it"
    )]
    Memory,
    /// The process does not exist.
    #[error("no process {pid} is running")]
    NoProcess {
        /// The requested process.
        pid: u32,
    },
    /// None of the CPUs has usable counters.
    #[error("none of the CPUs to record is online and has performance counters")]
    NoCpu,
    /// The program cannot be started.
    #[error(transparent)]
    Target(#[from] SourceError),
    /// Any other error.
    #[error("perf_event_open: {0}")]
    Os(io::Error),
}

impl Refused {
    /// The fix, if there is one.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Refused::Level { highest, .. } => format!(
                "as root: sysctl kernel.perf_event_paranoid={highest}, or setcap cap_perfmon+ep on \
                 lbr"
            ),
            Refused::Forbidden => {
                "permit perf_event_open in the container or security module".to_owned()
            }
            Refused::Rate { hz, .. } => {
                format!("as root: sysctl kernel.perf_event_max_sample_rate={hz}")
            }
            Refused::NoCounters => {
                "the firmware may hide them, or a newer kernel may support them".to_owned()
            }
            Refused::NoRdpmc => {
                "as root: echo 1 > /sys/bus/event_source/devices/cpu/rdpmc".to_owned()
            }
            Refused::Busy => "end it".to_owned(),
            Refused::Files => "raise the limit of open files: ulimit -n".to_owned(),
            Refused::Memory => {
                "end them, or raise kernel.perf_event_mlock_kb or ulimit -l".to_owned()
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/perf/refused.rs"]
mod tests;
