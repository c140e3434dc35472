//! SIGINT and SIGTERM while a program is recorded: they are the program's.
//!
//! The recorder passes them on, so that the program's own handlers run, and are
//! recorded. A program that does not end by itself is killed [`GRACE`] later, or
//! at the next signal.
#![allow(unsafe_code, reason = "a signal handler that sees who sent the signal")]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::libc::{self, c_int, c_void, siginfo_t};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::Pid;

/// How long a program has to end by itself after the first signal.
pub const GRACE: Duration = Duration::from_secs(10);
/// Signals that come sooner than that after the first are one: `timeout` sends
/// its signal to the process, and then to its group.
const TOGETHER: Duration = Duration::from_millis(200);

static COUNT: AtomicU32 = AtomicU32::new(0);
static LAST: AtomicI32 = AtomicI32::new(0);
static BY_TERMINAL: AtomicBool = AtomicBool::new(false);

/// The signals that have come since they are listened for.
#[derive(Clone, Copy, Debug)]
pub struct Interrupts(());

extern "C" fn note(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel hands a valid structure to a handler with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    LAST.store(signal, Ordering::Relaxed);
    // sigaction(2): what the kernel sends itself; for these two signals, at a
    // key of the terminal, to its whole foreground group.
    BY_TERMINAL.store(code == libc::SI_KERNEL, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Release);
}

impl Interrupts {
    /// Listens for SIGINT and SIGTERM, which no longer end this process.
    ///
    /// # Errors
    /// The system's.
    pub fn listen() -> io::Result<Interrupts> {
        let handler = SigHandler::SigAction(note);
        let action =
            SigAction::new(handler, SaFlags::SA_SIGINFO | SaFlags::SA_RESTART, SigSet::empty());
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            // SAFETY: the handler does nothing but write to atomics.
            unsafe { sigaction(signal, &action) }?;
        }
        Ok(Interrupts(()))
    }

    /// How many have come.
    #[must_use]
    pub fn count(self) -> u32 {
        COUNT.load(Ordering::Acquire)
    }
}

/// Passes signals on to a program.
#[derive(Debug)]
pub struct Passing {
    interrupts: Interrupts,
    seen: u32,
    first: Option<Instant>,
}

impl Passing {
    /// Of those that come from now on.
    #[must_use]
    pub fn new(interrupts: Interrupts) -> Passing {
        Passing { interrupts, seen: 0, first: None }
    }

    /// Passes on what has come since to process `pid` (`None`: nobody who could
    /// take it). Whether it is time to end the recording, and the program.
    pub fn is_time_to_end(&mut self, pid: Option<i32>) -> bool {
        let count = self.interrupts.count();
        if std::mem::replace(&mut self.seen, count) == count {
            return self.first.is_some_and(|first| first.elapsed() > GRACE);
        }
        let (Some(pid), None) = (pid, self.first) else {
            return self.first.is_none_or(|first| first.elapsed() > TOGETHER);
        };
        self.first = Some(Instant::now());
        // The terminal has sent its own to the program too.
        if !BY_TERMINAL.load(Ordering::Relaxed)
            && let Ok(signal) = Signal::try_from(LAST.load(Ordering::Relaxed))
        {
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(pid), signal);
        }
        false
    }
}

/// What a traced program got last. A signal to a whole process group comes to it
/// twice: by itself, and passed on.
#[derive(Debug, Default)]
pub(crate) struct Delivered(Option<(c_int, bool, Instant)>);

impl Delivered {
    /// Whether a signal that is about to be delivered was delivered a moment ago,
    /// and one of the two was passed on.
    pub(crate) fn is_repeated(&mut self, signal: c_int, sender: c_int) -> bool {
        if ![libc::SIGINT, libc::SIGTERM].contains(&signal) {
            return false;
        }
        let is_ours = sender.unsigned_abs() == std::process::id();
        let other = self.0.take_if(|(last, ours, since)| {
            *last == signal && *ours != is_ours && since.elapsed() < TOGETHER
        });
        if other.is_none() {
            self.0 = Some((signal, is_ours, Instant::now()));
        }
        other.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_to_the_group_comes_once() {
        let ours = std::process::id() as c_int;
        let mut delivered = Delivered::default();
        for (signal, sender, repeated) in [
            (libc::SIGTERM, 1, false),
            (libc::SIGTERM, ours, true),
            // Two that others sent are two.
            (libc::SIGTERM, 1, false),
            (libc::SIGTERM, 1, false),
            (libc::SIGINT, ours, false),
            (libc::SIGTERM, ours, false),
            (libc::SIGTERM, 1, true),
            (libc::SIGUSR1, ours, false),
            (libc::SIGUSR1, 1, false),
        ] {
            assert_eq!(delivered.is_repeated(signal, sender), repeated, "{signal} of {sender}");
        }
    }
}
