//! Table of contents of this test target; a file for each subject.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "../built.rs"]
#[allow(dead_code, reason = "not every target needs all of it")]
mod built;
#[path = "../corpus.rs"]
#[allow(dead_code, unreachable_pub, reason = "not every target reads the corpus")]
mod corpus;

#[path = "../oracle.rs"]
#[allow(dead_code, reason = "not every target needs all of it")]
mod oracle;

mod arm;
mod decode;
mod doctor;
mod dump;
mod explain;
mod probe;
mod record;
mod report;
mod script;

mod views;
