//! How branches get recorded: pinning, draining, integrity, the sampler
//! thread, targets, and sources of branches where the CPU records none.
//!
//! It never prints. What is recorded leaves as
//! [`Event`](lbr_msr::record::Event)s through a
//! [`Sink`](lbr_msr::record::Sink).

pub mod clock;
mod decoder;
pub mod drain;
pub mod gate;
pub mod guard;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod hardware;
pub mod keeper;
mod maps;
mod pace;
pub mod pin;
pub mod session;
pub mod source;
pub mod target;
pub mod thread;

pub use decoder::{Classify, Keep, Tally};
pub use pace::{DEFAULT_HZ, Pace, fresh_seed};
pub use session::{RecordConfig, RecordError, Sampling, Summary, record, record_on};
