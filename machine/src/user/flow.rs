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
    returning: bool,
    /// The last block whose system call executed.
    called: Option<&'static Block>,
    /// The positions that signals interrupted, outermost first.
    interrupted: [Interrupted; NESTING],
    depth: usize,
    /// Number of branches that a signal interrupted, and of which it is unknown whether they were
    /// taken.
    unresolved: u64,
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

    /// The program calls rt_sigreturn(2).
    pub(super) fn signal_returns(&mut self) {
        self.returning = true;
    }

    /// Number of interrupted branches that are not (yet, or ever) known to be taken.
    pub(super) fn unresolved(&self) -> u64 {
        self.unresolved
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
mod tests {
    use super::*;
    use lbr_msr::insn::Isa;

    /// A block of 16 bytes at `start` that ends with these bytes.
    fn block(start: u64, bytes: &[u8]) -> &'static Block {
        let last = start + 16 - bytes.len() as u64;
        Box::leak(Box::new(Block::new(Isa::X86_64, start, last, bytes, 2)))
    }

    /// The branch at the end of `from` is reached, and execution continues at `to`.
    fn arrive(flow: &mut Flow, from: &'static Block, to: u64, handlers: &Handlers) -> Arrival {
        flow.go_to(from);
        flow.branch();
        enter(flow, to, handlers)
    }

    /// The position of a signal that interrupts at this branch.
    fn at(branch: &'static Block) -> Interrupted {
        Interrupted { at: branch.last, until: branch.last, branch: Some(branch) }
    }

    fn enter(flow: &mut Flow, to: u64, handlers: &Handlers) -> Arrival {
        let before = flow.go_to(block(to, &[0x90]));
        flow.enter(before, to, handlers)
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
    fn the_fast_path_equals_the_slow_path() {
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
            let long = match Flow::new().enter((from, from), to, &handlers) {
                Arrival::Branch(from) => Some(Some(from)),
                Arrival::Straight => Some(None),
                _ => None,
            };
            assert_eq!(long, says, "to {to:#x}");
        }
        // At the handler's offset in its page: the slow path checks the full address.
        assert_eq!(Flow::new().pass(None, 0x5000, |to| handlers.may_contain(to)), None);
        assert_eq!(Flow::new().enter((None, None), 0x5000, &handlers), Arrival::Straight);
    }

    #[test]
    fn a_block_that_is_left_before_its_end_has_reached_no_branch() {
        let none = Handlers::new();
        let (jnz, ret) = (block(0x1000, &[0x75, 0x20]), block(0x1030, &[0xc3]));
        let mut flow = Flow::new();
        flow.go_to(jnz);
        // As QEMU's generated code does.
        #[allow(unsafe_code, reason = "what QEMU's code writes to is a pointer")]
        // SAFETY: points into `flow`, which has no other user.
        unsafe {
            *flow.reached() += 1;
        };
        assert_eq!(flow.go_to(ret), (Some(jnz), Some(jnz)));
        assert_eq!(flow.go_to(jnz), (Some(ret), None));
        assert_eq!(enter(&mut flow, ret.start, &none), Arrival::Straight);
    }

    #[test]
    fn a_signal_delays_the_branch_until_its_handler_returns() {
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
            assert_eq!(arrive(&mut flow, from, 0x9000, &handlers), Arrival::Signal(at(from)));
            assert_eq!(flow.unresolved(), 1);
            assert_eq!(arrive(&mut flow, ret, 0x6000, &handlers), Arrival::Branch(ret));
            flow.signal_returns();
            let back = if unresolved == 0 { from.last } else { to };
            let resumed = Arrival::Resumed(back, taken);
            assert_eq!(enter(&mut flow, to, &handlers), resumed, "back to {to:#x}");
            assert_eq!(flow.unresolved(), unresolved, "back to {to:#x}");
        }
    }

    #[test]
    fn signals_inside_and_after_one_another() {
        let handlers = Handlers::new();
        handlers.add(0x9000);
        let mut flow = Flow::new();
        let (jnz, within) = (block(0x1000, &[0x75, 0x20]), block(0x5000, &[0x90]));
        flow.go_to(within);
        let middle = Interrupted { at: 0x5000, until: 0x5010, branch: None };
        assert_eq!(enter(&mut flow, 0x9000, &handlers), Arrival::Signal(middle));
        assert_eq!(arrive(&mut flow, jnz, 0x9000, &handlers), Arrival::Signal(at(jnz)));
        flow.signal_returns();
        let again = enter(&mut flow, 0x9000, &handlers);
        assert_eq!(again, Arrival::Again(at(jnz)), "one more was waiting");
        flow.signal_returns();
        assert_eq!(enter(&mut flow, 0x1030, &handlers), Arrival::Resumed(jnz.last, Some(jnz)));
        flow.signal_returns();
        assert_eq!(enter(&mut flow, 0x5008, &handlers), Arrival::Resumed(0x5000, None));
        assert_eq!((flow.depth, flow.unresolved()), (0, 0));
        flow.signal_returns();
        let unknown = enter(&mut flow, 0x5008, &handlers);
        assert_eq!(unknown, Arrival::Resumed(0x5008, None), "of no known signal");
    }

    #[test]
    fn a_system_call_interrupted_by_a_signal() {
        let handlers = Handlers::new();
        handlers.add(0x9000);
        let call = block(0x2000, &[0x0f, 0x05]);
        // After the call with EINTR; at the call, which restarts, with SA_RESTART.
        for (to, back) in [(0x2010, 0x2010), (0x200e, 0x200e)] {
            let mut flow = Flow::new();
            flow.go_to(call);
            assert_eq!((flow.position(), flow.calls()), (0x200e, 0x2010));
            let behind = Interrupted { at: 0x2010, until: 0x2010, branch: None };
            assert_eq!(enter(&mut flow, 0x9000, &handlers), Arrival::Signal(behind));
            flow.signal_returns();
            assert_eq!(enter(&mut flow, to, &handlers), Arrival::Resumed(back, None));
        }
    }

    #[test]
    fn branches_of_handlers_that_never_return_stay_unresolved() {
        let handlers = Handlers::new();
        handlers.add(0x9000);
        let ret = block(0x2000, &[0xc3]);
        let mut flow = Flow::new();
        for _ in 0..NESTING + 3 {
            assert_eq!(arrive(&mut flow, ret, 0x9000, &handlers), Arrival::Signal(at(ret)));
        }
        assert_eq!((flow.depth, flow.unresolved()), (NESTING, NESTING as u64 + 3));
    }
}
