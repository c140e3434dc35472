//! Pages long text on a terminal, as git does.

use std::io::{self, IsTerminal, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lbr_msr::environment::is_secure;

/// Whether `--no-pager` was given.
static UNWANTED: AtomicBool = AtomicBool::new(false);

/// Messages for standard error, held while a pager has the terminal.
static HELD: Mutex<Option<String>> = Mutex::new(None);

/// Disables the pager.
pub(super) fn unwanted() {
    UNWANTED.store(true, Ordering::Relaxed);
}

/// Standard output, through a pager if it is a terminal. The pager starts with the first text:
/// until then lbr has the terminal and Ctrl-C.
pub(crate) fn stdout() -> impl Write {
    Standard { to: None }
}

struct Standard {
    to: Option<Box<dyn Write>>,
}

impl Standard {
    fn to(&mut self) -> &mut dyn Write {
        self.to.get_or_insert_with(|| match Pager::start() {
            Some(pager) => Box::new(pager),
            None => Box::new(io::stdout().lock()),
        })
    }
}

impl Write for Standard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.as_mut().map_or(Ok(()), |to| to.flush())
    }
}

/// Holds a message until the pager has ended; returns it if no pager runs.
pub(super) fn hold(message: String) -> Option<String> {
    match &mut *HELD.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(held) => {
            held.push_str(&message);
            None
        }
        None => Some(message),
    }
}

/// Holds all messages from now on: the terminal is drawn on.
pub(super) fn hold_all() {
    *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Some(String::new());
}

/// Prints the messages that were held.
pub(super) fn print_held() {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).take();
    let _ = io::stderr().write_all(held.unwrap_or_default().as_bytes());
}

/// A pager that is written to. It has ended when this is dropped.
struct Pager(Child);

impl Pager {
    /// Starts a pager; `None` if there is no terminal or keyboard, if none is wanted, or if it
    /// fails to start. A process with more rights than its user starts none: environment variables
    /// control what a pager runs.
    fn start() -> Option<Pager> {
        let shown = io::stdout().is_terminal() && io::stdin().is_terminal();
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if !shown || dumb || is_secure() || UNWANTED.load(Ordering::Relaxed) {
            return None;
        }
        let variable = std::env::var_os;
        let program = match variable("LBR_PAGER").or_else(|| variable("PAGER")) {
            Some(named) => named,
            None => sampler::target::find("less").ok()?.into(),
        };
        if program.is_empty() || program == "cat" {
            return None;
        }
        let mut command = Command::new("sh");
        command.arg("-c").arg(program).stdin(Stdio::piped());
        // Quit if one screen suffices, show colors, leave the text on the screen.
        if std::env::var_os("LESS").is_none() {
            command.env("LESS", "FRX");
        }
        // Permission to run lbr by sudo is not permission to run a shell.
        if std::env::var_os("SUDO_UID").is_some() {
            command.env("LESSSECURE", "1");
        }
        let pager = Pager(command.spawn().ok()?);
        // Until the pager ends, the terminal and Ctrl-C belong to it.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::default());
        hold_all();
        Some(pager)
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.stdin.as_mut().map_or(Ok(bytes.len()), |to| to.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.stdin.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        // Closes its input first.
        let _ = self.0.wait();
        print_held();
    }
}
