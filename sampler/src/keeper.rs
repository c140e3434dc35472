//! The watchdog process: a child that restores the registers when the recorder cannot.
//!
//! It is forked after the registers were read and before any is written. It has its own copy of the
//! plans and of the saved values, and inherits the descriptors: the `msr` driver checks
//! CAP_SYS_RAWIO when a node is opened, not when it is written (Linux msr.c), so the watchdog can
//! write even if it loses that right.
//!
//! It reads from a pipe. The recorder sends each LBR's number before arming it, and again after
//! restoring it. The pipe closes however the recorder dies; the watchdog then restores every LBR
//! that is still armed, and exits. A child of the recorder that writes registers keeps the pipe
//! open, so the watchdog waits for the pipe at most 500 ms longer than the recorder lives. It runs
//! in its own session and ignores signals that end programs, because signals from a terminal or
//! `timeout` go to the whole process group.
#![allow(unsafe_code, reason = "fork, _exit, and ignoring signals in the child")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, pipe2, setsid};

/// Why the watchdog process could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeeperError {
    /// The process has threads, and a fork of it could do next to nothing.
    #[error(
        "the watchdog process must be forked before threads start, but this process has {0}; this is a bug; please report it"
    )]
    Threads(usize),
    /// More LBRs than a ticket can number.
    #[error("{0} CPUs are too many for the watchdog process")]
    TooMany(usize),
    /// The operating system refused.
    #[error(
        "cannot start the watchdog process, which restores the registers if lbr is killed: {what}: {cause}"
    )]
    Os {
        /// The failed operation.
        what: &'static str,
        /// The system's error message.
        cause: io::Error,
    },
}

/// The first byte of a three-byte message; the LBR's number follows.
const ARMING: u8 = b'a';
const SETTLED: u8 = b's';
/// The recorder no longer needs the watchdog, even if others still hold the pipe.
const FAREWELL: [u8; 3] = [b'f', 0, 0];

/// How long the pipe may stay open after the recorder's death, in milliseconds.
const GRACE: u16 = 500;

/// The recorder's end of the pipe, and the child to reap. Closed when the last ticket is dropped.
#[derive(Debug)]
struct Lifeline {
    pipe: File,
    keeper: Pid,
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        // Other processes may still hold the pipe. If the write fails, the watchdog has ended.
        let _ = self.pipe.write_all(&FAREWELL);
        while waitpid(self.keeper, None) == Err(Errno::EINTR) {}
    }
}

/// Registers that the watchdog process can restore.
pub trait Restorable {
    /// Receives the ticket that reports arming and restoring to the watchdog.
    fn give(&mut self, ticket: Ticket);

    /// Restores the saved values; called only in the watchdog process. Returns whether all of them
    /// are restored.
    fn put_back(&mut self) -> bool;
}

/// An LBR's number in its watchdog process.
#[derive(Clone, Debug)]
pub struct Ticket {
    line: Arc<Lifeline>,
    number: u16,
}

impl Ticket {
    /// Announces that this LBR will be written.
    ///
    /// # Errors
    /// [`KeeperError::Os`] if the watchdog has ended.
    pub fn arming(&self) -> Result<(), KeeperError> {
        self.tell(ARMING).map_err(|cause| KeeperError::Os { what: "it has ended", cause })
    }

    /// Reports that this LBR needs no restoring.
    pub fn settle(self) {
        // If the watchdog is gone, there is nothing to tell.
        let _ = self.tell(SETTLED);
    }

    /// The recorder's end of the pipe. The watchdog restores nothing while any process has it open;
    /// a child that writes the registers must keep it open.
    pub(crate) fn lifeline(&self) -> RawFd {
        self.line.pipe.as_raw_fd()
    }

    fn tell(&self, what: u8) -> io::Result<()> {
        let [low, high] = self.number.to_le_bytes();
        (&self.line.pipe).write_all(&[what, low, high])
    }
}

