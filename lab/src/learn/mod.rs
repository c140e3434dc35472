//! A course over the software LBR: short programs of real machine code, the effect of each of their
//! instructions on a chosen CPU's registers, and questions whose answers are in the LBR stack.
//!
//! A [`Lesson`] is data. Its [`Program`] is simulated once: [`Trace`] holds every executed
//! instruction. A [`Session`] feeds them to a [`SoftLbr`](lbr_msr::soft::SoftLbr) one by one, keeps
//! every state, and shows one as a [`View`]. The user's own program is traced by single-stepping it
//! ([`run`]).
//!
//! Predictions and cycles come from the [model](lbr_msr::soft::Model) and are never measured: an
//! instruction takes one cycle, a misprediction [`PENALTY`] more.

mod lessons;
mod own;
mod program;
mod question;
mod session;
mod view;
mod walk;

pub use lbr_msr::soft::PENALTY;
pub use lessons::LESSONS;
pub use own::{Own, run};
pub use program::{Line, Program};
pub use question::{Answer, Question, StackProperty};
pub use session::{Refused, Session, Setup, State};
pub use view::{Bits, Slot, View, lacks};

use lbr_msr::soft::Retired;

/// One lesson of the course.
#[derive(Debug)]
pub struct Lesson {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line on its topic.
    pub title: &'static str,
    /// The CPU that it demonstrates, as an argument of
    /// [`SoftCpu::preset`](lbr_msr::soft::SoftCpu::preset).
    pub cpu: &'static str,
    /// The recorded branches, as perf's filter names.
    pub filter: &'static str,
    /// Additional control register fields that are set.
    pub set: &'static [&'static str],
    /// The erratum that it demonstrates, as [`Faults`](lbr_msr::soft::Faults) parses it; empty for
    /// none.
    pub erratum: &'static str,
    /// Its paragraphs.
    pub text: &'static [&'static str],
    /// The program, in the syntax of [`Program::assemble`].
    pub code: &'static str,
    /// Questions at its end.
    pub questions: &'static [Question],
}

/// A program's execution, instruction by instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The program's code.
    pub program: Program,
    /// The executed instructions, in order.
    pub steps: Vec<Step>,
    /// Address of the instruction after the last step.
    pub end: u64,
}

/// An executed instruction, or an event between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Address of the instruction; for an event, of the next instruction.
    pub at: u64,
    /// Its effect on control flow.
    pub did: Did,
}

/// A step's effect on control flow and the branch records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// Execution continues with the next instruction.
    Straight,
    /// A branch that was not taken.
    FellThrough {
        /// It was predicted taken; no LBR records that.
        mispredicted: bool,
    },
    /// A taken branch.
    Branch(Retired),
    /// An interrupt, a branch made by the CPU itself.
    Interrupt(Retired),
    /// An event other than a branch.
    Event(Event),
}

/// An event between two instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A performance-monitoring interrupt.
    Pmi,
    /// A system-management interrupt, and its return.
    Smi,
    /// A stay in a C-state deeper than C1.
    DeepCState,
    /// A debug exception.
    DebugException,
}

impl Event {
    /// Describes the event.
    pub const fn words(self) -> &'static str {
        match self {
            Event::Pmi => "a performance-monitoring interrupt (PMI)",
            Event::Smi => "a system-management interrupt (SMI), and its return",
            Event::DeepCState => "the core slept in a C-state deeper than C1",
            Event::DebugException => "a debug exception (#DB)",
        }
    }
}
