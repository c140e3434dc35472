//! Table of contents of this test target; a file for each subject.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

/// Shared test code; each target includes the parts that it needs.
#[path = "../support"]
#[allow(dead_code, unreachable_pub, reason = "not every target needs all of a part")]
mod support {
    pub(crate) mod corpus;
    pub(crate) mod decoded;
    pub(crate) mod faults;
    pub(crate) mod lbr;
    pub(crate) mod linked;
    pub(crate) mod mapping;
    pub(crate) mod oracle;
    pub(crate) mod programs;
    pub(crate) mod random;
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    pub(crate) mod registers;
    pub(crate) mod screen;
    pub(crate) mod skip;
    pub(crate) mod truth;
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod aarch64;
mod annotate;
mod another_file;
mod arm;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod armed;
mod book;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod browse;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod confined;
mod control_flow;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod crash;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod cuts;
mod decode;
mod diff;
mod directories;
mod doctor;
mod drawn;
mod dump;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod endings;
mod explain;
mod export;
mod export_program;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod faults;
mod handlers;
mod help;
mod hist;
mod hostile;
mod hosts;
mod html;
mod interrupt;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod learn;
mod lint_binary;
mod model;
mod outputs;
mod paths;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod predicted;
mod printed_places;
mod probe;
mod program_first;
mod read_back;
mod record;

mod report;
mod screens;
mod script;
mod select;
mod spelling;
mod start;
mod symbolic;
mod symbols;
mod terminal;
mod textbook;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod trace;
mod verify;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "../guest/graph.rs"]
#[allow(unreachable_pub, reason = "a test's modules are not reachable from outside")]
mod graph;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "../guest/complete.rs"]
mod guest_complete;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "../guest/perf.rs"]
mod guest_perf;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "../guest/record.rs"]
mod guest_record;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "../guest/verify.rs"]
mod guest_verify;
mod pprof;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod time;
mod verify_hardware;
mod views;
mod wrong;
