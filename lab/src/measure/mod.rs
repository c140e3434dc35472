//! Measures a piece of code by its branches.
//!
//! The code is enclosed in a [bracket]: two marker jumps at known addresses, enclosed in turn by
//! the two system calls that switch recording on and off. It runs in a traced child process, so
//! that code that faults, hangs or exits is reported and harms nothing else.
//!
//! A [`Session`] first tries the code, then single-steps it to count its instructions and branches
//! exactly, then runs it at full speed. Those runs are timed by the time stamp counter and, with a
//! CPU's branch records, by the core cycles recorded between branches.

pub mod bracket;
mod child;
mod confine;
mod forked;
pub mod image;
mod lane;
mod options;
mod result;
mod ring;
mod runner;
mod session;
mod tool;
mod turns;

pub use child::StepCounts;
pub use confine::{CodeRights, InvalidId};
pub use options::{Fault, FaultKind, MeasureError, Options};
pub use result::{Block, Measurement, Run};
pub use ring::{GuardedRegisters, Reading, Ring};
pub use session::{Session, select};
pub use tool::{ToolOutput, run_tool};
pub use turns::{Ratio, TURNS, Turn, TurnRatio, median, ticks_of};
