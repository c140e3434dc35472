//! Table of contents of this test target; a file for each subject.
#![allow(clippy::unwrap_used, reason = "a test may fail")]
#![allow(unreachable_pub, reason = "modules of a test are reachable by nobody else")]

#[path = "../corpus.rs"]
#[allow(dead_code, reason = "not every target reads the corpus")]
mod corpus;
mod drain;
mod labels;
mod model;
mod scripted;
mod session;
mod soft;
mod thread;