/// Starts a watchdog process for LBRs that will be armed. It ends when the last ticket is dropped.
///
/// Must be called while the process has a single thread: the child of a multi-threaded process may
/// only call async-signal-safe functions, and restoring needs more.
///
/// # Errors
/// [`KeeperError`]. Nothing is armed yet, so it is safe to stop.
pub fn watch<R: Restorable>(rings: &mut [R]) -> Result<(), KeeperError> {
    let count = rings.len();
    if u16::try_from(count).is_err() {
        return Err(KeeperError::TooMany(count));
    }
    let os = |what| move |cause: io::Error| KeeperError::Os { what, cause };
    let threads = threads().map_err(os("listing threads"))?;
    if threads != 1 {
        return Err(KeeperError::Threads(threads));
    }
    let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(|errno| os("opening a pipe")(errno.into()));
    let ((read, write), (hears, ready)) = (pipe()?, pipe()?);
    let recorder = this_process();
    // SAFETY: the process has only this thread, so in the child no lock is held by a thread that
    // does not exist there. The child leaves only by `_exit`: it never returns and runs none of the
    // parent's destructors.
    match unsafe { fork() }.map_err(|errno| os("forking")(errno.into()))? {
        ForkResult::Child => {
            drop((write, hears));
            let line = Line { pipe: read.into(), recorder };
            let kept = catch_unwind(AssertUnwindSafe(|| be_keeper(line, ready, rings)));
            // SAFETY: ends the process without flushing or dropping anything of the parent's twice.
            unsafe { libc::_exit(i32::from(!matches!(kept, Ok(true)))) }
        }
        ForkResult::Parent { child } => {
            let line = Arc::new(Lifeline { pipe: write.into(), keeper: child });
            drop((read, ready, recorder));
            let heard = File::from(hears).read_exact(&mut [0]);
            heard.map_err(os("it did not answer"))?;
            for (number, ring) in (0..=u16::MAX).zip(rings) {
                ring.give(Ticket { line: Arc::clone(&line), number });
            }
            Ok(())
        }
    }
}

/// A pidfd of this process, which becomes readable when it dies. `None` before Linux 5.3.
fn this_process() -> Option<OwnedFd> {
    // SAFETY: the system call takes two numbers and no pointer.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    let opened = RawFd::try_from(opened).ok().filter(|descriptor| *descriptor >= 0)?;
    // SAFETY: the descriptor was just opened, and nothing else owns it.
    Some(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// The watchdog's end of the pipe, and the pidfd of the recorder.
struct Line {
    pipe: File,
    recorder: Option<OwnedFd>,
}

impl Line {
    /// The next message. `None` if the pipe has closed or failed, or if the recorder is dead and
    /// sent nothing more.
    fn next(&mut self) -> Option<[u8; 3]> {
        let mut message = [0; 3];
        self.waits_for_more().then_some(())?;
        self.pipe.read_exact(&mut message).ok().map(|()| message)
    }

    /// Waits until the pipe has a message or is closed. False if the recorder is dead and neither
    /// happens within [`GRACE`].
    fn waits_for_more(&self) -> bool {
        let Some(recorder) = &self.recorder else { return true };
        let pipe = self.pipe.as_fd();
        first_is_ready([pipe, recorder.as_fd()], PollTimeout::NONE)
            || first_is_ready([pipe], GRACE.into())
    }
}

/// Waits until one of the descriptors is ready. True if the first is readable or has failed.
fn first_is_ready<const N: usize>(descriptors: [BorrowedFd<'_>; N], limit: PollTimeout) -> bool {
    loop {
        let mut polled = descriptors.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN));
        match poll(&mut polled, limit) {
            Err(Errno::EINTR) => {}
            Err(_) => return true,
            Ok(_) => return polled.first().is_some_and(|first| first.any() == Some(true)),
        }
    }
}

/// The number of threads of this process. A joined thread stays listed for a moment, so the count
/// is retried if it exceeds one.
fn threads() -> io::Result<usize> {
    let patience = Instant::now();
    loop {
        let threads = std::fs::read_dir("/proc/self/task")?.count();
        if threads == 1 || patience.elapsed() > Duration::from_secs(2) {
            return Ok(threads);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The child's main function. Returns whether everything was restored.
fn be_keeper<R: Restorable>(line: Line, ready: OwnedFd, rings: &mut [R]) -> bool {
    // Failures are harmless: a new child leads no process group, and the signals exist.
    let _ = setsid();
    let ends = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGPIPE];
    for end in ends {
        // SAFETY: ignoring a signal installs no handler.
        let _ = unsafe { signal(end, SigHandler::SigIgn) };
    }
    // For `ps`.
    let _ = nix::sys::prctl::set_name(c"lbr-keeper");
    // From now on only SIGKILL ends it. If the recorder is dead, the write fails, and the other
    // pipe closes too.
    let _ = File::from(ready).write_all(&[1]);
    keep(line, rings)
}

/// Reads messages until the pipe closes, then restores what is armed.
fn keep<R: Restorable>(mut line: Line, rings: &mut [R]) -> bool {
    let mut armed = vec![false; rings.len()];
    while let Some(message) = line.next().filter(|message| *message != FAREWELL) {
        let [what, low, high] = message;
        if let Some(armed) = armed.get_mut(usize::from(u16::from_le_bytes([low, high]))) {
            *armed = what == ARMING;
        }
    }
    let mut all = true;
    for (ring, _) in rings.iter_mut().zip(armed).filter(|(_, armed)| *armed) {
        all &= ring.put_back();
    }
    all
}
