//! A course over the software LBR: short programs of real machine code, what
//! each of their instructions does to the registers of a chosen CPU, and
//! questions whose answers are read off the ring.
//!
//! A [`Lesson`] is data. Its [`Program`] is run once, on paper: [`Trace`] holds
//! every instruction that ran. A [`Session`] feeds them to a
//! [`SoftLbr`](lbr_msr::soft::SoftLbr) one by one, keeps every state that it
//! went through, and shows one as a [`View`]. A program of somebody else is
//! traced by single-stepping it ([`run`]).
//!
//! Predictions and cycles are those of the [model](lbr_msr::soft::Model), never measured: an
//! instruction takes one cycle, and a misprediction [`PENALTY`] more.

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
pub use question::{Answer, Asked, Question};
pub use session::{Refused, Session, Setup, State};
pub use view::{Bits, Slot, View, lacks};

use lbr_msr::soft::Retired;

/// One lesson of the course.
#[derive(Debug)]
pub struct Lesson {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it teaches, in a line.
    pub title: &'static str,
    /// The CPU that it is about, as [`SoftCpu::preset`](lbr_msr::soft::SoftCpu::preset)
    /// takes it.
    pub cpu: &'static str,
    /// What is recorded, in perf's names.
    pub filter: &'static str,
    /// Fields of control registers that are set beside that.
    pub set: &'static [&'static str],
    /// The erratum that it is about, as
    /// [`Faults`](lbr_msr::soft::Faults) reads it; empty for none.
    pub erratum: &'static str,
    /// Paragraphs.
    pub text: &'static [&'static str],
    /// The program, as [`Program::assemble`] takes it.
    pub code: &'static str,
    /// What is asked at its end.
    pub questions: &'static [Question],
}

impl Lesson {
    /// The lesson of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Lesson> {
        LESSONS.iter().copied().find(|lesson| lesson.name == name)
    }
}

/// What a program did, instruction by instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Its code.
    pub program: Program,
    /// What ran, in order.
    pub steps: Vec<Step>,
    /// Where it goes on after the last.
    pub end: u64,
}

/// An instruction that ran, or what happened between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Address of the instruction; of an event, of the one that comes next.
    pub at: u64,
    /// What it did to the flow of control.
    pub did: Did,
}

/// What a step does to the branch records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// Nothing: the next instruction follows.
    Straight,
    /// A branch that was not taken.
    FellThrough {
        /// It was predicted to be taken; nothing records that.
        mispredicted: bool,
    },
    /// A branch that was taken.
    Branch(Retired),
    /// An interrupt came, a branch of the CPU's own.
    Interrupt(Retired),
    /// Something happened beside the branches.
    Event(Event),
}

/// What can happen to a CPU between two instructions.
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
    /// What happened, in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Event::Pmi => "a performance-monitoring interrupt (PMI)",
            Event::Smi => "a system-management interrupt (SMI), and its return",
            Event::DeepCState => "the core slept in a C-state deeper than C1",
            Event::DebugException => "a debug exception (#DB)",
        }
    }
}
