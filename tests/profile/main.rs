//! Table of contents of this test target; a file for each subject.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../corpus.rs"]
#[allow(dead_code, unreachable_pub, reason = "not every target reads the corpus")]
mod corpus;

mod brstack;
mod golden;
mod hot;
mod interval;
mod lint;
mod packed;
mod reader;
mod recorded;
mod symbols;
mod views;
mod writer;
