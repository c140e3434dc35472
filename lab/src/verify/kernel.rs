//! Pieces of code whose taken branches are known.

use lbr_msr::soft::Retired;

/// A piece of code to run while recording is on. Its branches are known; the [`Ran`] that running
/// it returns has their addresses.
///
/// While recording is on, only the listed branches are taken, except in ring 0 on the way there and
/// back, and by interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// This many near relative jumps in user mode, each with its own source and target, so that all
    /// records are distinct.
    Jumps(u32),
    /// One taken branch of each class, in this order, with distinct sources and targets:
    /// conditional, near relative jump, near indirect jump, near relative call, near return (of
    /// that call), near indirect call (its return is executed after the switch, or is listed), then
    /// SYSCALL (far, into ring 0), anything unlisted in ring 0, and SYSRET: eight listed branches,
    /// the depth of the smallest LBR stack with a filter.
    EveryClass,
    /// `calls` nested near calls (relative and indirect in turn); the innermost `returns` of them
    /// return while recording is on.
    Calls {
        /// Nested calls.
        calls: u32,
        /// Returns; at most `calls`.
        returns: u32,
    },
    /// One near call that does not return, and in it this many calls of a leaf function that does.
    Leaves(u32),
    /// One near call that does not return, and in it a call to the next
    /// instruction whose return address is popped without a RET.
    ZeroLengthCall,
    /// This many taken conditional branches that any predictor predicts.
    Predictable(u32),
    /// This many taken conditional branches, each taken or not by a random bit (those not taken are
    /// not counted).
    Unpredictable(u32),
    /// Two near relative jumps with a chain of this many dependent one-cycle instructions between
    /// them.
    Chain(u32),
    /// A transaction that contains one near relative jump. It commits, or, with `abort`, ends in
    /// XABORT after the jump.
    Transaction {
        /// Abort instead of committing.
        abort: bool,
    },
    /// Branches with FROM or TO in the upper half of the address space: at least one into ring 0
    /// and one out of it.
    KernelAddresses,
    /// Two near relative jumps and then an exception.
    Exception,
    /// Three near relative jumps, a PMI, and another jump.
    AroundPmi,
    /// Three near relative jumps and then an SMI.
    AroundSmi,
}

/// A taken branch of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Known {
    /// Its source; `None` if unknown (inside the operating system).
    pub from: Option<u64>,
    /// Its target; `None` if unknown.
    pub to: Option<u64>,
    /// Its class, privilege levels and transaction; its other fields are not used.
    pub like: Retired,
}

impl Known {
    /// A branch with both addresses known.
    pub const fn of(branch: Retired) -> Known {
        let like = Retired { mispredicted: None, cycles: None, ..branch };
        Known { from: Some(branch.from), to: Some(branch.to), like }
    }
}

/// A kernel's execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// The branches taken while recording was on, oldest first.
    pub branches: Vec<Known>,
    /// The operating system also took branches in ring 0, which are not listed. A filter that
    /// suppresses ring 0 suppresses them, except for one far branch to user mode at the start.
    pub unlisted: bool,
    /// Number of the branches before the kernel's event (PMI, SMI, exception).
    pub before_event: Option<usize>,
}
