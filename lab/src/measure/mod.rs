//! Measuring a piece of code by its own branches.
//!
//! The code stands in a [bracket]: two jumps of ours whose addresses are
//! known, with the two system calls that switch recording on and off right
//! outside of them. It runs in a child process that is controlled from
//! outside, so that code that faults, hangs or ends its process is reported,
//! and hurts nobody.
//!
//! A [`Session`] first tries the code, then steps through it one instruction
//! at a time, which counts its instructions and branches exactly, then runs it
//! at full speed: timed by the time stamp counter and, with the branch records
//! of a CPU, by the core cycles that these count between branches.

pub mod bracket;
mod child;
mod closure;
mod confine;
mod fault;
mod forked;
pub mod image;
mod lane;
mod options;
mod ratio;
mod result;
mod ring;
mod runner;
mod sealed;
mod session;
mod turns;
mod walk;

pub use confine::{CodeRights, InvalidId};
pub use fault::{Fault, FaultKind};
pub use forked::end_with_caller;
pub use options::{MeasureError, Options};
pub use ratio::{Ratio, Turn, TurnRatio, ticks_of};
pub use result::{Block, Measurement, Run};
pub use ring::{GuardedRegisters, Reading, Ring};
pub use session::{Session, select};
pub use turns::TURNS;
pub use walk::StepCounts;
