//! How branches get recorded: one engine ([`record`]) over any
//! [`Source`](source::Source), from freezing and draining a ring to the samples
//! that leave it.
//!
//! It never prints. What is recorded leaves as
//! [`Event`](lbr_msr::record::Event)s through a
//! [`Sink`](lbr_msr::record::Sink).

pub mod clock;
pub mod config;
pub mod drain;
mod engine;
pub mod gate;
pub mod guard;
pub mod interrupt;
pub mod keeper;
mod maps;
pub mod outlet;
mod pace;
pub mod source;
pub mod target;

pub use config::{Classify, Keep, RecordConfig, Sampling};
pub use engine::{RecordError, Summary, Tally, record};
pub use pace::{DEFAULT_HZ, Pace, fresh_seed};
