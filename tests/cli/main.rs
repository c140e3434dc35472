//! Table of contents of this test target; a file for each subject.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "../corpus.rs"]
#[allow(dead_code, unreachable_pub, reason = "not every target reads the corpus")]
mod corpus;

mod doctor;
mod dump;
#[path = "../oracle.rs"]
#[allow(dead_code, reason = "not every target needs all of it")]
mod oracle;
mod probe;

mod decode;
mod explain;
