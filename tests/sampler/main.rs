//! Table of contents of this test target; a file for each subject.
