//! The control flow of one thread from block to block: its taken branches.

use super::block::{Block, Ending};
use super::handlers::Handlers;

/// Maximum number of nested signal handlers; beyond that the oldest interrupted branch is given up.
const NESTING: usize = 16;

/// The outcome of the previous branch, as known when a block starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// No branch was taken.
    Straight,
    /// The branch at the end of this block was taken, to the start of the new block.
    Branch(&'static Block),
    /// A signal was delivered: the kernel moved the thread to a handler.
    Signal(Interrupted),
    /// A handler has returned, and the next signal interrupts at the same address.
    Again(Interrupted),
    /// A handler has returned; contains the address, the interrupted one if the interrupted code
    /// continues, and the interrupted branch, if it was one and was taken.
    Resumed(u64, Option<&'static Block>),
    /// Execution continued where the previous branch cannot go.
    Impossible,
}

/// The position at which a signal interrupted a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Interrupted {
    /// The first instruction counted as not executed: the branch that was reached; else the first
    /// of the block, because QEMU does not report the faulting instruction.
    pub(super) at: u64,
    /// The last return address of the handler at which the interrupted code continues.
    until: u64,
    /// The branch at the end of the block, if it was reached.
    pub(super) branch: Option<&'static Block>,
}

/// The current position of a thread.
#[derive(Debug)]
pub(super) struct Flow {
    /// Nonzero if the branch at the end of `current` was reached. A number, because QEMU's
    /// generated code adds to it.
    reached: u64,
    /// The last block started.
    current: Option<&'static Block>,
    /// rt_sigreturn(2) was called: the next block is the interrupted code.
    pub(super) returning: bool,
    /// The last block whose system call executed.
    called: Option<&'static Block>,
    /// The positions that signals interrupted, outermost first.
    interrupted: [Interrupted; NESTING],
    depth: usize,
    /// Number of branches that a signal interrupted and that are not (yet, or ever) known to be
    /// taken.
    pub(super) unresolved: u64,
}

impl Flow {
    pub(super) const fn new() -> Flow {
        Flow {
            reached: 0,
            current: None,
            returning: false,
            called: None,
            interrupted: [Interrupted { at: 0, until: 0, branch: None }; NESTING],
            depth: 0,
            unresolved: 0,
        }
    }

    /// `block` starts. Returns the previous block, and the same again if the branch at its end was
    /// reached.
    #[inline]
    pub(super) fn go_to(
        &mut self,
        block: &'static Block,
    ) -> (Option<&'static Block>, Option<&'static Block>) {
        let before = self.current.replace(block);
        (before, if std::mem::take(&mut self.reached) == 0 { None } else { before })
    }

    /// Address of the last instruction of the current block.
    pub(super) fn position(&self) -> u64 {
        self.current.map_or(0, |block| block.last)
    }

    /// The system call at the end of the current block executes. Returns the next address.
    pub(super) fn calls(&mut self) -> u64 {
        self.called = self.current;
        self.current.map_or(0, |block| block.next)
    }

    /// The branch at the end of the last block executes.
    #[inline]
    pub(super) fn branch(&mut self) {
        self.reached = 1;
    }

    /// The number that may be made nonzero instead of calling [`branch`](Self::branch).
    pub(super) const fn reached(&mut self) -> *mut u64 {
        &raw mut self.reached
    }

    /// The fast path: decides the `reached` branch when the block at `to` starts, and returns it if
    /// it was taken. `is_handler` may return true for other addresses as well.
    #[inline(always)]
    pub(super) fn pass(
        &self,
        reached: Option<&'static Block>,
        to: u64,
        is_handler: impl FnOnce(u64) -> bool,
    ) -> Option<Option<&'static Block>> {
        let Some(from) = reached else {
            return (!self.returning && !is_handler(to)).then_some(None);
        };
        if to == from.target {
            return Some(Some(from));
        }
        if to == from.falls_to {
            return Some(None);
        }
        (from.ending == Ending::Indirect && !is_handler(to)).then_some(Some(from))
    }

    /// Starts the block at `to`, with the result of [`go_to`](Self::go_to).
    pub(super) fn enter(
        &mut self,
        (before, reached): (Option<&'static Block>, Option<&'static Block>),
        to: u64,
        handlers: &Handlers,
    ) -> Arrival {
        let passed = self.pass(reached, to, |to| handlers.contains(to));
        match (passed, reached) {
            (Some(Some(from)), _) => Arrival::Branch(from),
            (Some(None), _) => Arrival::Straight,
            (None, None) if self.returning => self.resume(to, handlers),
            (None, None) => self.interrupt(before, None),
            (None, Some(from)) if from.ending == Ending::Invisible && to == from.next => {
                Arrival::Straight
            }
            (None, Some(from)) => self.elsewhere(from, to, handlers),
        }
    }

    /// The branch does not lead here.
    #[cold]
    fn elsewhere(&mut self, from: &'static Block, to: u64, handlers: &Handlers) -> Arrival {
        if handlers.contains(to) {
            return self.interrupt(None, Some(from));
        }
        // The branch is executed again: QEMU left the block for internal reasons.
        if to == from.last || from.ending == Ending::Straight {
            return Arrival::Straight;
        }
        Arrival::Impossible
    }

    fn interrupt(
        &mut self,
        before: Option<&'static Block>,
        branch: Option<&'static Block>,
    ) -> Arrival {
        let called = before.filter(|before| self.called == Some(*before));
        let interrupted = match (branch, called, before) {
            (Some(from), ..) => Interrupted { at: from.last, until: from.last, branch },
            (_, Some(called), _) => Interrupted { at: called.next, until: called.next, branch },
            (.., Some(within)) => Interrupted { at: within.start, until: within.next, branch },
            (.., None) => Interrupted::default(),
        };
        if self.depth == NESTING {
            self.interrupted.rotate_left(1);
            self.depth -= 1;
        }
        if let Some(slot) = self.interrupted.get_mut(self.depth) {
            *slot = interrupted;
            self.depth += 1;
        }
        self.unresolved += u64::from(branch.is_some());
        Arrival::Signal(interrupted)
    }

    /// A handler has returned to `to`.
    #[cold]
    fn resume(&mut self, to: u64, handlers: &Handlers) -> Arrival {
        self.returning = false;
        let depth = self.depth.checked_sub(1);
        let last = depth.and_then(|depth| self.interrupted.get(depth)).copied();
        let (Some(depth), Some(last)) = (depth, last) else { return Arrival::Resumed(to, None) };
        if handlers.contains(to) {
            // The next signal was pending, and interrupts at the same address.
            return Arrival::Again(last);
        }
        self.depth = depth;
        let Some(from) = last.branch else {
            let goes_on = (last.at..=last.until).contains(&to);
            return Arrival::Resumed(if goes_on { last.at } else { to }, None);
        };
        let taken = match from.ending {
            Ending::Conditional | Ending::Direct if to == from.target => Some(from),
            Ending::Conditional | Ending::Invisible if to == from.next => None,
            // It faulted, and is executed again.
            _ if to == from.last => None,
            Ending::Indirect => Some(from),
            // The handler continued the program elsewhere.
            _ => return Arrival::Resumed(to, None),
        };
        self.unresolved = self.unresolved.saturating_sub(1);
        Arrival::Resumed(last.at, taken)
    }
}

#[cfg(test)]
#[path = "../../../tests/machine/unit/user/flow.rs"]
mod tests;
