//! Table of contents of this test target; a file for each subject.
#![allow(clippy::unwrap_used, reason = "a test may fail")]
#![allow(unreachable_pub, reason = "modules of a test are reachable by nobody else")]

#[path = "../corpus.rs"]
#[allow(dead_code, reason = "not every target reads the corpus")]
mod corpus;
mod drain;
mod guard;
mod guard_busy;
mod labels;
mod model;
#[path = "../recorder.rs"]
mod recorder;
mod scripted;
mod session;
mod soft;
mod thread;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "../built.rs"]
mod built;
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
mod ptrace_tasks;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod qemu;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod target;
