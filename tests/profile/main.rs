//! Table of contents of this test target; a file for each subject.

#[path = "../corpus.rs"]
#[allow(dead_code, reason = "not every target reads the corpus")]
mod corpus;
