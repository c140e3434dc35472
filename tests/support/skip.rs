//! Requirements of tests that may be missing.

use std::fmt::Display;
use std::io::Write as _;
use std::process::{Command, Output};

/// Prints why the running test is skipped, as a line `skipped: WHY` to standard error. Not with
/// `eprintln!`, whose output the test harness hides for passing tests: a skipped test would look
/// like a passed one.
pub(crate) fn skipped(why: impl Display) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let _ = writeln!(std::io::stderr(), "skipped: {} ({test})", why.to_string().trim_end());
}

/// A system tool in the C locale.
pub(crate) fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("LC_ALL", "C").stdin(std::process::Stdio::null());
    command
}

/// Runs a tool; `None`, after a skip message, if it is not installed.
pub(crate) fn run_tool(command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skipped(format_args!("no {}", command.get_program().display()));
            None
        }
        Err(error) => panic!("{}: {error}", command.get_program().display()),
    }
}
