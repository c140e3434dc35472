//! Modules of this test target, one per subject.
#![allow(clippy::unwrap_used, reason = "a test may fail")]
#![allow(unreachable_pub, reason = "a test's modules are not reachable from outside")]

// The workspace's name for the crate.
extern crate lbr_sampler as sampler;

/// Shared test support; each target lists the parts it needs.
#[path = "../support"]
#[allow(dead_code, unreachable_pub, reason = "not every target needs all of a part")]
mod support {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    pub(crate) mod itself;
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    pub(crate) mod programs;
    pub(crate) mod random;
    pub(crate) mod recorder;
    pub(crate) mod skip;
}

mod drain;
mod guard;
mod guard_busy;
mod labels;
mod model;
mod moves;
mod scripted;
mod seeds;
mod session;
mod soft;
mod thread;

mod hardware;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod hardware_target;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod program;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod ptrace_oracle;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod ptrace_programs;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod ptrace_signals;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod ptrace_tasks;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod qemu;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod target;
