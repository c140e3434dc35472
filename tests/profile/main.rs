//! Table of contents of this test target; a file for each subject.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../corpus.rs"]
#[allow(dead_code, unreachable_pub, reason = "not every target reads the corpus")]
mod corpus;
#[path = "../linked.rs"]
mod linked;
#[path = "../mapping.rs"]
mod mapping;

mod annotate;
mod brstack;
mod callgraph;
mod compiled;
mod counters;
mod debugdata;
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
mod structured;
mod symbolic;
mod symbols;
mod together;
mod vdso;
mod views;
mod vmlinux;
mod writer;
