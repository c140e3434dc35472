//! Modules of this test target, one per subject.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

/// Shared test support; each target lists the parts it needs.
#[path = "../support"]
#[allow(dead_code, unreachable_pub, reason = "not every target needs all of a part")]
mod support {
    pub(crate) mod corpus;
    pub(crate) mod faults;
    pub(crate) mod oracle;
    pub(crate) mod random;
    pub(crate) mod skip;
}

mod device;
#[cfg(feature = "disasm")]
mod disasm;

mod arm_needs;
mod brbe;
mod decode;
mod explain;
mod filter;
mod order;
mod perf_flags;
mod presets;
mod probe;
mod snapshot;
mod table;

mod insn;
mod registers;

mod arm;
mod arm_allowlist;
mod arm_restore;
mod caps_by_hand;
mod cpuid_texts;
mod faulty;
mod soft_call_stack;
mod soft_encoding;
mod soft_events;
mod soft_fault;
mod soft_faults;
mod soft_filter;
mod soft_model;
mod soft_prediction;
mod soft_ring;
