//! SIGINT and SIGTERM while a program is recorded: they belong to the program.
//!
//! The recorder passes them on, so that the program's handlers run and are recorded. A program that
//! does not end is killed after [`GRACE`], or at the next signal.
#![allow(unsafe_code, reason = "a signal handler that reads the sender")]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::libc::{self, c_int, c_void, siginfo_t};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::Pid;

/// How long a program may take to end after the first signal.
pub const GRACE: Duration = Duration::from_secs(10);
/// Signals closer together than this count as one: `timeout` sends its signal to the process, and
/// then to its group.
const TOGETHER: Duration = Duration::from_millis(200);

/// The same limit if one sender signals both the program and this process, as for a process group:
/// on a busy machine, the two signals arrive far apart.
const TOGETHER_BY_ONE: Duration = Duration::from_secs(5);

static COUNT: AtomicU32 = AtomicU32::new(0);
static LAST: AtomicI32 = AtomicI32::new(0);
static SENDER: AtomicI32 = AtomicI32::new(0);
static BY_TERMINAL: AtomicBool = AtomicBool::new(false);

/// A handle to the signals received since [`listen`](Self::listen).
#[derive(Clone, Copy, Debug)]
pub struct Interrupts(());

extern "C" fn note(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a valid structure to a handler with SA_SIGINFO.
    let (code, sender) = unsafe { ((*info).si_code, (*info).si_pid()) };
    LAST.store(signal, Ordering::Relaxed);
    SENDER.store(sender, Ordering::Relaxed);
    // sigaction(2): SI_KERNEL means, for these two signals, a key pressed at the terminal and sent
    // to its whole foreground process group.
    BY_TERMINAL.store(code == libc::SI_KERNEL, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Release);
}

impl Interrupts {
    /// Catches SIGINT and SIGTERM, which then no longer end this process.
    ///
    /// # Errors
    /// The system's error.
    pub fn listen() -> io::Result<Interrupts> {
        let handler = SigHandler::SigAction(note);
        let action =
            SigAction::new(handler, SaFlags::SA_SIGINFO | SaFlags::SA_RESTART, SigSet::empty());
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            // SAFETY: the handler only writes to atomics.
            unsafe { sigaction(signal, &action) }?;
        }
        Ok(Interrupts(()))
    }

    /// Catches nothing.
    #[cfg(test)]
    pub(crate) fn unheard() -> Interrupts {
        Interrupts(())
    }

    /// Number of signals received.
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
    /// Passes on the signals that arrive from now on.
    pub fn new(interrupts: Interrupts) -> Passing {
        Passing { interrupts, seen: 0, first: None }
    }

    /// Passes new signals on to process `pid` (`None`: there is no process to receive them).
    /// Returns whether it is time to end the recording and the program.
    pub fn is_time_to_end(&mut self, pid: Option<i32>) -> bool {
        self.is_time_to_end_at(Instant::now(), pid)
    }

    fn is_time_to_end_at(&mut self, now: Instant, pid: Option<i32>) -> bool {
        let count = self.interrupts.count();
        if std::mem::replace(&mut self.seen, count) == count {
            return self.first.is_some_and(|first| now.duration_since(first) > GRACE);
        }
        let (Some(pid), None) = (pid, self.first) else {
            return self.first.is_none_or(|first| now.duration_since(first) > TOGETHER);
        };
        self.first = Some(now);
        // The terminal has already sent it to the program.
        if !BY_TERMINAL.load(Ordering::Relaxed)
            && let Ok(signal) = Signal::try_from(LAST.load(Ordering::Relaxed))
        {
            // The program may have ended.
            let _ = kill(Pid::from_raw(pid), signal);
        }
        false
    }
}

/// The last signal delivered to a traced program, its sender, and when. The program gets a signal
/// sent to a whole process group twice: directly, and passed on.
#[derive(Debug, Default)]
pub(crate) struct Delivered(Option<(c_int, c_int, Instant)>);

impl Delivered {
    /// Whether the same signal was delivered a moment ago, and one of the two was passed on.
    pub(crate) fn is_repeated(&mut self, signal: c_int, sender: c_int) -> bool {
        self.is_repeated_at(Instant::now(), signal, sender)
    }

    fn is_repeated_at(&mut self, now: Instant, signal: c_int, sender: c_int) -> bool {
        if ![libc::SIGINT, libc::SIGTERM].contains(&signal) {
            return false;
        }
        let is_ours = |sender: c_int| sender.unsigned_abs() == std::process::id();
        let other = self.0.take_if(|(last, by, since)| {
            let direct = if is_ours(sender) { *by } else { sender };
            let is_one = direct == SENDER.load(Ordering::Relaxed);
            let together = if is_one { TOGETHER_BY_ONE } else { TOGETHER };
            let apart = now.saturating_duration_since(*since);
            *last == signal && is_ours(*by) != is_ours(sender) && apart < together
        });
        if other.is_none() {
            self.0 = Some((signal, sender, now));
        }
        other.is_some()
    }
}

#[cfg(test)]
#[path = "../../tests/sampler/unit/interrupt.rs"]
mod tests;
