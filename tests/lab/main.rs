//! Table of contents of this test target; a file for each subject.
#![allow(clippy::unwrap_used, reason = "a test may fail")]
#![allow(unreachable_pub, reason = "a test's modules are not reachable from outside")]

// The name of the crate in the rest of the workspace.
extern crate lbr_lab as lab;

/// Shared test code; each target includes the parts that it needs.
#[path = "../support"]
#[allow(dead_code, unreachable_pub, reason = "not every target needs all of a part")]
mod support {
    pub(crate) mod faults;
    pub(crate) mod recorder;
    pub(crate) mod skip;
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod learn;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod measure;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod measure_closure;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod ratio;
mod verify;
mod verify_restore;
