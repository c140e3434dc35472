//! Every taken branch of one program, from inside `qemu-x86_64`.
//!
//! QEMU translates the program block by block; a branch is always the last
//! instruction of its block. Two places of each block call the plugin: its
//! first instruction, and the branch at its end. Where control comes from a
//! branch that was reached and arrives somewhere else than behind it, that
//! branch was taken.
//!
//! What cannot be seen: whether a conditional branch whose target is the next
//! instruction was taken. Such executions are counted.
//!
//! A signal handler is entered between two blocks. Which addresses are
//! handlers is known from the program's rt_sigaction(2) calls; the branch that
//! the signal interrupted is decided when the handler returns, by where
//! execution goes on, and shipped then: after the branches of the handler.

mod block;
#[path = "../../../sampler/src/source/qemu/channel/mod.rs"]
#[allow(dead_code, reason = "the reading half is for the other side")]
mod channel;
mod flow;
mod handlers;
#[path = "../../../sampler/src/source/qemu/record.rs"]
#[allow(dead_code, reason = "reading is for the other side")]
mod record;

// What calls QEMU, and what only that needs: a test program has no QEMU around
// it to link with.
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
