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
        assert_eq!(flow.unresolved, 1);
        assert_eq!(arrive(&mut flow, ret, 0x6000, &handlers), Arrival::Branch(ret));
        flow.returning = true;
        let back = if unresolved == 0 { from.last } else { to };
        let resumed = Arrival::Resumed(back, taken);
        assert_eq!(enter(&mut flow, to, &handlers), resumed, "back to {to:#x}");
        assert_eq!(flow.unresolved, unresolved, "back to {to:#x}");
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
    flow.returning = true;
    let again = enter(&mut flow, 0x9000, &handlers);
    assert_eq!(again, Arrival::Again(at(jnz)), "one more was waiting");
    flow.returning = true;
    assert_eq!(enter(&mut flow, 0x1030, &handlers), Arrival::Resumed(jnz.last, Some(jnz)));
    flow.returning = true;
    assert_eq!(enter(&mut flow, 0x5008, &handlers), Arrival::Resumed(0x5000, None));
    assert_eq!((flow.depth, flow.unresolved), (0, 0));
    flow.returning = true;
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
        flow.returning = true;
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
    assert_eq!((flow.depth, flow.unresolved), (NESTING, NESTING as u64 + 3));
}
