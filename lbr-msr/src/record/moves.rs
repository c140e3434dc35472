//! Transfers of control by the kernel, which are not branches of the program.

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
