//! One thread's way from block to block: which branches it takes.

use super::block::{Block, Ending};
use super::handlers::Handlers;

/// Signals that may be handled inside one another before the oldest
/// interrupted branch is given up.
const NESTING: usize = 16;

/// What entering a block says of the branch before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// No branch was taken.
    Straight,
    /// The branch at the end of this block was taken, to where the new block
    /// starts.
    Branch(&'static Block),
    /// A signal was delivered: the kernel has moved the thread into a handler.
    Signal,
    /// A handler has returned; the branch that the signal interrupted, if it
    /// was one and was taken.
    Resumed(Option<&'static Block>),
    /// Control arrived where the branch before cannot go.
    Impossible,
}

/// Where a thread is.
#[derive(Debug)]
pub(super) struct Flow {
    /// Not 0 where the branch at the end of `current` was reached. A number, because
    /// QEMU's own code adds to it.
    reached: u64,
    /// The block entered last.
    current: Option<&'static Block>,
    /// rt_sigreturn(2) was called: the next block is where a signal interrupted.
    returning: bool,
    /// The branches that signals interrupted (`None`: it was none), outermost
    /// first.
    interrupted: [Option<&'static Block>; NESTING],
    depth: usize,
    /// Branches that a signal interrupted and of which it is not known whether
    /// they were taken.
    unresolved: u64,
}

impl Flow {
    pub(super) const fn new() -> Flow {
        Flow {
            reached: 0,
            current: None,
            returning: false,
            interrupted: [None; NESTING],
            depth: 0,
            unresolved: 0,
        }
    }

    /// Execution comes to `block`. The block before, where the branch at its end was
    /// reached.
    #[inline]
    pub(super) fn go_to(&mut self, block: &'static Block) -> Option<&'static Block> {
        let before = self.current.replace(block);
        if std::mem::take(&mut self.reached) == 0 { None } else { before }
    }

    /// The branch at the end of the block entered last executes.
    #[inline]
    pub(super) fn branch(&mut self) {
        self.reached = 1;
    }

    /// What is to be made other than 0 in place of a call of
    /// [`branch`](Self::branch).
    pub(super) const fn reached(&mut self) -> *mut u64 {
        &raw mut self.reached
    }

    /// The program calls rt_sigreturn(2).
    pub(super) fn signal_returns(&mut self) {
        self.returning = true;
    }

    /// Branches that a signal interrupted and of which it is not known (yet,
    /// or ever) whether they were taken.
    pub(super) fn unresolved(&self) -> u64 {
        self.unresolved
    }

    /// What entering the block at `to` says, where nothing has to be looked at but the
    /// branch `reached` before: that branch, if it was taken. `is_handler` may take other
    /// places for handlers.
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

    /// Execution enters the block at `to`, with what [`go_to`](Self::go_to) said.
    pub(super) fn enter(
        &mut self,
        reached: Option<&'static Block>,
        to: u64,
        handlers: &Handlers,
    ) -> Arrival {
        let passed = self.pass(reached, to, |to| handlers.contains(to));
        match (passed, reached) {
            (Some(Some(from)), _) => Arrival::Branch(from),
            (Some(None), _) => Arrival::Straight,
            (None, None) if self.returning => self.resume(to, handlers),
            (None, None) => self.interrupt(None),
            (None, Some(from)) if from.ending == Ending::Invisible && to == from.next => {
                Arrival::Straight
            }
            (None, Some(from)) => self.elsewhere(from, to, handlers),
        }
    }

    /// The branch did not lead here.
    #[cold]
    fn elsewhere(&mut self, from: &'static Block, to: u64, handlers: &Handlers) -> Arrival {
        if handlers.contains(to) {
            return self.interrupt(Some(from));
        }
        // A branch that is executed again: QEMU has left the block for
        // reasons of its own.
        if to == from.last || from.ending == Ending::Straight {
            return Arrival::Straight;
        }
        Arrival::Impossible
    }

    fn interrupt(&mut self, from: Option<&'static Block>) -> Arrival {
        if self.depth == NESTING {
            self.interrupted.rotate_left(1);
            self.depth -= 1;
        }
        if let Some(slot) = self.interrupted.get_mut(self.depth) {
            *slot = from;
            self.depth += 1;
        }
        self.unresolved += u64::from(from.is_some());
        Arrival::Signal
    }

    /// A handler has returned to `to`.
    #[cold]
    fn resume(&mut self, to: u64, handlers: &Handlers) -> Arrival {
        self.returning = false;
        let Some(depth) = self.depth.checked_sub(1) else { return Arrival::Straight };
        if handlers.contains(to) {
            // The next signal was waiting, and interrupts at the same place.
            return Arrival::Signal;
        }
        self.depth = depth;
        let Some(from) = self.interrupted.get(depth).copied().flatten() else {
            return Arrival::Resumed(None);
        };
        let taken = match from.ending {
            Ending::Conditional | Ending::Direct if to == from.target => Some(from),
            Ending::Conditional | Ending::Invisible if to == from.next => None,
            // It faulted, and is executed again.
            _ if to == from.last => None,
            Ending::Indirect => Some(from),
            // The handler has sent the program elsewhere.
            _ => return Arrival::Resumed(None),
        };
        self.unresolved = self.unresolved.saturating_sub(1);
        Arrival::Resumed(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of 16 bytes at `start` that ends with these bytes.
    fn block(start: u64, bytes: &[u8]) -> &'static Block {
        let last = start + 16 - bytes.len() as u64;
        Box::leak(Box::new(Block::new(start, last, bytes, 2)))
    }

    /// The branch at the end of `from` is reached, and control arrives at `to`.
    fn arrive(flow: &mut Flow, from: &'static Block, to: u64, handlers: &Handlers) -> Arrival {
        flow.go_to(from);
        flow.branch();
        enter(flow, to, handlers)
    }

    fn enter(flow: &mut Flow, to: u64, handlers: &Handlers) -> Arrival {
        let reached = flow.go_to(block(to, &[0x90]));
        flow.enter(reached, to, handlers)
    }

    #[test]
    fn without_signals() {
        let none = Handlers::new();
        let mut flow = Flow::new();
        let jnz = block(0x1000, &[0x75, 0x20]);
        assert_eq!(arrive(&mut flow, jnz, 0x1030, &none), Arrival::Branch(jnz));
        assert_eq!(arrive(&mut flow, jnz, 0x1010, &none), Arrival::Straight);
        assert_eq!(arrive(&mut flow, jnz, 0x1011, &none), Arrival::Impossible);
        let jnz_next = block(0x1000, &[0x75, 0]);
        assert_eq!(arrive(&mut flow, jnz_next, 0x1010, &none), Arrival::Straight);
        let call_next = block(0x1000, &[0xe8, 0, 0, 0, 0]);
        assert_eq!(arrive(&mut flow, call_next, 0x1010, &none), Arrival::Branch(call_next));
        let ret = block(0x1000, &[0xc3]);
        assert_eq!(arrive(&mut flow, ret, 0x1010, &none), Arrival::Branch(ret));
        assert_eq!(enter(&mut flow, 0x5000, &none), Arrival::Straight, "no branch was reached");
    }

    #[test]
    fn the_short_way_says_what_the_long_one_says() {
        let handlers = Handlers::new();
        handlers.add(0x9000);
        let (jnz, ret) = (block(0x1000, &[0x75, 0x20]), block(0x2000, &[0xc3]));
        for (from, to, says) in [
            (Some(jnz), 0x1030, Some(Some(jnz))),
            (Some(jnz), 0x1010, Some(None)),
            (Some(ret), 0x4444, Some(Some(ret))),
            (Some(jnz), 0x1011, None),
            (Some(ret), 0x9000, None),
            (None, 0x4444, Some(None)),
            (None, 0x4444, Some(None)),
        ] {
            let short = Flow::new().pass(from, to, |to| handlers.may_contain(to));
            assert_eq!(short, says, "to {to:#x}");
            let long = match Flow::new().enter(from, to, &handlers) {
                Arrival::Branch(from) => Some(Some(from)),
                Arrival::Straight => Some(None),
                _ => None,
            };
            assert_eq!(long, says, "to {to:#x}");
        }
        // As far into its page as the handler: the long way looks closer.
        assert_eq!(Flow::new().pass(None, 0x5000, |to| handlers.may_contain(to)), None);
        assert_eq!(Flow::new().enter(None, 0x5000, &handlers), Arrival::Straight);
    }

    #[test]
    fn a_block_that_is_left_before_its_end_has_reached_no_branch() {
        let none = Handlers::new();
        let (jnz, ret) = (block(0x1000, &[0x75, 0x20]), block(0x1030, &[0xc3]));
        let mut flow = Flow::new();
        flow.go_to(jnz);
        // As QEMU's own code says it.
        #[allow(unsafe_code, reason = "what QEMU's code writes to is a pointer")]
        // SAFETY: it points into `flow`, which nobody else uses.
        unsafe {
            *flow.reached() += 1;
        };
        assert_eq!(flow.go_to(ret), Some(jnz));
        assert_eq!(flow.go_to(jnz), None);
        assert_eq!(enter(&mut flow, ret.start, &none), Arrival::Straight);
    }

    #[test]
    fn a_signal_puts_the_branch_off_until_its_handler_returns() {
        let handlers = Handlers::new();
        handlers.add(0x9000);
        let mut flow = Flow::new();
        let jnz = block(0x1000, &[0x75, 0x20]);
        let ret = block(0x2000, &[0xc3]);
        for (from, to, taken, unresolved) in [
            (jnz, 0x1030, Some(jnz), 0),
            (jnz, 0x1010, None, 0),
            (ret, 0x4444, Some(ret), 0),
            (ret, ret.last, None, 0),
            (jnz, 0x7777, None, 1),
        ] {
            assert_eq!(arrive(&mut flow, from, 0x9000, &handlers), Arrival::Signal);
            assert_eq!(flow.unresolved(), 1);
            assert_eq!(arrive(&mut flow, ret, 0x6000, &handlers), Arrival::Branch(ret));
            flow.signal_returns();
            assert_eq!(enter(&mut flow, to, &handlers), Arrival::Resumed(taken), "back to {to:#x}");
            assert_eq!(flow.unresolved(), unresolved, "back to {to:#x}");
        }
    }

    #[test]
    fn signals_inside_and_after_one_another() {
        let handlers = Handlers::new();
        handlers.add(0x9000);
        let mut flow = Flow::new();
        let jnz = block(0x1000, &[0x75, 0x20]);
        assert_eq!(
            enter(&mut flow, 0x9000, &handlers),
            Arrival::Signal,
            "in the middle of a block"
        );
        assert_eq!(arrive(&mut flow, jnz, 0x9000, &handlers), Arrival::Signal);
        flow.signal_returns();
        assert_eq!(enter(&mut flow, 0x9000, &handlers), Arrival::Signal, "one more was waiting");
        flow.signal_returns();
        assert_eq!(enter(&mut flow, 0x1030, &handlers), Arrival::Resumed(Some(jnz)));
        flow.signal_returns();
        assert_eq!(enter(&mut flow, 0x5008, &handlers), Arrival::Resumed(None));
        assert_eq!((flow.depth, flow.unresolved()), (0, 0));
        flow.signal_returns();
        assert_eq!(enter(&mut flow, 0x5008, &handlers), Arrival::Straight, "of no known signal");
    }

    #[test]
    fn branches_of_handlers_that_never_return_stay_unresolved() {
        let handlers = Handlers::new();
        handlers.add(0x9000);
        let ret = block(0x2000, &[0xc3]);
        let mut flow = Flow::new();
        for _ in 0..NESTING + 3 {
            assert_eq!(arrive(&mut flow, ret, 0x9000, &handlers), Arrival::Signal);
        }
        assert_eq!((flow.depth, flow.unresolved()), (NESTING, NESTING as u64 + 3));
    }
}
