//! Pieces of code whose taken branches are known.

use std::fmt;

use lbr_msr::record::HwBranchType;

/// A piece of code to run while recording is on. What it executes is known;
/// where it lies is told by the [`Ran`] that running it yields.
///
/// Nothing but the listed branches is taken between switching on and
/// switching off, except in ring 0 on the way there and back, and what
/// interrupts the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// So many near relative jumps in user mode, each from and to a place of
    /// its own: so many distinct records.
    Jumps(u32),
    /// One taken branch of each class, in this order, from and to distinct
    /// places: conditional, near relative jump, near indirect jump, near
    /// relative call, near return (of that call), near indirect call, (its
    /// return is not executed before the switch, or is listed), then SYSCALL
    /// (far, into ring 0), anything unlisted in ring 0, and SYSRET: eight that
    /// are listed, as many as the smallest ring with a filter holds.
    EveryClass,
    /// `calls` nested near calls (relative and indirect in turn), of which the
    /// innermost `returns` return while recording is on.
    Calls {
        /// Nested calls.
        calls: u32,
        /// Returns; at most `calls`.
        returns: u32,
    },
    /// One near call that does not return, and in it so many calls of a leaf
    /// function, which does.
    Leaves(u32),
    /// One near call that does not return, and in it a call to the next
    /// instruction whose return address is popped without a RET.
    ZeroLengthCall,
    /// So many taken conditional branches that any predictor foresees.
    Predictable(u32),
    /// So many taken conditional branches, each of them taken or not by a
    /// random bit (the ones not taken are not counted).
    Unpredictable(u32),
    /// Two near relative jumps with a chain of dependent one-cycle
    /// instructions of this length between them.
    Chain(u32),
    /// A transaction with one near relative jump in it, that commits; where
    /// `abort` is set it ends by XABORT after the jump instead.
    Transaction {
        /// It aborts.
        abort: bool,
    },
    /// Branches whose FROM or TO is in the upper half of the address space:
    /// at least one that lands in ring 0 and one that comes from there.
    KernelAddresses,
    /// Two near relative jumps and then an exception.
    Exception,
    /// Three near relative jumps, a PMI, and another jump.
    AroundPmi,
    /// Three near relative jumps and then an SMI.
    AroundSmi,
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kernel::Jumps(n) => write!(f, "{n} jumps"),
            Kernel::EveryClass => f.write_str("a branch of each class"),
            Kernel::Calls { calls, returns } => write!(f, "{calls} calls and {returns} returns"),
            Kernel::Leaves(n) => write!(f, "a call and in it {n} calls of a leaf"),
            Kernel::ZeroLengthCall => f.write_str("a call and in it a call to the next place"),
            Kernel::Predictable(n) => write!(f, "{n} predictable branches"),
            Kernel::Unpredictable(n) => write!(f, "{n} unpredictable branches"),
            Kernel::Chain(n) => write!(f, "a chain of {n} cycles"),
            Kernel::Transaction { abort: false } => f.write_str("a transaction that commits"),
            Kernel::Transaction { abort: true } => f.write_str("a transaction that aborts"),
            Kernel::KernelAddresses => f.write_str("branches into and out of ring 0"),
            Kernel::Exception => f.write_str("an exception"),
            Kernel::AroundPmi => f.write_str("jumps around a PMI"),
            Kernel::AroundSmi => f.write_str("jumps before an SMI"),
        }
    }
}

/// A taken branch that a kernel is known to have executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Known {
    /// Where it starts; `None` where that is not known (inside the kernel).
    pub from: Option<u64>,
    /// Where it lands; `None` where that is not known.
    pub to: Option<u64>,
    /// Its class.
    pub class: HwBranchType,
    /// A call to the next instruction.
    pub zero_length_call: bool,
    /// Privilege level before.
    pub cpl_before: u8,
    /// Privilege level after.
    pub cpl_after: u8,
    /// It retired inside a transaction.
    pub in_tx: bool,
    /// It is a transaction abort.
    pub abort: bool,
}

impl Known {
    /// A branch in user code.
    #[must_use]
    pub const fn user(from: u64, to: u64, class: HwBranchType) -> Known {
        Known {
            from: Some(from),
            to: Some(to),
            class,
            zero_length_call: false,
            cpl_before: 3,
            cpl_after: 3,
            in_tx: false,
            abort: false,
        }
    }
}

/// What a kernel did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// The taken branches between switching on and switching off, oldest
    /// first.
    pub branches: Vec<Known>,
    /// Branches ran in ring 0 that are not listed (the way out of and into the
    /// operating system). A filter that leaves out ring 0 leaves them out,
    /// except one far branch to user mode at the beginning.
    pub unlisted: bool,
    /// How many of the branches came before the event that the kernel is
    /// about (PMI, SMI, exception).
    pub before_event: Option<usize>,
}
