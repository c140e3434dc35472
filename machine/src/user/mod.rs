//! Every taken branch of one program, from inside `qemu-x86_64`.
//!
//! QEMU translates the program block by block; a branch is always the last instruction of its
//! block. Each block calls the plugin at its first instruction and at the branch at its end. If a
//! branch was reached and execution continues anywhere but after it, the branch was taken.
//!
//! Not visible: whether a conditional branch to the next instruction was taken. Such executions are
//! counted.
//!
//! A signal handler starts between two blocks. The program's rt_sigaction(2) calls give the
//! addresses of handlers. The interrupted branch is decided when the handler returns, by the
//! address where execution continues, and sent then: after the branches of the handler.

mod block;
#[path = "../../../sampler/src/source/qemu/channel/mod.rs"]
#[allow(dead_code, reason = "the reading half is for the other side")]
mod channel;
mod flow;
mod handlers;
#[path = "../../../sampler/src/source/qemu/record.rs"]
#[allow(dead_code, reason = "reading is for the other side")]
mod record;

// These modules call QEMU, or are used only by code that does; unit tests have no QEMU to link
// with.
#[cfg(not(test))]
mod api;
#[cfg(not(test))]
mod cpus;
#[cfg(not(test))]
mod entry;
#[cfg(not(test))]
mod os;
#[cfg(not(test))]
mod thread;
