//! Recording branches: one engine ([`record`]) for any [`Source`](source::Source), from freezing
//! and draining an LBR to the samples.
//!
//! It never prints. Recordings leave as [`Event`](lbr_msr::record::Event)s through a
//! [`Sink`](lbr_msr::record::Sink).
//!
//! ```no_run
//! use lbr_msr::filter::to_register_disarmed;
//! use lbr_msr::record::Event;
//! use lbr_msr::soft::SoftCpu;
//! use lbr_sampler::source::ptrace::Ptrace;
//! use lbr_sampler::target::Command;
//! use lbr_sampler::{RecordConfig, Sampling, record};
//!
//! // Every user-mode branch of /bin/true, on the software LBR of a Skylake.
//! let cpu = SoftCpu::preset("skylake")?;
//! let select = to_register_disarmed("any,u".parse()?, cpu.caps.filter)?;
//! let config = RecordConfig::modelled(cpu.caps, cpu.perf_capabilities, select)?;
//! let config = RecordConfig { sampling: Sampling::Period(31), ..config };
//! let command = Command { program: "/bin/true".to_owned(), ..Command::default() };
//! let mut events: Vec<Event> = Vec::new();
//! let summary = record(&mut Ptrace::new(command)?, config, &mut events)?;
//! assert!(summary.complete && summary.branches > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod clock;
pub mod config;
pub mod drain;
mod engine;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod flight;
pub mod gate;
pub mod guard;
pub mod interrupt;
pub mod keeper;
mod maps;
pub mod outlet;
pub mod source;
pub mod target;

/// The threads' tools. A test has the engine with others, which a seed schedules.
mod sync {
    pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError, atomic, mpsc};
    pub(crate) use std::thread;

    pub(crate) use rtrb as queue;
}

pub use clock::{DEFAULT_HZ, Pace, Random, fresh_seed};
pub use config::{Classify, Keep, RecordConfig, Sampling};
pub use engine::{RecordError, Summary, Tally, record};
