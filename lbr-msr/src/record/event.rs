//! The events of a recording: samples, mappings, names, tasks, losses, and transfers of control by
//! the kernel, which are not branches of the program.

use alloc::{boxed::Box, string::String, vec::Vec};

use super::{BranchStack, Label};

/// One reading of an LBR stack, with its thread and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub time: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Logical CPU.
    pub cpu: u32,
    /// Instruction pointer: TO of the newest entry.
    pub ip: u64,
    /// Number of branches that the sample represents; 0 if unknown.
    pub period: u64,
    /// RDI, RSI, RDX, RCX, R8 and R9, if the sample was taken at the entry of a function whose
    /// arguments are recorded (System V ABI, AMD64 supplement, 3.2.3).
    pub arguments: Option<[u64; 6]>,
    /// The branches.
    pub stack: BranchStack,
}

/// A file mapped executable into a process. perf's MMAP2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mmap {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub time: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// First address.
    pub addr: u64,
    /// Length, bytes.
    pub len: u64,
    /// Offset in the file, bytes.
    pub pgoff: u64,
    /// Device of the file, major and minor.
    pub dev: (u32, u32),
    /// Inode of the file.
    pub ino: u64,
    /// Inode generation.
    pub ino_generation: u64,
    /// Build ID of the file, if known.
    pub build_id: Option<Vec<u8>>,
    /// PROT_* bits.
    pub prot: u32,
    /// MAP_* bits.
    pub flags: u32,
    /// Path, or a name in brackets such as `[vdso]`. Invalid UTF-8 is replaced.
    pub path: String,
}

/// A process or thread changes its name. perf's COMM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comm {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub time: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The name, at most 15 bytes.
    pub comm: String,
    /// Whether exec set it.
    pub exec: bool,
}

/// A process or thread starts (FORK) or ends (EXIT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub time: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Parent process.
    pub ppid: u32,
    /// Parent thread.
    pub ptid: u32,
}

/// Recorded stacks that are missing from the stream, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub time: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Logical CPU.
    pub cpu: u32,
    /// Number of stacks.
    pub stacks: u64,
    /// The reason: a label that excludes, or `None` for a full queue.
    pub label: Option<Label>,
}

/// How the kernel moved a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoveKind {
    /// The thread starts: by exec, clone or fork, or because recording begins.
    Start,
    /// It ends, by itself or killed, or it becomes another program.
    End,
    /// It enters a signal handler.
    Signal,
    /// It enters a signal handler after the branch at `from` has executed. The branch is recorded
    /// when the handler returns; if it never returns, the branch's outcome is unknown.
    SignalAtBranch,
    /// A signal handler returns.
    Return,
    /// Anything else: the code between the neighbouring branches is unknown.
    Unknown,
}

/// The kernel moved a thread: no straight-line code leads from the previous branch to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadMove {
    /// Number of entries of the stack that are newer.
    pub newer: u32,
    /// The kind of move.
    pub kind: MoveKind,
    /// Address of the first instruction that did not execute before the move; 0 for
    /// [`Start`](MoveKind::Start).
    pub from: u64,
    /// Address of the instruction that executes next; 0 for [`End`](MoveKind::End).
    pub to: u64,
}

/// One event of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A stack of branches.
    Sample(Sample),
    /// A mapping.
    Mmap(Box<Mmap>),
    /// A name.
    Comm(Comm),
    /// A task starts.
    Fork(Task),
    /// A task ends.
    Exit(Task),
    /// Missing stacks.
    Lost(Lost),
}

/// Receives events in the order in which they happened.
pub trait Sink {
    /// Why the sink could not accept an event.
    type Error;
    /// Accepts one event.
    ///
    /// # Errors
    /// Whatever stops the sink, such as a full disk.
    fn event(&mut self, event: &Event) -> Result<(), Self::Error>;
}

impl Sink for Vec<Event> {
    type Error = core::convert::Infallible;
    fn event(&mut self, event: &Event) -> Result<(), Self::Error> {
        self.push(event.clone());
        Ok(())
    }
}
