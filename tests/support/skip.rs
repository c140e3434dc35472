//! What a test needs and does not find.

use std::fmt::Display;
use std::io::Write as _;
use std::process::{Command, Output};

/// Says why the running test is skipped, as a line `skipped: WHY` of standard
/// error. Not by `eprintln!`, which the test harness swallows where a test
/// passes: a test that looked at nothing would look like one that held.
pub(crate) fn skipped(why: impl Display) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let _ = writeln!(std::io::stderr(), "skipped: {} ({test})", why.to_string().trim_end());
}

/// A tool of the system, in the locale whose words tests know.
pub(crate) fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("LC_ALL", "C").stdin(std::process::Stdio::null());
    command
}

/// Runs a tool; `None`, after saying so, where it is not installed.
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
