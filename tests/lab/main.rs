//! Table of contents of this test target; a file for each subject.
#![allow(clippy::unwrap_used, reason = "a test may fail")]
#![allow(unreachable_pub, reason = "modules of a test are reachable by nobody else")]

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod measure;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod measure_closure;
#[path = "../recorder.rs"]
mod recorder;
#[path = "../roots.rs"]
mod roots;
mod verify;
mod verify_restore;
