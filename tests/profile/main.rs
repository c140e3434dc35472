//! Table of contents of this test target; a file for each subject.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

// The name of the crate in the rest of the workspace.
extern crate lbr_profile as profile;

/// Shared test code; each target includes the parts that it needs.
#[path = "../support"]
#[allow(dead_code, unreachable_pub, reason = "not every target needs all of a part")]
mod support {
    pub(crate) mod corpus;
    pub(crate) mod decoded;
    pub(crate) mod itself;
    pub(crate) mod linked;
    pub(crate) mod mapping;
    pub(crate) mod random;
    pub(crate) mod skip;
}

mod agree;
mod annotate;
mod arguments;
mod brstack;
mod callgraph;
mod cleaning;
mod compare;
mod compiled;
mod counters;
mod debugdata;
mod export;
mod fields;
mod golden;
mod hot;
mod interval;
mod kernel;
mod lines;
mod lint;
mod loops;
mod modes;
mod packed;
mod place;
mod processes;
mod reader;
mod recorded;
mod seekable;
mod select;
mod several;
mod split;
mod structured;
mod symbolic;
mod symbols;
mod trace;
mod vdso;
mod views;
mod vmlinux;
mod writer;
